"""Evidence that guards examine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emu.array_types import Floats

if TYPE_CHECKING:
    from emu.problem import Problem, Schedule

    Rows = NDArray[np.void]

#: Wall seconds by which the clocks of two hosts, or two readings of one, may differ.
CLOCKS = 0.001
#: Likewise for two readings of one clock, by two processes: of 12,000 frames beside 20
#: busy programs none came sooner than 4 us after its last bytes were handed over.
ONE_CLOCK = 0.0001


@dataclass(frozen=True, eq=False)
class Evidence:
    """Records and figures that a run reported."""

    schedule: Schedule
    """As the tasks and receivers reported it, emulated seconds and bytes."""
    sent: Rows
    received: Rows
    """Rows of `emu.emulation.wire.frame_layout` by senders and by receivers."""
    notified: Floats | None
    """Arrivals of (edge, iteration) as notified to the scheduler, seconds; NaN where
    none was notified, None in runs of an earlier emu."""
    began: Floats
    """When (task, iteration) began to compute, by the clock of its process, seconds;
    NaN in runs of an earlier emu, which knew no latencies."""
    statistics: Mapping[str, Mapping[str, Any]]
    """Counts of every process, made by itself; the coordinator adds ``answered``."""
    time_scale: float
    byte_scale: float
    """Wall seconds per emulated second, real bytes per emulated byte."""
    lead: float
    """Wall seconds by which a last byte may legally be ahead of its flow's end."""
    stale: float
    """The longest that a sender did not know of a new rate, wall seconds: it may be
    ahead by what an old one gave."""
    stall: float
    """The longest that anything stood still, or that a sender does not look at its
    rate, wall seconds: it catches up."""
    catch_up: float | None = None
    """Emulated seconds that a sender which stood still may catch up; None: all."""
    burst: tuple[float, float] = (0.0, 0.0)
    """Amount that both NICs of the kernel on a flow's way let go at once after a pause:
    wall seconds of their rates, or real bytes where these are more."""
    times: Floats | None = None
    """Stated times of (task, iteration), which no task may undercut; None where tasks
    take the time that they take."""
    late: Floats | float = np.inf
    """Seconds of work by which (task, iteration) says that it took more, if known."""
    windows: tuple[tuple[str, int], ...] = ()
    """Credit window of every job that has one, as the scenario states it, with the
    beginning of its tasks' names."""
    connections: Rows | None = None
    waits: Rows | None = None
    """Rows of `emu.emulation.wire.frame_layout`: states of senders' connections, and
    waits at receivers; None where nothing is known of them."""
    board: Rows | None = None
    """Rows that the boards of the coordinator's host showed to senders (`BOARD_ROWS` of
    `emu.emulation.wire.frame_layout`); empty where nobody kept them."""
    one_clock: bool = False
    """True where all processes read the coordinator's clock."""
    sends: Floats | None = None
    """Rows of `emu.emulation.network.send_log.SendLog`, None where nobody kept them."""
    volumes: Floats | None = None
    """Stated bytes of (edge, iteration) where they are exact, else None."""

    def at_once(self, capacity: float) -> float:
        """Return the bytes that a link lets go at once after a pause, emulated ones.

        ``capacity``: bytes per second.
        """
        seconds, size = self.burst
        of_rate = capacity * seconds / self.time_scale
        return max(of_rate, size / self.byte_scale)

    def grid(self, rows: Rows, column: str) -> Floats:
        """Return a column of ``rows`` by (edge, iteration), NaN where there is no row.

        Rows of edges or iterations that the job does not have are left out.
        """
        values = np.full_like(self.schedule.flow_end, np.nan)
        edges, iterations = values.shape
        # Rows come from processes, and a damaged one must not end the guards
        # themselves.
        has_edge = rows["edge"] < edges
        has_iteration = rows["iteration"] < iterations
        flows = rows[has_edge & has_iteration]
        values[flows["edge"], flows["iteration"]] = flows[column]
        return values

    @property
    def standstill(self) -> float:
        """Wall seconds that the loop of some process stood still, at the most.

        On kernel NICs `stall` is no such figure: nobody looks at rates there.
        """
        lags = []
        for figures in self.statistics.values():
            metrics = figures.get("host_metrics", {})
            lag = metrics.get("loop_lag_max", 0.0)
            lags.append(lag)
        return max(lags, default=0.0)

    @property
    def logged_sends(self) -> Floats:
        """When the last byte of (edge, iteration) was in its sender's kernel, seconds.

        By the log of what is shaped, which has the newest flows alone; else NaN.
        """
        times = np.full_like(self.schedule.flow_end, np.nan)
        if self.sends is None:
            return times

        edges, iterations = times.shape
        rows = self.sends.reshape(-1, 6)
        edge = rows[:, 0].astype(np.int64)
        iteration = rows[:, 1].astype(np.int64)
        has_edge = edge < edges
        has_iteration = iteration < iterations
        is_flow = has_edge & has_iteration
        times[edge[is_flow], iteration[is_flow]] = rows[is_flow, 2]
        return times


