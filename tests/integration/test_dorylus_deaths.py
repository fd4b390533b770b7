"""Lambdas over sockets that die, are late, or are killed at a random moment."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.emulation.coordinator import emulate
from emu.errors import NodeLost
from emu.experiment.recompute import audit_whole
from emu.experiment.run_experiment import emulation_settings
from emu.runs.audit_inputs import read_to_audit
from emu.runs.recorded_run import load_run
from emu.runs.retraining import training_audit
from emu.scenario import prepare
from emu.scenario.scenario_file import loads
from emu.systems.dorylus.deaths import LATE
from emu.systems.dorylus.replay import replay_training
from emu.systems.dorylus.section import DorylusJobSection
from emu.systems.system import systems
from tests.emulation.coordinator.emulated import Acts, named
from tests.integration.scenarios import Carried, carried_out
from tests.integration.test_dorylus import TEXT
from tests.leftovers import Leftovers

pytestmark = [pytest.mark.emulation, pytest.mark.untimed]

DYING = "job.dying_lambdas={share: 15 %, timeout: 100 ms, ratio: 1.5}"


def _carried(folder: Path, *changes: str) -> Carried:
    folder.mkdir()
    file = folder / "dorylus.yaml"
    file.write_text(TEXT)
    return carried_out(file, folder, "job.slow_lambdas=null", *changes)


def _trained(run: Carried) -> Any:
    left = run.outcome.run
    return systems()["dorylus"].trained(left.schedule.problem.job, left.results)


def test_weights_of_pipe_are_those_without_deaths(tmp_path: Path) -> None:
    changes = ("job.mode=pipe", "job.launch={cold: 40 ms, warm: 4 ms}")
    expected = _trained(_carried(tmp_path / "whole", *changes))
    run = _carried(tmp_path / "dying", *changes, DYING)
    np.testing.assert_array_equal(_trained(run), expected, strict=True)

    outcome, job = run.outcome, run.outcome.experiment.problem.job
    late = [task for task in job.tasks if task.kind == "late"]
    for task in late:
        dropped = outcome.run.results[task.name]["dropped"]
        assert dropped == task.settings["ends"].count(LATE) > 0
    again = run.result["relaunches"]
    assert again["count"] > again["late"] > 0
    assert again["seconds"] >= 0.1 * again["count"] - 1e-6
    assert 0 < run.result["cost"]["lost"] < run.result["cost"]["lambdas"]

    ran, predicted = outcome.run.schedule, outcome.predicted
    at = tuple(ran.flows().T)
    np.testing.assert_array_equal(ran.flow_bytes[at], predicted.flow_bytes[at])
    subject = read_to_audit(run.path)
    report, _ = audit_whole(subject, subject.tolerance, 1e-6)
    assert not report.violations
    assert training_audit(run.path, job) == (7, [])


def test_async_equals_one_process_with_the_recorded_reads(tmp_path: Path) -> None:
    run = _carried(tmp_path / "run", "job.staleness=1", DYING)
    recorded = load_run(run.path).emulated
    assert recorded is not None
    experiment = run.outcome.experiment
    section = experiment.scenario.job
    assert isinstance(section, DorylusJobSection)
    context = experiment.scenario.build_context()
    alone, _ = replay_training(section, context, recorded)
    assert np.abs(_trained(run) - alone).max() <= 1e-12


def killed_at_random(folder: Path, leftovers: Leftovers, seed: int) -> str:
    """Return the error of a run of which a lambda is killed, and check its words."""
    rng = np.random.default_rng([34, seed])
    number, after = int(rng.integers(6)), float(rng.uniform(0, 0.6))
    changes = ["emulation.compute=timed", "emulation.time_scale=0.5"]
    changes += [DYING] * (seed % 2)
    experiment = prepare(loads(TEXT, changes))
    problem, settings = experiment.problem, emulation_settings(experiment.scenario)
    found: list[Any] = []

    def kill() -> None:
        found[0].kill()

    def begin() -> None:
        found.append(named(leftovers.note(), f"lambda{number}"))
        timer = threading.Timer(after, kill)
        timer.start()

    with pytest.raises(NodeLost) as caught:
        emulate(
            problem, "oes", settings, experiment.realization,
            log=folder / "agent.log", observer=Acts("began", begin, problem),
        )  # fmt: skip
    error = str(caught.value)
    task = rf"d?av[01]?_{number}(\.\d+)?(\.late)?\b"
    doing = rf".*{task}.*iteration \d"
    begin_words = rf"process lambda{number} was killed by SIGKILL \(tasks {task}"
    assert re.match(rf"{begin_words}[^:]*: {doing}", error), error
    assert "\n" not in error
    return error


@pytest.mark.parametrize("seed", [0, 1])
def test_a_lambda_killed_at_a_random_moment(
    seed: int, tmp_path: Path, leftovers: Leftovers
) -> None:
    killed_at_random(tmp_path, leftovers, seed)
