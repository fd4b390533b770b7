"""A virtual cluster within one process: its ranks are threads, each with a connection.

Computations take what a test states, so that all times are exact.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from emu.host.files import scratch_folder
from emu.problem import Cluster, Machine
from emu.virtual.cluster_server import ClusterServer, RanksOfCluster
from emu.virtual.control import Connection
from emu.virtual.message_costs import MessageCosts
from emu.virtual.rank.deposits import Deposits
from emu.virtual.rank.process_group import VirtualProcessGroup
from emu.virtual.rank.rank_clock import RankClock
from emu.virtual.rank.rank_end import RankEnd

#: Wall seconds after which what nobody answers is given up.
_PATIENCE = 10.0
#: Timeout of a group that states none.
FOREVER = timedelta(minutes=30)


def options(root: int = 0, operation: str = "SUM") -> Any:
    """Return what torch hands to a call."""
    import torch

    reduction = getattr(torch.distributed.ReduceOp, operation)
    return SimpleNamespace(rootRank=root, reduceOp=reduction)


@dataclass
class Rank:
    """A rank, as its program sees it."""

    number: int
    end: RankEnd
    groups: type[VirtualProcessGroup]

    def group(
        self,
        ranks: Sequence[int],
        backend: str = "gloo",
        timeout: timedelta = FOREVER,
        name: str = "g",
    ) -> Any:
        """Return a group of such ranks, of which this is one."""
        options = SimpleNamespace(
            group_rank=[*ranks].index(self.number),
            group_size=len(ranks),
            global_ranks_in_group=[*ranks],
            group_id=name,
            timeout=timeout,
        )
        return self.groups(options, self.end, backend)


@dataclass
class Ran:
    """Results of ranks, and the server that kept their clocks."""

    server: ClusterServer
    values: dict[int, Any] = field(default_factory=dict)
    errors: dict[int, BaseException] = field(default_factory=dict)
    ends: dict[int, RankEnd] = field(default_factory=dict)
    lines: list[tuple[int, float, str]] = field(default_factory=list)


class _Listener:
    """The ends of connections that are there already."""

    def __init__(self, ends: Sequence[socket.socket]) -> None:
        self._ends = [*ends]

    def accept(self) -> tuple[socket.socket, None]:
        """Return the next one."""
        return self._ends.pop(0), None


def run_in_threads(
    program: Callable[[Rank], Any],
    rates: Sequence[float],
    *,
    machine_of: Sequence[int] | None = None,
    charge: float = 0.0,
    speeds: Sequence[float] | None = None,
    costs: MessageCosts | None = None,
    shares_core: bool = False,
    algorithms: tuple[str, ...] = (),
    cluster: Cluster | None = None,
) -> Ran:
    """Run a program in every rank, and keep their clocks.

    A rank has a machine of each of such rates, B/s, or those that `machine_of` says.
    Raises what whoever keeps the clocks raises.
    """
    if cluster is None:
        machines = tuple(
            Machine(
                f"m{number}", rate, rate, speed=(speeds or [1.0] * len(rates))[number]
            )
            for number, rate in enumerate(rates)
        )
        cluster = Cluster(machines)
    machine_of = machine_of or range(len(rates))
    count = len(machine_of)
    ranks = RanksOfCluster(machine_of, [shares_core] * count, at_once=count)
    lines: list[tuple[int, float, str]] = []

    def watch(*line: Any) -> None:
        lines.append(line)

    server = ClusterServer(
        cluster, ranks, costs, watch, lambda rank: f"as {rank}", algorithms
    )
    ran = Ran(server, lines=lines)
    pairs = [socket.socketpair() for _ in range(count)]
    for _, far in pairs:
        far.settimeout(_PATIENCE)
    with scratch_folder("virtual") as folder:
        threads = []
        for number, (_, far) in enumerate(pairs):
            work = partial(_run_rank, ran, program, number, far, folder, charge)
            threads.append(threading.Thread(target=work))
        for thread in threads:
            thread.start()
        try:
            server.serve(_Listener([near for near, _ in pairs]))  # type: ignore[arg-type]
        finally:
            for near, _ in pairs:
                near.close()
            for thread in threads:
                thread.join()
            for end in ran.ends.values():
                _forget_memory(end.deposits, count)
    for error in ran.errors.values():
        raise error
    return ran


def _forget_memory(deposits: Deposits, count: int) -> None:
    """Give back what a process of its own would hold to its end."""
    memory_of: Any = deposits._memory_of
    for rank in range(count):
        os.close(memory_of(rank).descriptor)
    memory_of.cache_clear()


def _run_rank(
    ran: Ran,
    program: Callable[[Rank], Any],
    number: int,
    far: socket.socket,
    folder: Path,
    charge: float,
) -> None:
    """Run the program of a rank, from its first word to its last."""
    with far:
        connection = Connection(far)
        connection.send(number, os.getpid())
        (speed,) = connection.receive()
        clock = RankClock(speed, charge)
        end = RankEnd(connection, clock, Deposits(folder, number))
        ran.ends[number] = end
        # Each rank counts its groups, as a process of its own does.
        groups: Any = type("Groups", (VirtualProcessGroup,), {"_made": Counter()})
        problem = ""
        try:
            ran.values[number] = program(Rank(number, end, groups))
        except Exception as error:  # noqa: BLE001 - a test looks at it
            ran.errors[number] = error
            problem = str(error)
        try:
            end.say("leave", problem, {"cpu": float(number)})
        except Exception as error:  # noqa: BLE001 - the first one tells more
            ran.errors.setdefault(number, error)
