"""The draws that make two placements of one search comparable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from emu.problem import Profile, Realization


def common_draws(profile: Profile, seed: int, iterations: int) -> Realization:
    """Return the run that every placement of a search with this seed is judged by.

    Common random numbers (A20): two placements differ by where tasks stand, not by
    luck, also when different algorithms found them.
    """
    return profile.draw(np.random.default_rng(_sequence(seed, 0)), iterations)


def walk_generator(seed: int, chain: int = 0) -> np.random.Generator:
    """Return the generator of one chain, independent of the draws and other chains."""
    return np.random.default_rng(_sequence(seed, 1 + chain))


def _sequence(seed: int, stream: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(stream,))
