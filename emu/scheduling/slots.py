"""Slots: tasks of a machine that share a pool, first come first served.

Of those that came at one instant the lower iteration is first, then the task that
stands first in the job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.scheduling.compiled import apart, inlined
from emu.scheduling.state import QUEUED, TIE, WOKEN, State

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from emu.scheduling.compiled_problem import Floats, Ints, Layout


@inlined
def queue_up(layout: Layout, state: State, now: float) -> None:
    """Keep of the woken tasks those that start at once; see `Layout.last`."""
    _queue_up(layout.last, state.woken, state.queued, state.came, state.length, now)


@apart
def _queue_up(
    last: NDArray[np.bool_],
    woken: Ints,
    queued: Ints,
    came: Floats,
    length: Ints,
    now: float,
) -> None:
    kept = 0
    for i in range(length[WOKEN]):
        task = woken[i]
        if not last[task]:
            woken[kept] = task
            kept += 1
        else:
            queued[length[QUEUED]] = task
            length[QUEUED] += 1
            came[task] = now
    length[WOKEN] = kept


@inlined
def _is_before(came: Floats, started: Ints, task: int, other: int) -> bool:
    """Return True where ``task`` has come to wait for a slot before ``other``."""
    if abs(came[task] - came[other]) > TIE * came[other]:
        return bool(came[task] < came[other])
    if started[task] != started[other]:
        return bool(started[task] < started[other])
    return task < other


@inlined
def grant(layout: Layout, state: State) -> None:
    """Wake the waiting tasks that get a slot or need none, to read the newest."""
    _grant(
        layout.takes,
        state.free,
        state.queued,
        state.came,
        state.started,
        state.woken,
        state.length,
    )


@apart
def _grant(
    takes: Ints,
    free: Ints,
    queued: Ints,
    came: Floats,
    started: Ints,
    woken: Ints,
    length: Ints,
) -> None:
    while True:
        place = -1
        for i in range(length[QUEUED]):
            task = queued[i]
            pool = takes[task]
            if (pool < 0 or free[pool] > 0) and (
                place < 0 or _is_before(came, started, task, queued[place])
            ):
                place = i
        if place < 0:
            return
        task = queued[place]
        length[QUEUED] -= 1
        queued[place] = queued[length[QUEUED]]
        if takes[task] >= 0:
            free[takes[task]] -= 1
        woken[length[WOKEN]] = task
        length[WOKEN] += 1
