"""A lab of machines: processes that hold namespaces, joined by kernel network cards.

Whatever runs in a machine sees a host of its own: address, host name, ``/etc/hosts``,
``/dev/shm``, process ids. Its NIC is a limit that the kernel enforces, and TCP shares
it. Needs Linux and what `emu.lab.machines.lab` tries. Must not know: jobs, schedules,
simulations.
"""

from emu.lab.machines.lab import Lab, LabMachine, Paces, Program, missing_needs
from emu.lab.machines.nic import (
    BURST,
    SMALLEST_SEGMENT,
    Sharing,
    leaf_of,
    leaves_among,
)
from emu.lab.machines.nic_check import MOST_OFF, NicCheck

__all__ = [
    "BURST",
    "MOST_OFF",
    "SMALLEST_SEGMENT",
    "Lab",
    "LabMachine",
    "NicCheck",
    "Paces",
    "Program",
    "Sharing",
    "leaf_of",
    "leaves_among",
    "missing_needs",
]
