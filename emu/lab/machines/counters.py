"""Counts of the kernel on machines and their programs, read from outside."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from emu.lab.machines.cpu_groups import CpuQuota
from emu.lab.machines.namespace_rpc import Holder
from emu.lab.machines.programs import PROGRAM

Counts = dict[str, dict[str, int]]

#: Periods of a quota between two comparisons with it: one of them is doubtful.
_PERIODS = 25
#: Wall seconds that queues may take to drain, and between two looks at them.
_DRAINED = 1.0
_LOOK = 2e-3


def _since(now: Counts, before: Counts) -> Counts:
    """Return counts by machine without those of before."""
    return {
        machine: {
            name: count - before.get(machine, {}).get(name, 0)
            for name, count in counts.items()
        }
        for machine, counts in now.items()
    }


class Counters:
    """Reads what the kernel counts of all machines of a lab that is up.

    ``network`` is the name of every machine's NIC, and with a number the switch's end.
    """

    def __init__(self, switch: Holder, holders: Sequence[Holder], network: str) -> None:
        self._switch = switch
        self._holders = holders
        self._names = [f"{network}-{number}" for number in range(len(holders))]
        self._out = [holder.open_netlink([network]) for holder in holders]
        self._into, self._devices = switch.open_netlink(self._names)
        self._before: tuple[Counts, Counts, list[list[int]]] = {}, {}, []

    def restart(self) -> None:
        """Count from now on, once queues are empty; OSError when a machine has gone."""
        until = time.monotonic() + _DRAINED
        while sum(map(sum, self.queues()[1])) and time.monotonic() < until:
            time.sleep(_LOOK)
        self._before = {}, {}, []
        self._before = self.traffic(), self.tcp(), self.queues()[0]

    def traffic(self) -> dict[str, dict[str, int]]:
        """Return bytes and packets that crossed each NIC, as the switch counted them.

        By machine: ``out_bytes``, ``out_packets``, ``in_bytes``, ``in_packets``, with
        all headers.
        """
        now = {}
        devices = Path(f"/proc/{self._switch.process}/net/dev").read_text()
        machines = dict(zip(self._names, self._holders, strict=True))
        keys = ("out_bytes", "out_packets", "in_bytes", "in_packets")
        for line in devices.splitlines()[2:]:
            name, figures = line.split(":")
            if holder := machines.get(name.strip()):
                counts = [int(figure) for figure in figures.split()]
                both = (*counts[:2], *counts[8:10])  # what it received, and sent
                now[holder.name] = dict(zip(keys, both, strict=True))
        return _since(now, self._before[0])

    def tcp(self) -> dict[str, dict[str, int]]:
        """Return TCP's counts in the network of each machine.

        ``segments`` that were sent, ``retransmitted`` ones, and ``timeouts``, each of
        which stops a connection for 0.2 s or more.
        """
        now = {}
        for holder in self._holders:
            counts: dict[str, int] = {}
            for name in ("snmp", "netstat"):
                lines = Path(f"/proc/{holder.process}/net/{name}").read_text()
                for keys, values in zip(*[iter(lines.splitlines())] * 2, strict=True):
                    pairs = zip(keys.split()[1:], values.split()[1:], strict=True)
                    counts |= {key: int(value) for key, value in pairs}
            now[holder.name] = {
                "segments": counts["OutSegs"],
                "retransmitted": counts["RetransSegs"],
                "timeouts": counts["TCPTimeouts"],
            }
        return _since(now, self._before[1])

    def queues(self) -> tuple[list[list[int]], list[list[int]]]:
        """Return packets that queues dropped so far, and bytes that wait in them now.

        Each out of and into every machine. Raises OSError when a machine has gone.
        """
        ways = (
            [kernel.queue(index) for kernel, (index,) in self._out],
            [self._into.queue(index) for index in self._devices],
        )
        drops, waiting = ([[one[i] for one in way] for way in ways] for i in (0, 1))
        for way, before in zip(drops, self._before[2], strict=False):
            way[:] = [now - then for now, then in zip(way, before, strict=True)]
        return drops, waiting

    def close(self) -> None:
        """Let go of the sockets."""
        for kernel, _ in self._out:
            kernel.close()
        self._into.close()


class CoreWaits:
    """CPU time and waits of all processes below one, sampled while they live.

    By thread: of one that ended what came since its last sample is missing.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self.seen: dict[tuple[int, int], tuple[int, int]] = {}
        """Nanoseconds that each thread ran and waited, by process and thread."""
        self.sample()
        self._before = dict(self.seen)  # who holds the machines ran and waited, too

    def sample(self) -> None:
        """Read the counts of every thread that lives now."""
        for process in processes_below(self._root):
            for thread in Path(f"/proc/{process}/task").glob("*/schedstat"):
                try:
                    ran, wait, _ = map(int, thread.read_text().split())
                except (OSError, ValueError):
                    continue
                self.seen[process, int(thread.parent.name)] = ran, wait

    #: As of `QuotaWaits`: nothing has a quota here.
    early = (0.0,)

    def judge(self) -> None:
        """Compare with nothing: there is no quota."""

    def seconds(self) -> tuple[float, float]:
        """Return seconds that threads ran, and waited for a core though ready."""
        totals = [
            [sum(column) for column in zip((0, 0), *counts.values(), strict=True)]
            for counts in (self.seen, self._before)
        ]
        ran, wait = (1e-9 * (now - then) for now, then in zip(*totals, strict=True))
        return ran, wait


