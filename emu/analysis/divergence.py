"""Where an emulated schedule parted from the simulation of its own times and volumes.

Both ran the same tasks and flows, so every part of the emulated critical path has a
time in the simulation too. Along the chain the two drift apart part by part, and the
divergences sum to the difference of the makespans exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from emu.analysis.critical_path import Cause, Link, critical_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emu.analysis.critical_path import CriticalPath
    from emu.problem import Schedule

#: What the simulation waited for and the emulated chain did not; negative.
ELSEWHERE = "waits of the simulation"


@dataclass(frozen=True)
class Drift:
    """How much later the emulated run was after a part of its chain than before it.

    Parameters
    ----------
    cause
        A `Cause`, or `ELSEWHERE`.
    link
        The part: task or edge, iteration, port.
    seconds
        Emulated minus simulated; the whole of a gap.
    """

    cause: str
    link: Link
    seconds: float


def divergences(
    emulated: Schedule, simulated: Schedule, chain: CriticalPath | None = None
) -> tuple[Drift, ...]:
    """Return the divergences along the critical path of ``emulated``, by time.

    Parameters
    ----------
    chain
        That of ``emulated``, where it is known already.

    Raises
    ------
    ValueError
        When the two are not of the same tasks, edges and iterations.
    """
    shapes = emulated.task_end.shape, emulated.flow_end.shape
    if (simulated.task_end.shape, simulated.flow_end.shape) != shapes:
        raise ValueError("the two schedules are not of the same job")
    links = (chain or critical_path(emulated)).links
    return tuple(drift for drift in _walk(links, simulated) if drift.seconds)


def _walk(links: tuple[Link, ...], simulated: Schedule) -> Iterator[Drift]:
    moment = 0.0  # where the simulation is
    for (edge, task, iteration), pieces in groupby(links, _identity):
        last = None
        begun = None
        for link in pieces:
            if link.cause is Cause.GAP:
                yield Drift(Cause.GAP, link, link.seconds)
                continue
            begun = link.start if begun is None else begun
            last = link
        if last is None or begun is None:
            continue
        start, end = _span(simulated, edge, task, iteration)
        yield Drift(ELSEWHERE, last, moment - start)
        yield Drift(last.cause, last, (last.end - begun) - (end - start))
        moment = end
    if links:  # a run of no length has no chain
        yield Drift(ELSEWHERE, links[-1], moment - simulated.makespan)


def _identity(link: Link) -> tuple[int, int, int]:
    return link.edge, link.task, link.iteration


def _span(made: Schedule, edge: int, task: int, iteration: int) -> tuple[float, float]:
    if edge >= 0:
        at = edge, iteration
        return float(made.flow_start[at]), float(made.flow_end[at])
    at = task, iteration
    return float(made.task_start[at]), float(made.task_end[at])
