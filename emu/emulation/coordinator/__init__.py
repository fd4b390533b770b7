"""The online run: an asynchronous shell around the scheduler, and what it leaves.

Must not know: how rates are chosen, what a program computes, how results are drawn.
"""

from emu.emulation.coordinator.observers import Observer, Observers, RunProgress
from emu.emulation.coordinator.run import Coordinator, EmulatedRun, emulate
from emu.emulation.coordinator.settings import RunSettings

__all__ = [
    "Coordinator",
    "EmulatedRun",
    "Observer",
    "Observers",
    "RunProgress",
    "RunSettings",
    "emulate",
]
