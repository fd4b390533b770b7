"""Speed of a job, alone and beside others, and its cost in money.

Machines cost their hourly price for the whole makespan. Functions (lambdas) cost a
request each, and the time from launch to answer rounded up to a granularity.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from emu.array_types import Floats
from emu.prediction.analysis.critical_path import (
    MOVING,
    Cause,
    ChainLink,
    critical_path,
)
from emu.prediction.simulation import makespan
from emu.problem import Epoch, Job, Placement, Problem, Realization, Schedule
from emu.problem.workloads import RELEASE


@dataclass(frozen=True)
class Speed:
    """Speed of a job, which deaths do not change."""

    iteration_seconds: float
    """Mean time between the ends of iterations, as of `Pace`."""
    samples_per_second: float | None
    """None where the job has no mini-batches, infinite where they take no time."""

    @property
    def finite_rate(self) -> float | None:
        """Samples per second, None where they take no time as well."""
        rate = self.samples_per_second
        return None if rate == np.inf else rate


@dataclass(frozen=True)
class Pace:
    """Speed of a job."""

    iteration_seconds: float | None
    """Mean time between the ends of iterations, of a pipeline of those in which all its
    phases work; where there are no two, the makespan over the mini-batches. None of
    several jobs, whose iterations have nothing in common."""
    samples_per_second: float | None
    """Seeds of all workers, over whole epochs; None where the job has no batches."""
    busy: float | None
    """Share of the makespan in which a training process computes, the mean over them;
    None where there are none."""
    critical_path: dict[str, float]
    """``sampling``, ``transfer``, ``latency``, ``compute`` and ``waiting`` as shares of
    it, most first."""

    def to_json(self) -> dict[str, Any]:
        """Return the form of result.json."""
        return asdict(self)


def pace(schedule: Schedule, epoch: Epoch | None) -> Pace:
    """Return the speed of a job, whose epoch is None where it has no mini-batches."""
    job = schedule.problem.job
    seconds = schedule.length
    speed = speed_of(job, schedule.task_end, seconds, epoch)

    spent: defaultdict[str, float] = defaultdict(float)
    # Tasks with fewer rounds than the job have NaN behind their last one.
    lengths = np.nansum(schedule.task_end - schedule.task_start, axis=1)
    for task, length in zip(job.tasks, lengths, strict=True):
        if task.phase == "training":
            # Several training tasks of one process add up: the mean is over processes.
            spent[task.process_name] += float(length)
    busy = None
    if spent and seconds:
        busy = sum(spent.values()) / len(spent) / seconds

    def kind_of(link: ChainLink) -> str:
        if link.cause in MOVING:
            return "transfer"
        if link.cause is Cause.LATENCY:
            return "latency"
        # Waits for a credit, for a slot, and gaps: nothing useful went on for the
        # chain.
        if link.cause is not Cause.COMPUTE:
            return "waiting"
        return "sampling" if job.tasks[link.task].phase == "sampling" else "compute"

    sums = Counter(critical_path(schedule).sums(kind_of))
    shares = {}
    for kind, seconds_of_kind in sums.most_common():
        if seconds_of_kind > 0:
            shares[kind] = seconds_of_kind / seconds
    return Pace(
        iteration_seconds=None if job.is_several else speed.iteration_seconds,
        samples_per_second=speed.finite_rate,
        busy=busy,
        critical_path=shares,
    )


def pipeline_depth(job: Job) -> int:
    """Return the iterations of a job that begin no mini-batch; 0 without a pipeline.

    A pipeline's first cycles end no mini-batch, as many of its last ones begin none:
    over 8 mini-batches P3 would seem 10 % faster with the latter.
    """
    return 0 if job.is_several else max(task.behind for task in job.tasks)


def speed_of(job: Job, task_end: Floats, seconds: float, epoch: Epoch | None) -> Speed:
    """Return the speed of a job.

    Seeds are counted over as many whole epochs as the job has: their last batches are
    short, and take less time. A job that has no whole one is extrapolated to one.

    Parameters
    ----------
    task_end, seconds
        As of a schedule, and its length.
    epoch
        None where the job has no mini-batches.
    """
    depth = pipeline_depth(job)
    ends = np.nanmax(task_end, axis=0)
    # Of a pipeline the cycles in which all phases work.
    full = ends[depth : len(ends) - depth]
    # From end to end: the first iteration also has the start of the job, which a longer
    # one would not pay again.
    # What restarts near its end may have too few cycles left for any full one.
    gaps = max(len(full) - 1, 0)
    if gaps > 0:
        # The latest end need not be that of the last iteration: some task of an earlier
        # one may end after it.
        iteration = float(full.max() - full[0]) / gaps
    else:
        mini_batches = len(ends) - depth
        iteration = seconds / mini_batches
    if epoch is None:
        return Speed(iteration, None)

    step = iteration
    epochs = gaps // epoch.steps
    if epochs:
        last = epochs * epoch.steps
        end = full[: last + 1].max()
        step = float(end - full[0]) / last
    rate = epoch.seeds / epoch.steps / step if step > 0 else np.inf
    return Speed(iteration, rate)


def seeds_per_iteration(settings: Mapping[str, Any]) -> int | None:
    """Return the seeds that all workers of a job train on in one full iteration.

    Each worker has a mini-batch of ``batch_size`` seeds, however many samplers share
    it. None where the job has no mini-batches.
    """
    # Jobs on whole graphs have epochs, but no mini-batches.
    if "batch_size" not in settings:
        return None
    return int(settings["batch_size"] * settings["workers"])


@dataclass(frozen=True)
class JobSpan:
    """Release and end of one of several jobs; seconds."""

    job: str
    release: float
    end: float
    """Run times: before it nothing of the job starts, and its last task ends."""
    seconds: float
    """From one to the other."""

    def to_json(self) -> dict[str, Any]:
        """Return the figures by name."""
        return asdict(self)


@dataclass(frozen=True)
class JobTime(JobSpan):
    """Time of one of several jobs beside the others; seconds."""

    alone: float
    """The same in a simulation without the other jobs, every task where it stands."""
    slowdown: float
    """``seconds`` over ``alone``; 1 where neither takes any time."""
    samples_per_second: float | None
    """As of `Pace`."""


def job_spans(schedule: Schedule, realization: Realization) -> list[JobSpan]:
    """Return release and end of every job, in order; none where there is but one."""
    job = schedule.problem.job
    spans = []
    for name in filter(None, job.job_names):
        rows = [row for row, task in enumerate(job.tasks) if task.job_name == name]
        releases = [row for row in rows if job.tasks[row].kind == RELEASE]
        # A job that is there from the start has no task of this kind: the sum is 0.
        release = float(realization.times[releases, 0].sum())
        end = float(np.nanmax(schedule.task_end[rows]))
        span = JobSpan(name, release=release, end=end, seconds=end - release)
        spans.append(span)
    return spans


def job_times(
    schedule: Schedule,
    realization: Realization,
    policy: str,
    epoch_of: Callable[[Mapping[str, Any]], Epoch | None],
) -> list[JobTime]:
    """Return the times of every job, in order; none where there is but one.

    ``epoch_of``: returns the epoch of a job by its settings, None without mini-batches.
    """
    job = schedule.problem.job
    times = []
    for span in job_spans(schedule, realization):
        problem, run = only(schedule.problem, realization, span.job)
        part = problem.job
        # Its release is a task of the part: alone the job waits until then as well.
        alone = makespan(problem, run, policy) - span.release

        rows = [task.job_name == span.job for task in job.tasks]
        # Columns beyond are of longer jobs beside it: all NaN here.
        ends = schedule.task_end[rows, : max(part.rounds)]
        speed = speed_of(part, ends, span.seconds, epoch_of(part.settings))
        time = JobTime(
            **span.to_json(),
            alone=alone,
            slowdown=span.seconds / alone if alone > 0 else 1.0,
            samples_per_second=speed.finite_rate,
        )
        times.append(time)
    return times


def only(
    problem: Problem,
    realization: Realization,
    name: str,
) -> tuple[Problem, Realization]:
    """Return one of several jobs without the others, where it stands."""
    job = problem.job
    tasks = [row for row, task in enumerate(job.tasks) if task.job_name == name]
    # Jobs share machines and links, never edges: an edge goes with its source.
    position = {row: number for number, row in enumerate(tasks)}
    edges = []
    edge_rows = []
    for row, edge in enumerate(job.edges):
        if edge.source in position:
            source = position[edge.source]
            destination = position[edge.destination]
            edges.append(replace(edge, source=source, destination=destination))
            edge_rows.append(row)

    iterations = max(job.rounds[row] for row in tasks)
    part = Job(
        tasks=tuple(job.tasks[row] for row in tasks),
        edges=tuple(edges),
        iterations=iterations,
        settings=job.settings_of(name),
    )
    machine_of = problem.placement.machine_of
    machines = [machine_of[row] for row in tasks]
    placement = Placement(tuple(machines))
    run = Realization(
        times=realization.times[tasks, :iterations],
        volumes=realization.volumes[edge_rows, :iterations],
    )
    return Problem(problem.cluster, part, placement), run


#: Seconds; prices are stated per hour, times are not.
_HOUR = 3600.0
#: Of a granularity: what rounding makes of times that are whole multiples of it.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Prices:
    """Prices of functions; defaults are those of AWS Lambda in the paper of Dorylus."""

    request: float = 2e-7
    """Dollars per request."""
    function_hour: float = 0.01125
    """Dollars per hour that a function runs."""
    granularity: float = 0.1
    """Seconds that its time is rounded up to multiples of."""

    def functions(self, seconds: Floats) -> float:
        """Return the dollars of functions that ran for so long each."""
        # Every function is rounded up on its own: a sum rounded once would be too
        # cheap.
        bill = np.ceil(seconds / self.granularity - _ROUNDING) * self.granularity
        running = float(bill.sum()) * self.function_hour / _HOUR
        requests = self.request * seconds.size
        return requests + running


@dataclass(frozen=True)
class Cost:
    """Dollars of one run, by what they were paid for."""

    servers: float
    lambdas: float
    parameter_servers: float
    seconds: float
    """Makespan."""
    lost: float = 0.0
    """Part of those for lambdas that went to lambdas without an answer."""

    @property
    def total(self) -> float:
        """Dollars in all."""
        return self.servers + self.lambdas + self.parameter_servers

    @property
    def value(self) -> float:
        """Reciprocal of time times cost, 1 / (s $); infinite where it is free."""
        spent = self.seconds * self.total
        return 1 / spent if spent else np.inf

    def to_json(self) -> dict[str, float | None]:
        """Return dollars by what they are for, in all, and the value, None if free."""
        is_free = not np.isfinite(self.value)
        content = {
            "servers": self.servers,
            "lambdas": self.lambdas,
            "parameter_servers": self.parameter_servers,
            "total": self.total,
            "value": None if is_free else self.value,
        }
        if self.lost:
            content["lost"] = self.lost
        return content


def machine_cost(hourly: float, seconds: float) -> float:
    """Return the dollars of machines that run for so long.

    ``hourly``: dollars per hour of them all.
    """
    return hourly * seconds / _HOUR


def schedule_cost(
    schedule: Schedule,
    hourly: Mapping[str, float],
    prices: Prices,
    *,
    functions: Floats,
    lost: Floats,
    parameter_kinds: Collection[str] = (),
) -> Cost:
    """Return the cost of a schedule.

    Parameters
    ----------
    hourly
        Machine -> dollars per hour; paid are those on which tasks stand.
    functions, lost
        Seconds that every function ran: that answered, and that did not.
    parameter_kinds
        Kinds of task of parameter servers: machines with processes of no other kind
        are shown apart.
    """
    problem = schedule.problem
    machine_of = problem.machine_of_task
    kinds: defaultdict[str, set[str]] = defaultdict(set)
    for task in problem.job.tasks:
        kinds_there = kinds[machine_of[task.name]]
        # A gate has no process: it takes no part in what its machine is paid for.
        if not task.gate:
            kinds_there.add(task.kind)

    server_price = 0.0
    parameter_price = 0.0
    for name, price in hourly.items():
        # A placement may leave machines out: nobody rents those.
        if name not in kinds:
            continue
        # Of a machine that only gates stand on, the set is empty: it is a server.
        if kinds[name] and kinds[name] <= {*parameter_kinds}:
            parameter_price += price
        else:
            server_price += price
    seconds = schedule.makespan
    # A function without an answer is paid for like any other.
    in_vain = prices.functions(lost)
    return Cost(
        servers=machine_cost(server_price, seconds),
        lambdas=prices.functions(functions) + in_vain,
        parameter_servers=machine_cost(parameter_price, seconds),
        seconds=seconds,
        lost=in_vain,
    )