def off_quota(threads: Sequence[tuple[float, float]], cores: float) -> float:
    """Return seconds for which a machine's programs were late, below 0 early: at least.

    All that they computed takes ``ran / cores``. A thread that was ready for longer was
    late by others' use of the cores. Where all together were ready for less, they had
    what was left of their quota while they paused, and computed at full speed. Threads
    are seconds that each ran, and waited though ready.
    """
    due = sum(ran for ran, _ in threads) / cores
    ready = [ran + wait for ran, wait in threads]
    late = max(ready, default=0.0) - due
    return late if late > 0 else min(0.0, sum(ready) - due)


class QuotaWaits:
    """CPU time of machines with quotas, sampled likewise, and how far these were kept.

    Used up quota is no wait: by it a machine is as slow as it is to be. The kernel's
    own count of that (``throttled_time``) was 0.19 s where a thread waited for 1.5.

    ``machines``: process that holds each, and its quota.
    """

    def __init__(self, machines: Sequence[tuple[int, CpuQuota]]) -> None:
        self._machines = [(CoreWaits(root), quota) for root, quota in machines]
        self._before = [dict(waits.seen) for waits, _ in self._machines]
        self._late = 0.0
        self.early = [0.0] * len(machines)
        """Seconds by which each machine computed in less than it needs."""
        self._pause = _PERIODS * 1e-6 * max(quota.period for _, quota in machines)
        self._judged = time.monotonic()

    def sample(self) -> None:
        """Read the counts of every thread that lives now."""
        for waits, _ in self._machines:
            waits.sample()
        if time.monotonic() >= self._judged + self._pause:
            self.judge()

    def judge(self) -> None:
        """Compare what was computed since the last time with the quotas."""
        self._judged = time.monotonic()
        for number, (waits, quota) in enumerate(self._machines):
            before = self._before[number]
            self._before[number] = dict(waits.seen)
            threads = [
                (1e-9 * (ran - was_ran), 1e-9 * (wait - had_waited))
                for one, (ran, wait) in waits.seen.items()
                for was_ran, had_waited in [before.get(one, (0, 0))]
            ]
            off = off_quota(threads, quota.cores)
            period = 1e-6 * quota.period
            # A wait counts when it is over: of one that goes on a period is missing.
            self._late += max(0.0, off - period)
            self.early[number] += max(0.0, -off - period)

    def seconds(self) -> tuple[float, float]:
        """Return seconds that machines needed for what they computed, and were late."""
        work = sum(one.seconds()[0] / quota.cores for one, quota in self._machines)
        return work, self._late


def processes_below(root: int) -> list[int]:
    """Return every process below one, as this process's ``/proc`` shows them."""
    processes = []
    stack = [root]
    while stack:
        process = stack.pop()
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            try:
                below = [int(child) for child in children.read_text().split()]
            except OSError:
                continue
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
                    text = (home / "environ").read_bytes().decode(errors="replace")
                    lines = [line.partition("=") for line in text.split("\0")]
                    program = {key: value for key, _, value in lines}.get(PROGRAM)
                    ports = () if program is None else _ports(home)
                    self.found |= {(machine, port, program or "") for port in ports}
                except OSError:  # it has ended
                    continue


def _ports(home: Path) -> set[int]:
    """Return the local TCP ports of a process, in the network that it is in."""
    sockets = set()
    for descriptor in (home / "fd").iterdir():
        target = str(descriptor.readlink())
        if target.startswith("socket:["):
            sockets.add(target[len("socket:[") : -1])
    if not sockets:
        return set()
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        if (home / "net" / table).exists()
        for line in (home / "net" / table).read_text().splitlines()[1:]
    ]
    return {int(row[1].rsplit(":")[-1], 16) for row in rows if row[9] in sockets}
