"""One question about a job, and its answer: how long, where, and at what cost.

Every command that says how long a job takes asks `answer`: ``emu simulate``,
``explain``, ``compare``, ``sweep``, ``crossover``, ``advise``, studies and Python. Who
asks the same gets the same number; `Premises` say in what two questions differ.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.errors import EmulatorError
from emu.experiment.expectations import figures_of_simulation, list_misses
from emu.experiment.machine_memory import check_memory, memory_by_machine
from emu.experiment.systems import Target, chosen_system, edits
from emu.graph_data import open_for
from emu.names import printable
from emu.prediction.analysis.bounds import bounds
from emu.prediction.analysis.critical_path import MOVING, Cause, critical_path
from emu.prediction.analysis.throughput import Speed, pace, speed_of
from emu.problem import Schedule
from emu.problem.fields.quantities import DEFAULT_DEVICE
from emu.problem.workloads.operations import OPERATIONS
from emu.runs.intervals import Interval, interval
from emu.runs.result import Row, port_rows
from emu.scenario import Experiment, Scenario, load, prepare
from emu.scenario.experiment import cost_of, with_deaths
from emu.scenario.machine_choice import machines_words
from emu.scenario.setup import setup_rows
from emu.scenario.virtual_training import Curve, time_looks
from emu.systems import Edit
from emu.systems.system import system_of
from emu.training.kept import weight_settings
from emu.training.looks import Look, epoch_of, trains_whole_graph


def reason(error: EmulatorError) -> str:
    """Return why something was refused, in one line."""
    return printable(getattr(error, "problem", str(error)).partition("\n")[0])


@dataclass(frozen=True)
class Question:
    """All that decides an answer."""

    scenario: Scenario
    """The file with its edits."""
    row: str = ""
    """Row of a table of systems (`list_variants`); empty: the file as it stands."""
    settings: Edit = field(default_factory=dict)
    """Keys in place of those of the file, such as ``job.optimizer.lr``."""
    machines: tuple[str, ...] | None = None
    """Machines that are held; None: those that the file states, or the fastest."""
    target: Target | None = None
    """Accuracy to train to; None: as long as the file says."""
    seeds: int = 1
    """How many: that of the scenario and those that follow it."""
    per_machine: bool = False
    """True where every mini-batch system has a worker on each machine, whatever number
    of workers the file states; seeds per step stay the same."""
    grid: Mapping[str, Sequence[object]] = field(default_factory=dict)
    """Values that were tried of keys in ``settings``, where these were chosen."""


@dataclass(frozen=True)
class Premises:
    """Premises of an answer, for people: two that are equal have equal numbers."""

    row: str
    machines: str
    """Where it stands, in words."""
    held: bool
    """True where the machines were given, False where they were chosen."""
    walk: str
    """``job.epoch``; empty of whole graphs and jobs without a graph."""
    seeds_per_step: int | None
    """None of jobs that train nothing."""
    length: str
    """Iterations, epochs or target."""
    settings: tuple[str, ...]
    grid: tuple[str, ...]
    seeds: tuple[int, ...]

    def line(self) -> str:
        """Return the premises in one line."""
        return premise_line([self])


def premise_line(premises: Sequence[Premises]) -> str:
    """Return the premises of several answers in one line: what all share, in order.

    What differs is said to differ; the rows themselves show in what.
    """

    def shared(values: Sequence[str], otherwise: str) -> str:
        return values[0] if len(set(values)) == 1 else otherwise

    where = [f"{'held' if one.held else 'chosen'} {one.machines}" for one in premises]
    parts = [shared(where, "each on its own machines")]
    if any(one.held for one in premises) and len(set(where)) > 1:
        parts = ["on the machines that are shown"]
    if walks := [one.walk for one in premises if one.walk]:
        parts.append(f"walk: {shared(walks, 'each its own')}")
    if counts := [one.seeds_per_step for one in premises if one.seeds_per_step]:
        least, most = min(counts), max(counts)
        count = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        parts.append(f"{count} seeds per step")
    parts.append(shared([one.length for one in premises], "lengths differ"))
    grids = dict.fromkeys(text for one in premises for text in one.grid)
    parts += [f"tried {text}" for text in grids]
    seeds = [_words_of_seeds(one.seeds) for one in premises]
    parts.append(shared(seeds, "seeds differ"))
    return "; ".join(filter(None, parts))


def _words_of_seeds(seeds: Sequence[int]) -> str:
    first, last = seeds[0], seeds[-1]
    return f"seed {first}" if first == last else f"seeds {first} to {last}"


@dataclass(frozen=True)
class Draw:
    """Figures of one seed."""

    scenario: Scenario
    """Scenario of which ``emu simulate`` finds the same makespan."""
    makespan: float
    """Seconds, with what deaths add."""
    speed: Speed
    reached: Look | None
    """Look at which the target was reached."""
    curve: Curve
    """Accuracy over time until then."""
    missed: tuple[str, ...]
    """Lines of ``expect`` that it does not meet."""


@dataclass(frozen=True, eq=False)
class Answer:
    """Answer to a question: figures of the first seed, and those that seeds vary."""

    question: Question
    """As it was answered: with the machines that were chosen."""
    chosen: bool = False
    """True where the machines were chosen, and not given."""
    draws: Mapping[int, Draw] = field(default_factory=dict)
    """By seed; empty where it was refused."""
    plain: Scenario | None = None
    """Scenario of the row with the first seed, whatever it is trained to."""
    ready: Experiment | None = None
    schedule: Schedule | None = None
    """Experiment and schedule of the first seed, with its deaths."""
    refused: EmulatorError | None = None
    """The reason why there are no figures."""

    @property
    def row(self) -> str:
        """Name of the row; that of the file's system where it stands as it is."""
        return self.question.row or self.question.scenario.job.system

    def checked(self) -> Answer:
        """Return the answer itself; raises the error with which it was refused."""
        if self.refused is not None:
            raise self.refused
        return self

    @property
    def first(self) -> tuple[Experiment, Schedule]:
        """Experiment and schedule of the first seed; raises as `checked`."""
        self.checked()
        assert self.ready is not None  # noqa: S101 - what is not refused has both
        assert self.schedule is not None  # noqa: S101
        return self.ready, self.schedule

    @property
    def scenario(self) -> Scenario:
        """Scenario of the first seed, of which ``emu simulate`` finds the same."""
        self.checked()
        return next(iter(self.draws.values())).scenario

    @property
    def scenarios(self) -> dict[int, Scenario]:
        """The same by seed."""
        return {seed: draw.scenario for seed, draw in self.draws.items()}

    @property
    def makespans(self) -> dict[int, float]:
        """Seconds by seed."""
        return {seed: draw.makespan for seed, draw in self.draws.items()}

    @property
    def sure(self) -> Interval:
        """Mean makespan over the seeds, with its 95 % interval."""
        self.checked()
        return interval([*self.makespans.values()])

    @property
    def makespan(self) -> float:
        """Mean over the seeds, seconds; infinite where it was refused."""
        return inf if self.refused else self.sure.mean

    @property
    def samples_per_second(self) -> float:
        """Training vertices per second, mean over the seeds; infinite in no time."""
        speeds = [draw.speed for draw in self.draws.values()]
        rates = [
            self._whole_graph_rate(speed.iteration_seconds)
            if speed.samples_per_second is None
            else speed.samples_per_second
            for speed in speeds
        ]
        return sum(rates) / len(rates)

    def _whole_graph_rate(self, seconds: float) -> float:
        return self.train / seconds if seconds else inf

    @property
    def epoch_seconds(self) -> float:
        """Seconds in which as many vertices are seen as the training set has."""
        return self.train / self.samples_per_second

    @property
    def iteration_seconds(self) -> float:
        """Mean time between the ends of iterations, over the seeds."""
        self.checked()
        times = [draw.speed.iteration_seconds for draw in self.draws.values()]
        return sum(times) / len(times)

    @cached_property
    def train(self) -> int:
        """Training vertices."""
        return open_for(self._settings).train_count

    @property
    def _settings(self) -> Mapping[str, Any]:
        ready, _ = self.first
        return ready.problem.job.settings

    @property
    def whole_graph(self) -> bool:
        """True where every step sees the whole graph: its epochs are one step each."""
        settings = self._settings
        return "model" in settings and trains_whole_graph(settings)

    @property
    def seeds_per_step(self) -> int | None:
        """Training vertices of a full step, of all workers; None of another job."""
        settings = self._settings
        if "model" not in settings:
            return None
        if trains_whole_graph(settings):
            return self.train
        return int(settings["batch_size"] * settings["workers"])

    @property
    def looks(self) -> dict[int, Look]:
        """By seed, when the target was reached."""
        return {n: one.reached for n, one in self.draws.items() if one.reached}

    @property
    def steps(self) -> float:
        """Mean over the seeds, to the target."""
        return sum(look.step for look in self.looks.values()) / len(self.looks)

    @property
    def epochs(self) -> float:
        """Mean over the seeds, to the target: training vertices seen over all."""
        seen = sum(look.seeds for look in self.looks.values()) / len(self.looks)
        return seen / self.train

    @property
    def curves(self) -> dict[int, Curve]:
        """Accuracy over time until the target, by seed; all of it where refused."""
        if curve := getattr(self.refused, "curve", ()):
            return {self.question.scenario.seed: curve}
        return {n: one.curve for n, one in self.draws.items() if one.curve}

    @property
    def missed(self) -> tuple[str, ...]:
        """Lines of ``expect`` that a seed does not meet."""
        lines = (line for draw in self.draws.values() for line in draw.missed)
        return (*dict.fromkeys(lines),)

    @property
    def placing(self) -> Row:
        """Method of its placement, see docs/results.md; empty where refused."""
        return {} if self.ready is None else self.ready.placing

    @property
    def machines(self) -> tuple[str, ...]:
        """Machines on which it has tasks; none where it was refused."""
        return tuple(self.placing.get("machines", ()))

    @cached_property
    def cost(self) -> Row | None:
        """Dollars by what they are for; None where nothing has a price."""
        ready, schedule = self.first
        cost = cost_of(ready.scenario, schedule)
        return cost.to_json() if cost else None

    @cached_property
    def figures(self) -> dict[str, float | None]:
        """``makespan``, ``gap`` and ``bytes`` between machines, of the first seed."""
        ready, schedule = self.first
        return figures_of_simulation(schedule, ready.realization)

    @cached_property
    def limits(self) -> dict[str, float]:
        """Share of the critical path by what it is spent on, the most first."""
        return limits_of(*self.first)

    @property
    def limit(self) -> str:
        """Cause of most of the critical path, with its share."""
        lines = (f"{cause} {share:.0%}" for cause, share in self.limits.items())
        return next(lines, "nothing")

    @cached_property
    def busiest_link(self) -> float:
        """Seconds that the bytes of the busiest link take at its capacity.

        The makespan by first principles where the network is the limit.
        """
        ready, _ = self.first
        return bounds(ready.problem, ready.realization).nic_load

    @cached_property
    def busiest(self) -> tuple[str, float]:
        """That link or the busiest by then, and the share of the time it was used."""
        _, schedule = self.first
        row = max(port_rows(schedule), key=lambda row: row["used"], default=None)
        return (row["port"], row["used"]) if row else ("", 0.0)

    @cached_property
    def setup(self) -> Row:
        """Bytes and seconds before time 0, see docs/results.md."""
        ready, _ = self.first
        return setup_rows(ready)

    @cached_property
    def memory(self) -> dict[str, float]:
        """Bytes at most, by machine that takes part; none where nothing is trained."""
        ready, schedule = self.first
        if not ready.scenario.job.trains:
            return {}
        return memory_by_machine(ready, schedule)

    @cached_property
    def busy(self) -> float | None:
        """Share of the makespan that what trains computes; None where nothing does."""
        _, schedule = self.first
        return busy_of(schedule)

    @cached_property
    def weights(self) -> str:
        """Text that is equal where trained weights are; empty where none are."""
        ready, _ = self.first
        return weights_of(ready.scenario) if ready.scenario.job.trains else ""

    @cached_property
    def edits(self) -> dict[str, tuple[Any, Any]]:
        """Key of the scenario -> what the file has, and what this row has."""
        return edits(self.question.scenario, self.plain or self.question.scenario)

    @property
    def premises(self) -> Premises:
        """Premises of the answer; raises as `checked`."""
        question = self.question
        job = self.scenario.job
        walk = "" if self.seeds_per_step is None else getattr(job, "epoch", "") or ""
        target = question.target
        trained = f"to accuracy={target.accuracy:g}" if target else job.length
        settings = [f"{key}={value}" for key, value in question.settings.items()]
        grid = [
            f"{key.removeprefix('job.')} {', '.join(map(str, values))}"
            for key, values in question.grid.items()
        ]
        return Premises(
            row=question.row,
            machines=machines_words(self.placing),
            held=not self.chosen,
            walk=walk,
            seeds_per_step=self.seeds_per_step,
            length=trained,
            settings=tuple(settings),
            grid=tuple(grid),
            seeds=tuple(self.draws),
        )


