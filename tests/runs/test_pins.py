"""A job with pins is read back from problem.json as it was."""

import json

from hypothesis import given
from hypothesis import strategies as st

import emu
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
