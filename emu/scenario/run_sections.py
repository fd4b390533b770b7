"""Sections on where and how a job is run, on prices, several jobs and labs.

Of these ``placement.tasks`` pins tasks: no placement policy may move them.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, Union

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, WithJsonSchema
from pydantic_core import core_schema
from typing_extensions import override

from emu.emulation import shaping
from emu.emulation.shaping import EmulationSettings
from emu.prediction import placement
from emu.prediction.analysis.throughput import Prices
from emu.problem import Cluster
from emu.problem.fields.cluster_section import ClusterSection
from emu.problem.fields.quantities import (
    Count,
    Duration,
    Expected,
    ExpectedDuration,
    ExpectedNumber,
    ExpectedRatio,
    ExpectedSize,
    FileName,
    Money,
    Name,
    Ports,
    Positive,
    Price,
    Ratio,
    Size,
    TaskName,
)
from emu.problem.fields.section import Section, Trail
from emu.problem.fields.suggestion import nearest
from emu.scenario import own_rules
from emu.scenario.document import Document, Origin
from emu.scenario.events_section import EventSection
from emu.systems import Problems
from emu.systems.job_section import JobSection
from emu.systems.system import section_type, section_types, systems

#: Where a scale is left to emu.
AUTO = "auto"
#: ``job.system`` where ``jobs`` states what is run.
SEVERAL = "several"
#: Prices of AWS Lambda as the paper of Dorylus has them.
_PAPER = Prices()


def _check_placement(found: object) -> str:
    policies = placement.PLACEMENT_POLICIES
    if not isinstance(found, str) or found not in policies:
        raise ValueError(f"found {found!r}, {nearest(str(found), policies)}")
    return found


#: How the JSON Schema has a policy that is a class, beside the names.
_PROGRAM = {"type": "string", "pattern": f"^({own_rules.PROGRAM.pattern})$"}
_RATES = {"enum": list(own_rules.list_policies())}
_PLACEMENTS = {"enum": list(placement.PLACEMENT_POLICIES)}
_NUL = "\0"
_HAS_NUL = "has a NUL, with which nothing starts: remove it"
RatePolicy: TypeAlias = Annotated[
    str,
    BeforeValidator(own_rules.check_policy),
    WithJsonSchema({"anyOf": [_RATES, _PROGRAM]}),
]
PlacementPolicy: TypeAlias = Annotated[
    str,
    BeforeValidator(_check_placement),
    WithJsonSchema(_PLACEMENTS),
]


#: A key of runs and of labs.
MostNicError: TypeAlias = Annotated[Ratio, Field(gt=0)]


class SectionOfSystem:
    """Validates a job by the section of its system, and imports no other.

    All of them together, 0.2 s of CPU, say what is wrong with ``system`` itself, and
    make the JSON Schema.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        return handler(self._union.core_schema)

    @cached_property
    def _union(self) -> TypeAdapter[Any]:
        kinds: Any = Union[(*section_types(),)]
        union: Any = Annotated[kinds, Field(discriminator="system")]
        return TypeAdapter(union)

    def _validate(self, value: Any) -> Any:
        if isinstance(value, JobSection):
            return value
        name = value.get("system") if isinstance(value, dict) else None
        if isinstance(name, str) and name in systems():
            return section_type(name).model_validate(value)
        # Only here for its error: it names the systems that there are.
        return self._union.validate_python(value)


#: One job, by its system.
AnyJob: TypeAlias = Annotated[JobSection, SectionOfSystem()]


def _of_a_whole(value: Expected) -> Expected:
    ends = value if isinstance(value, tuple) else (value,)
    for end in ends:
        # The open end of a range is infinite, and right.
        if 1 < end < math.inf:
            raise ValueError(f"found {100 * end:g} %, write 100 % or less")
    return value


class PlacementSection(Section):
    """Which task stands on which machine."""

    # Not ``ifs``, the first that fits: 6.28 s where the search finds 1.95.
    policy: PlacementPolicy = "best"
    """``best``: a search, never worse than ``etp``, the paper's (neither sees deaths,
    nor the volumes of caches); ``ifs``: any feasible one; ``distdgl``: samplers beside
    their workers; ``explicit``: see ``tasks``."""
    tasks: dict[Name, Name] = Field(default_factory=dict, examples=[{"s0": "fast0"}])
    """Task -> machine: with ``explicit`` the placement, with every other policy
    pins."""
    iterations: Count | None = None
    """Candidates of a search, I of the paper; default is as many as hold 1.5 million
    flows, at most 10,000."""
    simulated_iterations: Count = 20
    """Iterations that a search simulates for the makespan of a candidate, at most
    those of the job."""
    # The paper gives beta no unit (A19).
    beta: Positive = 0.1
    """Inverse temperature of ``etp``, per unit of cost; not of ``best``."""
    beta_unit: Duration | None = None
    """One unit of cost of ``etp``; default is 0.25 % of the first makespan."""
    # On its way alone: an answer overloads no machine (A22).
    tolerance: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] = 1.0
    """By which share ``etp`` may overload a machine on its way, mu of the paper;
    not of ``best``."""

    @property
    def is_explicit(self) -> bool:
        """True where ``tasks`` is the whole placement rather than pins."""
        return self.policy == "explicit"


