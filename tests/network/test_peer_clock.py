"""Two clocks that differ by a known line, and pings whose ways take any time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.network import ClockLine, PeerClock, RunClock
from emu.network.clock import MOST_DRIFT, answered

ways = st.floats(1e-6, 0.5)


@given(
    offset=st.floats(-1e5, 1e5),
    drift=st.floats(-MOST_DRIFT, MOST_DRIFT),
    pings=st.lists(st.tuples(st.floats(0.01, 60.0), ways, ways), min_size=1),
    later=st.floats(0.0, 100.0),
)
def test_the_truth_is_within_the_uncertainty(
    offset: float, drift: float, pings: list[tuple[float, float, float]], later: float
) -> None:
    clock, now = PeerClock(), 100.0
    for pause, there, back in pings:
        sent, came = now + pause, now + pause + there + back
        theirs = (sent + there) * (1 + drift) + offset
        clock.note([answered(sent, theirs, came)])
        now = came
    line = clock.line(now + later)

    assert line is not None
    for wall in (now + later, now + later + 1.0):
        truth = wall * drift + offset
        # Within half a round trip the drift itself adds a little.
        assert abs(line.ahead(wall) - truth) <= line.uncertainty + MOST_DRIFT + 1e-9


def test_drift_is_known_better_the_longer_it_is_watched() -> None:
    rng, clock, line, off = np.random.default_rng(3), PeerClock(), None, {}
    for second in range(1, 201):
        there, back = rng.exponential(2e-4, 2)
        theirs = (second + there) * (1 + 4e-5) + 7.0
        clock.note([answered(second, theirs, second + there + back)])
        line = clock.line(second + 0.01)
        assert line is not None
        off[second] = abs(line.drift - 4e-5)

    assert line is not None
    assert line.drift == pytest.approx(4e-5, abs=3e-6)
    assert off[200] < off[5] / 5
    assert line.uncertainty < 2e-4


def test_nothing_is_known_of_who_does_not_answer() -> None:
    assert PeerClock().line(1.0) is None


def test_run_time_follows_a_drifting_clock_without_a_jump() -> None:
    """The coordinator's clock gains 300 us a second, from 5 s ahead of ours."""
    clock = RunClock(start_wall=105.0, time_scale=2.0, offset=5.0)
    before, seen = -1.0, []
    for second in range(100, 160):
        truth = ClockLine(100.0, 5.0, 3e-4)
        clock.follow(truth, float(second), 1.0)
        for wall in second + np.array([0.0, 0.4, 0.9999]):
            now = clock.to_emulated(float(wall))
            assert now >= before
            assert clock.to_emulated(clock.to_wall(now)) == pytest.approx(now, abs=1e-9)
            before = now
            seen.append((float(wall), now))
    assert clock.to_emulated(160.0) == pytest.approx((60 + 0.018) / 2, abs=1e-9)
    walls, times = np.array(seen).T
    np.testing.assert_allclose(clock.run_times(walls), times, atol=1e-9)
    assert clock.run_times(np.array([-np.inf, np.nan]))[0] == -np.inf
