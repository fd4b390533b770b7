"""A run that goes on has the time of its last cut, and what comes after it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emu.errors import ScenarioError
from emu.experiment.attempts import cut_plan, resume_run
from emu.experiment.run_experiment import (
    _write_beginning,
    emulation_settings,
)
from emu.experiment.run_files import manifest
from emu.problem.job import Cut
from emu.runs.run_directory import RunDirectory, write_scenario
from emu.scenario import prepare
from emu.scenario.scenario_file import loads
from tests.testing.trial_cases import DGTP

EVENTS = """
checkpoint: {every: 2 iterations}
on_failure: restart
events:
- {at: 0.05 s, kill: w0}
- {at: 0.06 s, kill: w1}
- {at: 3 s, kill: w1}
- {at: {task: w0, iteration: 4}, kill: w0}
- {at: {task: w0, iteration: 6}, kill: w0}
- {at: {task: w0, iteration: 7}, kill: w1}
- {at: 1 s, slow: m0, by: 2, for: 3 s}
"""


@pytest.mark.parametrize("first", [0, 2])
def test_events_come_at_the_times_of_the_whole_job(tmp_path: Path, first: int) -> None:
    text = DGTP.replace("iterations: 3", "iterations: 9")
    scenario = loads(f"name: it\n{text}{EVENTS}")
    began = 2.0 * (first > 0)  # it was restarted
    directory = RunDirectory(tmp_path)
    content = manifest(scenario, emulation_settings(scenario))
    # The kill at iteration 6 came, and the cut before it was the last that was kept.
    content |= {"first_iteration": first, "began": began, "killed": [4]}
    source = write_scenario(directory, scenario)
    directory.write_json("manifest.json", content | {"source": source})
    whole = prepare(scenario)
    plan = cut_plan(whole, tmp_path)
    assert plan is not None
    plan.keep(Cut(4, {"ps0": {"parameters": np.zeros(2)}}))

    beginning = resume_run(tmp_path, None, lambda _: None)

    left = beginning.experiment
    before = whole.beginning_at(first, began).simulate()
    taken = before.task_start[whole.problem.job.index("ps0"), 4 - first]
    assert left.first == 4
    assert left.began == pytest.approx(began + taken)
    assert [kill.time for kill in left.kills] == [3.0, np.inf]
    assert left.kills[1].processes == ("w1",)
    slow = [change.time for change in left.problem.cluster.speed_changes]
    assert slow == pytest.approx([max(1.0 - left.began, 1e-9), 4.0 - left.began])
    killed = left.attempts().killed[0]
    assert killed.first_iteration == 4
    assert "w1 is killed" in killed.error


@pytest.mark.parametrize("accuracy", ["6 %", "8 %"])
@pytest.mark.parametrize("by_file", [False, True])
def test_what_goes_on_knows_the_accuracy_that_decided_its_length(
    accuracy: str, tmp_path: Path, *, by_file: bool
) -> None:
    text = DGTP.replace("iterations: 3", "iterations: 60")
    text += "checkpoint: {every: 1 iterations}\n"
    training = {"job.optimizer": {"name": "adam", "lr": 0.1}}
    until = {"accuracy": accuracy, "split": "train"}
    scenario = loads(f"name: it\n{text}", training | {"until": until})
    whole, directory = prepare(scenario), RunDirectory(tmp_path)
    settings = emulation_settings(whole.scenario)
    _write_beginning(whole, settings, directory, None, again=False)
    plan = cut_plan(whole, tmp_path)
    assert plan is not None
    plan.keep(Cut(1, {"ps0": {"parameters": np.zeros(2)}}))

    stated = (lambda: scenario) if by_file else None
    left = resume_run(tmp_path, stated, lambda _: None).experiment

    assert whole.until is not None
    assert (left.until, left.reached) == (whole.until, whole.reached)
    assert left.first == 1
    assert left.problem.job.iterations == whole.problem.job.iterations - 1
    other = loads(f"name: it\n{text}", training | {"until": until | {"every": 2}})
    with pytest.raises(ScenarioError, match="until"):
        resume_run(tmp_path, lambda: other, lambda _: None)
