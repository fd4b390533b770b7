"""Graphs with several types of vertices: one graph of all, or one relation of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.errors import DataError
from emu.graph_data.readers import found_graph
from emu.graph_data.readers.found_graph import Arrays, FeatureRows, FoundGraph
from emu.graph_data.readers.questions import count_left_out
from emu.graph_data.readers.split_arrays import Choices, check_splits
from emu.names import printable

Relation = tuple[str, str, str]

_MOST_LISTED = 8
_NO_EDGES = np.empty((2, 0), np.int64)


@dataclass(frozen=True, eq=False)
class TypedGraph:
    """Vertices by type and edges by relation, as a file states them."""

    origin: str
    vertices: Mapping[str, Arrays]
    """Type -> arrays by their names, in the order of the file."""
    edges: Mapping[Relation, NDArray[Any]]
    """Type, name and type -> ids within these types, shape (2, edges)."""
    unread: tuple[str, ...] = ()
    """Names of what is not read, such as values of edges."""
    owner: Mapping[str, NDArray[np.int32]] = field(default_factory=dict)
    """Type -> part of every vertex, where the graph comes partitioned."""


def choose_types(graph: TypedGraph, choices: Choices) -> FoundGraph:
    """Return one graph: of all types, or of the relation that is chosen.

    Raises DataError when types do not fit, or are several and neither is chosen.
    """
    ends = (end for source, _, target in graph.edges for end in (source, target))
    types = tuple(dict.fromkeys([*graph.vertices, *ends]))
    alone = len(types) == len(graph.edges) == 1
    relation = choices.relation or ((*graph.edges,)[0] if alone else ())
    if not relation:
        if choices.flatten:
            return _flatten(graph, types, choices)
        within = [",".join(r) for r in graph.edges if r[0] == r[2]]
        problem = f"has several types: vertices {_list(types)}; relations "
        problem += f"{_list(','.join(relation) for relation in graph.edges)}: "
        problem += "--flatten makes one graph of them all"
        if within:
            problem += f", --relation {printable(within[0])} takes one relation"
        raise DataError(problem, path=graph.origin)
    name = ",".join(relation)
    edges = next((e for r, e in graph.edges.items() if r == relation), None)
    if edges is None:
        there = _list(",".join(one) for one in graph.edges)
        raise DataError(f"holds no relation {name}, but {there}", path=graph.origin)
    if relation[0] != relation[2]:
        problem = f"--relation {name} joins two types of vertices: --flatten makes "
        raise DataError(f"{problem}one graph of all types", path=graph.origin)
    arrays = {**graph.vertices.get(relation[0], {}), "edge_index": edges}
    one = found_graph.graph_of_arrays(arrays, graph.origin, choices)
    only = [f"only {name} was taken"] if len(graph.edges) > 1 else []
    return replace(
        one,
        owner=graph.owner.get(relation[0]),
        notes=(*only, *one.notes),
        left_out=(*one.left_out, *count_left_out("array", graph.unread)),
    )


def _list(names: Any) -> str:
    words = [printable(name, 60) for name in names]
    more = len(words) - _MOST_LISTED
    return " ".join(words[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


class _Type(NamedTuple):
    """The vertices of one type, and where they begin in the graph of all."""

    name: str
    begin: int
    size: int
    own: FoundGraph
    """Their features, labels and splits, without edges."""


def _flatten(graph: TypedGraph, names: tuple[str, ...], choices: Choices) -> FoundGraph:
    types: list[_Type] = []
    total = 0
    for name in names:
        arrays = {**graph.vertices.get(name, {}), "edge_index": _NO_EDGES}
        own = found_graph.graph_of_arrays(arrays, graph.origin, choices)
        size = _count(graph, name, own)
        types.append(_Type(name, total, size, own))
        total += size
    edges, by_name = [_NO_EDGES], {one.name: one for one in types}
    for (source, relation, target), ends in graph.edges.items():
        ids = ends.astype(np.int64)
        for end, row in zip((by_name[source], by_name[target]), ids, strict=True):
            if len(row) and not 0 <= row.min() <= row.max() < end.size:
                problem = f"an edge of {relation} leaves the {end.size} vertices of "
                raise DataError(f"{problem}type {end.name}", path=graph.origin)
            row[...] += end.begin
        edges.append(ids)
    sources, destinations = np.concatenate(edges, axis=1)
    owner = [graph.owner[name] for name in names if name in graph.owner]
    return FoundGraph(
        sources,
        destinations,
        graph.origin,
        vertices=total,
        features=_stack_features(types, total),
        labels=_stack_labels(types, graph.origin),
        splits=_join_splits(types, graph.origin, choices),
        split_origin="; ".join(
            f"{t.own.split_origin} for {t.name}" for t in types if t.own.split_origin
        ),
        owner=np.concatenate(owner) if owner else None,
        notes=(*_describe(types),),
        left_out=(
            *(f"{text} of {t.name}" for t in types for text in t.own.left_out),
            *count_left_out("array", graph.unread),
        ),
        overlap=choices.overlap,
    )


def _join_splits(
    types: list[_Type], origin: str, choices: Choices
) -> dict[str, NDArray[np.int64]]:
    """Return the vertices of each part, of all types that have a split."""
    splits: dict[str, list[NDArray[np.int64]]] = {}
    for _, begin, size, own in types:
        if own.splits:
            parts = check_splits(own.splits, size, origin, choices.overlap)
            for part, ids in parts.items():
                splits.setdefault(part, []).append(ids + begin)
    return {part: np.concatenate(ids) for part, ids in splits.items()}


def _count(graph: TypedGraph, name: str, own: FoundGraph) -> int:
    """Return the number of vertices of a type, by what shows it."""
    counts = [own.vertices] if own.vertices is not None else []
    counts += [own.features.vertices] if own.features else []
    counts += [len(own.labels)] if own.labels is not None else []
    if len({*counts}) > 1:
        text = " and ".join(map(str, counts))
        raise DataError(f"type {name} has {text} vertices", path=graph.origin)
    highest = (
        int(ends[row].max(initial=-1)) + 1
        for (source, _, target), ends in graph.edges.items()
        for row, end in enumerate((source, target))
        if end == name
    )
    return counts[0] if counts else max(highest, default=0)


def _stack_features(types: list[_Type], total: int) -> FeatureRows | None:
    """Return the features of all types, filled with zeros, and one-hots of types."""
    width = max((t.own.features.length for t in types if t.own.features), default=0)
    if not width:
        return None

    def rows(start: int, stop: int) -> NDArray[np.float32]:
        matrix = np.zeros((stop - start, width + len(types)), np.float32)
        for number, (_, begin, size, own) in enumerate(types):
            first, last = max(start, begin), min(stop, begin + size)
            if first >= last:
                continue
            place = matrix[first - start : last - start]
            place[:, width + number] = 1
            if own.features:
                read = own.features.rows(first - begin, last - begin)
                place[:, : read.shape[1]] = read
        return matrix

    return FeatureRows(total, width + len(types), rows)


def _stack_labels(types: list[_Type], origin: str) -> NDArray[np.int64] | None:
    """Return the labels of the type that has some, -1 elsewhere."""
    holders = [one for one in types if one.own.labels is not None]
    if len(holders) > 1:
        names = _list(one.name for one in holders)
        problem = f"labels of {names} are classes of their own: --relation "
        problem += "takes one type, --labels names others for all"
        raise DataError(problem, path=origin)
    labels = np.full(sum(one.size for one in types), -1)
    for _, begin, size, own in holders:
        numbers, _, words = found_graph.class_numbers(np.asarray(own.labels), origin)
        stated = np.array([*map(int, words), -1])  # years
        labels[begin : begin + size] = stated[numbers] if words else numbers
    return labels if holders else None


def _describe(types: list[_Type]) -> Iterator[str]:
    lengths = {one.own.features.length if one.own.features else 0 for one in types}
    text = _list(f"{one.name} ({one.size})" for one in types)
    yield f"one graph of {len(types)} types, in this order: {text}"
    for one in types:
        yield from (f"{one.name}: {note}" for note in one.own.notes)
    if any(lengths):
        text = f"the last {len(types)} features say the type, one-hot in this order"
        more = "; features of types with fewer are filled with zeros"
        yield text + more * (len(lengths) > 1)