def answer(question: Question) -> Answer:
    """Return the answer to a question; one that cannot be has ``refused``.

    A row of a table of systems holds the machines that the first seed has chosen for
    those that follow, and is refused as well where machines state too little memory;
    the file as it stands chooses with every seed, as ``emu simulate`` does.
    """
    try:
        return _answer(question)
    except EmulatorError as error:
        return Answer(question, refused=error)


def _answer(question: Question) -> Answer:
    chosen = question.machines is None
    first_seed = question.scenario.seed
    draws: dict[int, Draw] = {}
    first: Answer | None = None
    for seed in range(first_seed, first_seed + question.seeds):
        plain = scenario_of(question, seed)
        scenario = question.target.end(plain) if question.target else plain
        ready = prepare(scenario)
        schedule = with_deaths(ready, ready.simulate())
        if question.row:
            check_memory(ready, schedule)
            names = question.machines or tuple(ready.placing["machines"])
            question = replace(question, machines=names)

        draws[seed] = _draw(question, scenario, ready, schedule)
        if first is None:
            first = Answer(question, chosen, draws, plain, ready, schedule)
    if first is None:
        raise ValueError("a question of no seed")
    return replace(first, question=question, draws=draws)


def scenario_of(question: Question, seed: int) -> Scenario:
    """Return the scenario of a question with a seed, whatever it is trained to.

    Raises ScenarioError, PlacementError, DataError as `chosen_system`.
    """
    scenario = question.scenario
    edit: dict[str, object] = {**question.settings}
    if seed != scenario.seed:
        edit["seed"] = seed
    if question.row:
        names = question.machines
        spread = question.per_machine
        return chosen_system(scenario, question.row, edit, names, spread=spread)
    if question.machines is not None:
        edit["job.machines"] = [*question.machines]
    return load(scenario, {**edit, "expect": None}) if edit else scenario


