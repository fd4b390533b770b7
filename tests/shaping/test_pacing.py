"""The pacing arithmetic, run against fluids in virtual time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.shaping import Depth, FluidLine, allowance, fluid_end, next_look

DEPTH = Depth(lead_time=0.002, lead_bytes=16384, tail=16384)
POLL = 0.001


def test_line_is_straight_from_since_on() -> None:
    line = FluidLine(0, served=100.0, rate=10.0, since=2.0)

    assert [line.at(t) for t in (1.0, 2.0, 3.5)] == [100.0, 100.0, 115.0]


@pytest.mark.parametrize(
    ("served", "rate", "expected"),
    [(0.0, 50.0, 3.0), (100.0, 50.0, 1.0), (40.0, 0.0, math.inf), (100.0, 0.0, 1.0)],
)
def test_fluid_end(served: float, rate: float, expected: float) -> None:
    assert fluid_end(FluidLine(0, served, rate, 1.0), 100.0) == expected


def test_the_lead_is_a_time_of_the_rate_but_at_least_some_bytes() -> None:
    fast = FluidLine(0, 0.0, 1e9, 0.0)
    slow = FluidLine(0, 0.0, 1e3, 0.0)

    assert allowance(fast, 0.0, 0, 10**9, DEPTH) == 2_000_000
    assert allowance(slow, 0.0, 0, 10**9, DEPTH) == 16384
    assert allowance(slow, 1.0, 16384, 10**9, DEPTH) == 1000


def test_the_tail_is_held_until_the_fluid_reaches_the_volume() -> None:
    line = FluidLine(0, 0.0, 1e6, 0.0)
    volume = 100_000

    assert allowance(line, 0.0999, 0, volume, DEPTH) == volume - 16384
    assert allowance(line, 0.0999, volume - 16384, volume, DEPTH) == 0
    assert allowance(line, 0.1, volume - 16384, volume, DEPTH) == 16384


def test_a_volume_within_the_tail_leaves_at_the_end_in_one_piece() -> None:
    line = FluidLine(0, 0.0, 1e6, 0.0)

    assert allowance(line, 0.0099, 0, 10_000, DEPTH) == 0
    assert allowance(line, 0.01, 0, 10_000, DEPTH) == 10_000


def test_a_stopped_fluid_lets_nothing_more_go_and_is_polled() -> None:
    line = FluidLine(0, 50_000.0, 0.0, 1.0)

    assert allowance(line, 9.0, 66_384, 10**6, DEPTH) == 0
    assert next_look(line, 9.0, 10**6, POLL) == pytest.approx(9.001)


def test_a_scheduler_that_rounds_below_the_volume_strands_nothing() -> None:
    volume = 10**9
    line = FluidLine(0, math.nextafter(volume, 0.0), 0.0, 1.0)

    assert allowance(line, 1.0, volume - 16384, volume, DEPTH) == 16384
    assert fluid_end(line, volume) == 1.0


def test_next_look_is_the_end_when_that_comes_before_the_poll() -> None:
    line = FluidLine(0, 0.0, 1e6, 0.0)

    assert next_look(line, 0.0, 500, POLL) == pytest.approx(0.0005)
    assert next_look(line, 0.0, 5000, POLL) == POLL
    assert next_look(line, 1.0, 5000, POLL) == pytest.approx(1.001)


@dataclass(frozen=True)
class Piece:
    """A rate, for a while; seen by the sender ``delay`` seconds late."""

    rate: float
    duration: float
    delay: float


pieces_strategy = st.lists(
    st.builds(
        Piece,
        rate=st.one_of(st.just(0.0), st.floats(1e3, 2e9)),
        duration=st.floats(0.001, 0.05),
        delay=st.floats(0.0, 0.003),
    ),
    max_size=8,
)


def lines_of(pieces: list[Piece]) -> list[tuple[float, FluidLine]]:
    """Return (time seen, line), the last one with a rate that finishes anything."""
    served, since, found = 0.0, 0.0, []
    for piece in [*pieces, Piece(1e8, 1.0, 0.0)]:
        found.append((since + piece.delay, FluidLine(0, served, piece.rate, since)))
        served += piece.rate * piece.duration
        since += piece.duration
    return found


@given(pieces_strategy, st.integers(1, 3_000_000), st.floats(0.0, 0.0005))
def test_any_sequence_of_lines(pieces: list[Piece], volume: int, late: float) -> None:
    """Bounded lead, no early end, exact total, and no longer behind than a poll."""
    lines = lines_of(pieces)
    now, sent, finished = 0.0, 0, None
    while finished is None:
        seen = [line for time, line in lines if time <= now]
        if seen:
            line = seen[-1]
            count = allowance(line, now, sent, volume, DEPTH)
            assert 0 <= count <= volume - sent
            sent += count
            if sent == volume:
                finished = now
                assert line.at(now) >= volume * (1 - 1e-9)
            else:
                # What the sender may do, it did: it is ahead of what it knows,
                # unless the held tail is all that is left.
                assert sent >= min(line.at(now), volume - DEPTH.tail) - 1
                assert count == 0 or sent <= line.at(now) + DEPTH.lead(line.rate)
            wake = next_look(line, now, volume, POLL)
        else:
            wake = now + POLL
        assert now < wake <= now + POLL
        now = wake + late

    assert sent == volume


@given(st.floats(1e3, 1e9), st.integers(1, 10**7))
def test_a_constant_rate_ends_when_the_fluid_does(rate: float, volume: int) -> None:
    line = FluidLine(0, 0.0, rate, 0.0)
    end = fluid_end(line, volume)

    before = allowance(line, end * (1 - 1e-6), 0, volume, DEPTH)
    after = allowance(line, end, 0, volume, DEPTH)

    assert before <= max(0, volume - DEPTH.tail)
    assert after == volume
