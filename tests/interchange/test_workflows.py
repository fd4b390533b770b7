"""Workflows of WfCommons: machines, cores, times and files of each task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from emu.errors import DataError
from emu.interchange.wfcommons import read_workflow
from emu.interchange.workload import Workload

pytestmark = pytest.mark.usefixtures("read_here")


def task(name: str, *files: Any, seconds: Any = 1.0, **more: Any) -> dict[str, Any]:
    """Return a task as before 1.5; a file begins with its link."""
    rows = [
        {"link": link, "name": file, "size": size, **(about[0] if about else {})}
        for link, file, size, *about in files
    ]
    return {"name": name, "runtime": seconds, "files": rows, **more}


def workflow(
    folder: Path, *tasks: Any, machines: Any = (), version: str = "1.4", **more: Any
) -> Workload:
    """Return the workload of such tasks; a machine is its name and what it has."""
    rows = [{"nodeName": name, "cpu": cpu} for name, cpu in machines]
    section = {"tasks": tasks, **({"machines": rows} if rows else {})}
    path = folder / "w.json"
    content = {"schemaVersion": version, "workflow": section, **more}
    path.write_text(json.dumps(content))
    return read_workflow(path)


def split(folder: Path, tasks: list[Any], runs: list[Any], **more: Any) -> Workload:
    """Return the workload of a workflow of 1.5, where runs stand apart from tasks."""
    path = folder / "w.json"
    section = {
        "specification": {"tasks": tasks, "files": more.pop("files", [])},
        "execution": {"tasks": runs, **more},
    }
    path.write_text(json.dumps({"schemaVersion": "1.5", "workflow": section}))
    return read_workflow(path)


def flows_of(workload: Workload) -> dict[tuple[str, str], str]:
    return {(row["from"], row["to"]): row["volume"] for row in workload.flows}


def test_a_task_stands_where_it_ran_and_takes_a_core_where_there_are_some(
    tmp_path: Path,
) -> None:
    """Machine z has no cores of its own; where none is stated the first says it."""
    machines = [
        ("x", {"count": 3, "coreCount": 2, "speed": 7, "vendor": "v"}),
        ("z", {}),
        ("yz", {"count": 5}),
    ]
    tasks = [
        task("a", machine="yz", seconds=3.0, cores=4),
        task("b", machine="z", seconds=0.5, cores=1, category="c", type="compute"),
        task("c", seconds=2.0, cores=9, coreCount=3),
        task("d", machines=["z", "x", "yz"], runtimeInSeconds=4.0, seconds=8.0),
        task("e", machine="x"),
    ]
    read = workflow(tmp_path, *tasks, machines=machines, author={}, wms=1)

    assert read.machines == [
        {"name": "m0", "slots": {"core": 2}},
        {"name": "m1"},
        {"name": "m2", "slots": {"core": 5}},
    ]
    found = {
        row["name"]: (row["time"], row.get("pin"), row.get("slot"), row["kind"])
        for row in read.tasks
    }
    assert found == {
        "a": ("3 s", "m2", "core", "task"),
        "b": ("500 ms", "m1", None, "task"),
        "c": ("2 s", None, "core", "task"),
        "d": ("4 s", "m1", None, "task"),
        "e": ("1 s", "m0", "core", "task"),
    }
    assert read.left_out == {
        "cores of a task beyond one": 3 + 2,
        "machine of a task beyond the first": 1,
        "speed of a cpu": 1,
        "runtime of a task": 1,
    }


def test_without_machines_all_stand_on_one(tmp_path: Path) -> None:
    """Machines that tasks name and the file does not list are counted."""
    tasks = [task("a", machine="x"), task("b"), task("c", machines=["x", "y"])]
    read = workflow(tmp_path, *tasks)
    assert read.machines == [{"name": "m0"}]
    assert [(row["pin"], "slot" in row) for row in read.tasks] == [("m0", False)] * 3
    assert read.left_out == {
        "machine of a task, where the file lists none": 2,
        "machine of a task beyond the first": 1,
    }


def test_a_file_goes_from_its_first_maker_to_all_that_read_it(tmp_path: Path) -> None:
    """A pair of tasks has one flow: of all their files, and of none an order."""
    tasks = [
        task("a", ("output", "f", 100), ("output", "g", 20), ("output", "f", 100)),
        task("b", ("output", "f", 100), ("input", "g", 20), ("output", "h", 3)),
        task("c", ("input", "f", 100), ("input", "g", 20), ("input", "in", 7)),
        task("d", ("input", "f", 100), ("input", "in", 7), parents=["b"]),
        task("e", ("input", "h", 4), ("input", "h", 3), children=["f"]),
        task("f", ("output", "k", 9), ("input", "k", 9), parents=["e"]),
    ]
    read = workflow(tmp_path, *tasks)
    assert flows_of(read) == {
        ("b", "d"): "0.0 B",
        ("e", "f"): "0.0 B",
        ("a", "b"): "20.0 B",
        ("a", "c"): "120.0 B",
        ("a", "d"): "100.0 B",
        ("b", "e"): "3.0 B",
    }
    assert len(read.flows) == 6
    assert read.left_out == {
        "size of a file that another task stated otherwise": 1,
        "read of a file that no task makes": 2,
        "maker of a file beyond the first": 1,
    }
    assert read.notes[-1] == "6 tasks, 6 pairs of them with files"
    assert read.notes[0].startswith("version 1.4: sizes of files in bytes")


def test_a_name_is_an_id_where_no_task_has_that_id(tmp_path: Path) -> None:
    """An id goes before a name; a name of two tasks is refused where it is used."""
    tasks = [
        task("q", id="1"),
        task("1", id="2"),
        task("r", id="3", parents=["q"], children=["4"]),
        task("s", id="4", parents=["1"]),
        task("twice", id="5"),
        task("twice", id="6"),
    ]
    read = workflow(tmp_path, *tasks)
    assert [*flows_of(read)] == [("1", "3"), ("3", "4"), ("1", "4")]
    for name, problem in (
        ("twice", "task 7 names 'twice', which several tasks are called"),
        ("none", "task 7 names 'none', no task"),
    ):
        for key in ("parents", "children"):
            with pytest.raises(DataError, match=problem):
                workflow(tmp_path, *tasks, task("t", id="7", **{key: [name]}))


def test_runs_stand_apart_from_tasks_since_version_1_5(tmp_path: Path) -> None:
    """A task that did not run takes no time; sizes are those of the list of files."""
    tasks = [
        {"name": "n", "id": "a", "outputFiles": ["f", "f"], "inputFiles": ["in"]},
        {"name": "n", "id": "b", "parents": [], "inputFiles": ["f", "in"]},
        {"name": "o", "id": "c", "parents": ["b"], "inputFiles": ["in"]},
    ]
    runs = [
        {"id": "b", "runtimeInSeconds": 2.0, "machines": ["y"], "command": {}},
        {"id": "a", "runtimeInSeconds": 3.0, "coreCount": 2},
    ]
    files = [{"id": "f", "sizeInBytes": 50}, {"id": "in", "sizeInBytes": 6}]
    machines = [{"nodeName": "x"}, {"nodeName": "y", "cpu": {"coreCount": 4}}]
    read = split(
        tmp_path, tasks, runs, files=files, machines=machines, makespanInSeconds=5
    )
    assert [(row["time"], row.get("pin")) for row in read.tasks] == [
        ("3 s", None),
        ("2 s", "m1"),
        ("0.0 s", None),
    ]
    assert flows_of(read) == {("b", "c"): "0.0 B", ("a", "b"): "50.0 B"}
    assert read.left_out == {
        "task without a time, which takes 0 s": 1,
        "cores of a task beyond one": 1,
        "read of a file that no task makes": 3,
    }
    with pytest.raises(DataError, match="has no size of file 'in'"):
        split(tmp_path, tasks, runs, files=files[:1])


@pytest.mark.parametrize(
    ("tasks", "more", "problem"),
    [
        ([task("a"), task("a")], {}, "has two tasks of one id"),
        ([task("a/1"), task("a_1")], {}, "has two tasks of one id"),
        ([task("a", machine="q")], {"machines": [("x", {})]}, "task a ran on 'q'"),
        (
            [task("a")],
            {"machines": [("x", {}), ("x", {})]},
            "w.json: has two machines called 'x'",
        ),
        ([task("a", ("odd", "f", 1, {"path": "p/"}))], {}, "file 'p/f' has link 'odd'"),
        ([task("a")], {"version": "1.2"}, "no 'jobs', which version 1.2 calls its"),
        ([task("a")], {"version": "1.7"}, "of version 1.0 to 1.6, found '1.7'"),
        ([task("a", seconds=-1.0)], {}, "a would take -1.0 s"),
        ([task(101 * "a")], {}, "has a task 'a+...': a name has 1 to 100"),
        ([task("")], {}, "has a task '': a name has 1 to 100"),
        ([task("a\u202e")], {}, "has a task .*: a name has 1 to 100"),
        ([task("a", ("input", "f", -4))], {}, "file 'f' has size -4, write 0 or more"),
        (
            [
                task("a", ("output", "f", 9), ("output", "g", -4)),
                task("b", ("input", "f", 9), ("input", "g", -4)),
            ],
            {},
            "file 'g' has size -4, write 0 or more",
        ),
    ],
)
def test_a_workflow_that_cannot_be_is_refused(
    tasks: list[Any], more: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    """Two machines of one name were one, and the error named no file."""
    with pytest.raises(DataError, match=problem):
        workflow(tmp_path, *tasks, **more)


def test_what_two_rows_state_of_one_thing_is_refused(tmp_path: Path) -> None:
    """Refuse a task with two runs, and a file with two sizes; the last one counted."""
    tasks = [{"name": "a", "id": "a"}]
    runs = [{"id": "a", "runtimeInSeconds": 1}, {"id": "a", "runtimeInSeconds": 5}]
    with pytest.raises(DataError, match="ran task 'a' twice: leave one"):
        split(tmp_path, tasks, runs)
    files = [{"id": "f", "sizeInBytes": size} for size in (1, 1, 2)]
    split(tmp_path, tasks, runs[:1], files=files[:2])
    with pytest.raises(DataError, match="states two sizes of file 'f'"):
        split(tmp_path, tasks, runs[:1], files=files)
