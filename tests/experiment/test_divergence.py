"""A training that diverges is a result: its steps until then, timing, verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from emu.errors import DataError, ScenarioError
from emu.experiment import run_experiment
from emu.experiment.expectations import run_figures
from emu.experiment.recompute import audit_whole
from emu.experiment.run_result import evaluate_run
from emu.problem.schedule import ROUNDING
from emu.report.facts import run_facts
from emu.runs.audit_inputs import read_to_audit
from emu.runs.run_directory import RunDirectory
from emu.scenario import Scenario, prepare
from emu.scenario.experiment import count_failures
from emu.scenario.scenario_file import loads
from emu.scenario.virtual_training import curve_until_divergence
from tests.integration.scenarios import command
from tests.testing.drawn_runs import in_virtual_time
from tests.testing.trial_cases import CASES

pytest.importorskip("torch")
#: With a rate of 1e12, the largest; in others so few steps do not get there.
TRAINED = ("dgtp", "ring")


def diverging(name: str) -> str:
    """Return a job whose weights are no numbers after some steps."""
    text = CASES[name].replace("iterations: 3", "iterations: 6")
    text = text.replace("epochs: 2", "epochs: 4")
    lr = "job:\n  optimizer: {name: sgd, lr: 1.0e+12}\n"
    scale = "emulation: {compute: padded, time_scale: 5}"
    return f"name: {name}\n{text.replace('job:', lr, 1)}\nseed: 7\n{scale}\n"


def strict(text: str) -> Any:
    """Return JSON that has no NaN and no infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def carried_out(scenario: Scenario, folder: Path) -> Path:
    directory = RunDirectory.create(scenario.name, folder)
    settings = run_experiment.emulation_settings(scenario)
    with mock.patch.object(run_experiment, "_emulate_experiment", in_virtual_time):
        run_experiment.carry_out(prepare(scenario), settings, directory)
    return directory.path


@pytest.mark.parametrize("name", TRAINED)
def test_a_run_that_diverges_has_a_result(name: str, tmp_path: Path) -> None:
    run = carried_out(loads(diverging(name)), tmp_path)

    result = strict((run / "result.json").read_text())
    curve, step = result["training"], result["diverged"]
    assert [point["iteration"] for point in curve] == [*range(step)]
    assert 0 < step < 6
    assert "accuracy" not in result
    verdict = result["verdict"]  # the gradients of a small model are a few packets
    fired = {finding["guard"] for finding in verdict["guards"]}
    assert verdict["trust"] == ("untrusted" if fired else "trusted")
    assert fired <= {"enough carried"}
    assert result["makespan"] == pytest.approx(result["predicted_makespan"], rel=0.01)
    assert run_figures(result)["loss"] == np.inf
    told = [fact for fact in run_facts(result) if fact.label == "training"]
    assert [fact.value for fact in told] == [f"diverged at step {step}"]
    with pytest.raises(DataError, match="its training diverged"):
        evaluate_run(run)
    subject = read_to_audit(run)
    report, _ = audit_whole(subject, ROUNDING, 1e-6, training=True)
    left = [str(v) for v in report.violations if v.subject != "enough carried"]
    assert left == []


def test_simulate_says_when_it_diverges(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(diverging("dgtp"))
    said = strict(command("simulate", file, "--train", "--json", "-"))
    assert len(said["training"]) == said["diverged"] > 0
    assert "accuracy" not in said
    told = command("simulate", file, "--train")
    assert f"training diverged at step {said['diverged']}" in told


def test_an_accuracy_is_not_waited_for_after_that() -> None:
    text = diverging("dgtp") + "until: {accuracy: 99 %, every: 1}\n"
    with pytest.raises(ScenarioError, match=r"diverged after step \d+: lower its lr"):
        prepare(loads(text))


@pytest.mark.parametrize(
    ("losses", "weight", "kept", "diverged"),
    [
        ([3.0, 2.0, 1.0], 0.0, 3, None),
        ([3.0, np.nan, 1.0], np.nan, 1, 1),
        ([3.0, 2.0, np.inf], 0.0, 2, 2),
        ([3.0, 2.0, 1.0], np.inf, 3, 3),
    ],
)
def test_a_curve_ends_where_it_diverges(
    losses: list[float], weight: float, kept: int, diverged: int | None
) -> None:
    curve = [{"iteration": n, "loss": loss} for n, loss in enumerate(losses)]
    found = curve_until_divergence(curve, ends_well=bool(np.isfinite(weight)))
    assert len(found["training"]) == kept
    assert found.get("diverged") == diverged


@pytest.mark.parametrize("every", ["1 s", "2 s", "1000 s"])
@pytest.mark.parametrize("what", ["pause", "cut", "kill"])
def test_a_result_counts_failures_as_a_simulation_does(
    what: str, every: str, tmp_path: Path
) -> None:
    """What a kernel's NICs carry is of those alone: other hosts name theirs."""
    drawn = {"every": every, "what": what, "most": 3, "for": "0.2 s"}
    if what == "kill":
        del drawn["for"]
    machines = [{"name": "m", "count": 2, "nic": "10 B/s"}]
    tasks = [
        {"name": name, "time": "1 s", "pin": f"m{n}"} for n, name in enumerate("ab")
    ]
    flow = {"from": "a", "to": "b", "volume": "5 B"}
    content = {
        "cluster": {"machines": machines},
        "emulation": {"byte_scale": 3000, "time_scale": 0.5},
        "job": {"system": "custom", "iterations": 4, "tasks": tasks, "flows": [flow]},
        "failures": {"machine": drawn},
        "on_failure": "restart",
        "max_restarts": 9,
    }
    scenario = loads(json.dumps(content))
    run = carried_out(scenario, tmp_path)

    result = strict((run / "result.json").read_text())
    experiment = prepare(scenario)
    count = count_failures(experiment, experiment.attempts().makespan)
    assert result.get("failures", {}) == count
    assert bool(count) == (every != "1000 s")
    told = [fact.value for fact in run_facts(result) if fact.label == "failures"]
    assert told == ([f"{sum(count.values())} drawn"] if count else [])
    assert "nics" not in result
    assert audit_whole(read_to_audit(run), ROUNDING, 1e-6)[0].passed
