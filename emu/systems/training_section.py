"""Keys of ``job`` that every system has which trains on sampled mini-batches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self, TypeAlias

import numpy as np
from pydantic import Discriminator, Field, Tag
from typing_extensions import override

from emu.errors import ScenarioError
from emu.problem import Cluster, Job, Realization, Task
from emu.problem.fields.cluster_section import (
    ClusterSection,
    MachineSection,
    count_slots,
)
from emu.problem.fields.quantities import (
    DEFAULT_DEVICE,
    DEFAULT_WINDOW,
    MOST_COUNT,
    Count,
    DurationPerDevice,
    Few,
    Name,
    Schema,
    Window,
    combine,
    word_or_list,
)
from emu.problem.fields.section import Resources, Section, Trail
from emu.problem.fields.suggestion import nearest
from emu.problem.workloads import parameter_count
from emu.problem.workloads.coflows import Coflow
from emu.problem.workloads.fetches import feature_type
from emu.systems import (
    Floats,
    JobSettings,
    PerDevice,
    Problems,
    Scale,
    Scaling,
    Settings,
    Times,
)
from emu.systems.job_section import (
    BuildContext,
    JobSection,
    whole_kinds,
)
from emu.systems.model_section import (
    AnyDataset,
    AnyOptimizer,
    ModelProgramSection,
    ModelSection,
    OptimizerSection,
)
from emu.systems.rates_section import KindTimesSection, RatesSection
from emu.units import format_count

if TYPE_CHECKING:
    from emu.graph_data import Dataset

#: Memory that features lie in.
Place: TypeAlias = Literal["host", "device"]
_FANOUT: Schema = {"type": "integer", "minimum": 1, "maximum": MOST_COUNT}
Fanouts: TypeAlias = Annotated[tuple[Count, ...], *word_or_list("all", _FANOUT)]

#: Wrong where a kind of task has no time.
NO_TIME = (
    "found neither this time nor a profile, write for example 20 ms, or measure all "
    "times: emu profile FILE OUT"
)
#: Parts of a worker's time, in their order, that `TimesSection` takes as well.
PHASES = ("model_forward", "data_forward", "data_backward", "model_backward")
#: Pool of the cores of a machine, which its processes share.
CORES = "cpu"
#: Kinds of task that compute on one of them.
_ON_CORES = (
    "graph_store",
    "graph_store_hop",
    "sampler",
    "sampler_hop",
    "sampler_fetch",
    "parameter_server",
)
#: Kinds of task that compute on a device with rows or columns of features.
_COMPUTING = ("worker", "model_forward")
#: Kinds of task whose stated time is that of a whole mini-batch.
_SAMPLING = ("sampler", "sampler_hop", "sampler_fetch")


class TimesSection(KindTimesSection):
    """Execution time of one task of each kind, for ``timed`` and ``padded``.

    One time, or one per device of the machines: ``{default: 40 ms, a100: 12 ms}``. All
    systems take the same keys, so that one file can be compared as each of them; a
    system uses those of its own kinds of task.
    """

    graph_store: DurationPerDevice | None = None
    """Collect the features of one iteration for all samplers."""
    sampler: DurationPerDevice | None = None
    """Sample and assemble one whole mini-batch; samplers that share it take their
    shares."""
    worker: DurationPerDevice | None = None
    """Forward and backward, and the step where workers sum gradients; default is the
    sum of P3's four phases."""
    parameter_server: DurationPerDevice | None = None
    """Average gradients and step."""
    all_reduce: DurationPerDevice = 0.0
    """Send, or take in, one part of the gradients (``sync: ring``)."""
    graph_store_hop: DurationPerDevice | None = None
    """Answer one hop (multi-round sampling)."""
    sampler_hop: DurationPerDevice | None = None
    """Ask for one hop of a whole mini-batch (multi-round sampling)."""
    sampler_fetch: DurationPerDevice | None = None
    """Ask for the features of a whole mini-batch (multi-round sampling)."""

    model_forward: DurationPerDevice | None = None
    """P3: the linear part of layer 1 on an even share of the columns, for every machine
    of the group."""
    data_forward: DurationPerDevice | None = None
    """P3: the rest of the forward pass of one mini-batch."""
    data_backward: DurationPerDevice | None = None
    """P3: its backward pass, down to layer 1."""
    model_backward: DurationPerDevice | None = None
    """P3: the gradient of layer 1 on an even share of the columns."""

    @override
    def by_kind(self) -> dict[str, PerDevice]:
        times = super().by_kind()
        phases = [times[phase] for phase in PHASES if phase in times]
        has_phases = len(phases) == len(PHASES)
        # P3's four phases are together what a worker computes: one file serves both.
        if self.worker is None and has_phases:
            times["worker"] = combine(lambda *parts: sum(parts), *phases)
        return times


