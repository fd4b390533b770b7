"""Sections on what befalls a job: events, drawn failures, and checkpoints.

Events are capacities that change and faults at stated times; failures are drawn by the
rate of machines and links; checkpoints are what a job goes on from after one.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeAlias

import numpy as np
import pydantic
from pydantic import BeforeValidator, Field, Tag, WithJsonSchema

from emu.problem import CapacityChange, Cluster, Fault, Job
from emu.problem.fields import cluster_section
from emu.problem.fields.cluster_section import ClusterSection, Nic
from emu.problem.fields.quantities import Count, Duration, Name, Rate, Seed, only_if
from emu.problem.fields.section import Section, Trail
from emu.problem.fields.suggestion import nearest
from emu.systems import Problems
from emu.systems.job_section import JobSection
from emu.systems.system import systems

#: Keys of an event of each kind, and those that it may have beside them.
_KINDS: tuple[tuple[set[str], set[str]], ...] = (
    ({"machine", "nic"}, set()),
    ({"link", "bandwidth"}, set()),
    ({"cut"}, {"for", "direction"}),
    ({"slow", "by"}, {"for", "direction"}),
    ({"pause", "for"}, set()),
    ({"kill"}, {"recovery"}),
)
DEFAULT_RESTARTS = 3
#: Seconds from a death until a small job goes on: the least that emu took in 47 runs,
#: beside other work; see the history of measurements.
DEFAULT_RECOVERY = 2.0
_PATTERN = r"^\s*[0-9]{1,8}\s+iterations?\s*$"
_EXAMPLE = "20 iterations"
#: Times slower that anything may be: beyond it a job takes years.
_SLOWEST = 1e6


def _some_nic(found: Any) -> Any:
    if found == "none":
        raise ValueError("found 'none', but a NIC stays: write a rate")
    return cluster_section.both_directions(found)


class ProgressSection(Section):
    """A task that ends an iteration."""

    task: Name
    """Task, not its process."""
    iteration: Count
    """Number that it has ended by then: 1, or more, but not all."""


#: Time, or progress of a task.
Moment: TypeAlias = Annotated[
    Annotated[
        Duration,
        only_if(
            lambda time: time > 0,
            "found the start, write a later time: the cluster says it all",
        ),
        Tag("Moment"),
    ]
    | Annotated[ProgressSection, Tag("ProgressSection")],
    pydantic.Discriminator(
        lambda found: (
            "ProgressSection" if isinstance(found, dict | ProgressSection) else "Moment"
        )
    ),
]
#: Times that something is slower, and time that it is.
Factor: TypeAlias = Annotated[
    float,
    Field(strict=True),
    only_if(
        lambda times: 1 < times <= _SLOWEST,
        "found {0:g}, write how many times slower: more than 1, and "
        f"{_SLOWEST:g} at most; or a cut",
    ),
]
Length: TypeAlias = Annotated[
    Duration, only_if(lambda time: time > 0, "found zero, write how long it lasts")
]


class EventSection(Section):
    """A NIC or a link that gets another capacity, or a fault."""

    at: Moment
    """Since the job or lab began; for ``kill`` also ``{task: w3, iteration: 12}``: as
    w3 has ended twelve."""
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
    """Task, process, machine or host; see ``on_failure``."""
    recovery: Duration | None = None
    """Time from it to the restart; default is the file's."""
    by: Factor | None = None
    """Times slower; what overlaps multiplies."""
    direction: Literal["in", "out", "both"] | None = None
    """Direction of a NIC; default of ``cut`` is ``both``."""
    length: Length | None = Field(None, alias="for")
    """Default is to the end."""

    @pydantic.model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        names = {"length": "for"}
        kinds = {names.get(key, key) for key in self.model_fields_set - {"at"}}
        if not any(own <= kinds <= own | beside for own, beside in _KINDS):
            raise ValueError(
                f"found {' and '.join(sorted(kinds)) or 'only at'}, write machine and "
                "nic, or link and bandwidth, or cut, or slow and by, or pause "
                "and for, or kill"
            )
        if isinstance(self.at, ProgressSection) and self.kill is None:
            raise ValueError(
                "found at: {task, iteration}, write a time: a kill alone comes as a "
                "task ends an iteration"
            )
        return self

    @property
    def time(self) -> float:
        """Seconds; infinite where it is the progress of a task."""
        return math.inf if isinstance(self.at, ProgressSection) else self.at

    @property
    def until(self) -> float:
        """When a fault is over, infinite where it never is."""
        return math.inf if self.length is None else self.time + self.length

    def changes(self) -> tuple[CapacityChange, ...]:
        """Return the changes that the event makes to the links of a cluster."""
        rates: dict[str, float] = {}
        if self.nic is not None:
            rates = {"out": self.nic.outward, "in": self.nic.inward}
            rates = {f"{self.machine} {way}": rate for way, rate in rates.items()}
        elif self.link is not None:
            rates[self.link] = self.bandwidth or 0.0
        return tuple(CapacityChange(self.time, *each) for each in rates.items())

    def faults(self, links: Sequence[str]) -> tuple[Fault, ...]:
        """Return the faults of links or of a machine that the event is.

        ``links``: names of all links that are no NICs.
        """
        name = self.cut or self.slow
        factor = 1.0 / (self.by or math.inf)
        since = self.time
        until = self.until
        if self.pause is not None:
            return (Fault(self.pause, since, until, 0.0, of_machine=True),)
        if name is None:
            return ()
        if self.slow and self.direction is None and name not in links:
            return (Fault(name, since, until, factor, of_machine=True),)
        ways = ("out", "in") if self.direction in {None, "both"} else (self.direction,)
        names = [name] if name in links else [f"{name} {way}" for way in ways]
        return tuple(Fault(each, since, until, factor) for each in names)


