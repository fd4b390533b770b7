"""Audit of any schedule: it keeps constraints (5)-(15) of the paper, or breaks them.

Times are compared with a tolerance, as an emulated run is only as exact as its clocks;
bytes likewise. Everything broken is listed, each with its names and amount.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from emu.array_types import Floats, Ints, Mask
from emu.prediction.analysis.busy_intervals import worst_interval
from emu.prediction.analysis.link_load import (
    Pieces,
    excess_loads,
    fluid_bytes,
    pieces,
)
from emu.trust import audit_checks as alone
from emu.trust.audit_checks import allowance, is_remote, landings
from emu.trust.slot_checks import newest_reads, slot_faults
from emu.trust.violation import (
    AuditReport,
    Findings,
    Violation,
    Writer,
    flow_name,
    list_beyond,
    list_where,
    name_flows,
    task_name,
)

if TYPE_CHECKING:
    from emu.problem import Schedule


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
    schedule = alone.sound(schedule)  # what is no rate is named, and left out
    auditor = _Auditor(schedule, tolerance, relative, at_once=at_once, unpaced=unpaced)
    auditor.check_shapes(times, least_times, volumes)

    # In the order of the paper, which is that of the report.
    checks = {
        "(5),(6)": (
            *auditor.every_iteration_once(),
            *alone.first_stores(schedule, tolerance),
            *alone.task_times(schedule, tolerance, exact=times, least=least_times),
        ),
        "(7)": (
            *auditor.flows_after_their_source(),
            *alone.readiness(schedule, tolerance),
            *alone.settled_ends(schedule, tolerance),
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
        "slots": (slot_faults(schedule, tolerance),),
        "channels": (alone.channel_faults(schedule, tolerance),),
        "reads": (newest_reads(schedule, tolerance),),
    }

    report = AuditReport([])
    for name, results in checks.items():
        report = report.adding(name, _sum_up(results))
    return report


def _sum_up(results: Iterable[Findings]) -> Findings:
    """Return all that several checks have compared, and all that they found."""
    count = 0
    violations: list[Violation] = []
    for comparisons, failures in results:
        count += comparisons
        violations += failures
    return count, violations


#: Port, excess, unit and words.
_Excess: TypeAlias = tuple[int, float, str, str]


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
        self._job = schedule.problem.job
        self._tolerance = tolerance
        self._relative = relative
        self._at_once = at_once
        # Never less than the tolerance, which holds for every time.
        self._unpaced = max(unpaced, tolerance)
        self._task = partial(task_name, self._job)
        self._flow = partial(flow_name, self._job)

        self._remote = is_remote(self._problem)
        edges = self._job.edges
        sources = [edge.source for edge in edges]
        destinations = [edge.destination for edge in edges]
        lags = [edge.lag for edge in edges]
        self._source = np.array(sources, dtype=np.int64)
        self._destination = np.array(destinations, dtype=np.int64)
        self._lag = np.array(lags, dtype=np.int64)
        counts = np.array(self._job.flow_counts, dtype=np.int64)
        # A source may have fewer iterations than the job: what it does not send is not
        # missing.
        self._sent = np.arange(self._job.iterations) < counts[:, None]

    def check_shapes(
        self,
        times: Floats | None,
        least: Floats | None,
        volumes: Floats | None,
    ) -> None:
        job = self._job
        schedule = self._schedule
        of_tasks = (len(job.tasks), job.iterations)
        of_flows = (len(job.edges), job.iterations)
        arrays = {
            "task_start": schedule.task_start,
            "task_end": schedule.task_end,
            "flow_ready": schedule.flow_ready,
            "flow_start": schedule.flow_start,
            "flow_end": schedule.flow_end,
            "flow_bytes": schedule.flow_bytes,
            "times": times,
            "least_times": least,
            "volumes": volumes,
        }

        for name, array in arrays.items():
            is_of_flows = name.startswith(("flow", "volumes"))
            shape = of_flows if is_of_flows else of_tasks
            if array is not None and array.shape != shape:
                raise ValueError(f"{name} has shape {array.shape}, not {shape}")

    def every_iteration_once(self) -> Iterator[Findings]:
        """(5), (6): every iteration of every task ran, from time 0 on."""
        start = self._schedule.task_start
        end = self._schedule.task_end
        ran = np.isfinite(start) & np.isfinite(end)
        rounds = np.array(self._job.rounds, dtype=np.int64)
        # A task may have fewer iterations than the job.
        is_due = np.arange(self._job.iterations) < rounds[:, None]
        yield self._absent(
            "(6)",
            is_due & ~ran,
            name=self._task,
            words="did not run",
        )

        # What did not run is named above, and has no times.
        task, n = np.nonzero(ran)
        start = start[task, n]
        end = end[task, n]
        name = self._name_tasks(task, n)
        yield self._not_before(
            "(5)",
            times=start,
            bounds=0.0 * start,
            name=name,
            bound="the run began",
        )
        yield self._not_before(
            "(6)",
            times=end,
            bounds=start,
            name=name,
            bound="it started",
            verb="ended",
        )

    def flows_after_their_source(self) -> Iterator[Findings]:
        """(7): a flow starts after its source ended, and all flows took place."""
        start = self._schedule.flow_start
        end = self._schedule.flow_end
        took_place = np.isfinite(start) & np.isfinite(end)
        yield self._absent(
            "(7)",
            self._sent & ~took_place,
            name=self._flow,
            words="was not sent",
        )

        edge, n = np.nonzero(self._sent & took_place)
        start = start[edge, n]
        end = end[edge, n]
        source = self._source[edge]
        source_end = self._schedule.task_end[source, n]
        name = name_flows(self._job, edge, n)
        name_source = self._name_tasks(source, n)
        bound = _bound_of(name_source, "ended")
        yield self._not_before(
            "(7)",
            times=start,
            bounds=source_end,
            name=name,
            bound=bound,
        )
        yield self._not_before(
            "(7)",
            times=end,
            bounds=start,
            name=name,
            bound="it started",
            verb="ended",
        )

    def tasks_after_their_inputs(self) -> Iterator[Findings]:
        """(8), (9): a task starts after all its inputs arrived."""
        yield self._after_inputs("(8)", self._remote)
        yield self._after_inputs("(9)", ~self._remote)

    def _after_inputs(self, constraint: str, over: Mask) -> Findings:
        edge, n = np.nonzero(self._sent & over[:, None])
        task = self._destination[edge]
        reader = n + self._lag[edge]  # the iteration of the task that needs the flow
        start = self._schedule.task_start[task, reader]
        landing_times = landings(self._schedule)[edge, n]

        # Without latencies a flow lands when it ends: the plainer word.
        verb = "landed" if self._problem.latencies.any() else "ended"
        name_input = name_flows(self._job, edge, n)
        bound = _bound_of(name_input, verb)
        name = self._name_tasks(task, reader)
        return self._not_before(
            constraint,
            times=start,
            bounds=landing_times,
            name=name,
            bound=bound,
        )

    def one_iteration_at_a_time(self) -> Iterator[Findings]:
        """(10): an iteration of a task starts after the one before it ended."""
        start = self._schedule.task_start[:, 1:]
        end = self._schedule.task_end[:, :-1]
        task, earlier = np.indices(start.shape).reshape(2, -1)
        name = self._name_tasks(task, earlier + 1)
        bound = "the iteration before it ended"
        yield self._not_before(
            "(10)",
            times=start.ravel(),
            bounds=end.ravel(),
            name=name,
            bound=bound,
        )

    def one_flow_at_a_time(self) -> Iterator[Findings]:
        """(11): flows of an edge are sent one by one, in order."""
        has_previous = self._sent[:, 1:]
        # Within a machine flows take no link, and no order is asked of them.
        edge, earlier = np.nonzero(has_previous & self._remote[:, None])
        n = earlier + 1
        start = self._schedule.flow_start[edge, n]
        end = self._schedule.flow_end[edge, earlier]
        name = name_flows(self._job, edge, n)
        bound = "the flow before it on its edge ended"
        yield self._not_before(
            "(11)",
            times=start,
            bounds=end,
            name=name,
            bound=bound,
        )

    def all_bytes(self, volumes: Floats | None) -> Iterator[Findings]:
        """(12): every flow carries its volume, by its count and by its rates."""
        edge, n = np.nonzero(self._sent & self._remote[:, None])
        name = name_flows(self._job, edge, n)
        sizes = self._schedule.flow_bytes[edge, n]

        def compare(
            verb: str,
            found: Floats,
            expected: Floats,
            slack: Floats,
        ) -> Findings:
            return list_beyond(
                "(12)",
                np.abs(found - expected),
                limit=slack + self._relative * expected,
                name=name,
                words=f"{verb} {{:g}} of {{:g}} bytes",
                unit="B",
                values=[found, expected],
            )

        if volumes is not None:
            yield compare(
                "carried",
                found=sizes,
                expected=volumes[edge, n],
                # Counts of bytes are exact: no tolerance of time is in them.
                slack=np.zeros(len(edge)),
            )
        if self._pieces is not None:
            # A time that is off by the tolerance is off by so many bytes.
            widths = self._narrowest_links()[edge]
            fluid = fluid_bytes(self._pieces)
            yield compare(
                "was given rates for",
                found=fluid[edge, n],
                expected=sizes,
                slack=self._tolerance * widths,
            )

    def _narrowest_links(self) -> Floats:
        """Return bytes per second of every edge's narrowest link, as wide as it gets.

        Edges within a machine have no link, and no rates either.
        """
        most = self._problem.links.steps.most
        widths = []
        for ports in self._problem.hops:
            width = most[list(ports)].min(initial=np.inf)
            widths.append(width)
        return np.array(widths)

    def port_capacity(self) -> Iterator[Findings]:
        """(13), (14): no port carries more than its capacity."""
        # Without rates only what an interval holds as a whole is known.
        if self._pieces is None:
            excesses = self._excess_bytes()
        else:
            excesses = self._excess_rates(self._pieces)

        # A shared link is no NIC, and the paper has no number for it.
        constraints = {"out": "(13)", "in": "(14)"}
        violations = []
        for port, amount, unit, words in excesses:
            link = self._problem.links[port]
            violation = Violation(
                constraint=constraints.get(link.direction, "(13),(14)"),
                subject=link.name,
                amount=amount,
                unit=unit,
                sentence=f"port {link.name} {words}",
            )
            violations.append(violation)
        yield len(self._problem.capacities), violations

    def _excess_rates(self, rates: Pieces) -> Iterator[_Excess]:
        """Yield port, excess, unit and words where rates are too high at an instant."""
        steps = self._problem.links.steps
        loads = excess_loads(rates, self._tolerance)
        for port, most in enumerate(steps.most):
            excess, time = loads[port]
            # By the most that the link ever has: a link that is cut has 0, which leaves
            # no room for rounding.
            if excess > most * self._relative:
                instants = np.array([time])
                capacity = steps.at(port, instants)[0]
                words = f"is over its capacity of {capacity:g} B/s at {time:g} s"
                yield port, excess, "B/s", words

    def _excess_bytes(self) -> Iterator[_Excess]:
        """Yield likewise where what lies within an interval as a whole is too much."""
        for port, most in enumerate(self._problem.links.steps.most):
            excess, begin, end = worst_interval(
                self._schedule,
                port,
                factor=1 + self._relative,
                tolerance=self._unpaced,
            )
            excess -= self._at_once(most)
            if excess > 0.0:
                interval = f"from {begin:g} to {end:g} s"
                words = f"of {most:g} B/s carries too much {interval}"
                yield port, excess, "B", words

    # Once for (12) and for (13), (14): there are as many pieces as rates.
    @cached_property
    def _pieces(self) -> Pieces | None:
        rates = self._schedule.rates
        if rates is None:
            return None
        return pieces(self._schedule, rates)

    def _name_tasks(self, tasks: Ints, iterations: Ints) -> Writer:
        def name(row: int) -> str:
            task = int(tasks[row])
            iteration = int(iterations[row])
            return self._task(task, iteration)

        return name

    def _absent(
        self,
        constraint: str,
        is_absent: Mask,
        name: Writer,
        words: str,
    ) -> Findings:
        """Return what is missing: counted here, as what ran is in later comparisons."""
        _, violations = list_where(
            constraint,
            is_absent,
            name=name,
            words=words,
            unit="iterations",
        )
        return len(violations), violations

    def _not_before(
        self,
        constraint: str,
        times: Floats,
        bounds: Floats,
        name: Writer,
        bound: Writer | str,
        verb: str = "started",
    ) -> Findings:
        """Compare ``times`` with ``bounds``; ``bound`` tells what each bound is."""

        def write(row: int) -> str:
            words = bound if isinstance(bound, str) else bound(row)
            return f"{verb} before {words}"

        # NaN is not early: what is missing was named once, by (6) or (7).
        slack = allowance(bounds, self._tolerance)
        return list_beyond(
            constraint,
            bounds - times,
            limit=slack,
            name=name,
            words=write,
        )


def _bound_of(name: Writer, verb: str) -> Writer:
    return lambda row: f"{name(row)} {verb}"
