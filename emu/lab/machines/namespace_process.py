"""Processes of a lab's namespaces: ``python -m emu.lab.machines.namespace_process``.

The keeper forks a process for the switch and two for every machine: the outer one
waits, the inner one is process 1 of the machine. Every process dies with its parent,
and the kernel removes namespaces with their last process, so ``kill -9`` of anything
leaves nothing. Requests come over one socket each (`emu.lab.machines.namespace_rpc`).
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from emu.host.interruption import StopWatch
from emu.lab.machines import namespaces, netlink, tap
from emu.lab.machines.namespace_rpc import ANSWER, LARGEST, Fields
from emu.lab.machines.netlink import Netlink
from emu.lab.machines.nic import NicPlan

#: Wall seconds for which a command may be stopped, as agents take it by default.
_STOPPED = 60.0
#: Fields of an answer, and a socket that goes with it.
_Answer: TypeAlias = tuple[Fields, socket.socket | None]


def main() -> int:
    """Hold what the first argument describes until standard input ends."""
    spec: Fields = json.loads(sys.argv[1])
    namespaces.die_with_parent(spec["parent"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command
    sockets = [socket.socket(fileno=number) for number in spec["sockets"]]
    switch, *machines = sockets
    try:
        if spec["user"]:
            namespaces.become_root()
    except OSError as error:
        _report(switch, error=f"no user namespace: {error.strerror}")
        return 1

    def hold_switch() -> None:
        namespaces.unshare(namespaces.NEW_NET)
        _report(switch, pid=os.getpid())
        Responder(switch).serve({})

    _fork(sockets, switch, hold_switch)
    hosts = spec["hosts"]
    settings = spec["machines"].items()
    for (name, sysctl), end in zip(settings, machines, strict=True):
        hold = functools.partial(
            _hold_machine,
            end,
            name=name,
            hosts=hosts,
            sysctl=sysctl,
        )
        _fork(sockets, end, hold)
    for end in sockets:
        end.close()
    # A pipe from the command, which closes however that ends; one that was stopped
    # would keep its machines for ever.
    command = os.getppid()
    watch = StopWatch(command, _STOPPED)
    while not watch.look():
        readable, _, _ = select.select([sys.stdin], [], [], StopWatch.PAUSE)
        if readable:
            break
    return 0


def _fork(
    sockets: list[socket.socket],
    end: socket.socket,
    work: Callable[[], None],
) -> None:
    """Do some work in a child of its own that has only its own socket."""
    parent = os.getpid()
    if os.fork():
        return
    namespaces.die_with_parent(parent)
    os.setpgid(0, 0)
    # Only the keeper waits for the end of standard input.
    os.close(0)
    for further in sockets:
        # An end that is open here as well would never close for the other side.
        if further is not end:
            further.close()

    code = 1
    try:
        work()
        code = 0
    except OSError as error:
        with contextlib.suppress(OSError):
            _report(end, error=str(error))
    finally:
        # A child that went on would run what the keeper has left to do a second time.
        os._exit(code)


def _hold_machine(
    end: socket.socket,
    name: str,
    hosts: str,
    sysctl: dict[str, str],
) -> None:
    namespaces.unshare(namespaces.OF_MACHINES)
    # Process 1 sees its parent as process 0, so it cannot check who that is.
    ready, go = os.pipe()
    inner = os.fork()
    if inner:
        os.close(ready)
        _report(end, pid=inner)
        end.close()
        os.write(go, b"1")
        os.waitpid(inner, 0)
        return

    os.close(go)
    namespaces.die_with_parent(0)
    os.read(ready, 1)
    os.close(ready)
    namespaces.furnish(name, hosts)
    Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1")
    Responder(end).serve(sysctl)


def _report(end: socket.socket, **fields: Any) -> None:
    packet = json.dumps(fields).encode()
    end.send(packet)


class Responder:
    """Answers requests until the other end of the socket is gone."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._given: list[int] = []  # descriptors that came with a request
        self._programs: dict[int, int] = {}  # number by process id

    def serve(self, tcp: dict[str, str]) -> None:
        """Answer until the other end closes; first set TCP of this network."""
        self._set_tcp(tcp)
        end, wake = os.pipe()
        # `set_wakeup_fd` takes no end that blocks; a full pipe wakes as well.
        os.set_blocking(wake, False)
        os.set_blocking(end, False)
        # Without a handler of Python's no byte comes into the pipe.
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
        data, self._given, _, _ = socket.recv_fds(self._socket, LARGEST, 3)
        if not data:
            return False
        request: Fields = json.loads(data)

        try:
            wanted = request.pop("do")
            handler = getattr(self, f"_{wanted}")
            answer = handler(**request)
            fields, handle = answer or ({"done": True}, None)
            with handle or contextlib.nullcontext():
                handles = []
                if handle is not None:
                    handles.append(handle.fileno())
                packet = json.dumps(fields).encode()
                socket.send_fds(self._socket, [packet], handles)
        except OSError as error:
            problem = error.strerror or str(error)
            _report(self._socket, error=problem)
        finally:
            for descriptor in self._given:
                os.close(descriptor)
        return True

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                process, status = os.waitpid(-1, os.WNOHANG)
                if not process:
                    return
                # Process 1 inherits what programs leave behind: that has no number.
                number = self._programs.pop(process, None)
                if number is not None:
                    code = os.waitstatus_to_exitcode(status)
                    _report(self._socket, ended=number, code=code)

    @functools.cached_property
    def _network(self) -> Netlink:
        return Netlink()

    def _join(self, devices: dict[str, list[str]], mtu: int) -> None:
        """Take the switch up: bridges, each with a pair of devices per machine."""
        kernel = self._network
        for bridge, members in devices.items():
            bridged = netlink.bridge(bridge, mtu)
            kernel.send([bridged])

            for number, process in enumerate(members):
                name = f"{bridge}-{number}"
                paired = netlink.veth(
                    name,
                    peer=bridge,
                    process=int(process),
                    mtu=mtu,
                )
                kernel.send([paired])
                # It has a number from here on, which the message goes by.
                joined = netlink.change_link(name, master=bridge)
                kernel.send([joined])
        self._take_up_loopback()

    def _take_up_loopback(self) -> None:
        taken_up = netlink.change_link("lo")
        self._network.send([taken_up])

    def _address(self, addresses: dict[str, str]) -> None:
        """Give devices their addresses and take them up."""
        kernel = self._network
        for name, ip in addresses.items():
            addressed = netlink.address(name, ip, prefix=16)
            taken_up = netlink.change_link(name)
            kernel.send([addressed, taken_up])
        self._take_up_loopback()

    def _shape(
        self,
        device: str,
        plan: Fields,
        *,
        again: bool = False,
    ) -> None:
        nic_plan = NicPlan(**plan)
        messages = netlink.shape(device, nic_plan, again=again)
        self._network.send(messages)

    def _set_tcp(self, settings: dict[str, str]) -> None:
        for key, value in settings.items():
            file = Path("/proc/sys/net/ipv4", key)
            file.write_text(value)

    def _listen(self, host: str, port: int) -> _Answer:
        listening = socket.create_server((host, port))
        _, listening_port = listening.getsockname()
        return {"port": listening_port}, listening

    def _connect(self, host: str, port: int) -> _Answer:
        # Half of what the asker waits, so that it hears of the error and of no silence.
        connection = socket.create_connection((host, port), ANSWER / 2)
        return {"done": True}, connection

    def _open_netlink(self, devices: list[str]) -> _Answer:
        indices = [socket.if_nametoindex(device) for device in devices]
        return {"indices": indices}, netlink.open_netlink()

    def _open_tap(self, device: str, *, whole: bool) -> _Answer:
        program = tap.whole_filter() if whole else tap.data_filter()
        opened = tap.open_tap(device, program)
        return {"done": True}, opened

    def _start(
        self,
        number: int,
        command: list[str],
        environment: dict[str, str],
        directory: str,
    ) -> _Answer:
        """Start a program in a session of its own."""
        stdin, stdout, stderr = self._given
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

    def _signal(self, number: int, signal_number: int) -> None:
        """Signal the process group of a program; nothing if it has ended."""
        for process, candidate in self._programs.items():
            if candidate == number:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process, signal_number)


if __name__ == "__main__":
    sys.exit(main())
