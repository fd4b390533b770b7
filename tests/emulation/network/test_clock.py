"""Run time here and on other hosts, alarms, and the silence of a peer."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.emulation.network.clock import (
    MOST_DRIFT,
    Alarm,
    ClockLine,
    PauseAwareClock,
    PeerClock,
    RunClock,
    SilenceWatch,
    line_of_ping,
)
from emu.emulation.network.tuning import tune_process
from emu.host.this_host import this_host

finite = st.floats(-1e6, 1e6)


@given(finite, st.floats(1e-3, 1e3), finite, finite)
def test_there_and_back(
    start: float, scale: float, offset: float, emulated: float
) -> None:
    clock = RunClock(start, scale, offset)

    assert clock.to_emulated(clock.to_wall(emulated)) == pytest.approx(
        emulated, abs=1e-5
    )


def test_scale_and_offset() -> None:
    """The coordinator's clock is 5 s ahead of ours; a second takes two."""
    clock = RunClock(start_wall=105.0, time_scale=2.0, offset=5.0)

    assert clock.to_emulated(100.0) == 0.0
    assert clock.to_emulated(103.0) == 1.5
    assert clock.to_wall(1.5) == 103.0


def test_now_is_negative_before_the_start() -> None:
    assert RunClock(time.monotonic() + 60.0, 0.5).now() < -100.0


def test_time_must_go_forwards() -> None:
    with pytest.raises(ValueError, match="time_scale"):
        RunClock(0.0, 0.0)


