"""The record by which a system offers everything that others need of it.

Importing a record imports neither pydantic nor torch: agents read its programs at their
start. What takes longer to import is behind `on_demand` or `calling`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from emu.array_types import Array
from emu.errors import EmulatorError, ScenarioError
from emu.host.foreign_code import describe_point
from emu.names import printable
from emu.problem import Job, Schedule
from emu.problem.workloads import CHECKPOINT, parameter_count
from emu.systems import Floats, JobSettings
from emu.systems.setup import WEIGHTS, Transfer

if TYPE_CHECKING:
    from emu.systems.job_section import BuildContext, JobSection
    from emu.systems.translation import Translation
    from emu.trust.guards import Evidence
    from emu.trust.violation import Finding

    Seconds = Floats
    #: Kinds of the source and of the destination of a flow.
    Kinds = tuple[str, str]
    #: Schedules of a job, by how they came about.
    Schedules = Mapping[str, Schedule]
    Guard = Callable[[Evidence], Iterable[Finding]]
    #: Task -> name -> what its program left at the end of the run.
    Results = Mapping[str, Mapping[str, Array]]
    #: Called after a step with its number and the parameters; True ends the training.
    Watch = Callable[[int, Array], Any]
    #: ``Job.settings``, steps, updates missed, and what is called after each step ->
    #: parameters and losses, as `emu.training.reference_training`.
    Trainer = Callable[..., tuple[Array, list[float]]]
    #: Section, context and schedule of a job, and what is called after each step ->
    #: parameters and losses, as `Trainer` returns them.
    Follower = Callable[
        [JobSection, BuildContext, Schedule, Watch],
        tuple[Array, list[float]],
    ]
    #: Name of a task -> the tasks with whose state it begins after a cut.
    Holders = Mapping[str, tuple[str, ...]]
    #: Name of a task -> lengths of the vectors of parameters that it steps.
    Lengths = Mapping[str, tuple[int, ...]]

#: What torch imports where a gradient is handed to ``backward`` or ``grad``: 486
#: modules in 0.33 s of CPU, in every process and within its first step.
GRADIENT_MODULES = ("torch.fx.experimental.symbolic_shapes",)
#: Fields of `System` that are mappings: others would be asked for keys, and have none.
_MAPPINGS = ("programs", "carries", "variants", "knobs")
#: Entry points of this group are `System` records.
GROUP = "emu.systems"


def on_demand(path: str) -> Callable[[], Any]:
    """Return a function that imports and returns ``module:name``."""
    return partial(resolve_name, path)


def calling(path: str) -> Callable[..., Any]:
    """Return a function that imports ``module:name`` and calls it."""

    def call(*values: Any) -> Any:
        function = resolve_name(path)
        return function(*values)

    return call


#: Training of systems whose weights are those of one device with all data, but for
#: updates missed: gradients of mini-batches averaged, or of the whole graph.
AS_ONE_DEVICE = calling("emu.training:reference_training")


def initial_weights(job: Job) -> Iterator[Transfer]:
    """Yield the weights that tasks begin with, after a cut too, from who holds them.

    Raises DataError when the data set is missing or damaged.
    """
    beginnings = tasks_with_state_of(job)
    if not beginnings:
        return
    sizes = parameter_bytes(job)
    for name, holders in beginnings.items():
        for holder in holders:
            if holder != name:
                yield Transfer(WEIGHTS, holder, name, sizes[holder])


def parameter_bytes(job: Job) -> dict[str, int]:
    """Return the real bytes of parameters by task that steps some, else DataError."""
    settings = job.settings
    precision = np.dtype(settings["precision"])
    vectors = _system(settings).vectors(job)
    sizes = {}
    for name, lengths in vectors.items():
        sizes[name] = precision.itemsize * sum(lengths)
    return sizes


def count_model(job: Job) -> int:
    """Return the parameters of a job's model, whose data set it opens."""
    from emu.graph_data import open_for  # noqa: PLC0415 - numpy

    dataset = open_for(job.settings)
    model = job.settings["model"]
    return parameter_count(model, dataset.feature_length, dataset.classes)


def first_tasks(job: Job, kinds: Iterable[str]) -> list[str]:
    """Return the tasks of the first of these kinds that a job has, rank by rank."""
    for kind in kinds:
        names = [task.name for task in job.tasks if task.kind == kind]
        if names:
            return names
    return []