class ScheduleSection(Section):
    """Allowed rates of flows."""

    policy: RatePolicy = "oes"
    """``oes`` of the paper, ``maxmin``, ``none`` (TCP shares the emulated NICs),
    another (``emu policies``), or your own ``FILE.py:CLASS`` or ``MODULE:CLASS``."""
    source: str | None = None
    """Text of that file, noted by runs."""
    share: Literal["flow", "job"] = "flow"
    """``job``: under ``oes`` and ``maxmin`` every port is divided among the jobs with
    flows there, then among the flows of each."""

    @property
    def rule(self) -> str:
        """The name of the rate policy, by job or not; of a class, with its text."""
        if own_rules.is_program(self.policy):
            return own_rules.register_program(self.policy, self.source)
        if self.share == "job":
            return f"{self.policy}_by_job"
        return self.policy

    @property
    def rule_of_searches(self) -> str:
        """The rule that searches simulate; a portfolio has chosen none by then."""
        # The portfolio chooses by a placed job, which a search has yet to find.
        return "oes" if self.rule == "portfolio" else self.rule


def _check_memory(size: float) -> float:
    if size < shaping.LEAST_MEMORY:
        raise ValueError(f"write {shaping.LEAST_MEMORY} B or more")
    return size


class EmulationSection(Section):
    """Mapping of emulated to real quantities on this computer."""

    time_scale: Positive | Literal["auto"] = 1.0
    """Wall seconds per emulated second; ``auto``: by short trials, within ``max_error``
    and ``max_late_flows``; on kernel NICs by what these cost."""
    byte_scale: Positive | Literal["auto"] = 1.0
    """Real bytes per emulated byte; ``auto``: payloads of about 1 MB where they are
    made up, 1 where they are real."""
    # Under ``real`` a small scale crowds the cores: 2, 7 and 20 were +10.7 (degraded),
    # +1.4 and -0.6 % off.
    compute: shaping.ComputeMode = EmulationSettings.compute
    """``timed`` waits for the profiled time; ``real`` computes, and takes its CPU time
    over ``speed``; ``padded`` computes, then waits."""
    network: Literal["userspace", "kernel"] = "userspace"
    """``userspace``: senders keep to the assigned rates; ``kernel``: NICs are limits of
    the kernel, and TCP shares them."""
    # Of 40 scenarios plain TCP was off max-min by 2.4 % in the median and 85 % at
    # worst, fair queues by 0.4 and 2 %.
    sharing: Literal["fair", "tcp", "assigned"] = "fair"
    """Sharing of a kernel NIC: ``fair`` gives every connection a queue of its own;
    ``tcp`` is one queue, as in a plain NIC; ``assigned`` limits connections to the
    schedule's rates."""
    # In 200 pairs of runs ``arrival`` had 0.21 points more error: ``fluid`` shows that
    # deadlines were kept, and not when bytes came.
    flow_ends: shaping.FlowEnds = EmulationSettings.flow_ends
    """``arrival``: a flow ends when its last byte is in the receiver's memory;
    ``fluid``: with its rates, where its bytes, sent a little ahead, have come by
    then."""
    # A small bucket keeps no flow from what the pauses of a host cost it: the demo
    # beside other work was 6.95 % off with 0 s, 0.53 % without a limit.
    catch_up: Duration | Literal["unlimited"] = "unlimited"
    """Depth of a sender's token bucket beyond 16 KB, as emulated time at the flow's
    rate; what overflows it goes later. ``0 s`` catches nothing up."""
    max_error: Annotated[Ratio, Field(gt=0)] = 0.01
    """Share of the makespan by which the end of a ``trusted`` run may be off, for what
    came late and for no known reason."""
    # Of 40 runs on kernel NICs with fair queues the worst was 1.98 % off.
    max_difference: Annotated[Ratio, Field(gt=0)] = 0.03
    """Share by which the makespan may be off its prediction that ``agrees``."""
    max_nic_error: MostNicError = 0.01
    """Share by which kernel NICs, measured beforehand, may be off their rates; more
    refuses the run."""
    max_late_flows: Annotated[Ratio, Field(le=1)] = 0.05
    """Share of the flows that ``time_scale: auto`` lets end over 2 ms of wall time and
    1 % of their length late; 100 % where only the makespan matters."""
    trial_budget: Duration = 30.0
    """Wall time that ``time_scale: auto`` may take for trials after the first."""
    deadline: Duration = EmulationSettings.deadline
    """Wall time after which a wait ends the run."""
    silence: Annotated[Duration, Field(gt=0)] = EmulationSettings.heartbeat_timeout
    """Wall time without a sign of life after which a host counts as cut off."""
    hosts: dict[Name, Name] = Field(default_factory=dict, examples=[{"m0": "10.0.0.1"}])
    """Emulated machine -> host; the others go where payload and processes are
    balanced."""
    # 200 tasks in 20 processes started in 8 s instead of 50, and held 0.34 GB for 3.5.
    processes: shaping.Processes = EmulationSettings.processes
    """``task``: each has a process of its own; ``machine``: those of an emulated
    machine share one, which is killed as a whole; ``auto``: where processes outnumber
    cores 8 to 1, nothing computes and nothing is killed."""
    ports: Ports | None = None
    """Range in which a run listens: ``20000-20100``."""
    tls: shaping.Tls = EmulationSettings.tls
    """Encrypted are ``control`` links, where the run listens beyond loopback, or
    ``all``: data between processes as well."""
    memory_limit: Annotated[Size, AfterValidator(_check_memory)] | None = None
    """Most bytes in flight, real, at least 4096 B; more ends the run with an error."""
    setup: Annotated[bool, Field(strict=True)] = False
    """Send what training begins with over sockets, too, before time 0: as a run of its
    own, in ``setup/`` of the run directory. Else it is simulated alone."""

    @property
    def settings(self) -> EmulationSettings:
        """Settings of a run, scales 1 unless they are chosen."""
        catch_up = math.inf
        if self.catch_up != "unlimited":
            catch_up = self.catch_up
        settings = EmulationSettings(
            compute=self.compute,
            flow_ends=self.flow_ends,
            deadline=self.deadline,
            tls=self.tls,
            processes=self.processes,
            ports=self.ports,
            time_scale=self.stated_time_scale,
            byte_scale=self.stated_byte_scale,
            catch_up=catch_up,
            heartbeat_timeout=self.silence,
        )
        # Its default is that of the settings, which state it once.
        if self.memory_limit is None:
            return settings
        return replace(settings, memory_limit=self.memory_limit)

    @property
    def stated_time_scale(self) -> float:
        """The time scale, 1 unless one is chosen."""
        return _number_of(self.time_scale)

    @property
    def stated_byte_scale(self) -> float:
        """The byte scale, 1 unless one is chosen."""
        return _number_of(self.byte_scale)


