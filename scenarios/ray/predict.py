"""The lab measured at one setting of its NICs, predicted at others, then measured.

    python scenarios/ray/predict.py [SETTINGS ...]

A setting is the machines' NICs in Mbit/s: ``100,100,50,100``. The first one is fitted;
the others are predicted from the fit, into predictions.json, before they are measured.
"""

import sys
from pathlib import Path

from emu.lab.other_settings import predict_others

if __name__ == "__main__":
    folder = Path(__file__).resolve().parent
    predict_others(folder, sys.argv[1:], skip=2, mark="step ")
