"""Workflows of WfCommons (WfFormat 1.0 to 1.6): files as flows, cores as slots.

Until 1.2 tasks are called jobs; until 1.4 a task has its files, time and machine
itself; since 1.5 these are in ``specification`` and ``execution``. Sizes of files are
taken as bytes and runtimes as seconds in every version, as the project's own migration
takes them (wfcommons-migrate-instance.py). A machine has a slot per core, and a task
holds one while it runs; what it has of more cores its own time shows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from emu.errors import DataError
from emu.host.input_file import one_error, read_json
from emu.interchange.accounted import Reading, read_mapping
from emu.interchange.workload import Data, Workload, plain_name

VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6")
#: Keys of a task's seconds, the newer name first.
_TIMES = ("runtimeInSeconds", "runtime")
#: Keys that say who ran what when, and on which system: they change no number.
_ABOUT = ("name", "description", "createdAt", "author", "wms", "runtimeSystem")
_ABOUT_MACHINE = (
    "system",
    "architecture",
    "release",
    "hashcode",
    "memory",
    "memoryInBytes",
)
#: Bytes that flows say already, and what is of a task but of no number here.
_ABOUT_TASK = (
    "type",
    "category",
    "command",
    "arguments",
    "program",
    "launchDir",
)


def read_workflow(path: Path) -> Workload:
    """Return the workflow of a file.

    Raises DataError when it is of another version, lacks what it names, or tasks wait
    for each other.
    """
    with one_error(path):
        document = read_json(path)
        content = read_mapping(document, "file")
        version = content.text("schemaVersion")
        if version not in VERSIONS:
            first, *_, last = VERSIONS
            raise DataError(
                f"is no WfCommons workflow of version {first} to "
                f"{last}, found {version!r:.20}",
                path=path,
            )
        content.ignore(*_ABOUT)

        section = content.part("workflow")
        workflow = _Workflow(section, version, path)
        workflow.add_tasks()
        workflow.join()
        left_out = content.left_out()
        workflow.workload.left_out.update(left_out)
        return workflow.workload


class _Workflow:
    """The tasks, machines and files of a workflow."""

    def __init__(self, content: Reading, version: str, path: Path) -> None:
        self._path = path
        is_split = "specification" in content
        plan = content
        if is_split:
            plan = content.part("specification")
        execution = content
        if "execution" in content:
            execution = content.part("execution")
        for part in (content, execution):
            part.ignore("makespan", "makespanInSeconds", "executedAt")

        calls_them_jobs = version in VERSIONS[:3]
        tasks_key = "jobs" if calls_them_jobs else "tasks"
        self._read_tasks(plan, tasks_key, version)
        self._runs: dict[str, Reading] = {}
        self._sizes: dict[str, float] = {}
        if is_split:
            self._read_runs(execution)
            for file in plan.parts("files", "file"):
                name = file.text("id")
                size = self._size_of(file, "sizeInBytes")
                if self._sizes.setdefault(name, size) != size:
                    raise self._error(f"states two sizes of file {name!r}")

        self._places: dict[str, str] = {}
        owner = execution if "machines" in execution else content
        rows = owner.parts("machines", "machine")
        machines = [self._read_machine(row) for row in rows]
        stated_machines = machines or [{"name": "m0"}]
        self.workload = Workload(str(path), stated_machines)
        self.workload.notes.append(
            f"version {version}: sizes of files in bytes and runtimes in seconds, as "
            "WfCommons' own migration has them"
        )

    def _error(self, problem: str) -> DataError:
        return DataError(problem, path=self._path)

    def _read_tasks(self, plan: Reading, key: str, version: str) -> None:
        if key not in plan:
            problem = f"has no {key!r}, which version {version} calls its tasks"
            raise self._error(problem)
        self._tasks: dict[str, Reading] = {}
        names = set[str]()
        for task in plan.parts(key, "task"):
            number = _id_of(task)
            # By the names that tasks get here: a/1 and a_1 are both a_1.
            names.add(plain_name(number))
            self._tasks[number] = task
        stated_tasks = plan.parts(key)
        if len(names) < len(stated_tasks):
            raise self._error("has two tasks of one id")

    def _read_runs(self, execution: Reading) -> None:
        for run in execution.parts("tasks", "task"):
            key = run.text("id")
            if key not in self._tasks:
                raise self._error(f"ran {key!r}, which is no task")
            # Of two attempts nothing says which is the task's.
            if key in self._runs:
                raise self._error(f"ran task {key!r} twice: leave one in execution")
            self._runs[key] = run

    def _read_machine(self, row: Reading) -> Data:
        row.ignore(*_ABOUT_MACHINE)
        name = row.text("nodeName")
        if name in self._places:
            raise self._error(f"has two machines called {name!r}")
        number = len(self._places)
        place = f"m{number}"
        self._places[name] = place
        machine: Data = {"name": place}
        cpu = row.part("cpu")
        cpu.ignore("vendor")
        cores = cpu.count("count", 0)

        # The newer name counts, where both are there.
        cores = cpu.count("coreCount", cores)
        if cores:
            machine["slots"] = {"core": cores}
        return machine

    def add_tasks(self) -> None:
        """Add every task; where it says on which machine it ran, it stands there.

        Raises DataError when that is none, or its time is negative.
        """
        left_out = self.workload.left_out
        for key, task in self._tasks.items():
            task.ignore("name", "id", *_ABOUT_TASK)
            # Before 1.5 a task states its own run.
            run = self._runs.get(key, task)
            run.ignore(*_ABOUT_TASK)
            time_keys = [name for name in _TIMES if name in run]
            seconds = 0.0
            if time_keys:
                seconds = run.number(time_keys[0])
            else:
                left_out["task without a time, which takes 0 s"] += 1
            cores = run.count("cores", 1)
            # Likewise.
            cores = run.count("coreCount", cores)
            if cores > 1:
                left_out["cores of a task beyond one"] += cores - 1

            fields: Data = {"kind": "task"}
            place = self._place_of(key, run)
            if place:
                fields["pin"] = place
            # Where placement decides, the first machine says whether cores are stated.
            digits = place.removeprefix("m")
            number = int(digits or 0)
            machine = self.workload.machines[number]
            if "slots" in machine:
                fields["slot"] = "core"
            name = plain_name(key)
            self.workload.add_task(name, seconds, **fields)

    def _place_of(self, key: str, run: Reading) -> str:
        """Return the machine of a task; none where placement is to decide."""
        field = "machines" if "machines" in run else "machine"
        machines = run.get(field, [])
        names = machines
        if not isinstance(machines, list):
            names = [machines]
        left_out = self.workload.left_out
        if len(names) > 1:
            left_out["machine of a task beyond the first"] += 1
        if not self._places:
            if names:
                left_out["machine of a task, where the file lists none"] += 1
            return "m0"
        if not names:
            return ""

        first = names[0]
        if first not in self._places:
            problem = f"task {key} ran on {first!r}, which is no machine of the file"
            raise self._error(problem)
        return self._places[first]

    def join(self) -> None:
        """Add a flow per pair of tasks: the files that one makes and the other reads.

        Raises DataError when parents, or sizes of files, are missing.
        """
        makers = defaultdict[str, list[str]](list)
        readers = defaultdict[str, list[str]](list)
        for key, task in self._tasks.items():
            outputs, inputs = self._files_of(task)
            for name in outputs:
                makers[name].append(key)
            for name in inputs:
                readers[name].append(key)

        # A parent without files comes first, too; its child may state the same pair.
        pairs = self._pairs()
        flows = dict.fromkeys(pairs, 0.0)
        for name, keys in readers.items():
            maker = self._maker_of(name, makers, len(keys))
            size = self._sizes[name]
            for key in keys:
                # What a task made itself, or found, crosses no network here.
                if maker in ("", key):
                    continue
                pair = (maker, key)
                flows[pair] = flows.get(pair, 0.0) + size

        for (maker, reader), size in flows.items():
            source = plain_name(maker)
            destination = plain_name(reader)
            self.workload.add_flow(source, destination, size)
        task_count = len(self._tasks)
        text = f"{task_count} tasks, {len(flows)} pairs of them with files"
        self.workload.notes.append(text)

    def _maker_of(
        self,
        file: str,
        makers: Mapping[str, list[str]],
        reads: int,
    ) -> str:
        """Return the task that makes a file; none where it was there before."""
        if file not in self._sizes:
            raise self._error(f"has no size of file {file!r}")
        left_out = self.workload.left_out
        makers_of_file = makers.get(file, [""])
        first, *later_makers = makers_of_file
        if not first:
            left_out["read of a file that no task makes"] += reads
        if later_makers:
            left_out["maker of a file beyond the first"] += len(later_makers)
        return first

    def _files_of(self, task: Reading) -> tuple[list[str], list[str]]:
        """Return the files that a task makes, and those that it reads."""
        files = {
            "output": task.texts("outputFiles"),
            "input": task.texts("inputFiles"),
        }
        for file in task.parts("files", "file"):  # its own, as before 1.5
            # Files of one name in two folders are two files.
            folder = file.text("path", "")
            name = folder + _id_of(file)
            link = file.text("link")
            if link not in files:
                raise self._error(f"file {name!r} has link {link!r}: input or output")
            files[link].append(name)

            size_key = "sizeInBytes" if "sizeInBytes" in file else "size"
            size = self._size_of(file, size_key)
            stated_size = self._sizes.setdefault(name, size)
            if stated_size != size:
                kind = "size of a file that another task stated otherwise"
                self.workload.leave_out(kind)
        outputs = dict.fromkeys(files["output"])
        inputs = dict.fromkeys(files["input"])
        return [*outputs], [*inputs]

    def _size_of(self, file: Reading, key: str) -> float:
        """Return the bytes of a file; DataError where they are negative."""
        size = file.number(key)
        # Among others of a pair it would make their sum smaller, without a word.
        if size < 0:
            name = _id_of(file)
            raise self._error(f"file {name!r} has {key} {size:g}, write 0 or more")
        return size

    def _pairs(self) -> Iterator[tuple[str, str]]:
        """Yield what parents and children state, by id or, before 1.5, by name."""
        by_name = self._by_name()
        for key, task in self._tasks.items():
            for parent in task.texts("parents"):
                source = self._task_of(parent, key, by_name)
                yield source, key
            for child in task.texts("children"):
                destination = self._task_of(child, key, by_name)
                yield key, destination

    def _by_name(self) -> dict[str, str]:
        """Return the id of every task by its name; none where several have that."""
        by_name: dict[str, str] = {}
        for key, task in self._tasks.items():
            name = task.text("name", key)
            is_taken = name in by_name
            by_name[name] = "" if is_taken else key
        return by_name

    def _task_of(
        self,
        stated: str,
        key: str,
        by_name: Mapping[str, str],
    ) -> str:
        if stated in self._tasks:
            return stated
        if stated not in by_name:
            raise self._error(f"task {key} names {stated!r}, no task")
        task = by_name[stated]
        if not task:
            problem = f"task {key} names {stated!r}, which several tasks are called"
            raise self._error(problem)
        return task


def _id_of(row: Reading) -> str:
    if "id" in row:
        return row.text("id")
    return row.text("name")
