"""What an audit compares: the rule, the training, and what hosts may be late by."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emu
from emu.emulation.shaping import EmulationSettings
from emu.errors import DataError
from emu.prediction.simulation import simulate
from emu.problem.schedule import ROUNDING
from emu.runs.audit_inputs import ToAudit, margins, read_to_audit, run_to_audit
from emu.runs.result import read_result, result_of
from emu.scenario import prepare
from emu.scenario.scenario_file import loads
from emu.testing import two_machine_example
from emu.trust.audit import PUNCTUALITY
from tests.report.recorded import write_run

PROBLEM, REALIZATION = two_machine_example(3)


def to_audit(**known: Any) -> ToAudit:
    """Return a simulated schedule with its rates, and what rules look ahead by."""
    schedule = simulate(PROBLEM, REALIZATION, record_rates=True)
    stated: dict[str, Any] = {
        "path": Path("here"),
        "name": "x",
        "schedule": schedule,
        "policy": "oes",
        "makespan": schedule.makespan,
        "expected": REALIZATION,
    }
    return ToAudit(**stated | known)


def checked(what: ToAudit, **options: bool) -> dict[str, int]:
    """Return what an audit has compared, where it finds nothing."""
    report = what.audit(ROUNDING, 1e-6, **options)
    assert report.passed
    return report.checked


def test_rates_are_those_of_the_rule_where_that_is_asked() -> None:
    plain = to_audit()
    assert "rule" not in checked(plain)
    assert checked(plain, rule=True)["rule"] > 0
    # Without rates, and without what rules look ahead by, nothing can be asked.
    bare = replace(plain, schedule=simulate(PROBLEM, REALIZATION))
    for lacking in (bare, replace(plain, expected=None)):
        assert "rule" not in checked(lacking, rule=True)


def test_a_training_is_compared_where_that_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And needs a scenario, which says what is trained."""
    monkeypatch.setattr("emu.runs.audit_inputs.build_job", lambda it: it)
    monkeypatch.setattr("emu.runs.audit_inputs.training_audit", lambda *_: (7, []))
    trained = to_audit(scenario="stated")
    assert "training" not in checked(trained)
    assert checked(trained, training=True)["training"] == 7
    with pytest.raises(DataError, match="here: says no scenario"):
        to_audit().audit(ROUNDING, 1e-6, training=True)


def statistics(lag: float, stale: float) -> dict[str, Any]:
    """Return the figures of two processes, of which the second is the slower."""
    host = {"busy": 0.0, "idle": 1.0, "steal": 0.0}
    processes = {}
    for name, share in (("a", 0.5), ("b", 1.0)):
        loop: dict[str, Any] = {
            "loop_lag_mean": 0.0,
            "loop_lag_max": share * lag,
            "seconds": 1.0,
        }
        loop |= {"waited": 0.0, "host": host}
        pacer = {"wakes": 1, "mean_lag": 0.0, "max_lag": 0.0}
        sent = {"late_sends": 0, "max_behind": 0.0, "max_stale": share * stale}
        processes[name] = {"host_metrics": loop, "pacer": pacer, "sent": [sent]}
    return processes


def test_margins_are_of_the_slowest_process_and_a_look_at_the_rates() -> None:
    """A sender looks every 4 ms at time scale 4, and leads by three times that."""
    settings = EmulationSettings(
        time_scale=4.0, byte_scale=0.5, compute="real", flow_ends="fluid", catch_up=2.0
    )
    found = margins(settings, statistics(lag=0.0, stale=0.25))
    still = margins(settings, statistics(lag=0.0, stale=0.0))

    assert found == {
        "time_scale": 4.0,
        "byte_scale": 0.5,
        "catch_up": 2.0,
        "lead": pytest.approx(0.012),
        "stale": 0.25,
        "stall": pytest.approx(still["stall"] + 0.25),
    }
    assert still["stall"] == pytest.approx(0.004)
    assert margins(settings, statistics(lag=0.5, stale=0.0))["stall"] > 0.5


CUSTOM = """
cluster: {machines: [{count: 2, nic: 1 MB/s}]}
job:
  system: custom
  iterations: 2
  tasks: [{name: a, time: 1 s}, {name: b, time: 2 s}]
  flows: [{from: a, to: b, volume: 1 MB}]
placement: {policy: explicit, tasks: {a: m0, b: m1}}
"""


def test_a_result_file_is_audited_by_its_own_scenario(tmp_path: Path) -> None:
    ready = prepare(loads(CUSTOM))
    schedule = simulate(ready.problem, ready.realization)
    path = tmp_path / "x.json"
    content = result_of(ready.scenario, schedule)
    path.write_text(json.dumps(content))
    found = read_to_audit(path)

    assert found.makespan == schedule.makespan
    assert found.policy == "oes"
    assert found.evidence is None
    assert found.payloads == {}
    assert found.times is not None
    assert found.volumes is not None
    np.testing.assert_array_equal(found.times, [[1.0, 1.0], [2.0, 2.0]])
    np.testing.assert_array_equal(found.volumes, [[1e6, 1e6]])
    assert checked(found)
    del content["makespan"]
    path.write_text(json.dumps(content))
    assert np.isnan(read_to_audit(path).makespan or 0.0)

    _, again = read_result(path)
    np.testing.assert_array_equal(again.task_end, schedule.task_end)
    content["scenario"]["job"]["iterations"] = "many"
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="is not a result: its scenario has 1 error"):
        read_result(path)
    path.write_text("[]")
    with pytest.raises(DataError, match="is not a whole result: TypeError"):
        read_result(path)


def test_a_run_is_audited_by_its_own_time_scale_and_rule(tmp_path: Path) -> None:
    """Without a scenario, and without reports for the guards, as it was measured."""
    run = write_run(tmp_path / "run")
    path = run / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["emulation"] = {"time_scale": 4.0}
    del manifest["scenario"]
    path.write_text(json.dumps(manifest))
    found = read_to_audit(run)

    assert found.unpaced == pytest.approx(PUNCTUALITY / 4.0)
    assert found.policy == "oes"
    assert found.evidence is None
    assert found.expected is None
    assert found.makespan == found.schedule.makespan
    assert found.times is not None
    assert any("the guards cannot be asked again" in line for line in found.silent)
    (run / "rates.npz").unlink()
    bare = emu.load_run(run)
    assert any("there are no rates" in line for line in run_to_audit(bare).silent)
    with pytest.raises(DataError, match=r"result\.json"):
        run_to_audit(replace(bare, emulated=None, missing=("result.json is gone",)))
