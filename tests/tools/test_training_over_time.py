"""The study of training over time draws what can be drawn again from its files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emu.runs.recorded_run import load_run
from emu.runs.validation import progress_of, step_ends
from emu.scenario import load, prepare
from tests.integration.scenarios import tiny_training
from tools.studies.training_over_time import STUDY, SYSTEMS

if TYPE_CHECKING:
    from pathlib import Path


def test_systems_train_the_same_steps_in_times_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(json.dumps(tiny_training(3)))
    arguments = [str(tmp_path), "--scenario", str(file), "--steps", "12"]
    assert STUDY.main("training", "", [*arguments, "--target", "1.01"]) == 0
    assert capsys.readouterr().out.count("101%: not reached") == len(SYSTEMS)
    assert STUDY.main("training", "", [*arguments, "--target", "0"]) == 0
    printed = capsys.readouterr().out

    runs = [load_run(tmp_path / system) for system in SYSTEMS]
    for run, (placement, policy) in zip(runs, SYSTEMS.values(), strict=True):
        changes = {
            "job.iterations": 12,
            "placement.policy": placement,
            "schedule.policy": policy,
        }
        assert f" 0%: {step_ends(run)[11]:.2f} s" in printed
        assert run.makespan == prepare(load(file, changes)).simulate().makespan
    one, *others = progress_of(runs, lambda *_: pytest.fail("trained again"))
    assert len(one.loss) == 12
    assert [*np.flatnonzero(~np.isnan(one.accuracy))] == [11]
    for other in others:
        np.testing.assert_array_equal(other.loss, one.loss)
    assert "simulated time (s)" in (tmp_path / "tiny.svg").read_text()