def _draw(
    question: Question, scenario: Scenario, ready: Experiment, schedule: Schedule
) -> Draw:
    expect = question.scenario.expect
    figures = figures_of_simulation(schedule, ready.realization)
    own_row = question.row in ("", question.scenario.job.system)
    exact = own_row and not question.settings
    job = schedule.problem.job
    epoch = epoch_of(job.settings)
    speed = speed_of(job, schedule.task_end, schedule.length, epoch)
    curve = time_looks(ready.looks, ready.scenario, schedule) if ready.looks else ()
    return Draw(
        scenario=scenario,
        makespan=schedule.makespan,
        speed=speed,
        reached=ready.reached,
        curve=curve,
        missed=tuple(list_misses(expect, figures, exact=exact)),
    )


def busy_of(schedule: Schedule) -> float | None:
    """Return the share of the makespan that processes which train compute, the mean.

    Where no task is called so, as of Dorylus, of machines: when one of its layers does.
    """
    problem, system = schedule.problem, system_of(schedule.problem.job.settings)
    if (busy := pace(schedule, None).busy) is not None or system is None:
        return busy
    spans = defaultdict[int, list[NDArray[np.float64]]](list)
    for number, task in enumerate(problem.job.tasks):
        if "layer" in task.settings and task.kind not in system.parameter_kinds:
            both = schedule.task_start[number], schedule.task_end[number]
            spans[problem.placement.machine_of[number]].append(np.stack(both))
    total = 0.0
    for parts in spans.values():
        starts, ends = np.concatenate(parts, axis=1)
        order = np.argsort(starts)
        until = np.maximum.accumulate(ends[order])
        before = np.concatenate([[0.0], until[:-1]])
        total += float(np.nansum(until - np.maximum(starts[order], before)))
    return total / len(spans) / schedule.length if spans and schedule.length else None