def _number_of(scale: float | str) -> float:
    if scale == AUTO:
        return 1.0
    return float(scale)


class ExpectSection(Section):
    """Expected results; a miss ends the command with exit code 6."""

    makespan: ExpectedDuration | None = None
    """Simulated makespan, to within ``tolerance``, or a range (``4 s .. 5 s``), which
    holds for a run as well."""
    tolerance: Ratio = 1e-9
    """Relative, of ``makespan`` and ``bytes`` where they are no ranges."""
    gap: ExpectedRatio | None = None
    """Largest makespan over its lower bound, minus 1, or a range."""
    bytes: ExpectedSize | None = None
    """Bytes between machines in the whole run, met to within ``tolerance``, or a
    range: ``1 GB .. 2 GB``, ``.. 2 GB``."""
    makespan_error: Ratio | None = None
    """Largest share by which the emulated makespan may be off the one that was
    predicted before the run."""
    replay_error: Ratio | None = None
    """Largest share by which it may be off a simulation of the run's own times and
    volumes."""
    trust: Literal["trusted", "degraded", "untrusted"] | None = None
    """Verdict on the measurement."""
    prediction: Literal["agrees", "differs"] | None = None
    """Verdict on the prediction, by ``emulation.max_difference``."""
    accuracy: Annotated[ExpectedRatio, AfterValidator(_of_a_whole)] | None = None
    """Smallest test accuracy at the end, or a range: ``85 % .. 95 %``."""
    loss: ExpectedNumber | None = None
    """Largest training loss at the end, or a range: ``2.1 .. 2.5``."""


