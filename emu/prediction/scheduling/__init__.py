"""Decides what starts, which flow is active and what rate it gets.

Pure state on flat arrays, driven by virtual time (`emu.prediction.simulation`) or by
messages (`emu.emulation.coordinator`). Must not know: who drives it, and why.
"""

from emu.prediction.rate_policies import RATE_POLICIES
from emu.prediction.scheduling.policies import list_rules, policy_named, rate_policy
from emu.prediction.scheduling.scheduler import (
    Decisions,
    End,
    RateSegments,
    Scheduler,
)

__all__ = [
    "RATE_POLICIES",
    "Decisions",
    "End",
    "RateSegments",
    "Scheduler",
    "list_rules",
    "policy_named",
    "rate_policy",
]
