"""Decides what starts, which flow is active and what rate it gets.

Pure state on flat arrays, driven by virtual time (`emu.simulation`) or by messages
(`emu.coordinator`). Must not know: who drives it, and why.
"""

from emu.scheduling.policies import RATE_POLICIES, Policy, policy_named, rate_policy
from emu.scheduling.scheduler import (
    Decisions,
    End,
    RateSegments,
    Scheduler,
    Settled,
    newest,
)

__all__ = [
    "RATE_POLICIES",
    "Decisions",
    "End",
    "Policy",
    "RateSegments",
    "Scheduler",
    "Settled",
    "newest",
    "policy_named",
    "rate_policy",
]
