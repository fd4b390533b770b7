"""Times of a torch.profiler trace, mapped to kinds of tasks."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.errors import DataError, ScenarioError
from emu.experiment.trace_profile import list_stated, parse_ranges, profile_from_trace
from emu.report.measured_tables import ranges_table
from emu.scenario import build_job, load
from emu.scenario.scenario_file import loads
from tests.integration.scenarios import tiny_training


def event(name: str, at: float, length: float, cat: str = "user_annotation") -> Any:
    return {"ph": "X", "name": name, "cat": cat, "ts": at, "dur": length, "tid": 1}


def tiny(**times: str) -> Any:
    scenario = loads(json.dumps(tiny_training(5)))
    return load(scenario, {f"job.times.{kind}": time for kind, time in times.items()})


def traced(path: Path, events: list[Any]) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def test_ranges_become_times_in_the_order_of_the_clock(tmp_path: Path) -> None:
    """Out of order in the file; on a GPU its own range counts."""
    events = [event("backward", 100 + 1000 * n, 300 + n) for n in (2, 0, 1)]
    events += [event("forward", 50 + 1000 * n, 100) for n in range(4)]
    events += [event("sampler", 10 + 1000 * n, 70) for n in range(3)]
    events += [
        event("sampler", 10 + 1000 * n, 90, "gpu_user_annotation") for n in (0, 1)
    ]
    events += [{"ph": "M", "name": "process_name"}]
    trace = traced(tmp_path / "trace.json", events)
    found = profile_from_trace(tiny(), trace, {"worker": ["forward", "backward"]})

    for worker in ("w0", "w1"):
        np.testing.assert_allclose(found.tasks[worker], [400e-6, 401e-6])
    np.testing.assert_allclose(found.tasks["s1"], [90e-6, 90e-6])
    np.testing.assert_allclose(found.tasks["ps0"], [0.01, 0.01])  # as stated


def test_a_range_within_one_of_its_name_counts_once(tmp_path: Path) -> None:
    """A function that calls itself; what another thread does meanwhile counts."""
    events = []
    for start in (0, 1000):
        events += [event("worker", start, 500), event("worker", start, 100.3)]
        events += [event("worker", start + 399.7, 100.3)]  # both end together
    events += [event("worker", 499, 200), event("worker", 699, 1)]  # rounded begins
    events += [event("worker", 1100, 50) | {"tid": 2}]
    trace = traced(tmp_path / "trace.json", events)
    profile = profile_from_trace(tiny(), trace, {})

    expected = [500e-6, 200e-6, 1e-6, 500e-6, 50e-6]
    np.testing.assert_allclose(profile.tasks["w0"], expected)


def test_volumes_are_those_of_the_samples_and_the_profile_is_usable(
    tmp_path: Path,
) -> None:
    from emu.scenario import prepare, write_profile

    trace = tmp_path / "trace.json.gz"
    events = [event("worker", 100 * n, 50) for n in range(5)]
    trace.write_bytes(gzip.compress(json.dumps(events).encode()))
    profile = profile_from_trace(tiny(), trace, {})
    direct = prepare(tiny()).realization

    first = next(iter(profile.edges.values()))
    np.testing.assert_array_equal(first, direct.volumes[0])
    write_profile(tmp_path / "profile.json", profile)
    again = prepare(load(tiny(), {"profile": str(tmp_path / "profile.json")}))
    assert set(again.realization.times[again.problem.job.index("w0")]) == {50e-6}


@pytest.mark.parametrize(
    ("events", "ranges", "problem"),
    [
        ([event("forward", 0, 1)], {}, "holds no range 'graph_store'.*forward .1."),
        ([event("x", 0, 1)], {"worker": ["y"]}, "holds no range 'y'.*there are: x .1."),
        ([], {"worker": ["y"]}, "there are: none"),
        ([{"ph": "X", "name": "worker"}], {}, "is damaged: range worker has no ts"),
        ([{"ph": "X", "name": "a", "ts": 1}], {}, "is damaged: range a has no dur"),
        (
            [{**event("worker", 9 * pid, 1), "pid": pid} for pid in (1, 2)],
            {},
            "has the range 'worker' of 2 processes or GPUs: write a trace of one",
        ),
        (
            [event("worker", 0, 1), {"ph": "B", "name": "sampler", "ts": 3}],
            {},
            "begins and ends 'sampler' by two events, B and E: write one of phase X",
        ),
        (
            [event("worker", 0, 1), {"ph": "B", "name": "train", "ts": 3}],
            {"worker": ["worker", "train"]},
            "begins and ends 'train' by two events, B and E",
        ),
    ],
)
def test_a_trace_without_the_ranges_says_which_there_are(
    events: list[Any], ranges: dict[str, list[str]], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=problem):
        profile_from_trace(tiny(), traced(tmp_path / "t.json", events), ranges)


def test_a_range_of_two_events_that_no_kind_is_made_of_is_let_be(
    tmp_path: Path,
) -> None:
    halves = [{"ph": phase, "name": "io", "ts": 3, "tid": 2} for phase in "BE"]
    trace = traced(tmp_path / "t.json", [event("worker", 0, 50), *halves])
    profile = profile_from_trace(tiny(), trace, {})

    assert set(profile.tasks["w0"]) == {50e-6}


def test_json_that_is_no_trace_says_so(tmp_path: Path) -> None:
    """A file of task times was called damaged, with 'traceEvents' as the reason."""
    trace = tmp_path / "times.json"
    trace.write_text('{"tasks": {}}')

    with pytest.raises(DataError, match="is no trace of torch"):
        profile_from_trace(tiny(), trace, {})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--range", "worker=train"], "--range: is of a trace: add --from TRACE"),
        (
            ["--from", "trace.json", "--iterations", "9"],
            "--iterations: a trace has its own: leave it out beside --from",
        ),
        (
            ["--from", "trace.json", "--runs", "elsewhere"],
            "--runs elsewhere: nothing runs: leave it out beside --from",
        ),
        (["--rates", "--from", "t.json"], "--rates: are measured here"),
    ],
)
def test_an_option_that_would_change_nothing_is_refused(
    options: list[str], problem: str, tmp_path: Path
) -> None:
    command = ["profile", "demo", str(tmp_path / "times.json"), *options]
    result = CliRunner().invoke(app, command)

    assert result.exit_code == 2
    assert problem in result.stderr


def test_ranges_of_the_program_come_before_those_of_torch(tmp_path: Path) -> None:
    events = [event(f"aten::op{n}", n, 900, "cpu_op") for n in range(40)]
    events += [event("load", 5, 10), event("worker", 9, 20), event("worker", 50, 20)]
    trace = traced(tmp_path / "t.json", events)
    told: list[str] = []
    profile_from_trace(tiny(), trace, {}, told.extend)

    assert told[:3] == ["worker", "load", "aten::op0"]
    with pytest.raises(DataError, match=r"there are: worker .2., load .1., aten"):
        profile_from_trace(tiny(), trace, {"worker": ["y"]})
    table = ranges_table({"worker": np.array([2.0, 2.0]), "load": np.array([1.0])})
    bars = [str(cell).count("█") for cell in table.columns[3].cells]
    assert bars == [30, round(30 / 4)]


def test_a_kind_has_ranges_once_and_what_is_stated_is_named(tmp_path: Path) -> None:
    """The second took the place of the first, without a word."""
    assert parse_ranges(["worker=a,b", "sampler=c"])["worker"] == ["a", "b"]
    with pytest.raises(ScenarioError, match="write worker=a,b,c for their sum"):
        parse_ranges(["worker=a,b", "worker=c"])
    with pytest.raises(ScenarioError, match="write worker=a,b for their sum"):
        parse_ranges(["worker=a,b", "worker=b"])
    with pytest.raises(ScenarioError, match=r"counts a range twice: write worker=a,b$"):
        parse_ranges(["worker=a,b,a"])
    with pytest.raises(ScenarioError, match="--range worker: write for example"):
        parse_ranges(["worker"])
    traced(tmp_path / "t.json", [event("step", 0, 1), event("sampler", 2, 1)])
    file = tmp_path / "tiny.json"
    file.write_text(json.dumps(tiny_training(5)))

    command = f"profile {file} {tmp_path}/p.json --from {tmp_path}/t.json"
    result = CliRunner().invoke(app, [*command.split(), "--range", "worker=step"])

    line = "as the scenario states, no range: graph_store, parameter_server written"
    assert line in " ".join(result.stderr.split())


def test_a_time_that_is_not_stated_is_not_named_as_stated(tmp_path: Path) -> None:
    """A kind without range and time is refused; a ring's steps take 0 s by default."""
    traced(tmp_path / "t.json", [event("worker", 0, 1), event("sampler", 2, 1)])
    content = tiny_training(5)
    del content["job"]["times"]["graph_store"]
    file = tmp_path / "tiny.json"
    file.write_text(json.dumps(content))
    command = f"profile {file} {tmp_path}/p.json --from {tmp_path}/t.json".split()
    result = CliRunner().invoke(app, command)

    assert result.exit_code == 2
    assert "job.times.graph_store" in result.stderr
    assert "as the scenario states" not in result.stderr

    found = {"worker": np.array([1.0])}
    ring = load(tiny(), {"job.sync": "ring"})
    assert "all_reduce" in {task.kind for task in build_job(ring).tasks}
    assert list_stated(ring, found, {}) == ["graph_store", "sampler"]


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    trace = traced(tmp_path / "t.json", [event("worker", 0, 1)])

    with pytest.raises(
        ScenarioError, match="no task of kind 'wroker', known: graph_st"
    ):
        profile_from_trace(tiny(), trace, {"wroker": ["worker"]})