class JobsItemSection(Section):
    """One of several jobs; its tasks are called ``a/w0``."""

    name: TaskName = Field(examples=["a"])
    """Beginning of its tasks' names."""
    release: Duration = 0.0
    """Run time before which none of its tasks starts."""
    weight: Positive | None = None
    """Weight of its time with ``joint_cost: weighted``; default is 1."""
    placement: PlacementSection = PlacementSection()
    """Which of its tasks stands on which machine: names without the job's. Together
    with other jobs (``place_jobs: joint``), ``tasks`` are pins."""
    job: AnyJob
    """The job."""


class SeveralJobsSection(JobSection):
    """Stands for ``job`` where there are ``jobs``."""

    system: Literal["several"]
    # Lengths and windows are those of each job: no number here is one of all.
    iterations: None = None
    credit_window: Literal["of each job"] = "of each job"

    @property
    @override
    def length(self) -> str:
        return "iterations of each job"


class ProgramSection(Section):
    """One program, on some machines or on all of them."""

    name: FileName
    """Name of its output files, with the machine's."""
    on: Literal["all"] | Annotated[tuple[Name, ...], Field(min_length=1)] = "all"
    """Machines that run it, once each."""
    run: str = Field(min_length=1)
    """Shell command; ``{rank}``, ``{machine}``, ``{address}`` (its own), ``{machines}``
    or ``{world_size}`` (their number),
    ``{address of NAME}``, ``{hosts file}`` (an address per line), ``{folder}`` (of the
    lab file) and ``{python}`` (which runs emu) are filled in."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment beside this computer's, filled in likewise."""


class LabPredictionSection(Section):
    """A scenario that predicts a lab, simulated beforehand at its NICs."""

    scenario: str = Field(min_length=1)
    """By ``emu fit``, beside the lab file."""
    skip: Annotated[int, Field(strict=True, ge=0)] = 0
    """First iterations that are left out."""
    mark: str = ""
    """As ``--mark`` of ``emu fit``."""
    max_difference: Annotated[Ratio, Field(gt=0)] = 0.03
    """As of ``emulation``, of seconds per iteration."""


class LabExpectSection(Section):
    """Expected verdicts, as of runs."""

    trust: Literal["trusted", "degraded"] | None = None
    """Verdict on the measurement."""
    prediction: Literal["agrees", "differs"] | None = None
    """Verdict on the prediction."""


class LabSection(Section):
    """Programs on the machines, and how their NICs are shared."""

    programs: tuple[ProgramSection, ...] = ()
    """Started in this order, on every machine at once."""
    until: Annotated[Name, Field(examples=["client"])] | None = None
    """Name of the program that ends the lab when it has ended on all of its machines;
    default is when every program has."""
    sharing: Literal["fair", "tcp"] = "fair"
    """``fair``: a queue per connection, so that shares are max-min; ``tcp``: one queue,
    as in a plain NIC and switch port."""
    queue: Duration | None = None
    """Depth of a queue in seconds of its NIC's rate, at least two segments; default is
    20 ms, with ``fair`` up to 50 ms at slow NICs."""
    congestion_control: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")] = "reno"
    """Algorithm of TCP in every machine; one that the kernel has."""
    max_nic_error: MostNicError = 0.01
    """As ``emulation.max_nic_error``."""
    time_scale: Annotated[Positive, Field(ge=1)] | Literal["auto"] = 1.0
    """Wall seconds of an emulated one: NICs carry, and cores compute, as much less;
    ``auto`` is what the machines' ``cpu`` (default 1) need of this computer. Programs
    see it by their own clocks: timeouts of theirs come so many times too early."""
    # From what every IPv4 host has to take (RFC 791) to jumbo frames.
    mtu: Annotated[int, Field(strict=True, ge=576, le=9000)] = 1500
    """Bytes of a packet without its Ethernet header."""
    prediction: LabPredictionSection | None = None
    """Judged afterwards, by iterations."""
    expect: LabExpectSection = LabExpectSection()
    """Expected verdicts."""
    capture: bool = True
    """True where all packets' headers are noted, for traffic.npz and what crossed."""
    calls: bool = True
    """True where socket calls of programs are noted as well, by a library that is
    preloaded into them: a fit knows then who waited for whom."""


class FileSection(Section):
    """A whole file, which knows where it was written."""

    # Private: no key of a file, and written nowhere.
    _origin: Origin = pydantic.PrivateAttr(default_factory=Origin)

    @property
    def origin(self) -> Origin:
        """Where it was written."""
        return self._origin

    def read_from(self, document: Document) -> None:
        """Note where it was written, for errors that show later."""
        self._origin = Origin(document)


