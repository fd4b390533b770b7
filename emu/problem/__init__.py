"""Scheduling problems and their schedules.

Frozen data and the arithmetic on it: machines, tasks, edges, placement, costs, and what
happened when. Must not know: policies, clocks, files, sockets.
Units everywhere: seconds, bytes, bytes per second. Iterations count from 0.
"""

from emu.problem.changes import CapacityChange, SpeedChange, end_of_work
from emu.problem.cluster import Cluster, Link, Links, Machine, Route, Tuner
from emu.problem.faults import Due, Fault, Kill, disturbances, next_kills, with_faults
from emu.problem.job import Edge, Job, Profile, Realization, Task
from emu.problem.placement import Placement, Pool, Problem
from emu.problem.schedule import ActiveFlow, Outages, RateHistory, Schedule

__all__ = [
    "ActiveFlow",
    "CapacityChange",
    "Cluster",
    "Due",
    "Edge",
    "Fault",
    "Job",
    "Kill",
    "Link",
    "Links",
    "Machine",
    "Outages",
    "Placement",
    "Pool",
    "Problem",
    "Profile",
    "RateHistory",
    "Realization",
    "Route",
    "Schedule",
    "SpeedChange",
    "Task",
    "Tuner",
    "disturbances",
    "end_of_work",
    "next_kills",
    "with_faults",
]
