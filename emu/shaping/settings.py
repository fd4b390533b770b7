"""Settings of an emulated run: from the keys of a scenario down to each process."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from emu.shaping.pacing import FlowEnds

ComputeMode: TypeAlias = Literal["timed", "real", "padded"]
Tls: TypeAlias = Literal["control", "all"]


@dataclass(frozen=True, kw_only=True)
class EmulationSettings:
    """Relation of emulated to real quantities, and the limits of a run.

    The defaults of the scenario's keys are these, and every process gets them whole.

    Raises
    ------
    ValueError
        When a scale, the deadline, the silence or the limit is not positive and finite,
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
    silence: float = 60.0
    """Wall seconds that agent and coordinator may receive nothing from each other."""
    memory_limit: float = 4e9
    """Real bytes of received payload that one process may hold at a time."""
    tls: Tls = "control"
    """Encrypted links: ``control`` ones, where the coordinator listens beyond
    loopback, or ``all`` of them and data."""

    def __post_init__(self) -> None:
        for name in (
            "time_scale",
            "byte_scale",
            "deadline",
            "silence",
            "memory_limit",
        ):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} is {value}; it must be positive and finite")
        if not self.catch_up >= 0:
            raise ValueError(f"catch_up is {self.catch_up}; it must not be negative")