class LabFile(FileSection):
    """A lab: NICs are payload rates, ``cpu`` cores that a machine's programs share."""

    cluster: ClusterSection
    """The machines; names are host names."""
    lab: LabSection = LabSection()
    """The programs."""
    events: tuple[EventSection, ...] = ()
    """Changes of NICs while programs run: ``{at: 5 s, machine: slow0, nic: 5 Mbit/s}``.
    """

    @property
    def folder(self) -> Path:
        """Where its file lies; the working directory where it has none."""
        document = self._origin.document
        if document is None:
            return Path.cwd()
        path = Path(document.file).resolve()
        return path.parent

    def to_cluster(self) -> Cluster:
        """Return the machines."""
        return self.cluster.build()

    @property
    def cores(self) -> dict[str, float]:
        """Cores by machine; empty where nothing says that there is a limit."""
        machines = self.cluster.by_name
        is_unlimited = all(machine.cpu is None for machine in machines.values())
        # Where time is dilated cores are slowed as well, so that every machine needs a
        # number.
        if self.lab.time_scale == 1 and is_unlimited:
            return {}
        return {
            name: 1.0 if machine.cpu is None else machine.cpu
            for name, machine in machines.items()
        }


def name_errors(file: LabFile) -> Problems:
    """Yield (where, what is wrong and what would be right) of a lab."""
    yield from _program_errors(file)
    lab = file.lab
    if lab.prediction is None:
        if lab.expect.prediction is not None:
            problem = "is expected of no prediction: state lab.prediction"
            yield ("lab", "expect", "prediction"), problem
    elif not lab.capture:
        problem = "is false, but a prediction is judged by what crossed: leave it out"
        yield ("lab", "capture"), problem
    elif file.events:
        problem = "change NICs, but a fit does not say when it begins: remove them"
        yield ("events",), problem

    names = [program.name for program in lab.programs]
    last = lab.until
    if last is not None and last not in names:
        words = nearest(last, names) if names else "and there are none: leave it out"
        yield ("lab", "until"), f"no program {last!r}, {words}"


def _program_errors(file: LabFile) -> Problems:
    """Yield likewise commands and variables that no system takes, and places."""
    for position, program in enumerate(file.lab.programs):
        trail: Trail = ("lab", "programs", position)
        if _NUL in program.run:
            yield (*trail, "run"), _HAS_NUL
        for variable, value in program.env.items():
            place = (*trail, "env", variable)
            if not variable or "=" in variable or _NUL in variable:
                problem = f"{variable!r} names no variable: write one without = and NUL"
                yield place, problem
            elif _NUL in value:
                yield place, _HAS_NUL
        if program.on != "all":
            yield from _place_errors(file, (*trail, "on"), program.on)


def _place_errors(file: LabFile, trail: Trail, names: tuple[str, ...]) -> Problems:
    """Yield likewise machines of a program that there are none of, or twice."""
    machines = file.cluster.names
    counts = Counter(names)
    for name, count in counts.items():
        if name not in machines:
            yield trail, f"no machine {name!r}, {nearest(name, machines)}"
        elif count > 1:
            problem = f"{name!r} occurs {count} times: a machine runs a program once"
            yield trail, problem


class UntilSection(Section):
    """Accuracy at which training ends, decided in virtual time: as long is the job."""

    # Of three looks, as one may be luck: 88 % after step 166 was held nowhere in 260.
    accuracy: Annotated[Ratio, Field(gt=0, le=1)] = Field(examples=["88 %"])
    """Share of the vertices of ``split`` whose class is predicted rightly; reached at
    the first of three looks in a row that hold it, known at the third."""
    split: Literal["train", "valid", "test"] = "valid"
    """Which vertices."""
    seeds: Count | None = None
    """Training vertices that steps see from one look to the next, in mini-batches or on
    the whole graph; default is all of them, an epoch."""
    every: Count | None = None
    """Steps from one look to the next, in place of ``seeds``."""


class PricesSection(Section):
    """Prices of functions; machines have a ``price`` of their own."""

    request: Money = _PAPER.request
    """One request."""
    function_hour: Price = _PAPER.function_hour
    """An hour that functions run; each from the end of its launch."""
    granularity: Duration = _PAPER.granularity
    """Multiples to which that time is rounded up."""

    def build(self) -> Prices:
        """Return the prices."""
        return Prices(
            request=self.request,
            function_hour=self.function_hour,
            granularity=self.granularity,
        )
