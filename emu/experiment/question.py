"""One question about a job, and its answer: how long, where, and at what cost.

Every command that says how long a job takes asks `answer`: ``emu simulate``,
``explain``, ``compare``, ``sweep``, ``crossover``, ``advise``, studies and Python. Who
asks the same gets the same number; `Premises` say in what two questions differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Any

from emu.errors import EmulatorError
from emu.experiment.draw import Confirmation, Draw, time_draw
from emu.experiment.expectations import figures_of_simulation, list_misses
from emu.experiment.machine_memory import (
    check_memory,
    gpu_memory_by_machine,
    memory_by_machine,
)
from emu.experiment.premises import Premises, grid_words
from emu.experiment.row_figures import busy_of, limits_of, weights_of
from emu.experiment.row_machines import RECENT_ROWS, Machines, Row
from emu.experiment.row_work import Work, list_work
from emu.experiment.scaled_steps import Trend, find_steps
from emu.experiment.systems import Target, edits
from emu.graph_data import open_for
from emu.prediction.analysis.bounds import bounds
from emu.prediction.analysis.coflow_times import coflow_times
from emu.prediction.analysis.throughput import JobSpan, job_spans
from emu.prediction.simulation import rounding_effect
from emu.prediction.simulation.attempts import Attempts
from emu.problem import Schedule
from emu.runs.intervals import Interval, interval
from emu.runs.result import Result, port_rows
from emu.scenario import Experiment, Scenario, load, prepare
from emu.scenario.experiment import cost_of
from emu.scenario.machine_choice import machines_words
from emu.scenario.setup import setup_rows
from emu.scenario.virtual_training import Curve, seeds_seen
from emu.systems import Edit
from emu.training.looks import Look, trains_whole_graph


@dataclass(frozen=True)
class Question:
    """All that decides an answer."""

    scenario: Scenario
    """The file with its edits."""
    row: str = ""
    """Row of a table of systems (`list_variants`); empty: the file as it stands."""
    settings: Edit = field(default_factory=dict)
    """Keys in place of those of the file, such as ``job.optimizer.lr``."""
    machines: Machines | None = None
    """Machines that are held; None: those that the file states, or the fastest."""
    target: Target | None = None
    """Accuracy to train to; None: as long as the file says."""
    seeds: int = 1
    """Number of seeds: that of the scenario and those that follow it."""
    per_machine: bool = False
    """True where every mini-batch system has a worker on each machine, whatever number
    of workers the file states; seeds per step stay the same."""
    grid: Mapping[str, Sequence[object]] = field(default_factory=dict)
    """Values that were tried of keys in ``settings``, where these were chosen."""
    exact: bool = True
    """True where single values of ``expect`` hold for it: those of the file alone."""
    prepared: Experiment | None = None
    """Experiment of the first seed, where that is known: of the row, or the file."""

    @property
    def system(self) -> str:
        """Name of the row; that of the file's system where it stands as it is."""
        return self.row or self.scenario.job.system

    @property
    def curve_file(self) -> str | None:
        """File of the recorded curve that has the steps to the target."""
        if self.target is None:
            return None
        return self.scenario.curve_files.get(self.system)

    @property
    def trains_smaller(self) -> bool:
        """True where its steps to the target are followed from smaller graphs."""
        has_scales = bool(self.scenario.training_scales)
        return self.target is not None and has_scales and self.curve_file is None

    @property
    def has_steps(self) -> bool:
        """True where steps to the target are found without a training of the job."""
        return self.trains_smaller or self.curve_file is not None