class TrainingSection(JobSection):
    """A job that trains on sampled mini-batches."""

    trains: ClassVar[bool] = True
    usual_features: ClassVar[str] = "host"
    """Where features lie by default."""

    if TYPE_CHECKING:  # each system has kinds of process of its own
        demands: Section

    system: str
    """Kind of job."""
    dataset: AnyDataset
    """A name, or ``{name: ..., scale: ..., seed: ...}``."""
    model: Annotated[
        Annotated[ModelSection, Tag("ModelSection")]
        | Annotated[ModelProgramSection, Tag("ModelProgramSection")],
        # By the key `program`, so that an error names keys of the one that was meant.
        Discriminator(
            lambda found: (
                "ModelProgramSection"
                if isinstance(found, ModelProgramSection)
                or (isinstance(found, dict) and "program" in found)
                else "ModelSection"
            )
        ),
    ]
    """Trained model: ``kind`` and widths, or a ``program`` of your own."""
    fanouts: Fanouts = Field(examples=[[5, 10, 15]])
    """Neighbours sampled per hop, the last for the seeds; ``all``: every neighbour."""
    batch_size: Count = Field(examples=[100])
    """Seeds per worker and iteration, shared evenly by its samplers."""
    samplers_per_worker: Few = 1
    """Sampling processes of each worker, beside its own process: sampler s serves
    worker s // samplers_per_worker. Where a machine states its ``cpu``, its processes
    share these cores."""
    features: Place | dict[Name, Place] | None = None
    """Memory that rows or columns of features lie in. ``host``: a core collects them
    beside the GPU, at rate ``collect``; ``device``: the GPU, which does nothing else
    then, at ``collect_device``. By machine: ``{default: host, m0: device}``. Default is
    ``device`` for p3 and whole_graph, as in their papers, else ``host``."""
    times: TimesSection = TimesSection()
    """Profiled times; a ``profile`` replaces them."""
    rates: RatesSection | None = None
    """Rates of operations, in place of ``times``: the same for every system."""
    iterations: Count | None = None
    """Mini-batches of each worker; either this or ``epochs``."""
    epochs: Count | None = None
    """Passes over the training vertices."""
    epoch: Literal["replicate", "shard", "local"] | None = None
    """Walk of each sampler: the whole training set (``replicate``, the paper), an equal
    share of it by number (``shard``), or one of the vertices that its graph store has
    (``local``, as DistDGL): the default of data_parallel with METIS; else
    ``replicate``, wherever tasks are placed."""
    credit_window: Window = DEFAULT_WINDOW
    """Batches under way: the first task of batch n waits for the worker's batch n - K,
    of P3 for the end of cycle n - K; ``unlimited`` for no limit."""
    optimizer: AnyOptimizer = OptimizerSection()
    """``adam``, ``sgd`` or ``{name: ..., lr: ...}``."""
    precision: Literal["float32", "float64"] = "float32"
    """Type of features and parameters."""
    coflow: Coflow = "task"
    """Flows of an iteration that are a coflow: those to one ``task``, between two kinds
    of task for one layer (``stage``), or all of the ``job``."""

    @property
    def sampler_batch(self) -> int:
        """Seeds per sampler and iteration, B_s."""
        # Even: `problems` refuses what leaves seeds over.
        return self.batch_size // self.samplers_per_worker

    def place_on(self, machine: str) -> str:
        """Return where features of a machine lie: ``host`` or ``device``."""
        if isinstance(self.features, dict):
            default = self.features.get(DEFAULT_DEVICE)
            stated = self.features.get(machine) or default
            return stated or self.usual_features
        return self.features or self.usual_features

    def pool_of(self, kind: str, machine: str = "") -> str:
        """Return the pool that a kind of task takes a slot of, on some machine.

        Stores whose rows lie in memory of a device collect them on it.
        """
        is_store = kind == "graph_store"
        if is_store and self.place_on(machine) == "device":
            return "gpu"
        if kind in _ON_CORES:
            return CORES
        return ""

    def brings_rows(self, task: Task) -> bool:
        """Return True where a task brings rows from memory of the host to a device.

        That takes time where ``rates.pcie`` is stated, and counts as collecting.
        """
        is_timed = self.rates is not None and self.rates.pcie is not None
        if not is_timed or task.kind not in _COMPUTING:
            return False
        machine = task.pinned or DEFAULT_DEVICE
        return self.place_on(machine) == "host"

    @override
    def rates_of(self, task: Task, device: str) -> dict[str, float]:
        rates = super().rates_of(task, device)
        if self.brings_rows(task):
            rates["collect"] = rates["pcie"]
        return rates

    @property
    @override
    def made_slots(self) -> frozenset[str]:
        return frozenset({CORES})

    @override
    def with_machines(self, cluster: ClusterSection) -> ClusterSection:
        """Return the cluster with a slot per core, of machines that state these."""

        def with_cores(machine: MachineSection) -> MachineSection:
            # Unstated cores are without bound.
            if machine.cpu is None:
                return machine
            cores = count_slots(machine.cpu)
            slots = {CORES: cores, **machine.slots}
            return machine.model_copy(update={"slots": slots})

        machines = tuple(map(with_cores, cluster.machines))
        return cluster.model_copy(update={"machines": machines})

    @property
    def hops(self) -> int:
        """Layers of the model, one hop of sampling each."""
        return self.model.layers or len(self.fanouts)

    @property
    def default_epoch(self) -> str:
        """Walk where none is stated, wherever the tasks stand."""
        return "replicate"

    def share(self, kind: str) -> float:
        """Return a task's part of its kind's time: samplers share a mini-batch."""
        # Stores serve all samplers at once: their time is of an iteration, as stated.
        if kind not in _SAMPLING:
            return 1.0
        return self.sampler_batch / self.batch_size

    def samplers(self, machines: Sequence[str]) -> int:
        """Return the number of samplers on these machines of the cluster."""
        raise NotImplementedError

    @override
    def of_steps(self, steps: int) -> Self:
        keys = {"iterations": steps, "epochs": None}
        return self.model_copy(update=keys)

    def count_batches(self, context: BuildContext) -> int:
        """Return ``iterations``, or how many ``epochs`` take.

        ``replicate``: epochs * ceil(train / B_s); ``shard``, ``local``: each sampler
        walks its whole share (specs, A4). Raises ValueError when the job counts in
        epochs of an unknown training set.
        """
        if self.epochs is None:
            return self.iterations or 1
        if context.train_vertices < 1:
            raise ValueError("epochs are counted in training vertices: how many?")
        vertices = context.train_vertices
        if self.epoch not in {None, "replicate"}:
            # Each sampler has a share, rounded down, so that all take as many steps.
            vertices //= self.samplers(context.machines)
        batches = math.ceil(vertices / self.sampler_batch)
        return self.epochs * max(1, batches)

    def training_settings(self, context: BuildContext) -> Settings:
        """Return the settings of node programs that follow from these keys."""
        from emu.graph_data import ALL_NEIGHBOURS  # noqa: PLC0415 - 0.1 s

        all_neighbours = [ALL_NEIGHBOURS] * self.hops
        if isinstance(self.model, ModelSection):
            model = self.model.model_dump()
        else:
            # Of a program's file the name alone: its path is of this computer.
            model = self.model.model_dump(include={"args", "source"})
            model |= {"program": self.model.name, "layers": self.hops}
        return {
            "system": self.system,
            "dataset": self.dataset.settings(context.seed),
            "model": model,
            "fanouts": list(self.fanouts) or all_neighbours,
            "batch_size": self.batch_size,
            "optimizer": self.optimizer.model_dump(),
            "precision": self.precision,
            "epoch": self.epoch or "replicate",
            "compute": context.compute,
            "seed": context.seed,
        }

    @property
    @override
    def measures_worker(self) -> bool:
        """True where a worker's time is measured: a program's, where none is stated."""
        return (
            isinstance(self.model, ModelProgramSection)
            and self.rates is None
            and "worker" not in self.times.default_times()
        )

    @override
    def problems(self, cluster: ClusterSection) -> Problems:
        if isinstance(self.model, ModelProgramSection):
            for key, problem in self.model.problems(len(self.fanouts)):
                yield ("job", "model", key), problem
            if self.rates is not None:
                problem = "nothing can count the operations of a program: write times"
                yield ("job", "rates"), problem
        else:
            yield from self.model.problems()

        fanouts = len(self.fanouts)
        if fanouts and fanouts != self.hops:
            problem = (
                f"found {fanouts} for a model of {format_count(self.hops, 'layer')}, "
                "write one per layer"
            )
            yield ("job", "fanouts"), problem
        if problem := self._sharing_problem():
            yield ("job", "batch_size"), problem
        if problem := self._device_problem(cluster):
            yield ("job", "features"), problem
        if (self.iterations is None) == (self.epochs is None):
            which = "neither" if self.iterations is None else "both"
            yield ("job",), f"found {which} of iterations and epochs, write one of them"

    def _sharing_problem(self) -> str:
        """Return what is wrong with a batch that samplers cannot share, if anything."""
        samplers = self.samplers_per_worker
        share, rest = divmod(self.batch_size, samplers)
        if not rest:
            return ""
        # The nearest multiples on both sides, but for 0.
        even = [str(number * samplers) for number in (share, share + 1) if number]
        choices = " or ".join(even)
        return (
            f"{self.batch_size} seeds cannot be shared evenly by {samplers} samplers "
            f"(job.samplers_per_worker), write batch_size: {choices}"
        )

    def _device_problem(self, cluster: ClusterSection) -> str:
        """Return what is wrong with features in memory of devices, if anything."""
        # Where no machine states a gpu, each is taken to have a device.
        if self.features is None:
            return ""
        machines = cluster.by_name
        if isinstance(self.features, dict):
            for name in self.features:
                if name not in machines and name != DEFAULT_DEVICE:
                    return f"no machine {name!r}, {nearest(name, [*machines])}"

        without = []
        for name in self.ranks(cluster.names):
            machine = machines.get(name)
            is_on_device = self.place_on(name) == "device"
            if machine is not None and is_on_device and not machine.gpu:
                without.append(name)
        if not without or not cluster.has_gpus:
            return ""
        names = ", ".join(without)
        hint = "write host, or machines that have one (job.machines)"
        return f"{names} has no gpu: {hint}"

    @override
    def list_demands(self) -> Iterator[tuple[Trail, Resources]]:
        for kind, resources in self.demands:
            yield ("job", "demands", kind), resources

    @override
    def scale_times(
        self,
        tasks: Mapping[str, str],
        wanted: set[str],
        scale: Scale,
    ) -> Scaling:
        # Rates give all times: what `times` state by default is not read.
        if self.rates is not None:
            return {}, set()
        # Not `by_kind`: a time that follows from others has no key to edit.
        times = {kind: time for kind, time in self.times if time is not None}
        kinds = whole_kinds(tasks, wanted) & times.keys()
        edit = {f"job.times.{kind}": scale(times[kind]) for kind in kinds}
        scaled = {name for name in wanted if tasks[name] in kinds}
        return edit, scaled

    @override
    def realize(
        self,
        job: Job,
        context: BuildContext,
        cluster: Cluster,
        measured: Times,
    ) -> Realization:
        times_on_share = self._times_on_share(job, measured)
        dataset = open_fitting(job.settings)
        context = replace(context, train_vertices=dataset.train_count)
        realization = self.realize_sampled(job, times_on_share, context, cluster)
        seconds = realization.times
        if self.rates is not None:
            seconds = self.rate_tasks(job, context, realization.volumes)
        # Rates need real bytes, so volumes are scaled only behind them.
        volumes = realization.volumes / context.byte_scale
        return Realization(times=seconds, volumes=volumes)

    def _times_on_share(self, job: Job, measured: Times) -> Times:
        """Return the time of each kind of task, of samplers that of their share."""
        times = {**measured, **self.times.default_times()}
        if self.rates is not None:
            # Rates give all times, from volumes: here none may be missing.
            times = {task.kind: 0.0 for task in job.tasks}
        for task in job.tasks:
            if task.kind not in times:
                raise ScenarioError(NO_TIME, key=f"job.times.{task.kind}")
        return {kind: time * self.share(kind) for kind, time in times.items()}

    def stated_seconds(self, job: Job) -> Floats | None:
        """Return seconds of (task, iteration) that keys state alone; None: not known.

        Raises ScenarioError as `realize`.
        """
        del job  # a system may know nothing before its volumes
        return None

    def seconds_by_kind(self, job: Job) -> Floats | None:
        """Return `stated_seconds` of a system whose tasks go by their kind alone."""
        if self.rates is not None or self.measures_worker:
            return None
        return repeat_times(job, self._times_on_share(job, {}))

    def sure_seconds(self, *kinds: str) -> float:
        """Return the seconds of tasks of some kinds, in a row, on whatever machine.

        A kind whose time is not stated, or another one on some device, takes none.
        """
        if self.rates is not None or self.goes_by_speed:
            return 0.0
        times = self.times.by_kind()
        seconds = 0.0
        for kind in kinds:
            time = times.get(kind, 0.0)
            if not isinstance(time, dict):
                seconds += time * self.share(kind)
        return seconds

    def realize_sampled(
        self,
        job: Job,
        times: Times,
        context: BuildContext,
        cluster: Cluster,
    ) -> Realization:
        """Return seconds and real bytes of ``job``, from the time of each kind of task.

        Raises ScenarioError when its data set does not fit the job or the cluster.
        """
        raise NotImplementedError


