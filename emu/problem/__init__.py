"""Scheduling problems and their schedules.

Frozen data and the arithmetic on it: machines, tasks, edges, placement, costs, and what
happened when. Must not know: policies, clocks, files, sockets.
Units everywhere: seconds, bytes, bytes per second. Iterations count from 0.
"""

from emu.problem.active_flow import ActiveFlow
from emu.problem.capacity_changes import CapacityChange
from emu.problem.cluster import Cluster
from emu.problem.faults import Fault, Kill, disturbances, with_faults
from emu.problem.job import Edge, Job, Task
from emu.problem.links import Link, Links, Route
from emu.problem.machine import Machine
from emu.problem.machine_speeds import SpeedChange, end_of_work
from emu.problem.placement import Placement, Problem
from emu.problem.profile import Profile, Realization
from emu.problem.schedule import RateHistory, Schedule
from emu.problem.slots import Pool
from emu.problem.tuner import Tuner

__all__ = [
    "ActiveFlow",
    "CapacityChange",
    "Cluster",
    "Edge",
    "Fault",
    "Job",
    "Kill",
    "Link",
    "Links",
    "Machine",
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
    "with_faults",
]
