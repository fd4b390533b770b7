"""Lab files: machines, and the user's own programs on them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, PrivateAttr

from emu.fields.cluster_section import ClusterSection
from emu.fields.quantities import Duration, Name
from emu.fields.section import Section
from emu.fields.suggestion import nearest
from emu.scenario.document import Document, Origin
from emu.scenario.events_section import EventSection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emu.fields.section import Trail
    from emu.problem import Cluster


class ProgramSection(Section):
    """One program, on some machines or on all of them."""

    name: Name
    """Name of its output files, with the machine's."""
    on: Literal["all"] | tuple[Name, ...] = "all"
    """Machines that run it, once each."""
    run: str = Field(min_length=1)
    """Shell command; ``{rank}``, ``{machine}``, ``{machines}`` (their number),
    ``{address of NAME}``, ``{hosts file}`` (an address per line), ``{folder}`` (of the
    lab file) and ``{python}`` (which runs emu) are filled in."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment beside this computer's, filled in likewise."""


class LabSection(Section):
    """Programs on the machines, and how their NICs are shared."""

    programs: tuple[ProgramSection, ...] = ()
    """Started in this order, on every machine at once."""
    until: Name | None = None
    """The lab ends when all of these have; default is when every program has."""
    sharing: Literal["fair", "tcp"] = "fair"
    """``fair``: a queue per connection, so that shares are max-min; ``tcp``: one queue,
    as in a plain NIC and switch port."""
    queue: Duration | None = None
    """Depth of a queue in seconds of its NIC's rate; default is 20 ms, with ``fair`` up
    to 50 ms at slow NICs."""
    congestion_control: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")] = "reno"
    """Algorithm of TCP in every machine; one that the kernel has."""
    mtu: Annotated[int, Field(ge=576, le=9000)] = 1500
    """Bytes of a packet without its Ethernet header."""
    capture: bool = True
    """True where all packets' headers are noted, for traffic.npz and what crossed."""


class LabFile(Section):
    """A lab: NICs are payload rates, and no time is dilated."""

    cluster: ClusterSection
    """The machines; names are host names."""
    lab: LabSection = LabSection()
    """The programs."""
    events: tuple[EventSection, ...] = ()
    """Changes of NICs while programs run: ``{at: 5 s, machine: slow0, nic: 5 Mbit/s}``.
    """

    _origin: Origin = PrivateAttr(default_factory=Origin)

    @property
    def origin(self) -> Origin:
        """Where it was written."""
        return self._origin

    def read_from(self, document: Document) -> None:
        """Note where it was written, for errors that show later."""
        self._origin = Origin(document)

    @property
    def folder(self) -> Path:
        """Where its file lies; the working directory where it has none."""
        document = self._origin.document
        return Path(document.file).resolve().parent if document else Path.cwd()

    def to_cluster(self) -> Cluster:
        """Return the machines."""
        return self.cluster.build()


def name_errors(file: LabFile) -> Iterator[tuple[Trail, str]]:
    """Yield (where, what is wrong and what would be right) of names in a lab."""
    machines = [name for name, _ in file.cluster.named()]
    for position, program in enumerate(file.lab.programs):
        for name in program.on if program.on != "all" else ():
            if name not in machines:
                problem = f"no machine {name!r}, {nearest(name, machines)}"
                yield ("lab", "programs", position, "on"), problem
    names = [program.name for program in file.lab.programs]
    until = file.lab.until
    if until is not None and until not in names:
        known = nearest(until, names) if names else "and there are none: leave it out"
        yield ("lab", "until"), f"no program {until!r}, {known}"