def repeat_times(job: Job, times: Times) -> Floats:
    """Return seconds of (task, iteration) from the time of each kind of task."""
    seconds = np.array([times[task.kind] for task in job.tasks])
    column = seconds[:, np.newaxis]
    return np.repeat(column, job.iterations, axis=1)


def open_fitting(settings: JobSettings) -> Dataset:
    """Return the data set of a job, whose training set holds its mini-batches.

    Raises ScenarioError when a mini-batch has more seeds than there are training
    vertices; DataError when the data set is missing or damaged.
    """
    from emu.graph_data import open_for  # noqa: PLC0415 - 0.1 s

    dataset = open_for(settings)
    problem = batch_problem(settings, dataset.train_count)
    if problem:
        raise ScenarioError(problem, key="job.batch_size")
    return dataset


def batch_problem(settings: JobSettings, train: int) -> str:
    """Return what is wrong with mini-batches of so many training vertices, if any."""
    samplers = settings["samplers_per_worker"]
    has_shares = settings["epoch"] != "replicate"
    # Samplers share a mini-batch evenly: only a multiple of them can be advised.
    most = train - train % samplers
    if has_shares:
        sharers = settings["workers"] * samplers
        most = train // sharers * samplers
    if settings["batch_size"] <= most:
        return ""

    if not most:
        return f"{train:,} training vertices are too few for so many samplers"
    share = "one worker's share of " if has_shares else ""
    return (
        f"{settings['batch_size']:,} seeds are more than {share}the {train:,} "
        f"training vertices: write {most:,} or fewer"
    )


def number_bytes(settings: JobSettings) -> int:
    """Return the bytes of a parameter, from ``Job.settings``."""
    if settings["precision"] == "float64":
        return 8
    return 4


def feature_bytes(settings: JobSettings) -> int:
    """Return the bytes of a number of a feature, from ``Job.settings``."""
    sizes = {"float16": 2, "float32": 4, "float64": 8}
    return sizes[feature_type(settings)]


def count_parameters(settings: JobSettings, dataset: Dataset) -> int:
    """Return the number of parameters of a job's model."""
    model = settings["model"]
    return parameter_count(model, dataset.feature_length, dataset.classes)


def lacking_memory(cluster: Cluster, machine: str, size: float) -> float:
    """Return the bytes of ``size`` that a machine has no memory for, if above 0."""
    position = cluster.index(machine)
    resources = cluster.machines[position].resources
    # A machine that states no memory has no bound.
    memory = resources.get("memory", math.inf)
    return size - memory
