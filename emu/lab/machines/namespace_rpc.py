"""Both ends of the socket to a process that holds a namespace."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from emu.errors import RunError
from emu.lab.machines import netlink
from emu.lab.machines.netlink import Netlink
from emu.lab.machines.nic import NicPlan
from emu.lab.machines.tap import data_filter, open_tap, whole_filter

_ANSWER = 20.0  # wall seconds that the kernel may take for one request


class Holder:
    """Asks what `namespace_rpc` answers, and keeps ends of programs."""

    def __init__(self, name: str, mine: socket.socket) -> None:
        self.name, self.socket = name, mine
        self.ended: list[dict[str, Any]] = []
        self.process = 0
        """Process id of what holds the namespaces, as this process sees it."""
        mine.settimeout(_ANSWER)

    def ask(
        self, descriptors: Sequence[int] = (), /, **request: Any
    ) -> tuple[dict[str, Any], list[int]]:
        """Return the answer to one request, and descriptors that came with it."""
        self.post(descriptors, **request)
        return self.answer()

    def post(self, descriptors: Sequence[int] = (), /, **request: Any) -> None:
        """Send a request whose answer is taken later."""
        packet = json.dumps(request).encode()
        if len(packet) > LARGEST:
            raise RunError(f"a request of {len(packet)} bytes to {self.name}: too long")
        try:
            socket.send_fds(self.socket, [packet], list(descriptors))
        except OSError as error:
            raise RunError(f"machine {self.name} has gone: {error.strerror}") from error

    def open_netlink(self, devices: Sequence[str]) -> tuple[Netlink, list[int]]:
        """Return a socket to the kernel that acts there, and indices of devices.

        Nothing there wakes when it is used.
        """
        answer, (descriptor,) = self.ask(do="open_netlink", devices=list(devices))
        return Netlink(socket.socket(fileno=descriptor)), answer["indices"]

    def answer(self) -> tuple[dict[str, Any], list[int]]:
        """Return the next packet that answers."""
        while (answer := self.receive()) is None:
            pass
        return answer

    def receive(self) -> tuple[dict[str, Any], list[int]] | None:
        """Return the next packet if it answers; the end of a program is kept."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self.socket, LARGEST, 1)
        except TimeoutError as error:
            raise RunError(f"machine {self.name} does not answer") from error
        if not data:
            raise RunError(f"machine {self.name} has gone")
        packet: dict[str, Any] = json.loads(data)
        if "error" in packet:
            raise RunError(f"machine {self.name}: {packet['error']}")
        if "ended" not in packet:
            return packet, descriptors
        self.ended.append(packet)
        return None


#: Bytes of one packet: a command line with its environment must fit.
LARGEST = 180_000
_DESCRIPTORS = 3
#: Fields of an answer, and a socket that goes with it.
_Answer: TypeAlias = tuple[dict[str, Any], socket.socket | None]


def set_tcp(settings: Mapping[str, str]) -> None:
    """Set TCP of this network, by names of ``/proc/sys/net/ipv4``."""
    for key, value in settings.items():
        Path("/proc/sys/net/ipv4", key).write_text(value)


def report(there: socket.socket, **fields: Any) -> None:
    """Send one packet."""
    there.send(json.dumps(fields).encode())


class Responder:
    """Answers requests until the other end of the socket is gone."""

    def __init__(self, mine: socket.socket) -> None:
        self._socket = mine
        self._programs: dict[int, int] = {}  # number by process id

    def serve(self) -> None:
        """Answer until the other end closes."""
        end, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(end, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj == end:
                        os.read(end, 4096)
                        self._reap()
                    elif not self._answer():
                        return

    def _answer(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._socket, LARGEST, _DESCRIPTORS)
        if not data:
            return False
        request: dict[str, Any] = json.loads(data)
        try:
            answer = getattr(self, f"_{request.pop('do')}")(descriptors, **request)
            fields, there = answer or ({"done": True}, None)
            with there or contextlib.nullcontext():
                handed = [] if there is None else [there.fileno()]
                packet = json.dumps(fields).encode()
                socket.send_fds(self._socket, [packet], handed)
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

    @cached_property
    def _network(self) -> Netlink:
        return Netlink()

    def _join(self, _: list[int], devices: dict[str, list[str]], mtu: int) -> None:
        """Take the switch up: bridges, each with a pair of devices per machine."""
        kernel = self._network
        for bridge, members in devices.items():
            kernel.send([netlink.bridge(bridge, mtu)])
            for number, process in enumerate(members):
                name, peer = f"{bridge}-{number}", bridge
                kernel.send([netlink.veth(name, peer, int(process), mtu)])
                kernel.send([netlink.change_link(name, master=bridge)])
        kernel.send([netlink.change_link("lo")])

    def _address(self, _: list[int], addresses: dict[str, str]) -> None:
        """Give devices their addresses and take them up."""
        kernel = self._network
        for name, at in addresses.items():
            kernel.send([netlink.address(name, at, 16), netlink.change_link(name)])
        kernel.send([netlink.change_link("lo")])

    def _shape(
        self, _: list[int], device: str, plan: dict[str, Any], *, again: bool = False
    ) -> None:
        """Make a device a NIC, or change the one that it is."""
        messages = netlink.shape(device, NicPlan(**plan), again=again)
        self._network.send(messages)

    def _set_tcp(self, _: list[int], settings: dict[str, str]) -> None:
        """Set TCP."""
        set_tcp(settings)

    def _listen(self, _: list[int], host: str, port: int) -> _Answer:
        """Hand over a listening socket of this network."""
        listening = socket.create_server((host, port))
        return {"port": listening.getsockname()[1]}, listening

    def _connect(self, _: list[int], host: str, port: int) -> _Answer:
        """Hand over a connection from this network."""
        return {"done": True}, socket.create_connection((host, port), _ANSWER / 2)

    def _open_netlink(self, _: list[int], devices: list[str]) -> _Answer:
        """Hand over a socket that changes this network, with the indices of devices."""
        indices = [socket.if_nametoindex(device) for device in devices]
        return {"indices": indices}, netlink.open_netlink()

    def _open_tap(self, _: list[int], device: str, *, whole: bool) -> _Answer:
        """Hand over a socket that gets headers of what leaves a device."""
        program = whole_filter() if whole else data_filter()
        return {"done": True}, open_tap(device, program)

    def _start(
        self,
        descriptors: list[int],
        number: int,
        command: list[str],
        environment: dict[str, str],
        directory: str,
    ) -> _Answer:
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
        return {"started": program.pid}, None

    def _signal(self, _: list[int], number: int, signal_number: int) -> None:
        """Signal the process group of a program; nothing if it has ended."""
        for process, other in self._programs.items():
            if other == number:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process, signal_number)
