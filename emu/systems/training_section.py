"""Keys of ``job`` that every system has which trains on sampled mini-batches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Discriminator, Field, Tag
from typing_extensions import override

from emu.errors import DataError, ScenarioError
from emu.host.foreign_code import class_problem
from emu.host.input_file import read_text
from emu.problem import Cluster, Job, Realization, Task
from emu.problem.fields.cluster_section import ClusterSection
from emu.problem.fields.quantities import (
    DEFAULT_WINDOW,
    Count,
    DurationPerDevice,
    Few,
    FileName,
    FilePath,
    Index,
    Positive,
    Seed,
    Window,
    combine,
    word_or_list,
)
from emu.problem.fields.section import Resources, Section, Trail
from emu.problem.workloads import parameter_count
from emu.problem.workloads.coflows import Coflow
from emu.systems import (
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
    KindTimesSection,
    RatesSection,
    whole_kinds,
)

if TYPE_CHECKING:
    from emu.graph_data import Dataset

Fanouts: TypeAlias = Annotated[
    tuple[Count, ...], *word_or_list("all", {"type": "integer", "minimum": 1})
]

#: Of a program, in bytes: it travels in the job's settings to every process.
_MOST_TEXT = 1 << 20
#: Wrong where a kind of task has no time.
NO_TIME = (
    "found neither this time nor a profile, write for example 20 ms, or measure all "
    "times: emu profile FILE OUT"
)
#: Parts of a worker's time, in their order, that `TimesSection` takes as well.
PHASES = ("model_forward", "data_forward", "data_backward", "model_backward")
#: Kinds of task whose stated time is that of a whole mini-batch.
_SAMPLING = ("sampler", "sampler_hop", "sampler_fetch")


class FiguresSection(Section):
    """Measurements of a program's model; runs note them, no scenario states them."""

    parameters: Annotated[int, Field(strict=True, ge=1)]
    """Numbers that are trained."""
    flops: float
    """Operations in the matrix products of forward and backward on a worker's batch."""
    seconds: float
    """CPU time of the same, one thread."""


class ModelProgramSection(Section):
    """A model of one's own: a ``torch.nn.Module``, called with blocks and features."""

    program: FilePath = Field(examples=["net.py:Net"])
    """``FILE.py:NAME``, relative to the scenario file: a class or function that returns
    a ``torch.nn.Module``, which takes the sampled blocks, input side first, and
    features, and returns a score per seed and class. Of its code ``emu validate`` looks
    at the text alone."""
    args: dict[str, Any] = Field(default_factory=dict)
    """Arguments by name, ``{hid_size: 64}``; ``in_size``, ``out_size``, ``num_layers``
    are given where it takes them."""
    layers: Annotated[int, Field(strict=True, ge=1, le=16)] | None = None
    """Number of blocks, one hop of sampling each; default is one per fan-out."""
    source: str | None = None
    """Its text, which runs note: default is what the file holds."""
    measured: FiguresSection | None = None
    """Figures noted by runs; not to be stated."""

    @property
    def name(self) -> str:
        """File and name, without the folder."""
        return Path(self.program).name

    def problems(self, fanouts: int) -> Iterator[tuple[str, str]]:
        """Yield (key, what is wrong and what would be right) with so many fan-outs."""
        file, _, name = self.program.rpartition(":")
        if not (file.endswith(".py") and name.isidentifier()):
            yield "program", f"found {self.program!r}, write FILE.py:NAME"
        else:
            try:
                # A run notes the text: a repeat must not follow a later file.
                text = self.source or program_text(self.program)
                if problem := class_problem(text, file, name, "", sure=False):
                    yield "program", problem
            except DataError as error:
                yield "program", str(error)

        # With `fanouts: all` nothing says how many hops there are.
        if not fanouts and self.layers is None:
            yield "layers", "fanouts say no number of layers, write for example 2"


def program_text(program: str) -> str:
    """Return the text of ``FILE.py:NAME``, DataError where it cannot be read."""
    file = program.rpartition(":")[0] or program
    try:
        return read_text(Path(file), _MOST_TEXT)
    except FileNotFoundError as error:
        raise DataError(f"there is no file {file}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {file}: {error}") from error


def by_name(found: Any) -> Any:
    """Return the mapping for which a name may stand."""
    return {"name": found} if isinstance(found, str) else found


