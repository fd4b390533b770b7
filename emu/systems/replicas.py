"""Keys of systems with one replica of the model per machine."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pydantic import Field
from typing_extensions import override

from emu.fields.quantities import DurationPerDevice, Name  # noqa: TC001 - for pydantic
from emu.fields.section import Resources, Section
from emu.fields.suggestion import nearest
from emu.systems.training_section import TimesSection, TrainingSection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emu.fields.cluster_section import ClusterSection
    from emu.fields.section import Trail
    from emu.systems.job_section import BuildContext, Problems


class ReplicaTimesSection(TimesSection):
    """Execution time of one task of each kind; machines collect features at once."""

    graph_store: DurationPerDevice = 0.0
    """Data parallel: collect the features of one iteration for all workers."""


class ReplicaDemandsSection(Section):
    """Resources that one process of each kind needs."""

    worker: Resources = Resources()
    """Needs of a machine's process that samples and trains."""
    graph_store: Resources = Resources()
    """Needs of a graph store; P3 has none."""


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

    def replica_settings(self, context: BuildContext) -> dict[str, Any]:
        """Return the settings of node programs that follow from these keys."""
        ranks = len(self.ranks(context.machines))
        return {
            **self.training_settings(context),
            "partitioner": "hash",
            "parts": ranks,
            "workers": ranks,
            "samplers_per_worker": 1,
            "sampling": "oneshot",
        }

    @override
    def problems(self, cluster: ClusterSection) -> Problems:
        """Yield (where, what is wrong and what would be right) between its keys."""
        yield from super().problems(cluster)
        yield from rank_problems(self.machines, cluster)


def rank_problems(machines: Sequence[str] | None, cluster: ClusterSection) -> Problems:
    """Yield what is wrong with ``job.machines``: unknown, or there twice."""
    known = [name for name, _ in cluster.named()]
    counts = Counter(machines or ())
    for position, name in enumerate(machines or ()):
        trail: Trail = ("job", "machines", position)
        if name not in known:
            yield trail, f"no machine {name!r}, {nearest(name, known)}"
        elif counts[name] > 1:
            yield trail, f"{name!r} occurs {counts[name]} times"