@dataclass(frozen=True, eq=False)
class Answer:
    """Answer to a question: figures of the first seed, and those that seeds vary."""

    question: Question
    """As it was answered: with the machines that were chosen."""
    chosen: bool = False
    """True where the machines were chosen among several sets."""
    held: bool = False
    """True where the question gave the machines."""
    draws: Mapping[int, Draw] = field(default_factory=dict)
    """By seed; empty where it was refused."""
    plain: Scenario | None = None
    """Scenario of the row with the first seed, whatever it is trained to."""
    ready: Experiment | None = None
    schedule: Schedule | None = None
    recovery: Attempts | None = None
    """Experiment, schedule with its deaths, and what these did; of the first seed."""
    missed: tuple[str, ...] = ()
    """Lines of ``expect`` that the first seed does not meet."""
    tried: tuple[tuple[Edit, float | None], ...] = ()
    """Settings beside which these are the best, with seconds; None where refused."""
    everywhere: float | None = None
    """Seconds on all machines, mean over the seeds, where others were chosen."""
    run: Confirmation | None = None
    """The same over sockets, where that was asked for."""
    refused: EmulatorError | None = None
    """The reason why there are no figures."""

    @property
    def system(self) -> str:
        """Name of the row; that of the file's system where it stands as it is."""
        return self.question.system

    @property
    def name(self) -> str:
        """Name of its row."""
        return self.system

    def checked(self) -> Answer:
        """Return the answer itself; raises the error with which it was refused."""
        if self.refused is not None:
            raise self.refused
        return self

    def beside(self, other: Answer) -> Answer:
        """Return the answer with the seeds of another."""
        return replace(
            self,
            draws={**self.draws, **other.draws},
            missed=(*self.missed, *other.missed),
            # One seed that cannot be takes the mean from all.
            refused=self.refused or other.refused,
        )

    def warm(self) -> None:
        """Compute what takes longest to, in the process that found the answer."""
        assert self.rounding is not None  # noqa: S101

    @property
    def experiment(self) -> Experiment:
        """Experiment of the first seed; raises as `checked`."""
        self.checked()
        assert self.ready is not None  # noqa: S101 - what is not refused has one
        return self.ready

    @property
    def simulated(self) -> Schedule:
        """Schedule of the first seed, with its deaths; raises as `checked`."""
        self.checked()
        assert self.schedule is not None  # noqa: S101
        return self.schedule

    @property
    def first(self) -> tuple[Experiment, Schedule]:
        """Both; raises as `checked`."""
        return self.experiment, self.simulated

    @property
    def deaths(self) -> Attempts:
        """Attempts that deaths make of it, of the first seed; raises as `checked`."""
        self.checked()
        assert self.recovery is not None  # noqa: S101
        return self.recovery

    @property
    def scenario(self) -> Scenario:
        """Scenario of the first seed, of which ``emu simulate`` finds the same."""
        self.checked()
        # The first seed's: draws are in the order of seeds.
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
        rates = []
        for draw in self.draws.values():
            rate = draw.speed.samples_per_second
            if rate is None:  # whole graphs: all vertices in every step
                seconds = draw.speed.iteration_seconds
                rate = self.train / seconds if seconds else inf
            rates.append(rate)
        return sum(rates) / len(rates)

    @property
    def trains(self) -> bool:
        """True of one job that trains a model, in mini-batches or on whole graphs."""
        return "model" in self._settings

    @property
    def seeds_seen(self) -> int | None:
        """Training vertices that all steps see; None of a job that trains none."""
        return seeds_seen(self.experiment.problem.job)

    @property
    def rate(self) -> float | None:
        """The same for JSON: None where nothing is trained, or it takes no time."""
        rate = self.samples_per_second if self.trains else inf
        return rate if rate < inf else None

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
        return self.experiment.problem.job.settings

    @property
    def whole_graph(self) -> bool:
        """True where every step sees the whole graph: its epochs are one step each."""
        settings = self._settings
        return self.trains and trains_whole_graph(settings)

    @property
    def seeds_per_step(self) -> int | None:
        """Training vertices of a full step, of all workers; None of another job."""
        settings = self._settings
        if not self.trains:
            return None
        if trains_whole_graph(settings):
            return self.train
        # A batch is that of one worker (A5).
        return int(settings["batch_size"] * settings["workers"])

    @property
    def looks(self) -> dict[int, Look]:
        """By seed, when the target was reached."""
        looks = {seed: draw.reached for seed, draw in self.draws.items()}
        return {seed: look for seed, look in looks.items() if look}

    @property
    def trend(self) -> Trend | None:
        """Trend of steps on smaller graphs, of the first seed; None where it trains."""
        return next((draw.trend for draw in self.draws.values()), None)

    @property
    def steps(self) -> float:
        """Mean over the seeds, to the target."""
        return sum(look.step for look in self.looks.values()) / len(self.looks)

    @property
    def epochs(self) -> float:
        """Mean over the seeds, to the target: training vertices seen over all."""
        vertices = sum(look.seeds for look in self.looks.values()) / len(self.looks)
        return vertices / self.train

    @property
    def curves(self) -> dict[int, Curve]:
        """Accuracy over time until the target, by seed; all of it where refused."""
        curve = getattr(self.refused, "curve", ())
        # A target that was not reached leaves the curve that came short of it.
        if curve:
            return {self.question.scenario.seed: curve}
        return {seed: draw.curve for seed, draw in self.draws.items() if draw.curve}

    @property
    def placing(self) -> Result:
        """Method of its placement, see docs/results.md; empty where refused."""
        return {} if self.ready is None else self.ready.placing

    @property
    def machines(self) -> Machines:
        """Machines on which it has tasks; none where it was refused."""
        return tuple(self.placing.get("machines", ()))

    @cached_property
    def cost(self) -> Result | None:
        """Dollars by what they are for; None where nothing has a price."""
        cost = cost_of(self.experiment.scenario, self.simulated)
        return cost.to_json() if cost else None

    @cached_property
    def figures(self) -> dict[str, float | None]:
        """``makespan``, ``gap`` and ``bytes`` between machines, of the first seed."""
        return figures_of_simulation(self.simulated, self.experiment.realization)

    @cached_property
    def share_between(self) -> float:
        """Share of the bytes that cross between machines."""
        ready = self.experiment
        volumes = ready.realization.volumes
        crosses = [bool(hops) for hops in ready.problem.hops]
        total = volumes.sum()
        return float(volumes[crosses].sum() / total) if total else 0.0

    @cached_property
    def rounding(self) -> float:
        """Seconds by which the last digits of times and volumes move the makespan."""
        ready = self.experiment
        rule = ready.policy
        profile = ready.expected
        return rounding_effect(ready.problem, ready.realization, rule, profile=profile)

    @cached_property
    def coflows(self) -> Result | None:
        """Times of its named coflows, as `CoflowTimes.to_json`; None without any."""
        times = coflow_times(self.simulated)
        return times.to_json() if times else None

    @cached_property
    def jobs(self) -> list[JobSpan]:
        """Release and end of each of several jobs; none where there is but one."""
        run = self.experiment.realization
        return job_spans(self.simulated, run)

    @cached_property
    def limits(self) -> dict[str, float]:
        """Share of the critical path by what it is spent on, the most first."""
        return limits_of(self.experiment, self.simulated)

    @cached_property
    def work(self) -> list[Work]:
        """Counts by rates of its tasks and flows."""
        return list_work(self.experiment, self.simulated)

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
        ready = self.experiment
        return bounds(ready.problem, ready.realization).nic_load

    @cached_property
    def busiest(self) -> tuple[str, float]:
        """That link or the busiest by then, and the share of the time it was used."""
        rows = port_rows(self.simulated)
        if not rows:
            return "", 0.0
        # By use and not by bytes: a slow link is full with fewer.
        busiest = max(rows, key=lambda row: row["used"])
        return busiest["port"], busiest["used"]

    @cached_property
    def setup(self) -> Result:
        """Bytes and seconds before time 0, see docs/results.md."""
        return setup_rows(self.experiment)

    @cached_property
    def memory(self) -> dict[str, float]:
        """Bytes at most, by machine that takes part; none where nothing is trained."""
        ready = self.experiment
        if not ready.scenario.job.trains:
            return {}
        return memory_by_machine(ready, self.simulated)

    @cached_property
    def gpu_memory(self) -> dict[str, float]:
        """Likewise of their GPUs, where machines state that."""
        return gpu_memory_by_machine(self.experiment)

    @cached_property
    def busy(self) -> float | None:
        """Share of the makespan that what trains computes; None where nothing does."""
        return busy_of(self.simulated)

    @cached_property
    def weights(self) -> str:
        """Text that is equal where trained weights are; empty where none are."""
        ready = self.experiment
        return weights_of(ready.scenario) if ready.scenario.job.trains else ""

    @cached_property
    def edits(self) -> dict[str, tuple[Any, Any]]:
        """Key of the scenario -> what the file has, and what this row has."""
        scenario = self.question.scenario
        return edits(scenario, self.plain or scenario)

    @property
    def premises(self) -> Premises:
        """Premises of the answer; raises as `checked`."""
        question = self.question
        ready = self.experiment
        # Where an accuracy decided it, `scenario` has the length that this took.
        length = (ready.stated or ready.scenario).job.length
        target = question.target or ready.until
        if target:
            length = f"to accuracy={target.accuracy:g} of {target.split} vertices"
            if isinstance(target, Target) and target.counts_looks:
                length += ", looks counted"

        choice = "chosen" if self.chosen else ""
        settings = [f"{key}={value}" for key, value in question.settings.items()]
        grid = [grid_words(*item) for item in question.grid.items()]
        return Premises(
            machines=machines_words(self.placing),
            walk=self._walk,
            seeds_per_step=self.seeds_per_step,
            length=length,
            seeds=tuple(self.draws),
            choice="held" if self.held else choice,
            per_machine=question.per_machine and bool(self._walk),
            settings=", ".join(settings),
            grid="; ".join(grid),
        )

    @property
    def _walk(self) -> str:
        """Walk of its seeds, and whether that is the file's; empty without any."""
        walk = getattr(self.experiment.scenario.job, "epoch", None)
        if not (walk and self.trains):
            return ""
        file_walk = getattr(self.question.scenario.job, "epoch", None)
        if self.question.row and walk == file_walk:
            return f"as the file ({walk})"
        return str(walk)


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
    seed = question.scenario.seed
    first = _answer_first(question)
    draws = {**first.draws}
    for later in range(seed + 1, seed + question.seeds):
        # On the machines of the first seed, which its question holds by now.
        draws |= _answer_seed(first.question, later).draws
    return replace(first, draws=draws)