@pytest.fixture(params=["timerfd", "loop"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what alarms keep time by."""
    monkeypatch.setattr(this_host, "precise_timers", lambda: request.param == "timerfd")
    return str(request.param)


async def test_alarms_ring_once_and_never_early(device: str) -> None:
    rang: list[float] = []
    done = asyncio.Event()

    def ring() -> None:
        rang.append(time.monotonic())
        done.set()

    alarm = Alarm(asyncio.get_running_loop(), ring)
    assert alarm.device == device
    due = []
    for delay in (0.0004, 0.0016, -1.0, 0.0031):
        due.append(time.monotonic() + delay)
        alarm.set(due[-1])
        await done.wait()
        done.clear()
    alarm.close()

    assert all(at >= when for at, when in zip(rang, due, strict=True))
    assert len(rang) == 4


@pytest.mark.usefixtures("device")
async def test_a_later_setting_replaces_the_one_before() -> None:
    rang: list[float] = []
    loop = asyncio.get_running_loop()
    alarm = Alarm(loop, lambda: rang.append(time.monotonic()))
    now = time.monotonic()
    alarm.set(now + 0.001)
    alarm.set(now + 0.02)
    await asyncio.sleep(0.05)
    alarm.set(time.monotonic() + 0.001)
    alarm.cancel()
    await asyncio.sleep(0.01)
    alarm.close()

    assert len(rang) == 1
    assert rang[0] >= now + 0.02


def test_tuning_says_what_was_applied() -> None:
    applied = tune_process()

    assert applied.keys() == {"scheduler_slice", "timer_slack", "switch_interval"}
    assert all(applied.values())


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
        clock.note([line_of_ping(sent, theirs, came)])
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
        clock.note([line_of_ping(second, theirs, second + there + back)])
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


def test_readings_keep_the_time_that_they_had_as_the_drift_changes() -> None:
    """The coordinator's clock gains, stands ahead, then loses, from 5 s ahead on."""
    clock = RunClock(start_wall=105.0, time_scale=2.0, offset=5.0)
    before_any = (float(100 + 0.5 + 5.0 - 105.0)) / 2.0
    assert clock.to_emulated(100.5) == pytest.approx(before_any)
    walls, times = [100.5], [before_any]
    truths = ((101.0, 5.0, 4e-4), (103.0, 5.002, 0.0), (106.0, 5.002, -3e-4))
    for at, offset, drift in truths:
        truth = ClockLine(at, offset, drift)
        clock.follow(truth, at, 2.0)
        # It is where the coordinator's is after so long, and goes as fast till then.
        assert clock.to_emulated(at + 2.0) == pytest.approx(
            (at + 2.0 + offset + 2.0 * drift - 105.0) / 2.0, abs=1e-12
        )
        walls += [at + 0.25, at + 1.75]
        times += [clock.to_emulated(at + 0.25), clock.to_emulated(at + 1.75)]

    found = clock.run_times(np.array(walls))
    np.testing.assert_allclose(found, times, rtol=0.0, atol=1e-12)


def test_a_reading_from_before_the_run_goes_by_the_first_line() -> None:
    clock = RunClock(start_wall=105.0, time_scale=2.0, offset=5.0)
    clock.follow(ClockLine(1.0, 7.0, 0.0), 1.0, 1.0)
    walls = np.array([-3.0, -1.0])

    assert clock.run_times(walls).tolist() == [-51.5, -50.5]


LOOK = 0.5


def looks(watch: SilenceWatch, *times: float) -> list[bool]:
    return [watch.look(time) for time in times]


def test_peer_that_says_nothing_is_silent() -> None:
    watch = SilenceWatch(2.0, 0.0)

    assert looks(watch, 0.5, 1.0, 1.5, 2.0, 2.5) == [False] * 4 + [True]


def test_word_of_the_peer_begins_anew() -> None:
    watch = SilenceWatch(2.0, 0.0)
    looks(watch, 0.5, 1.0, 1.5)
    watch.on_message(1.6)

    assert looks(watch, 2.0, 2.5, 3.0, 3.5, 4.0) == [False] * 4 + [True]


@given(st.floats(1.1, 1e6), st.integers(0, 3))
def test_pause_of_our_own_does_not_count(pause: float, before: int) -> None:
    """A suspended laptop: 2 s are allowed, it slept for hours, no process is late."""
    watch = SilenceWatch(2.0, 0.0)
    looks(watch, *(LOOK * (n + 1) for n in range(before)))
    woken = LOOK * (before + 1) + pause

    assert not watch.look(woken)
    assert abs(watch.stood_still() - pause) < 1e-6 * pause
    assert watch.stood_still() == 0.0


def test_every_pause_of_our_own_is_told_once() -> None:
    """Pauses of 2, 3 and 4 s, after the half second in which a look is due."""
    watch = SilenceWatch(100.0, 0.0)
    told = []
    for now in (2.5, 6.0, 10.5):
        watch.look(now)
        told.append(watch.stood_still())

    assert told == [2.0, 3.0, 4.0]


def test_word_of_the_peer_after_a_pause_begins_anew() -> None:
    """We stood still from 0.5 s on for 99.5 s, and it spoke at 100.6 s."""
    watch = SilenceWatch(2.0, 0.0)
    looks(watch, 0.5, 100.5)
    watch.on_message(100.6)

    assert looks(watch, 101.0, 101.5, 102.0, 102.5, 103.0) == [False] * 4 + [True]


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


def test_message_tells_of_a_pause_only_where_there_was_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pause of 9.5 s before the peer's last message is not told of."""
    watch = SilenceWatch(2.0, 0.0)
    watch.look(9.5)
    watch.on_message(10.0)
    looks(watch, 10.5, 11.0, 11.5, 12.0)
    monkeypatch.setattr(this_host, "monotonic", lambda: 12.5)
    assert asyncio.run(watch.silence()) == "has been silent for 2 s of wall time"


def test_the_surest_of_some_readings_counts_and_what_is_old_gets_unsure() -> None:
    """The second of three readings at one moment; 1,000 s later a new reading."""
    clock = PeerClock()
    for uncertainty, offset in ((0.5, 1.0), (0.001, 2.0), (0.2, 3.0)):
        reading = ClockLine(0.0, offset, 0.0, uncertainty)
        clock.note([reading, ClockLine(0.0, 9.0, 0.0, 0.9)])
    first = clock.line(0.0)
    assert first is not None
    assert first.offset == 2.0

    clock = PeerClock()
    unsure = ClockLine(0.0, 7.0, 0.0, 0.8)
    clock.note([unsure, ClockLine(0.0, 2.0, 0.0, 0.001)])
    clock.note([ClockLine(1000.0, 2.25, 0.0, 0.25)])
    later = clock.line(1000.0)
    assert later is not None
    assert later.offset == 2.25


def test_the_surest_reading_counts_whenever_it_was_taken() -> None:
    """The later of two; ten seconds on it is off by 11 seconds' drift more, at most."""
    clock = PeerClock()
    unsure = ClockLine(5.0, 1.0, 0.0, 0.5)
    sure = ClockLine(6.0, 2.0, 0.0, 0.25)
    clock.note([unsure, sure])

    line = clock.line(16.0)
    assert line is not None
    assert (line.at, line.offset, line.drift) == (16.0, 2.0, 0.0)
    assert line.uncertainty == pytest.approx(0.25 + 11 * MOST_DRIFT, rel=1e-12)


def test_a_reading_that_is_exact_is_taken_as_it_is() -> None:
    clock = PeerClock()
    clock.note([ClockLine(6.0, 2.0, 0.0, 0.0)])

    assert clock.line(6.0) == ClockLine(6.0, 2.0, 0.0, MOST_DRIFT)


def test_two_readings_bound_the_drift_by_what_both_may_be_off() -> None:
    """Readings are off by 0.03 s in 100 s, which is less than clocks may drift by.

    The drift between them is therefore known.
    """
    clock = PeerClock()
    clock.note([ClockLine(0.0, 1.0, 0.0, 0.02)])
    clock.note([ClockLine(100.0, 1.01, 0.0, 0.01)])

    line = clock.line(104.0)
    assert line is not None
    assert line.drift == pytest.approx(1e-4, rel=1e-9)
    assert line.offset == pytest.approx(1.0104, rel=1e-12)
    assert line.uncertainty == pytest.approx(0.01 + 3e-4 * 5.0, rel=1e-9)


def test_a_clock_that_drifts_is_ahead_by_more_as_time_passes() -> None:
    """By 10 ms in 100 s: 100 s after the last reading by 20 ms."""
    clock = PeerClock()
    clock.note([ClockLine(0.0, 0.0, 0.0, 1e-6)])
    clock.note([ClockLine(100.0, 0.01, 0.0, 1e-6)])
    line = clock.line(200.0)

    assert line is not None
    assert line.drift == pytest.approx(1e-4)
    assert line.offset == pytest.approx(0.02)


def test_a_reading_that_is_late_by_less_than_its_time_is_no_pause() -> None:
    """Readings are due every second: one is half a second late, others 3 s."""
    clock = PauseAwareClock(1.0, 0.0)

    assert clock.read(1.5) == 1.5
    assert clock.read(5.5) == 5.5 - 3.0
    assert clock.read(9.5) == 9.5 - 6.0
