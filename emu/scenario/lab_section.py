"""Lab files: machines, and the user's own programs on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from emu.scenario.cluster_section import ClusterSection
from emu.scenario.events_section import EventSection
from emu.scenario.quantities import Duration, Name
from emu.scenario.section import Section

if TYPE_CHECKING:
    from emu.problem import Cluster


class ProgramSection(Section):
    """One program, on some machines or on all of them."""

    name: Name
    """Of its output files, with the machine's."""
    on: Literal["all"] | tuple[Name, ...] = "all"
    """Machines that run it, once each."""
    run: str = Field(min_length=1)
    """Shell command; ``{rank}``, ``{machine}``, ``{machines}``, ``{hosts file}`` and
    ``{address of NAME}`` are filled in."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment beside this computer's, filled in likewise."""


class LabSection(Section):
    """What runs on the machines, and how their NICs are shared."""

    programs: tuple[ProgramSection, ...] = ()
    """Started in this order, on every machine at once."""
    until: Name | None = None
    """The lab ends when all of these have; default is when every program has."""
    sharing: Literal["fair", "tcp"] = "fair"
    """``fair``: a queue per connection, so that shares are max-min; ``tcp``: one queue,
    as in a plain NIC and switch port."""
    queue: Duration | None = None
    """Seconds of its NIC's rate that one queue holds; default is 20 ms, and
    with ``fair`` up to 50 ms where that is less than what TCP begins with."""
    congestion_control: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")] = "reno"
    """Of TCP in every machine; one that the kernel has."""
    mtu: Annotated[int, Field(ge=576, le=9000)] = 1500
    """Bytes of a packet without its Ethernet header."""
    capture: bool = True
    """Whether the headers of all packets are noted, for traffic.npz and what crossed.
    """


class LabFile(Section):
    """A lab: NICs are payload rates, and no time is dilated."""

    cluster: ClusterSection
    """The machines; names are host names."""
    lab: LabSection = LabSection()
    """The programs."""
    events: tuple[EventSection, ...] = ()
    """Changes of NICs while programs run: ``{at: 5 s, machine: slow0, nic: 5 Mbit/s}``.
    """

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        machines = {name for name, _ in self.cluster.named()}
        for program in self.lab.programs:
            for name in program.on if program.on != "all" else ():
                if name not in machines:
                    known = ", ".join(sorted(machines))
                    raise ValueError(
                        f"lab.programs: {program.name} is on {name}, which is no "
                        f"machine; there are {known}"
                    )
        names = {program.name for program in self.lab.programs}
        if self.lab.until is not None and self.lab.until not in names:
            raise ValueError(
                f"lab.until: {self.lab.until} is no program; there are "
                f"{', '.join(sorted(names)) or 'none'}"
            )
        return self

    def to_cluster(self) -> Cluster:
        """Return the machines."""
        return self.cluster.build()
