"""Section ``cluster``: the emulated machines."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from emu.problem import Cluster, Machine
from emu.scenario.quantities import Few, Name, Rate
from emu.scenario.section import Resources, Section


class Nic(Section):
    """Capacity of a network interface, full duplex."""

    inward: Rate = Field(alias="in")
    """What the machine can receive."""
    outward: Rate = Field(alias="out")
    """What the machine can send."""


def _both_directions(found: Any) -> Any:
    if isinstance(found, dict | Nic):
        return found
    return {"in": found, "out": found}


class MachineSection(Resources):
    """One machine, or ``count`` equal ones.

    Any key besides the known ones is a further resource that tasks may demand.
    """

    name: Name | None = None
    """With a count the machines are called name0, name1, ...; default m0, m1, ..."""
    count: Few = 1
    """Number of equal machines."""
    nic: Annotated[Nic, BeforeValidator(_both_directions)]
    """``50 Gbit/s`` for both directions, or ``{in: ..., out: ...}``."""

    def names(self, position: int) -> list[str]:
        """Return the machines' names; ``position`` counts the machines before."""
        if self.name is None:
            return [f"m{position + i}" for i in range(self.count)]
        if self.count == 1:
            return [self.name]
        return [f"{self.name}{i}" for i in range(self.count)]


class ClusterSection(Section):
    """The emulated cluster."""

    machines: tuple[MachineSection, ...] = Field(min_length=1)
    """In the order that results are printed in."""

    def named(self) -> list[tuple[str, int]]:
        """Return (name, position in ``machines``) of every machine of the cluster."""
        named: list[tuple[str, int]] = []
        for position, section in enumerate(self.machines):
            named += [(name, position) for name in section.names(len(named))]
        return named

    def build(self) -> Cluster:
        """Return the cluster.

        Raises
        ------
        ValueError
            When a name occurs twice.
        """
        return Cluster(
            tuple(
                Machine(
                    name=name,
                    bandwidth_in=self.machines[position].nic.inward,
                    bandwidth_out=self.machines[position].nic.outward,
                    resources=self.machines[position].amounts(),
                )
                for name, position in self.named()
            )
        )
