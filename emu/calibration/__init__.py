"""What this host can emulate: measured once, used to choose scales and to predict.

Must not know: how a run is carried out, what a program computes.
"""

from emu.calibration.cache import cached_profile, profile_path
from emu.calibration.host import HostProfile
from emu.calibration.host_demand import Load, load_of
from emu.calibration.measure import measure_host
from emu.calibration.prediction import Prediction, predict
from emu.calibration.scale_search import choose_time_scale

__all__ = [
    "HostProfile",
    "Load",
    "Prediction",
    "cached_profile",
    "choose_time_scale",
    "load_of",
    "measure_host",
    "predict",
    "profile_path",
]
