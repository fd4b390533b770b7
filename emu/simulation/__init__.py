"""What a run would take: virtual time drives `emu.scheduling`.

Must not know: sockets, wall clocks, files.
"""

from emu.simulation.bounds import Bounds, bounds, flow_degree
from emu.simulation.evaluator import MakespanEvaluator
from emu.simulation.simulate import best_policy, makespan, simulate

__all__ = [
    "Bounds",
    "MakespanEvaluator",
    "best_policy",
    "bounds",
    "flow_degree",
    "makespan",
    "simulate",
]
