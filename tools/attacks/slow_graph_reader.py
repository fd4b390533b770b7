"""An oracle for graphs in files: slow, by csv and dictionaries, told what is where.

It shares no code with the readers of emu, which have to find out what it is told.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class NoGraphError(Exception):
    """The file is none that states a graph: it has to be refused."""


@dataclass
class SlowGraph:
    """A graph by the ids of its file."""

    edges: set[frozenset[str]] = field(default_factory=set)
    vertices: set[str] = field(default_factory=set)
    features: dict[str, list[float]] = field(default_factory=dict)
    classes: dict[str, str] = field(default_factory=dict)
    parts: dict[str, set[str]] = field(default_factory=dict)

    def add_edge(self, left: str, right: str) -> None:
        """Add an edge, without its direction."""
        if not left or not right:
            raise NoGraphError("an end is empty")
        self.vertices |= {left, right}
        if left != right:
            self.edges.add(frozenset((left, right)))


@dataclass(frozen=True)
class Layout:
    """The facts that a person who wrote a table knows of it."""

    separator: str
    roles: tuple[str, ...]
    """``end``, ``id``, ``feature``, ``label``, ``part``, or "" for each column."""
    has_header: bool

    def places(self, role: str) -> list[int]:
        """Return the columns of a role."""
        return [place for place, other in enumerate(self.roles) if other == role]


def read_rows(text: str, layout: Layout) -> list[list[str]]:
    """Return the rows of a table; NoGraphError where one has another length."""
    separator = layout.separator
    lines = [line for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("#", "%"))]
    if separator == " ":
        lines = [" ".join(line.split()) for line in lines]
    try:
        rows = [*csv.reader(lines, delimiter=separator, strict=True)]
    except csv.Error as error:
        raise NoGraphError(str(error)) from error
    if any(len(row) != len(layout.roles) for row in rows):
        raise NoGraphError("a row has another length")
    return [[cell.strip() for cell in row] for row in rows[layout.has_header :]]


def read_edges(text: str, layout: Layout) -> SlowGraph:
    """Return the graph of an edge list."""
    graph = SlowGraph()
    ends = layout.places("end")
    if len(ends) != 2:
        raise NoGraphError("an end is missing")
    for row in read_rows(text, layout):
        graph.add_edge(row[ends[0]], row[ends[1]])
    return graph


def add_table(graph: SlowGraph, text: str, layout: Layout) -> None:
    """Add the features, classes or parts of a table by id."""
    ids = layout.places("id")
    if len(ids) != 1:
        raise NoGraphError("the ids are missing")
    seen = set()
    for row in read_rows(text, layout):
        vertex = row[ids[0]]
        if vertex in seen or not vertex:
            raise NoGraphError("a vertex stands twice, or has no name")
        seen.add(vertex)
        graph.vertices.add(vertex)
        features = [row[place] for place in layout.places("feature")]
        if features:
            graph.features[vertex] = [_number(text) for text in features]
        for place in layout.places("label"):
            if row[place]:
                graph.classes[vertex] = row[place]
        for place in layout.places("part"):
            graph.parts.setdefault(row[place], set()).add(vertex)


def _number(text: str) -> float:
    truth = {"True": 1.0, "False": 0.0}
    try:
        return truth[text] if text in truth else float(text)
    except ValueError as error:
        raise NoGraphError(f"{text!r} is no number") from error


def read_matrix_market(text: str) -> SlowGraph:
    """Return the graph of a square matrix of MatrixMarket."""
    lines = [line.split() for line in text.splitlines()[1:] if not line.startswith("%")]
    sizes, *entries = lines
    if len(sizes) != 3 or len(entries) != int(sizes[2]) or sizes[0] != sizes[1]:
        raise NoGraphError("it has other sizes")
    graph = SlowGraph(vertices={str(n) for n in range(1, int(sizes[0]) + 1)})
    for entry in entries:
        if not {*entry[:2]} <= graph.vertices:
            raise NoGraphError("an entry leaves the matrix")
        graph.add_edge(entry[0], entry[1])
    return graph


def read_blocks(text: str) -> SlowGraph:
    """Return the graph of LGL: # vertex, and a line for each neighbour."""
    graph = SlowGraph()
    vertex = ""
    for line in text.splitlines():
        words = line.split()
        if line.startswith("#"):
            vertex = line[1:].strip()
            graph.vertices.add(vertex)
        elif words:
            graph.add_edge(vertex, words[0])
    return graph


def read_konect(text: str) -> SlowGraph:
    """Return the graph of KONECT's list, which states its numbers of edges and ids."""
    _, sizes, *lines = text.splitlines()
    count = int(sizes.split()[2])
    graph = SlowGraph(vertices={str(n) for n in range(1, count + 1)})
    for line in lines:
        left, right, *_ = line.split()
        graph.add_edge(left, right)
    return graph


def read_colons(text: str) -> SlowGraph:
    """Return the graph of lines as ``vertex:neighbour,neighbour``."""
    graph = SlowGraph()
    for line in text.splitlines():
        vertex, _, near = line.partition(":")
        graph.vertices.add(vertex)
        for other in near.split(","):
            graph.add_edge(vertex, other)
    return graph


def read_metis(text: str) -> SlowGraph:
    """Return the graph of a METIS file without weights, which names each edge twice."""
    sizes, *lines = text.splitlines()
    count, edges = map(int, sizes.split())
    graph = SlowGraph(vertices={str(n) for n in range(1, count + 1)})
    named = []
    for vertex, line in enumerate(lines, 1):
        for other in line.split():
            graph.add_edge(str(vertex), other)
            named.append((str(vertex), other))
    if {*named} != {(b, a) for a, b in named} or len(named) != 2 * edges:
        raise NoGraphError("an edge is not named at both ends")
    if len(graph.vertices) != count:
        raise NoGraphError("it has another number of vertices")
    return graph


def read_arrays(arrays: Mapping[str, Any], names: Mapping[str, str]) -> SlowGraph:
    """Return the graph of arrays, by which name each role has."""
    missing = {"edges", "features", "labels"} - names.keys()
    if missing:
        raise NoGraphError(f"nothing states {missing}")
    ends, features = arrays[names["edges"]], arrays[names["features"]]
    labels = arrays[names["labels"]]
    count = len(features)
    if len(labels) != count or ends.min(initial=0) < 0 or ends.max(initial=0) >= count:
        raise NoGraphError("sizes differ")
    graph = SlowGraph(vertices={*map(str, range(count))})
    for left, right in ends.T.tolist():
        graph.add_edge(str(left), str(right))
    graph.features = {str(v): row for v, row in enumerate(features.tolist())}
    graph.classes = {str(v): str(word) for v, word in enumerate(labels.tolist())}
    for part in ("train", "valid", "test"):
        if part in names:
            mask = arrays[names[part]].tolist()
            graph.parts[part] = {str(v) for v, holds in enumerate(mask) if holds}
    return graph


def same_classes(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return True where two mappings part the same vertices alike."""
    if one.keys() != other.keys():
        return False
    pairs: Sequence[tuple[Any, Any]] = [*{(one[v], other[v]) for v in one}]
    return len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
