"""What this host can emulate: measured once, used to choose scales and to predict.

Must not know: how a run is carried out, what a program computes.
"""

from emu.calibration.cache import cached_profile, profile_path
from emu.calibration.choosing import choose_time_scale
from emu.calibration.fitting import fit
from emu.calibration.host import HostProfile
from emu.calibration.load import Load, load_of
from emu.calibration.measure import measure_host
from emu.calibration.prediction import Prediction, predict

__all__ = [
    "HostProfile",
    "Load",
    "Prediction",
    "cached_profile",
    "choose_time_scale",
    "fit",
    "load_of",
    "measure_host",
    "predict",
    "profile_path",
]
