"""Section ``job`` of ``system: dgtp``: sampled GNN training with parameter servers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag
from typing_extensions import override

from emu.graph_data import ALL_NEIGHBOURS
from emu.scenario.model_section import ModelProgramSection
from emu.scenario.quantities import (
    DEFAULT_WINDOW,
    Count,
    DurationPerDevice,
    Few,
    FileName,
    FilePath,
    Positive,
    Seed,
    Window,
    combined,
    default_time,
    word_or_list,
)
from emu.scenario.section import Resources, Section
from emu.workloads import PHASES, DgtpConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    Fanouts = tuple[int, ...]
else:
    Fanouts = word_or_list("all", Count, {"type": "integer", "minimum": 1})


#: Kinds of task whose stated time is that of a whole mini-batch.
_SAMPLING = ("sampler", "sampler_hop", "sampler_fetch")


def _named(found: Any) -> Any:
    return {"name": found} if isinstance(found, str) else found


def _kind_of_model(found: Any) -> str:
    own = isinstance(found, ModelProgramSection) or (
        isinstance(found, dict) and "program" in found
    )
    return "ModelProgramSection" if own else "ModelSection"


class DatasetSection(Section):
    """The graph to train on."""

    name: FileName = Field(examples=["products-like"])
    """``products-like``, ``reddit-like``, ``papers100m-like`` (made up, seeded),
    ``ogbn-products``, ``ogbn-papers100M``, a folder of npz graphs, or what ``emu
    import`` has called one."""
    scale: Positive = 1.0
    """Size of a made-up graph, as a share of the published one."""
    seed: Seed | None = None
    """Of a made-up graph and of the split; default is the scenario's."""
    directory: FilePath | None = None
    """Where to look for it, relative to the scenario file; default is what EMU_DATA
    says."""
    feature_length: Few | None = None
    """Columns of the features: the first so many, or repeated to so many; default is
    what is there."""
    normalise: Annotated[bool, Field(strict=True)] = False
    """Scale every feature row to length 1 (L2)."""


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
    """Of ``gat``: heads of the hidden layers, which share their width."""


class OptimizerSection(Section):
    """How parameter servers step."""

    name: Literal["adam", "sgd"] = "adam"
    """Rule."""
    lr: Positive = 0.001
    """Learning rate."""
    half_life: Count | None = None
    """Steps in which the learning rate halves, a little with each; default: never."""


class DemandsSection(Section):
    """What one process of each kind needs of its machine."""

    graph_store: Resources = Resources()
    """Of each graph store."""
    sampler: Resources = Resources()
    """Of each sampler."""
    worker: Resources = Resources()
    """Of each worker; one ``gpu`` where machines have any, ``gpu: 0`` for none."""
    parameter_server: Resources = Resources()
    """Of each parameter server."""


class TimesSection(Section):
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

    def by_kind(self) -> dict[str, float | dict[str, float]]:
        """Return kind -> time, of those that are stated or follow from others."""
        known = {kind: time for kind, time in self if time is not None}
        phases = [known[phase] for phase in PHASES.values() if phase in known]
        if self.worker is None and len(phases) == len(PHASES):
            known["worker"] = combined(lambda *parts: sum(parts), *phases)
        return known

    def stated(self) -> dict[str, float]:
        """Return kind -> seconds on the default device, as of `by_kind`."""
        return {kind: default_time(time) for kind, time in self.by_kind().items()}


