"""Rows that a machine takes in for its mini-batches, before a job is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from emu.systems import Floats


@dataclass(frozen=True)
class Intake:
    """Rows that a machine of a job takes in at the least, between tasks in a chain.

    Tasks of the machine may ask others for them, these send them behind a task of
    theirs, and tasks of the machine wait for all of a mini-batch, iteration by
    iteration. Each takes as long in all iterations, and has one at a time.
    """

    batches: int
    """Iterations with a mini-batch."""
    count: Callable[[], Floats]
    """Counts real bytes by iteration that come from other machines; draws batches."""
    before: float = 0.0
    """Seconds of the task that asks."""
    sending: float = 0.0
    """Seconds of the task that sends."""
    behind: tuple[float, ...] = ()
    """Seconds of the tasks that wait, in their order."""
    sum_bytes: int = 0
    """Real bytes that the machine sends of a sum, behind the last of these tasks."""

    def least_seconds(self) -> float:
        """Return seconds that no schedule of the job beats, were there no bytes."""
        chain = (self.before, self.sending, *self.behind)
        # The slowest has all iterations, and the others one beside it.
        return sum(chain) + (self.batches - 1) * max(chain)

    def seconds_at(self, capacity: float) -> float:
        """Return seconds that none beats where the machine takes in so many bytes/s."""
        iterations = np.arange(1, self.batches + 1)
        sent = self.before + self.sending * iterations
        # What is sent in an iteration or later comes no sooner, whatever its order.
        left = np.cumsum(self.count()[::-1])[::-1]
        ends = sent + left / capacity
        return float(ends.max()) + sum(self.behind)
