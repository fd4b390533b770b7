"""Profile files: written whole, read strictly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import DataError
from emu.problem import Edge, Job, Profile, Task
from emu.scenario import (
    ProfileFile,
    build_job,
    load,
    prepare,
    read_profile,
    realize,
)
from emu.scenario.scenario_file import loads
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
    assert read.profile(JOB, 1.0).times.tolist() == PROFILE.times.tolist()
    assert read.profile(JOB, 1.0).volumes.tolist() == PROFILE.volumes.tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["profile.json"]


@given(
    own=st.sampled_from([0.01, 0.5, 1.0, 3.0]),
    used=st.sampled_from([0.01, 0.5, 1.0, 3.0]),
)
def test_bytes_of_a_profile_are_those_of_the_scale_it_is_used_at(
    own: float, used: float
) -> None:
    """Real bytes are the same: an emulated one stands for ``used`` of them."""
    profile = ProfileFile.of(JOB, PROFILE, own).profile(JOB, used)
    np.testing.assert_allclose(
        profile.volumes * used, np.asarray(PROFILE.volumes) * own, rtol=1e-15
    )
    assert profile.times.tolist() == PROFILE.times.tolist()
    if own == used:
        assert profile.volumes.tolist() == PROFILE.volumes.tolist()


def test_a_profile_without_a_scale_is_asked_about(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({**GOOD, "tasks": {"g0": [1.0], "w0": [1.0]}}))
    with pytest.raises(DataError, match='add "byte_scale": 1, say'):
        read_profile(path).profile(JOB, 1.0)
    # Payloads that are made up carry stated volumes at every scale.
    assert read_profile(path).profile(JOB, None).volumes[0].tolist() == [2.0]


@pytest.mark.parametrize(
    ("key", "other", "differing"),
    [
        ("seed", 4, ""),
        ("compute", "timed", ""),
        ("optimizer", {"name": "adam", "lr": 0.5}, ""),
        ("optimizer", {"name": "sgd", "lr": 0.1}, "optimizer.name sgd, not adam"),
        ("dataset", {"scale": 0.5, "root": "/a"}, "dataset.scale 0.5, not 0.1"),
        ("precision", "float64", "precision float64, not float32"),
    ],
)
def test_a_profile_holds_for_its_settings(
    key: str, other: object, differing: str, tmp_path: Path
) -> None:
    """Written and read, as JSON has no tuples; those of no cost may differ."""
    settings = {
        "seed": 3,
        "compute": "real",
        "fanouts": (5, 10),
        "optimizer": {"name": "adam", "lr": 0.1},
        "dataset": {"scale": 0.1, "root": "/b"},
        "precision": "float32",
    }
    job = Job(JOB.tasks, JOB.edges, 5, settings=settings)
    measured = Job(JOB.tasks, JOB.edges, 5, settings={**settings, key: other})
    path = tmp_path / "profile.json"
    write_profile(path, ProfileFile.of(measured, PROFILE))
    profile = read_profile(path)
    if not differing:
        assert profile.profile(job, 1.0).times.tolist() == PROFILE.times.tolist()
        return
    with pytest.raises(DataError, match=f"was measured with {differing}: profile"):
        profile.profile(job, 1.0)


def test_a_profile_with_a_setting_that_the_job_lacks_is_refused() -> None:
    """Times of rows that a cache kept were not measured."""
    cache = {"policy": "degree", "size": 1e6}
    cached = Job(JOB.tasks, JOB.edges, 5, settings={"seed": 3, "cache": cache})

    with pytest.raises(
        DataError, match=r"cache\.policy degree, which this job does not"
    ):
        ProfileFile.of(cached, PROFILE).profile(JOB, 1.0)


def test_flows_between_the_same_tasks_keep_their_own_bytes(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    twice = Job(JOB.tasks, (Edge(0, 1), Edge(0, 1), Edge(1, 0, lag=1)), 5)
    volumes = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
    write_profile(path, ProfileFile.of(twice, Profile(PROFILE.times, volumes)))
    read = read_profile(path)

    assert list(read.edges) == ["g0->w0", "g0->w0#2", "w0->g0"]
    assert read.profile(twice, 1.0).volumes.tolist() == volumes.tolist()


def test_a_profile_of_another_job_is_named(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    write_profile(path, ProfileFile.of(JOB, PROFILE))
    other = Job(tasks=(Task("g0", "x"), Task("w9", "x")), edges=(), iterations=1)

    with pytest.raises(DataError, match="another job, it has no w9") as caught:
        read_profile(path).profile(other, 1.0)
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
        (json.dumps(GOOD)[:-1] + ', "tasks": {}}', '"tasks" is there twice: keep one'),
        ("[1]", "not a profile of version 1"),
        (json.dumps(GOOD | {"version": 2}), "not a profile of version 1, found 2"),
        (
            json.dumps(GOOD | {"unit": "ms"}),
            "has an unknown key 'unit', known: version",
        ),
        (json.dumps(GOOD | {"edge": {}}), "key 'edge', did you mean 'edges'"),
        (json.dumps(GOOD | {"tasks": {}}), "it needs tasks, edges and settings"),
        (json.dumps(GOOD | {"edges": []}), "it needs tasks, edges and settings"),
        (json.dumps(GOOD | {"tasks": {"g0": 1.0}}), "g0 has values that cannot be"),
        (json.dumps(GOOD | {"tasks": {"g0": []}}), "g0 has values that cannot be"),
        (json.dumps(GOOD | {"tasks": {"g0": [-1.0]}}), "g0 has values that cannot be"),
        (json.dumps(GOOD | {"tasks": {"g0": [float("nan")]}}), "g0 has values that"),
        (json.dumps(GOOD | {"tasks": {"g0": ["x"]}}), "g0 is not a list of numbers"),
        (json.dumps(GOOD | {"tasks": {"g0": [1.0, 2.0]}}), "rows differ in length"),
        (json.dumps(GOOD | {"byte_scale": 0}), "has byte_scale 0, write a number"),
        (json.dumps(GOOD | {"byte_scale": True}), "has byte_scale True"),
        (json.dumps(GOOD | {"byte_scale": "1"}), "has byte_scale '1'"),
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


def test_what_a_profile_states_of_other_tasks_is_named(tmp_path: Path) -> None:
    """One of more machines or workers may do for fewer: it is no error."""
    file = tmp_path / "p.json"
    content = json.loads(json.dumps(GOOD)) | {"edges": {}, "comment": "by hand"}
    row = content["tasks"]["g0"]
    for tasks, words in (
        ({}, []),
        ({"w9": row, "x": row}, ["profile: the job has no w9, x: what it states"]),
        ({f"w{number}": row for number in range(5)}, ["no w0, w1, w2 and 2 more: "]),
    ):
        stated = content | {"tasks": {"g0": row, **tasks}}
        file.write_text(json.dumps(stated))
        scenario = loads(
            "cluster: {machines: [{nic: 1 B/s}]}\n"
            "job: {system: custom, iterations: 2, tasks: [{name: g0, time: 9 s}]}\n"
            f"profile: {file}\n"
        )
        remarks = prepare(scenario).remarks()
        assert len(remarks) == len(words)
        assert all(word in remark for word, remark in zip(words, remarks, strict=True))
