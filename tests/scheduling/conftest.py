"""The compiled code ready before the first test's time runs."""

from __future__ import annotations

from emu.scheduling import Scheduler
from emu.testing import two_machine_example

# A cold compilation takes 15-60 s, by how busy the machine is: more than a test may.
Scheduler(two_machine_example(1)[0], "oes").begin()
