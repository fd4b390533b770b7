"""A job with pins is read back from problem.json as it was."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import emu
from emu.errors import DataError
from emu.runs.problem_json import problem_from_json, problem_to_json


@given(st.dictionaries(st.sampled_from(["g0", "s0", "w0"]), st.just("m0")))
def test_pins_are_read_back(pins: dict[str, str]) -> None:
    scenario = emu.load("golden", {"placement.policy": "ifs", "placement.tasks": pins})
    problem = emu.place(scenario).problem
    written = json.loads(json.dumps(problem_to_json(problem)))

    again = problem_from_json(written, "problem.json")

    assert [task.pinned for task in again.job.tasks] == [
        pins.get(task.name) for task in again.job.tasks
    ]


def test_a_pin_to_no_machine_is_named() -> None:
    written = problem_to_json(emu.place(emu.load("golden")).problem)
    written["tasks"][0]["pinned"] = "m9"
    with pytest.raises(DataError, match="no machine is called m9"):
        problem_from_json(written, "problem.json")
