"""Packing counts of interchangeable units onto machines (Alg. 2's dynamic program).

A state is how many units of every group the first machines hold; which units those are
does not matter, and that makes the program polynomial. Must not know: jobs, policies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emu.errors import PlacementError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Counts = tuple[int, ...]

MAX_STATES = 50_000_000  # one byte each
CHUNK = 2_000_000  # (state, option) pairs looked at together: 100 MB at most


@dataclass(frozen=True, eq=False)
class Packing:
    """Groups of equal items, and bins."""

    demand: NDArray[np.float64]
    """Demand of one item of each group, shape (groups, resources)."""
    sizes: Counts
    """Number of items of each group."""
    free: NDArray[np.float64]
    """Room of each bin, shape (bins, resources)."""

    def most_per_bin(self) -> Counts:
        """Return eta: the most items of each group alone in any bin (A9).

        An upper bound for loops, never a test of feasibility.
        """
        most = []
        for demand, size in zip(self.demand, self.sizes, strict=True):
            asked = demand > 0
            room = self.free[:, asked] / demand[asked]  # (bins, asked)
            count = np.floor(room.min(axis=1, initial=np.inf) * (1 + 1e-12)).max()
            most.append(int(min(max(count, 0), size)))
        return tuple(most)

    def options(self, where: int) -> NDArray[np.int64]:
        """Return every vector of counts that fits one bin, in lexicographic order.

        Shape (options, groups).
        """
        counts: NDArray[np.int64] = np.zeros((1, 0), dtype=np.int64)
        for group, most in enumerate(self.most_per_bin()):
            choices = np.tile(np.arange(most + 1), len(counts))
            counts = np.column_stack([np.repeat(counts, most + 1, axis=0), choices])
            used = counts @ self.demand[: group + 1]
            counts = counts[(used <= self.free[where]).all(axis=1)]
        return counts

    def solve(self, order: Sequence[int]) -> list[tuple[int, Counts]] | None:
        """Return (bin, counts) that hold everything, found in ``order``, or None.

        States are kept once, the first way to reach one wins, and every bin is tried
        first with all that is left (A10).

        Raises
        ------
        PlacementError
            When there are too many groups of different items to count.
        """
        sizes = np.array(self.sizes, dtype=np.int64)
        states = np.zeros((1, len(sizes)), dtype=np.int64)
        steps: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        for position, where in enumerate(order):
            left = (sizes - states) @ self.demand
            done = (left <= self.free[where]).all(axis=1)
            if done.any():
                state = int(np.argmax(done))
                last = tuple((sizes - states[state]).tolist())
                return [*_trace(steps, state, order[:position]), (where, last)]
            states, step = self._extend(states, self.options(where))
            steps.append(step)
            if not len(states):
                return None
        return None

    def reachable(self) -> NDArray[np.int64]:
        """Return the counts that the bins can hold together, shape (states, groups)."""
        states = np.zeros((1, len(self.sizes)), dtype=np.int64)
        for where in range(len(self.free)):
            states, _ = self._extend(states, self.options(where))
        return states

    def _extend(
        self, states: NDArray[np.int64], options: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Put every option on top of every state; return what is new, and its origin.

        The origin is (position of the state before, counts put on top).
        """
        sizes = np.array(self.sizes, dtype=np.int64)
        strides = _strides(self.sizes)
        seen: NDArray[np.bool_] = np.zeros(_state_count(self.sizes), dtype=np.bool_)
        origins, added = [], []
        rows = max(1, CHUNK // max(1, len(options)))
        for first in range(0, len(states), rows):
            block = states[first : first + rows]
            room = options[None] <= (sizes - block)[:, None]  # (block, options, groups)
            state, option = np.nonzero(room.all(axis=2))
            codes = block[state] @ strides + options[option] @ strides
            _, at = np.unique(codes, return_index=True)
            at = np.sort(at[~seen[codes[at]]])  # first come, first kept
            seen[codes[at]] = True
            origins.append(first + state[at])
            added.append(options[option[at]])
        origin, counts = np.concatenate(origins), np.concatenate(added)
        return states[origin] + counts, (origin, counts)


def _trace(
    steps: list[tuple[NDArray[np.int64], NDArray[np.int64]]],
    state: int,
    order: Sequence[int],
) -> list[tuple[int, Counts]]:
    """Walk back from ``state`` to the empty one; return counts in ``order``."""
    found = []
    for (origin, counts), where in zip(reversed(steps), reversed(order), strict=True):
        found.append((where, tuple(counts[state].tolist())))
        state = int(origin[state])
    return found[::-1]


def _state_count(sizes: Counts) -> int:
    count = 1
    for size in sizes:
        count *= size + 1
    if count > MAX_STATES:
        raise PlacementError(
            f"{len(sizes)} kinds of tasks with different demands make {count:.2g} "
            f"states, more than {MAX_STATES:.2g}; give tasks equal kinds and demands, "
            "or place them explicitly"
        )
    return count


def _strides(sizes: Counts) -> NDArray[np.int64]:
    """Return the weight of every count in the number of a state."""
    above = np.array([*sizes[1:], 0], dtype=np.int64) + 1
    return np.cumprod(above[::-1])[::-1].astype(np.int64)
