"""Leaky buckets against their definition, tried on every interval."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.analysis.guards.bucket import of_flows, of_windows

#: Start, length and bytes, on a grid: many share an instant.
FLOWS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 6), st.integers(1, 20)), max_size=12
)


@given(FLOWS, st.integers(1, 9), st.integers(0, 30))
def test_flows_overflow_where_some_interval_does(
    drawn: list[tuple[int, int, int]], capacity: int, depth: int
) -> None:
    start, length, sent = np.array(drawn, dtype=float).reshape(-1, 3).T
    end = start + length
    excess = {
        (s, e): sent[(start >= s) & (end <= e)].sum() - capacity * (e - s)
        for s in set(start)
        for e in set(end)
        if e >= s
    }
    found = of_flows(start, end, sent, capacity, depth)

    over = [e for (_, e), most in excess.items() if most > depth]
    if not over:
        assert found is None
        return
    assert found is not None
    assert found.at == min(over)
    assert found.most == pytest.approx(max(excess.values()))
    assert excess[found.since, found.until] == pytest.approx(found.most)


@given(
    st.lists(st.integers(0, 40), max_size=15), st.integers(1, 20), st.integers(0, 30)
)
def test_windows_overflow_where_some_run_of_them_does(
    carried: list[int], capacity: int, depth: int
) -> None:
    width = 0.5
    excess = {
        (i, j): sum(carried[i:j]) - capacity * width * (j - i)
        for i in range(len(carried))
        for j in range(i + 1, len(carried) + 1)
    }
    found = of_windows(np.array(carried, dtype=float), width, capacity, depth)

    over = [j for (_, j), most in excess.items() if most > depth]
    if not over:
        assert found is None
        return
    assert found is not None
    assert found.at == min(over) * width
    assert found.most == pytest.approx(max(excess.values()))


def test_a_lead_counts_once_and_not_in_every_window() -> None:
    """A tenth too much in each of 100 windows is ten windows too much at the end."""
    carried = np.full(100, 1.1)

    found = of_windows(carried, 1.0, 1.0, depth=0.95)

    assert found is not None
    assert found.at == 10.0
    assert found.most == pytest.approx(10.0)
