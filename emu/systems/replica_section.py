"""Keys of ``job`` of systems with one replica of the model per machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field
from typing_extensions import override

from emu.problem.fields.cluster_section import ClusterSection
from emu.problem.fields.quantities import DurationPerDevice, Name
from emu.problem.fields.section import Resources, Section
from emu.systems import Problems, Settings
from emu.systems.intake import Intake
from emu.systems.job_section import TRANSLATED, BuildContext
from emu.systems.training_section import TimesSection, TrainingSection

if TYPE_CHECKING:
    from emu.graph_data import Dataset


class ReplicaTimesSection(TimesSection):
    """Execution time of one task of each kind; machines collect features at once."""

    # Unlike DGTP's, which has to be stated: P3 by default has no task that collects.
    graph_store: DurationPerDevice = 0.0
    """Collect the features of one iteration, for all workers; of P3 with ``features:
    host``."""


class ReplicaDemandsSection(Section):
    """Resources that one process of each kind needs."""

    worker: Resources = Resources()
    """Needs of a machine's worker with its samplers."""
    graph_store: Resources = Resources()
    """Needs of a graph store; P3 has one where ``features: host``."""


class ReplicaSection(TrainingSection):
    """One replica of the model per machine, whose gradients are summed in a ring."""

    grows_with: ClassVar[tuple[str, ...]] = ("samplers_per_worker",)
    foreign: ClassVar[dict[str, str]] = {
        "workers": f"each of job.machines has one: {TRANSLATED}",
        "parameter_servers": f"gradients are summed in a ring: {TRANSLATED}",
    }

    machines: tuple[Name, ...] | None = Field(default=None, min_length=1)
    """Machines that take part, rank by rank; default is all of them."""
    demands: ReplicaDemandsSection = ReplicaDemandsSection()
    """Resources per process."""
    times: ReplicaTimesSection = ReplicaTimesSection()
    """Profiled times."""

    @override
    def samplers(self, machines: Sequence[str]) -> int:
        return len(self.ranks(machines)) * self.samplers_per_worker

    def replica_settings(self, context: BuildContext) -> Settings:
        """Return the settings of node programs that follow from these keys."""
        ranks = len(self.ranks(context.machines))
        return {
            **self.training_settings(context),
            # Features go by columns under P3: owners say whose a seed is.
            "partitioner": "metis" if self.epoch == "local" else "hash",
            "parts": ranks,
            "workers": ranks,
            "samplers_per_worker": self.samplers_per_worker,
            # Each machine has the whole structure: nobody is asked for it.
            "sampling": "oneshot",
        }

    def data_settings(self, context: BuildContext) -> Settings:
        """Return the settings of the job that decide on its data and mini-batches."""
        return self.replica_settings(context)

    def samplers_of(self, rank: int) -> range:
        """Return the numbers of the samplers of a rank."""
        first = rank * self.samplers_per_worker
        return range(first, first + self.samplers_per_worker)

    def intake(
        self, context: BuildContext, dataset: Dataset, rank: int
    ) -> Intake | None:
        """Return what the machine of a rank takes in at the least, for its own batches.

        None where that is not known before the job is built. ``context``: with cluster
        and training vertices.
        """
        del context, dataset, rank  # other systems know
        return None

    @override
    def problems(self, cluster: ClusterSection) -> Problems:
        yield from super().problems(cluster)
        yield from self.rank_problems(cluster)
