"""Counting bytes per window, and when frames left."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from emu.network import RunClock
from emu.network.send_log import SendLog
from emu.network.traffic import Traffic


@given(
    st.lists(st.tuples(st.floats(0, 1e4), st.integers(1, 10**6)), max_size=50),
    st.floats(0.01, 100),
)
def test_no_byte_is_lost_however_wide_the_windows(
    sent: list[tuple[float, int]], time_scale: float
) -> None:
    traffic = Traffic(window=0.01)
    traffic.start(RunClock(5.0, time_scale))
    for wall, nbytes in sent:
        traffic.note(5.0 + wall, nbytes)
    found = traffic.to_json()

    assert found["width"] >= 0.01 * max(time_scale, 1.0)
    assert sum(found["bytes"]) == sum(nbytes for _, nbytes in sent)


def test_windows_widen_when_there_are_many() -> None:
    traffic = Traffic(window=0.01)
    traffic.start(RunClock(0.0, 1.0))
    for step in range(10_000):
        traffic.note(0.005 + 0.01 * step, 3)
    found = traffic.to_json()

    assert found["width"] == 0.04
    assert set(found["bytes"]) == {12}
    assert found["index"] == list(range(2500))


def test_nothing_counts_before_the_start() -> None:
    traffic = Traffic()
    traffic.note(1.0, 100)

    assert traffic.to_json()["bytes"] == []


def test_the_send_log_speaks_emulated_seconds() -> None:
    log = SendLog()
    log.note(3, 7, finished=110.0, queued=104.0, informed=106.0, lag=0.5)

    rows = np.frombuffer(log.packed(RunClock(100.0, 2.0))).reshape(-1, 6)

    assert rows.tolist() == [[3.0, 7.0, 5.0, 2.0, 3.0, 0.25]]
