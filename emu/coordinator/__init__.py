"""The online run: an asynchronous shell around the scheduler, and what it leaves.

Must not know: how rates are chosen, what a program computes, how results are drawn.
"""

from emu.coordinator.expectations import missed_expectations
from emu.coordinator.experiment import (
    ExperimentOutcome,
    carry_out,
    emulation_settings,
)
from emu.coordinator.observers import Observers
from emu.coordinator.profiling import measure_profile, prepare_profile
from emu.coordinator.run import Coordinator, EmulatedRun, Observer, emulate
from emu.coordinator.settings import EmulationSettings

__all__ = [
    "Coordinator",
    "EmulatedRun",
    "EmulationSettings",
    "ExperimentOutcome",
    "Observer",
    "Observers",
    "carry_out",
    "emulate",
    "emulation_settings",
    "measure_profile",
    "missed_expectations",
    "prepare_profile",
]
