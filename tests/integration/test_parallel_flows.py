"""Two flows between the same two tasks stay two, from the scenario to the notebook."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import emu
from emu.report.trace import write_trace
from emu.scenario import prepare
from emu.simulation import simulate
from tests.integration.scenarios import command, read, written

if TYPE_CHECKING:
    from pathlib import Path

NAMES = {"a->b", "a->b#2", "a->b#3", "b->a"}


def scenario() -> dict[str, Any]:
    """Return two tasks with three flows between them, one of a lag."""
    return {
        "name": "parallel",
        "cluster": {"machines": [{"name": "m", "count": 2, "nic": "10 B/s"}]},
        "job": {
            "system": "custom",
            "iterations": 2,
            "tasks": [
                {"name": "a", "time": "1 s"},
                {"name": "b", "time": "1 s"},
            ],
            "flows": [
                {"from": "a", "to": "b", "volume": "20 B"},
                {"from": "a", "to": "b", "volume": "40 B"},
                {"from": "a", "to": "b", "volume": "10 B", "lag": 1},
                {"from": "b", "to": "a", "volume": "0 B", "lag": 1},
            ],
            "credit_window": "unlimited",
        },
        "placement": {"policy": "explicit", "tasks": {"a": "m0", "b": "m1"}},
        "emulation": {"time_scale": 0.05, "byte_scale": 50000},
    }


def test_parallel_flows_are_simulated_and_written_by_name() -> None:
    experiment = prepare(read(scenario()))
    schedule = simulate(experiment.problem, experiment.realization)

    rows = schedule.to_json()["flows"]
    ends = {row["edge"]: row["end"] for row in rows if row["iteration"] == 0}
    # Three share 10 B/s until the 10 bytes have gone, two until the 20, then one.
    assert ends == pytest.approx(
        {"a->b#3": 4.0, "a->b": 6.0, "a->b#2": 8.0, "b->a": 9.0}
    )


@pytest.mark.emulation
def test_parallel_flows_go_all_the_way(tmp_path: Path) -> None:
    file = written(scenario(), tmp_path)
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
