"""The pacing arithmetic, run against fluids in virtual time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.shaping import Depth, FluidLine, Looks, allowance, fluid_end, next_look

DEPTH = Depth(lead_time=0.002, lead_bytes=16384, tail=16384)
LOOKS = Looks(shortest=0.0005, longest=0.002)


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


def look(
    line: FluidLine | None,
    now: float,
    volume: int,
    *,
    fastest: float = math.inf,
    waited: float = 0.0,
) -> float:
    """Return the seconds until the next look."""
    return next_look(line, now, volume, fastest=fastest, waited=waited, looks=LOOKS) - (
        now
    )


def test_a_stopped_fluid_lets_nothing_more_go_and_is_looked_at() -> None:
    line = FluidLine(0, 50_000.0, 0.0, 1.0)

    assert allowance(line, 9.0, 66_384, 10**6, DEPTH) == 0
    assert look(line, 9.0, 10**6, waited=8.0) == pytest.approx(0.002)


def test_a_scheduler_that_rounds_below_the_volume_strands_nothing() -> None:
    volume = 10**9
    line = FluidLine(0, math.nextafter(volume, 0.0), 0.0, 1.0)

    assert allowance(line, 1.0, volume - 16384, volume, DEPTH) == 16384
    assert fluid_end(line, volume) == 1.0


def test_next_look_is_the_end_when_that_is_near() -> None:
    line = FluidLine(0, 0.0, 1e6, 0.0)

    assert look(line, 0.0, 400) == pytest.approx(0.0004)
    assert look(line, 0.0, 600) == pytest.approx(0.0005)


@pytest.mark.parametrize(
    ("rate", "fastest", "left", "expected"),
    [
        (1e6, math.inf, 1_000, 0.0005),  # the end is 1 ms away, and may come any time
        (1e6, math.inf, 8_000, 0.001),  # an eighth of 8 ms
        (1e6, math.inf, 80_000, 0.002),
        (1e6, 1e6, 3_000, 0.0015),  # half of the 3 ms it takes at the least
        (1e6, 10e6, 8_000, 0.001),
        (0.0, 1e6, 3_000, 0.0015),
        (0.0, math.inf, 3_000, 0.0005),
    ],
)
def test_the_nearer_the_end_may_come_the_sooner_is_the_next_look(
    rate: float, fastest: float, left: int, expected: float
) -> None:
    line = FluidLine(0, 5000.0, rate, 0.0)

    waited = 0.003
    assert look(line, 0.0, 5000 + left, fastest=fastest, waited=waited) == (
        pytest.approx(expected)
    )


def test_who_waits_for_a_line_looks_the_less_often_the_longer_it_has_waited() -> None:
    waits = [look(None, 5.0, 100, waited=w) for w in (0.0, 0.0003, 0.002, 0.008, 1.0)]

    assert waits == pytest.approx([0.000125, 0.0003, 0.0005, 0.001, 0.002])


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
    """Bounded lead, no early end, exact total, a look within the longest interval."""
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
            wake = now + look(line, now, volume)
        else:
            wake = now + look(None, now, volume, waited=now)
        assert finished is not None or now < wake
        assert wake <= now + LOOKS.longest
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


@given(pieces_strategy, st.integers(1, 3_000_000))
def test_a_flow_ends_late_by_no_more_than_the_longest_interval(
    pieces: list[Piece], volume: int
) -> None:
    lines = [line for _, line in lines_of(pieces)]
    fastest = max(line.rate for line in lines)
    now, looked = 0.0, 0
    while fluid_end(line := [x for x in lines if x.since <= now][-1], volume) > now:
        now += look(line, now, volume, fastest=fastest, waited=now - line.since)
        looked += 1

    following = [x.since for x in lines[1:]] + [math.inf]
    true_end = min(
        end
        for x, until in zip(lines, following, strict=True)
        if (end := fluid_end(x, volume)) <= until
    )
    assert -1e-9 <= now - true_end <= LOOKS.longest * (1 + 1e-9)
    assert looked <= 5 * len(lines) + now / LOOKS.shortest
