"""The lab measured at one setting of its NICs, predicted at others, then measured.

    python scenarios/mpi/predict.py [SETTINGS ...]

A setting is the machines' NICs in Mbit/s: ``100,100,50,100``. The first one is fitted;
the others are predicted from the fit, into predictions.json, before they are measured.

It is up to 34 % off: of two ranks that exchange, one goes first, now this one and now
that.
"""

import sys
from pathlib import Path

from emu.lab.other_settings import predict_others

if __name__ == "__main__":
    folder = Path(__file__).resolve().parent
    predict_others(folder, sys.argv[1:], skip=1, mark="step ")
