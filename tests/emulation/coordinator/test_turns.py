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
