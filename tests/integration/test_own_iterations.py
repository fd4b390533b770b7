"""Tasks with numbers of iterations of their own, from the file to the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import emu
from emu.analysis.critical_path import critical_path
from emu.scenario import prepare
from emu.simulation import simulate
from emu.trust.audit import audit
from tests.integration.scenarios import command, read, written

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def scenario() -> dict[str, Any]:
    """Return a warm-up that runs once, a worker and what it is checked by at the end.

    b needs a only in its first iteration; c runs twice, on what b made first.
    """
    return {
        "name": "own",
        "cluster": {"machines": [{"name": "m", "count": 2, "nic": "10 B/s"}]},
        "job": {
            "system": "custom",
            "iterations": 4,
            "tasks": [
                {"name": "a", "time": ["2 s"], "iterations": 1},
                {"name": "b", "time": "1 s"},
                {"name": "c", "time": ["3 s", "1 s"], "iterations": 2},
            ],
            "flows": [
                {"from": "a", "to": "b", "volume": ["20 B"]},
                {"from": "b", "to": "c", "volume": "10 B"},
                {"from": "c", "to": "b", "volume": ["10 B", "0 B"], "lag": 2},
            ],
            "credit_window": "unlimited",
        },
        "placement": {"policy": "explicit", "tasks": {"a": "m0", "b": "m1", "c": "m0"}},
        "emulation": {"time_scale": 0.05, "byte_scale": 50000},
    }


def test_a_task_needs_the_iterations_that_there_are() -> None:
    experiment = prepare(read(scenario()))
    schedule = simulate(experiment.problem, experiment.realization, record_rates=True)

    def shown(times: NDArray[np.float64]) -> list[list[float]]:
        return [row[~np.isnan(row)].tolist() for row in times]

    assert shown(schedule.task_end) == [[2], [5, 6, 11, 12], [9, 10]]
    assert shown(schedule.flow_end) == [[4], [6, 7], [10, 10]]
    assert schedule.makespan == 12.0
    assert audit(schedule).passed
    assert critical_path(schedule).seconds == pytest.approx(12.0)
    assert len(schedule.to_json()["tasks"]) == 1 + 4 + 2


@pytest.mark.emulation
def test_own_iterations_go_all_the_way(tmp_path: Path) -> None:
    command("run", written(scenario(), tmp_path), "--runs", tmp_path / "runs")
    (run,) = (tmp_path / "runs").iterdir()

    recorded = emu.load_run(run)
    assert recorded.emulated is not None
    assert recorded.emulated.makespan == pytest.approx(12.0, rel=0.03)
    assert len(recorded.tasks) == 2 * (1 + 4 + 2)
    for name in ("audit", "explain", "report"):
        command(name, run)
