"""Settings of a run, and of them what a sender that keeps to rates may do.

The rules themselves are compiled: emu/prediction/core/pacing.c. Must not know: sockets,
timers, the rate board.

A flow with assigned rates is a fluid F(t), the integral of the rate. It is carried as
its newest straight piece, so a sender that missed earlier pieces lost nothing. The
sender is a token bucket: it may be a bounded depth ahead of F, but keeps its last bytes
until F reaches the volume. With a lead (`FlowEnds` ``fluid``) it may also be so much
time ahead, up to its last byte, which hides late wake-ups. A sender that stood still
finds what F carried meanwhile in its bucket, up to `Pace.catch_up`; the rest is lost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

#: What ends a flow. ``arrival``: its last byte, which leaves no sooner than its fluid
#: ends. ``fluid``: its fluid, where the last byte has come by then, as senders lead.
FlowEnds: TypeAlias = Literal["arrival", "fluid"]
#: Longest time between two looks at the board at time scale 1, wall seconds. 16 flows
#: in 8 processes on 2 cores cost 1.4 CPU-s per GB with 1 ms and 1.0 with 2 ms, at the
#: same median finish error.
QUANTUM = 0.002
_MOST = 0.020
#: How many such times a sender may lead its fluid where that ends flows. With 1 and 3,
#: 41 and 58, 65 and 85, 96 and 100 % of the flows of three scenarios with bursts of 40
#: were punctual.
_LEAD = 3
#: Shortest time between two looks, near a flow's end.
_SHORTEST = 0.0005
#: Longest while there is nothing to send: only in case, since senders are notified.
_IDLE = 0.1
#: Settings that a manifest keeps: guards and replays need them.
_QUANTITIES = ("time_scale", "byte_scale", "compute", "flow_ends", "catch_up")
_SCALES = ("time_scale", "byte_scale")
_LIMITS = ("deadline", "heartbeat_timeout", "memory_limit")
#: Least `memory_limit`, in bytes: the smallest buffer that a process receives into.
LEAST_MEMORY = 4096
ComputeMode: TypeAlias = Literal["timed", "real", "padded"]
Tls: TypeAlias = Literal["control", "all"]
#: What shares a process of the system: nothing, or all tasks of an emulated machine.
Processes: TypeAlias = Literal["task", "machine", "auto"]


class RateSegment(NamedTuple):
    """The newest piece of a flow's fluid: F(t) = served + rate * (t - since)."""

    iteration: int
    """Which flow of the edge this is."""
    served: float
    """Bytes at time ``since``."""
    rate: float
    """Bytes per second from then on; 0 is legal."""
    since: float
    """Seconds."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Bounds of a sender's lead over its fluid, and of the time between two looks."""

    lead_time: float = 0.002
    """Seconds of the present rate; also how long before the fluid's end the last bytes
    may leave. 0 where the arrival of the last byte ends a flow."""
    lead_bytes: int = 16384
    """Depth of the bucket, so that flows are not cut into crumbs."""
    tail: int = 16384
    """Last bytes of a flow, which that depth does not let go."""
    catch_up: float = math.inf
    """Seconds of a flow's rate that its bucket keeps while its sender stands still."""
    shortest: float = _SHORTEST
    """Longest delay of seeing a segment when the fluid's end has come near, seconds."""
    longest: float = QUANTUM
    """Longest delay while there is something to send. A sender uses up its lead
    between two looks, so not longer than ``lead_time``."""
    idle: float = _IDLE
    """Longest delay in any case."""


@dataclass(frozen=True, kw_only=True)
class EmulationSettings:
    """Relation of emulated to real quantities, and the limits of a run.

    The defaults of the scenario's keys are these, and every process gets them whole.

    Raises ValueError when a scale, a timeout or the limit is not positive and finite,
    or ``catch_up`` is negative.
    """

    time_scale: float = 1.0
    """Wall seconds per emulated second."""
    byte_scale: float = 1.0
    """Real bytes per emulated byte."""
    compute: ComputeMode = "timed"
    """``timed``: a task holds its profiled time; ``real``: it computes, and holds the
    CPU time of that over the speed of its machine; ``padded``: it computes, then holds
    until its profiled time."""
    flow_ends: FlowEnds = "arrival"
    """``arrival``: a flow ends when its last byte is in the receiver's memory, and
    senders do not lead their fluid; ``fluid``: with its fluid if its bytes have come by
    then, and senders lead."""
    catch_up: float = math.inf
    """Emulated seconds of its rates that a sender which stood still may catch up."""
    deadline: float = 30.0
    """Wall seconds that anything may be overdue before the run is given up."""
    heartbeat_timeout: float = 60.0
    """Wall seconds that agent and coordinator may receive nothing from each other."""
    memory_limit: float = 4e9
    """Real bytes of received payload that one process may hold at a time."""
    tls: Tls = "control"
    """Encrypted links: ``control`` ones, where the coordinator listens beyond
    loopback, or ``all`` of them and data."""

    processes: Processes = "task"
    """``machine``: what stands on an emulated machine shares a process and its loop;
    ``auto``: where processes outnumber cores 8 to 1, nothing computes and nothing is
    killed."""
    ports: Sequence[int] | None = None
    """First and last port at which coordinator and processes listen; None for any."""

    def __post_init__(self) -> None:
        for name in (*_SCALES, *_LIMITS):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} is {value}; it must be positive and finite")
        if not self.catch_up >= 0:
            raise ValueError(f"catch_up is {self.catch_up}; it must not be negative")

    def grouping(self, *, has_kills: bool) -> Processes:
        """Return ``processes``, under ``auto`` a task each where some are killed."""
        if has_kills and self.processes == "auto":
            return "task"
        return self.processes

    @property
    def limits_bursts(self) -> bool:
        """True where a sender may not catch up all that it has missed."""
        return math.isfinite(self.catch_up)

    def to_json(self) -> dict[str, Any]:
        """Return what a manifest says of quantities; ``catch_up`` None is no limit."""
        quantities = {name: getattr(self, name) for name in _QUANTITIES}
        if not self.limits_bursts:
            quantities["catch_up"] = None
        return quantities

    @classmethod
    def from_json(cls, noted: Mapping[str, Any]) -> EmulationSettings:
        """Return the settings of which a manifest, maybe an old one, says something."""
        quantities: dict[str, Any] = {
            "flow_ends": "fluid"
        }  # of manifests that do not state it
        for name in _QUANTITIES:
            if noted.get(name) is not None:
                quantities[name] = noted[name]
        return cls(**quantities)


def pace_at(
    time_scale: float,
    settings: EmulationSettings | None = None,
    quantum: float = QUANTUM,
) -> Pace:
    """Return the pace of senders at a time scale, in wall seconds.

    Leads and times between looks grow with its root, up to 20 ms: a look costs 0.2 ms
    of CPU however slow emulated time is, and what it may miss still shrinks in emulated
    time. Growing with the time scale itself doubled the error of a job of short flows
    (462 in 8 s at time scale 17: 2.8 against 1.4 %). What a bucket keeps are emulated
    seconds whatever the scale.
    """
    settings = settings or EmulationSettings()
    longest = min(quantum * math.sqrt(max(time_scale, 1.0)), _MOST)
    return Pace(
        lead_time=_LEAD * longest if settings.flow_ends == "fluid" else 0.0,
        catch_up=settings.catch_up * time_scale,
        shortest=min(_SHORTEST, longest),
        longest=longest,
    )
