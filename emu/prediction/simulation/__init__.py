"""Simulate a run: virtual time drives `emu.prediction.scheduling`.

Must not know: sockets, wall clocks, files.
"""

from emu.prediction.simulation.simulate import (
    best_policy,
    makespan,
    rounding_effect,
    simulate,
    simulate_within,
)

__all__ = [
    "best_policy",
    "makespan",
    "rounding_effect",
    "simulate",
    "simulate_within",
]
