"""What a run leaves can be read again, or says what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError
from emu.host.input_file import read_json
from emu.prediction.simulation import simulate
from emu.problem import Schedule
from emu.runs.problem_json import (
    problem_from_json,
    problem_to_json,
    schedule_from_json,
)
from emu.runs.run_directory import (
    RunDirectory,
    apart,
    disk_errors,
    read_scenario,
)
from emu.scenario.scenario_file import loads
from emu.testing import two_machine_example


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Return a run directory with a problem, rates and a result."""
    problem, realization = two_machine_example(3)
    directory = RunDirectory.create("golden", tmp_path)
    directory.write_json("problem.json", problem_to_json(problem))
    schedule = simulate(problem, realization, record_rates=True)
    if schedule.rates is not None:
        directory.write_arrays("rates.npz", **vars(schedule.rates))
    directory.write_json("result.json", schedule.to_json())
    return directory


def read_schedule(run: Path) -> Schedule:
    problem, result = run / "problem.json", run / "result.json"
    return schedule_from_json(
        problem_from_json(read_json(problem), str(problem)),
        read_json(result),
        str(result),
    )


def test_a_schedule_is_read_back_as_it_was(run: RunDirectory) -> None:
    problem, realization = two_machine_example(3)
    before, after = simulate(problem, realization), read_schedule(run.path)

    np.testing.assert_array_equal(after.task_end, before.task_end)
    np.testing.assert_array_equal(after.flow_end, before.flow_end)
    assert after.to_json() == before.to_json()


def test_rates_need_no_pickle(run: RunDirectory) -> None:
    with np.load(run.path / "rates.npz", allow_pickle=False) as rates:
        assert set(rates) == {"time", "edge", "iteration", "rate"}


def test_two_runs_of_one_second_do_not_meet(tmp_path: Path) -> None:
    paths = {RunDirectory.create("x", tmp_path).path for _ in range(3)}

    assert len(paths) == 3


def test_only_an_empty_one_is_removed(run: RunDirectory, tmp_path: Path) -> None:
    empty = RunDirectory.create("x", tmp_path)
    empty.remove_empty()
    run.remove_empty()

    assert not empty.path.exists()
    assert (run.path / "result.json").exists()


def test_nothing_half_written_is_left(run: RunDirectory) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        run.write_json("manifest.json", {"nan": float("nan")})
    assert {path.name for path in run.path.iterdir()} == {
        "problem.json",
        "rates.npz",
        "result.json",
    }


def test_an_unwritable_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file in the way")

    with pytest.raises(DataError, match=r"runs.*--runs"):
        RunDirectory.create("x", tmp_path / "runs")


@pytest.mark.parametrize(
    ("name", "content", "story"),
    [
        ("result.json", '{"makespan": 1.0, "tasks"', "is not JSON"),
        ("result.json", '{"tasks": [], "flows": []}', "task g0 lacks iteration 0"),
        ("problem.json", '{"version": 99}', "version 99, this emu reads 1"),
        ("problem.json", '{"version": 1}', "iterations: Field required"),
        ("problem.json", "[]", "version None"),
    ],
)
def test_a_broken_file_is_named(
    run: RunDirectory, name: str, content: str, story: str
) -> None:
    (run.path / name).write_text(content)

    with pytest.raises(DataError, match=rf"{name}: .*{story}"):
        read_schedule(run.path)


def test_a_missing_file_is_named(run: RunDirectory) -> None:
    (run.path / "result.json").unlink()

    with pytest.raises(DataError, match=r"result\.json: is missing"):
        read_schedule(run.path)


def test_an_unknown_flow_is_refused(run: RunDirectory) -> None:
    result = read_json(run.path / "result.json")
    result["flows"][0]["edge"] = "nobody->s0"
    (run.path / "result.json").write_text(json.dumps(result))

    with pytest.raises(DataError, match="not a schedule of this problem"):
        read_schedule(run.path)


SCENARIO = """
cluster: {machines: [{name: m, nic: 1 MB/s}]}
job: {system: custom, iterations: 1, tasks: [{name: a, time: 1 s}]}
emulation: {time_scale: auto, byte_scale: 4}
"""


@pytest.mark.parametrize(
    ("key", "value", "differs"),
    [("time_scale", 2.5, False), ("byte_scale", 8.0, True), ("setup", True, True)],
)
def test_a_scale_that_is_left_to_emu_may_be_any(
    key: str, value: object, *, differs: bool
) -> None:
    stated = loads(SCENARIO)
    noted = stated.to_json()
    noted["emulation"][key] = value
    assert bool(apart(stated, noted)) is differs


def test_a_key_of_json_is_a_line_and_so_is_a_row_of_a_table(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    content = {"a": 1, "rows": [{"x": 1}, {"x": [2]}], "list": [1, 2], "none": []}
    directory.write_json("x.json", content)
    assert (tmp_path / "x.json").read_text() == (
        '{\n "a": 1,\n "rows": [\n  {"x": 1},\n  {"x": [2]}\n ],\n'
        ' "list": [1, 2],\n "none": []\n}\n'
    )


def test_what_the_disk_refuses_is_said_in_its_words(tmp_path: Path) -> None:
    for error, words in (
        (OSError(28, "No space left on device", "odd"), "No space left on device"),
        (OSError("torn"), "torn"),
    ):
        with pytest.raises(DataError) as caught, disk_errors("cannot be", tmp_path):
            raise error
        assert str(caught.value) == f"{tmp_path}: cannot be: {words}"


def test_what_was_noted_of_programs_is_not_in_the_text() -> None:
    """Of a model's program and of a rule, wherever they stand; and of nothing else."""
    stated = loads(SCENARIO)
    noted = stated.to_json()
    noted["schedule"] = {**noted["schedule"], "source": "class Equal: ..."}
    assert apart(stated, noted) != []
    model = {"program": "net.py:Net", "hidden": 4}
    rule = {"policy": "mine.py:Equal"}
    plain = {"hidden": 4}
    for part, is_noted in ((model, True), (rule, True), (plain, False)):
        for key in ("measured", "source"):
            left = {"list": [{"inner": part}]}
            right = {"list": [{"inner": {**part, key: "more"}}]}
            like = Stated({"emulation": {"time_scale": 1.0, "byte_scale": 1.0}, **left})
            found = apart(like, {**like.to_json(), **right})  # type: ignore[arg-type]
            assert bool(found) is not is_noted
    odd = {"list": [{"inner": {**model, "more": 1}}]}
    like = Stated({"emulation": {"time_scale": 1.0, "byte_scale": 1.0}, "list": []})
    assert apart(like, {**like.to_json(), **odd}) != []  # type: ignore[arg-type]


class Stated:
    """What a scenario is as JSON."""

    def __init__(self, content: dict[str, Any]) -> None:
        self._content = content

    def to_json(self) -> dict[str, Any]:
        """Return the content."""
        return self._content


def test_a_manifest_names_the_text_of_its_scenario(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"manifest\.json: names no scenario text: "):
        read_scenario(tmp_path, {"source": None})
    source = {"file": "a.yaml", "folder": ".", "overrides": []}
    with pytest.raises(DataError, match="is missing"):
        read_scenario(tmp_path, {"source": source})
