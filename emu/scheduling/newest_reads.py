"""What tasks were decided to read, over edges that read the newest."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emu.problem import Job
    from emu.scheduling.compiled_problem import Ints


class NewestReads:
    """The reads of a schedule that goes on.

    Parameters
    ----------
    log
        `Log.reads`; for reading.
    """

    def __init__(self, job: Job, log: Ints) -> None:
        self.log = log
        self._into: dict[int, list[int]] = {}
        for position, edge in enumerate(job.edges):
            if edge.latest and not job.control[position]:
                self._into.setdefault(edge.destination, []).append(position)

    def of(self, task: int, iteration: int) -> list[list[int]]:
        """Return [edge, iteration of its source] of all that (task, iteration) reads.

        The iteration is -1 where none has arrived.
        """
        edges = self._into.get(task, ())
        return [[edge, int(self.log[edge, iteration])] for edge in edges]
