"""Emulated machines and the cluster that they form."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Machine:
    """One emulated machine, m of the paper.

    Parameters
    ----------
    name
        Unique in its cluster.
    bandwidth_in, bandwidth_out
        NIC capacity per direction, bytes per second, positive and finite.
    resources
        Capacity per resource name, C_m^r: ``cpu`` and ``gpu`` in pieces, ``memory`` in
        bytes, any further one in its own unit. A resource that is absent is unlimited.

    Raises
    ------
    ValueError
        When a bandwidth is not positive and finite, or a capacity is negative or NaN.
    """

    name: str
    bandwidth_in: float
    bandwidth_out: float
    resources: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for direction in ("in", "out"):
            bandwidth = getattr(self, f"bandwidth_{direction}")
            if not (math.isfinite(bandwidth) and bandwidth > 0):
                raise ValueError(
                    f"machine {self.name}: bandwidth {direction} is {bandwidth}, "
                    "it must be positive and finite"
                )
        for resource, capacity in self.resources.items():
            if not capacity >= 0:
                raise ValueError(
                    f"machine {self.name}: capacity of {resource} is {capacity}"
                )


@dataclass(frozen=True)
class Cluster:
    """The machines of a scenario, in the order of the file.

    Raises
    ------
    ValueError
        When there is no machine or a name occurs twice.
    """

    machines: tuple[Machine, ...]

    def __post_init__(self) -> None:
        if not self.machines:
            raise ValueError("a cluster needs at least one machine")
        names = [machine.name for machine in self.machines]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"machine {name} occurs twice")

    def index(self, name: str) -> int:
        """Return the position of the machine called ``name``.

        Raises
        ------
        ValueError
            When there is none.
        """
        for index, machine in enumerate(self.machines):
            if machine.name == name:
                return index
        known = ", ".join(machine.name for machine in self.machines)
        raise ValueError(f"no machine is called {name}; there are {known}")

    def resource_names(self) -> tuple[str, ...]:
        """Return every resource that some machine limits, sorted."""
        return tuple(
            sorted({r for machine in self.machines for r in machine.resources})
        )
