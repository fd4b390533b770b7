"""One tiny run of the scheduler, so that its compilation does not stop a real one.

The compiler takes up to some 20 s when nothing is cached; an event loop that stands
still for so long counts as a lost coordinator.
"""

from __future__ import annotations

import numpy as np

from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Profile,
    Task,
)
from emu.scheduling import End, Scheduler


def warm_up_scheduler(policy: str) -> None:
    """Drive a scheduler of two tasks and one flow to its end."""
    cluster = Cluster((Machine("m0", 1.0, 1.0), Machine("m1", 1.0, 1.0)))
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1),), iterations=1)
    expected = Profile(np.ones((2, 1)), np.ones((1, 1)))
    scheduler = Scheduler(Problem(cluster, job, Placement((0, 1))), policy, expected)
    scheduler.begin()
    scheduler.announce(0, 0, {0: 1.0})
    for end in (End(1.0, 0, -1, 0), End(2.0, -1, 0, 0), End(3.0, 1, -1, 0)):
        scheduler.settle([end])
