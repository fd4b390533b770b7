"""Sections on what befalls a job: events, drawn failures, and checkpoints.

Events are capacities that change and faults at stated times; failures are drawn by the
rate of machines and links; checkpoints are what a job goes on from after one.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeAlias

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


class _Kind(NamedTuple):
    """Keys of an event of one kind."""

    needed: set[str]
    allowed: set[str]
    """Those that it may have beside them."""

    def fits(self, keys: set[str]) -> bool:
        """Return True where an event of the kind may have these keys."""
        return self.needed <= keys <= self.needed | self.allowed


_KINDS = (
    _Kind(needed={"machine", "nic"}, allowed=set()),
    _Kind(needed={"link", "bandwidth"}, allowed=set()),
    _Kind(needed={"cut"}, allowed={"for", "direction"}),
    _Kind(needed={"slow", "by"}, allowed={"for", "direction"}),
    _Kind(needed={"pause", "for"}, allowed=set()),
    _Kind(needed={"kill"}, allowed={"recovery"}),
)
#: Restarts of a job whose file states none.
DEFAULT_RESTARTS = 3
#: Seconds from a death until a small job goes on: the least that emu took in 47 runs,
#: beside other work; see the history of measurements.
DEFAULT_RECOVERY = 2.0
#: With its unit, as every quantity: a bare number might be meant as seconds.
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
    # By what is found, so that an error is of one kind: a plain union names those of
    # all.
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
        keys = self.model_fields_set - {"at"}
        # The file calls it ``for``, which no name in Python may be.
        if "length" in keys:
            keys = keys - {"length"} | {"for"}
        is_known = any(kind.fits(keys) for kind in _KINDS)
        if not is_known:
            found = " and ".join(sorted(keys))
            raise ValueError(
                f"found {found or 'only at'}, write machine and "
                "nic, or link and bandwidth, or cut, or slow and by, or pause "
                "and for, or kill"
            )

        is_of_progress = isinstance(self.at, ProgressSection)
        if is_of_progress and self.kill is None:
            raise ValueError(
                "found at: {task, iteration}, write a time: a kill alone comes as a "
                "task ends an iteration"
            )
        return self

    @property
    def time(self) -> float:
        """Seconds; infinite where it is the progress of a task."""
        if isinstance(self.at, ProgressSection):
            return math.inf
        return self.at

    @property
    def until(self) -> float:
        """When a fault is over, infinite where it never is."""
        if self.length is None:
            return math.inf
        return self.time + self.length

    def changes(self) -> tuple[CapacityChange, ...]:
        """Return the changes that the event makes to the links of a cluster."""
        if self.nic is not None:
            outward = f"{self.machine} out"
            inward = f"{self.machine} in"
            return (
                CapacityChange(self.time, outward, self.nic.outward),
                CapacityChange(self.time, inward, self.nic.inward),
            )
        if self.link is not None:
            # With a link a bandwidth is stated, see `_of_one_kind`: 0 is for mypy
            # alone.
            bandwidth = self.bandwidth or 0.0
            change = CapacityChange(self.time, self.link, bandwidth)
            return (change,)
        return ()

    def faults(self, links: Sequence[str]) -> tuple[Fault, ...]:
        """Return the faults of links or of a machine that the event is.

        ``links``: names of all links that are no NICs.
        """
        fault = partial(
            Fault,
            since=self.time,
            until=self.until,
            factor=_share_left(self.by),
        )

        if self.pause is not None:
            return (fault(self.pause, of_machine=True),)
        name = self.cut or self.slow
        if name is None:
            return ()
        if name in links:
            return (fault(name),)
        # Without a direction a slow machine means its tasks, not its NIC.
        if self.slow and self.direction is None:
            return (fault(name, of_machine=True),)
        if self.direction in {"in", "out"}:
            return (fault(f"{name} {self.direction}"),)
        return fault(f"{name} out"), fault(f"{name} in")


def _share_left(times_slower: float | None) -> float:
    """Return the share that a fault leaves of what there was."""
    # A cut or a pause states no ``by``: nothing is left.
    if not times_slower:
        return 0.0
    return 1.0 / times_slower


def event_errors(events: Sequence[EventSection], cluster: ClusterSection) -> Problems:
    """Yield (where, what is wrong and what would be right) of what events change."""
    nics = {name: machine.nic for name, machine in cluster.by_name.items()}
    # Links of racks, which no section of their own names, may change like others.
    rack_links = cluster_section.rack_links(cluster.racks)
    links = [link.name for link in cluster.links]
    links += [link.name for link in rack_links]
    counts: Counter[tuple[float, str]] = Counter()
    for position, event in enumerate(events):
        if event.kill:
            continue  # its tasks are those of the built job
        if event.cut or event.slow or event.pause:
            for key, problem in _fault_errors(event, nics, links):
                yield ("events", position, key), problem
            continue

        key = "machine"
        name = event.machine or ""
        names = list(nics)
        if event.link:
            key = "link"
            name = event.link
            names = links
        trail: Trail = ("events", position, key)
        change = (event.time, f"{key} {name}")
        counts[change] += 1
        if name not in names:
            yield trail, f"no {key} {name!r}, {nearest(name, names)}"
        elif key == "machine" and nics[name].inward == 0:
            yield trail, f"{name} has no NIC: write a machine that has one, or a link"
        # Of two changes of one instant nobody could say which holds.
        elif counts[change] > 1:
            problem = f"{name} changes twice at {event.time:g} s, write one of the two"
            yield ("events", position, "at"), problem


def kill_errors(
    events: Sequence[EventSection],
    machines: Sequence[str],
    hosts: Mapping[str, str],
    job: Job,
) -> Problems:
    """Yield (where, what is wrong and what would be right) of what is killed."""
    # A process may be called as its machine (DGCL): the name means the machine then.
    tasks = set(job.processes) - set(machines)
    for members in job.processes.values():
        for member in members:
            task = job.tasks[member]
            tasks.add(task.name)
    names_of_kinds = {
        "host": set(hosts.values()),
        "machine": set(machines),
        "task": tasks,
    }
    homeless = [machine for machine in machines if machine not in hosts]
    for position, event in enumerate(events):
        if event.kill is None:
            continue
        name = event.kill
        trail = ("events", position, "kill")

        kinds = [kind for kind, names in names_of_kinds.items() if name in names]
        if len(kinds) > 1:
            words = " and a ".join(kinds)
            problem = f"{name!r} is a {words}: give one another name"
            yield trail, problem
        elif not kinds and name not in job.processes:
            # A machine of P3 has thirty tasks and one process.
            candidates = [*job.processes, *machines, *names_of_kinds["host"]]
            hint = nearest(name, candidates)
            yield trail, f"no task, process, machine or host {name!r}, {hint}"
        # A machine without a stated host may be on any, this one included.
        elif kinds == ["host"] and homeless:
            machines_without = ", ".join(homeless[:8])
            problem = (
                f"what dies with {name} is open: write the host of "
                f"{machines_without} into emulation.hosts, too"
            )
            yield trail, problem


def idle_events(events: Sequence[EventSection], makespan: float) -> Iterator[str]:
    """Yield a sentence for every event that comes after the end of a job."""
    problem = f"the job has ended, at {makespan:.6g} s: it changes nothing"
    for position, event in enumerate(events):
        if makespan <= event.time < math.inf:
            yield f"events[{position}]: at {event.time:.6g} s {problem}"


def _fault_errors(
    event: EventSection,
    nics: Mapping[str, Nic],
    links: Sequence[str],
) -> Iterator[tuple[str, str]]:
    """Yield (key, what is wrong) of one fault."""
    key = "pause"
    name = event.pause
    names = list(nics)
    kinds = "no machine"
    is_of_tasks = True
    if name is None:
        key = "slow"
        name = event.slow
        names += links
        kinds = "no machine and no link"
        is_of_tasks = event.direction is None
        if event.cut is not None:
            key = "cut"
            name = event.cut
            is_of_tasks = False

    if name not in names:
        yield key, f"{kinds} {name!r}, {nearest(str(name), names)}"
    elif name in nics and name in links:
        yield key, f"{name!r} is a machine and a link: give one of them another name"
    elif name in links:
        if event.direction is not None:
            yield "direction", f"{name} is a link, and has one: remove this key"
    elif nics[name].inward == 0 and not is_of_tasks:
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
    # All of them are drawn, however short the job is.
    most: Annotated[Count, Field(le=10_000)] = 100
    """Most faults of each."""

    def draw(self, name: str, seed: int) -> Iterator[tuple[float, float]]:
        """Yield the beginning and the end of every fault of a machine or link."""
        # By name, so that one more machine leaves the faults of others as they are.
        random = np.random.default_rng([seed, *name.encode()])
        end = 0.0
        # In any simulation the same: drawn without looking at how long the job lasts.
        for _ in range(self.most):
            # Exponential, by the inverse of its distribution.
            gap = -math.log1p(-random.random()) * self.every
            # Never at the very instant at which the one before ends.
            least_gap = 1e-9 * self.every
            begin = end + max(gap, least_gap)
            end = begin + (self.length or 0.0)
            yield begin, end

    def faults(
        self,
        name: str,
        seed: int,
        subjects: Sequence[str],
        *,
        of_machine: bool = False,
    ) -> Iterator[Fault]:
        """Yield faults of all subjects at the times that are drawn for a name."""
        factor = _share_left(self.by)
        for begin, end in self.draw(name, seed):
            for subject in subjects:
                yield Fault(
                    subject,
                    since=begin,
                    until=end,
                    factor=factor,
                    of_machine=of_machine,
                )


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
        if self.machine is None or self.machine.what != "kill":
            return 0.0
        return self.machine.every

    def deaths(self, cluster: Cluster, seed: int) -> list[tuple[float, str]]:
        """Return the times at which machines are killed, with their names."""
        if self.machine is None or not self.mortal:
            return []
        seed = seed if self.seed is None else self.seed
        names = cluster.names
        deaths = []
        for name in names:
            for time, _ in self.machine.draw(name, seed):
                deaths.append((time, name))
        return deaths

    def draws(self, cluster: Cluster, seed: int) -> list[tuple[float, str]]:
        """Return the times of all failures, each with its machine or link."""
        by_key = self.faults_by_key(cluster, seed)
        draws = self.deaths(cluster, seed)
        for fault in by_key["link"]:
            draws.append((fault.since, fault.subject))
        for fault in by_key["machine"]:
            if fault.of_machine:
                draws.append((fault.since, fault.subject))
            # A cut is of both directions, of which one counts.
            elif fault.subject.endswith(" out"):
                draws.append((fault.since, fault.subject.removesuffix(" out")))
        return draws

    def faults(self, cluster: Cluster, seed: int) -> list[Fault]:
        """Return all faults, subject by subject in the order of their times.

        ``seed``: that of the scenario, where these have none of their own.
        """
        by_key = self.faults_by_key(cluster, seed)
        return [*by_key["machine"], *by_key["link"]]

    def faults_by_key(self, cluster: Cluster, seed: int) -> dict[str, list[Fault]]:
        """Return the faults of ``machine`` and of ``link``, each as in `faults`."""
        seed = seed if self.seed is None else self.seed
        faults: dict[str, list[Fault]] = {"machine": [], "link": []}
        section = self.machine
        # Deaths are no faults of links or speeds: see `deaths`.
        if section is not None and not self.mortal:
            for machine in cluster.machines:
                name = machine.name
                if not self.cuts:
                    drawn = section.faults(name, seed, [name], of_machine=True)
                    faults["machine"] += drawn
                elif machine.has_nic:
                    # Both directions at once, by what is drawn of the machine.
                    nic = [f"{name} out", f"{name} in"]
                    faults["machine"] += section.faults(name, seed, nic)
        if self.link is not None:
            for link in cluster.shared_links:
                faults["link"] += self.link.faults(link.name, seed, [link.name])
        return faults


def failure_errors(failures: FailuresSection | None) -> Problems:
    """Yield (where, what is wrong and what would be right) of drawn faults."""
    for key in ("machine", "link") if failures else ():
        section: FailureSection | None = getattr(failures, key)
        if section is None:
            continue
        trail: Trail = ("failures", key)
        kind = section.what

        if key == "link" and kind in {"pause", "kill"}:
            yield (*trail, "what"), "a link has no tasks: write cut, or slow and by"
        if section.length is None and kind != "kill":
            yield (*trail, "for"), "is missing, write how long it lasts"
        if section.length is not None and kind == "kill":
            problem = "a machine is dead until it is restarted, see recovery: remove it"
            yield (*trail, "for"), problem
        if section.by is None and kind == "slow":
            yield (*trail, "by"), "is missing, write how many times slower, by: 3 say"
        if section.by is not None and kind != "slow":
            yield (*trail, "by"), f"is of what: slow, found {kind}: remove it"


def idle_faults(
    failures: FailuresSection,
    faults_by_key: Mapping[str, Sequence[Fault]],
    makespan: float,
) -> Iterator[str]:
    """Yield a sentence where drawn faults are over before a job is.

    ``faults_by_key``: as `FailuresSection.faults_by_key` returns them.
    """
    for key, faults in faults_by_key.items():
        section = getattr(failures, key)
        if section is None:
            continue
        ends: dict[str, list[float]] = {}
        for fault in faults:
            ends.setdefault(fault.subject, []).append(fault.until)

        last = {
            name: max(times)
            for name, times in ends.items()
            if len(times) >= section.most
        }
        name = min(last, key=last.__getitem__, default="")
        if name and last[name] < makespan:
            yield (
                f"failures.{key}: the {section.most} of {name} are over at "
                f"{last[name]:.6g} s, before the job: write a larger most"
            )


def _parse(found: object) -> int:
    if not isinstance(found, str) or not re.fullmatch(_PATTERN, found):
        raise ValueError(f"found {found!r}, write for example {_EXAMPLE!r}")
    number, _ = found.split()
    return int(number)


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
    # To peers jobs took at most 0.73 % longer, in the scenarios that ship.
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
        *names, last = able
        words = f"{', '.join(names)} and {last}"
        problem = f"a {job.system} job keeps no checkpoints, jobs of system {words} do"
        yield ("checkpoint",), f"{problem}: remove this key"
    # The system keeps checkpoints, and a setting of this job rules them out.
    elif job.uncut:
        yield ("checkpoint",), job.uncut
