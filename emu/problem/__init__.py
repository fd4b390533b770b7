"""What is to be scheduled: machines, tasks, edges, where they stand, what they cost.

Frozen data and the arithmetic on it. Must not know: policies, clocks, files, sockets.
Units everywhere: seconds, bytes, bytes per second. Iterations count from 0.
"""

from emu.problem.cluster import Cluster, Machine
from emu.problem.job import Edge, Job, Task
from emu.problem.placement import Placement, Problem
from emu.problem.profile import Profile, Realization

__all__ = [
    "Cluster",
    "Edge",
    "Job",
    "Machine",
    "Placement",
    "Problem",
    "Profile",
    "Realization",
    "Task",
]