class DatasetSection(Section):
    """The graph to train on."""

    name: FileName = Field(examples=["products-like"])
    """``products-like``, ``reddit-like``, ``papers100m-like`` (made up, seeded),
    ``ogbn-products``, ``ogbn-papers100M``, a folder of npz graphs, or what ``emu
    import`` has called one."""
    scale: Positive = 1.0
    """Size of a made-up graph over the published one."""
    seed: Seed | None = None
    """Seed of a made-up graph and of the split; default is the scenario's."""
    directory: FilePath | None = None
    """Where to look for it, relative to the scenario file; default is what EMU_DATA
    says."""
    feature_length: Few | None = None
    """Columns of the features: the first so many, or repeated to so many; default is
    what is there."""
    normalise: Annotated[bool, Field(strict=True)] = False
    """Scale every feature row to length 1 (L2)."""
    split: Index | None = None
    """Which of several splits that an npz file holds, from 0."""

    def settings(self, seed: int) -> Settings:
        """Return the data set as ``Job.settings`` hold it, by default of this seed."""
        split: Settings = {} if self.split is None else {"split": self.split}
        return split | {
            "name": self.name,
            "scale": self.scale,
            "seed": seed if self.seed is None else self.seed,
            "normalise": self.normalise,
            "feature_length": self.feature_length,
            "root": self.directory or "",
        }


