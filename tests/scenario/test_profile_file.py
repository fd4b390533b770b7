"""Profile files: written whole, read strictly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError
from emu.problem import Edge, Job, Profile, Task
from emu.scenario import ProfileFile, build_job, load, read_profile, realize
from emu.scenario.workload_file import write_profile

JOB = Job(
    tasks=(Task("g0", "graph_store"), Task("w0", "worker")),
    edges=(Edge(0, 1), Edge(1, 0, lag=2, credit=True)),
    iterations=5,
    settings={"seed": 3},
)
PROFILE = Profile(
    times=np.array([[1.0, 2.0, 3.0], [0.5, 0.25, 1 / 3]]),
    volumes=np.array([[10.0, 20.0, 30.5], [0.0, 0.0, 0.0]]),
)


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    write_profile(path, ProfileFile.of(JOB, PROFILE))
    read = read_profile(path)

    assert read.settings == {"seed": 3}
    assert list(read.edges) == ["g0->w0"]
    assert read.profile(JOB).times.tolist() == PROFILE.times.tolist()
    assert read.profile(JOB).volumes.tolist() == PROFILE.volumes.tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["profile.json"]


def test_flows_between_the_same_tasks_keep_their_own_bytes(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    twice = Job(JOB.tasks, (Edge(0, 1), Edge(0, 1), Edge(1, 0, lag=1)), 5)
    volumes = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
    write_profile(path, ProfileFile.of(twice, Profile(PROFILE.times, volumes)))
    read = read_profile(path)

    assert list(read.edges) == ["g0->w0", "g0->w0#2", "w0->g0"]
    assert read.profile(twice).volumes.tolist() == volumes.tolist()


def test_a_profile_of_another_job_is_named(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    write_profile(path, ProfileFile.of(JOB, PROFILE))
    other = Job(tasks=(Task("g0", "x"), Task("w9", "x")), edges=(), iterations=1)

    with pytest.raises(DataError, match="another job, it has no w9") as caught:
        read_profile(path).profile(other)
    assert caught.value.path == str(path)


GOOD: dict[str, Any] = {
    "version": 1,
    "tasks": {"g0": [1.0]},
    "edges": {"g0->w0": [2.0]},
    "settings": {},
}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (json.dumps(GOOD)[:-9], "is not JSON"),
        ("[1]", "not a profile of version 1"),
        (json.dumps(GOOD | {"version": 2}), "not a profile of version 1, found 2"),
        (json.dumps(GOOD | {"tasks": {}}), "it needs tasks, edges and settings"),
        (json.dumps(GOOD | {"edges": []}), "it needs tasks, edges and settings"),
        (json.dumps(GOOD | {"tasks": {"g0": 1.0}}), "g0 has values that cannot be"),
        (json.dumps(GOOD | {"tasks": {"g0": []}}), "g0 has values that cannot be"),
        (json.dumps(GOOD | {"tasks": {"g0": [-1.0]}}), "g0 has values that cannot be"),
        (json.dumps(GOOD | {"tasks": {"g0": [float("nan")]}}), "g0 has values that"),
        (json.dumps(GOOD | {"tasks": {"g0": ["x"]}}), "g0 is not a list of numbers"),
        (json.dumps(GOOD | {"tasks": {"g0": [1.0, 2.0]}}), "rows differ in length"),
        ("\x00\x01", "is not JSON"),
    ],
)
def test_a_damaged_profile_is_never_used(
    tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "profile.json"
    path.write_text(content)

    with pytest.raises(DataError, match=message) as caught:
        read_profile(path)
    assert caught.value.path == str(path)


def test_a_profile_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is missing"):
        read_profile(tmp_path / "nothing.json")


def test_an_unwritable_place_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "profile.json").mkdir()

    with pytest.raises(DataError, match="cannot be written"):
        write_profile(tmp_path / "profile.json", ProfileFile.of(JOB, PROFILE))
    assert [path.name for path in tmp_path.iterdir()] == ["profile.json"]
    with pytest.raises(DataError, match="cannot be written"):
        write_profile(tmp_path / "no" / "p.json", ProfileFile.of(JOB, PROFILE))


def test_a_scenario_draws_its_run_from_the_profile(tmp_path: Path) -> None:
    """Whole iterations, by the scenario's seed, path relative to the scenario."""
    scenario_file = tmp_path / "s.yaml"
    scenario_file.write_text(
        "cluster: {machines: [{nic: 1 B/s}]}\n"
        "job: {system: custom, iterations: 40, tasks: [{name: g0, time: 9 s},"
        " {name: w0, time: 9 s}], flows: [{from: g0, to: w0, volume: 9 B}]}\n"
        "profile: p.json\n"
    )
    write_profile(tmp_path / "p.json", ProfileFile.of(JOB, PROFILE))
    scenario = load(scenario_file)
    job = build_job(scenario)
    drawn = realize(scenario, job)

    assert set(zip(drawn.times[0], drawn.volumes[0], strict=True)) == {
        (1.0, 10.0),
        (2.0, 20.0),
        (3.0, 30.5),
    }
    assert np.array_equal(realize(scenario, job).times, drawn.times)
    again = realize(load(scenario_file, ["seed=1"]), job)
    assert not np.array_equal(again.times, drawn.times)
