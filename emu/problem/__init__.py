"""Frozen data and the arithmetic on it: machines, jobs, placements, schedules.

Decides what a job is and what must hold of it, in seconds, bytes, bytes per second;
iterations count from 0. It must not know policies, clocks, files, sockets.
Start at ``job.py`` and ``cluster.py``; ``fields/`` makes keys, ``workloads/`` parts of
jobs.
"""

from emu.problem.changes import CapacityChange
from emu.problem.cluster import Cluster
from emu.problem.edges import Edge
from emu.problem.epoch import Epoch
from emu.problem.faults import Due, Fault, Kill, disturbances, next_kills, with_faults
from emu.problem.job import Job, Profile, Realization, Task
from emu.problem.links import Link, Links, Route
from emu.problem.machine import Machine, Tuner
from emu.problem.placement import Placement, Pool, Problem
from emu.problem.schedule import ActiveFlow, Outages, RateHistory, Schedule

__all__ = [
    "ActiveFlow",
    "CapacityChange",
    "Cluster",
    "Due",
    "Edge",
    "Epoch",
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
    "Task",
    "Tuner",
    "disturbances",
    "next_kills",
    "with_faults",
]
