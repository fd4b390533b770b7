"""Run time, and alarms that never ring early."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.network import Alarm, RunClock, tune_process

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


@pytest.mark.parametrize("timerfd", [True, False], ids=["timerfd", "loop"])
async def test_alarms_ring_once_and_never_early(timerfd: bool) -> None:  # noqa: FBT001
    rang: list[float] = []
    done = asyncio.Event()

    def ring() -> None:
        rang.append(time.monotonic())
        done.set()

    alarm = Alarm(asyncio.get_running_loop(), ring, timerfd=timerfd)
    due = []
    for delay in (0.0004, 0.0016, -1.0, 0.0031):
        due.append(time.monotonic() + delay)
        alarm.set(due[-1])
        await done.wait()
        done.clear()
    alarm.close()

    assert all(at >= when for at, when in zip(rang, due, strict=True))
    assert len(rang) == 4


@pytest.mark.parametrize("timerfd", [True, False], ids=["timerfd", "loop"])
async def test_a_later_setting_replaces_the_one_before(timerfd: bool) -> None:  # noqa: FBT001
    rang: list[float] = []
    alarm = Alarm(
        asyncio.get_running_loop(),
        lambda: rang.append(time.monotonic()),
        timerfd=timerfd,
    )
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
