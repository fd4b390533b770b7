"""One thing changed in a valid workload of others: it shows, is said, or is refused.

    tools/hostile workload_mutations --count 2500 --seed 1

A key, attribute, line or word of a small file of each format is dropped, renamed,
changed or added. Afterwards the job, the sentences on it and what was left out may not
all be as before, unless what was changed is of no number. Where a file is read, what
it states is counted here once more, from the file alone.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.random import Generator

from emu.errors import DataError
from emu.interchange.protobuf import encode, write_varint
from emu.interchange.workload import Workload
from emu.interchange.workload_formats import read_workload

#: Files by their names; JSON as values, text as a list of lines.
Files: TypeAlias = dict[str, Any]


class Facts(NamedTuple):
    """Figures that files state, counted without the readers."""

    size: float
    """Bytes between tasks."""
    others: Any
    """Further facts that decide: a change of them has to show."""


@dataclass(frozen=True)
class Case:
    """A valid workload."""

    files: Files
    write: Callable[[Any], bytes]
    """Makes the bytes of a file."""
    free: str
    """Pattern of keys that may change unnoticed: they are of no number."""
    facts: Callable[[Files], Facts]
    """Counts what the files state."""


def find_problem(case: Case, folder: Path, rng: Generator) -> str:
    """Change one thing of a workload; return what is wrong with it then, or nothing."""
    files = deepcopy(case.files)
    name = str(rng.choice([*files]))
    said = _change(files[name], rng)
    if files == case.files or not _can_write(case, files):
        return ""
    first_outcome = _outcome(case, case.files, folder)
    outcome = _outcome(case, files, folder)
    if isinstance(outcome, str):
        is_one_line = outcome and "\n" not in outcome
        is_blamed = "is damaged" in outcome and not outcome.partition("is damaged: ")[2]
        return "" if is_one_line and not is_blamed else f"{name}: {said}: {outcome!r}"
    try:
        facts = case.facts(files)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        return f"{name}: {said}: read, and the count fails: {error!r}"

    key = said.partition(" ")[2]
    is_same = facts == case.facts(case.files) and not key.endswith(("x", "added"))
    if outcome == first_outcome and not is_same and not re.fullmatch(case.free, key):
        return f"{name}: {said}: nothing shows it"
    counted = facts.size
    found = _bytes_of(outcome[0])
    if abs(counted - found) > 1e-6 * max(1.0, counted):
        return f"{name}: {said}: {found:g} bytes, {counted:g} by another count"
    return ""


def _can_write(case: Case, files: Files) -> bool:
    """Return True where the form has words for a change."""
    try:
        for content in files.values():
            case.write(content)
    except (KeyError, TypeError, AttributeError):
        return False
    return True


def _outcome(case: Case, files: Files, folder: Path) -> str | tuple[Any, Any, Any]:
    """Return the error; or the job, the notes, and what was left out."""
    paths = []
    for name, content in files.items():
        path = folder / name
        path.write_bytes(case.write(content))
        paths.append(path)
    several = paths if next(iter(files)).startswith("rank") else paths[:1]
    try:
        workload = read_workload(*several)
        workload.scenario("mutated", "8 Mbit/s")
    except DataError as error:
        return str(error)
    return workload, [*workload.notes], +workload.left_out


def _bytes_of(workload: Workload) -> float:
    """Return the bytes of flows, and those that ranks bring to collectives."""
    total = sum(float(flow["volume"].split()[0]) for flow in workload.flows)
    for collective in workload.collectives:
        ((kind, section),) = collective.items()
        if kind == "shuffle":
            sizes = [float(text.split()[0]) for text in section["volume"]]
            total += sum(sizes) * len(section["from"])
        else:
            total += float(section["volume"].split()[0]) * len(section["among"])
    return total


def _change(content: Any, rng: Generator) -> str:
    """Change one thing of JSON or lines in place; return what was done to which key."""
    places = [*_places(content)]
    container, key = places[int(rng.integers(len(places)))]

    value = container[key]
    name = key if isinstance(container, dict) else _kind_of(value)
    action = str(rng.choice(["drop", "rename", "change", "add", "double"]))
    if action == "drop":
        del container[key]
    elif action == "rename" and isinstance(container, dict):
        name = f"{key}x"
        container[name] = container.pop(key)
    elif action == "add" and isinstance(container, dict):
        container["added"] = 7
        name = "added"
    elif action == "double" and isinstance(container, list):
        container.insert(key, deepcopy(value))
    elif isinstance(value, str | int | float | bool):
        container[key] = _changed(value, rng)
    else:
        action = "drop"
        del container[key]
    return f"{action} {name}"


def _kind_of(value: Any) -> str:
    if isinstance(value, dict):
        return f"element {value.get('name', value.get('ph', ''))}"
    return f"element {value}"


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    keys = [*content] if isinstance(content, dict) else range(len(content))
    for key in keys:
        yield content, key
        if isinstance(content[key], dict | list):
            yield from _places(content[key])


def _changed(value: Any, rng: Generator) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value * 2 + 1

    words = value.split()
    if not words:
        return "x"
    place = int(rng.integers(len(words)))
    action = rng.integers(4)
    if action == 0:
        del words[place]
    elif action == 1:
        words.insert(place, words[place])
    elif action == 2:
        words[place] = f"{words[place]}x"
    else:
        numbers = re.sub(r"\d+", lambda part: str(int(part[0]) * 2 + 1), words[place])
        words[place] = numbers if numbers != words[place] else f'"{words[place]}'
    return " ".join(words)


def cases() -> dict[str, Case]:
    """Return a valid workload of every format."""
    return {
        "wfcommons 1.5": Case(
            _workflow(),
            _json,
            r"name|description|executedAt|speedInMHz|avgCPU",
            _workflow_facts,
        ),
        "wfcommons 1.2": Case(_old_workflow(), _json, r"type|description", _old_facts),
        "coflows": Case(_coflows(), _text, r"element ", _coflow_facts),
        "goal": Case(_goal(), _text, r"element (//.*|)", _goal_facts),
        "chakra json": Case(_chakra("json"), _json, r"name", _chakra_facts),
        "chakra": Case(_chakra("et"), _protobuf, r"name", _chakra_facts),
        "kineto gloo": Case(
            _kineto(_gloo_events), _json, r"name|pid|tid", _kineto_facts
        ),
        "kineto nccl": Case(
            _kineto(_nccl_events), _json, r"name|pid|tid", _kineto_facts
        ),
    }


def _json(content: Any) -> bytes:
    return json.dumps(content).encode()


def _text(content: list[str]) -> bytes:
    return "\n".join(content).encode()


def _protobuf(content: Any) -> bytes:
    """Return the nodes of a rank as messages; keys beyond the schema are field 99."""
    numbers = {"id": 1, "name": 2, "type": 3, "ctrlDeps": 4, "dataDeps": 5}
    numbers["durationMicros"] = 7
    messages = [encode({1: "0.0.4"})]
    for node in content["nodes"]:
        fields: dict[int, Any] = {}
        for key, value in node.items():
            if key == "attr":
                fields[10] = [_attribute(row) for row in value]
            else:
                is_known = key in numbers
                fields[numbers[key] if is_known else 99] = value if is_known else 7
        messages.append(encode(fields))
    return b"".join(write_varint(len(row)) + row for row in messages)


def _attribute(row: dict[str, Any]) -> bytes:
    numbers = {"name": 1, "int64Val": 9}
    return encode({numbers.get(key, 99): value for key, value in row.items()})


def _workflow() -> Files:
    plan = {
        "tasks": [
            {"name": "split", "id": "a", "parents": [], "children": ["b", "c"],
             "inputFiles": ["in"], "outputFiles": ["f", "g"]},
            {"name": "use", "id": "b", "parents": ["a"], "children": [],
             "inputFiles": ["f", "g"], "outputFiles": ["h"]},
            {"name": "join", "id": "c", "parents": ["a", "b"], "children": [],
             "inputFiles": ["h", "f"], "outputFiles": []},
        ],
        "files": [{"id": key, "sizeInBytes": 1000 * n}
                  for n, key in enumerate(("in", "f", "g", "h"), 3)],
    }  # fmt: skip
    execution = {
        "makespanInSeconds": 9, "executedAt": "2020",
        "tasks": [
            {"id": "a", "runtimeInSeconds": 1.5, "machines": ["x"], "coreCount": 1},
            {"id": "b", "runtimeInSeconds": 2.0, "machines": ["y"], "avgCPU": 9.0},
            {"id": "c", "runtimeInSeconds": 3.0, "machines": ["x"], "coreCount": 2},
        ],
        "machines": [{"nodeName": "x", "cpu": {"coreCount": 2, "speedInMHz": 9}},
                     {"nodeName": "y", "cpu": {"coreCount": 3}}],
    }  # fmt: skip
    content = {"name": "w", "description": "d", "schemaVersion": "1.5"}
    workflow = {"specification": plan, "execution": execution}
    return {"w.json": {**content, "workflow": workflow}}


def _workflow_facts(files: Files) -> Facts:
    (content,) = files.values()
    plan = content["workflow"]["specification"]
    execution = content["workflow"].get("execution", {})
    sizes = {file["id"]: file["sizeInBytes"] for file in plan["files"]}
    ends = [(row["id"], row.get("outputFiles", []), row.get("inputFiles", []))
            for row in plan["tasks"]]  # fmt: skip
    bytes_of = _file_bytes(ends, sizes)
    pairs = _pairs([(row["id"], row) for row in plan["tasks"]]) | {*bytes_of}
    runs = {row["id"]: {"coreCount": 1, **row} for row in execution.get("tasks", [])}
    return Facts(sum(bytes_of.values()), [pairs, runs, execution.get("machines")])


def _pairs(tasks: list[tuple[str, Any]]) -> set[tuple[str, str]]:
    pairs = {(parent, key) for key, row in tasks for parent in row.get("parents", [])}
    return pairs | {(key, end) for key, row in tasks for end in row.get("children", [])}


def _file_bytes(
    tasks: list[tuple[str, list[str], list[str]]], sizes: Files
) -> dict[tuple[str, str], float]:
    """Return the bytes that one task makes and another reads."""
    totals: dict[tuple[str, str], float] = {}
    for reader, _, read in tasks:
        for file in {*read}:
            makers = [maker for maker, made, _ in tasks if file in made]
            if makers and makers[0] != reader:
                pair = (makers[0], reader)
                totals[pair] = totals.get(pair, 0.0) + sizes[file]
    return totals


def _old_workflow() -> Files:
    def file(link: str, name: str, size: int) -> dict[str, Any]:
        return {"link": link, "name": name, "size": size}

    jobs = [
        {"name": "a", "type": "compute", "runtime": 1.0, "parents": [], "machine": "x",
         "files": [file("output", "f", 3000), file("output", "g", 1000)]},
        {"name": "b", "type": "compute", "runtime": 2.0, "parents": ["a"],
         "machine": "x", "files": [file("input", "f", 3000), file("input", "g", 1000)]},
    ]  # fmt: skip
    machines = [{"nodeName": "x", "cpu": {"count": 2}}]
    workflow = {"makespan": 3, "machines": machines, "jobs": jobs}
    return {
        "w.json": {"schemaVersion": "1.2", "description": "d", "workflow": workflow}
    }


def _old_facts(files: Files) -> Facts:
    (content,) = files.values()
    workflow = content["workflow"]
    tasks = []
    sizes: Files = {}
    for job in workflow["jobs"]:
        rows = job.get("files", [])
        for row in rows:
            sizes.setdefault(row["name"], row["size"])
        ends = ("output", "input")
        made, read = ([r["name"] for r in rows if r["link"] == end] for end in ends)
        tasks.append((job["name"], made, read))
    bytes_of = _file_bytes(tasks, sizes)
    pairs = _pairs([(job["name"], job) for job in workflow["jobs"]]) | {*bytes_of}
    runs = [(job.get("runtime"), job.get("machine")) for job in workflow["jobs"]]
    return Facts(sum(bytes_of.values()), [pairs, runs, workflow.get("machines")])


def _coflows() -> Files:
    lines = ["3 2", "1 0 2 0 1 1 2:2", "2 1000 1 2 2 0:1 2:4.5", ""]
    return {"t.txt": lines}


def _coflow_facts(files: Files) -> Facts:
    (lines,) = files.values()
    words = [word for line in lines[1:] for word in line.split() if ":" in word]
    size = sum(float(word.partition(":")[2]) for word in words) * 2.0**20
    return Facts(size, [line.split() for line in lines if line.split()])


def _goal() -> Files:
    lines = [
        "num_ranks 2", "", "rank 0 {", "// sends", "l1: calc 500 cpu 1",
        "l2: send 1000b to 1 tag 3", "l2 requires l1", "}", "rank 1 {",
        "l1: recv 1000b from 0 tag 3", "l2: calc 700", "l2 requires l1", "}",
    ]  # fmt: skip
    return {"s.goal": lines}


def _goal_facts(files: Files) -> Facts:
    (lines,) = files.values()
    text = "\n".join(line for line in lines if not line.startswith("//"))
    sizes = re.findall(r"send (\d+)b", text)
    return Facts(sum(map(float, sizes)), sorted({*text.split("\n")}))


def _chakra(suffix: str) -> Files:
    def node(
        number: int, kind: int, micros: int, deps: list[int], **attributes_of: int
    ) -> Any:
        attributes = [
            {"name": key, "int64Val": value} for key, value in attributes_of.items()
        ]
        return {"id": number, "name": "n", "type": kind, "dataDeps": deps,
                "durationMicros": micros, "attr": attributes}  # fmt: skip

    collective = {"comm_type": 0, "comm_size": 600}
    message = {"comm_size": 2000, "comm_tag": 5}
    ranks = [
        [node(1, 4, 300, []), node(2, 5, 0, [1], comm_dst=1, **message),
         node(3, 7, 10, [1], **collective), node(4, 4, 50, [3], is_cpu_op=1)],
        [node(1, 6, 0, [], comm_src=0, **message), node(2, 4, 400, [1]),
         node(3, 7, 10, [2], **collective)],
    ]  # fmt: skip
    return {f"t.{rank}.{suffix}": {"nodes": nodes} for rank, nodes in enumerate(ranks)}


def _chakra_facts(files: Files) -> Facts:
    total = 0.0
    decisive = []
    for content in files.values():
        for node in content["nodes"]:
            stated = {
                row["name"]: row.get("int64Val", 0) for row in node.get("attr", [])
            }
            stated.pop("is_cpu_op", None)  # it is counted, whatever its value
            kind = node.get("type")
            if kind in (5, 7):
                total += stated.get("comm_size", 0)
            micros = node.get("durationMicros") if kind == 4 else 0
            number = node.get("id", 0)
            needs = {*node.get("dataDeps", [])} - {number}
            decisive.append((number, kind, micros, stated, needs))
    return Facts(total, decisive)


def _range(begin: float, end: float, name: str, kind: str, **args: Any) -> Any:
    times = {"ts": 1000.0 * begin, "dur": 1000.0 * (end - begin)}
    return {"ph": "X", "cat": kind, "name": name, **times, "pid": 1,
            "tid": 2 if args else 1, "args": args}  # fmt: skip


def _gloo_events(rank: int) -> list[Any]:
    shapes = {"Input Dims": [[20, 100]], "Input type": ["float"]}
    call = _range(
        31, 32, "c10d::broadcast_", "cpu_op", **{"Concrete Inputs": ["", "1"]}
    )
    return [
        _range(0, 60, "ProfilerStep#3", "user_annotation"),
        _range(0, 10 + rank, "aten::mm", "cpu_op"),
        _range(10 + rank, 20, "gloo:all_reduce", "user_annotation", **shapes),
        _range(20, 30, "aten::add", "cpu_op"), call,
        _range(33, 40, "gloo:broadcast", "user_annotation", **shapes),
        _range(41, 60, "aten::mul", "cpu_op"),
        _range(2, 3, "forward", "python_function"),
    ]  # fmt: skip


def _nccl_events(rank: int) -> list[Any]:
    record = {"Collective name": "allreduce", "In msg nelems": 2000, "dtype": "Half",
             "Group size": 2, "Process Group Name": "0", "External id": 5,
             "Process Group Ranks": "[0, 1]"}  # fmt: skip
    numbers = [{"correlation": n} for n in range(3)]
    return [
        _range(0, 60, "ProfilerStep#3", "user_annotation"),
        _range(1, 2, "record_param_comms", "cpu_op", **record),
        *(_range(n, n + 0.5, "cudaLaunchKernel", "cuda_runtime", **numbers[n])
          for n in range(3)),
        _range(4, 10 + rank, "gemm", "kernel", **numbers[0]),
        _range(12, 30, "ncclDevKernel_AllReduce", "kernel", **numbers[1],
               **{"External id": 5}),
        _range(31, 44, "gemm", "kernel", **numbers[2]),
    ]  # fmt: skip


def _kineto(events: Callable[[int], list[Any]]) -> Files:
    backend = "gloo" if events is _gloo_events else "nccl"
    return {
        f"rank{rank}.json": {
            "schemaVersion": 1,
            "distributedInfo": {"backend": backend, "rank": rank, "world_size": 2},
            "baseTimeNanoseconds": 5,
            "traceEvents": events(rank),
        }
        for rank in range(2)
    }


def _kineto_facts(files: Files) -> Facts:
    total = 0.0
    decisive = []
    for content in files.values():
        decisive.append(content["distributedInfo"].get("rank"))
        events = content["traceEvents"]
        kernels = sum(event["name"].startswith("nccl") for event in events)
        for event in events:
            stated = event.get("args", {})
            name = event["name"]
            if name == "record_param_comms" and kernels:
                kernels -= 1
                total += stated["In msg nelems"] * (
                    4 if stated["dtype"] == "Float" else 2
                )
            if name.startswith("gloo:"):
                total += 4 * float(np.prod(stated["Input Dims"]))
            if name.startswith(("gloo:", "nccl", "Profiler")):
                decisive.append((event["ts"], event["dur"]))
    return Facts(total, decisive)


def main() -> int:
    """Change workloads; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    problems = Counter[str]()

    with tempfile.TemporaryDirectory() as folder:
        named = [*cases().items()]
        for number in range(options.count):
            name, case = named[number % len(named)]
            if problem := find_problem(case, Path(folder), rng):
                problems[f"{name}: {problem}"] += 1
    for text, count in problems.most_common():
        print(f"{count:4} {text}")
    print(f"{options.count} workloads changed, {problems.total()} unnoticed or wrong")
    return int(bool(problems))
