"""Variations of a scenario: which there are, in which order, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.errors import ScenarioError
from emu.scenario.variations import variations

FILE = """\
cluster: {machines: [{name: m, count: 2, nic: 1 MB/s}]}
job:
  system: custom
  iterations: 2
  tasks: [{name: a, time: 1 s, pin: m0}, {name: b, time: 1 s, pin: m1}]
  flows: [{from: a, to: b, volume: 10 B}]
expect: {makespan: 3 s}
seed: 5
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "it.yaml"
    path.write_text(FILE)
    return path


def test_every_combination_comes_with_every_seed(file: Path) -> None:
    """The last key changes first, then the one before it; seeds follow the file's."""
    vary = ["job.iterations=2, 3,2", "schedule.policy=oes,fifo"]
    points = variations(file, [], vary, 2)
    assert [(*point.values.values(), point.seed) for point in points] == [
        *(("2", "oes", 5), ("2", "oes", 6), ("2", "fifo", 5), ("2", "fifo", 6)),
        *(("3", "oes", 5), ("3", "oes", 6), ("3", "fifo", 5), ("3", "fifo", 6)),
    ]
    assert [point.scenario.job.iterations for point in points] == [2] * 4 + [3] * 4
    assert [point.scenario.seed for point in points] == [5, 6] * 4
    assert [point.unchanged for point in points] == [True] + [False] * 7
    assert {point.scenario.expect.makespan for point in points} == {None}
    assert len({point.key("simulate") for point in points}) == 8
    assert points[0].key("simulate") != points[0].key("emulate")
    again = variations(file, [], ["schedule.policy=oes"], 1)
    assert again[0].key("simulate") == points[0].key("simulate")


def test_a_comma_within_brackets_belongs_to_a_value(file: Path) -> None:
    values = ["[{from: a, to: b, volume: 1 B}]", "[]", "[]"]
    points = variations(file, [], [f"job.flows={','.join(values)}"], 1)
    assert [point.values["job.flows"] for point in points] == values[:2]
    assert [len(point.scenario.to_json()["job"]["flows"]) for point in points] == [1, 0]


def test_varied_seeds_are_those_of_the_points(file: Path) -> None:
    points = variations(file, [], ["seed=9,1"], 1)
    assert [point.seed for point in points] == [9, 1]


@pytest.mark.parametrize(
    ("stated", "vary", "seeds", "words"),
    [
        (["job.iterations=3"], ["job.iterations=1,2"], 1, "--set states it already"),
        ([], ["seed=1,2"], 2, "--seeds: --vary states the seeds: remove it"),
        ([], ["job.iterations="], 1, "write key=value,value"),
        ([], ["job.iterations=1,,2"], 1, "write key=value,value"),
        ([], ["=1"], 1, "key"),
        ([], ["job.iterations=1", "job.iterations=2"], 1, "write all values in one"),
        ([], ["expect.makespan=1 s"], 1, "state it with --set"),
        ([], ["job.iterations=2,x"], 1, "--vary job.iterations=x: job.iterations"),
    ],
)
def test_what_cannot_be_varied_is_one_error(
    file: Path, stated: list[str], vary: list[str], seeds: int, words: str
) -> None:
    with pytest.raises(ScenarioError, match=words):
        variations(file, stated, vary, seeds)
