"""Figures of a host during a run, without any load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from emu_nodes import host_metrics


def test_figures_of_a_host_count_from_the_barrier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop is 0.3 s late, then 0.1 s, then by nothing."""
    now = 100.0
    counted = {"disk": 5.0, "waited": 7.0, "blocks": 11, "busy": 13.0}
    looks: list[Callable[[], None]] = []

    def call_later(_: float, look: Callable[[], None]) -> None:
        looks.append(look)

    loop = SimpleNamespace(call_later=call_later)
    monkeypatch.setattr("asyncio.get_running_loop", lambda: loop)
    host = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr(host_metrics, "this_host", host)
    monkeypatch.setattr(host_metrics, "seconds_of_disks", lambda: counted["disk"])
    monkeypatch.setattr(host_metrics, "seconds_without_core", lambda: counted["waited"])
    monkeypatch.setattr(host_metrics, "count_blocks", lambda: counted["blocks"])
    monkeypatch.setattr(host_metrics, "host_cpu", lambda: {"busy": counted["busy"]})

    metrics = host_metrics.HostMetrics()
    for late in (0.3, 0.1, -0.01):
        now += host_metrics._PERIOD + late
        looks[-1]()
    counted = {"disk": 5.5, "waited": 7.25, "blocks": 14, "busy": 14.0}
    use = metrics.use()

    assert use.seconds == pytest.approx(3 * host_metrics._PERIOD + 0.39)
    assert use.loop_lag_mean == pytest.approx(0.4 / 3)
    assert use.loop_lag_max == pytest.approx(0.3)
    assert (use.disk, use.waited, use.blocks, use.host) == (0.5, 0.25, 3, {"busy": 1.0})
    now += 1.0
    assert metrics.use() is use  # the others of a process have the same


def test_a_process_counts_cpu_memory_and_blocks_of_both_directions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usage = SimpleNamespace(
        ru_utime=2.0, ru_stime=0.5, ru_maxrss=300, ru_inblock=7, ru_oublock=40
    )
    monkeypatch.setattr("resource.getrusage", lambda _: usage)

    assert host_metrics.count_blocks() == 47
    metrics = host_metrics.HostMetrics.__new__(host_metrics.HostMetrics)
    assert metrics.usage() == (2.5, 300 * 1024)


def test_waits_of_disks_are_seconds_of_some(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pressure = tmp_path / "io"
    monkeypatch.setattr(host_metrics, "_WAITS_OF_DISKS", pressure)
    assert host_metrics.seconds_of_disks() == 0.0

    some = "some avg10=0.00 avg60=1.00 avg300=2.00 total=2500000"
    pressure.write_text(f"{some}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n")
    assert host_metrics.seconds_of_disks() == pytest.approx(2.5)
