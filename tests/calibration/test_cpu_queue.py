"""A queue, against one that is served step by step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.calibration.cpu_queue import CpuQueue

ARRIVALS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 4)), min_size=1, max_size=30
)


def left_at(
    time: float, moments: list[float], service: list[float], *, step: float = 0.25
) -> float:
    """Return what is left of all that came by then, served as long as there is any."""
    left, now = 0.0, moments[0]
    while True:
        left += sum(s for m, s in zip(moments, service, strict=True) if m == now)
        if now >= time:
            return left
        left = max(left - step, 0.0)
        now += step


@given(ARRIVALS, st.integers(0, 40))
def test_what_waits_is_what_a_server_has_left(
    arrivals: list[tuple[int, int]], later: int
) -> None:
    """Times and services are multiples of a quarter, so that every step is exact."""
    moments = np.cumsum([0.25 * gap for gap, _ in arrivals])
    service = np.array([0.25 * asked for _, asked in arrivals])
    queue = CpuQueue(moments, service)
    time = float(moments[0] + 0.25 * later)

    expected = left_at(time, moments.tolist(), service.tolist())
    assert queue.at(np.array([time])) == pytest.approx([expected])
    last = left_at(moments[-1], moments.tolist(), service.tolist())
    assert queue.backlog[-1] == pytest.approx(last)


def test_an_idle_host_keeps_nobody_waiting() -> None:
    queue = CpuQueue(np.array([1.0, 2.0]), np.array([0.5, 0.0]))

    assert queue.at(np.array([0.9, 1.0, 1.25, 1.5, 2.0])).tolist() == [
        0.0, 0.5, 0.25, 0.0, 0.0,
    ]  # fmt: skip
