"""Section ``job`` of ``system: dgtp``: sampled GNN training with parameter servers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from emu.scenario.quantities import (
    DEFAULT_WINDOW,
    Count,
    Duration,
    Few,
    FileName,
    FilePath,
    Positive,
    Seed,
    Window,
)
from emu.scenario.section import Resources, Section
from emu.workloads import DgtpConfig

if TYPE_CHECKING:
    from collections.abc import Sequence


def _named(found: Any) -> Any:
    return {"name": found} if isinstance(found, str) else found


class DatasetSection(Section):
    """The graph to train on."""

    name: FileName = Field(examples=["products-like"])
    """``products-like``, ``reddit-like``, ``papers100m-like`` (made up, seeded),
    ``ogbn-products``, ``ogbn-papers100M``, or a folder of npz graphs."""
    scale: Positive = 1.0
    """Size of a made-up graph, as a share of the published one."""
    seed: Seed | None = None
    """Of a made-up graph and of the split; default is the scenario's."""
    directory: FilePath | None = None
    """Where to look for it, relative to the scenario file; default is what EMU_DATA
    says."""
    normalise: Annotated[bool, Field(strict=True)] = False
    """Scale every feature row to length 1 (L2)."""


class ModelSection(Section):
    """GraphSAGE, mean aggregation."""

    hidden: Count = Field(examples=[256])
    """Width of the hidden layers."""
    layers: Annotated[int, Field(strict=True, ge=1, le=16)] = Field(examples=[3])
    """Number of layers, one hop of sampling each."""


class OptimizerSection(Section):
    """How parameter servers step."""

    name: Literal["adam", "sgd"] = "adam"
    """Rule."""
    lr: Positive = 0.001
    """Learning rate."""


class DemandsSection(Section):
    """What one process of each kind needs of its machine."""

    graph_store: Resources = Resources()
    """Of each graph store."""
    sampler: Resources = Resources()
    """Of each sampler."""
    worker: Resources = Resources()
    """Of each worker."""
    parameter_server: Resources = Resources()
    """Of each parameter server."""


class TimesSection(Section):
    """Execution time of one task of each kind, for ``timed`` and ``padded``."""

    graph_store: Duration | None = None
    """Collect the features of one iteration for all samplers."""
    sampler: Duration | None = None
    """Assemble one mini-batch."""
    worker: Duration | None = None
    """Forward and backward."""
    parameter_server: Duration | None = None
    """Average gradients and step."""
    graph_store_hop: Duration | None = None
    """Answer one hop (multi-round sampling)."""
    sampler_hop: Duration | None = None
    """Ask for one hop (multi-round sampling)."""
    sampler_fetch: Duration | None = None
    """Ask for the features (multi-round sampling)."""

    def stated(self) -> dict[str, float]:
        """Return kind -> seconds, of those that are stated."""
        return {kind: t for kind, t in self if t is not None}


class DgtpJobSection(Section):
    """DGTP: stores -> samplers -> workers -> parameter servers -> workers."""

    system: Literal["dgtp"]
    """Kind of job."""
    dataset: Annotated[DatasetSection, BeforeValidator(_named)] = Field(
        examples=["products-like"]
    )
    """A name, or ``{name: ..., scale: ..., seed: ...}``."""
    partitioner: Literal["metis", "hash"] = "metis"
    """Which store owns which vertex."""
    model: ModelSection
    """What is trained."""
    fanouts: tuple[Count, ...] = Field(min_length=1, examples=[[5, 10, 15]])
    """Neighbours sampled per hop; as dgl orders them, the last is for the seeds."""
    batch_size: Count = Field(examples=[100])
    """Seeds per worker and iteration, shared evenly by its samplers."""
    workers: Few = 1
    """Workers of the job."""
    samplers_per_worker: Few = 1
    """Sampler s serves worker s // samplers_per_worker."""
    parameter_servers: Few = 1
    """Parameters are sharded over them."""
    demands: DemandsSection = DemandsSection()
    """Resources per process of each kind."""
    times: TimesSection = TimesSection()
    """Profiled times; a ``profile`` replaces them."""
    iterations: Count | None = None
    """Either this or ``epochs``."""
    epochs: Count | None = None
    """Passes over the training vertices."""
    epoch: Literal["replicate", "shard"] = "replicate"
    """Whether each sampler walks the whole training set (the paper) or its share."""
    credit_window: Window = DEFAULT_WINDOW
    """Stores wait for the end of their workers' iteration n - K; ``unlimited`` for no
    limit."""
    sampling: Literal["oneshot", "multiround"] = "oneshot"
    """Whether stores know the whole structure, or are asked hop by hop."""
    optimizer: Annotated[OptimizerSection, BeforeValidator(_named)] = OptimizerSection()
    """``adam``, ``sgd`` or ``{name: ..., lr: ...}``."""
    precision: Literal["float32", "float64"] = "float32"
    """Of features and parameters."""

    @property
    def sampler_batch(self) -> int:
        """Seeds per sampler and iteration, B_s."""
        return self.batch_size // self.samplers_per_worker

    def count_iterations(self, train_vertices: int) -> int:
        """Return ``iterations``, or how many ``epochs`` take.

        ``replicate``: epochs * ceil(train / B_s); ``shard``: each sampler walks its
        whole share of the training set (specs, A4).
        """
        if self.epochs is None:
            return self.iterations or 1
        walked = train_vertices
        if self.epoch == "shard":
            walked //= self.workers * self.samplers_per_worker
        return self.epochs * max(1, math.ceil(walked / self.sampler_batch))

    def config(
        self,
        machines: Sequence[str],
        *,
        iterations: int,
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
            iterations=iterations,
            hops=self.model.layers,
            sampling=self.sampling,
            window=window,
            demands=demands,
            settings=self._settings(len(machines), compute, seed),
        )

    def _settings(self, stores: int, compute: str, seed: int) -> dict[str, Any]:
        dataset = self.dataset
        return {
            "dataset": {
                "name": dataset.name,
                "scale": dataset.scale,
                "seed": seed if dataset.seed is None else dataset.seed,
                "normalise": dataset.normalise,
                "root": dataset.directory or "",
            },
            "partitioner": self.partitioner,
            "model": self.model.model_dump(),
            "fanouts": list(self.fanouts),
            "batch_size": self.batch_size,
            "sampler_batch_size": self.sampler_batch,
            "parts": stores,
            "workers": self.workers,
            "samplers_per_worker": self.samplers_per_worker,
            "parameter_servers": self.parameter_servers,
            "optimizer": self.optimizer.model_dump(),
            "sampling": self.sampling,
            "precision": self.precision,
            "epoch": self.epoch,
            "compute": compute,
            "seed": seed,
        }
