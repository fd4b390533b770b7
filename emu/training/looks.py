"""When the accuracy of a training is looked at, and which look reaches a target.

Looks are spaced by seeds, training vertices that the steps have seen, repeated ones
counted again: so systems with mini-batches are looked at as often as those that see
all in every step. One look alone may be luck, so that a target counts as reached where
`HELD` of them in a row hold it; it was reached at the first, and is known at the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from emu.array_types import Floats, Ints
from emu.errors import DataError
from emu.graph_data import BatchPlan, open_for
from emu.problem import Epoch
from emu.training.layers import JobSettings

#: Looks in a row that hold a target which counts as reached.
HELD = 3


def trains_whole_graph(settings: JobSettings) -> bool:
    """Return True where a job of ``Job.settings`` has no mini-batches."""
    return "batch_size" not in settings


def count_seeds(settings: JobSettings, train: int, steps: int) -> Ints:
    """Return the seeds seen after every step, int64, shape (steps,).

    ``settings``, ``train``: ``Job.settings``; number of training vertices. Raises
    ValueError as `BatchPlan`, or when a sampler would have no training vertex.
    """
    numbers = np.arange(1, steps + 1)

    if trains_whole_graph(settings):
        # Each step, an epoch, sees all training vertices.
        return numbers * train
    plan = BatchPlan.from_settings(settings)
    return plan.seeds_after(train, numbers)


def epoch_of(settings: JobSettings) -> Epoch | None:
    """Return the epoch of a job of ``Job.settings``; None without mini-batches.

    Where the data set is not there, as beside a profile, every batch counts in full.
    """
    has_workers = "workers" in settings
    if not has_workers or trains_whole_graph(settings):
        return None

    plan = BatchPlan.from_settings(settings)
    try:
        train = open_for(settings).train_count
    except DataError:
        # Without a training set no batch is known to be short.
        seeds_per_step = plan.samplers * plan.batch_size
        return Epoch(1, seeds_per_step)

    steps = plan.steps_per_epoch(train)
    seeds = plan.seeds_after(train, np.array([steps]))
    return Epoch(steps, int(seeds[0]))


def space_looks(seen: Ints, spacing: int) -> Ints:
    """Return the steps, from 1, after which to look: those that see the next multiple.

    ``seen``: seeds after every step, as of `count_seeds`; ``spacing``: seeds from one
    look to the next; a step that sees more has one look.
    """
    multiples = seen // spacing
    # Where the number of full spacings grows, a multiple has been passed.
    passes = np.diff(multiples, prepend=0)
    return np.flatnonzero(passes) + 1


def hold(accuracy: Floats) -> Floats:
    """Return what every `HELD` looks in a row hold: the least of them.

    Its place is that of their first look; shape (looks - HELD + 1,), or none.
    """
    if len(accuracy) < HELD:
        return np.empty(0)
    # The least of a window holds a target exactly if all of it do.
    return np.asarray(sliding_window_view(accuracy, HELD).min(axis=1))


def reach(accuracy: Floats, target: float) -> int | None:
    """Return the look, from 0, at which a target is reached; None where at none."""
    is_held = hold(accuracy) >= target
    places = np.flatnonzero(is_held)
    if not len(places):
        return None
    return int(places[0])


class Look(NamedTuple):
    """Accuracy of a training at one moment."""

    step: int
    """Steps taken."""
    seeds: int
    """Seeds seen."""
    accuracy: float
    """Share of one split whose class is predicted rightly."""


class Progress(NamedTuple):
    """Training in one process."""

    loss: Floats
    """Mean over the workers of every step, shape (steps,)."""
    looks: Ints
    """Steps, from 1, after which it was looked at, shape (looks,)."""
    accuracy: Mapping[str, Floats]
    """By split, shape (looks,); NaN where it has no vertices."""
    spaced: int
    """First so many looks are evenly spaced; one behind them is of the last step."""
    diverged: int | None = None
    """First step, from 1, after which parameters were no numbers."""

    def reach(self, split: str, target: float) -> int | None:
        """Return the look at which a target is reached, or None; see `reach`."""
        evenly_spaced = self.accuracy[split][: self.spaced]
        return reach(evenly_spaced, target)
