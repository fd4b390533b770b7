"""Slots of GPUs where stores collect rows on devices, in turn with what trains."""

from __future__ import annotations

from typing_extensions import override

from emu.problem.fields.cluster_section import ClusterSection, count_slots
from emu.systems.training_section import TrainingSection


class GpuTurnsSection(TrainingSection):
    """Jobs whose stores may collect rows on the GPU of a worker."""

    @property
    def _shares_gpus(self) -> bool:
        """True where GPUs collect rows in turn with what trains there."""
        if isinstance(self.features, dict):
            return "device" in self.features.values()
        features = self.features or self.usual_features
        return features == "device"

    @override
    def pool_of(self, kind: str, machine: str = "") -> str:
        # One pool: a GPU that collects rows trains nothing meanwhile.
        if kind == "worker" and self._shares_gpus:
            return "gpu"
        return super().pool_of(kind, machine)

    @property
    @override
    def made_slots(self) -> frozenset[str]:
        slots = super().made_slots
        if self._shares_gpus:
            slots |= {"gpu"}
        return slots

    @override
    def with_machines(self, cluster: ClusterSection) -> ClusterSection:
        """Return the cluster with slots per core, and per GPU where GPUs take turns."""
        cluster = super().with_machines(cluster)
        if not self._shares_gpus:
            return cluster
        machines = []
        for machine in cluster.machines:
            # A machine that states no gpu computes on one device all the same.
            gpus = count_slots(machine.gpu or 1)
            slots = {"gpu": gpus, **machine.slots}
            with_slots = machine.model_copy(update={"slots": slots})
            machines.append(with_slots)
        return cluster.model_copy(update={"machines": tuple(machines)})
