"""Processes that are killed come back, and the weights are those of no death."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from emu.emulation.coordinator import Observer
from emu.emulation.wire.messages import TaskEnded
from emu.errors import NodeLost
from emu.experiment.recompute import audit_whole
from emu.experiment.run_experiment import carry_out, emulation_settings
from emu.experiment.run_result import RunResult
from emu.problem import Schedule
from emu.runs.array_files import read_weights
from emu.runs.audit_inputs import read_to_audit
from emu.runs.run_directory import RunDirectory
from emu.scenario import Scenario, prepare
from emu.scenario.scenario_file import loads
from tests.emulation.coordinator.emulated import named
from tests.integration.scenarios import tiny_training
from tests.leftovers import Leftovers
from tests.testing.trial_cases import CASES

pytestmark = [pytest.mark.emulation, pytest.mark.untimed]

ITERATIONS, EVERY = 12, 4
RESTARTS = {
    "checkpoint": {"every": f"{EVERY} iterations"},
    "on_failure": "restart",
}


class Kills(Observer):
    """Kills a process as the worker ends an iteration, once per attempt that it names.

    Parameters
    ----------
    victims
        Process and iteration of the attempt, counted from 0 in each.
    """

    def __init__(self, leftovers: Leftovers, *victims: tuple[str, int]) -> None:
        self._leftovers, self._victims = leftovers, [*victims]
        self.restarts: list[int] = []
        self._killed = False

    @override
    def on_prediction(self, schedule: Schedule) -> None:
        self._killed = False

    @override
    def task_ended(self, message: TaskEnded) -> None:
        if self._killed or not self._victims or "loss" not in message.report:
            return
        name, iteration = self._victims[0]
        if message.iteration == iteration:
            del self._victims[0]
            self._killed = True
            named(self._leftovers.note(), name).kill()

    @override
    def restarting(self, error: str, first: int) -> None:
        self.restarts.append(first)


def carried(folder: Path, observer: Observer | None = None, **changes: Any) -> Any:
    document = tiny_training(ITERATIONS) | {
        "emulation": {"compute": "padded"},
        **RESTARTS,
        **changes,
    }
    experiment = prepare(Scenario.model_validate(document))
    settings = emulation_settings(experiment.scenario)
    (folder / "run").mkdir()
    return carry_out(experiment, settings, RunDirectory(folder / "run"), observer)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    run = tmp_path_factory.mktemp("undisturbed")
    assert "recovery" not in carried(run).content
    return read_weights(run / "run")


def same(run: Path, weights: dict[str, Any]) -> None:
    found = read_weights(run)
    assert found.keys() == weights.keys()
    for name, part in weights.items():
        np.testing.assert_array_equal(found[name], part)


def test_two_deaths_cost_time_and_no_weights(
    tmp_path: Path, weights: dict[str, Any], leftovers: Leftovers
) -> None:
    kills = Kills(leftovers, ("s1", 6), ("ps0", 5))
    result: RunResult = carried(tmp_path, kills)
    same(tmp_path / "run", weights)

    assert kills.restarts == [4, 8]
    content = result.content
    assert content["first_iteration"] == 8
    recovery = content["recovery"]
    one, other = recovery["attempts"]
    assert "process s1 was killed by SIGKILL" in one["error"]
    assert "process ps0 was killed by SIGKILL" in other["error"]
    assert "iteration 9" in other["error"] or "iteration 10" in other["error"]
    for attempt in (one, other):
        assert 0 < attempt["again"] < attempt["ran"]
        assert 0 <= attempt["detection"] < 5
        assert attempt["recovery"] == 2.0
    parts = [a[key] for a in (one, other) for key in ("ran", "recovery")]
    last = max(row["end"] for row in content["tasks"])
    assert content["makespan"] == pytest.approx(sum(parts) + last)
    assert recovery["makespan"] == content["makespan"]
    assert content["predicted_makespan"] == recovery["predicted_makespan"]
    off = content["makespan"] - content["predicted_makespan"]
    # On a slow host the predicted run may have ended before a death came.
    down = result.predicted.outages.recovery
    assert down in {0.0, 2.0, 4.0}
    up = content["predicted_makespan"] - down
    assert content["makespan_error"] == pytest.approx(off / up)
    assert content["prediction"]["error"] is not None
    assert "bound" not in content

    subject = read_to_audit(tmp_path / "run")
    report, silent = audit_whole(subject, subject.tolerance, 1e-6, training=True)
    assert report.passed
    # Whom each record is trusted for is said, and that rates are asked by --policy.
    assert silent


def test_another_system_goes_on_and_is_audited(
    tmp_path: Path, leftovers: Leftovers
) -> None:
    """Lambdas keep nothing; tests/testing/test_recovery_trials.py has all systems."""
    text = re.sub("epochs: [23]", f"epochs: {ITERATIONS}", CASES["dorylus"])
    document = loads(f"name: dorylus\n{text}\nseed: 7\n").to_json()
    changes = {key: document[key] for key in ("cluster", "job", "placement")}
    kills = Kills(leftovers, ("lambda2", 9))
    content = carried(tmp_path, kills, **changes).content
    assert kills.restarts == [content["first_iteration"]]
    assert kills.restarts[0] in {4, 8}

    subject = read_to_audit(tmp_path / "run")
    report, _ = audit_whole(subject, subject.tolerance, 1e-6, training=True)
    assert report.checked["training"]
    few = "this run tests control, not the network"
    assert [one for one in report.violations if few not in one.sentence] == []


def test_an_agent_that_dies_takes_all_with_it_and_all_begin_anew(
    tmp_path: Path, weights: dict[str, Any], leftovers: Leftovers
) -> None:
    """Where nothing is kept, as any job can."""
    kills = Kills(leftovers, ("agent", 5))
    result: RunResult = carried(tmp_path, kills, checkpoint=None)
    assert kills.restarts == [0]
    assert "RuntimeWarning" not in result.ended[0].error
    (attempt,) = result.content["recovery"]["attempts"]
    assert attempt["again"] == attempt["ran"] > 0
    same(tmp_path / "run", weights)


def test_a_death_in_every_attempt_is_one_error(
    tmp_path: Path, leftovers: Leftovers
) -> None:
    kills = Kills(leftovers, *[("w0", 1)] * 2)
    with pytest.raises(NodeLost, match=r"w0 was killed .*1 restart.*max_restarts: 1"):
        carried(tmp_path, kills, max_restarts=1)
    assert kills.restarts == [0]
    assert not (tmp_path / "run/result.json").exists()


def test_a_scenario_kills_a_machine_and_a_task(
    tmp_path: Path, weights: dict[str, Any]
) -> None:
    progress = {"task": "w0", "iteration": 7}
    events = [{"at": progress, "kill": "fast"}, {"at": "40 s", "kill": "w0"}]
    checkpoint = {"every": f"{EVERY} iterations", "to": "peer"}
    result: RunResult = carried(
        tmp_path, events=events, recovery="30 s", checkpoint=checkpoint
    )
    same(tmp_path / "run", weights)
    recovery = result.content["recovery"]
    (attempt,) = recovery["attempts"]
    assert attempt["killed"]
    foreseen = recovery["predicted_attempts"][0]
    assert attempt["ran"] > 0.8 * foreseen["ran"]  # a busy host may be late
    assert attempt["next_iteration"] <= foreseen["next_iteration"]
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    assert manifest["killed"] == [1]  # by time first: the other is the last
    assert "was killed by SIGKILL" in recovery["attempts"][0]["error"]
    assert recovery["predicted_lost"]["recovery"] == 30.0
    assert recovery["lost"]["recovery"] == 30.0
    assert 0 < recovery["attempts"][0]["took"] < 30
    subject = read_to_audit(tmp_path / "run")
    assert audit_whole(subject, subject.tolerance, 1e-6)[0].passed


def test_killed_just_after_a_cut_it_is_judged_as_a_whole(tmp_path: Path) -> None:
    """By sockets it may go on from the cut before: no such run is sound and agrees."""
    calm = prepare(Scenario.model_validate(tiny_training(ITERATIONS) | RESTARTS))
    at = calm.time_of_cut(2 * EVERY) + 8e-4
    events = [{"at": f"{1e3 * at:.4f} ms", "kill": "w0"}]
    emulation = {"compute": "padded", "max_difference": "3 %"}
    content = carried(tmp_path, events=events, emulation=emulation).content
    recovery, error = content["recovery"], content["makespan_error"]
    (mine,), (theirs,) = recovery["attempts"], recovery["predicted_attempts"]
    assert theirs["next_iteration"] == 2 * EVERY
    apart = recovery["makespan"] - recovery["predicted_makespan"]
    up = recovery["predicted_makespan"] - recovery["predicted_lost"]["recovery"]
    assert error == pytest.approx(apart / up)
    if mine["next_iteration"] != theirs["next_iteration"]:
        assert error > 0.03
    if abs(error) > 0.03:
        agrees = content["prediction"]["outcome"] == "agrees"
        assert not (agrees and content["verdict"]["trust"] == "trusted")
    subject = read_to_audit(tmp_path / "run")
    assert audit_whole(subject, subject.tolerance, 1e-6)[0].passed
