"""Graphs with several types of vertices: one graph of all, or one relation of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from emu.array_types import Array, Ints, Rows, SmallInts
from emu.errors import DataError
from emu.graph_data.readers import found_graph
from emu.graph_data.readers.class_numbers import class_numbers
from emu.graph_data.readers.found_graph import (
    Arrays,
    FeatureRows,
    FoundGraph,
    highest_id,
)
from emu.graph_data.readers.questions import count_left_out
from emu.graph_data.readers.split_arrays import Choices, check_splits
from emu.names import printable

Relation = tuple[str, str, str]

_MOST_LISTED = 8
#: For a type whose vertices are read without the relations.
_NO_EDGES = np.empty((2, 0), np.int64)


@dataclass(frozen=True, eq=False)
class TypedGraph:
    """Vertices by type and edges by relation, as a file states them."""

    origin: str
    vertices: Mapping[str, Arrays]
    """Type -> arrays by their names, in the order of the file."""
    edges: Mapping[Relation, Array]
    """Type, name and type -> ids within these types, shape (2, edges)."""
    unread: tuple[str, ...] = ()
    """Names of what is not read, such as values of edges."""
    owner: Mapping[str, SmallInts] = field(default_factory=dict)
    """Type -> part of every vertex, where the graph comes partitioned."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Type -> sentence on what was taken of it."""


def choose_types(graph: TypedGraph, choices: Choices) -> FoundGraph:
    """Return one graph: of all types, or of the relation that is chosen.

    Raises DataError when types do not fit, or are several and neither is chosen.
    """
    # In the order of the file, then of its relations.
    types = dict.fromkeys(graph.vertices)
    for source, _, target in graph.edges:
        types[source] = None
        types[target] = None
    if choices.relation:
        return _take_relation(graph, choices.relation, choices)
    # One type and one relation: there is nothing to choose.
    is_of_one_type = len(types) == len(graph.edges) == 1
    if is_of_one_type:
        (relation,) = graph.edges
        return _take_relation(graph, relation, choices)
    if choices.flatten:
        return _flatten(graph, list(types), choices)

    type_names = _list(types)
    relations = _list_relations(graph)
    problem = (
        f"has several types: vertices {type_names}; relations "
        f"{relations}: --flatten makes one graph of them all"
    )
    # Only a relation within one type can stand alone: the first is shown as example.
    for relation in graph.edges:
        source, _, target = relation
        if source == target:
            name = printable(",".join(relation))
            problem += f", --relation {name} takes one relation"
            break
    raise DataError(problem, path=graph.origin)


def _take_relation(
    graph: TypedGraph,
    relation: tuple[str, ...],
    choices: Choices,
) -> FoundGraph:
    """Return the graph of one relation, between vertices of one type."""
    name = ",".join(relation)
    if relation not in graph.edges:
        problem = f"holds no relation {name}, but {_list_relations(graph)}"
        raise DataError(problem, path=graph.origin)
    kind, edge_type, target = relation
    if kind != target:
        problem = f"--relation {name} joins two types of vertices: --flatten makes "
        raise DataError(f"{problem}one graph of all types", path=graph.origin)

    edges = graph.edges[kind, edge_type, target]
    subgraph = _read_type(
        graph,
        kind=kind,
        edges=edges,
        choices=choices,
    )
    notes = subgraph.notes
    if len(graph.edges) > 1:
        notes = (f"only {name} was taken", *notes)
    unread = count_left_out("array", graph.unread)
    return replace(
        subgraph,
        owner=graph.owner.get(kind),
        notes=notes,
        left_out=(*subgraph.left_out, *unread),
    )


def _read_type(
    graph: TypedGraph,
    kind: str,
    edges: Array,
    choices: Choices,
) -> FoundGraph:
    """Return the graph of one type with some edges."""
    # As if a file of one type had these arrays: every check is the same.
    stated_arrays = graph.vertices.get(kind, {})
    arrays = dict(stated_arrays)
    arrays["edge_index"] = edges
    found = found_graph.graph_of_arrays(arrays, graph.origin, choices)
    if kind in graph.notes:
        found = replace(found, notes=(*found.notes, graph.notes[kind]))
    return found


def _list_relations(graph: TypedGraph) -> str:
    names = map(",".join, graph.edges)
    return _list(names)


def _list(names: Iterable[str]) -> str:
    words = [printable(name, 60) for name in names]
    text = " ".join(words[:_MOST_LISTED])
    rest = len(words) - _MOST_LISTED
    if rest > 0:
        text += f" and {rest} more"
    return text


class _Type(NamedTuple):
    """The vertices of one type, and where they begin in the graph of all."""

    name: str
    begin: int
    size: int
    found: FoundGraph
    """Their features, labels and splits, without edges."""


def _flatten(
    graph: TypedGraph,
    names: Sequence[str],
    choices: Choices,
) -> FoundGraph:
    """Return one graph of all types, one after the other."""
    types: list[_Type] = []
    total = 0
    for name in names:
        type_graph = _read_type(graph, kind=name, edges=_NO_EDGES, choices=choices)
        size = _count(graph, name, type_graph)
        kind = _Type(
            name=name,
            begin=total,
            size=size,
            found=type_graph,
        )
        types.append(kind)
        total += size

    split_origins = []
    left_out = []
    for kind in types:
        found = kind.found
        if found.split_origin:
            split_origins.append(f"{found.split_origin} for {kind.name}")
        left_out += [f"{text} of {kind.name}" for text in found.left_out]
    sources, destinations = _join_edges(graph, types)
    owner = None
    owners = [graph.owner[name] for name in names if name in graph.owner]
    if owners:
        owner = np.concatenate(owners)
    unread = count_left_out("array", graph.unread)
    return FoundGraph(
        sources=sources,
        destinations=destinations,
        origin=graph.origin,
        vertices=total,
        features=_stack_features(types, total),
        labels=_stack_labels(types, graph.origin),
        splits=_join_splits(types, graph.origin, choices),
        split_origin="; ".join(split_origins),
        owner=owner,
        notes=tuple(_describe(types)),
        left_out=(*left_out, *unread),
        overlap=choices.overlap,
    )