class TrainingSection(Section):
    """What every system that trains on sampled mini-batches states."""

    system: str
    """Kind of job."""
    dataset: Annotated[DatasetSection, BeforeValidator(_named)] = Field(
        examples=["products-like"]
    )
    """A name, or ``{name: ..., scale: ..., seed: ...}``."""
    model: Annotated[
        Annotated[ModelSection, Tag("ModelSection")]
        | Annotated[ModelProgramSection, Tag("ModelProgramSection")],
        Discriminator(_kind_of_model),
    ]
    """What is trained: ``kind`` and widths, or a ``program`` of your own."""
    fanouts: Fanouts = Field(examples=[[5, 10, 15]])
    """Neighbours sampled per hop, the last for the seeds; ``all``: every neighbour."""
    batch_size: Count = Field(examples=[100])
    """Seeds per worker and iteration, shared evenly by its samplers."""
    times: TimesSection = TimesSection()
    """Profiled times; a ``profile`` replaces them."""
    iterations: Count | None = None
    """Mini-batches of each worker; either this or ``epochs``."""
    epochs: Count | None = None
    """Passes over the training vertices."""
    epoch: Literal["replicate", "shard"] = "replicate"
    """Whether each sampler walks the whole training set (the paper) or its share."""
    credit_window: Window = DEFAULT_WINDOW
    """Batches under way: the first task of batch n waits for the worker's batch n - K;
    ``unlimited`` for no limit."""
    optimizer: Annotated[OptimizerSection, BeforeValidator(_named)] = OptimizerSection()
    """``adam``, ``sgd`` or ``{name: ..., lr: ...}``."""
    precision: Literal["float32", "float64"] = "float32"
    """Of features and parameters."""

    @property
    def sampler_batch(self) -> int:
        """Seeds per sampler and iteration, B_s."""
        return self.batch_size

    @property
    def hops(self) -> int:
        """Layers of the model, one hop of sampling each."""
        return self.model.layers or len(self.fanouts)

    def share(self, kind: str) -> float:
        """Return which part of a kind's stated time one of its tasks takes.

        What samplers do is stated of a whole mini-batch, which they share.
        """
        return self.sampler_batch / self.batch_size if kind in _SAMPLING else 1.0

    def samplers(self, machines: Sequence[str]) -> int:
        """Return the number of samplers: one per machine."""
        return len(machines)

    def count_batches(self, train_vertices: int, machines: Sequence[str]) -> int:
        """Return ``iterations``, or how many ``epochs`` take.

        ``replicate``: epochs * ceil(train / B_s); ``shard``: each sampler walks its
        whole share of the training set (specs, A4).

        Parameters
        ----------
        machines
            Names of those of the cluster.
        """
        if self.epochs is None:
            return self.iterations or 1
        walked = train_vertices
        if self.epoch == "shard":
            walked //= self.samplers(machines)
        return self.epochs * max(1, math.ceil(walked / self.sampler_batch))

    def training_settings(self, compute: str, seed: int) -> dict[str, Any]:
        """Return what node programs are told, of these keys."""
        dataset = self.dataset
        every = [ALL_NEIGHBOURS] * self.hops
        return {
            "dataset": {
                "name": dataset.name,
                "scale": dataset.scale,
                "seed": seed if dataset.seed is None else dataset.seed,
                "normalise": dataset.normalise,
                "feature_length": dataset.feature_length,
                "root": dataset.directory or "",
            },
            "model": self._model(),
            "fanouts": list(self.fanouts) or every,
            "batch_size": self.batch_size,
            "optimizer": self.optimizer.model_dump(),
            "precision": self.precision,
            "epoch": self.epoch,
            "compute": compute,
            "seed": seed,
        }

    def _model(self) -> dict[str, Any]:
        if isinstance(self.model, ModelSection):
            return self.model.model_dump()
        told = self.model.model_dump(include={"args", "source"})
        return {**told, "program": self.model.name, "layers": self.hops}


class DgtpJobSection(TrainingSection):
    """DGTP: stores -> samplers -> workers -> parameter servers -> workers."""

    system: Literal["dgtp"]
    """Kind of job."""
    partitioner: Literal["metis", "metis-dgl", "hash", "imported"] = "metis"
    """Ownership of vertices. ``metis``: few edges between parts of equal size;
    ``metis-dgl``: as dgl does (Python 3.11 only); ``imported``: as the graph came
    (DistDGL)."""
    workers: Few = 1
    """Workers of the job."""
    samplers_per_worker: Few = 1
    """Sampler s serves worker s // samplers_per_worker."""
    sync: Literal["parameter_server", "ring", "halving_doubling"] = "parameter_server"
    """Sum of gradients, by parameter servers or an all-reduce of the workers
    (``halving_doubling``: 2, 4, 8, ... of them)."""
    ring: Literal["rank", "placed"] = "rank"
    """Order of the workers in ``sync: ring``, by number or ``placed``: with the fewest
    neighbours across a NIC or slow link. Searches judge by number."""
    parameter_servers: Few = 1
    """Parameters are sharded over them; not counted where workers sum."""
    demands: DemandsSection = DemandsSection()
    """Resources per process of each kind."""
    sampling: Literal["oneshot", "multiround"] = "oneshot"
    """Whether stores know the whole structure, or are asked hop by hop."""

    def on_gpus(self) -> DgtpJobSection:
        """Return the job with a gpu for each worker, where nothing is said of gpus."""
        worker = self.demands.worker
        if worker.gpu is None:
            worker = worker.model_copy(update={"gpu": 1.0})
        demands = self.demands.model_copy(update={"worker": worker})
        return self.model_copy(update={"demands": demands})

    @property
    @override
    def sampler_batch(self) -> int:
        """Seeds per sampler and iteration, B_s."""
        return self.batch_size // self.samplers_per_worker

    @override
    def samplers(self, machines: Sequence[str]) -> int:
        """Return the number of samplers, of all workers."""
        return self.workers * self.samplers_per_worker

    def config(
        self,
        machines: Sequence[str],
        *,
        batches: int,
        window: int | None,
        compute: str,
        seed: int,
    ) -> DgtpConfig:
        """Return the shape of the job, with the settings of its node programs."""
        demands = {kind: amounts.amounts() for kind, amounts in self.demands}
        return DgtpConfig(
            machines=tuple(machines),
            workers=self.workers,
            samplers_per_worker=self.samplers_per_worker,
            parameter_servers=self.parameter_servers,
            iterations=batches,
            hops=self.hops,
            sampling=self.sampling,
            sync=self.sync,
            window=window,
            demands=demands,
            settings=self._settings(len(machines), compute, seed),
        )

    def _settings(self, stores: int, compute: str, seed: int) -> dict[str, Any]:
        return {
            **self.training_settings(compute, seed),
            "partitioner": self.partitioner,
            "sampler_batch_size": self.sampler_batch,
            "parts": stores,
            "workers": self.workers,
            "samplers_per_worker": self.samplers_per_worker,
            "parameter_servers": self.parameter_servers,
            "sampling": self.sampling,
        }
