"""What the holder of a namespace does when it is asked: one JSON packet, one answer.

``join``, ``address`` and ``shape`` change links and NICs, ``listen`` opens a listening
socket and hands it over, ``open_netlink`` one to the kernel, ``open_tap`` one that gets
headers. ``traffic`` reads the counters of all devices, ``tcp`` those of TCP, ``start``
starts a program, ``signal`` signals one. When a program has ended, that is reported
unasked.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

from emu.machines import netlink
from emu.machines.nic import NicPlan
from emu.machines.tap import open_tap

#: Bytes of one packet: a command line with its environment must fit.
LARGEST = 180_000
_DESCRIPTORS = 3


def report(there: socket.socket, **fields: Any) -> None:
    """Send one packet."""
    there.send(json.dumps(fields).encode())


class Responder:
    """Answers requests until the other end of the socket is gone."""

    def __init__(self, mine: socket.socket) -> None:
        self._socket = mine
        self._programs: dict[int, int] = {}  # number by process id
        self._network: netlink.Netlink | None = None

    def serve(self) -> None:
        """Answer until nobody asks any more."""
        ended, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(ended, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(ended, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj == ended:
                        os.read(ended, 4096)
                        self._reap()
                    elif not self._answer():
                        return

    def _answer(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._socket, LARGEST, _DESCRIPTORS)
        if not data:
            return False
        request: dict[str, Any] = json.loads(data)
        try:
            getattr(self, f"_{request.pop('do')}")(descriptors, **request)
        except OSError as error:
            report(self._socket, error=f"{error.strerror or error}")
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return True

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                process, status = os.waitpid(-1, os.WNOHANG)
                if not process:
                    return
                number = self._programs.pop(process, None)
                if number is not None:
                    code = os.waitstatus_to_exitcode(status)
                    report(self._socket, ended=number, code=code)

    def _network_socket(self) -> netlink.Netlink:
        if self._network is None:
            self._network = netlink.Netlink()
        return self._network

    def _join(self, _: list[int], devices: dict[str, list[str]], mtu: int) -> None:
        """Take the switch up: bridges, each with a pair of devices per machine."""
        kernel = self._network_socket()
        for bridge, members in devices.items():
            kernel.send([netlink.bridge(bridge, mtu)])
            for number, process in enumerate(members):
                name, peer = f"{bridge}-{number}", bridge
                kernel.send([netlink.veth(name, peer, int(process), mtu)])
                kernel.send([netlink.change_link(name, master=bridge)])
        kernel.send([netlink.change_link("lo")])
        report(self._socket, done=True)

    def _address(self, _: list[int], addresses: dict[str, str]) -> None:
        """Give devices their addresses and take them up."""
        kernel = self._network_socket()
        for name, at in addresses.items():
            kernel.send([netlink.address(name, at, 16), netlink.change_link(name)])
        kernel.send([netlink.change_link("lo")])
        report(self._socket, done=True)

    def _shape(self, _: list[int], device: str, plan: dict[str, Any]) -> None:
        """Make a device a NIC, or change the one that it is."""
        self._network_socket().send(netlink.shape(device, NicPlan(**plan)))
        report(self._socket, done=True)

    def _traffic(self, _: list[int]) -> None:
        """Report bytes and packets of every device: received, sent."""
        found = {}
        for line in Path("/proc/self/net/dev").read_text().splitlines()[2:]:
            name, figures = line.split(":")
            counts = [int(figure) for figure in figures.split()]
            found[name.strip()] = [counts[0], counts[1], counts[8], counts[9]]
        report(self._socket, traffic=found)

    def _tcp(self, _: list[int]) -> None:
        """Report what TCP has counted in this network, of all its connections."""
        counted: dict[str, int] = {}
        for name in ("snmp", "netstat"):
            lines = Path(f"/proc/self/net/{name}").read_text().splitlines()
            for keys, values in zip(lines[::2], lines[1::2], strict=True):
                pairs = zip(keys.split()[1:], values.split()[1:], strict=True)
                counted |= {key: int(value) for key, value in pairs}
        report(
            self._socket,
            segments=counted["OutSegs"],
            retransmitted=counted["RetransSegs"],
            timeouts=counted["TCPTimeouts"],
        )

    def _listen(self, _: list[int], host: str, port: int) -> None:
        """Hand over a listening socket of this network."""
        with socket.create_server((host, port)) as listening:
            packet = json.dumps({"port": listening.getsockname()[1]}).encode()
            socket.send_fds(self._socket, [packet], [listening.fileno()])

    def _open_netlink(self, _: list[int], device: str) -> None:
        """Hand over a socket that changes this network, with the index of a device."""
        packet = json.dumps({"index": socket.if_nametoindex(device)}).encode()
        with netlink.open_netlink() as kernel:
            socket.send_fds(self._socket, [packet], [kernel.fileno()])

    def _open_tap(self, _: list[int], device: str) -> None:
        """Hand over a socket that gets the headers of what leaves a device."""
        with open_tap(device) as tap:
            socket.send_fds(self._socket, [b'{"done": true}'], [tap.fileno()])

    def _start(
        self,
        descriptors: list[int],
        number: int,
        command: list[str],
        environment: dict[str, str],
        directory: str,
    ) -> None:
        """Start a program in a session of its own."""
        stdin, stdout, stderr = descriptors
        program = subprocess.Popen(
            command,
            env=environment,
            cwd=directory,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        self._programs[program.pid] = number
        program.returncode = 0  # whoever ends is reaped above
        report(self._socket, started=program.pid)

    def _signal(self, _: list[int], number: int, signal_number: int) -> None:
        """Signal the process group of a program; nothing if it has ended."""
        for process, other in self._programs.items():
            if other == number:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process, signal_number)
        report(self._socket, done=True)
