"""Coflows of coflow-benchmark (github.com/coflow/coflow-benchmark), a line each.

The first line is ``ports coflows``; a coflow is ``id arrival mappers port... reducers
port:megabytes...``. Each reducer gets its megabytes in equal parts of all mappers.
"""

from __future__ import annotations

from pathlib import Path

from emu.errors import DataError
from emu.host.input_file import read_text
from emu.interchange.workload import Workload

#: As CoflowSim has it.
_MEGABYTE = 1 << 20


def is_trace(head: str) -> bool:
    """Return True where a text begins as such a trace: two whole numbers."""
    words = head.partition("\n")[0].split()
    return len(words) == 2 and all(map(str.isdecimal, words))


def read_trace(path: Path) -> Workload:
    """Return the coflows as one job: a machine per port, a release per coflow.

    Raises DataError when a line is not as it should be; says which.
    """
    lines = iter(read_text(path).splitlines())
    ports, count = map(int, next(lines).split())
    rows = [line.split() for line in lines if line.strip()]
    if len(rows) != count:
        raise DataError(f"announces {count} coflows and holds {len(rows)}", path=path)
    machines = [{"name": "p", "count": ports}] if ports > 1 else [{"name": "p0"}]
    workload = Workload(str(path), machines)
    coflows = []
    for number, row in enumerate(rows, 2):
        try:
            coflows.append((number, *_parse(row)))
        except (ValueError, IndexError) as error:
            problem = f"line {number} is no coflow: id, arrival in ms, number of "
            problem += f"mappers, their ports, number of reducers, port:MB ({error})"
            raise DataError(problem, path=path) from error
    numbers = {port for _, _, _, *ends in coflows for part in ends for port in part}
    first = 0 if 0 in numbers or ports not in numbers else 1
    names = set[str]()
    for number, name, arrival, mappers, sizes in coflows:
        wrong = [p for p in (*mappers, *sizes) if not 0 <= p - first < ports]
        problem = f"names port {wrong[0]} of {ports}" if wrong else ""
        fits = all(0 <= one < float("inf") for one in (arrival, *sizes.values()))
        problem = problem if fits else "has a negative arrival or size, inf or nan"
        problem = f"is a second coflow {name}" if name in names else problem
        if problem or not mappers or not sizes:
            problem = problem or "has no mappers or no reducers"
            raise DataError(f"line {number} {problem}", path=path)
        names.add(name)
        by_port = {port - first: size for port, size in sizes.items()}
        ports_of = [port - first for port in mappers]
        _add(workload, f"c{name}", arrival / 1000, ports_of, by_port)
    processes = {task["process"]: 0 for task in workload.tasks if "process" in task}
    workload.places = {process: f"p{process[4:]}" for process in processes}
    flows = sum(len(mappers) * len(sizes) for *_, mappers, sizes in coflows)
    workload.notes.append(f"{count} coflows of {flows:,} flows between {ports} ports")
    return workload


def _parse(row: list[str]) -> tuple[str, float, list[int], dict[int, float]]:
    """Return name, arrival in ms, ports of mappers, megabytes by port of reducers."""
    mappers = int(row[2])
    ports = [*map(int, row[3 : 3 + mappers])]
    reducers = [word.partition(":") for word in row[4 + mappers :]]
    if len(ports) != mappers or len(reducers) != int(row[3 + mappers]):
        raise ValueError("it has more or fewer words")
    sizes = dict[int, float]()
    for port, _, size in reducers:
        sizes[int(port)] = sizes.get(int(port), 0.0) + float(size)
    return row[0], float(row[1]), ports, sizes


def _add(
    workload: Workload,
    name: str,
    arrival: float,
    mappers: list[int],
    sizes: dict[int, float],
) -> None:
    process = f"port{mappers[0]}"
    workload.add_task(name, arrival, kind="release", gate=True, process=process)
    sources = [f"{name}.m{number}" for number in range(len(mappers))]
    for task, port in zip(sources, mappers, strict=True):
        workload.add_task(task, 0, kind="mapper", process=f"port{port}")
        workload.add_flow(name, task)
    ends = [f"{name}.r{number}" for number in range(len(sizes))]
    for task, port in zip(ends, sizes, strict=True):
        workload.add_task(task, 0, kind="reducer", process=f"port{port}")
    volumes = [size * _MEGABYTE / len(mappers) for size in sizes.values()]
    texts = [f"{volume!r} B" for volume in volumes]
    shuffle = {"from": sources, "to": ends, "volume": texts, "coflow": name}
    workload.collectives.append({"shuffle": shuffle})
