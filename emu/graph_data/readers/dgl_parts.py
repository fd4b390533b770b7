"""Partition folders of DistDGL: a description, and files of dgl for each part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from emu.array_types import Array, Ints
from emu.errors import DataError
from emu.graph_data.readers.dgl_file import Frame, read_graph, read_tensors
from emu.graph_data.readers.found_graph import FoundGraph
from emu.graph_data.readers.split_arrays import NO_CHOICES, Choices
from emu.graph_data.readers.typed_graph import Relation, TypedGraph, choose_types
from emu.host.input_file import one_error, read_json
from emu.names import printable

#: Names that dgl gives the one type of a homogeneous graph.
_VERTEX = "_N"
_EDGE = "_N:_E:_N"

#: A file of DistDGL that says where parts lie, as JSON.
_Description: TypeAlias = dict[str, Any]


def partition_json(folder: Path) -> Path | None:
    """Return the description of a DistDGL folder, None where it is not one.

    Raises DataError when several files describe partitions, or one is damaged.
    """
    descriptions = []
    for path in sorted(folder.glob("*.json")):
        content = read_json(path)
        if isinstance(content, dict) and "part-0" in content:
            descriptions.append(path)

    if len(descriptions) > 1:
        file_names = [printable(path.name) for path in descriptions]
        names = ", ".join(file_names)
        problem = f"holds several descriptions of partitions ({names}): name one"
        raise DataError(problem, path=folder)

    if not descriptions:
        return None
    (description,) = descriptions
    return description


def read_partitions(description: Path, choices: Choices = NO_CHOICES) -> FoundGraph:
    """Return the graph of a DistDGL folder, with the part of every vertex.

    Raises DataError when a part is missing or damaged, they do not hold every vertex
    once, or there are several types and none is chosen.
    """
    with one_error(description):
        content = read_json(description)
        if "part-0" not in content:
            problem = "is JSON and describes no partitions of DistDGL: holds no part-0"
            raise DataError(problem, path=description)
        if not isinstance(content.get("num_parts"), int):
            problem = "states no num_parts, how many parts there are"
            raise DataError(problem, path=description)
        numbers = range(content["num_parts"])
        parts = [_Part(description, content, number) for number in numbers]
        typed_graph = _join(parts, content, str(description))
        return choose_types(typed_graph, choices)


def _join(
    parts: list[_Part],
    content: _Description,
    origin: str,
) -> TypedGraph:
    """Return the graph of all parts; dgl numbers the vertices of all types together."""
    ids = np.concatenate([part.ids for part in parts])
    kinds = np.concatenate([part.kinds for part in parts])
    count = int(content["num_nodes"])
    if not _are_all(ids, count):
        problem = f"the parts do not hold each of {count} vertices once"
        raise DataError(problem, path=origin)
    counts = [len(part.ids) for part in parts]
    numbers = np.arange(len(parts), dtype=np.int32)
    owner = np.repeat(numbers, counts)

    within = np.empty(count, np.int64)  # ids within the type
    vertices = {}
    owners = {}
    types = content.get("ntypes", {_VERTEX: 0})
    for name, kind in types.items():
        members = np.flatnonzero(kinds == kind)
        # By dgl's number, so that a vertex has the place in its type that dgl gives it.
        order = np.argsort(ids[members])
        members = members[order]
        members_of_type = len(members)
        within[ids[members]] = np.arange(members_of_type)
        owners[name] = owner[members]
        frame = {"num_nodes": np.array(members_of_type)}
        # Parts hold values of their own vertices alone, in the order of these.
        for array_name, rows in _values_of(name, kind, parts, origin):
            frame[array_name] = rows[order]
        vertices[name] = frame

    unread: dict[str, None] = {}
    for part in parts:
        unread |= dict.fromkeys(part.of_edges)
    relations = content.get("etypes", {_EDGE: 0})
    edges = _join_edges(parts, relations, within)
    stated_edges = content.get("num_edges")
    _check_counts(parts, owners, edges, stated_edges=stated_edges, origin=origin)
    return TypedGraph(
        origin=origin,
        vertices=vertices,
        edges=edges,
        unread=tuple(unread),
        owner=owners,
    )


def _check_counts(
    parts: Sequence[_Part],
    owners: Mapping[str, Array],
    edges: Mapping[Relation, Array],
    *,
    stated_edges: int | None,
    origin: str,
) -> None:
    """Raise DataError where a part has less than is stated, or kinds without a name."""
    vertices_of_parts = sum(len(part.ids) for part in parts)
    edges_of_parts = sum(part.edges.shape[1] for part in parts)
    if stated_edges is None:
        stated_edges = edges_of_parts
    vertex_count = sum(map(len, owners.values()))
    edge_count = sum(ends.shape[1] for ends in edges.values())
    # Those of a kind that nothing names would go missing.
    if (vertex_count, edge_count) != (vertices_of_parts, stated_edges):
        raise DataError(
            f"states {vertices_of_parts} vertices and {stated_edges} edges, of its "
            f"ntypes and etypes the parts hold {vertex_count} and {edge_count}",
            path=origin,
        )


def _values_of(
    name: str,
    kind: int,
    parts: Sequence[_Part],
    origin: str,
) -> Iterator[tuple[str, Array]]:
    """Yield the arrays of a type of vertices, of all parts.

    Raises DataError where a part that has such vertices lacks one.
    """
    prefix = f"{name}/"
    keys: dict[str, None] = {}
    for part in parts:
        keys |= dict.fromkeys(key for key in part.values if key.startswith(prefix))

    for key in keys:
        rows = []
        for number, part in enumerate(parts):
            if key in part.values:
                rows.append(part.values[key])
            elif np.any(part.kinds == kind):
                problem = f"has {key} in some parts, and not in part {number}"
                raise DataError(problem, path=origin)
        yield key.removeprefix(prefix), np.concatenate(rows)


def _are_all(ids: Array, count: int) -> bool:
    """Return True where each id below a count is there once."""
    # A count that is too large is not to be made a list of so many.
    if len(ids) != count:
        return False
    all_ids = np.arange(count)
    sorted_ids = np.sort(ids)
    return np.array_equal(sorted_ids, all_ids)


def _join_edges(
    parts: list[_Part],
    kinds: dict[str, int],
    places: Ints,
) -> dict[Relation, Array]:
    """Return the edges of each relation, between places of vertices in their types."""
    edges = {}
    for name, kind in kinds.items():
        words = [_VERTEX, name, _VERTEX]
        if name.count(":") == 2:
            words = name.split(":")
        source, relation, target = words

        ends = []
        for part in parts:
            is_kind = part.edge_kinds == kind
            ends.append(part.edges[:, is_kind])
        vertices = np.concatenate(ends, axis=1)
        edges[source, relation, target] = places[vertices]
    return edges


class _Part:
    """One part: the ids and values of its own vertices, and its own edges."""

    def __init__(
        self,
        description: Path,
        content: _Description,
        number: int,
    ) -> None:
        files = content[f"part-{number}"]
        graph_file = str(files.get("part_graph", ".pt"))
        if not graph_file.endswith(".dgl"):
            raise DataError(
                "its parts are for GraphBolt alone: partition the graph with "
                "use_graphbolt=False, which writes part_graph",
                path=description,
            )

        graph_path = _inside(description, graph_file, number)
        graph = read_graph(graph_path)
        (frame,) = graph.vertices.values()
        ids = frame["_ID"]
        # Graphs of one type state none.
        one_type = np.zeros(len(ids))
        kinds = frame.get("_TYPE", one_type)
        is_inner = frame["inner_node"] > 0
        self.ids: Ints = ids[is_inner]
        self.kinds = kinds[is_inner]

        (edges,) = graph.edges.values()
        (edge_frame,) = graph.of_edges
        # A part repeats edges of its neighbours: each edge counts where it is inner.
        is_inner_edge = edge_frame["inner_edge"] > 0
        inner_edges = edges[:, is_inner_edge]
        # From places in the part to numbers of the whole graph.
        self.edges = ids[inner_edges]
        one_relation = np.zeros(len(is_inner_edge))
        edge_kinds = edge_frame.get("_TYPE", one_relation)
        self.edge_kinds = edge_kinds[is_inner_edge]

        # "_N/feat": the default type, which files of older versions do not name.
        values_path = _inside(description, files["node_feats"], number)
        self.values: Frame = {}
        tensors = read_tensors(values_path)
        for name, array in tensors.items():
            full_name = name
            if "/" not in name:
                full_name = f"{_VERTEX}/{name}"
            self.values[full_name] = array

        edge_names: set[str] = set()
        if "edge_feats" in files:
            edge_path = _inside(description, files["edge_feats"], number)
            for full_name in read_tensors(edge_path):
                _, _, name = full_name.rpartition("/")
                edge_names.add(name)
        self.of_edges = sorted(edge_names)


def _inside(description: Path, stated: str, number: int) -> Path:
    # Paths come from the file: one outside the folder may be anything.
    folder = description.parent.resolve()
    path = (folder / stated).resolve()
    if not path.is_relative_to(folder):
        problem = f"part {number} is said to be at {stated}, outside this folder"
        raise DataError(problem, path=description)
    if not path.is_file():
        raise DataError(f"part {number} of the graph is missing", path=path)
    return path
