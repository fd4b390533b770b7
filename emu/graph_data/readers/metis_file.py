"""Graphs in the format of METIS (manual of 5.1.0, 4.1.1), with weights or without.

The first line is ``vertices edges [fmt [ncon]]``; a line per vertex follows with its
size, its weights, and its neighbours from 1, each with the weight of the edge.
"""

from __future__ import annotations

from array import array
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from emu.errors import DataError
from emu.graph_data.readers.found_graph import FoundGraph
from emu.graph_data.readers.text_table import Tell, open_lines

_SUFFIXES = {".graph", ".metis"}


def read_metis(path: Path, tell: Tell | None = None) -> FoundGraph | None:
    """Return the graph of a file of METIS; None where it is none.

    It is one where lines, neighbours and their symmetry are as the first line says.
    Raises DataError when its name ends in .graph, and a line is not so; says which.
    """
    try:
        return _read(path, tell)
    except ValueError as error:
        if path.suffix not in _SUFFIXES:
            return None
        problem = f"is no METIS: {error}; an edge list is to be called .txt"
        raise DataError(problem, path=str(path)) from error


def _read(path: Path, tell: Tell | None) -> FoundGraph:
    with open_lines(path, tell) as file:
        lines = (line for line in file if not line.startswith("%"))
        header = next((line for line in lines if line.strip()), "").split()
        if not 2 <= len(header) <= 4:
            raise ValueError("the first line is not: vertices edges [fmt [ncon]]")
        vertices, edges = int(header[0]), int(header[1])
        flags = header[2].rjust(3, "0") if len(header) > 2 else "000"
        if len(flags) != 3 or {*flags} - {*"01"} or vertices < 1:
            raise ValueError(f"fmt is {flags}")
        size, weighs, step = int(flags[0]), flags[1] == "1", 1 + int(flags[2])
        weights = (int(header[3]) if len(header) > 3 else 1) if weighs else 0
        before = size + weights
        numbers, lengths = array("q"), array("q")
        for line in lines:
            fields = line.split()
            if len(lengths) == vertices and fields:
                raise ValueError(f"more than {vertices} lines follow")
            if len(lengths) < vertices:
                lengths.append(len(fields))
                numbers.extend(map(int, fields))
            if len(numbers) > vertices * before + 2 * edges * step:
                raise ValueError(f"more numbers follow than {edges} edges have")
    # Vertices without an edge at the end may lack their empty lines.
    counts = np.zeros(vertices, np.int64)
    counts[: len(lengths)] = lengths
    parts = ["sizes of vertices"] * size + ["weights of vertices"] * weighs
    parts += ["weights of edges"] * (step - 1)
    rest = f"; skipped: {', '.join(parts)}" if parts else ""
    return FoundGraph(
        *_take_edges(np.array(numbers, np.int64), counts, before, step, edges),
        str(path),
        vertices,
        ids=np.arange(1, vertices + 1),
        notes=(f"METIS: neighbours of {vertices} vertices, a line each{rest}",),
    )


def _take_edges(
    numbers: NDArray[np.int64],
    counts: NDArray[np.int64],
    before: int,
    step: int,
    edges: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return both ends of every edge, from 0, if each stands at both of them."""
    if ((counts < before) & (counts > 0)).any() or (before and (counts == 0).any()):
        raise ValueError(f"a line has fewer than {before} numbers before neighbours")
    if ((counts - before) % step).any():
        raise ValueError("a neighbour has no weight")
    starts, vertices = np.cumsum(counts) - counts, len(counts)
    place = np.arange(len(numbers)) - np.repeat(starts, counts)
    is_end = (place >= before) & ((place - before) % step == 0)
    sources, ends = np.repeat(np.arange(vertices), counts)[is_end], numbers[is_end] - 1
    if len(sources) != 2 * edges:
        raise ValueError(f"{len(sources)} neighbours stand for {edges} edges")
    if (ends < 0).any() or (ends >= vertices).any() or (sources == ends).any():
        problem = f"a neighbour is not from 1 to {vertices}, or the vertex itself"
        raise ValueError(problem)
    forth, back = sources * vertices + ends, ends * vertices + sources
    if not np.array_equal(np.sort(forth), np.sort(back)):
        raise ValueError("an edge stands at one of its ends only")
    return sources[sources < ends], ends[sources < ends]
