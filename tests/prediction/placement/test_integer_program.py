"""Integer programs against every one of their points."""

from __future__ import annotations

import numpy as np
import pytest

from emu.prediction.placement.packing import Row, minimise

POINTS = np.array([*np.ndindex(*[2] * 14)], dtype=float)


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return costs and a system of rows whose fractions are far from whole points."""
    rng = np.random.default_rng(seed)
    factors = rng.integers(5, 60, size=(5, POINTS.shape[1])).astype(float)
    costs = -(factors.sum(axis=0) + rng.integers(0, 5, POINTS.shape[1]))
    return costs, factors, factors.sum(axis=1) // 2


def test_the_optimum_is_that_of_all_points_and_no_bound_is_above_it() -> None:
    """A search that was cut short once gave its best point as a lower bound."""
    cut_short = 0
    for seed in range(12):
        costs, factors, most = drawn(seed)
        fits = (most >= POINTS @ factors.T).all(axis=1)
        optimum = float((POINTS[fits] @ costs).min())
        columns = range(costs.size)
        rows = [
            Row(columns, [*row], -np.inf, top)
            for row, top in zip(factors, most, strict=True)
        ]
        one, every = np.ones(costs.size), np.ones(costs.size, dtype=bool)

        found = minimise(costs, one, every, rows)
        assert found.x is not None
        assert costs @ found.x == pytest.approx(optimum, rel=2e-4)
        assert found.bound <= optimum + 1e-6

        first = minimise(costs, one, every, rows, nodes=1)
        assert first.bound <= optimum + 1e-6
        cut_short += first.bound < optimum * (1 + 1e-3)

        relaxed = minimise(costs, one, ~every, rows)
        assert relaxed.bound <= optimum + 1e-6
    assert cut_short


def test_what_cannot_be_has_no_bound() -> None:
    """The sum of two shares cannot be three."""
    both = [Row([0, 1], [1.0, 1.0], 3.0, 3.0)]
    for whole in (True, False):
        found = minimise(np.ones(2), np.ones(2), np.full(2, whole), both)
        assert found.x is None
        assert found.bound == -np.inf
    # Nor has what may be whole in no way, though its shares add up.
    odd = [Row([0, 1], [2.0, 2.0], 3.0, 3.0)]
    found = minimise(np.ones(2), np.ones(2), np.full(2, True), odd)
    assert (found.x, found.bound) == (None, -np.inf)
    shares = minimise(np.ones(2), np.ones(2), np.full(2, False), odd)
    assert shares.bound == 1.5


def test_a_column_that_a_row_names_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        minimise(
            np.ones(1), np.ones(1), np.zeros(1, bool), [Row([0, 0], [1.0, 1.0], 0, 1)]
        )
