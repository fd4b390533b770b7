"""Work of a row of a table of systems: counts by rates, and what of it is waited for.

By hand: a task takes the sum of its terms, a flow alone its bytes over the narrowest
link of its way, and what the critical path waits for adds up to the makespan. The rest
is done beside it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from emu.experiment.row_figures import RowOperations
from emu.prediction.analysis.critical_path import Cause, critical_path
from emu.problem import Problem, Schedule
from emu.problem.workloads.operations import OPERATIONS
from emu.scenario import Experiment


@dataclass(frozen=True)
class Term:
    """A count of operations by their rate."""

    operation: str
    """One of `OPERATIONS`; ``task`` where times are stated; ``byte`` of a flow."""
    count: float
    rate: float
    """Seconds of one."""

    @property
    def seconds(self) -> float:
        """Seconds of all of them."""
        return self.count * self.rate


@dataclass(frozen=True)
class Work:
    """All tasks of a kind on a machine, or all flows from such to such."""

    what: str
    machine: str
    """Name; of flows ``m0 -> m1``."""
    pool: str
    """Pool whose slots they take, empty for none; of flows the narrowest link."""
    tasks: int
    """Number of tasks, or of edges."""
    terms: tuple[Term, ...]
    waited: float
    """Seconds of it that the critical path consists of."""

    @property
    def seconds(self) -> float:
        """Seconds of its terms: what it takes where nothing shares anything."""
        return sum(term.seconds for term in self.terms)


def list_work(experiment: Experiment, schedule: Schedule) -> list[Work]:
    """Return the work of a schedule, tasks before flows, in the order of the job."""
    waited = _list_waits(schedule)
    machine_of = schedule.problem.machine_of_task
    job = schedule.problem.job

    rows = defaultdict(list)
    for row, task in enumerate(job.tasks):
        machine = machine_of[task.name]
        rows[task.kind, machine, task.takes].append(row)

    work = []
    for (kind, machine, pool), members in rows.items():
        seconds_waited = [waited[row, -1] for row in members]
        row_work = Work(
            what=kind,
            machine=machine,
            pool=pool,
            tasks=len(members),
            terms=_terms_of_tasks(experiment, schedule, members),
            waited=sum(seconds_waited),
        )
        work.append(row_work)
    flows = _list_flows(experiment, schedule, waited)
    return [*work, *flows]


def _list_waits(schedule: Schedule) -> dict[tuple[int, int], float]:
    """Return the seconds of the critical path by (task, edge), of which one is -1."""
    waited = defaultdict[tuple[int, int], float](float)
    for link in critical_path(schedule).links:
        # What a gap stands before is not what took it.
        if link.cause is not Cause.GAP:
            waited[link.task, link.edge] += link.seconds
    return waited


def _terms_of_tasks(
    experiment: Experiment, schedule: Schedule, rows: list[int]
) -> tuple[Term, ...]:
    """Return the terms of tasks of one kind on one machine, which have equal rates."""
    operations = RowOperations(experiment)
    if operations.counts is None:
        spans = schedule.task_end[rows] - schedule.task_start[rows]
        mean_span = float(spans.mean())
        return (Term("task", spans.size, mean_span),)

    counts = operations.counts[:, rows].sum(axis=(1, 2))
    rates = operations.rates_on(schedule.problem, rows[0])
    terms = []
    for name, count in zip(OPERATIONS, counts.tolist(), strict=True):
        if count:
            term = Term(name, count, rates[name])
            terms.append(term)
    return tuple(terms)


def _list_flows(
    experiment: Experiment,
    schedule: Schedule,
    waited: dict[tuple[int, int], float],
) -> list[Work]:
    """Return the flows between machines, by kinds and machines of their ends."""
    problem = schedule.problem
    volumes = experiment.realization.volumes
    counts = problem.job.flow_counts

    work = []
    for (what, machines), members in _group_edges(problem).items():
        first_edge = members[0]
        ports = problem.hops[first_edge]
        narrowest = min(ports, key=problem.capacities.__getitem__)
        capacity = float(problem.capacities[narrowest])
        # What is for an iteration after the last one is never sent.
        sizes = [volumes[number, : counts[number]].sum() for number in members]
        term = Term("byte", float(sum(sizes)), 1 / capacity)
        seconds_waited = [waited[-1, number] for number in members]
        flow_work = Work(
            what=what,
            machine=machines,
            pool=problem.links[narrowest].name,
            tasks=len(members),
            terms=(term,),
            waited=sum(seconds_waited),
        )
        work.append(flow_work)
    return work


def _group_edges(problem: Problem) -> dict[tuple[str, str], list[int]]:
    """Return the edges between machines, by kinds and machines of their ends."""
    machine_of = problem.machine_of_task
    tasks = problem.job.tasks
    edges = defaultdict(list)
    for number, edge in enumerate(problem.job.edges):
        if not problem.hops[number]:
            continue
        source = tasks[edge.source]
        destination = tasks[edge.destination]
        sender = machine_of[source.name]
        receiver = machine_of[destination.name]
        kinds = f"{source.kind} -> {destination.kind}"
        machines = f"{sender} -> {receiver}"
        edges[kinds, machines].append(number)

    return edges
