"""Time to an accuracy by curves that were recorded, in place of trainings."""

from __future__ import annotations

import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from emu.cli import app
from emu.errors import DataError, ScenarioError
from emu.experiment.advice import advise
from emu.experiment.prospects import Terms
from emu.experiment.recorded_steps import recorded_looks
from emu.experiment.system_rows import compare_systems
from emu.experiment.systems import Target
from emu.interchange.accuracy_curve import read_curve
from emu.report.target_tables import target_lines, target_table
from emu.scenario import Scenario, build_job, load, prepare
from tests.experiment.test_target import FILE

TARGET = Target(0.7)
STEPS = "step,accuracy\n20,0.8\n40,0.6\n50,0.7\n90,0.9\n91,0.71\n"
EPOCHS = "epoch,accuracy\n1.5,0.7\n2.25,0.7\n4,0.72\n"


def file_with(folder: Path, accuracy: Any, **keys: Any) -> Scenario:
    (folder / "steps.csv").write_text(STEPS)
    (folder / "epochs.csv").write_text(EPOCHS)
    content = {**FILE, "accuracy": accuracy, **keys}
    path = folder / "file.json"
    path.write_text(json.dumps(content))
    return load(path)


@pytest.mark.parametrize("drawn", [False, True])
def test_time_is_recorded_steps_by_the_simulated_step(
    tmp_path: Path,
    drawn: bool,  # noqa: FBT001
) -> None:
    dataset = {"name": "products-like", "scale": 0.002, "drawn": drawn}
    curves = {"p3.none": "steps.csv", "dgtp": "epochs.csv", "dgcl": "epochs.csv"}
    scenario = file_with(tmp_path, curves, job={**FILE["job"], "dataset": dataset})
    rows = compare_systems(scenario, [*curves], same_machines=True, target=TARGET)

    # A walk of three shards, 16 seeds each; products-like has 0.002 x 196,615 of them.
    steps_per_epoch = math.ceil(393 // 3 / 16)
    steps = [50, math.ceil(1.5 * steps_per_epoch), 2]
    for row, count in zip(rows, steps, strict=True):
        assert row.steps == count
        # From end to end of the few steps that the file states.
        ends = np.nanmax(prepare(row.scenario).simulate().task_end, axis=0)
        seconds = (ends[-1] - ends[0]) / (len(ends) - 1) if len(ends) > 1 else ends[0]
        assert row.makespan == pytest.approx(count * seconds, rel=1e-12)
        assert row.curves[0][-1] == (row.makespan, 0.7)
    assert rows[2].epochs == 2

    caption = str(target_table(rows, "accuracy=0.7").caption)
    assert f"p3.none by {tmp_path / 'steps.csv'}" in caption
    assert f"by {tmp_path / 'epochs.csv'}" in caption
    assert not any("trained once" in line for line in target_lines(rows))


def test_other_rows_train_and_a_file_alone_is_of_its_own_system(tmp_path: Path) -> None:
    scenario = file_with(tmp_path, "steps.csv")
    rows = compare_systems(
        scenario, ["dgtp", "distdgl"], target=Target(0.5, within=30), keep_rate=True
    )
    assert [bool(row.question.curve_file) for row in rows] == [True, False]
    assert "distdgl by" not in str(target_table(rows, "0.5").caption)


def test_a_drawn_graph_refuses_rows_without_a_curve(tmp_path: Path) -> None:
    dataset = {"name": "products-like", "scale": 0.002, "drawn": True}
    job = {**FILE["job"], "dataset": dataset}
    scenario = file_with(tmp_path, {"dgtp": "steps.csv"}, job=job)
    recorded, refused = compare_systems(scenario, ["dgtp", "dgcl"], target=TARGET)
    assert recorded.steps == 50
    assert "accuracy: {ROW: FILE}" in str(refused.refused)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.sampled_from([0.2, 0.5, 0.69, 0.7, 0.9]), min_size=3, max_size=12),
)
def test_three_rows_in_a_row_have_to_hold_it(shares: list[float]) -> None:
    lines = [f"{3 * number + 1},{share}" for number, share in enumerate(shares)]
    with TemporaryDirectory() as folder:
        scenario = file_with(Path(folder), "steps.csv")
        text = "\n".join(["step,accuracy", *lines])
        (Path(folder) / "steps.csv").write_text(text)
        job = build_job(scenario).settings
        places = range(len(shares) - 2)
        first = next((n for n in places if min(shares[n : n + 3]) >= 0.7), None)
        if first is None:
            with pytest.raises(ScenarioError, match="never reaches 70"):
                recorded_looks(scenario, "dgtp", 0.7, job)
            return
        looks = recorded_looks(scenario, "dgtp", 0.7, job)
        assert [look.step for look in looks] == [*range(1, 3 * first + 2, 3)]
        assert looks[-1].accuracy == shares[first]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "begins with '', write step,accuracy or epoch,accuracy"),
        ("time,accuracy\n1,0.5\n", "begins with 'time,accuracy'"),
        ("step,accuracy\n1,0.5\n3,0.5\n2,0.6\n", "line 4: step 2 stands behind 3"),
        ("step,accuracy\n1,0.5\n1,0.6\n", "line 3: step 1 stands behind 1"),
        ("step,accuracy\n1.5,0.5\n", "line 2: step 1.5 is no whole number"),
        ("epoch,accuracy\n0,0.5\n", "line 2: the epoch is no number above 0"),
        ("epoch,accuracy\n1,78\n", "line 2: accuracy '78', write a share from 0 to 1"),
        ("epoch,accuracy\n1,78 %\n", "line 2: accuracy '78 %', write a share"),
        ("epoch,accuracy\n1,nan\n", "line 2: accuracy 'nan', write a share"),
        ("epoch,accuracy\n1\n", "line 2: '1', write epoch,accuracy"),
    ],
)
def test_other_files_are_one_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "curve.csv"
    path.write_text(text)
    with pytest.raises(DataError) as found:
        read_curve(path)
    assert problem in str(found.value)
    assert "\n" not in str(found.value)


def test_the_command_names_the_key(tmp_path: Path) -> None:
    def said(accuracy: Any, *options: str, **keys: Any) -> str:
        file_with(tmp_path, accuracy, **keys)
        line = ["compare", str(tmp_path / "file.json"), "--systems", "dgtp", *options]
        result = CliRunner().invoke(app, line)
        assert result.exit_code == 2, result.output
        assert "Traceback" not in result.output
        return " ".join(result.output.split())

    to = ("--to", "accuracy=0.95")
    text = said("steps.csv", *to)
    assert "accuracy: " in text
    assert "at best 3 looks in a row hold 70.00%, from step 50 on" in text
    assert "accuracy.dgtp" in said({"dgtp": "absent.csv"}, *to)
    assert "no such row or system" in said({"dgpt": "steps.csv"}, *to)
    systems = {"dgtp": {"batch_size": [16, 32]}}
    assert "these train in several ways" in said("steps.csv", *to, systems=systems)
    events = [{"at": "1 ms", "machine": "b", "nic": "2 Gbit/s"}]
    assert "steps of accuracy take equal times" in said("steps.csv", *to, events=events)


def test_advice_refuses_a_curve_that_it_does_not_read(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="accuracy: is read by emu compare"):
        advise(file_with(tmp_path, "steps.csv"), Terms(target=TARGET))
