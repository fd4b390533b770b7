"""Graphs with several types of vertices: one graph of all, or one relation of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emu.errors import DataError
from emu.graph_data.readers.found_graph import (
    FeatureRows,
    FoundGraph,
    class_numbers,
    graph_of_arrays,
    name_unread,
)
from emu.graph_data.readers.split_arrays import SPLIT, Choices, check_splits
from emu.names import printable

if TYPE_CHECKING:
    from emu.graph_data.readers.found_graph import Arrays

    Relation = tuple[str, str, str]

_MOST_LISTED = 8


@dataclass(frozen=True, eq=False)
class TypedGraph:
    """Vertices by type and edges by relation, as a file states them."""

    origin: str
    vertices: Mapping[str, Arrays]
    """Type -> arrays by their names, in the order of the file."""
    edges: Mapping[Relation, NDArray[Any]]
    """Type, name and type -> ids within these types, shape (2, edges)."""
    unread: tuple[str, ...] = ()
    """Names of values of edges."""
    owner: Mapping[str, NDArray[np.int32]] = field(default_factory=dict)
    """Type -> part of every vertex, where the graph comes partitioned."""


def choose_types(graph: TypedGraph, choices: Choices) -> FoundGraph:
    """Return one graph: of all types, or of the relation that is chosen.

    Raises
    ------
    DataError
        When there are several types and neither is chosen, or they do not fit.
    """
    ends = (end for source, _, target in graph.edges for end in (source, target))
    types = tuple(dict.fromkeys([*graph.vertices, *ends]))
    if choices.relation:
        return _take_relation(graph, choices)
    if len(types) == len(graph.edges) == 1:
        return _take_relation(graph, replace(choices, relation=(*graph.edges,)[0]))
    if choices.flatten:
        return _flatten(graph, types, choices)
    within = [",".join(r) for r in graph.edges if r[0] == r[2]]
    problem = f"has several types: vertices {_list(types)}; relations "
    problem += f"{_list(','.join(relation) for relation in graph.edges)}: --flatten "
    problem += "makes one graph of them all"
    if within:
        problem += f", --relation {printable(within[0])} takes one relation"
    raise DataError(problem, path=graph.origin)


def _list(names: Any) -> str:
    words = [printable(name, 60) for name in names]
    more = len(words) - _MOST_LISTED
    return " ".join(words[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def _take_relation(graph: TypedGraph, choices: Choices) -> FoundGraph:
    relation = choices.relation
    edges = next((e for r, e in graph.edges.items() if r == relation), None)
    if edges is None:
        relation_text = ",".join(relation)
        problem = f"holds no relation {relation_text}, but "
        problem += _list(",".join(one) for one in graph.edges)
        raise DataError(problem, path=graph.origin)
    if relation[0] != relation[2]:
        problem = f"--relation {','.join(relation)} joins two types of vertices: "
        problem += "--flatten makes one graph of all types"
        raise DataError(problem, path=graph.origin)
    arrays = {**graph.vertices.get(relation[0], {}), "edge_index": edges}
    graph_of_relation = graph_of_arrays(arrays, graph.origin, choices)
    return replace(
        graph_of_relation,
        owner=graph.owner.get(relation[0]),
        notes=(
            *([f"only {','.join(relation)} was taken"] if len(graph.edges) > 1 else []),
            *graph_of_relation.notes,
            *name_unread(graph.unread),
        ),
    )


def _flatten(graph: TypedGraph, types: tuple[str, ...], choices: Choices) -> FoundGraph:
    nothing = np.empty((2, 0), np.int64)
    parts = [
        graph_of_arrays(
            {**graph.vertices.get(name, {}), "edge_index": nothing},
            graph.origin,
            choices,
        )
        for name in types
    ]
    counts = [
        _count(graph, name, part) for name, part in zip(types, parts, strict=True)
    ]
    starts = np.cumsum([0, *counts])
    sources, destinations = _stack_edges(graph, types, starts)
    owner = [graph.owner[name] for name in types if name in graph.owner]
    return FoundGraph(
        sources,
        destinations,
        graph.origin,
        vertices=int(starts[-1]),
        features=_stack_features(parts, starts),
        labels=_stack_labels(graph, types, parts, counts),
        splits=_stack_splits(parts, starts, graph.origin),
        split_origin="; ".join(
            f"{part.split_origin} for {name}"
            for name, part in zip(types, parts, strict=True)
            if part.split_origin
        ),
        types=np.repeat(np.arange(len(types), dtype=np.int32), counts),
        type_names=types,
        owner=np.concatenate(owner) if owner else None,
        notes=_describe(graph, types, parts, counts),
    )


def _stack_edges(
    graph: TypedGraph, types: tuple[str, ...], starts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the edges of all relations, shape (2, edges), by vertices of one graph."""
    edges = [np.empty((2, 0), np.int64)]
    for (source, name, target), ends in graph.edges.items():
        ids = ends.astype(np.int64)
        for end, row in zip((source, target), ids, strict=True):
            begin, stop = starts[types.index(end) :][:2]
            if len(row) and not 0 <= row.min() <= row.max() < stop - begin:
                problem = (
                    f"an edge of {name} leaves the {stop - begin} vertices of type "
                )
                raise DataError(problem + end, path=graph.origin)
            row[...] += begin
        edges.append(ids)
    return np.concatenate(edges, axis=1)


