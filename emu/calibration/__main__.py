"""``python -m emu.calibration HOST:PORT``: the other process of a measurement."""

import sys

from emu.calibration.peer import main

if __name__ == "__main__":
    sys.exit(main())
