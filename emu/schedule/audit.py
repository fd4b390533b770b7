"""Does a schedule keep constraints (5)-(14) of the paper? For any Schedule.

Times are compared with a tolerance, as an emulated run is only as exact as its clocks;
bytes likewise. Everything broken is listed, each with its names and amount.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from emu.schedule.port_load import fluid_bytes, peak_loads, worst_interval

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from emu.schedule.schedule import RateHistory, Schedule

    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Violation:
    """One broken constraint.

    Parameters
    ----------
    constraint
        Number in the paper, ``(10)``.
    subject
        What broke it: a task, a flow or a port, by name and iteration.
    amount
        By how much, in ``unit``.
    unit
        ``s``, ``B`` or ``B/s``; ``iterations`` for something missing.
    sentence
        The violation in words.
    """

    constraint: str
    subject: str
    amount: float
    unit: str
    sentence: str

    def __str__(self) -> str:
        """Return constraint, sentence and amount in one line."""
        return f"{self.constraint} {self.sentence}: {self.amount:g} {self.unit}"


@dataclass(frozen=True)
class AuditReport:
    """What an audit found.

    Parameters
    ----------
    violations
        Everything beyond the tolerance, in the order of the constraints.
    checked
        How many comparisons each constraint took part in.
    """

    violations: list[Violation]
    checked: dict[str, int] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return not self.violations


def audit(
    schedule: Schedule,
    *,
    tolerance: float = 1e-9,
    relative: float = 1e-9,
    volumes: Floats | None = None,
) -> AuditReport:
    """Check ``schedule`` against constraints (5)-(14).

    With a rate history, port capacity (13), (14) and bytes (12) are checked exactly, at
    every instant. Without one, a necessary condition stands in: within every interval
    from some flow's start to some flow's end, the flows that lie in it as a whole
    cannot bring more bytes over a port than its capacity times the length.

    Parameters
    ----------
    tolerance
        Seconds by which a time may be off; bytes may be off by what the flow's
        narrowest port carries in that time.
    relative
        Share by which capacities may be exceeded and bytes may differ.
    volumes
        Bytes that should have been sent, shape (edges, iterations); None takes the
        schedule's own.

    Returns
    -------
    AuditReport
        All violations.

    Raises
    ------
    ValueError
        When a tolerance is negative or an array has the wrong shape.
    """
    if not (tolerance >= 0 and relative >= 0):
        raise ValueError(f"tolerances {tolerance} and {relative} must not be negative")
    auditor = _Auditor(schedule, tolerance, relative)
    auditor.check_shapes(volumes)
    checks = {
        "(5),(6)": auditor.every_iteration_once(),
        "(7)": auditor.flows_after_their_source(),
        "(8),(9)": auditor.tasks_after_their_inputs(),
        "(10)": auditor.one_iteration_at_a_time(),
        "(11)": auditor.one_flow_at_a_time(),
        "(12)": auditor.all_bytes(volumes),
        "(13),(14)": auditor.port_capacity(),
    }
    found: list[Violation] = []
    checked: dict[str, int] = {}
    for name, results in checks.items():
        outcomes = list(results)
        checked[name] = len(outcomes)
        found += [violation for violation in outcomes if violation is not None]
    return AuditReport(found, checked)


class _Auditor:
    """The checks, each yielding None or a violation per comparison."""

    def __init__(self, schedule: Schedule, tolerance: float, relative: float) -> None:
        self._schedule, self._problem = schedule, schedule.problem
        self._job = schedule.problem.job
        self._tolerance, self._relative = tolerance, relative
        self._remote = [bool(hops) for hops in self._problem.hops]

    def check_shapes(self, volumes: Floats | None) -> None:
        tasks = len(self._job.tasks), self._job.iterations
        edges = len(self._job.edges), self._job.iterations
        schedule = self._schedule
        for name, array, shape in (
            ("task_start", schedule.task_start, tasks),
            ("task_end", schedule.task_end, tasks),
            ("flow_ready", schedule.flow_ready, edges),
            ("flow_start", schedule.flow_start, edges),
            ("flow_end", schedule.flow_end, edges),
            ("flow_bytes", schedule.flow_bytes, edges),
            ("volumes", volumes, edges),
        ):
            if array is not None and array.shape != shape:
                raise ValueError(f"{name} has shape {array.shape}, not {shape}")

    def every_iteration_once(self) -> Iterator[Violation | None]:
        """(5), (6): every iteration of every task ran, from time 0 on."""
        for task, iteration in np.ndindex(self._schedule.task_start.shape):
            start = self._schedule.task_start[task, iteration]
            end = self._schedule.task_end[task, iteration]
            name = self._task(task, iteration)
            if not np.isfinite([start, end]).all():
                yield Violation("(6)", name, 1, "iterations", f"{name} did not run")
                continue
            yield self._not_before("(5)", name, start, 0.0, "the run began")
            yield self._not_before("(6)", name, end, start, "it started", verb="ended")

    def flows_after_their_source(self) -> Iterator[Violation | None]:
        """(7): a flow starts after its source ended, and all flows took place."""
        schedule = self._schedule
        for edge, iteration in self._sent():
            name = self._flow(edge, iteration)
            start = schedule.flow_start[edge, iteration]
            end = schedule.flow_end[edge, iteration]
            if not np.isfinite([start, end]).all():
                yield Violation("(7)", name, 1, "iterations", f"{name} was not sent")
                continue
            source = self._job.edges[edge].source
            ended = schedule.task_end[source, iteration]
            who = f"{self._task(source, iteration)} ended"
            yield self._not_before("(7)", name, start, ended, who)
            yield self._not_before("(7)", name, end, start, "it started", verb="ended")

    def tasks_after_their_inputs(self) -> Iterator[Violation | None]:
        """(8), (9): a task starts after all its inputs arrived."""
        schedule = self._schedule
        for edge, iteration in self._sent():
            joint = self._job.edges[edge]
            arrival = iteration + joint.lag
            name = self._task(joint.destination, arrival)
            yield self._not_before(
                "(8)" if self._remote[edge] else "(9)",
                name,
                schedule.task_start[joint.destination, arrival],
                schedule.flow_end[edge, iteration],
                f"{self._flow(edge, iteration)} ended",
            )

    def one_iteration_at_a_time(self) -> Iterator[Violation | None]:
        """(10): an iteration of a task starts after the one before it ended."""
        schedule = self._schedule
        for task in range(len(self._job.tasks)):
            for iteration in range(1, self._job.iterations):
                yield self._not_before(
                    "(10)",
                    self._task(task, iteration),
                    schedule.task_start[task, iteration],
                    schedule.task_end[task, iteration - 1],
                    "the iteration before it ended",
                )

    def one_flow_at_a_time(self) -> Iterator[Violation | None]:
        """(11): flows of an edge are sent one by one, in order."""
        for edge, iteration in self._sent():
            if iteration == 0 or not self._remote[edge]:
                continue
            yield self._not_before(
                "(11)",
                self._flow(edge, iteration),
                self._schedule.flow_start[edge, iteration],
                self._schedule.flow_end[edge, iteration - 1],
                "the flow before it on its edge ended",
            )

    def all_bytes(self, volumes: Floats | None) -> Iterator[Violation | None]:
        """(12): every flow carries its volume, by its count and by its rates."""
        sent = self._schedule.flow_bytes
        rates = self._schedule.rates
        fluids = None if rates is None else fluid_bytes(self._schedule, rates)
        for edge, iteration in self._sent():
            if not self._remote[edge]:
                continue
            name, found = self._flow(edge, iteration), sent[edge, iteration]
            if volumes is not None:
                expected = volumes[edge, iteration]
                yield self._same_bytes(name, found, expected, 0.0, "carried")
            if fluids is not None:
                slack = self._tolerance * self._narrowest(edge)
                fluid = fluids.get((edge, iteration), 0.0)
                yield self._same_bytes(name, fluid, found, slack, "was given rates for")

    def port_capacity(self) -> Iterator[Violation | None]:
        """(13), (14): no port carries more than its capacity."""
        if self._schedule.rates is not None:
            return self._capacity_at_every_instant(self._schedule.rates)
        return self._capacity_in_every_interval()

    def _capacity_at_every_instant(
        self, rates: RateHistory
    ) -> Iterator[Violation | None]:
        peaks = peak_loads(self._schedule, rates, self._tolerance)
        for port, capacity in enumerate(self._problem.capacities):
            load, time = peaks[port]
            name = self._problem.port_name(port)
            yield (
                None
                if load <= capacity * (1 + self._relative)
                else Violation(
                    "(14)" if port % 2 else "(13)",
                    name,
                    float(load - capacity),
                    "B/s",
                    f"port {name} is over its capacity of {capacity:g} B/s "
                    f"at {time:g} s",
                )
            )

    def _capacity_in_every_interval(self) -> Iterator[Violation | None]:
        for port, capacity in enumerate(self._problem.capacities):
            excess, since, until = worst_interval(
                self._schedule, port, capacity * (1 + self._relative), self._tolerance
            )
            name = self._problem.port_name(port)
            yield (
                None
                if excess <= 0
                else Violation(
                    "(14)" if port % 2 else "(13)",
                    name,
                    excess,
                    "B",
                    f"port {name} of {capacity:g} B/s carries too much "
                    f"from {since:g} to {until:g} s",
                )
            )

    # --- comparisons ----------------------------------------------------------------

    def _not_before(
        self,
        constraint: str,
        subject: str,
        time: float,
        bound: float,
        what: str,
        *,
        verb: str = "started",
    ) -> Violation | None:
        early = bound - time
        if early <= self._tolerance + 1e-12 * abs(bound) or np.isnan(early):
            return None  # NaN: what is missing was named once, by (6) or (7)
        sentence = f"{subject} {verb} before {what}"
        return Violation(constraint, subject, float(early), "s", sentence)

    def _same_bytes(
        self, name: str, found: float, expected: float, slack: float, verb: str
    ) -> Violation | None:
        off = abs(found - expected)
        if off <= slack + self._relative * expected:
            return None
        sentence = f"{name} {verb} {found:g} of {expected:g} bytes"
        return Violation("(12)", name, float(off), "B", sentence)

    def _narrowest(self, edge: int) -> float:
        return min(float(self._problem.capacities[p]) for p in self._problem.hops[edge])

    def _sent(self) -> Iterator[tuple[int, int]]:
        for edge in range(len(self._job.edges)):
            for iteration in range(self._job.iterations):
                if self._job.sends(edge, iteration):
                    yield edge, iteration

    def _task(self, task: int, iteration: int) -> str:
        return f"{self._job.tasks[task].name}[{iteration}]"

    def _flow(self, edge: int, iteration: int) -> str:
        return f"{self._job.edge_name(self._job.edges[edge])}[{iteration}]"
