"""Sections ``job`` of ``system: p3`` and of ``system: data_parallel``, its baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from typing_extensions import override

from emu.scenario.dgtp_section import TrainingSection
from emu.scenario.quantities import Duration, Few, Name, word_or_list
from emu.scenario.section import Resources, Section
from emu.workloads import (
    PIPELINES,
    DataParallelConfig,
    P3Config,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    Shares = tuple[float, ...]
else:
    _Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]
    Shares = word_or_list("even", _Share, {"type": "number", "minimum": 0})

_PHASES = ("model_forward", "data_forward", "data_backward", "model_backward")


class PhaseTimesSection(Section):
    """Execution time of one task of each kind, for ``timed`` and ``padded``.

    The same keys for P3 and for data parallel training, so that one can be compared
    with the other.
    """

    sampler: Duration | None = None
    """Sample one mini-batch."""
    sampler_hop: Duration | None = None
    """P3 with ``structure: hashed``: ask for one hop."""
    graph_store_hop: Duration | None = None
    """P3 with ``structure: hashed``: answer one hop."""
    model_forward: Duration | None = None
    """P3: the linear part of layer 1 on an even share of the columns, for one
    mini-batch of every machine of the group."""
    data_forward: Duration | None = None
    """P3: the rest of the forward pass of one mini-batch."""
    data_backward: Duration | None = None
    """P3: its backward pass, down to layer 1."""
    model_backward: Duration | None = None
    """P3: the gradient of layer 1 on an even share of the columns."""
    graph_store: Duration = 0.0
    """Data parallel: collect the features of one iteration for all workers."""
    worker: Duration | None = None
    """Data parallel: forward and backward; default is the sum of P3's four phases,
    which is the same work."""

    def stated(self) -> dict[str, float]:
        """Return kind -> seconds, of those that are stated or follow."""
        known = {kind: time for kind, time in self if time is not None}
        if self.worker is None and all(phase in known for phase in _PHASES):
            known["worker"] = sum(known[phase] for phase in _PHASES)
        return {**known, "all_reduce": 0.0}


class ReplicaDemandsSection(Section):
    """What one process of each kind needs of its machine."""

    worker: Resources = Resources()
    """Of the process of each machine that samples and trains."""
    graph_store: Resources = Resources()
    """Of each graph store; P3 has none."""


class ReplicaSection(TrainingSection):
    """One replica of the model per machine, whose gradients are summed in a ring."""

    machines: tuple[Name, ...] | None = Field(default=None, min_length=1)
    """Machines that take part, rank by rank; default is all of them."""
    demands: ReplicaDemandsSection = ReplicaDemandsSection()
    """Resources per process."""
    times: PhaseTimesSection = PhaseTimesSection()
    """Profiled times."""

    @override
    def samplers(self, machines: Sequence[str]) -> int:
        """Return the number of samplers: one per machine that takes part."""
        return len(self.ranks(machines))

    def ranks(self, machines: Sequence[str]) -> tuple[str, ...]:
        """Return the machines that take part, out of those of the cluster."""
        return tuple(machines) if self.machines is None else self.machines

    def _settings(self, ranks: int, compute: str, seed: int) -> dict[str, Any]:
        return {
            **self.training_settings(compute, seed),
            "partitioner": "hash",
            "parts": ranks,
            "workers": ranks,
            "samplers_per_worker": 1,
            "sampling": "oneshot",
        }


class P3JobSection(ReplicaSection):
    """P3: push the structure, pull partial activations, never a feature."""

    system: Literal["p3"]
    """Kind of job."""
    pipeline: Literal["none", "A", "B"] = "A"
    """Phases of several mini-batches in turn: A has 3 under way, and weights that lack
    2 updates, B 4 and 3; ``none`` trains as data parallel training does."""
    push: Literal["shipped", "derived"] = "shipped"
    """Whether samplers send ids and edges of layer 1, or every machine samples the
    batches of its group itself, which needs the structure there."""
    structure: Literal["replicated", "hashed"] = "replicated"
    """Whether every machine holds the graph's structure, or that of the vertices that
    are hashed to it: samplers then ask their owners hop by hop, as DistDGL's do."""
    cache: Few | None = None
    """Machines that hold a full copy of the features between them; default is all."""
    columns: Shares = ()
    """``even``, or shares of the columns of each machine of a group; one with 0
    computes no part of layer 1."""

    def config(
        self,
        machines: Sequence[str],
        *,
        batches: int,
        window: int | None,
        compute: str,
        seed: int,
    ) -> P3Config:
        """Return the shape of the job, with the settings of its node programs.

        Raises
        ------
        ValueError
            As `P3Config`.
        """
        ranks = self.ranks(machines)
        groups = len(ranks) // (self.cache or len(ranks))
        settings = {
            **self._settings(len(ranks), compute, seed),
            "batches": batches,
            "pipeline": self.pipeline,
            "push": self.push,
            "structure": self.structure,
            "groups": groups,
            "columns": list(self.columns),
        }
        return P3Config(
            ranks,
            batches,
            PIPELINES[self.pipeline],
            self.push,
            groups,
            self.columns,
            self.hops if self.structure == "hashed" else 0,
            window,
            self.demands.worker.amounts(),
            settings,
        )


class DataParallelJobSection(ReplicaSection):
    """Data parallel training: features are pulled from their owners (DGL)."""

    system: Literal["data_parallel"]
    """Kind of job."""
    partitioner: Literal["metis", "metis-dgl", "hash"] = "hash"
    """Which machine owns which vertex."""

    def config(
        self,
        machines: Sequence[str],
        *,
        batches: int,
        window: int | None,
        compute: str,
        seed: int,
    ) -> DataParallelConfig:
        """Return the shape of the job, with the settings of its node programs."""
        ranks = self.ranks(machines)
        demands = {kind: amounts.amounts() for kind, amounts in self.demands}
        settings = {
            **self._settings(len(ranks), compute, seed),
            "partitioner": self.partitioner,
        }
        return DataParallelConfig(ranks, batches, window, demands, settings)
