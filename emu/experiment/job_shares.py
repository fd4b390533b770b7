"""Several jobs on one cluster: which machines each gets, so that they end soonest.

Each job is simulated alone on every choice of machines; those that share none are
combined, and the best few combinations simulated with all jobs at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

from typing_extensions import override

from emu.errors import EmulatorError
from emu.experiment.advice import Choice
from emu.experiment.systems import Target, chosen_system
from emu.graph_data import open_for
from emu.prediction.analysis import throughput
from emu.problem.fields.cluster_section import ClusterSection
from emu.report.comparison import reason
from emu.scenario import Scenario, load, prepare
from emu.training.looks import epoch_of
from emu.units import format_duration

#: Machines of each kind that a job gets.
Counts = tuple[int, ...]
#: Counts up to which all are tried, combinations that are simulated together.
_MOST_COUNTS, _TOGETHER = 32, 3


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
        return "; ".join(
            f"{job} on {', '.join(names)} {format_duration(self.seconds[job])}"
            for job, names in self.machines.items()
        )

    def to_json(self) -> dict[str, Any]:
        """Return the documented form; seconds."""
        return {k: v for k, v in vars(self).items() if k != "scenario"}


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
        yield f"use {self.best}; {format_duration(self.best.aim)} {self.unit}"
        others = [("the next", one) for one in self.others if one is not self.stated]
        for what, other in (("the file as it stands", self.stated), *others[:1]):
            if other is self.best:
                yield f"{what} is the best that was tried"
            elif isinstance(other, Division):
                ratio = other.aim / self.best.aim if self.best.aim else 1.0
                yield f"{ratio:.2f} x as fast as {what}, {other}"

    def remarks(self) -> Iterator[str]:
        """Yield why the file as it stands cannot be."""
        if isinstance(self.stated, EmulatorError):
            yield f"not the file as it stands: {reason(self.stated)}"

    def to_json(self) -> dict[str, Any]:
        """Return the documented form; seconds."""
        as_is = self.stated if isinstance(self.stated, Division) else None
        return {
            "best": self.best.to_json(),
            "unit": self.unit,
            "stated": as_is and as_is.to_json(),
            "others": [one.to_json() for one in self.others],
        }


def list_kinds(cluster: ClusterSection) -> list[list[str]]:
    """Return names of equal machines of one rack, those of the fastest NIC first."""
    rack = {name: one.name for one in cluster.racks for name in one.machines}
    kinds: dict[tuple[float, str, str], list[str]] = {}
    for name, position in cluster.names_and_positions():
        section = cluster.machines[position]
        alike = str(section.model_copy(update={"name": None, "count": 1}))
        key = -section.nic.outward, alike, rack.get(name, "")
        kinds.setdefault(key, []).append(name)
    return [kinds[key] for key in sorted(kinds)]


def list_counts(kinds: Sequence[Sequence[str]]) -> list[Counts]:
    """Return how many machines of each kind a job may get.

    All numbers where these are few; else machines that follow one another in the order
    of the kinds, in halves of all, quarters, and so on.
    """
    sizes = [len(kind) for kind in kinds]
    if prod(size + 1 for size in sizes) <= _MOST_COUNTS:
        return [one for one in product(*(range(n + 1) for n in sizes)) if any(one)]
    order = [k for k, kind in enumerate(kinds) for _ in kind]
    counts, length = list[Counts](), len(order)
    while length:
        for first in range(0, len(order) - length + 1, max(length // 2, 1)):
            run = order[first : first + length]
            counts.append(tuple(run.count(k) for k in range(len(kinds))))
        length //= 2
    return [*dict.fromkeys(counts)]


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

    def extend(so_far: tuple[Counts, ...], took: list[float]) -> None:
        rest = aim([*took, *[0.0] * (len(seconds) - len(took))])
        if len(best) == most and rest >= best[-1][0]:
            return
        if len(so_far) == len(seconds):
            best.append((rest, so_far))
            best.sort()
            del best[most:]
            return
        room = [n - sum(shares) for n, *shares in zip(free, *so_far, strict=True)]
        options = seconds[len(so_far)]
        for counts in sorted(options, key=lambda one: options[one]):
            if all(n <= there for n, there in zip(counts, room, strict=True)):
                extend((*so_far, counts), [*took, options[counts]])

    extend((), [])
    return [counts for _, counts in best]


def count_epochs(choice: Choice) -> float:
    """Return the passes of a choice, by which its time is divided; 1 to a target."""
    job = choice.schedule.problem.job
    train = open_for(job.settings).train_count
    steps = job.iterations - throughput.pipeline_depth(job)
    seeds = throughput.seeds_per_iteration(job.settings) or train
    return 1.0 if choice.target else steps * seeds / train


@dataclass
class _Divider:
    scenario: Scenario
    target: Target | None
    sums: bool

    def aim(self, seconds: Sequence[float]) -> float:
        """Return the longest time, or the sum by the weights of the jobs."""
        weights = [1.0 if j.weight is None else j.weight for j in self.scenario.jobs]
        sizes = [w * s for w, s in zip(weights, seconds, strict=True)]
        return sum(sizes) if self.sums else max(seconds)

    def on(self, position: int, names: Sequence[str]) -> Choice:
        """Return a job alone on some machines; raises where it cannot be there."""
        _, alone = self.scenario.parts()[position]
        plain = chosen_system(alone, alone.job.system, None, names)
        return Choice.simulate(alone.job.system, plain, self.target)

    def alone(
        self, position: int, kinds: Sequence[Sequence[str]]
    ) -> dict[Counts, float]:
        """Return the time of a job by the machines that are its own.

        Raises the first reason where it can be on none.
        """
        times, refusals = dict[Counts, float](), list[EmulatorError]()
        for counts in list_counts(kinds):
            names = [n for kind, c in zip(kinds, counts, strict=True) for n in kind[:c]]
            try:
                one = self.on(position, names)
                if {*one.machines} <= {*names}:  # else the file states others
                    times[counts] = one.schedule.makespan / count_epochs(one)
            except EmulatorError as error:
                refusals.append(error)
        if not times and refusals:
            raise refusals[0]
        return times

    def together(self, choices: Sequence[Choice], *, apart: bool) -> Division:
        """Return all jobs at once; ``apart``: on machines that are theirs alone."""
        several = {"place_jobs": "sequential", "joint_cost": None, "placement": None}
        edit: dict[str, object] = {**several} if apart else {}
        for number, choice in enumerate(choices):
            content = choice.ready.scenario.to_json()
            for key in ("job", "placement", "weight") if apart else ("job",):
                edit[f"jobs[{number}].{key}"] = content.get(key)
        ready = prepare(load(self.scenario, edit))
        policy = ready.choose_policy()
        run = ready.realization
        times = throughput.job_times(ready.simulate(), run, policy, epoch_of)
        seconds, machines = dict[str, float](), dict[str, list[str]]()
        for one, choice in zip(times, choices, strict=True):
            seconds[one.job] = one.seconds / count_epochs(choice)
            own = {m for t, m in ready.tasks.items() if t.startswith(f"{one.job}/")}
            names = ready.scenario.stated_cluster.names
            machines[one.job] = [name for name in names if name in own]
        aim = self.aim([*seconds.values()])
        return Division(machines, seconds, aim, ready.scenario)

    def divide(self, watch: Callable[[str], None]) -> Iterator[Division]:
        """Yield the best combinations of machines, simulated together."""
        kinds, seconds = list_kinds(self.scenario.stated_cluster), []
        for position, item in enumerate(self.scenario.jobs):
            watch(f"{item.name} alone")
            seconds.append(self.alone(position, kinds))
        free = tuple(map(len, kinds))
        for combination in combine_counts(seconds, free, self.aim, _TOGETHER):
            rest, choices = [[*kind] for kind in kinds], []
            for position, counts in enumerate(combination):
                names = [rest[k].pop(0) for k, n in enumerate(counts) for _ in range(n)]
                choices.append(self.on(position, names))
            yield self.together(choices, apart=True)


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
    sums = sums or scenario.joint_cost != "max"
    divider = _Divider(load(scenario, {"expect": None}), target, sums)
    divisions = [*divider.divide(watch)]
    as_is: Division | EmulatorError
    try:  # a job may not reach the target
        parts = divider.scenario.parts()
        choices = [Choice.simulate(i.job.system, one, target) for i, one in parts]
        as_is = divider.together(choices, apart=False)
        divisions.append(as_is)
    except EmulatorError as error:
        as_is = error
    if not divisions:
        problem = "there are too few machines for all jobs, each on its own"
        raise scenario.origin.error(("cluster", "machines"), problem)
    best, *others = sorted(divisions, key=lambda one: one.aim)
    what = "in the weighted sum" if sums else "of the longest"
    unit = f"{what}, {'per epoch' if target is None else f'to {target.accuracy:g}'}"
    return JobAdvice(best, others, as_is, unit)
