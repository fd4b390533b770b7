"""Section ``cluster``: the emulated machines."""

from __future__ import annotations

from itertools import accumulate
from typing import Annotated

from pydantic import BeforeValidator, Field

from emu.fields.network_section import (
    LinkSection,
    Nic,
    RackSection,
    RouteSection,
    nic_or_none,
    rack_links,
    rack_routes,
)
from emu.fields.quantities import Few, Name, Positive, Price
from emu.fields.section import Resources, Section
from emu.problem import Cluster, Link, Machine, Route


class MachineSection(Resources):
    """One machine, or ``count`` equal ones.

    Any key besides the known ones is a further resource that tasks may demand.
    """

    name: Name | None = None
    """With a count the machines are called name0, name1, ...; default m0, m1, ..."""
    count: Few = 1
    """Number of equal machines."""
    nic: Annotated[Nic, BeforeValidator(nic_or_none)]
    """``50 Gbit/s`` for both directions, ``{in: ..., out: ...}``, or ``none``."""

    speed: Positive = 1.0
    """Speed over this computer's: a task takes its measured CPU seconds over this.
    Stated times go by ``device``."""

    device: Name | None = None
    """Device of its tasks, a word that ``times`` may state times for:
    ``{default: 40 ms, a100: 12 ms}``."""

    price: Price | None = None
    """Price of the machine while the job runs; where one has one, all need one."""

    slots: dict[Name, Few] = Field(default_factory=dict)
    """Slots per pool that its tasks share; a pool that is absent is unlimited."""

    def names(self, position: int) -> list[str]:
        """Return the machines' names; ``position`` counts the machines before."""
        if self.name is None:
            return [f"m{position + i}" for i in range(self.count)]
        if self.count == 1:
            return [self.name]
        return [f"{self.name}{i}" for i in range(self.count)]

    def build(self, name: str, unstated: dict[str, float]) -> Machine:
        """Return the machine, or one of several equal ones, called ``name``.

        Parameters
        ----------
        unstated
            Amounts of resources of which it says nothing.
        """
        return Machine(
            name=name,
            bandwidth_in=self.nic.inward,
            bandwidth_out=self.nic.outward,
            resources=unstated | self.amounts(),
            speed=self.speed,
            slots=self.slots,
        )


class ClusterSection(Section):
    """The emulated cluster."""

    machines: tuple[MachineSection, ...] = Field(min_length=1)
    """In the order that results are printed in."""
    links: tuple[LinkSection, ...] = ()
    """Links beside the NICs, for routes."""
    routes: tuple[RouteSection, ...] = ()
    """Between machines that are not simply joined by their NICs."""
    racks: tuple[RackSection, ...] = ()
    """Shorthand for two links and the routes of the machines of a rack."""
    topology: Name | None = None
    """Shorthand for machines, links and routes: ``dgx1``, ``two_dgx1``, ``pcie_8``, or
    a file of these keys."""

    def named(self) -> list[tuple[str, int]]:
        """Return (name, position in ``machines``) of every machine of the cluster."""
        named: list[tuple[str, int]] = []
        for position, section in enumerate(self.machines):
            named += [(name, position) for name in section.names(len(named))]
        return named

    def firsts(self) -> list[int]:
        """Return how many machines stand before each entry of ``machines``."""
        return [0, *accumulate(machine.count for machine in self.machines)][:-1]

    @property
    def has_gpus(self) -> bool:
        """True where a machine has a ``gpu``; those that state none then have none."""
        return any(machine.gpu for machine in self.machines)

    def build(self) -> Cluster:
        """Return the cluster.

        Raises
        ------
        ValueError
            When a name occurs twice, or as `Links`.
        """
        named = self.named()
        unstated = {"gpu": 0.0} if self.has_gpus else {}
        position = {name: m for m, (name, _) in enumerate(named)}
        routes = [
            Route(
                tuple(position[name] for name in route.sources),
                tuple(position[name] for name in route.destinations),
                route.through,
            )
            for route in self.routes
        ]
        return Cluster(
            tuple(self.machines[place].build(name, unstated) for name, place in named),
            (
                *(Link(link.name, link.bandwidth) for link in self.links),
                *rack_links(self.racks),
            ),
            (*routes, *rack_routes(self.racks, [name for name, _ in named])),
        )
