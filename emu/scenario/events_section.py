"""Section ``events``: capacities that change, and faults, while a job runs."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from emu.fields.network_section import Nic, both_directions, rack_links
from emu.fields.quantities import Duration, Name, Rate
from emu.fields.section import Section
from emu.fields.suggestion import nearest
from emu.problem import CapacityChange, Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emu.fields.cluster_section import ClusterSection
    from emu.fields.section import Trail
    from emu.problem import Job


def _after_the_start(time: float) -> float:
    if not time > 0:
        raise ValueError("found the start, write a later time: the cluster says it all")
    return time


def _some_time(length: float) -> float:
    if not length > 0:
        raise ValueError("found zero, write how long it lasts")
    return length


def _slower(times: float) -> float:
    if not 1 < times <= _SLOWEST:
        raise ValueError(
            f"found {times:g}, write how many times slower: more than 1, and "
            f"{_SLOWEST:g} at most; or a cut"
        )
    return times


def _some_nic(found: Any) -> Any:
    if found == "none":
        raise ValueError("found 'none', but a NIC stays: write a rate")
    return both_directions(found)


#: Times slower that anything may be: beyond it a job takes years.
_SLOWEST = 1e6
#: Times that something is slower, and time that it is.
Factor: TypeAlias = Annotated[float, Field(strict=True), AfterValidator(_slower)]
Length: TypeAlias = Annotated[Duration, AfterValidator(_some_time)]
#: Keys of an event of each kind, and those that it may have beside them.
_KINDS: tuple[tuple[set[str], set[str]], ...] = (
    ({"machine", "nic"}, set()),
    ({"link", "bandwidth"}, set()),
    ({"cut"}, {"for", "direction"}),
    ({"slow", "by"}, {"for", "direction"}),
    ({"pause", "for"}, set()),
    ({"kill"}, set()),
)


class EventSection(Section):
    """A NIC or a link that gets another capacity, or a fault."""

    at: Annotated[Duration, AfterValidator(_after_the_start)]
    """Since the job, or a lab's programs, began."""
    machine: Name | None = None
    """Whose NIC changes."""
    nic: Annotated[Nic, BeforeValidator(_some_nic)] | None = None
    """New rates: ``20 Mbit/s`` or ``{in: ..., out: ...}``."""
    link: Name | None = None
    """Link, of ``cluster.links`` or a rack (``r0 up``)."""
    bandwidth: Rate | None = None
    """New bandwidth."""
    cut: Name | None = None
    """Link, or machine whose NIC, carries nothing."""
    slow: Name | None = None
    """Machine whose tasks are slower, or with a ``direction`` its NIC; or a link."""
    pause: Name | None = None
    """Machine whose tasks stand still."""
    kill: Name | None = None
    """Task or machine that dies; see ``on_failure``."""
    by: Factor | None = None
    """Times slower; what overlaps multiplies."""
    direction: Literal["in", "out", "both"] | None = None
    """Direction of a NIC; default of ``cut`` is ``both``."""
    length: Length | None = Field(None, alias="for")
    """Length; default is to the end."""

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        names = {"length": "for"}
        stated = {names.get(key, key) for key in self.model_fields_set - {"at"}}
        if not any(own <= stated <= own | beside for own, beside in _KINDS):
            raise ValueError(
                f"found {' and '.join(sorted(stated)) or 'only at'}, write machine and "
                "nic, or link and bandwidth, or cut, or slow and by, or pause "
                "and for, or kill"
            )
        return self

    @property
    def until(self) -> float:
        """When a fault is over, infinite where it never is."""
        return math.inf if self.length is None else self.at + self.length

    def changes(self) -> tuple[CapacityChange, ...]:
        """Return the changes that the event makes to the links of a cluster."""
        if self.nic is not None:
            return (
                CapacityChange(self.at, f"{self.machine} out", self.nic.outward),
                CapacityChange(self.at, f"{self.machine} in", self.nic.inward),
            )
        if self.link is None:
            return ()
        return (CapacityChange(self.at, self.link, self.bandwidth or 0.0),)

    def faults(self, links: Sequence[str]) -> tuple[Fault, ...]:
        """Return the faults of links or of a machine that the event is.

        Parameters
        ----------
        links
            Names of all links that are no NICs.
        """
        name, factor = self.cut or self.slow, 1.0 / (self.by or math.inf)
        since, until = self.at, self.until
        if self.pause is not None:
            return (Fault(self.pause, since, until, 0.0, of_machine=True),)
        if name is None:
            return ()
        if self.slow and self.direction is None and name not in links:
            return (Fault(name, since, until, factor, of_machine=True),)
        ways = ("out", "in") if self.direction in {None, "both"} else (self.direction,)
        names = [name] if name in links else [f"{name} {way}" for way in ways]
        return tuple(Fault(each, since, until, factor) for each in names)


def event_errors(
    events: Sequence[EventSection], cluster: ClusterSection
) -> Iterator[tuple[Trail, str]]:
    """Yield (where, what is wrong and what would be right) of what events change."""
    nics = {name: cluster.machines[place].nic for name, place in cluster.named()}
    links = [link.name for link in cluster.links]
    links += [link.name for link in rack_links(cluster.racks)]
    seen: Counter[tuple[float, str]] = Counter()
    for position, event in enumerate(events):
        if event.kill:
            continue  # its tasks are those of the built job
        if event.cut or event.slow or event.pause:
            for key, problem in _fault_errors(event, nics, links):
                yield ("events", position, key), problem
            continue
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


def kill_errors(
    events: Sequence[EventSection], machines: Sequence[str], job: Job
) -> Iterator[tuple[Trail, str]]:
    """Yield (where, what is wrong and what would be right) of what is killed."""
    tasks = [job.tasks[t].name for own in job.processes.values() for t in own]
    for position, event in enumerate(events):
        name, trail = event.kill, ("events", position, "kill")
        if name in machines and name in tasks:
            yield trail, f"{name!r} is a machine and a task: give one another name"
        elif name is not None and name not in [*machines, *tasks]:
            known = nearest(name, [*tasks, *machines])
            yield trail, f"no task and no machine {name!r}, {known}"


def idle_events(events: Sequence[EventSection], makespan: float) -> Iterator[str]:
    """Yield a sentence for every event that comes after the end of a job."""
    for position, event in enumerate(events):
        if event.at >= makespan:
            yield (
                f"events[{position}]: at {event.at:.6g} s the job has ended, at "
                f"{makespan:.6g} s: it changes nothing"
            )


def _fault_errors(
    event: EventSection, nics: dict[str, Nic], links: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield (key, what is wrong) of one fault."""
    key, name = next(
        (key, name)
        for key, name in vars(event).items()
        if key in {"cut", "slow", "pause"} and name is not None
    )
    of_tasks = key == "pause" or (key == "slow" and event.direction is None)
    known = [*nics] if key == "pause" else [*nics, *links]
    what = "no machine" if key == "pause" else "no machine and no link"
    if name not in known:
        yield key, f"{what} {name!r}, {nearest(str(name), known)}"
    elif name in nics and name in links:
        yield key, f"{name!r} is a machine and a link: give one of them another name"
    elif name in links:
        if event.direction is not None:
            yield "direction", f"{name} is a link, and has one: remove this key"
    elif nics[name].inward == 0 and not of_tasks:
        yield key, f"{name} has no NIC: write a machine that has one, or a link"
