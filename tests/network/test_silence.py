"""Silence of a peer against pauses of one's own, in made-up time."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from emu.network.clock import SilenceWatch

LOOK = 0.5


def looks(watch: SilenceWatch, *times: float) -> list[bool]:
    return [watch.look(time) for time in times]


def test_peer_that_says_nothing_is_silent() -> None:
    watch = SilenceWatch(2.0, 0.0)

    assert looks(watch, 0.5, 1.0, 1.5, 2.0, 2.5) == [False] * 4 + [True]


def test_word_of_the_peer_begins_anew() -> None:
    watch = SilenceWatch(2.0, 0.0)
    looks(watch, 0.5, 1.0, 1.5)
    watch.received(1.6)

    assert looks(watch, 2.0, 2.5, 3.0, 3.5, 4.0) == [False] * 4 + [True]


@given(st.floats(1.1, 1e6), st.integers(0, 3))
def test_pause_of_our_own_does_not_count(pause: float, before: int) -> None:
    """A suspended laptop: 2 s are allowed, it slept for hours, nobody is to blame."""
    watch = SilenceWatch(2.0, 0.0)
    looks(watch, *(LOOK * (n + 1) for n in range(before)))
    woken = LOOK * (before + 1) + pause

    assert not watch.look(woken)
    assert abs(watch.stood_still() - pause) < 1e-6 * pause
    assert watch.stood_still() == 0.0


def test_pauses_do_not_hide_a_peer_that_is_gone() -> None:
    watch, now, seen = SilenceWatch(2.0, 0.0), 0.0, 0
    while not watch.look(now):
        seen += 1
        now += 5.0 if seen % 3 == 0 else LOOK

    assert seen < 10


def test_message_says_how_long_and_how_long_we_stood_still() -> None:
    watch = SilenceWatch(0.0, 0.0)
    watch.look(8.5)

    assert asyncio.run(watch.silence()).startswith("has been silent for 0 s")
    assert "stood still apart" in asyncio.run(watch.silence())
