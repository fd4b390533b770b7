"""Workflows of WfCommons (WfFormat 1.0 to 1.6): files as flows, cores as slots.

Until 1.4 a task has its files, time and machine itself; since 1.5 they are in
``specification`` and ``execution``. A machine has a slot per core, and a task holds one
while it runs; what it has of more cores its own time shows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from emu.errors import DataError
from emu.host.input_file import one_error, read_json
from emu.interchange.workload import Data, Workload, plain_name

_USED = {
    "id", "name", "parents", "children", "inputFiles", "outputFiles", "files",
    "runtimeInSeconds", "runtime", "coreCount", "cores", "machines", "machine",
}  # fmt: skip


def read_workflow(path: Path) -> Workload:
    """Return the workflow of a file.

    Raises DataError when it is of another version, lacks what it names, or tasks wait
    for each other.
    """
    with one_error(path):
        content = read_json(path)
        version = str(content.get("schemaVersion", ""))
        if not version.startswith("1."):
            problem = f"is no WfCommons workflow of version 1, found {version!r:.20}"
            raise DataError(problem, path=path)
        whole = content["workflow"]
        plan = whole.get("specification", whole)
        execution = whole.get("execution", whole)
        runs = {task["id"]: task for task in execution.get("tasks", []) if "id" in task}
        tasks = {task.get("id", task["name"]): task for task in plan["tasks"]}
        if len({*map(plain_name, tasks)}) < len(plan["tasks"]):
            raise DataError("has two tasks of one id", path=path)
        rows = execution.get("machines", whole.get("machines", []))
        cpus = {row["nodeName"]: row.get("cpu", {}) for row in rows}
        places = {name: f"m{number}" for number, name in enumerate(cpus)}
        machines: list[Data] = [{"name": name} for name in places.values()]
        for machine, cpu in zip(machines, cpus.values(), strict=True):
            if cores := int(cpu.get("coreCount") or cpu.get("count") or 0):
                machine["slots"] = {"core": cores}
        workload = Workload(str(path), machines or [{"name": "m0"}])
        for key, task in tasks.items():
            _add(workload, key, {**task, **runs.get(key, {})}, places)
        _join(workload, tasks, plan.get("files", []))
        return workload


def _add(workload: Workload, key: str, task: Data, places: Mapping[str, str]) -> None:
    """Add a task; where it says on which machine it ran, it stands there."""
    seconds = float(task.get("runtimeInSeconds") or task.get("runtime") or 0)
    if not task.keys() & {"runtimeInSeconds", "runtime"}:
        workload.left_out["task without a time, which takes 0 s"] += 1
    names = task.get("machines") or [task.get("machine")]
    there = names[0] if isinstance(names, list) else names
    if there is not None and there not in places and places:
        problem = f"task {key} ran on {there!r}, which is no machine of the file"
        raise DataError(problem, path=workload.origin)
    place = places.get(there, "")
    more: Data = {"kind": "task"}
    if place or not places:
        more["pin"] = place or "m0"
    machine = workload.machines[int(more.get("pin", "m0")[1:])]
    if "slots" in machine:
        more["slot"] = "core"
    if float(task.get("coreCount", task.get("cores", 1)) or 1) > 1:
        workload.left_out["cores of a task beyond one"] += 1
    for name in task.keys() - _USED:
        workload.left_out[f"{name} of a task"] += 1
    workload.add_task(plain_name(key), seconds, **more)


def _edges(tasks: Mapping[str, Data], origin: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs that parents and children state, by id or, long ago, by name."""
    by_name = {task.get("name"): key for key, task in tasks.items()}
    for key, task in tasks.items():
        edges = [(parent, key) for parent in task.get("parents", [])]
        edges += [(key, child) for child in task.get("children", [])]
        for pair in edges:
            for end in pair:
                if end not in tasks and end not in by_name:
                    raise DataError(f"task {key} names {end!r}, no task", path=origin)
            source, destination = (e if e in tasks else by_name[e] for e in pair)
            yield source, destination


def _join(workload: Workload, tasks: Mapping[str, Data], files: list[Data]) -> None:
    """Add a flow per pair of tasks: the files that one makes and the other reads."""
    sizes = {file["id"]: float(file["sizeInBytes"]) for file in files}
    makers, readers = dict[str, str](), defaultdict[str, list[str]](list)
    for key, task in tasks.items():
        for file in task.get("files", []):  # its own, as before 1.5
            name = file.get("id", file.get("name"))
            sizes[name] = float(file.get("sizeInBytes", file.get("size", 0)))
            link = "outputFiles" if file["link"] == "output" else "inputFiles"
            task.setdefault(link, []).append(name)
        for file in task.get("outputFiles", []):
            makers[file] = key
        for file in task.get("inputFiles", []):
            readers[file].append(key)
    flows = dict.fromkeys(_edges(tasks, workload.origin), 0.0)
    for file, keys in readers.items():
        if file not in sizes:
            raise DataError(f"has no size of file {file!r}", path=workload.origin)
        if file not in makers:
            workload.left_out["read of a file that no task makes"] += len(keys)
            continue
        for pair in ((makers[file], key) for key in keys if key != makers[file]):
            flows[pair] = flows.get(pair, 0.0) + sizes[file]
    for (source, destination), size in flows.items():
        workload.add_flow(plain_name(source), plain_name(destination), size)
    workload.notes.append(f"{len(tasks)} tasks, {len(flows)} pairs of them with files")
