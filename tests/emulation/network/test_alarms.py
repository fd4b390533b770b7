"""Alarms of a loop without precise timers, by a clock that is set by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from emu.emulation.network import clock
from emu.emulation.network.clock import Alarm


class Loop:
    """A loop that notes what it is asked to call, and calls nothing."""

    def __init__(self) -> None:
        self.later: list[tuple[float, Any, tuple[Any, ...]]] = []
        self.cancelled = 0

    def call_later(self, delay: float, call: Any, *arguments: Any) -> Any:
        """Note a call."""
        self.later.append((delay, call, arguments))
        return SimpleNamespace(cancel=self.cancel)

    def cancel(self) -> None:
        """Count what is called off."""
        self.cancelled += 1


def host_at(now: list[float]) -> Any:
    """Return a host whose clock stands, and which has no precise timers."""
    return SimpleNamespace(monotonic=lambda: now[0], precise_timers=lambda: False)


def test_an_alarm_of_the_loop_rings_at_its_time_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A loop that calls half a millisecond early is asked once more."""
    now = [50.0]
    monkeypatch.setattr(clock, "this_host", host_at(now))
    rung: list[float] = []
    loop: Any = Loop()
    alarm = Alarm(loop, lambda: rung.append(now[0]))
    assert (alarm.device, alarm.fd) == ("loop", -1)

    alarm.set(50.25)
    alarm.set(50.5)
    alarm.set(49.0)
    assert [delay for delay, _, _ in loop.later] == [0.25, 0.5, 0.0]
    assert loop.cancelled == 2

    alarm.set(50.5)
    _, call, arguments = loop.later[-1]
    now[0] = 50.4375
    call(*arguments)
    assert rung == []
    assert loop.later[-1][0] == 0.0625
    now[0] = 50.5
    call(*arguments)
    assert rung == [50.5]
    # What has rung is no longer there to be called off.
    alarm.cancel()
    assert loop.cancelled == 3
    alarm.set(60.0)
    alarm.close()
    assert loop.cancelled == 4