def _join_edges(graph: TypedGraph, types: Sequence[_Type]) -> Ints:
    """Return the ends of all edges, numbered in the graph of all types."""
    types_by_name = {kind.name: kind for kind in types}
    # Without relations there is still an array of no edges.
    edges = [_NO_EDGES]

    for (source, relation, target), ends in graph.edges.items():
        ids = ends.astype(np.int64)
        names = (source, target)
        for name, row in zip(names, ids, strict=True):
            kind = types_by_name[name]
            is_wrong = (row < 0) | (row >= kind.size)
            if is_wrong.any():
                problem = f"an edge of {relation} leaves the {kind.size} vertices of "
                raise DataError(f"{problem}type {name}", path=graph.origin)
            # In place: ids is a copy already.
            row[...] += kind.begin
        edges.append(ids)
    return np.concatenate(edges, axis=1)


def _join_splits(
    types: list[_Type],
    origin: str,
    choices: Choices,
) -> dict[str, Ints]:
    """Return the vertices of each part, of all types that have a split."""
    splits: dict[str, list[Ints]] = {}
    for kind in types:
        type_splits = kind.found.splits
        if not type_splits:
            continue
        # Per type, so that masks have its length and ids are of it.
        parts = check_splits(
            type_splits,
            vertices=kind.size,
            origin=origin,
            overlap=choices.overlap,
        )
        for part, ids in parts.items():
            pieces = splits.setdefault(part, [])
            pieces.append(ids + kind.begin)

    return {part: np.concatenate(pieces) for part, pieces in splits.items()}


def _count(graph: TypedGraph, name: str, found: FoundGraph) -> int:
    """Return the number of vertices of a type, by what shows it."""
    counts = found.counts
    if len(set(counts)) > 1:
        text = " and ".join(map(str, counts))
        raise DataError(f"type {name} has {text} vertices", path=graph.origin)
    if counts:
        return counts[0]

    # Nothing states it: the highest end of an edge is the last vertex that is known.
    highest = -1
    for (source, _, target), ends in graph.edges.items():
        kinds = (source, target)
        for kind, row in zip(kinds, ends, strict=True):
            if kind == name:
                highest = max(highest, highest_id(row))
    return highest + 1


def _stack_features(types: list[_Type], total: int) -> FeatureRows | None:
    """Return the features of all types, filled with zeros, and one-hots of types."""
    width = max(_lengths(types), default=0)
    if not width:
        return None
    # A one-hot of types behind: vertices of a type without features would all be zeros.
    length = width + len(types)

    rows = partial(_rows_of_types, types, width)
    return FeatureRows(vertices=total, length=length, rows=rows)


def _rows_of_types(
    types: list[_Type],
    width: int,
    start: int,
    stop: int,
) -> Rows:
    """Return rows of types one after the other, their one-hots behind ``width``."""
    shape = (stop - start, width + len(types))
    matrix = np.zeros(shape, np.float32)
    for number, kind in enumerate(types):
        first = max(start, kind.begin)
        last = min(stop, kind.begin + kind.size)
        if first >= last:
            continue

        begin = first - start
        end = last - start
        place = matrix[begin:end]
        place[:, width + number] = 1
        features = kind.found.features
        if features:
            first_of_type = first - kind.begin
            last_of_type = last - kind.begin
            read = features.rows(first_of_type, last_of_type)
            place[:, : features.length] = read
    return matrix


def _lengths(types: list[_Type]) -> set[int]:
    """Return the lengths of features of all types, 0 for none."""
    lengths = set()
    for kind in types:
        features = kind.found.features
        length = features.length if features else 0
        lengths.add(length)
    return lengths


def _stack_labels(types: list[_Type], origin: str) -> Ints | None:
    """Return the labels of the type that has some, -1 elsewhere."""
    holders = [kind for kind in types if kind.found.labels is not None]
    if not holders:
        return None
    # Class 0 of one type is not class 0 of another.
    if len(holders) > 1:
        names = _list(kind.name for kind in holders)
        raise DataError(
            f"labels of {names} are classes of their own: --relation takes one type, "
            "--labels names others for all",
            path=origin,
        )

    holder = holders[0]
    type_labels = np.asarray(holder.found.labels)
    classes, _, words = class_numbers(type_labels, origin)
    if words:
        # As the file has them: classes are numbered when the whole is checked.
        years = [int(word) for word in words]
        year_of_class = np.array([*years, -1])
        classes = year_of_class[classes]
    total = sum(kind.size for kind in types)
    labels = np.full(total, -1)
    end = holder.begin + holder.size
    labels[holder.begin : end] = classes
    return labels


def _describe(types: list[_Type]) -> Iterator[str]:
    sizes = _list(f"{kind.name} ({kind.size})" for kind in types)
    yield f"one graph of {len(types)} types, in this order: {sizes}"
    for kind in types:
        for note in kind.found.notes:
            yield f"{kind.name}: {note}"

    lengths = _lengths(types)
    if any(lengths):
        text = f"the last {len(types)} features say the type, one-hot in this order"
        if len(lengths) > 1:
            text += "; features of types with fewer are filled with zeros"
        yield text
