"""Measure what this host can emulate, with the transport of a run: `emu doctor`.

Nothing that is measured here decides anything: time scales are chosen by trials of the
scenario itself (`emu.experiment.auto_scale`).

Must not know: how a run is carried out, what a program computes.
"""

from emu.calibration.host import HostProfile
from emu.calibration.measure import measure_host

__all__ = ["HostProfile", "measure_host"]
