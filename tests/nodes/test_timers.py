"""Timers of what processes run, by a clock that is set by hand."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from emu_nodes import task_runner
from emu_nodes.task_runner import WallClockTimer


class Bell:
    """An alarm that notes for when it is set."""

    def __init__(self, _: object, ring: Any) -> None:
        self.ring = ring
        self.settings: list[float] = []

    def set(self, wall: float) -> None:
        """Note a time."""
        self.settings.append(wall)


async def test_whoever_waits_goes_on_when_its_time_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The earliest sets the alarm; who was stopped meanwhile is passed over."""
    now = [50.0]
    host = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(task_runner, "this_host", host)
    monkeypatch.setattr(task_runner, "Alarm", Bell)
    timer = WallClockTimer()
    bell: Any = timer._alarm
    done: list[str] = []

    async def wait(name: str, wall: float) -> None:
        await timer.until(wall)
        done.append(name)

    waiting = {
        name: asyncio.ensure_future(wait(name, wall))
        for name, wall in (("past", 50.0), ("c", 53.0), ("a", 51.0), ("b", 51.0))
    }
    waiting["stopped"] = asyncio.ensure_future(wait("stopped", 52.0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert done == ["past"]
    assert bell.settings == [53.0, 51.0, 51.0, 51.0]
    waiting["stopped"].cancel()
    await asyncio.sleep(0)

    now[0] = 51.0
    bell.ring()
    await asyncio.sleep(0)
    assert done == ["past", "a", "b"]
    assert bell.settings[4:] == [52.0]
    now[0] = 52.5
    bell.ring()
    assert bell.settings[5:] == [53.0]
    now[0] = 53.0
    bell.ring()
    await asyncio.sleep(0)
    assert done == ["past", "a", "b", "c"]
    assert bell.settings[6:] == []
