"""Long turns of the coordinator are kept, with its waits for a core."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from emu.emulation.coordinator import turns
from emu.emulation.network.clock import RunClock


@pytest.mark.parametrize("is_counted", [True, False])
def test_turns_are_kept_that_are_long_or_came_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_counted: bool
) -> None:
    """At a time scale of 2; the third turn took 0.5 ms and waited for nothing."""
    counts = tmp_path / "schedstat"
    computer = SimpleNamespace(now=0.0)
    computer.monotonic = lambda: computer.now
    monkeypatch.setattr(turns, "_SCHEDSTAT", counts)
    monkeypatch.setattr(turns, "this_host", computer)

    def wait(milliseconds: int) -> None:
        if is_counted:
            counts.write_bytes(b"5 %d 3\n" % (milliseconds * 1_000_000))

    wait(100)
    log = turns.TurnLog()
    with closing(log):
        log.start()
        for begin, end, before, after in (
            (11.0, 11.5, 100, 300),
            (13.0, 13.0, 302, 302),
            (14.0, 14.0005, 302, 302),
        ):
            wait(before)
            log.begin(begin)
            wait(after)
            computer.now = end
            log.end()

    rows = log.rows(RunClock(10.0, 2.0))
    expected = [[0.5, 0.75, 0.0, 0.1], [1.5, 1.5, 0.001, 0.0]]
    if not is_counted:
        expected = [[0.5, 0.75, 0.0, 0.0]]
    assert np.allclose(rows, expected)


def test_turns_of_earlier_seconds_stand_before_the_newest() -> None:
    """Rows leave their room when half of it is taken, and no sooner."""
    log = turns.TurnLog()
    room = len(log._newest)
    numbers = iter(range(room * 2))

    def note(count: int) -> None:
        for _ in range(count):
            log._newest[log.core.count] = next(numbers)
            log.core.count += 1
        log.keep_room()

    note(room // 2 - 1)
    assert log.core.count == room // 2 - 1
    note(1)
    assert log.core.count == 0
    note(room // 2)
    note(3)

    rows = log.rows(RunClock(0.0, 1.0))
    assert rows[:, 3].tolist() == [*range(room + 3)]
    log.close()
