"""Leaky buckets against their definition, tried on every interval."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.trust.guards.traffic import of_flows

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