class ModelSection(Section):
    """A graph neural network, ReLU between its layers."""

    kind: Literal["sage", "gcn", "gat", "gin"] = "sage"
    """``sage``: GraphSAGE, mean of the neighbours; ``gcn``: inductive GCN, mean over
    neighbours and vertex; ``gat``: attention; ``gin``: two layers on their sum."""
    hidden: Count = Field(examples=[256])
    """Width of the hidden layers."""
    layers: Annotated[int, Field(strict=True, ge=1, le=16)] = Field(examples=[3])
    """Number of layers, one hop of sampling each."""
    heads: Count = 1
    """Heads of the hidden layers of ``gat``, which share their width."""
    # Not in what is written back: it says nothing that is not so anyway.
    norm: Literal["mean", "symmetric"] = Field(default="mean", exclude=True)
    """Sampled blocks allow ``mean`` alone."""

    def problems(self) -> Problems:
        """Yield (where, what is wrong and what would be right)."""
        if self.norm == "symmetric":
            problem = (
                "found symmetric, which takes degrees that a sampled block does not "
                "have: write mean, or a system that trains on the whole graph"
            )
            yield ("job", "model", "norm"), problem
        if self.heads > 1 and self.kind != "gat":
            problem = f"found heads for {self.kind}, only gat has them"
            yield ("job", "model", "heads"), problem
        elif self.hidden % self.heads:
            wider = -(-self.hidden // self.heads) * self.heads
            problem = (
                f"{self.heads} heads cannot share a width of {self.hidden} "
                f"evenly, write hidden: {wider}"
            )
            yield ("job", "model", "heads"), problem


class OptimizerSection(Section):
    """Optimizer of parameter servers."""

    name: Literal["adam", "sgd"] = "adam"
    """Rule."""
    lr: Positive = 0.001
    """Learning rate."""
    half_life: Count | None = None
    """Steps in which the learning rate halves, a little with each; default: never."""


AnyDataset: TypeAlias = Annotated[
    DatasetSection, BeforeValidator(by_name), Field(examples=["products-like"])
]
AnyOptimizer: TypeAlias = Annotated[OptimizerSection, BeforeValidator(by_name)]


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
        # P3's four phases are together what a worker computes: one file serves both.
        if self.worker is None and len(phases) == len(PHASES):
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
    worker s // samplers_per_worker."""
    features: Literal["host", "device"] | None = None
    """Memory that rows or columns of features lie in. ``host``: the CPU collects them
    beside the GPU, at rate ``collect``; ``device``: the GPU, which does nothing else
    then, at ``collect_device``. Default is ``device`` for p3, as in its paper, else
    ``host``."""
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

    @property
    def place_of_features(self) -> str:
        """``host`` or ``device``: `features`, or the system's default."""
        return self.features or self.usual_features

    @override
    def rates_of(self, task: Task, device: str) -> dict[str, float]:
        """Return its rates: what a GPU collects lies in its own memory."""
        rates = super().rates_of(task, device)
        # A task of the CPU, as a sampler, still collects from the host's memory.
        if self.place_of_features == "device" and task.takes == "gpu":
            rates["collect"] = rates["collect_device"]
        return rates

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
        return self.model_copy(update={"iterations": steps, "epochs": None})

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
        return self.epochs * max(1, math.ceil(vertices / self.sampler_batch))

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

        if self.fanouts and len(self.fanouts) != self.hops:
            problem = (
                f"found {len(self.fanouts)} for a model of {self.hops} layers, "
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
        return (
            f"{self.batch_size} seeds cannot be shared evenly by {samplers} samplers "
            f"(job.samplers_per_worker), write batch_size: {' or '.join(even)}"
        )

    def _device_problem(self, cluster: ClusterSection) -> str:
        """Return what is wrong with features in memory of devices, if anything."""
        # Where no machine states a gpu, each is taken to have a device.
        if self.features != "device" or not cluster.has_gpus:
            return ""
        machines = cluster.by_name
        names = [name for name in self.ranks(cluster.names) if name in machines]
        without = [name for name in names if not machines[name].gpu]
        if not without:
            return ""
        hint = "write host, or machines that have one (job.machines)"
        return f"{', '.join(without)} has no gpu: {hint}"

    @override
    def list_demands(self) -> Iterator[tuple[Trail, Resources]]:
        for kind, resources in self.demands:
            yield ("job", "demands", kind), resources

    @override
    def scale_times(
        self, tasks: Mapping[str, str], wanted: set[str], scale: Scale
    ) -> Scaling:
        # Not `by_kind`: a time that follows from others has no key to edit.
        times = {kind: time for kind, time in self.times if time is not None}
        kinds = whole_kinds(tasks, wanted) & times.keys()
        edit = {f"job.times.{kind}": scale(times[kind]) for kind in kinds}
        return edit, {name for name in wanted if tasks[name] in kinds}

    @override
    def realize(
        self, job: Job, context: BuildContext, cluster: Cluster, measured: Times
    ) -> Realization:
        times = {**measured, **self.times.default_times()}
        if self.rates is not None:
            # Rates give all times, below: here none may be missing.
            times = dict.fromkeys((task.kind for task in job.tasks), 0.0)
        for task in job.tasks:
            if task.kind not in times:
                raise ScenarioError(NO_TIME, key=f"job.times.{task.kind}")
        times = {kind: time * self.share(kind) for kind, time in times.items()}

        dataset = open_fitting(job.settings)
        context = replace(context, train_vertices=dataset.train_count)
        realization = self.realize_sampled(job, times, context, cluster)
        seconds = realization.times
        if self.rates is not None:
            seconds = self.rate_tasks(job, context, realization.volumes)
        # Rates need real bytes, so volumes are scaled only behind them.
        volumes = realization.volumes / context.byte_scale
        return Realization(times=seconds, volumes=volumes)

    def realize_sampled(
        self, job: Job, times: Times, context: BuildContext, cluster: Cluster
    ) -> Realization:
        """Return seconds and real bytes of ``job``, from the time of each kind of task.

        Raises ScenarioError when its data set does not fit the job or the cluster.
        """
        raise NotImplementedError


def open_fitting(settings: JobSettings) -> Dataset:
    """Return the data set of a job, whose training set holds its mini-batches.

    Raises ScenarioError when a mini-batch has more seeds than there are training
    vertices; DataError when the data set is missing or damaged.
    """
    from emu.graph_data import open_for  # noqa: PLC0415 - 0.1 s

    dataset = open_for(settings)
    if problem := batch_problem(settings, dataset.train_count):
        raise ScenarioError(problem, key="job.batch_size")
    return dataset


def batch_problem(settings: JobSettings, train: int) -> str:
    """Return what is wrong with mini-batches of so many training vertices, if any."""
    samplers = settings["samplers_per_worker"]
    has_shares = settings["epoch"] != "replicate"
    # Samplers share a mini-batch evenly: only a multiple of them can be advised.
    most = train - train % samplers
    if has_shares:
        most = train // (settings["workers"] * samplers) * samplers
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
    """Return the bytes of a feature and of a parameter, from ``Job.settings``."""
    return 8 if settings["precision"] == "float64" else 4


def count_parameters(settings: JobSettings, dataset: Dataset) -> int:
    """Return the number of parameters of a job's model."""
    return parameter_count(settings["model"], dataset.feature_length, dataset.classes)


def lacking_memory(cluster: Cluster, machine: str, size: float) -> float:
    """Return the bytes of ``size`` that a machine has no memory for, if above 0."""
    resources = cluster.machines[cluster.index(machine)].resources
    # A machine that states no memory has no bound.
    return size - resources.get("memory", math.inf)