def _count(graph: TypedGraph, name: str, part: FoundGraph) -> int:
    """Return the number of vertices of a type, by what shows it."""
    counts = [part.vertices] if part.vertices is not None else []
    counts += [part.features.vertices] if part.features else []
    counts += [len(part.labels)] if part.labels is not None else []
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


def _stack_features(
    parts: list[FoundGraph], starts: NDArray[np.int64]
) -> FeatureRows | None:
    """Return the features of all types, filled with zeros, and one-hots of types."""
    width = max((part.features.length for part in parts if part.features), default=0)
    if not width:
        return None

    def rows(start: int, stop: int) -> NDArray[np.float32]:
        matrix = np.zeros((stop - start, width + len(parts)), np.float32)
        for number, (part, begin) in enumerate(zip(parts, starts[:-1], strict=True)):
            first, last = max(start, int(begin)), min(stop, int(starts[number + 1]))
            if first >= last:
                continue
            place = matrix[first - start : last - start]
            place[:, width + number] = 1
            if part.features:
                own = part.features.rows(first - int(begin), last - int(begin))
                place[:, : own.shape[1]] = own
        return matrix

    return FeatureRows(int(starts[-1]), width + len(parts), rows)


def _stack_labels(
    graph: TypedGraph,
    types: tuple[str, ...],
    parts: list[FoundGraph],
    counts: list[int],
) -> NDArray[np.int32] | None:
    """Return the labels of the type that has some, -1 elsewhere."""
    holders = [n for n, part in enumerate(parts) if part.labels is not None]
    if not holders:
        return None
    if len(holders) > 1:
        problem = f"labels of {_list(types[n] for n in holders)} are classes of their "
        problem += "own: --relation takes one type, --labels names others for all"
        raise DataError(problem, path=graph.origin)
    return np.concatenate(
        [
            np.full(count, -1, np.int32)
            if part.labels is None
            else class_numbers(part.labels, graph.origin)[0]
            for part, count in zip(parts, counts, strict=True)
        ]
    )


def _stack_splits(
    parts: list[FoundGraph], starts: NDArray[np.int64], origin: str
) -> dict[str, NDArray[np.int64]]:
    splits: dict[str, list[NDArray[np.int64]]] = {}
    for part, begin, end in zip(parts, starts[:-1], starts[1:], strict=True):
        if part.masks or part.splits:
            own = check_splits(part.masks, part.splits, int(end - begin), origin)
            for name in SPLIT:
                splits.setdefault(name, []).append(own[name] + begin)
    return {name: np.concatenate(ids) for name, ids in splits.items()}


def _describe(
    graph: TypedGraph,
    types: tuple[str, ...],
    parts: list[FoundGraph],
    counts: list[int],
) -> tuple[str, ...]:
    lengths = [part.features.length if part.features else 0 for part in parts]
    text = _list(f"{t} ({n})" for t, n in zip(types, counts, strict=True))
    notes = [f"one graph of {len(types)} types, in this order: {text}"]
    one_hot = f"the last {len(types)} features say the type, one-hot in this order"
    if len({*lengths}) > 1:
        one_hot += "; features of types with fewer are filled with zeros"
    for name, part in zip(types, parts, strict=True):
        notes += [f"{name}: {note}" for note in part.notes]
    one_hot_notes = [one_hot] if any(lengths) else []
    return (*notes, *one_hot_notes, *name_unread(graph.unread))