def _answer_first(question: Question) -> Answer:
    has_machines = question.machines is not None
    # The file as it stands is left to `prepare`, as in `emu simulate`.
    if question.row and not has_machines:
        machines = row_of(question).try_all()
        question = replace(question, machines=machines)
    first_answer = _answer_seed(question, question.scenario.seed)
    ready = first_answer.experiment
    is_among_several = question.machines is not None or ready.unchosen is not None
    # The seeds that follow hold these machines.
    if question.row and question.machines is None:
        question = replace(question, machines=tuple(ready.placing["machines"]))

    figures = figures_of_simulation(first_answer.simulated, ready.realization)
    misses = list_misses(question.scenario.expect, figures, exact=question.exact)
    return replace(
        first_answer,
        question=question,
        chosen=is_among_several and not has_machines,
        held=has_machines,
        missed=tuple(misses),
    )


def ask(what: Scenario | Experiment) -> Answer:
    """Return the answer of a scenario, prepared or not; raise why it is refused."""
    if isinstance(what, Scenario):
        question = Question(what)
    else:
        question = Question(what.scenario, prepared=what)
    return answer(question).checked()


def row_of(question: Question, seed: int | None = None) -> Row:
    """Return the row that a question asks for, with another seed if one is given."""
    settings: Edit = {**question.settings}
    # The file's own seed is no setting: the row is loaded as the file has it.
    if seed not in (None, question.scenario.seed):
        settings["seed"] = seed
    row = Row(question.scenario, question.row, settings, question.per_machine)
    if not question.row:  # nothing is translated
        return row
    return RECENT_ROWS.first_like(row)


