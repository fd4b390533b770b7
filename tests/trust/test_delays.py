"""Turns of the coordinator are laid over delays second by second."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from emu.trust.delays import by_turns
from emu.trust.observed import Observations

#: Milliseconds: nothing to do, then waits before a turn, in it, and at work in it.
TURNS = st.lists(st.tuples(*[st.integers(0, 9)] * 4), max_size=5)


@given(TURNS, st.integers(0, 90), st.integers(0, 90))
def test_turns_overlap_delays_as_counted_millisecond_by_millisecond(
    turns: list[tuple[int, int, int, int]], begin: int, length: int
) -> None:
    """Each millisecond of a turn is part work, part wait, as all of the turn is."""
    worked = np.zeros(400)
    waited = np.zeros(400)
    rows = []
    now = 0
    for idle, before, within, work in turns:
        start = now + idle + before
        waited[now + idle : start] = 1.0
        now = start + within + work
        if now > start:
            worked[start:now] = work / (now - start)
            waited[start:now] = within / (now - start)
        rows.append((start, now, before, within))

    observed = Observations(turns=np.array(rows, float).reshape(-1, 4))
    end = begin + length
    found = by_turns(np.array([begin]), np.array([end]), observed)

    expected = worked[begin:end].sum(), waited[begin:end].sum()
    assert np.allclose(np.ravel(found), expected)
