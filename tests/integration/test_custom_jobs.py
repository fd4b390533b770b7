"""Parallel flows, and iterations of a task's own: from the scenario to the notebook."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import emu
from emu.prediction.analysis.critical_path import critical_path
from emu.prediction.simulation import simulate
from emu.report.trace import write_trace
from emu.scenario import prepare
from emu.trust.audit import audit
from tests.integration.scenarios import command, custom, flow, read, written

NAMES = {"a->b", "a->b#2", "a->b#3", "b->a"}


def parallel_flows() -> dict[str, Any]:
    """Return two tasks with three flows between them, one of a lag."""
    return custom(
        [{"name": "a"}, {"name": "b"}],
        [
            flow("a", "b", "20 B"),
            flow("a", "b", "40 B"),
            flow("a", "b", "10 B", lag=1),
            flow("b", "a", "0 B", lag=1),
        ],
        {"a": "m0", "b": "m1"},
        iterations=2,
    )


def test_parallel_flows_are_simulated_and_written_by_name() -> None:
    experiment = prepare(read(parallel_flows()))
    schedule = simulate(experiment.problem, experiment.realization)

    rows = schedule.to_json()["flows"]
    ends = {row["edge"]: row["end"] for row in rows if row["iteration"] == 0}
    # Three share 10 B/s until the 10 bytes have gone, two until the 20, then one.
    assert ends == pytest.approx(
        {"a->b#3": 4.0, "a->b": 6.0, "a->b#2": 8.0, "b->a": 9.0}
    )


@pytest.mark.emulation
def test_parallel_flows_go_all_the_way(tmp_path: Path) -> None:
    file = written(parallel_flows(), tmp_path)
    command("run", file, "--runs", tmp_path / "runs")
    (run,) = (tmp_path / "runs").iterdir()

    recorded = emu.load_run(run)
    made = recorded.emulated
    assert made is not None
    assert recorded.simulated is not None
    assert made.makespan == pytest.approx(recorded.simulated.makespan, rel=0.05)
    assert {*recorded.flows["edge"]} == NAMES
    command("audit", run)
    command("report", run)
    drawn = json.loads(write_trace(run).read_text())["traceEvents"]
    flows = {bar["args"]["flow"] for bar in drawn if "flow" in bar.get("args", {})}
    assert flows == NAMES
    assert "a->b#2" in command("explain", run, "--json", "-")
    assert "a->b#2" in (run / "report.html").read_text()


def own_iterations() -> dict[str, Any]:
    """Return a warm-up that runs once, a worker and what it is checked by at the end.

    b needs a only in its first iteration; c runs twice, on what b made first.
    """
    return custom(
        [
            {"name": "a", "time": ["2 s"], "iterations": 1},
            {"name": "b"},
            {"name": "c", "time": ["3 s", "1 s"], "iterations": 2},
        ],
        [
            flow("a", "b", ["20 B"]),
            flow("b", "c", "10 B"),
            flow("c", "b", ["10 B", "0 B"], lag=2),
        ],
        {"a": "m0", "b": "m1", "c": "m0"},
        iterations=4,
    )


def test_a_task_needs_the_iterations_that_there_are() -> None:
    experiment = prepare(read(own_iterations()))
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
    command("run", written(own_iterations(), tmp_path), "--runs", tmp_path / "runs")
    (run,) = (tmp_path / "runs").iterdir()

    recorded = emu.load_run(run)
    assert recorded.emulated is not None
    assert recorded.emulated.makespan == pytest.approx(12.0, rel=0.03)
    assert len(recorded.tasks) == 2 * (1 + 4 + 2)
    for name in ("audit", "explain", "report"):
        command(name, run)
