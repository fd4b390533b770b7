"""A lab of machines: processes that hold namespaces, joined by kernel network cards.

Whatever runs in a machine sees a host of its own: address, host name, ``/etc/hosts``,
``/dev/shm``, process ids. Its NIC is a limit that the kernel enforces, and TCP shares
it. Needs Linux and what `emu.lab.machines.lab` tries. Must not know: jobs, schedules,
simulations.
"""
