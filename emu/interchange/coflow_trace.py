"""Coflows of coflow-benchmark (github.com/coflow/coflow-benchmark), a line each.

The first line is ``ports coflows``; a coflow is ``id arrival mappers port... reducers
port:megabytes...``. Each reducer gets its megabytes in equal parts of all mappers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from emu.errors import DataError
from emu.host.input_file import one_error, read_packed_text
from emu.interchange.workload import Workload, equal_machines
from emu.problem.fields.quantities import MOST_FEW
from emu.units import format_count, read_number

#: As CoflowSim has it.
_MEGABYTE = 1 << 20
#: Digits of the longest number that is read in a first line.
_DIGITS = 18


class _Coflow(NamedTuple):
    """A line of the file."""

    line: int
    name: str
    arrival: float
    """Milliseconds."""
    mappers: list[int]
    """Ports as the file numbers them."""
    sizes: dict[int, float]
    """Port of a reducer -> megabytes."""

    @property
    def ports(self) -> set[int]:
        """Ports that it names."""
        return {*self.mappers, *self.sizes}


def read_trace(path: Path) -> Workload:
    """Return the coflows as one job: a machine per port, a release per coflow.

    Raises DataError when a line is not as it should be; says which.
    """
    with one_error(path):
        # An empty file fails here, which `one_error` turns into an error of it.
        first, *lines = read_packed_text(path).splitlines()
    ports, count = _parse_first(first, path)
    coflows = []
    for number, line in enumerate(lines, 2):
        if line.strip():
            coflow = _parse(number, line.split(), path)
            coflows.append(coflow)
    if len(coflows) != count:
        raise DataError(
            f"announces {count} coflows and holds {len(coflows)}",
            path=path,
        )

    named_ports: set[int] = set()
    for coflow in coflows:
        named_ports |= coflow.ports
    # A file that names the last number, and no 0, counts from 1.
    counts_from_one = ports in named_ports and 0 not in named_ports
    first_port = 1 if counts_from_one else 0
    end = first_port + ports
    _check(coflows, range(first_port, end), path)

    workload = Workload(str(path), [equal_machines("p", ports)])
    for coflow in coflows:
        _add(workload, coflow, first_port)
    for port in sorted(named_ports):
        number = port - first_port
        workload.places[f"port{number}"] = f"p{number}"
    flows = 0
    for coflow in coflows:
        flows += len(coflow.mappers) * len(coflow.sizes)
    kinds = ((count, "coflow"), (flows, "flow"), (ports, "port"))
    coflow_text, flow_text, port_text = (format_count(*kind) for kind in kinds)
    workload.notes.append(f"{coflow_text} of {flow_text} between {port_text}")
    if first_port:
        workload.notes.append(f"ports are numbered from 1 to {ports}")
    return workload


def _parse_first(line: str, path: Path) -> tuple[int, int]:
    words = line.split()
    are_numbers = all(map(str.isdecimal, words))
    if len(words) != 2 or not are_numbers:
        raise DataError(
            f"begins with {line!r:.40}, not with its numbers of ports and coflows",
            path=path,
        )
    # Python refuses to read a number of very many digits, of which zeros may be some.
    ports, coflows = (word.lstrip("0") or "0" for word in words)
    if len(ports) > _DIGITS or int(ports) > MOST_FEW:
        raise DataError(
            f"has {ports:.40} ports: of a kind there are at most {MOST_FEW} machines",
            path=path,
        )
    if len(coflows) > _DIGITS:
        raise DataError(f"announces {coflows:.40} coflows, more than fit", path=path)
    return int(ports), int(coflows)


def _parse(number: int, row: list[str], path: Path) -> _Coflow:
    try:
        count = _whole(row[2])
        reducers = row[4 + count :]
        sizes = dict[int, float]()
        for word in reducers:
            stated_port, _, size = word.partition(":")
            port = _whole(stated_port)
            # Several reducers of a coflow may be at one port.
            size_before = sizes.get(port, 0.0)
            sizes[port] = size_before + read_number(size)
        coflow = _Coflow(
            line=number,
            name=row[0],
            arrival=read_number(row[1]),
            mappers=[*map(_whole, row[3 : 3 + count])],
            sizes=sizes,
        )
        reducer_count = _whole(row[3 + count])
    except IndexError as error:
        problem = f"{_no_coflow(number)}, found {len(row)} words"
        raise DataError(problem, path=path) from error
    except ValueError as error:
        raise DataError(f"{_no_coflow(number)} ({error})", path=path) from error

    # A slice that reaches beyond the row is cut short without an error.
    if len(coflow.mappers) != count or len(reducers) != reducer_count:
        raise DataError(f"{_no_coflow(number)}, found {len(row)} words", path=path)
    return coflow


def _whole(word: str) -> int:
    if not word.isdecimal():
        raise ValueError(f"{word!r} is no whole number")
    return int(word)


def _no_coflow(number: int) -> str:
    return (
        f"line {number} is no coflow: id, arrival in ms, number of mappers, their "
        "ports, number of reducers, port:MB"
    )


def _check(coflows: Sequence[_Coflow], ports: range, path: Path) -> None:
    """Refuse coflows that cannot be, and two of one name."""
    names = set[str]()
    for coflow in coflows:
        problem = ""
        numbers = (coflow.arrival, *coflow.sizes.values())
        if unknown := [port for port in coflow.ports if port not in ports]:
            problem = f"names port {unknown[0]} of {len(ports)}"
        # float() takes nan and inf: they became volumes that no command then read.
        elif not all(math.isfinite(number) and number >= 0 for number in numbers):
            problem = "has a negative arrival or size, inf or nan"
        elif coflow.name in names:
            problem = f"is a second coflow {coflow.name}"
        elif not coflow.mappers or not coflow.sizes:
            problem = "has no mappers or no reducers"

        if problem:
            raise DataError(f"line {coflow.line} {problem}", path=path)
        names.add(coflow.name)


def _add(workload: Workload, coflow: _Coflow, first_port: int) -> None:
    """Add a coflow: its release, and tasks at its ports."""
    name = f"c{coflow.name}"
    process = f"port{coflow.mappers[0] - first_port}"
    seconds = coflow.arrival / 1000
    # No process runs a gate, so that releases of one port do not wait for each other.
    workload.add_task(name, seconds, kind="release", gate=True, process=process)

    sources = []
    for number, port in enumerate(coflow.mappers):
        task = f"{name}.m{number}"
        process = f"port{port - first_port}"
        sources.append(task)
        workload.add_task(task, seconds=0, kind="mapper", process=process)
        workload.add_flow(name, task)
    ends = []
    for number, port in enumerate(coflow.sizes):
        task = f"{name}.r{number}"
        process = f"port{port - first_port}"
        ends.append(task)
        workload.add_task(task, seconds=0, kind="reducer", process=process)
    mappers = len(coflow.mappers)
    volumes = []
    for size in coflow.sizes.values():
        volume = size * _MEGABYTE / mappers
        volumes.append(f"{volume!r} B")
    # Rules of coflows (Sincronia, Aalo, SEBF) order flows by the name.
    shuffle = {
        "from": sources,
        "to": ends,
        "volume": volumes,
        "coflow": name,
    }
    workload.collectives.append({"shuffle": shuffle})
