"""Arrays of a run: what each reader takes at its limits, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError
from emu.prediction.analysis.traffic import CALL, OWNER, PACKET, Traffic
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Task,
    Tuner,
)
from emu.runs.array_files import (
    read_lines,
    read_rates,
    read_realization,
    read_reports,
    read_samples,
    read_traffic,
    read_weights,
    write_lines,
    write_traffic,
)
from emu.runs.problem_json import MOST

#: Three tasks, two edges, four iterations: no two axes are of one length.
JOB = Job(tuple(Task(name, "t") for name in "abc"), (Edge(0, 1), Edge(1, 2)), 4)
MACHINE = Machine("m", 1.0, 1.0, slots={"gpu": 2})
PROBLEM = Problem(
    Cluster((MACHINE,), tuners=(Tuner(0, "gpu", "gpu", most=3),)),
    JOB,
    Placement((0, 0, 0)),
)
OF_TASKS = np.ones((3, 4))
OF_EDGES = np.ones((2, 4))
REPORTS: dict[str, Any] = {
    **dict.fromkeys(("task_start", "task_end", "late", "cpu"), OF_TASKS),
    "task_settled": OF_TASKS,
    **dict.fromkeys(("flow_ready", "flow_start", "flow_end"), OF_EDGES),
    "flow_settled": OF_EDGES,
    "reads": np.zeros((2, 4), np.int64),
    "sends": np.zeros((0, 6)),
    "quotas": np.array([[0], [3]]),
}
RATES: dict[str, Any] = {
    "time": np.array([0.0, 1.0]),
    "rate": np.array([5.0, 6.0]),
    "edge": np.array([0, 1]),
    "iteration": np.array([0, 3]),
}
LINES = {"program": np.array([0, 2], np.uint16), "time": np.array([0.0, 5.5])}
SAMPLES = {
    "time": np.array([0.0, 1.0]),
    **dict.fromkeys(("ran", "waited"), np.ones(2)),
    **dict.fromkeys(("retransmitted", "timeouts"), np.ones((2, 3), np.int64)),
    **dict.fromkeys(("dropped", "queued"), np.ones((2, 2, 3))),
}
WEIGHTS: dict[str, Any] = {
    "parameters": np.arange(7.0),
    "names": np.array(["w", "b"]),
    "shapes": np.array([[2, 3], [1, -1]]),
    "offsets": np.array([0, 6]),
}
Reader = Callable[[Path], Any]
READERS: dict[str, tuple[Reader, dict[str, Any]]] = {
    "realization.npz": (
        lambda run: read_realization(JOB, run / "realization.npz"),
        {"times": OF_TASKS, "volumes": OF_EDGES},
    ),
    "reports.npz": (lambda run: read_reports(PROBLEM, run / "reports.npz"), REPORTS),
    "rates.npz": (lambda run: read_rates(JOB, run / "rates.npz"), RATES),
    "lines.npz": (read_lines, LINES),
    "samples.npz": (read_samples, SAMPLES),
    "weights.npz": (read_weights, WEIGHTS),
}


def edited(array: Any, place: Any, value: Any) -> Any:
    copy = np.array(array)
    copy[place] = value
    return copy


CASES: list[tuple[str, str, Any, str]] = [
    ("realization.npz", "times", OF_TASKS[:, :3], "cannot be used: times"),
    ("realization.npz", "volumes", OF_TASKS, "cannot be used: times"),
    ("realization.npz", "times", MOST * OF_TASKS, "times holds what is no number"),
    ("realization.npz", "times", -MOST * OF_TASKS, "times holds what is no number"),
    ("reports.npz", "late", OF_EDGES, r"late has shape \(2, 4\), not \(3, 4\)"),
    ("reports.npz", "cpu", OF_TASKS.astype("f4"), "cpu has shape"),
    ("reports.npz", "flow_end", OF_TASKS, r"flow_end has shape \(3, 4\), not \(2, 4\)"),
    ("reports.npz", "reads", OF_EDGES, "holds no iterations that were read"),
    ("reports.npz", "reads", np.zeros((3, 4), np.int64), "holds no iterations that"),
    ("reports.npz", "sends", np.zeros((0, 6), "f4"), "holds no iterations that were"),
    ("reports.npz", "quotas", np.array([[0, 3]]), "holds no quotas of 1 tuners"),
    ("reports.npz", "quotas", np.array([[-1]]), "holds no quotas of 1 tuners"),
    ("reports.npz", "quotas", np.array([[1.0]]), "holds no quotas of 1 tuners"),
    ("rates.npz", "edge", np.array([0, 2]), "names flows that the job does not have"),
    ("rates.npz", "edge", np.array([-1, 1]), "names flows that the job does not"),
    ("rates.npz", "iteration", np.array([4, 0]), "names flows that the job does not"),
    ("rates.npz", "iteration", np.array([0, -1]), "names flows that the job does"),
    ("rates.npz", "rate", np.array([5.0]), "holds arrays of different lengths"),
    ("rates.npz", "time", np.array(["a", "b"]), "holds no numbers"),
    ("lines.npz", "program", np.array([0], np.uint16), "holds no times of lines"),
    ("lines.npz", "program", np.array([0, 2]), "a line has no time"),
    ("lines.npz", "time", np.array([0, 5]), "a line has no time"),
    ("lines.npz", "time", np.array([0.0, -0.5]), "a line has no time"),
    ("lines.npz", "time", np.array([0.0, np.nan]), "a line has no time"),
    ("samples.npz", "time", np.array(1.0), r"time has shape \(\) for 0 samples"),
    ("samples.npz", "time", np.array([]), r"time has shape \(0,\) for 0 samples"),
    ("samples.npz", "ran", np.ones(3), r"ran has shape \(3,\) for 2 samples"),
    ("samples.npz", "queued", np.ones((2, 3)), r"queued has shape \(2, 3\)"),
    ("samples.npz", "waited", np.array(["a", "b"]), "waited has shape"),
    ("samples.npz", "time", np.array([0.0, MOST]), "time holds what is no number"),
    ("samples.npz", "time", np.array([0.0, np.nan]), "time holds what is no number"),
    ("weights.npz", "names", np.array(["w", "w"]), "holds no named parts"),
    ("weights.npz", "names", np.array([1, 2]), "holds no named parts"),
    ("weights.npz", "shapes", np.array([[2, 3]]), "holds no named parts"),
    ("weights.npz", "shapes", np.array([6, 1]), "holds no named parts"),
    ("weights.npz", "offsets", np.array([0]), "holds no named parts"),
    ("weights.npz", "offsets", np.array([0.0, 6.0]), "holds no named parts"),
    ("weights.npz", "parameters", np.arange(7), "holds no named parts"),
    ("weights.npz", "offsets", np.array([0, 5]), "'b' is not within its parameters"),
    ("weights.npz", "offsets", np.array([1, 6]), "'w' is not within its parameters"),
    ("weights.npz", "parameters", np.arange(6.0), "'b' is not within its param"),
    ("weights.npz", "parameters", np.arange(9.0), "2 parameters have no name"),
    ("weights.npz", "shapes", np.array([[2, 3], [-2, -1]]), "'b' is not within its"),
]


@pytest.mark.parametrize("name", READERS)
def test_arrays_that_fit_are_read(name: str, tmp_path: Path) -> None:
    read, arrays = READERS[name]
    np.savez(tmp_path / name, **arrays)
    assert read(tmp_path)


def test_arrays_that_do_not_fit_name_their_file(tmp_path: Path) -> None:
    for name, key, array, problem in CASES:
        read, arrays = READERS[name]
        np.savez(tmp_path / name, **{**arrays, key: array})
        with pytest.raises(DataError, match=rf"{name}: .*{problem}"):
            read(tmp_path)


def test_what_did_not_happen_and_what_nothing_reads_may_be_left_out(
    tmp_path: Path,
) -> None:
    path = tmp_path / "reports.npz"
    reports: dict[str, Any] = {**REPORTS, "reads": np.zeros(0, np.int64)}
    reports["cpu"] = np.full((3, 4), np.nan)
    np.savez(path, **reports)
    found = read_reports(PROBLEM, path)
    assert np.isnan(found["cpu"]).all()
    assert not found["reads"].size
    # Without a tuner there are no quotas to be read.
    untuned = Problem(Cluster((MACHINE,)), JOB, Placement((0, 0, 0)))
    assert "quotas" not in read_reports(untuned, path)


def test_parts_of_weights_have_their_shapes_again(tmp_path: Path) -> None:
    np.savez(tmp_path / "weights.npz", **WEIGHTS)
    parts = read_weights(tmp_path)
    assert parts["w"].tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert parts["b"].tolist() == [6.0]


def test_lines_are_of_the_program_that_printed_them(tmp_path: Path) -> None:
    write_lines(tmp_path, [np.array([1.0, 2.0]), np.zeros(0), np.array([0.5])])
    lines = read_lines(tmp_path)
    assert lines["program"].tolist() == [0, 0, 2]
    assert lines["time"].tolist() == [1.0, 2.0, 0.5]


def traffic(**fields: Any) -> Traffic:
    """Return a packet and a call between the last two of three machines."""
    stated: dict[str, Any] = {
        "packets": np.ones(1, PACKET),
        "machines": ("m0", "m1", "m2"),
        "nics": np.array([[1.0, 2.0, 3.0], [4.0, 5.0, MOST / 2]]),
        "programs": ("p0", "p1"),
        "owners": np.ones(1, OWNER),
        "calls": np.ones(1, CALL),
    }
    for name, machine in (("packets", "destination"), ("calls", "peer")):
        stated[name][machine] = 2
    return Traffic(**{**stated, **fields})


def with_field(kind: np.dtype[Any], name: str, value: float) -> Any:
    """Return two rows, of which the second has a value of its own."""
    rows = np.ones(2, kind)
    rows[1][name] = value
    return rows


MACHINES = "names a machine beyond the 3 that it lists"
PROGRAMS = "names a program that it does not list"
TIMES = "a packet or a call has no time"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"nics": np.ones((3, 2))}, "holds NICs of shape"),
        ({"machines": ("m0", "m1", "m1")}, "holds NICs of shape"),
        ({"nics": edited(np.ones((2, 3)), (1, 2), 0.0)}, "a NIC has no rate"),
        ({"nics": edited(np.ones((2, 3)), (0, 1), MOST)}, "a NIC has no rate"),
        ({"nics": edited(np.ones((2, 3)), (0, 1), np.nan)}, "a NIC has no rate"),
        ({"packets": with_field(PACKET, "source", 3)}, MACHINES),
        ({"packets": with_field(PACKET, "destination", 3)}, MACHINES),
        ({"owners": with_field(OWNER, "machine", 3)}, MACHINES),
        ({"calls": with_field(CALL, "machine", 3)}, MACHINES),
        ({"calls": with_field(CALL, "peer", 3)}, MACHINES),
        ({"owners": with_field(OWNER, "program", 2)}, PROGRAMS),
        ({"calls": with_field(CALL, "program", 2)}, PROGRAMS),
        ({"packets": with_field(PACKET, "time", -0.5)}, TIMES),
        ({"calls": with_field(CALL, "begin", MOST)}, TIMES),
        ({"calls": with_field(CALL, "end", np.nan)}, TIMES),
        ({"owners": np.ones((1, 1), OWNER)}, "its packets are no rows"),
    ],
)
def test_traffic_names_what_it_lists(
    fields: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    write_traffic(tmp_path, traffic())
    found = read_traffic(tmp_path)
    assert found.machines == ("m0", "m1", "m2")
    assert found.calls["peer"].tolist() == [2]
    write_traffic(tmp_path, traffic(**fields))
    with pytest.raises(DataError, match=rf"traffic\.npz: .*{problem}"):
        read_traffic(tmp_path)


def test_a_folder_without_traffic_says_why(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such run directory"):
        read_traffic(tmp_path / "none")
    with pytest.raises(DataError, match="is no run of a lab"):
        read_traffic(tmp_path)
    (tmp_path / "lab.json").touch()
    with pytest.raises(DataError, match=r"has no traffic\.npz: the lab ran with"):
        read_traffic(tmp_path)
