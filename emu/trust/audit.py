"""Does a schedule keep constraints (5)-(15) of the paper? For any Schedule.

Times are compared with a tolerance, as an emulated run is only as exact as its clocks;
bytes likewise. Everything broken is listed, each with its names and amount.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from emu.prediction.analysis.link_load import (
    Pieces,
    excess_loads,
    fluid_bytes,
    pieces,
    worst_interval,
)
from emu.trust import audit_checks as alone
from emu.trust.audit_checks import landings
from emu.trust.violation import (
    AuditReport,
    Findings,
    Violation,
    flow_name,
    list_beyond,
    task_name,
)

if TYPE_CHECKING:
    from emu.problem import Schedule

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    #: Function that names them, and the task or edge and the iteration of each.
    _Subjects = tuple[Callable[[int, int], str], Ints, Ints]

#: Wall seconds by which bytes of the kernel may be ahead of a port, whose rates are
#: unknown: at most 7 ms among 387 flows of 23 processes on two busy cores.
PUNCTUALITY = 0.01


def audit(
    schedule: Schedule,
    *,
    tolerance: float = 1e-9,
    relative: float = 1e-9,
    times: Floats | None = None,
    least_times: Floats | None = None,
    volumes: Floats | None = None,
    makespan: float | None = None,
    at_once: Callable[[float], float] = lambda _: 0.0,
    unpaced: float = 0.0,
) -> AuditReport:
    """Check ``schedule`` against constraints (5)-(15).

    With a rate history, port capacity (13), (14) and bytes (12) are checked exactly, at
    every instant. Without one, a necessary condition stands in: within every interval
    from some flow's start to some flow's end, the flows that lie in it as a whole
    cannot bring more bytes over a port than its capacity times the length.

    Raises ValueError when a tolerance is negative or an array has the wrong shape.

    Parameters
    ----------
    tolerance
        Seconds by which a time may be off; bytes may be off by what the flow's
        narrowest port carries in that time.
    relative
        Share by which capacities may be exceeded and bytes may differ.
    times, least_times
        Seconds that every (task, iteration) should take, exactly or at the least; None
        takes those of the schedule.
    volumes
        Bytes that should have been sent, shape (edges, iterations); None takes the
        schedule's own.
    makespan
        Seconds stated as the makespan; None is not compared.
    at_once
        Bytes that a link of some capacity lets go at once after a pause.
    unpaced
        Seconds by which bytes may be ahead of a port where no rates say when they went.
    """
    if not (tolerance >= 0 and relative >= 0):
        raise ValueError(f"tolerances {tolerance} and {relative} must not be negative")
    rates = schedule.rates
    job = schedule.problem.job
    schedule = alone.sound(schedule)  # what is no rate is named, and left out
    auditor = _Auditor(schedule, tolerance, relative, at_once, unpaced)
    auditor.check_shapes(times, least_times, volumes)
    waits = [*alone.channel_faults(schedule, tolerance)]
    checks = {
        "(5),(6)": (
            *auditor.every_iteration_once(),
            *alone.first_stores(schedule, tolerance),
            *alone.task_times(schedule, tolerance, exact=times, least=least_times),
        ),
        "(7)": (
            *auditor.flows_after_their_source(),
            *alone.readiness(schedule, tolerance),
        ),
        "(8),(9)": tuple(auditor.tasks_after_their_inputs()),
        "(10)": tuple(auditor.one_iteration_at_a_time()),
        "(11)": tuple(auditor.one_flow_at_a_time()),
        "(12)": (
            *alone.impossible_values(schedule),
            *alone.rate_rows(schedule, rates, tolerance),
            *auditor.all_bytes(volumes),
        ),
        "(13),(14)": tuple(auditor.port_capacity()),
        "(15)": tuple(alone.makespan_of(schedule, makespan, tolerance)),
        "slots": (alone.slot_faults(schedule, tolerance),),
        "channels": ((len(job.channels), waits),),
        "reads": (alone.newest_reads(schedule, tolerance),),
    }
    breaches: list[Violation] = []
    counts: dict[str, int] = {}
    for name, results in checks.items():
        counts[name] = 0
        for comparisons, violations in results:
            counts[name] += comparisons
            breaches += violations
    return AuditReport(breaches, counts)


class _Auditor:
    """The checks, each yielding how much it compared and the violations it found.

    Many flows are compared at once, and words are found for the broken ones only: a
    million flows take seconds.
    """

    def __init__(
        self,
        schedule: Schedule,
        tolerance: float,
        relative: float,
        at_once: Callable[[float], float],
        unpaced: float,
    ) -> None:
        self._schedule = schedule
        self._problem = schedule.problem
        self._at_once = at_once
        self._unpaced = max(unpaced, tolerance)
        self._job = schedule.problem.job
        self._task = partial(task_name, self._job)
        self._flow = partial(flow_name, self._job)
        self._tolerance = tolerance
        self._relative = relative
        self._hops = self._problem.hops
        edges = self._job.edges
        self._remote = np.array([bool(path) for path in self._hops], dtype=bool)
        self._source = np.array([edge.source for edge in edges], dtype=np.int64)
        self._destination = np.array([e.destination for e in edges], dtype=np.int64)
        self._lag = np.array([edge.lag for edge in edges], dtype=np.int64)
        counts = np.array(self._job.flow_counts, dtype=np.int64)
        self._sent = np.arange(self._job.iterations) < counts[:, None]

    def check_shapes(
        self, times: Floats | None, least: Floats | None, volumes: Floats | None
    ) -> None:
        tasks = len(self._job.tasks), self._job.iterations
        edges = len(self._job.edges), self._job.iterations
        flows = ("flow_ready", "flow_start", "flow_end", "flow_bytes")
        columns = ("task_start", "task_end", *flows)
        arrays = {name: getattr(self._schedule, name) for name in columns}
        arrays |= {"times": times, "least_times": least, "volumes": volumes}
        for name, array in arrays.items():
            shape = edges if name.startswith(("flow", "volumes")) else tasks
            if array is not None and array.shape != shape:
                raise ValueError(f"{name} has shape {array.shape}, not {shape}")

    def every_iteration_once(self) -> Iterator[Findings]:
        """(5), (6): every iteration of every task ran, from time 0 on."""
        start = self._schedule.task_start
        end = self._schedule.task_end
        ran = np.isfinite(start) & np.isfinite(end)
        rounds = np.array(self._job.rounds, dtype=np.int64)[:, None]
        is_due = np.arange(self._job.iterations) < rounds
        absent = 1 * (~ran & is_due), 0, self._task, "did not run", "iterations"
        _, faults = list_beyond("(6)", *absent)
        # What is missing counts here, what ran in the comparisons that follow.
        yield len(faults), faults
        task, n = np.nonzero(ran)
        start, end, tasks = start[task, n], end[task, n], (self._task, task, n)
        yield self._not_before("(5)", start, 0.0 * start, tasks, "the run began")
        yield self._not_before("(6)", end, start, tasks, "it started", "ended")

    def flows_after_their_source(self) -> Iterator[Findings]:
        """(7): a flow starts after its source ended, and all flows took place."""
        start = self._schedule.flow_start
        end = self._schedule.flow_end
        took_place = np.isfinite(start) & np.isfinite(end)
        missing = 1 * (self._sent & ~took_place)
        absent = missing, 0, self._flow, "was not sent", "iterations"
        _, faults = list_beyond("(7)", *absent)
        yield len(faults), faults
        edge, n = np.nonzero(self._sent & took_place)
        start, end, flows = start[edge, n], end[edge, n], (self._flow, edge, n)
        source = self._source[edge]
        both = start, self._schedule.task_end[source, n], flows
        yield self._not_before(
            "(7)", *both, lambda i: f"{self._task(source[i], n[i])} ended"
        )
        yield self._not_before("(7)", end, start, flows, "it started", "ended")

    def tasks_after_their_inputs(self) -> Iterator[Findings]:
        """(8), (9): a task starts after all its inputs arrived."""
        yield self._after_inputs("(8)", self._remote)
        yield self._after_inputs("(9)", ~self._remote)

    def _after_inputs(self, constraint: str, over: NDArray[np.bool_]) -> Findings:
        edge, n = np.nonzero(self._sent & over[:, None])
        task = self._destination[edge]
        arrival = n + self._lag[edge]
        what = "landed" if self._problem.latencies.any() else "ended"
        start = self._schedule.task_start
        ends = landings(self._schedule)
        both = start[task, arrival], ends[edge, n], (self._task, task, arrival)
        return self._not_before(
            constraint, *both, lambda i: f"{self._flow(edge[i], n[i])} {what}"
        )

    def one_iteration_at_a_time(self) -> Iterator[Findings]:
        """(10): an iteration of a task starts after the one before it ended."""
        start = self._schedule.task_start
        end = self._schedule.task_end
        task, before = np.indices(start[:, 1:].shape).reshape(2, -1)
        n = before + 1
        both = start[task, n], end[task, before], (self._task, task, n)
        yield self._not_before("(10)", *both, "the iteration before it ended")

    def one_flow_at_a_time(self) -> Iterator[Findings]:
        """(11): flows of an edge are sent one by one, in order."""
        start = self._schedule.flow_start
        end = self._schedule.flow_end
        edge, before = np.nonzero(self._sent[:, 1:] & self._remote[:, None])
        n = before + 1
        both = start[edge, n], end[edge, before], (self._flow, edge, n)
        yield self._not_before("(11)", *both, "the flow before it on its edge ended")

    def all_bytes(self, volumes: Floats | None) -> Iterator[Findings]:
        """(12): every flow carries its volume, by its count and by its rates."""
        edge, n = np.nonzero(self._sent & self._remote[:, None])
        sizes = self._schedule.flow_bytes[edge, n]
        slack = np.zeros(len(edge))

        def compare(found: Floats, expected: Floats, verb: str) -> Findings:
            return list_beyond(
                "(12)",
                np.abs(found - expected),
                slack + self._relative * expected,
                lambda i: self._flow(int(edge[i]), int(n[i])),
                lambda i: f"{verb} {found[i]:g} of {expected[i]:g} bytes",
                "B",
            )

        if volumes is not None:
            yield compare(sizes, volumes[edge, n], "carried")
        if self._pieces is not None:
            most = self._problem.links.steps.most
            narrowest = [most[list(path)].min(initial=np.inf) for path in self._hops]
            slack = self._tolerance * np.array(narrowest)[edge]
            fluid = fluid_bytes(self._pieces)[edge, n]
            yield compare(fluid, sizes, "was given rates for")

    def port_capacity(self) -> Iterator[Findings]:
        """(13), (14): no port carries more than its capacity."""
        over = []
        steps = self._problem.links.steps
        loads = self._pieces and excess_loads(self._pieces, self._tolerance)
        for port, most in enumerate(steps.most):
            if loads is not None:  # at every instant
                excess, time = loads[port]
                unit = "B/s"
                slack = most * self._relative
                capacity = steps.at(port, np.array([time]))[0]
                how = f"is over its capacity of {capacity:g} B/s at {time:g} s"
            else:  # what lies within an interval as a whole has crossed in it
                excess, since, until = worst_interval(
                    self._schedule, port, 1 + self._relative, self._unpaced
                )
                unit = "B"
                slack = self._at_once(most)
                how = f"of {most:g} B/s carries too much from {since:g} to {until:g} s"
                excess, slack = excess - slack, 0.0
            if excess > slack:
                link = self._problem.links[port]
                name = {"out": "(13)", "in": "(14)"}.get(link.direction, "(13),(14)")
                sentence = f"port {link.name} {how}"
                over.append(Violation(name, link.name, excess, unit, sentence))
        yield len(self._problem.capacities), over

    @cached_property
    def _pieces(self) -> Pieces | None:
        rates = self._schedule.rates
        return None if rates is None else pieces(self._schedule, rates)

    def _not_before(
        self,
        constraint: str,
        times: Floats,
        bounds: Floats,
        subjects: _Subjects,
        what: Callable[[int], str] | str,
        verb: str = "started",
    ) -> Findings:
        name, rows, iterations = subjects

        def write(i: int) -> str:
            return f"{verb} before {what if isinstance(what, str) else what(i)}"

        # NaN is not early: what is missing was named once, by (6) or (7).
        return list_beyond(
            constraint,
            bounds - times,
            self._tolerance + 1e-12 * np.abs(bounds),
            lambda i: name(int(rows[i]), int(iterations[i])),
            write,
        )
