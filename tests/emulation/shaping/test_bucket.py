"""A sender that stands still catches up what its bucket holds, and no more."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.emulation.shaping import Pace, RateSegment
from tests.emulation.shaping.core_rules import (
    Bucket,
    allowance,
    fluid_end,
)
from tests.emulation.shaping.fluids import Piece
from tests.emulation.shaping.slow_sender import fluid_at

#: Bytes per second of the link; a sender that has seen no rate may not know a lower.
CAPACITY = 1e7
CHUNK = 16384
ENDLESS = Pace(lead_time=0.0)

pieces_strategy = st.lists(
    st.builds(
        Piece,
        rate=st.one_of(st.just(0.0), st.floats(1e4, CAPACITY)),
        duration=st.floats(0.001, 0.3),
        delay=st.floats(0.0, 0.003),
    ),
    min_size=1,
    max_size=6,
)
pauses_strategy = st.lists(
    st.one_of(st.floats(0.0001, 0.004), st.floats(0.1, 1.0)), min_size=1, max_size=40
)


def lines_until(pieces: list[Piece], volume: int) -> list[tuple[float, RateSegment]]:
    """Return (time seen, line) as a coordinator publishes them: the end is a line."""
    served, since = 0.0, 0.0
    found: list[tuple[float, RateSegment]] = []
    for piece in [*pieces, Piece(CAPACITY / 3, math.inf, 0.001)]:
        line = RateSegment(0, served, piece.rate, since)
        found.append((since + piece.delay, line))
        if (end := fluid_end(line, volume)) <= since + piece.duration:
            return [*found, (end + 0.001, RateSegment(0, float(volume), 0.0, end))]
        served += piece.rate * piece.duration
        since += piece.duration
    raise AssertionError("the last rate ends any flow")


def sends(
    lines: list[tuple[float, RateSegment]],
    volume: int,
    pauses: list[float],
    pace: Pace,
) -> tuple[list[tuple[float, int]], Bucket]:
    """Return (time, bytes sent then) of a sender that looks after these pauses."""
    now, sent, bucket = 0.0, 0, Bucket()
    found: list[tuple[float, int]] = []
    for pause in [*pauses, *[0.002] * 10_000, *[0.02] * 20_000]:
        if sent == volume:
            return found, bucket
        now += pause
        seen = [line for time, line in lines if time <= now]
        if not seen:
            continue
        left = bucket.without_loss(seen[-1], now, sent, volume, pace, CAPACITY)
        if count := allowance(left, now, sent, volume, pace):
            found.append((now, count))
            sent += count
    raise AssertionError(f"{volume - sent} bytes never went: {bucket}")


def carried(lines: list[tuple[float, RateSegment]], bucket: Bucket, at: float) -> float:
    """Return what the rates carry by a time, with what was lost after their end."""
    line = [line for _, line in lines if line.since <= at][-1]
    if line is lines[-1][1]:
        return line.served + (bucket.rate or CAPACITY) * (at - line.since)
    return fluid_at(line, at)


@given(
    pieces_strategy,
    st.integers(1, 2_000_000),
    pauses_strategy,
    st.sampled_from([0.0, 0.001, 0.01, 0.1, 1.0]),
    st.sampled_from([0.0, 0.006]),
)
def test_no_interval_brings_more_than_its_rates_and_the_depth(
    pieces: list[Piece],
    volume: int,
    pauses: list[float],
    catch_up: float,
    lead_time: float,
) -> None:
    lines = lines_until(pieces, volume)
    pace = replace(ENDLESS, catch_up=catch_up, lead_time=lead_time)
    found, bucket = sends(lines, volume, pauses, pace)
    # The sender cannot know of a rate between two looks; the link has no more.
    highest = max(bucket.highest, bucket.rate) or CAPACITY
    room = catch_up * highest + CHUNK + lead_time * CAPACITY + volume * 1e-8 + 1
    # What it sends before it sees a line is not held to that line.
    room += CAPACITY * max(time - line.since for time, line in lines)
    since = np.array([carried(lines, bucket, time) for time, _ in found])
    counts = np.array([count for _, count in found])
    came = counts.cumsum()

    assert came[-1] == volume
    # Of every interval: what came from its first look to its last beyond the rates.
    beyond = (came - since) - np.minimum.accumulate(came - counts - since)
    assert beyond.max() <= room


@given(pieces_strategy, st.integers(1, 2_000_000), pauses_strategy)
def test_without_a_bound_nothing_is_lost(
    pieces: list[Piece], volume: int, pauses: list[float]
) -> None:
    lines = lines_until(pieces, volume)
    line = lines[-1][1]

    found, bucket = sends(lines, volume, pauses, ENDLESS)
    ample, kept = sends(lines, volume, pauses, replace(ENDLESS, catch_up=1e6))

    assert bucket.content == (0.0, 0.0, 0.0)
    assert kept.lost == 0.0
    assert found == ample
    assert bucket.without_loss(line, 1.0, 0, volume, ENDLESS, CAPACITY) == line


@given(
    st.floats(1e5, CAPACITY),
    st.floats(0.05, 1.0),
    st.sampled_from([0.0, 0.001, 0.01, 0.04]),
)
def test_who_stood_still_ends_as_much_later_as_was_lost(
    rate: float, pause: float, catch_up: float
) -> None:
    volume = int(rate * 2) + CHUNK
    line = RateSegment(0, 0.0, rate, 0.0)
    lines = [
        (0.0, line),
        (fluid_end(line, volume), RateSegment(0, volume, 0.0, fluid_end(line, volume))),
    ]
    pace = replace(ENDLESS, catch_up=catch_up)
    # 16 KB are ahead when the pause begins: the bucket then fills by what it lacks.
    look = min(0.002, 0.5 * (catch_up + CHUNK / rate))
    before = [look] * int(0.5 / look)

    found, bucket = sends(lines, volume, [*before, pause, *[look] * 200_000], pace)

    fit = rate * (pause - catch_up)
    assert fit - CHUNK - rate * look <= bucket.lost <= max(0.0, fit) + 1
    assert found[-1][0] == pytest.approx(
        2 + CHUNK / rate + bucket.lost / rate, abs=0.003
    )
    assert max(count for _, count in found) <= catch_up * rate + CHUNK + 1


def test_a_flow_of_which_no_rate_was_seen_goes_at_the_link_s() -> None:
    line, volume = RateSegment(0, 1e6, 0.0, 1.0), 1_000_000
    pace, bucket = replace(ENDLESS, catch_up=0.01), Bucket()

    left = bucket.without_loss(line, 1.0, 0, volume, pace, CAPACITY)

    assert bucket.lost == 1e6 - 0.01 * CAPACITY
    assert allowance(left, 1.0, 0, volume, pace) == 0.01 * CAPACITY + CHUNK
    assert fluid_end(left, volume) == pytest.approx(1.0 + bucket.lost / CAPACITY)


@pytest.mark.parametrize("rate", [0.0, 1.0, 10.0, 99.0])
def test_a_rate_that_falls_takes_nothing_from_the_bucket(rate: float) -> None:
    """It holds a second of the highest rate, whatever the last one is."""
    bucket, pace = Bucket(), Pace(catch_up=1.0)
    bucket.without_loss(RateSegment(0, 0.0, 100.0, 0.0), 0.0, 0, 10**6, pace, 100.0)
    fallen = RateSegment(0, 100.0, rate, 1.0)

    assert bucket.without_loss(fallen, 1.0, 0, 10**6, pace, 100.0).served == 100.0
    assert bucket.without_loss(
        fallen._replace(served=130.0), 1.0, 0, 10**6, pace, 100.0
    )
    assert bucket.lost == 30.0
