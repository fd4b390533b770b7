"""Counts of the kernel on machines and their programs, read from outside."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from emu.lab.machines.cpu_groups import CpuQuota
from emu.lab.machines.namespace_rpc import Holder
from emu.lab.machines.programs import PROGRAM

#: Nanoseconds that each thread ran and waited, by process and thread.
_Seen: TypeAlias = dict[tuple[int, int], tuple[int, int]]
#: Numbers by their names, by machine.
Counts: TypeAlias = dict[str, dict[str, int]]
#: Numbers by queue, out of every machine and into every machine.
Queues: TypeAlias = list[list[int]]

#: Periods of a quota between two comparisons with it: one of them is doubtful.
_PERIODS = 25
#: Wall seconds that queues may take to drain, and between two looks at them.
_DRAINED = 1.0
_LOOK = 2e-3
#: Columns of ``/proc/net/dev``: what a device received comes first, then what it sent.
_RECEIVED_BYTES = 0
_RECEIVED_PACKETS = 1
_SENT_BYTES = 8
_SENT_PACKETS = 9


@dataclass
class _Before:
    """Counts at the last restart, which later ones are without."""

    traffic: Counts = field(default_factory=dict)
    tcp: Counts = field(default_factory=dict)
    drops: Queues = field(default_factory=list)


def _since(now: Counts, restart: Counts) -> Counts:
    """Return counts by machine without those of the restart."""
    growth: Counts = {}
    for machine, counts in now.items():
        old = restart.get(machine, {})
        grown = {}
        for name, count in counts.items():
            grown[name] = count - old.get(name, 0)
        growth[machine] = grown
    return growth


class Counters:
    """Reads what the kernel counts of all machines of a lab that is up.

    ``network`` is the name of every machine's NIC, and with a number the switch's end.
    """

    def __init__(
        self,
        switch: Holder,
        holders: Sequence[Holder],
        network: str,
    ) -> None:
        self._switch = switch
        self._holders = holders
        self._names = []
        self._out = []
        for number, holder in enumerate(holders):
            opened = holder.open_netlink([network])
            self._names.append(f"{network}-{number}")
            self._out.append(opened)
        self._into, self._devices = switch.open_netlink(self._names)
        self._before = _Before()

    def restart(self) -> None:
        """Count from now on, once queues are empty; OSError when a machine has gone."""
        deadline = time.monotonic() + _DRAINED
        while self._waiting():
            if time.monotonic() >= deadline:
                break
            time.sleep(_LOOK)

        self._before = _Before()
        traffic = self.traffic()
        tcp = self.tcp()
        drops, _ = self.queues()
        self._before = _Before(traffic=traffic, tcp=tcp, drops=drops)

    def _waiting(self) -> int:
        """Return the bytes that wait in all queues."""
        _, (waiting_out, waiting_in) = self.queues()
        return sum(waiting_out) + sum(waiting_in)

    def traffic(self) -> Counts:
        """Return bytes and packets that crossed each NIC, as the switch counted them.

        By machine: ``out_bytes``, ``out_packets``, ``in_bytes``, ``in_packets``, with
        all headers.
        """
        now: Counts = {}
        table = Path(f"/proc/{self._switch.process}/net/dev")
        machines = dict(zip(self._names, self._holders, strict=True))
        # Two lines of titles stand above the devices.
        _, _, *lines = table.read_text().splitlines()
        for line in lines:
            device, figures = line.split(":")
            machine = machines.get(device.strip())
            if machine is None:
                continue

            # The switch received what the machine sent.
            counts = list(map(int, figures.split()))
            now[machine.name] = {
                "out_bytes": counts[_RECEIVED_BYTES],
                "out_packets": counts[_RECEIVED_PACKETS],
                "in_bytes": counts[_SENT_BYTES],
                "in_packets": counts[_SENT_PACKETS],
            }
        return _since(now, self._before.traffic)

    def tcp(self) -> Counts:
        """Return TCP's counts in the network of each machine.

        ``segments`` that were sent, ``retransmitted`` ones, and ``timeouts``, each of
        which stops a connection for 0.2 s or more.
        """
        now: Counts = {}
        for holder in self._holders:
            network = Path(f"/proc/{holder.process}/net")
            counts = _read_counts(network / "snmp")
            counts |= _read_counts(network / "netstat")
            now[holder.name] = {
                "segments": counts["OutSegs"],
                "retransmitted": counts["RetransSegs"],
                "timeouts": counts["TCPTimeouts"],
            }
        return _since(now, self._before.tcp)

    def queues(self) -> tuple[Queues, Queues]:
        """Return packets that queues dropped so far, and bytes that wait in them now.

        Each out of and into every machine. Raises OSError when a machine has gone.
        """
        queues_out = []
        for kernel, (index,) in self._out:
            queue = kernel.queue(index)
            queues_out.append(queue)
        queues_in = list(map(self._into.queue, self._devices))
        drops = []
        waiting = []
        for queues in (queues_out, queues_in):
            counts = [dropped for dropped, _ in queues]
            volumes = [volume for _, volume in queues]
            drops.append(counts)
            waiting.append(volumes)

        drops_before = self._before.drops
        for dropped, old in zip(drops, drops_before, strict=False):
            for number, count in enumerate(old):
                dropped[number] -= count
        return drops, waiting

    def close(self) -> None:
        """Let go of the sockets."""
        for kernel, _ in self._out:
            kernel.close()
        self._into.close()


def _read_counts(table: Path) -> dict[str, int]:
    """Return a table of the kernel's in which lines of names and of values take turns.

    Each line begins with its protocol.
    """
    lines = table.read_text().splitlines()
    counts: dict[str, int] = {}
    headers = lines[::2]
    rows = lines[1::2]
    for names, values in zip(headers, rows, strict=True):
        _, *keys = names.split()
        _, *figures = values.split()
        for key, figure in zip(keys, figures, strict=True):
            counts[key] = int(figure)
    return counts


class CoreWaits:
    """CPU time and waits of all processes below one, sampled while they live.

    By thread: of one that ended what came since its last sample is missing.
    """

    #: As of `QuotaWaits`: nothing has a quota here.
    early = (0.0,)

    def __init__(self, root: int) -> None:
        self._root = root
        self.seen: _Seen = {}
        self.sample()
        self._before = dict(self.seen)  # who holds the machines ran and waited, too

    def sample(self) -> None:
        """Read the counts of every thread that lives now."""
        for process in processes_below(self._root):
            folder = Path(f"/proc/{process}/task")
            for table in folder.glob("*/schedstat"):
                try:
                    columns = table.read_text().split()
                    ran, wait, _ = map(int, columns)
                except (OSError, ValueError):
                    continue
                thread = int(table.parent.name)
                self.seen[process, thread] = (ran, wait)

    def judge(self) -> None:
        """Compare with nothing: there is no quota."""

    def seconds(self) -> tuple[float, float]:
        """Return seconds that threads ran, and waited for a core though ready."""
        ran = 0
        wait = 0
        for thread_ran, thread_wait in self.seen.values():
            ran += thread_ran
            wait += thread_wait
        for thread_ran, thread_wait in self._before.values():
            ran -= thread_ran
            wait -= thread_wait
        return 1e-9 * ran, 1e-9 * wait


def off_quota(
    threads: Sequence[tuple[float, float]],
    cores: float,
) -> float:
    """Return seconds for which a machine's programs were late, below 0 early: at least.

    All that they computed takes ``ran / cores``. A thread that was ready for longer was
    late by others' use of the cores. Where all together were ready for less, they had
    what was left of their quota while they paused, and computed at full speed. Threads
    are seconds that each ran, and waited though ready.
    """
    due = sum(ran for ran, _ in threads) / cores
    ready = [ran + wait for ran, wait in threads]
    longest = max(ready, default=0.0)
    late = longest - due
    if late > 0:
        return late
    early = sum(ready) - due
    return min(0.0, early)


class QuotaWaits:
    """CPU time of machines with quotas, sampled likewise, and how far these were kept.

    Used up quota is no wait: by it a machine is as slow as it is to be. The kernel's
    own count of that (``throttled_time``) was 0.19 s where a thread waited for 1.5.

    ``machines``: process that holds each, and its quota.
    """

    def __init__(self, machines: Sequence[tuple[int, CpuQuota]]) -> None:
        self._machines: list[tuple[CoreWaits, CpuQuota]] = []
        self._before: list[_Seen] = []
        for root, quota in machines:
            waits = CoreWaits(root)
            machine = (waits, quota)
            seen = dict(waits.seen)
            self._machines.append(machine)
            self._before.append(seen)
        self._late = 0.0
        self.early = [0.0] * len(machines)
        """Seconds by which each machine computed in less than it needs."""
        longest_period = max(quota.period for _, quota in machines)
        self._pause = _PERIODS * 1e-6 * longest_period
        self._compared = time.monotonic()

    def sample(self) -> None:
        """Read the counts of every thread that lives now."""
        for waits, _ in self._machines:
            waits.sample()
        due = self._compared + self._pause
        if time.monotonic() >= due:
            self.judge()

    def judge(self) -> None:
        """Compare what was computed since the last time with the quotas."""
        self._compared = time.monotonic()
        nothing = (0, 0)
        for number, (waits, quota) in enumerate(self._machines):
            last = self._before[number]
            self._before[number] = dict(waits.seen)
            threads = []
            for name, (ran, wait) in waits.seen.items():
                old_ran, old_wait = last.get(name, nothing)
                seconds = 1e-9 * (ran - old_ran)
                delay = 1e-9 * (wait - old_wait)
                thread = (seconds, delay)
                threads.append(thread)

            late = off_quota(threads, quota.cores)
            early = -late
            period = 1e-6 * quota.period
            # A wait counts when it is over: of one that goes on a period is missing.
            self._late += max(0.0, late - period)
            self.early[number] += max(0.0, early - period)

    def seconds(self) -> tuple[float, float]:
        """Return seconds that machines needed for what they computed, and were late."""
        work = 0.0
        for waits, quota in self._machines:
            ran, _ = waits.seconds()
            work += ran / quota.cores
        return work, self._late


def processes_below(root: int) -> list[int]:
    """Return every process below one, as this process's ``/proc`` shows them."""
    processes: list[int] = []
    stack = [root]
    while stack:
        process = stack.pop()
        folder = Path(f"/proc/{process}/task")
        for children in folder.glob("*/children"):
            try:
                text = children.read_text()
            except OSError:  # it has ended
                continue
            below = list(map(int, text.split()))
            processes += below
            stack += below
    return processes