def scenario_of(question: Question, seed: int) -> Scenario:
    """Return the scenario of a question with a seed, whatever it is trained to.

    Raises ScenarioError, PlacementError, DataError as `Row.on`.
    """
    scenario = question.scenario
    row = row_of(question, seed)
    if question.row:
        return row.on(question.machines)
    edit: Edit = {**row.settings}
    if question.machines is not None:
        edit["job.machines"] = [*question.machines]
    if not edit:
        # The very one: what is loaded anew has lost the
        # lines of its file, which errors name.
        return scenario
    return load(scenario, {**edit, "expect": None})


def _prepare(question: Question, plain: Scenario) -> Experiment:
    """Return the experiment of a question, prepared as long as it is to be simulated.

    With a target it trains first: the accuracy decides how long the job is. Where its
    steps are found elsewhere, as many as the file states show how long one takes.
    """
    if question.has_steps:
        return prepare(plain.model_copy(update={"until": None}))
    return prepare(question.target.end(plain) if question.target else plain)


def _answer_seed(question: Question, seed: int) -> Answer:
    """Return the answer of one seed, on machines that are chosen by now."""
    ready = question.prepared
    plain = question.scenario
    if ready is None or seed != plain.seed:
        plain = scenario_of(question, seed)
        ready = _prepare(question, plain)
    elif question.row:
        plain = ready.unchosen or ready.scenario
    schedule = ready.simulate()
    recovery = ready.attempts(schedule)
    # With what deaths add, as every command prints it.
    schedule = replace(schedule, outages=recovery.outages(schedule.length))
    if question.row:
        check_memory(ready, schedule)

    row = row_of(question)
    found = find_steps(
        row,
        question.target,
        plain,
        schedule.problem.job.settings,
    )
    draw = time_draw(ready, schedule, question.target, found)
    return Answer(
        question,
        draws={seed: draw},
        plain=plain,
        ready=ready,
        schedule=schedule,
        recovery=recovery,
    )
