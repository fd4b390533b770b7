"""Simulate a run: virtual time drives `emu.scheduling`.

Must not know: sockets, wall clocks, files.
"""

from emu.simulation.simulate import (
    MakespanEvaluator,
    best_policy,
    makespan,
    sensitivity,
    simulate,
)

__all__ = ["MakespanEvaluator", "best_policy", "makespan", "sensitivity", "simulate"]