class PortOwners:
    """Ports of the programs of a lab; a connection shorter than a pause is missed.

    ``holders``: process by machine, below which its programs run: what started them may
    have given them the environment of another machine, as ``mpiexec`` does.
    """

    def __init__(self, holders: Mapping[str, int]) -> None:
        self._holders = holders
        self.found: set[tuple[str, int, str]] = set()
        """Machine, port and name of the program."""

    def sample(self) -> None:
        """Read the ports of every process that lives now."""
        for machine, holder in self._holders.items():
            for process in processes_below(holder):
                home = Path(f"/proc/{process}")
                try:
                    program = _program_of(home)
                    if program is None:
                        continue
                    ports = _ports(home)
                except OSError:  # it has ended
                    continue
                for port in ports:
                    owner = (machine, port, program)
                    self.found.add(owner)


def _program_of(home: Path) -> str | None:
    """Return the program that a process is part of, by its environment."""
    content = (home / "environ").read_bytes()
    environment = content.decode(errors="replace")
    program = None
    for line in environment.split("\0"):
        key, _, value = line.partition("=")
        if key == PROGRAM:
            program = value
    return program


def _ports(home: Path) -> set[int]:
    """Return the local TCP ports of a process, in the network that it is in."""
    sockets = set()
    descriptors = home / "fd"
    for descriptor in descriptors.iterdir():
        target = str(descriptor.readlink())
        if target.startswith("socket:["):
            number = target.removeprefix("socket:[")
            number = number.removesuffix("]")
            sockets.add(number)
    if not sockets:
        return set()

    ports = set()
    for family in ("tcp", "tcp6"):
        table = home / "net" / family
        if not table.exists():  # without IPv6
            continue
        _, *lines = table.read_text().splitlines()
        for line in lines:
            columns = line.split()
            local_end = columns[1]
            if columns[9] in sockets:
                _, _, port = local_end.rpartition(":")
                ports.add(int(port, 16))
    return ports
