"""The pacing arithmetic, run against fluids in virtual time."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.emulation.shaping import Pace, RateSegment
from tests.emulation.shaping.core_rules import (
    allowance,
    fluid_end,
    lead,
    next_look,
)
from tests.emulation.shaping.fluids import Piece, lines_of, pieces_strategy
from tests.emulation.shaping.slow_sender import fluid_at

PACE = Pace(lead_time=0.002, lead_bytes=16384, tail=16384)


@pytest.mark.parametrize(
    ("served", "rate", "expected"),
    [(0.0, 50.0, 3.0), (100.0, 50.0, 1.0), (40.0, 0.0, math.inf), (100.0, 0.0, 1.0)],
)
def test_fluid_end(served: float, rate: float, expected: float) -> None:
    assert fluid_end(RateSegment(0, served, rate, 1.0), 100.0) == expected


def test_the_lead_is_a_time_of_the_rate_but_at_least_some_bytes() -> None:
    fast = RateSegment(0, 0.0, 1e9, 0.0)
    slow = RateSegment(0, 0.0, 1e3, 0.0)

    assert allowance(fast, 0.0, 0, 10**9, PACE) == 2_000_000
    assert allowance(slow, 0.0, 0, 10**9, PACE) == 16384
    assert allowance(slow, 1.0, 16384, 10**9, PACE) == 1000


def test_the_tail_is_held_until_shortly_before_the_fluid_s_end() -> None:
    line = RateSegment(0, 0.0, 1e6, 0.0)
    volume = 100_000

    assert allowance(line, 0.0979, 0, volume, PACE) == volume - 16384
    assert allowance(line, 0.0979, volume - 16384, volume, PACE) == 0
    assert allowance(line, 0.0981, volume - 16384, volume, PACE) == 16384


def test_a_volume_within_the_tail_leaves_in_one_piece() -> None:
    line = RateSegment(0, 0.0, 1e6, 0.0)

    assert allowance(line, 0.0079, 0, 10_000, PACE) == 0
    assert allowance(line, 0.0081, 0, 10_000, PACE) == 10_000


def test_before_its_time_a_line_lets_go_what_was_served_and_the_lead() -> None:
    line = RateSegment(0, 5000.0, 1e6, since=1.0)

    assert allowance(line, 0.5, 1000, 10**6, PACE) == 4000
    assert allowance(line, 0.999, 1000, 10**6, PACE) == 4000 + 16384
    assert look(line, 0.95, 10**6) == pytest.approx(0.048)
    assert look(line, 0.5, 10**6) == pytest.approx(PACE.idle)
    assert look(line, 0.5, 10**6, notified=True) == pytest.approx(0.0005)


def look(
    line: RateSegment | None,
    now: float,
    volume: int,
    *,
    notified: bool = False,
    sending: bool = True,
) -> float:
    """Return the seconds until the next look."""
    at = next_look(line, now, volume, PACE, notified=notified, sending=sending)
    return at - now


def test_a_stopped_fluid_lets_nothing_more_go_and_is_looked_at() -> None:
    line = RateSegment(0, 50_000.0, 0.0, 1.0)

    assert allowance(line, 9.0, 66_384, 10**6, PACE) == 0
    assert look(line, 9.0, 10**6) == pytest.approx(PACE.idle)


def test_a_scheduler_that_rounds_below_the_volume_strands_nothing() -> None:
    volume = 10**9
    line = RateSegment(0, math.nextafter(volume, 0.0), 0.0, 1.0)

    assert allowance(line, 1.0, volume - 16384, volume, PACE) == 16384
    assert fluid_end(line, volume) == 1.0


def test_next_look_is_when_the_last_bytes_may_go_if_that_is_near() -> None:
    line = RateSegment(0, 0.0, 1e6, 0.0)

    assert look(line, 0.0, 2400) == pytest.approx(0.0004)
    assert look(line, 0.0, 2600) == pytest.approx(0.0005)


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (2_600, 0.0005),  # the last bytes may go in 0.6 ms
        (5_000, 0.0015),
        (80_000, 0.002),  # lives on its lead
    ],
)
def test_the_next_look_is_half_way_to_the_last_bytes(
    left: int, expected: float
) -> None:
    line = RateSegment(0, 5000.0, 1e6, 0.0)

    assert look(line, 0.0, 5000 + left) == pytest.approx(expected)


def test_who_waits_for_a_rate_looks_only_in_case() -> None:
    stopped = RateSegment(0, 50.0, 0.0, 1.0)

    assert [look(line, 5.0, 100) for line in (None, stopped)] == pytest.approx(
        [PACE.idle] * 2
    )


def test_who_was_told_of_a_rate_looks_until_it_is_there() -> None:
    stopped = RateSegment(0, 50.0, 0.0, 1.0)

    soon = [look(line, 5.0, 100, notified=True) for line in (None, stopped)]

    assert soon == pytest.approx([0.0005] * 2)


def test_with_nothing_to_send_before_the_end_it_looks_less_often() -> None:
    line = RateSegment(0, 0.0, 1e3, 0.0)

    assert look(line, 0.0, 10_000, sending=True) == pytest.approx(0.002)
    assert look(line, 0.0, 10_000, sending=False) == pytest.approx(PACE.idle)
    assert look(line, 9.978, 10_000, sending=False) == pytest.approx(0.01)


@given(pieces_strategy, st.integers(1, 3_000_000), st.floats(0.0, 0.0005))
def test_any_sequence_of_lines(pieces: list[Piece], volume: int, late: float) -> None:
    """Bounded lead, exact total, a look within the longest interval."""
    lines = lines_of(pieces)
    now, sent, finished = 0.0, 0, None
    while finished is None:
        seen = [line for time, line in lines if time <= now]
        if seen:
            line = seen[-1]
            count = allowance(line, now, sent, volume, PACE)
            assert 0 <= count <= volume - sent
            sent += count
            if sent == volume:
                finished = now
                assert fluid_at(line, now + PACE.lead_time) >= volume * (1 - 1e-9)
            else:
                # What the sender may do, it did: it is ahead of what it knows,
                # unless the held tail is all that is left.
                assert sent >= min(fluid_at(line, now), volume - PACE.tail) - 1
                assert count == 0 or sent <= fluid_at(line, now) + lead(PACE, line.rate)
            wake = now + look(line, now, volume)
        else:
            wake = now + look(None, now, volume)
        assert finished is not None or now < wake
        assert wake <= now + PACE.idle
        now = wake + late

    assert sent == volume


@given(st.floats(1e3, 1e9), st.integers(1, 10**7))
def test_the_last_bytes_go_a_lead_before_the_end(rate: float, volume: int) -> None:
    line = RateSegment(0, 0.0, rate, 0.0)
    last = fluid_end(line, volume) - PACE.lead_time

    before = allowance(line, last - 1e-6, 0, volume, PACE)
    after = allowance(line, last + 1e-6, 0, volume, PACE)

    assert before <= max(0, volume - PACE.tail)
    assert after == volume
