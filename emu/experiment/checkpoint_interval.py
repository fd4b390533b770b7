"""Iterations between two checkpoints: Young's and Daly's, and the best by simulation.

Machines die independently, and any death stops the job. A checkpoint costs
``checkpoint.takes``, and on a peer what flows delay the job, by simulation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import cast

import numpy as np

from emu.array_types import Floats
from emu.errors import NodeLost
from emu.prediction.simulation.attempts import attempts
from emu.problem import Kill, Schedule
from emu.problem.workloads import copies_of
from emu.runs.result import Result
from emu.scenario import Experiment, Scenario, prepare
from emu.scenario.events_section import CheckpointSection
from emu.units import format_duration, format_size

#: Jobs whose deaths are drawn, the same for every interval.
_DRAWS = 64
#: Intervals beside the stated one, as shares of Daly's.
_SHARES = np.geomspace(0.25, 4.0, 9)
#: Restarts beyond which an interval is no choice: the job makes no progress.
_RESTARTS = 1000


@dataclass(frozen=True)
class Intervals:
    """Intervals of checkpoints, in iterations."""

    young: float
    daly: float
    best: int
    """The one with the shortest mean makespan of those that were simulated."""
    means: dict[int, float]
    """Mean makespan by interval, infinite without progress."""
    between: float
    """Seconds between two deaths of any machine with tasks, on average."""
    iteration: float
    """Seconds of an iteration without checkpoints."""
    takes: float
    """Seconds that the stated ones delay the job, each: simulated with copies."""
    stated: int

    def to_json(self) -> Result:
        """Return ``checkpoints`` of an explanation."""
        means = {}
        for interval, mean in self.means.items():
            means[str(interval)] = mean if mean < math.inf else None
        return {**vars(self), "means": means}

    def line(self) -> str:
        """Return the intervals in a sentence, beside the one that is stated."""
        best = format_duration(self.means[self.best])
        mean = self.means[self.stated]
        length = format_duration(mean) if mean < math.inf else "no end"
        cost = format_duration(self.takes)
        rate = format_duration(self.between)
        return (
            f"a checkpoint every {self.best} iterations would be best: {best} over "
            f"{_DRAWS} draws, {length} with every {self.stated}; Young "
            f"{self.young:.3g}, Daly {self.daly:.3g} with a death each {rate} and "
            f"{cost} a checkpoint"
        )


def young_daly(takes: float, between: float) -> tuple[float, float]:
    """Return Young's (1974) and Daly's (2006) seconds of work between checkpoints.

    ``takes``, ``between``: seconds of a checkpoint, and between two deaths of the job.
    """
    young = math.sqrt(2.0 * takes * between)
    # Daly expands in a checkpoint over the time between deaths: beyond twice that he
    # takes this time itself.
    if takes >= 2.0 * between:
        return young, between
    share = takes / (2.0 * between)
    correction = 1.0 + math.sqrt(share) / 3.0 + share / 9.0
    return young, young * correction - takes


def intervals(experiment: Experiment) -> Intervals | None:
    """Return the intervals of a scenario; None where it states no rate or no cost."""
    scenario = experiment.scenario
    section = scenario.checkpoint
    failures = scenario.failures
    if section is None or failures is None or not failures.mortal:
        return None
    if not section.takes and section.to == "disk":
        return None

    count = experiment.problem.job.iterations
    # Rates of independent deaths add up.
    machines = _list_machines(experiment)
    between = failures.mortal / len(machines)
    # An interval as long as the job: no checkpoint comes before its end.
    without_cuts = _with_interval(experiment, count)
    free = without_cuts.simulate().makespan / count
    takes = section.takes or 0.0
    # Copies take no time of their own: what they cost is how they delay the job.
    if section.to == "peer":
        simulation = experiment.simulate()
        longer = simulation.makespan - free * count
        checkpoints, _ = _count_copies(experiment)
        takes = max(longer, 0.0) / max(checkpoints, 1)

    young, daly = young_daly(takes, between)
    tries = {section.every}
    for share in _SHARES:
        interval = round(daly * share / free)
        interval = max(interval, 1)
        tries.add(min(interval, count))
    # The same deaths for all intervals: how these differ is no chance then.
    rng = np.random.default_rng([scenario.seed, *b"checkpoints"])
    gaps = rng.exponential(between, (_DRAWS, _RESTARTS))
    means = {}
    for interval in sorted(tries):
        means[interval] = _mean(experiment, interval, gaps)
    return Intervals(
        young=young / free,
        daly=daly / free,
        best=min(means, key=means.__getitem__),
        means=means,
        between=between,
        iteration=free,
        takes=takes,
        stated=section.every,
    )


def _list_machines(experiment: Experiment) -> set[str]:
    """Return the machines on which there is a process: the job dies with any."""
    job = experiment.problem.job
    machines: set[str] = set()
    for tasks in job.processes.values():
        names = [job.tasks[number].name for number in tasks]
        machines.update(experiment.tasks[name] for name in names)
    return machines


def _count_copies(experiment: Experiment) -> tuple[int, float]:
    """Return the number of checkpoints that go to peers, and the bytes of all."""
    job = experiment.problem.job
    copies = {*copies_of(job).values()}
    edges = []
    for number, edge in enumerate(job.edges):
        if edge.destination in copies:
            edges.append(number)

    volumes = experiment.realization.volumes[edges]
    is_sent = (volumes > 0).any(axis=0)
    cuts = int(is_sent.sum())
    size = float(volumes.sum())
    return cuts, size


def copies_line(experiment: Experiment, makespan: float) -> list[str]:
    """Return a line on what checkpoints to peers cost; none without any.

    ``makespan`` is as simulated, without deaths.
    """
    cuts, size = _count_copies(experiment)
    if not cuts:
        return []
    count = experiment.problem.job.iterations
    without_cuts = _with_interval(experiment, count)
    free = without_cuts.simulate().makespan
    mean_size = format_size(size / cuts)
    longer = format_duration(makespan - free)
    percent = 100 * (makespan / free - 1)
    share = f"{percent:.3g} %"

    return [
        f"{cuts} checkpoints to peers of {mean_size}: {longer}, {share}, beside none"
    ]


def not_sought(scenario: Scenario) -> list[str]:
    """Return a line on intervals that a missing cost left out; none else."""
    section = scenario.checkpoint
    failures = scenario.failures
    if section is None or failures is None or not failures.mortal:
        return []
    if section.takes or section.to == "peer":
        return []
    return ["no best interval of checkpoints: state checkpoint.takes, above 0 s"]


def _with_interval(experiment: Experiment, interval: int) -> Experiment:
    """Return the experiment with another interval of checkpoints, placed alike."""
    scenario = experiment.scenario
    section = cast("CheckpointSection", scenario.checkpoint)
    stands = {"policy": "explicit", "tasks": experiment.tasks}
    checkpoint = section.model_copy(update={"every": interval})
    placement = scenario.placement.model_copy(update=stands)
    changes = {
        "checkpoint": checkpoint,
        "placement": placement,
        # Deaths are drawn here, the same for every interval.
        "failures": None,
    }
    variant = scenario.model_copy(update=changes)
    return prepare(variant)


def _mean(experiment: Experiment, interval: int, gaps: Floats) -> float:
    """Return the mean makespan over draws of the seconds from death to death."""
    variant = _with_interval(experiment, interval)
    rules = replace(variant.rules, restarts=_RESTARTS)

    # Many draws go on from the same cuts, and a part takes a simulation.
    @cache
    def part(first: int) -> Schedule:
        return variant.beginning_at(first).simulate()

    whole = part(0)
    ends = np.nan_to_num(whole.task_end).max(axis=1)
    last = int(ends.argmax())  # what has ended cannot die
    last_task = variant.problem.job.tasks[last]
    process = last_task.process_name
    lengths = []
    for gap in gaps:
        deaths = np.cumsum(gap).tolist()
        kills = [Kill(death, "a machine", (process,)) for death in deaths]
        try:
            run = attempts(lambda first, _: part(first), kills, rules)
        except NodeLost:
            return math.inf
        lengths.append(run.makespan)
    return math.fsum(lengths) / len(lengths)
