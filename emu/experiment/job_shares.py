"""Several jobs on one cluster: which machines each gets, so that they end soonest.

Each job is simulated alone on every choice of machines; those that share none are
combined, and the best few combinations simulated with all jobs at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from math import prod
from operator import sub

from typing_extensions import override

from emu.errors import EmulatorError
from emu.experiment.question import Answer, Question, answer
from emu.experiment.refusal import reason
from emu.experiment.systems import Target, list_translatable
from emu.prediction.analysis import throughput
from emu.problem.fields.cluster_section import ClusterSection
from emu.runs.result import Result
from emu.scenario import Scenario, load, prepare
from emu.training.looks import epoch_of
from emu.units import format_duration

#: Machines of each kind that a job gets.
Counts = tuple[int, ...]
#: Counts up to which all are tried, combinations that are simulated together.
_MOST_COUNTS = 32
_TOGETHER = 3


@dataclass(frozen=True)
class Division:
    """The machines of each job, and how long the jobs take together."""

    machines: Mapping[str, Sequence[str]]
    seconds: Mapping[str, float]
    """By job: to the target, else of an epoch."""
    aim: float
    """The longest of them, or their weighted sum."""
    scenario: Scenario = field(repr=False)

    @override
    def __str__(self) -> str:
        """Return who has what, in words."""
        shares = []
        for job, names in self.machines.items():
            machines = ", ".join(names)
            length = format_duration(self.seconds[job])
            shares.append(f"{job} on {machines} {length}")
        return "; ".join(shares)

    def to_json(self) -> Result:
        """Return the documented form; seconds."""
        return {
            "machines": self.machines,
            "seconds": self.seconds,
            "aim": self.aim,
        }


@dataclass(frozen=True)
class JobAdvice:
    """The best division of machines among jobs, beside others."""

    best: Division
    others: Sequence[Division]
    stated: Division | EmulatorError
    """The file as it stands, or why it cannot be."""
    unit: str

    def lines(self) -> Iterator[str]:
        """Yield who gets what, against the file as it stands, and what comes next."""
        length = format_duration(self.best.aim)
        yield f"use {self.best}; {length} {self.unit}"
        if self.stated is self.best:
            yield "the file as it stands is the best that was tried"
        elif isinstance(self.stated, Division):
            margin = self._margin(self.stated)
            yield f"{margin} the file as it stands, {self.stated}"

        rivals = [division for division in self.others if division is not self.stated]
        for rival in rivals[:1]:
            yield f"{self._margin(rival)} the next, {rival}"

    def _margin(self, other: Division) -> str:
        ratio = 1.0
        if self.best.aim:
            ratio = other.aim / self.best.aim
        return f"{ratio:.2f} x as fast as"

    def remarks(self) -> Iterator[str]:
        """Yield why the file as it stands cannot be."""
        if isinstance(self.stated, EmulatorError):
            yield f"not the file as it stands: {reason(self.stated)}"

    def to_json(self) -> Result:
        """Return the documented form; seconds."""
        stated_row = None
        if isinstance(self.stated, Division):
            stated_row = self.stated.to_json()
        return {
            "best": self.best.to_json(),
            "unit": self.unit,
            "stated": stated_row,
            "others": [division.to_json() for division in self.others],
        }


def list_kinds(cluster: ClusterSection) -> list[list[str]]:
    """Return names of equal machines of one rack, those of the fastest NIC first."""
    rack_of: dict[str, str] = {}
    for rack in cluster.racks:
        names_of_rack = dict.fromkeys(rack.machines, rack.name)
        rack_of.update(names_of_rack)

    kinds: dict[tuple[float, str, str], list[str]] = {}
    for name, position in cluster.names_and_positions():
        machine = cluster.machines[position]
        # Equal but for what they are called, and how many the file writes at once.
        alike = machine.model_copy(update={"name": None, "count": 1})
        rack_name = rack_of.get(name, "")
        kind = (-machine.nic.outward, str(alike), rack_name)
        kinds.setdefault(kind, []).append(name)
    return [kinds[kind] for kind in sorted(kinds)]


def list_counts(kinds: Sequence[Sequence[str]]) -> list[Counts]:
    """Return how many machines of each kind a job may get.

    All numbers where these are few; else machines that follow one another in the order
    of the kinds, in halves of all, quarters, and so on.
    """
    ranges = [range(len(kind) + 1) for kind in kinds]
    combination_count = prod(map(len, ranges))
    # Every count is a simulation of every job alone.
    if combination_count <= _MOST_COUNTS:
        return [counts for counts in product(*ranges) if any(counts)]

    order: list[int] = []
    for number, kind in enumerate(kinds):
        order += [number] * len(kind)
    shares: dict[Counts, None] = {}
    length = len(order)
    while length:
        step = max(length // 2, 1)
        last_first = len(order) - length
        for first in range(0, last_first + 1, step):
            run = order[first : first + length]
            counts = [run.count(number) for number in range(len(kinds))]
            shares[tuple(counts)] = None
        length //= 2
    return [*shares]


def combine_counts(
    seconds: Sequence[Mapping[Counts, float]],
    free: Counts,
    aim: Callable[[Sequence[float]], float],
    most: int,
) -> list[tuple[Counts, ...]]:
    """Return the best combinations, at most so many, that need no more than is free.

    ``seconds``: of each job, by its machines. ``aim`` never falls as one of them grows.
    """
    best: list[tuple[float, tuple[Counts, ...]]] = []

    def extend(chosen: tuple[Counts, ...], times: list[float], left: Counts) -> None:
        # What is not chosen yet counts as nothing, so that this is a lower bound.
        idle_count = len(seconds) - len(times)
        idle = [0.0] * idle_count
        least = aim([*times, *idle])
        # The aim never falls: whatever is added, it will not be among the best.
        if len(best) == most:
            worst, _ = best[-1]
            if least >= worst:
                return
        if len(chosen) == len(seconds):
            best.append((least, chosen))
            best.sort()
            del best[most:]
            return

        options = seconds[len(chosen)]
        # The fastest first: a good combination early cuts off most of the others.
        for counts in sorted(options, key=options.__getitem__):
            rest = tuple(map(sub, left, counts))
            if min(rest, default=0) >= 0:
                further_times = [*times, options[counts]]
                extend((*chosen, counts), further_times, rest)

    extend((), [], free)
    return [counts for _, counts in best]


def count_epochs(found: Answer) -> float:
    """Return the passes of a job, by which its time is divided; 1 to a target."""
    if found.question.target:
        return 1.0
    job = found.simulated.problem.job
    # Cycles that fill a pipeline or drain it bring no mini-batch to an end.
    steps = job.iterations - throughput.pipeline_depth(job)
    epoch = epoch_of(job.settings)
    if epoch is None:
        return float(steps)
    return steps / epoch.steps * epoch.seeds / found.train


@dataclass
class _Divider:
    scenario: Scenario
    target: Target | None
    sums: bool

    def aim(self, seconds: Sequence[float]) -> float:
        """Return the longest time, or the sum by the weights of the jobs."""
        if not self.sums:
            return max(seconds)
        total = 0.0
        for job, time in zip(self.scenario.jobs, seconds, strict=True):
            weight = job.weight
            if weight is None:
                weight = 1.0
            total += weight * time
        return total

    def place_alone(
        self, position: int, machines: Sequence[str] | None = None
    ) -> Answer:
        """Return a job alone on some machines, by default as the file has it."""
        _, part = self.scenario.parts()[position]
        if machines is None:
            return answer(Question(part, target=self.target))
        question = Question(
            scenario=part,
            row=part.job.system,
            machines=tuple(machines),
            target=self.target,
        )
        return answer(question)

    def time_alone(
        self, position: int, kinds: Sequence[Sequence[str]]
    ) -> dict[Counts, float]:
        """Return the time of a job by the machines that are its own.

        Raises the reason of the most machines where it can be on none.
        """
        times: dict[Counts, float] = {}
        refusals: dict[Counts, EmulatorError] = {}
        for counts in list_counts(kinds):
            names: list[str] = []
            for kind, count in zip(kinds, counts, strict=True):
                # Machines of a kind are equal: any of them take as long.
                names += kind[:count]
            alone = self.place_alone(position, names)
            if alone.refused is not None:
                refusals[counts] = alone.refused
                continue
            if set(alone.machines) <= set(names):  # else the file states others
                makespan = alone.simulated.makespan
                times[counts] = makespan / count_epochs(alone)

        if not times and refusals:
            most = max(refusals, key=sum)
            raise refusals[most]
        return times

    def run_together(self, answers: Sequence[Answer], *, apart: bool) -> Division:
        """Return all jobs at once; ``apart``: on machines that are theirs alone."""
        edit = {}
        keys = ["job"]
        if apart:
            # One after the other, each as it stood alone: placed together they may mix.
            edit = {
                "place_jobs": "sequential",
                "joint_cost": None,
                "placement": None,
            }
            keys += ["placement", "weight"]
        # Each job as it was alone, with the machines that were chosen for it.
        for number, alone in enumerate(answers):
            ready = alone.experiment
            content = ready.scenario.to_json()
            for key in keys:
                job_key = f"jobs[{number}].{key}"
                edit[job_key] = content.get(key)

        joint_scenario = load(self.scenario, edit)
        ready = prepare(joint_scenario)
        times = throughput.job_times(
            ready.simulate(),
            realization=ready.realization,
            policy=ready.choose_policy(),
            epoch_of=epoch_of,
        )
        names = ready.scenario.stated_cluster.names
        seconds = {}
        machines = {}
        for time, alone in zip(times, answers, strict=True):
            job = time.job
            seconds[job] = time.seconds / count_epochs(alone)
            prefix = f"{job}/"
            tasks = [task for task in ready.tasks if task.startswith(prefix)]
            hosts = {ready.tasks[task] for task in tasks}
            machines[job] = [name for name in names if name in hosts]
        return Division(
            machines=machines,
            seconds=seconds,
            aim=self.aim([*seconds.values()]),
            scenario=ready.scenario,
        )

    def divide(self, watch: Callable[[str], None]) -> Iterator[Division]:
        """Yield the best combinations of machines, simulated together."""
        jobs = self.scenario.jobs
        kinds = list_kinds(self.scenario.stated_cluster)
        seconds = []
        for position, item in enumerate(jobs):
            place = position + 1
            watch(f"{item.name} alone, {place} of {len(jobs)}")
            seconds.append(self.time_alone(position, kinds))

        free = tuple(map(len, kinds))
        combinations = combine_counts(
            seconds,
            free=free,
            aim=self.aim,
            most=_TOGETHER,
        )
        for combination in combinations:
            # Every job takes the next ones of a kind, so that no two have the same.
            stocks = [iter(kind) for kind in kinds]
            answers = []
            for position, counts in enumerate(combination):
                names: list[str] = []
                for kind, count in zip(stocks, counts, strict=True):
                    names += islice(kind, count)
                answers.append(self.place_alone(position, names))
            yield self.run_together(answers, apart=True)


def check_systems(scenario: Scenario) -> None:
    """Raise ScenarioError where one of several jobs is of no system to be moved."""
    systems = list_translatable()
    for position, item in enumerate(scenario.jobs):
        system = item.job.system
        if system not in systems:
            problem = (
                f"job {item.name!r} is {system}, and advise divides machines among "
                f"jobs of {', '.join(systems)}: leave it out"
            )
            trail = ("jobs", position, "job", "system")
            raise scenario.origin.error(trail, problem)


def share_machines(
    scenario: Scenario,
    target: Target | None = None,
    *,
    sums: bool = False,
    watch: Callable[[str], None] = lambda _: None,
) -> JobAdvice:
    """Return which of several jobs gets which machines, never worse than the file.

    ``sums``: whether the sum of their times by weight is to be least, and not the
    longest, whatever ``joint_cost`` says. ``watch`` is called with what is tried.
    Raises ScenarioError, PlacementError, DataError when a job can be nowhere, or all of
    them together nowhere.
    """
    check_systems(scenario)
    sums = sums or scenario.joint_cost != "max"
    without_checks = load(scenario, {"expect": None})
    divider = _Divider(without_checks, target, sums)
    divisions = [*divider.divide(watch)]
    file_division: Division | EmulatorError
    try:  # a job may not reach the target
        answers = []
        for position in range(len(scenario.jobs)):
            stated_answer = divider.place_alone(position)
            answers.append(stated_answer)
        file_division = divider.run_together(answers, apart=False)
        # The file is a choice like the others, so that no advice is worse.
        divisions.append(file_division)
    except EmulatorError as error:
        file_division = error
    if not divisions:
        problem = "there are too few machines for all jobs, each on its own"
        raise scenario.origin.error(("cluster", "machines"), problem)

    best, *rivals = sorted(divisions, key=lambda division: division.aim)
    part = "in the weighted sum" if sums else "of the longest"
    length = f"to {target.accuracy:g}" if target else "per epoch"
    return JobAdvice(
        best=best,
        others=rivals,
        stated=file_division,
        unit=f"{part}, {length}",
    )
