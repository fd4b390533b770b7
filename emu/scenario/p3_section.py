"""Sections ``job`` of ``system: p3`` and of ``system: data_parallel``, its baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from typing_extensions import override

from emu.scenario.dgtp_section import TimesSection, TrainingSection
from emu.scenario.quantities import DurationPerDevice, Few, Name, word_or_list
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


class ReplicaTimesSection(TimesSection):
    """Execution time of one task of each kind; machines collect features at once."""

    graph_store: DurationPerDevice = 0.0
    """Data parallel: collect the features of one iteration for all workers."""


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
    times: ReplicaTimesSection = ReplicaTimesSection()
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
    """Phases of several mini-batches in turn: A lacks 2 updates, B 3; ``none`` trains
    as data parallel training does."""
    push: Literal["shipped", "derived"] = "shipped"
    """``shipped``: samplers send ids and edges of layer 1; ``derived``: every machine
    samples for its group, which needs the structure there."""
    structure: Literal["replicated", "hashed"] = "replicated"
    """``replicated``: every machine has the graph's structure; ``hashed``: its share,
    and samplers ask owners hop by hop."""
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