# Links as the scenario states them, read beside `emu.problem.cluster`.
#
# The scheduler and the simulator ask that module. A mistake in it would be theirs and
# the guards' alike.

#: Share of a time by which a change of that time may seem to be later.
_ROUNDING = 1e-12
#: Where no route is stated: out of one NIC and into the other.
_PLAIN_WAY = ("out", "in")


def list_capacities(problem: Problem, time: float = 0.0) -> dict[str, float]:
    """Return bytes per second of every link by its name, from ``time`` on."""
    cluster = problem.cluster
    capacities = {}
    for machine in cluster.machines:
        capacities[f"{machine.name} out"] = machine.bandwidth_out
        capacities[f"{machine.name} in"] = machine.bandwidth_in
    for link in cluster.shared_links:
        capacities[link.name] = link.capacity

    # A time that was computed may lie a rounding before the change that made it.
    latest = time * (1.0 + _ROUNDING)
    by_time = attrgetter("time")
    for change in sorted(cluster.changes, key=by_time):
        if change.time <= latest:
            capacities[change.link] = change.capacity
    return capacities


def most_stated(problem: Problem) -> dict[str, float]:
    """Return the most bytes per second that every link ever has, by its name."""
    capacities = list_capacities(problem)
    for change in problem.cluster.changes:
        link = change.link
        capacities[link] = max(capacities[link], change.capacity)
    return capacities


def fitting(problem: Problem, link: str, times: Floats) -> Floats:
    """Return the bytes that fit through a link by each of ``times``, seconds."""
    changes = [change for change in problem.cluster.changes if change.link == link]
    changes.sort(key=lambda change: change.time)
    times_of_change = [0.0]
    capacities = [list_capacities(problem)[link]]
    for change in changes:
        times_of_change.append(change.time)
        capacities.append(change.capacity)

    since = np.array(times_of_change)
    rates = np.array(capacities)
    lengths = np.diff(since)
    room_between = rates[:-1] * lengths
    room_by_change = np.append(0.0, np.cumsum(room_between))

    changes_until = np.searchsorted(since, times, side="right")
    # A time before 0, by a clock that is off, has the first rate and no room.
    last = np.maximum(changes_until - 1, 0)
    seconds = times - since[last]
    room_since = rates[last] * np.maximum(seconds, 0.0)
    room: Floats = room_by_change[last] + room_since
    return room


def list_latencies(problem: Problem) -> list[float]:
    """Return the seconds from the end of a flow of every edge to when it has landed.

    The sum over the links that it crosses.
    """
    cluster = problem.cluster
    latency = {}
    for link in cluster.shared_links:
        latency[link.name] = link.latency
    for machine in cluster.machines:
        latency[f"{machine.name} out"] = machine.latency_out
        latency[f"{machine.name} in"] = machine.latency_in

    totals = []
    for hops in list_hops(problem):
        seconds = sum(latency[name] for name in hops)
        totals.append(seconds)
    return totals


def list_hops(problem: Problem) -> list[tuple[str, ...]]:
    """Return the names of the links that every edge crosses, of none within a machine.

    These are the NICs of its two machines, unless a route states others. Order alone,
    a credit or an edge of a gate, crosses none.
    """
    cluster = problem.cluster
    machine_of = problem.placement.machine_of
    tasks = problem.job.tasks
    through: dict[tuple[int, int], tuple[str, ...]] = {}
    for route in cluster.routes:
        pairs = product(route.sources, route.destinations)
        through |= dict.fromkeys(pairs, route.through)

    hops: list[tuple[str, ...]] = []
    for edge in problem.job.edges:
        sender = machine_of[edge.source]
        receiver = machine_of[edge.destination]
        source = tasks[edge.source]
        destination = tasks[edge.destination]
        is_order_alone = edge.credit or source.gate or destination.gate
        if sender == receiver or is_order_alone:
            hops.append(())
            continue

        names = through.get((sender, receiver), _PLAIN_WAY)
        # Routes tell NICs by their directions, other links by their names.
        nics = {
            "out": f"{cluster.machines[sender].name} out",
            "in": f"{cluster.machines[receiver].name} in",
        }
        links = [nics.get(name, name) for name in names]
        hops.append(tuple(links))
    return hops