def event_errors(events: Sequence[EventSection], cluster: ClusterSection) -> Problems:
    """Yield (where, what is wrong and what would be right) of what events change."""
    nics = {name: machine.nic for name, machine in cluster.by_name.items()}
    links = [link.name for link in cluster.links]
    links += [link.name for link in cluster_section.rack_links(cluster.racks)]
    counts: Counter[tuple[float, str]] = Counter()
    for position, event in enumerate(events):
        if event.kill:
            continue  # its tasks are those of the built job
        if event.cut or event.slow or event.pause:
            for key, problem in _fault_errors(event, nics, links):
                yield ("events", position, key), problem
            continue
        key, names = ("link", links) if event.link else ("machine", [*nics])
        name = event.link or event.machine or ""
        trail: Trail = ("events", position, key)
        counts[event.time, f"{key} {name}"] += 1
        if name not in names:
            yield trail, f"no {key} {name!r}, {nearest(name, names)}"
        elif key == "machine" and nics[name].inward == 0:
            yield trail, f"{name} has no NIC: write a machine that has one, or a link"
        elif counts[event.time, f"{key} {name}"] > 1:
            problem = f"{name} changes twice at {event.time:g} s, write one of the two"
            yield ("events", position, "at"), problem


def kill_errors(
    events: Sequence[EventSection],
    machines: Sequence[str],
    hosts: Mapping[str, str],
    job: Job,
) -> Problems:
    """Yield (where, what is wrong and what would be right) of what is killed."""
    tasks = [job.tasks[t].name for own in job.processes.values() for t in own]
    by_kind = {
        "host": {*hosts.values()},
        "machine": {*machines},
        "task": {*tasks, *({*job.processes} - {*machines})},
    }
    for position, event in enumerate(events):
        name = event.kill
        trail = ("events", position, "kill")
        if name is None:
            continue
        kinds = [kind for kind, names in by_kind.items() if name in names]
        homeless = [machine for machine in machines if machine not in hosts]
        if kinds[1:]:
            problem = f"{name!r} is a {' and a '.join(kinds)}: give one another name"
            yield trail, problem
        elif not kinds and name not in job.processes:
            # A machine of P3 has thirty tasks and one process.
            hint = nearest(name, [*job.processes, *machines, *by_kind["host"]])
            yield trail, f"no task, process, machine or host {name!r}, {hint}"
        elif kinds == ["host"] and homeless:
            problem = (
                f"what dies with {name} is open: write the host of "
                f"{', '.join(homeless[:8])} into emulation.hosts, too"
            )
            yield trail, problem