def equal_states(*kinds: str) -> dict[str, Any]:
    """Return fields of a `System` whose parts all have all parameters alike.

    The `first_tasks` keep them; that of rank 0 makes a cut for all.
    """

    def cut(job: Job) -> Holders:
        names = first_tasks(job, kinds)
        return dict.fromkeys(names, (names[0],))

    def measure_vectors(job: Job) -> Lengths:
        first, *_ = first_tasks(job, kinds)
        return {first: (count_model(job),)}

    def find_trained(job: Job, results: Results) -> Array:
        first, *_ = first_tasks(job, kinds)
        return results[first]["parameters"]

    return {"cuts": cut, "vectors": measure_vectors, "trained": find_trained}


def _trains_nothing(*_: object) -> NoReturn:
    raise TypeError("this system trains nothing")


def _pays_no_functions(_: Schedule) -> tuple[Seconds, Seconds]:
    none = np.zeros(0)
    return none, none


@dataclass(frozen=True)
class Variant:
    """One way to run a system, a row of a table of systems."""

    system: str
    edit: Mapping[str, object] = field(default_factory=dict)
    """Keys of it, whatever the file has."""
    alone: bool = False
    """True where it is one machine, the one on which it is fastest."""


@dataclass(frozen=True)
class System:
    """One system: its keys, its programs and its guards."""

    name: str
    """The word in ``job.system``."""
    section: Callable[[], type[JobSection]]
    """Imports and returns the keys of ``job``, which build and realize the job."""
    programs: Mapping[str, str] = field(default_factory=dict)
    """Kind of task -> import path ``module:Class`` of what a node process runs: agents
    start no other programs."""
    needs_torch: bool = False
    """True where its programs need torch."""
    late_modules: tuple[str, ...] = ()
    """Modules that its programs import as they compute: a host that has them imports
    them once, before it forks processes."""
    guards: tuple[Guard, ...] = ()
    """Guards against what its runs must not show, beside those of every run."""
    open_data: Callable[[JobSettings], None] = lambda _: None
    """Opens, by ``Job.settings``, the data that processes will open: what is missing or
    damaged is an error before they start."""
    trained: Callable[[Job, Results], Array] = _trains_nothing
    """Returns all parameters after a run, flat, in the order of
    `emu.training.parameter_shapes`."""
    updates_missed: Callable[[JobSettings], int] = lambda _: 0
    """Returns, from ``Job.settings``, how many updates the weights of a forward pass
    lack."""
    asynchronous: Callable[[JobSettings], bool] = lambda _: False
    """Returns, from ``Job.settings``, True where weights depend on which values were
    read when: no training in one process repeats it without the log of reads."""
    trainer: Trainer | None = None
    """Trains in one process, unless `asynchronous`: `AS_ONE_DEVICE`, or a function of
    its arguments and values. None: the system does not say how it trains, and is
    refused where an accuracy is asked."""
    follow: Follower = _trains_nothing
    """Trains an asynchronous job in one process with the reads of a schedule: returns
    all parameters, and the loss of every step. Calls its last argument after each with
    its number and the parameters, and ends where that returns True."""
    step_kinds: tuple[str, ...] = ()
    """Kinds of task of which the first that a job has ends every training step; empty
    where steps overlap, or nothing is trained."""
    parameter_kinds: tuple[str, ...] = ()
    """Kinds of task of parameter servers: the cost of their machines is shown apart."""
    functions: Callable[[Schedule], tuple[Seconds, Seconds]] = _pays_no_functions
    """Returns the seconds that every function (a lambda) of a schedule is paid for: of
    those that answered, and of those that did not."""
    cuts: Callable[[Job], Holders] | None = None
    """Returns, by name of every task that keeps state (`emu_nodes.program.KeepsState`),
    the tasks with whose state it begins after a cut; None where it takes none."""
    vectors: Callable[[Job], Lengths] = lambda _: {}
    """Returns, by name of every task whose state makes a cut, the lengths of the
    vectors of parameters that it steps."""
    setup: Callable[[Job], Iterable[Transfer]] = initial_weights
    """Returns what a job sends before time 0; where it trains, this opens data."""
    fills: Callable[[Job], Iterable[Transfer]] = lambda _: ()
    """Returns rows that caches begin with, which are sent before time 0 as well."""
    carries: Mapping[Kinds, str] = field(default_factory=dict)
    """(Kind of the source, kind of the destination) -> content of such flows, a plural
    for tables and sentences."""
    remarks: Callable[[Schedules, str], Iterable[str]] = lambda *_: ()
    """Returns lines on schedules of a job, by how they came about (``simulated``,
    ``emulated``), and on its rate policy, in the words of the system."""
    figures: Callable[[Schedule], Mapping[str, Any]] = lambda _: {}
    """Returns what result.json has of a schedule that only this system knows."""
    outlook: Callable[[JobSettings], Iterable[str]] = lambda _: ()
    """Returns, from ``Job.settings``, lines that are worth reading before a run."""
    variants: Mapping[str, Variant] = field(default_factory=dict)
    """Rows of a table of all systems, by name; none: one row, the system as it is."""
    knobs: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    """Keys of ``job`` with values that `emu advise` tries: they change its speed, and
    neither its seeds per step nor how stale its weights are. One after the other in
    this order: a key beside which another counts for nothing comes behind that."""
    translation: Callable[[], Translation] | None = None
    """Imports and returns how its jobs are written in the words of all systems, for
    ``emu compare --systems``."""

    def __post_init__(self) -> None:
        """Raise TypeError where a field is no mapping, or has entries of no use."""
        for name in _MAPPINGS:
            value = getattr(self, name)
            if not isinstance(value, Mapping):
                found = type(value).__name__
                raise TypeError(f"System.{name} is no mapping but a {found}")
        _check_entries(self)


