"""A star of machines, started and ended by one object in the command's process."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import platform
import selectors
import socket
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Self

from emu.errors import RunError
from emu.host.this_host import module_command
from emu.lab.machines import nic_check
from emu.lab.machines.counters import CoreWaits, Counters, QuotaWaits
from emu.lab.machines.cpu_groups import CpuGroups, plan_cpu
from emu.lab.machines.namespace_rpc import Holder
from emu.lab.machines.netlink import Netlink, pace
from emu.lab.machines.nic import NicPlan, Sharing, leaves_among, plan_nic

if TYPE_CHECKING:
    from emu.lab.machines.capture import Capture


@dataclass(frozen=True)
class LabMachine:
    """A machine: host name, payload bytes out and in per second of emulated time."""

    name: str
    nic_out: float
    nic_in: float
    cpu: float | None = None
    """Cores that it computes like; None for whatever this computer gives it."""


@dataclass
class Program:
    """A program that runs, or ran, in a machine."""

    machine: str
    number: int
    process: int
    """Its process id as the machine sees it."""
    code: int | None = None
    """Its exit code, negative for a signal; None while it runs."""


class Paces:
    """Sets how fast the leaves of one NIC send; made by `Lab.paces`."""

    def __init__(
        self,
        kernel: Netlink,
        index: int,
        plan: NicPlan,
    ) -> None:
        self._kernel = kernel
        self._index = index
        self._plan = plan

    def set(self, rates: Mapping[int, float]) -> None:
        """Limit leaves to payload bytes per second, by their numbers; 8 us a leaf.

        The NIC stays a limit of their sum. Raises OSError when the kernel refuses, or
        the machine has gone.
        """
        messages = []
        for leaf, rate in rates.items():
            message = pace(self._index, leaf, self._plan, rate)
            messages.append(message)
        self._kernel.send(messages)

    def close(self) -> None:
        """Let go of the socket."""
        self._kernel.close()


#: The limited network, and the one for control messages: behind a full NIC queue of 20
#: ms those would be part of the result.
DATA = "data"
CONTROL = "control"
_NETWORKS = {
    DATA: "10.77",
    CONTROL: "10.78",
}
_SWITCH = "255.254"
#: SO_MAX_PACING_RATE, which `socket` does not name, and its value for none.
_MAX_PACING_RATE = 47
_ENDLESS = 2**32 - 1


def _switch_host(network: str) -> str:
    """Return the address of the switch in a network."""
    prefix = _NETWORKS[network]
    return f"{prefix}.{_SWITCH}"


class Lab:
    """Machines joined by a switch, from `__enter__` until `__exit__`.

    ``sharing``, ``mtu`` and ``queue`` are as in `plan_nic`; ``congestion_control`` is
    one that the kernel has. ``connections`` are machines that send and receive, of
    connections with consecutive source ports, each of which gets a leaf of its own;
    none where ports are arbitrary. With ``time_scale`` wall seconds of an emulated one
    NICs carry, and cores compute, as much less. Raises ValueError when there are no
    machines, too many, two of a name, or a NIC or a quota of CPU time is out of range.
    """

    def __init__(
        self,
        machines: Sequence[LabMachine],
        *,
        sharing: Sharing = Sharing.FAIR,
        mtu: int = 1500,
        queue: float | None = None,
        congestion_control: str = "reno",
        connections: Sequence[tuple[str, str]] = (),
        time_scale: float = 1.0,
    ) -> None:
        names = [machine.name for machine in machines]
        count = len(names)
        is_of_different_names = len(set(names)) == count
        if not is_of_different_names or not 0 < count <= 1000:
            raise ValueError("1 to 1000 machines, each with a name of its own")

        self.machines = tuple(machines)
        self._mtu = mtu
        self._tcp = congestion_control
        self.time_scale = time_scale
        self._quotas = {}
        for machine in machines:
            if machine.cpu is not None:
                self._quotas[machine.name] = plan_cpu(machine.cpu, time_scale)
        # One without a quota would compute at full speed beside those that are slowed.
        if 0 < len(self._quotas) < count:
            raise ValueError("cores of every machine are needed, or of none")

        self._plan = functools.partial(
            plan_nic,
            sharing=sharing,
            mtu=mtu,
            queue=queue,
            connections=len(connections),
            leaves=leaves_among(count),
            time_scale=time_scale,
        )
        self._connections_out: dict[str, list[int]] = defaultdict(list)
        self._connections_in: dict[str, list[int]] = defaultdict(list)
        for number, (sender, receiver) in enumerate(connections):
            self._connections_out[sender].append(number)
            self._connections_in[receiver].append(number)
        self._plans = [self.plans(machine) for machine in machines]

        numbers = range(count)
        self._index = dict(zip(names, numbers, strict=True))
        self._holders: list[Holder] = []
        self._switch: Holder
        self._keeper: subprocess.Popen[bytes]
        self._ends: contextlib.ExitStack
        self._programs: list[Program] = []
        self.startup_seconds = 0.0

    def plans(self, machine: LabMachine) -> tuple[NicPlan, NicPlan]:
        """Return the kernel's plans for a NIC, out and in; raises as `plan_nic`."""
        name = machine.name
        out_numbers = self._connections_out[name]
        in_numbers = self._connections_in[name]
        plan_out = self._plan(machine.nic_out, own=out_numbers)
        plan_in = self._plan(machine.nic_in, own=in_numbers)
        return plan_out, plan_in

    def address(self, machine: str, network: str = DATA) -> str:
        """Return the IPv4 address of a machine in one of the two networks."""
        number = self._index[machine] + 1  # 0 would be the network's own address
        high, low = divmod(number, 256)
        prefix = _NETWORKS[network]
        return f"{prefix}.{high}.{low}"

    def path_in(self, machine: str, path: str) -> str:
        """Return how this process opens what a machine's processes open at a path."""
        number = self._index[machine]
        holder = self._holders[number]
        return f"/proc/{holder.process}/root{path}"

    def __enter__(self) -> Self:
        """Start the machines.

        Raises RunError when the kernel lacks namespaces, HTB, classic BPF, or quotas.
        """
        began = time.monotonic()
        with contextlib.ExitStack() as ends:
            groups = CpuGroups(self._quotas) if self._quotas else None
            if groups is not None:
                ends.callback(groups.close)  # last: its processes have to have gone
            self._start_keeper(ends)
            self._wire()
            if groups is not None:
                for holder in self._holders:
                    groups.take(holder.name, holder.process)
            self._ends = ends.pop_all()

        self.startup_seconds = time.monotonic() - began
        return self

    def __exit__(self, *_: object) -> None:
        """End every program and every machine."""
        self._ends.close()

    def _start_keeper(self, ends: contextlib.ExitStack) -> None:
        names = ["the switch", *self._index]
        pairs = []
        for _ in names:
            pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            pairs.append(pair)
        descriptors = [child.fileno() for _, child in pairs]

        hosts = ["127.0.0.1 localhost"]
        settings = {}
        for name in self._index:
            address = self.address(name)
            hosts.append(f"{address} {name}")
            settings[name] = self._sysctl(name)
        hosts.append("")
        spec = {
            "parent": os.getpid(),
            "sockets": descriptors,
            "machines": settings,
            "hosts": "\n".join(hosts),
            # Root may make namespaces; others first become root of a user namespace.
            "user": os.geteuid() != 0,
        }
        text = json.dumps(spec)
        command = module_command("emu.lab.machines.namespace_process", text)
        self._keeper = subprocess.Popen(
            command,
            pass_fds=descriptors,
            stdin=subprocess.PIPE,
        )
        ends.enter_context(self._keeper)
        ends.callback(self._keeper.kill)  # everything below dies with it

        holders = []
        for name, (parent, child) in zip(names, pairs, strict=True):
            ends.enter_context(parent)
            child.close()
            holder = Holder(name, parent)
            holders.append(holder)
        self._switch, *self._holders = holders

    def _sysctl(self, machine: str) -> dict[str, str]:
        """Return the kernel settings of a machine's TCP, by name."""
        # Without metrics: a connection begins with what the one before had learned.
        settings = {
            "tcp_congestion_control": self._tcp,
            "tcp_no_metrics_save": "1",
        }

        number = self._index[machine]
        plan_out, plan_in = self._plans[number]
        if plan_out.unsent is not None:
            settings["tcp_notsent_lowat"] = str(plan_out.unsent)
        if plan_in.window is not None:
            # A queue of its own never overflows then. A flow a little longer than it
            # lost its last packets, and waited for a timeout of 1.5 s: nothing came
            # behind them that would show it. Programs of others may read late.
            settings["tcp_rmem"] = f"4096 {plan_in.window} {plan_in.window}"
        return settings

    def _wire(self) -> None:
        for holder in (self._switch, *self._holders):
            ready, _ = holder.answer()
            holder.process = ready["pid"]
        processes = [str(holder.process) for holder in self._holders]
        devices = {DATA: processes, CONTROL: processes}
        self._switch.ask(do="join", devices=devices, mtu=self._mtu)
        switch_addresses = {CONTROL: _switch_host(CONTROL)}
        self._switch.ask(do="address", addresses=switch_addresses)

        # All at once: one after the other, 16 machines took three times as long.
        for holder, (plan_out, _) in zip(self._holders, self._plans, strict=True):
            addresses = {}
            for network in _NETWORKS:
                addresses[network] = self.address(holder.name, network)
            holder.post(do="address", addresses=addresses)
            fields = dataclasses.asdict(plan_out)
            holder.post(do="shape", device=DATA, plan=fields)
        for number, (_, plan_in) in enumerate(self._plans):
            device = f"{DATA}-{number}"
            fields = dataclasses.asdict(plan_in)
            self._switch.ask(do="shape", device=device, plan=fields)
        # Of an address, and of a shape.
        for holder in self._holders:
            holder.answer()
            holder.answer()

    def core_waits(self) -> CoreWaits | QuotaWaits:
        """Return the reader of what programs computed and waited for, from now on."""
        if not self._quotas:
            return CoreWaits(self._keeper.pid)
        machines = []
        for holder in self._holders:
            quota = self._quotas[holder.name]
            machine = (holder.process, quota)
            machines.append(machine)
        return QuotaWaits(machines)

    def check_nics(self, most: float = nic_check.MOST_OFF) -> nic_check.NicCheck:
        """Measure what every direction of every NIC carries, before programs start.

        One may be off by a share ``most``. What the counters have counted until then is
        forgotten. Raises RunError when a machine has gone.
        """
        began = time.monotonic()
        switch_addresses = {DATA: _switch_host(DATA)}
        self._switch.ask(do="address", addresses=switch_addresses)
        with contextlib.suppress(RunError):  # a kernel before 5.18 has none
            # The switch would send slow machines 64 kB at a time: steps of 20 %.
            settings = {"tcp_tso_rtt_log": "0"}
            self._switch.ask(do="set_tcp", settings=settings)
        directions = []
        for machine in self.machines:
            rates = {
                "out": machine.nic_out,
                "in": machine.nic_in,
            }
            for way, rate in rates.items():
                direction = nic_check.NicDirection(
                    machine=machine.name,
                    way=way,
                    stated=rate,
                    time_scale=self.time_scale,
                )
                directions.append(direction)

        tries = nic_check.NicTries(directions, most)
        self._try(directions, tries)
        while again := tries.again:
            for direction in again:
                self._try([direction], tries)
        self.counters.restart()
        seconds = time.monotonic() - began
        return tries.check(seconds)

    def _try(
        self,
        directions: Sequence[nic_check.NicDirection],
        tries: nic_check.NicTries,
    ) -> None:
        """Measure some directions at once, and note what they carried."""
        trials = [self._trial(direction) for direction in directions]
        rates = nic_check.measure_throughput(trials)
        for direction, rate in zip(directions, rates, strict=True):
            tries.note(direction, rate)

    def _trial(self, direction: nic_check.NicDirection) -> nic_check.NicTrial:
        """Connect a machine and the switch, in the direction that is tried."""
        number = self._index[direction.machine]
        plan_out, plan_in = self._plans[number]
        if direction.way == "out":
            plan = plan_out
            sending_end = self._holders[number]
            receiving_end = self._switch
            host = _switch_host(DATA)
        else:
            plan = plan_in
            sending_end = self._switch
            receiving_end = self._holders[number]
            host = self.address(direction.machine)

        answer, (listening,) = receiving_end.ask(do="listen", host=host, port=0)
        port = answer["port"]
        with socket.socket(fileno=listening) as waiting:
            # As much as the NIC's queue holds: it is never empty, and never full.
            room = int(plan.queue / plan.wire)
            waiting.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
            _, (sending,) = sending_end.ask(do="connect", host=host, port=port)
            receiver, _ = waiting.accept()
        sender = socket.socket(fileno=sending)
        sender.setblocking(True)
        receiver.setblocking(True)
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
        # No pace: TCP makes its segments no longer than 1 ms of it.
        limit = 2 * plan.rate
        if limit < _ENDLESS:
            sender.setsockopt(socket.SOL_SOCKET, _MAX_PACING_RATE, limit)
        return nic_check.NicTrial(direction, sender, receiver)

    def change_nic(self, new: LabMachine) -> None:
        """Give a machine another NIC; what waits in its queues goes at the new rate.

        Raises ValueError when no kernel here carries such a rate, RunError when the
        machine has gone.
        """
        number = self._index[new.name]
        holder = self._holders[number]
        plan_out, plan_in = self.plans(new)
        if plan_in.leaves and plan_in.numbered is not None:
            # What is on its way was let go for the queue, and the window, of before.
            _, old_plan_in = self._plans[number]
            queue = max(plan_in.queue, old_plan_in.queue)
            plan_in = dataclasses.replace(plan_in, queue=queue)

        fields_out = dataclasses.asdict(plan_out)
        fields_in = dataclasses.asdict(plan_in)
        device = f"{DATA}-{number}"
        holder.ask(do="shape", device=DATA, plan=fields_out, again=True)
        self._switch.ask(do="shape", device=device, plan=fields_in, again=True)
        self._plans[number] = (plan_out, plan_in)
        # Last: windows, and bytes not sent yet, go by the plans noted above.
        settings = self._sysctl(new.name)
        holder.ask(do="set_tcp", settings=settings)

    def listen(self, port: int = 0) -> tuple[str, socket.socket]:
        """Return an address of the control network, and a socket that listens there.

        The socket belongs to this process, which needs no address of its own there.
        Raises RunError when the port is taken.
        """
        host = _switch_host(CONTROL)
        answer, (descriptor,) = self._switch.ask(do="listen", host=host, port=port)
        listening = socket.socket(fileno=descriptor)
        found_port = answer["port"]
        return f"{host}:{found_port}", listening

    def paces(self, machine: str) -> Paces:
        """Return the setter of the rates of a machine's leaves, out of its NIC.

        Nothing wakes for it: the kernel lets this process's socket act there.
        """
        number = self._index[machine]
        holder = self._holders[number]
        kernel, (index,) = holder.open_netlink([DATA])
        plan_out, _ = self._plans[number]
        return Paces(kernel, index, plan_out)

    def start(
        self,
        machine: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        stdin: int | None = None,
        output: int | None = None,
    ) -> Program:
        """Start a program in a machine.

        ``stdin`` and ``output`` are descriptors: by default there is nothing to read,
        and it writes to this process's standard error. Raises RunError when it cannot
        be started.
        """
        position = self._index[machine]
        holder = self._holders[position]
        number = len(self._programs)
        variables = os.environ if environment is None else environment
        folder = directory or Path.cwd()
        with Path(os.devnull).open() as nothing:
            if output is None:
                output = 2
            if stdin is None:
                stdin = nothing.fileno()
            answer, _ = holder.ask(
                [stdin, output, output],
                do="start",
                number=number,
                command=list(command),
                environment=dict(variables),
                directory=str(folder),
            )

        program = Program(machine, number, answer["started"])
        self._programs.append(program)
        return program

    def wait(
        self,
        timeout: float | None = None,
        others: Iterable[socket.socket] = (),
        take: Callable[[socket.socket], None] = lambda _: None,
    ) -> list[Program]:
        """Return programs that have ended since the last call; wait for one.

        Others of these sockets that are ready meanwhile are taken. Raises RunError when
        a machine has gone.
        """
        ends = self._collect_ends()
        if ends:
            return ends
        with selectors.DefaultSelector() as selector:
            for holder in self._holders:
                selector.register(holder.socket, selectors.EVENT_READ, holder.receive)
            for further in others:
                handler = functools.partial(take, further)
                selector.register(further, selectors.EVENT_READ, handler)
            for key, _ in selector.select(timeout):
                key.data()
        return self._collect_ends()

    def _collect_ends(self) -> list[Program]:
        ends = []
        for holder in self._holders:
            for end in holder.ended:
                program = self._programs[end.number]
                program.code = end.code
                ends.append(program)
            holder.ended.clear()
        return ends

    def signal(self, program: Program, number: Signals) -> None:
        """Signal a program and what it started in its session."""
        if program.code is not None:
            return
        position = self._index[program.machine]
        holder = self._holders[position]
        holder.ask(
            do="signal",
            number=program.number,
            signal_number=int(number),
        )

    def signal_all(self, number: Signals) -> None:
        """Signal every program that has not ended."""
        for program in self._programs:
            self.signal(program, number)

    @property
    def holders(self) -> dict[str, int]:
        """Process id of what holds each machine's namespaces, as seen from here."""
        return {holder.name: holder.process for holder in self._holders}

    def capture(self, pcap: Path | None = None) -> Capture:
        """Return a capture of every packet with payload that a machine is delivered.

        Machines are numbered in their order. ``pcap`` gets the headers of all packets,
        those without payload among them.
        """
        from emu.lab.machines.capture import Capture  # noqa: PLC0415 - numpy: 0.1 s

        taps = []
        takes_all = pcap is not None
        for number in range(len(self.machines)):
            device = f"{DATA}-{number}"
            _, (descriptor,) = self._switch.ask(
                do="open_tap",
                device=device,
                whole=takes_all,
            )
            taps.append(socket.socket(fileno=descriptor))
        return Capture(taps, pcap)

    @functools.cached_property
    def counters(self) -> Counters:
        """Reader of the counts of all machines."""
        counters = Counters(self._switch, self._holders, DATA)
        self._ends.callback(counters.close)
        return counters


def missing_needs() -> list[str]:
    """Return obstacles to a lab here, with remedies; starts two machines, 0.2 s."""
    if platform.system() != "Linux":
        return ["machines are Linux namespaces; run it on Linux"]
    first = LabMachine("a", nic_out=1e7, nic_in=1e7)
    second = LabMachine("b", nic_out=1e7, nic_in=1e7)
    try:
        with Lab([first, second]):
            return []
    except RunError as error:
        problem = str(error)

    remedy = "run it as root"
    switch = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
    if os.geteuid() and "user namespace" in problem:
        state = switch.read_text().strip() if switch.exists() else ""
        if state == "1":
            remedy = "Ubuntu's AppArmor forbids user namespaces: run it as root"
        else:
            remedy += ", or allow user namespaces (Docker: another seccomp)"
    elif "No such file" in problem:
        remedy = "the kernel lacks HTB, bfifo, cls_bpf, veth or bridge: load the module"
    return [f"{problem}; {remedy}"]
