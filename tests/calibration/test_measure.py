"""Measuring a real host: figures that can be, and nothing left behind."""

from __future__ import annotations

import psutil
import pytest

from emu.calibration import measure_host
from emu.calibration.available import available


@pytest.mark.emulation
@pytest.mark.slow
def test_this_host_can_be_measured() -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}

    host = measure_host()

    pairs = (host.timer_overshoot, host.finish_error, host.round_trip)
    assert 1e7 < host.throughput < 1e12
    assert 1e-12 < host.cpu_per_byte < 1e-6
    assert all(0 <= median <= high < 10 for median, high in pairs)
    assert 0 < host.process_seconds < 10
    assert {c.pid for c in psutil.Process().children(recursive=True)} <= before


def test_what_is_available_is_said_in_words() -> None:
    found = available()

    assert {"root", "user namespaces", "htb (kernel shaping)"} <= found.keys()
    assert all(answer for answer in found.values())