def idle_events(events: Sequence[EventSection], makespan: float) -> Iterator[str]:
    """Yield a sentence for every event that comes after the end of a job."""
    problem = f"the job has ended, at {makespan:.6g} s: it changes nothing"
    for position, event in enumerate(events):
        if makespan <= event.time < math.inf:
            yield f"events[{position}]: at {event.time:.6g} s {problem}"


def _fault_errors(
    event: EventSection, nics: Mapping[str, Nic], links: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield (key, what is wrong) of one fault."""
    kinds = [key for key in ("cut", "slow", "pause") if getattr(event, key) is not None]
    key = kinds[0]
    name = getattr(event, kinds[0])
    of_tasks = key == "pause" or (key == "slow" and event.direction is None)
    names = [*nics] if key == "pause" else [*nics, *links]
    what = "no machine" if key == "pause" else "no machine and no link"
    if name not in names:
        yield key, f"{what} {name!r}, {nearest(str(name), names)}"
    elif name in nics and name in links:
        yield key, f"{name!r} is a machine and a link: give one of them another name"
    elif name in links:
        if event.direction is not None:
            yield "direction", f"{name} is a link, and has one: remove this key"
    elif nics[name].inward == 0 and not of_tasks:
        yield key, f"{name} has no NIC: write a machine that has one, or a link"


class FailureSection(Section):
    """Faults of every machine, or of every link that is no NIC."""

    every: Length
    """Mean time between two, exponential."""
    length: Length | None = Field(None, alias="for")
    """Length of each, but of ``kill``."""
    what: Literal["pause", "slow", "cut", "kill"] = "pause"
    """As of ``events``; ``cut`` is of NICs."""
    by: Factor | None = None
    """Times slower."""
    most: Annotated[Count, Field(le=10_000)] = 100
    """Most faults of each."""

    def draw(self, name: str, seed: int) -> Iterator[tuple[float, float]]:
        """Yield the beginning and the end of every fault of a machine or link."""
        random = np.random.default_rng([seed, *name.encode()])
        time = 0.0
        for _ in range(self.most):
            gap = -math.log1p(-random.random()) * self.every
            since = time + max(gap, 1e-9 * self.every)
            time = since + (self.length or 0.0)
            yield since, time


class FailuresSection(Section):
    """Rates of faults, the same ones in simulation and runs."""

    machine: FailureSection | None = None
    """Every machine: ``{every: 2 h, for: 10 s, what: pause}``."""
    link: FailureSection | None = None
    """Every link but NICs, ``cut`` or ``slow``."""
    seed: Seed | None = None
    """Default is the scenario's."""

    @property
    def cuts(self) -> bool:
        """True where NICs of machines are cut."""
        return self.machine is not None and self.machine.what == "cut"

    @property
    def mortal(self) -> float:
        """Mean seconds between two deaths of a machine; 0 where none dies."""
        of = self.machine
        return of.every if of is not None and of.what == "kill" else 0.0

    def deaths(self, cluster: Cluster, seed: int) -> list[tuple[float, str]]:
        """Return the times at which machines are killed, with their names."""
        if self.machine is None or not self.mortal:
            return []
        seed = seed if self.seed is None else self.seed
        names = [machine.name for machine in cluster.machines]
        return [(t, n) for n in names for t, _ in self.machine.draw(n, seed)]

    def faults(self, cluster: Cluster, seed: int) -> list[Fault]:
        """Return all faults, subject by subject in the order of their times.

        ``seed``: that of the scenario, where these have none of their own.
        """
        seed = seed if self.seed is None else self.seed
        faults: list[Fault] = []
        subjects = [(self.machine, m.name, m.has_nic) for m in cluster.machines]
        subjects += [(self.link, link.name, True) for link in cluster.shared_links]
        for kind, name, nic in subjects:
            of_machine = kind is self.machine
            cut = of_machine and self.cuts
            if kind is None or (of_machine and self.mortal) or (cut and not nic):
                continue
            factor = 1.0 / kind.by if kind.by else 0.0
            names = [f"{name} out", f"{name} in"] if cut else [name]
            whole = of_machine and not cut
            for span in kind.draw(name, seed):
                faults += [Fault(n, *span, factor, of_machine=whole) for n in names]
        return faults


def failure_errors(failures: FailuresSection | None) -> Problems:
    """Yield (where, what is wrong and what would be right) of drawn faults."""
    for key in ("machine", "link") if failures else ():
        kind: FailureSection | None = getattr(failures, key)
        if kind is None:
            continue
        trail: Trail = ("failures", key)
        if key == "link" and kind.what in {"pause", "kill"}:
            yield (*trail, "what"), "a link has no tasks: write cut, or slow and by"
        if (kind.length is None) is not (kind.what == "kill"):
            problem = "a machine is dead until it is restarted, see recovery: remove it"
            missing = "is missing, write how long it lasts"
            yield (*trail, "for"), missing if kind.length is None else problem
        if kind.what == "slow" and kind.by is None:
            yield (*trail, "by"), "is missing, write how many times slower, by: 3 say"
        if kind.what != "slow" and kind.by is not None:
            yield (*trail, "by"), f"is of what: slow, found {kind.what}: remove it"


def idle_faults(
    failures: FailuresSection, drawn: Sequence[Fault], makespan: float
) -> Iterator[str]:
    """Yield a sentence where drawn faults are over before a job is."""
    for key in ("machine", "link"):
        kind = getattr(failures, key)
        if kind is None:
            continue
        ends: dict[str, list[float]] = {}
        for fault in drawn:
            if fault.of_machine == (key == "machine") or kind.what == "cut":
                ends.setdefault(fault.subject, []).append(fault.until)
        full = ((max(each), n) for n, each in ends.items() if len(each) >= kind.most)
        over, name = min(full, key=lambda one: one[0], default=(makespan, ""))
        if over < makespan:
            yield (
                f"failures.{key}: the {kind.most} of {name} are over at {over:.6g} s, "
                "before the job: write a larger most"
            )


def _parse(found: object) -> int:
    if not isinstance(found, str) or not re.fullmatch(_PATTERN, found):
        raise ValueError(f"found {found!r}, write for example {_EXAMPLE!r}")
    return int(found.split()[0])


#: ``20 iterations``.
Iterations: TypeAlias = Annotated[
    int,
    BeforeValidator(_parse),
    Field(ge=1, le=10**7),
    pydantic.PlainSerializer(lambda count: f"{count} iterations", return_type=str),
    WithJsonSchema({"type": "string", "pattern": _PATTERN, "examples": [_EXAMPLE]}),
]


class CheckpointSection(Section):
    """Parameters and optimiser state that are kept while a job runs."""

    every: Iterations
    """Iterations between two checkpoints: ``20 iterations``."""
    takes: Duration | None = None
    """Time for which tasks with state stand still."""
    to: Literal["disk", "peer"] = "disk"
    """``disk``: kept in the run directory; ``peer``: sent to the next machine, lost
    where both die."""


def checkpoint_errors(job: JobSection, *, several: bool) -> Problems:
    """Yield (where, what is wrong and what would be right) of a stated checkpoint."""
    able = [name for name, system in systems().items() if system.cuts is not None]
    if several:
        problem = "several jobs keep no checkpoints: run each alone, or remove this key"
        yield ("checkpoint",), problem
    elif job.system not in able:
        known = " and ".join(", ".join(able).rsplit(", ", 1))
        problem = f"a {job.system} job keeps no checkpoints, jobs of system {known} do"
        yield ("checkpoint",), f"{problem}: remove this key"
    elif job.uncut:
        yield ("checkpoint",), job.uncut