def weights_of(scenario: Scenario) -> str:
    """Return what decides the weights of a training, but its length, as text."""
    settings = scenario.to_job(train_vertices=1, pins=False).settings
    causes: dict[str, Any] = weight_settings(settings, opens=False)
    if (system := system_of(settings)) is not None:
        causes["missed"] = system.updates_missed(settings)
        if system.asynchronous(settings):  # by what was read when
            causes["job"] = scenario.job.model_dump(mode="json")
    return json.dumps(causes, sort_keys=True, default=str)


def limits_of(experiment: Experiment, schedule: Schedule) -> dict[str, float]:
    """Return what the critical path is spent on, as shares of it, the most first.

    A ``link``, the ``latency`` of messages, a ``slot`` that others held, a ``rate`` of
    operations; where times are stated the ``path`` of tasks on a machine.
    """
    problem, shares = schedule.problem, defaultdict[str, float](float)
    job, machine_of = problem.job, problem.placement.machine_of
    section, counts = experiment.scenario.job, None
    if (rates := section.operation_rates) is not None:
        context = experiment.scenario.build_context()
        volumes = experiment.realization.volumes * context.byte_scale
        counts = section.count_operations(job, context, volumes).counts
    for link in critical_path(schedule).links:
        long = float(link.end - link.start) / (schedule.length or 1.0)
        if link.cause in MOVING or link.task < 0:  # it moves bytes
            name = f"link {problem.links[link.port].name}" if link.port >= 0 else "gap"
            shares["latency" if link.cause is Cause.LATENCY else name] += long
            continue
        name = problem.cluster.machines[machine_of[link.task]].name
        if link.cause in (Cause.SLOT, Cause.CREDIT):
            shares[f"slot {name}"] += long
        elif rates is None or counts is None:
            shares[f"path {name}"] += long
        else:
            device = experiment.scenario.cluster.by_name[name].device
            of_device = rates.on(device or DEFAULT_DEVICE)
            each = counts[:, link.task, link.iteration]
            seconds = each * [of_device[operation] for operation in OPERATIONS]
            for operation, part in zip(OPERATIONS, seconds.tolist(), strict=True):
                shares[f"rate {operation}"] += long * part / (seconds.sum() or 1.0)
    names = sorted(shares, key=lambda name: -shares[name])
    return {name: shares[name] for name in names if shares[name] > 0}
