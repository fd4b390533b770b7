"""Sections on how a job is run: placement, schedule, emulation, expect."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from emu import placement, scheduling
from emu.fields.quantities import (
    Count,
    Duration,
    Expected,
    ExpectedDuration,
    ExpectedNumber,
    ExpectedRatio,
    ExpectedSize,
    Name,
    Positive,
    Ratio,
    Size,
)
from emu.fields.section import Section
from emu.fields.suggestion import nearest
from emu.shaping import FlowEnds

if TYPE_CHECKING:
    from collections.abc import Mapping


def _one_of(known: Mapping[str, object]) -> BeforeValidator:
    """Return the validator of a word out of ``known``."""

    def check(found: object) -> str:
        if not isinstance(found, str) or found not in known:
            raise ValueError(f"found {found!r}, {nearest(str(found), known)}")
        return found

    return BeforeValidator(check)


RatePolicy: TypeAlias = Annotated[
    str,
    _one_of(scheduling.RATE_POLICIES),
    WithJsonSchema({"enum": [*scheduling.RATE_POLICIES]}),
]
PlacementPolicy: TypeAlias = Annotated[
    str,
    _one_of(placement.PLACEMENT_POLICIES),
    WithJsonSchema({"enum": [*placement.PLACEMENT_POLICIES]}),
]


#: Where a scale is left to emu.
AUTO = "auto"


def _of_a_whole(value: Expected) -> Expected:
    ends = value if isinstance(value, tuple) else (value,)
    if over := [end for end in ends if 1 < end < math.inf]:
        raise ValueError(f"found {100 * over[0]:g} %, write 100 % or less")
    return value


class PlacementSection(Section):
    """Which task stands on which machine."""

    policy: PlacementPolicy = "best"
    """``best``: a search, never worse than ``etp``, the paper's; ``ifs``: any feasible
    one; ``distdgl``: samplers beside their workers; ``explicit``: see ``tasks``."""
    tasks: dict[Name, Name] = Field(default_factory=dict, examples=[{"s0": "fast0"}])
    """Task -> machine: with ``explicit`` the placement, with every other policy
    pins."""
    iterations: Count | None = None
    """Candidates of a search, I of the paper; default is as many as hold 1.2 million
    flows, at most 10,000."""
    simulated_iterations: Count = 20
    """Iterations that a search simulates for the makespan of a candidate, at most
    those of the job."""
    beta: Positive = 0.1
    """Inverse temperature of ``etp``, per unit of cost; not of ``best``."""
    beta_unit: Duration | None = None
    """One unit of cost of ``etp``; default is 0.25 % of the first makespan."""
    tolerance: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] = 1.0
    """By which share ``etp`` may overload a machine on its way, mu of the paper;
    not of ``best``."""

    @property
    def spelt_out(self) -> bool:
        """True where ``tasks`` is the whole placement rather than pins."""
        return self.policy == "explicit"


class ScheduleSection(Section):
    """Allowed rates of flows."""

    policy: RatePolicy = "oes"
    """``oes`` of the paper, ``maxmin``, ``none`` (TCP shares the emulated NICs), or
    another (``emu policies``)."""
    share: Literal["flow", "job"] = "flow"
    """``job``: under ``oes`` and ``maxmin`` every port is divided among the jobs with
    flows there, then among the flows of each."""

    @property
    def rule(self) -> str:
        """The name of the rate policy, by job or not."""
        return f"{self.policy}_by_job" if self.share == "job" else self.policy


class EmulationSection(Section):
    """Mapping of emulated to real quantities on this computer."""

    time_scale: Positive | Literal["auto"] = 1.0
    """Wall seconds per emulated second; ``auto``: chosen by short trials, within
    ``max_error`` and ``max_late_flows``."""
    byte_scale: Positive | Literal["auto"] = 1.0
    """Real bytes per emulated byte; ``auto``: payloads of about 1 MB where they are
    made up, 1 where they are real."""
    compute: Literal["timed", "real", "padded"] = "timed"
    """``timed`` waits for the profiled time; ``real`` computes, and takes its CPU time
    over ``speed``; ``padded`` computes, then waits."""
    network: Literal["userspace", "kernel"] = "userspace"
    """``userspace``: senders keep to the assigned rates; ``kernel``: NICs are limits of
    the kernel, and TCP shares them."""
    sharing: Literal["fair", "tcp", "assigned"] = "fair"
    """Sharing of a kernel NIC: ``fair`` gives every connection a queue of its own;
    ``tcp`` is one queue, as in a plain NIC; ``assigned`` limits connections to the
    schedule's rates."""
    flow_ends: FlowEnds = "arrival"
    """``arrival``: a flow ends when its last byte is in the receiver's memory;
    ``fluid``: with its rates, where its bytes, sent a little ahead, have come by
    then."""
    catch_up: Duration | Literal["unlimited"] = "unlimited"
    """Depth of a sender's token bucket beyond 16 KB, as emulated time at the flow's
    rate; what overflows it goes later. ``0 s`` catches nothing up."""
    max_error: Annotated[Ratio, Field(gt=0)] = 0.01
    """Share of the makespan by which the host may prolong a run that is ``trusted``."""
    max_late_flows: Annotated[Ratio, Field(le=1)] = 0.05
    """Share of the flows that ``time_scale: auto`` lets end over 2 ms of wall time and
    1 % of their length late; 100 % where only the makespan matters."""
    trial_budget: Duration = 30.0
    """Wall time that ``time_scale: auto`` may take for trials after the first."""
    deadline: Duration = 30.0
    """Wall time after which a wait ends the run with an error."""
    silence: Annotated[Duration, Field(gt=0)] = 60.0
    """Wall time without a sign of life after which a host counts as cut off."""
    hosts: dict[Name, Name] = Field(default_factory=dict, examples=[{"m0": "10.0.0.1"}])
    """Emulated machine -> host; the others go where payload and processes are
    balanced."""
    tls: Literal["control", "all"] = "control"
    """Encrypted are ``control`` links, where the run listens beyond loopback, or
    ``all``: data between processes as well."""
    memory_limit: Size | None = None
    """Most bytes in flight, real; more ends the run with an error."""

    @property
    def stated_catch_up(self) -> float:
        """Seconds that a sender may catch up, infinite where it is unlimited."""
        return math.inf if self.catch_up == "unlimited" else float(self.catch_up)

    @property
    def stated_time_scale(self) -> float:
        """The time scale, 1 as long as nobody has chosen one."""
        return 1.0 if self.time_scale == AUTO else float(self.time_scale)

    @property
    def stated_byte_scale(self) -> float:
        """The byte scale, 1 as long as nobody has chosen one."""
        return 1.0 if self.byte_scale == AUTO else float(self.byte_scale)


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
    accuracy: Annotated[ExpectedRatio, AfterValidator(_of_a_whole)] | None = None
    """Smallest test accuracy at the end, or a range: ``85 % .. 95 %``."""
    loss: ExpectedNumber | None = None
    """Largest training loss at the end, or a range: ``2.1 .. 2.5``."""