def _check_entries(system: System) -> None:
    """Raise TypeError where a key or value is of another type than those of its field.

    Nobody would look it up, without a word.
    """
    carries: Mapping[Any, Any] = system.carries
    for kinds, content in carries.items():
        match kinds, content:
            case (str(), str()), str():
                pass
            case _:
                found = f"{kinds!r}: {content!r}"
                remedy = "(kind of source, kind of destination): words"
                raise TypeError(f"System.carries has {found}, write {remedy}")

    programs: Mapping[Any, Any] = system.programs
    for kind, program in programs.items():
        match kind, program:
            case str(), str() if ":" in program:
                pass
            case _:
                found = f"{kind!r}: {program!r}"
                remedy = "kind of task: 'module:Class'"
                raise TypeError(f"System.programs has {found}, write {remedy}")


@cache
def systems() -> Mapping[str, System]:
    """Return the installed systems by name, in the order of their names.

    Raises EmulatorError, with the package that brings it, when an entry point cannot be
    imported, is no `System`, or two have one name.
    """
    by_name: dict[str, System] = {}
    labels: dict[str, str] = {}
    # Sorted: installed packages come in no order that lasts.
    points = sorted(entry_points(group=GROUP))
    for point in points:
        label = describe_point(point)
        try:
            system = point.load()
        except (Exception, SystemExit) as error:  # of another package: anything
            text = _describe(error)
            raise EmulatorError(f"{label}: cannot be imported: {text}") from error
        is_named = isinstance(system, System) and system.name == point.name
        if not is_named:
            raise EmulatorError(f"{label}: is no System called {point.name!r}")
        if system.name in by_name:
            raise EmulatorError(f"{label}: has the name of {labels[system.name]}")
        by_name[system.name] = system
        labels[system.name] = label

    if not by_name:
        raise EmulatorError(
            f"no entry points of group {GROUP}: install emu again (pip install -e .)"
        )
    return by_name


@cache
def section_types() -> tuple[type[JobSection], ...]:
    """Return the ``job`` sections of all systems.

    Raises EmulatorError, with the package that brings it, when one cannot be imported.
    """
    return tuple(map(section_type, systems()))


@cache
def section_type(name: str) -> type[JobSection]:
    """Return a system's ``job`` section, imported now; raise as `section_types`."""
    # It imports pydantic, which a record does not.
    from emu.systems.section_faults import section_problem  # noqa: PLC0415

    system = systems()[name]
    try:
        section: type[JobSection] = system.section()
        fault = section_problem(section, name)
    except (Exception, SystemExit) as error:  # of another package: anything
        problem = f"cannot be imported: {_describe(error)}"
        raise EmulatorError(_blame_package(name, problem)) from error
    if fault:
        raise EmulatorError(_blame_package(name, fault))
    return section


def _blame_package(name: str, problem: str) -> str:
    """Return what is wrong with the section of a system, with who brings it."""
    (point,) = entry_points(group=GROUP, name=name)
    return f"{describe_point(point)}: its section {problem}"


