"""Section ``events``: what happens at stated times while the job runs.

An event is one of several kinds, told apart by its keys: so far NICs and links that get
another capacity.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, model_validator

from emu.fields.network_section import Nic, both_directions, rack_links
from emu.fields.quantities import Duration, Name, Rate
from emu.fields.section import Section
from emu.fields.suggestion import nearest
from emu.problem import CapacityChange

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emu.fields.cluster_section import ClusterSection
    from emu.fields.section import Trail


def _after_the_start(time: float) -> float:
    if not time > 0:
        raise ValueError("found the start, write a later time: the cluster says it all")
    return time


def _some_nic(found: Any) -> Any:
    if found == "none":
        raise ValueError("found 'none', but a NIC stays: write a rate")
    return both_directions(found)


class EventSection(Section):
    """A NIC or a link that gets another capacity."""

    at: Annotated[Duration, AfterValidator(_after_the_start)]
    """Since the job, or the programs of a lab, began; later than that."""
    machine: Name | None = None
    """Whose NIC changes."""
    nic: Annotated[Nic, BeforeValidator(_some_nic)] | None = None
    """New rates, ``20 Mbit/s`` for both directions or ``{in: ..., out: ...}``."""
    link: Name | None = None
    """Which link changes, one of ``cluster.links`` or of a rack (``r0 up``)."""
    bandwidth: Rate | None = None
    """New bandwidth."""

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        stated = self.model_fields_set - {"at"}
        if stated not in ({"machine", "nic"}, {"link", "bandwidth"}):
            raise ValueError(
                f"found {' and '.join(sorted(stated)) or 'only at'}, write machine and "
                "nic, or link and bandwidth"
            )
        return self

    def changes(self) -> tuple[CapacityChange, ...]:
        """Return the changes that the event makes to the links of a cluster."""
        if self.nic is not None:
            return (
                CapacityChange(self.at, f"{self.machine} out", self.nic.outward),
                CapacityChange(self.at, f"{self.machine} in", self.nic.inward),
            )
        return (CapacityChange(self.at, self.link or "", self.bandwidth or 0.0),)


def event_errors(
    events: Sequence[EventSection], cluster: ClusterSection
) -> Iterator[tuple[Trail, str]]:
    """Yield (where, what is wrong and what would be right) of what events change."""
    nics = {name: cluster.machines[place].nic for name, place in cluster.named()}
    links = [link.name for link in cluster.links]
    links += [link.name for link in rack_links(cluster.racks)]
    seen: Counter[tuple[float, str]] = Counter()
    for position, event in enumerate(events):
        key, known = ("link", links) if event.link else ("machine", [*nics])
        name = event.link or event.machine or ""
        trail: Trail = ("events", position, key)
        seen[event.at, f"{key} {name}"] += 1
        if name not in known:
            yield trail, f"no {key} {name!r}, {nearest(name, known)}"
        elif key == "machine" and nics[name].inward == 0:
            yield trail, f"{name} has no NIC: write a machine that has one, or a link"
        elif seen[event.at, f"{key} {name}"] > 1:
            problem = f"{name} changes twice at {event.at:g} s, write one of the two"
            yield ("events", position, "at"), problem