def _describe(error: BaseException) -> str:
    return printable(f"{type(error).__name__}: {error}", limit=300)


def system_guards() -> list[Guard]:
    """Return the guards of all systems; each looks at the tasks of its own kinds."""
    guards: list[Guard] = []
    for system in systems().values():
        guards.extend(system.guards)
    return guards


def system_of(settings: JobSettings) -> System | None:
    """Return the system that built a job, from ``Job.settings``; None without one."""
    name = str(settings.get("system"))
    return systems().get(name)


def _system(settings: JobSettings) -> System:
    """Return the system that built a job, or one that says nothing of any."""
    # Its defaults answer every question with nothing: callers need no branch.
    return system_of(settings) or System("", _trains_nothing)


def trainer_of(settings: JobSettings) -> Trainer:
    """Return what trains a job of ``Job.settings`` in one process.

    Raises ScenarioError where its system does not say how it trains.
    """
    system = _system(settings)
    if system.trainer is None:
        problem = (
            f"{system.name} does not say how it trains, so that it has no accuracy: "
            "its package has to state exchanges, or System.trainer"
        )
        raise ScenarioError(problem, key="job.system")
    return system.trainer


def tasks_with_state_of(job: Job) -> Holders:
    """Return `System.cuts` of a job, nothing where it takes none."""
    cuts = _system(job.settings).cuts
    if cuts is None:
        return {}
    return cuts(job)


def updates_missed(job: Job) -> int:
    """Return how many updates weights lack; see `System.updates_missed`."""
    settings = job.settings
    return _system(settings).updates_missed(settings)


def state_bytes(job: Job) -> dict[str, Floats]:
    """Return the real bytes of what every task of a cut has before each iteration.

    Of every vector: parameters, two moments with Adam, the number of steps, and
    gradients under way (`emu.training.optimizers`). Raises DataError as `vectors`.
    """
    settings = job.settings
    system = system_of(settings)
    if system is None:
        return {}

    optimizer = settings["optimizer"]["name"]
    arrays = 3.0 if optimizer == "adam" else 1.0
    staleness = system.updates_missed(settings)
    # Before the first update there are none under way, then as many as it misses.
    iterations = np.arange(job.iterations)
    under_way = np.minimum(iterations, staleness)
    precision = np.dtype(settings["precision"])
    parameter_size = (arrays + under_way) * precision.itemsize

    sizes = {}
    for name, lengths in system.vectors(job).items():
        counters = 8 * len(lengths)  # each vector's number of steps is an int64
        sizes[name] = sum(lengths) * parameter_size + counters
    return sizes


def list_transfers(job: Job) -> list[Transfer]:
    """Return what a job sends before time 0; see `System.setup` and `System.fills`."""
    system = _system(job.settings)
    return [*system.setup(job), *system.fills(job)]


def list_unfilled(job: Job) -> list[Transfer]:
    """Return the same without what fills caches, which takes longest to find."""
    system = _system(job.settings)
    return list(system.setup(job))


def remarks_on(schedules: Schedules, policy: str) -> list[str]:
    """Return the remarks of a job's system on its schedules; see `System.remarks`."""
    # All are of one job.
    some_schedule = next(iter(schedules.values()))
    job = some_schedule.problem.job
    system = _system(job.settings)
    return list(system.remarks(schedules, policy))


def figures_on(schedule: Schedule) -> dict[str, Any]:
    """Return what only a job's system knows of its schedule; see `System.figures`."""
    job = schedule.problem.job
    system = _system(job.settings)
    return dict(system.figures(schedule))


def outlook_on(settings: JobSettings) -> list[str]:
    """Return the lines of a job's system before a run; see `System.outlook`."""
    system = _system(settings)
    return list(system.outlook(settings))


def content_of(name: str, kinds: Kinds) -> str:
    """Return the content of flows, a plural; system ``name`` is asked first."""
    source_kind, destination_kind = kinds
    if destination_kind == CHECKPOINT:
        return "checkpoints"
    # Kinds of task are shared: two systems may call the same flow otherwise.
    in_order = list(systems().values())
    in_order.sort(key=lambda system: system.name != name)
    for system in in_order:
        if kinds in system.carries:
            return system.carries[kinds]
    return f"bytes of {source_kind} -> {destination_kind}"
