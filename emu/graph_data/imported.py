"""Graphs of the user's own, brought into one layout and kept under a name.

A folder per graph below `imports_home`: ``indptr``, ``indices`` (in-neighbours, both
directions of every edge), ``features``, ``labels``, and its split, parts and ids where
it came with some, as npy files. The manifest holds checksums and the origin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from emu.array_types import Array, Ints, Rows
from emu.errors import DataError
from emu.graph_data import prepared
from emu.graph_data.prepared import Facts, PreparedArrays
from emu.graph_data.raw_graph import RawGraph, Source, split_at_random
from emu.graph_data.readers import (
    array_files,
    dgl_file,
    dgl_parts,
    edge_list,
    matrix_files,
    neighbour_lists,
    vertex_arrays,
    vertex_table,
)
from emu.graph_data.readers.found_graph import FeatureRows, FoundGraph, check_size
from emu.graph_data.readers.ogb_folder import read_ogb
from emu.graph_data.readers.split_arrays import NO_CHOICES, SPLIT, Choices
from emu.graph_data.readers.text_table import TableOptions, Tell
from emu.graph_data.readers.vertex_columns import KnownIds
from emu.graph_data.readers.vertex_join import join_tables
from emu.graph_data.readers.vertex_table import VertexTable
from emu.graph_data.sampling import Structure
from emu.host.confinement import confine
from emu.host.files import cache_home
from emu.host.input_file import one_error
from emu.interchange.known_formats import check_command
from emu.interchange.recognise import IMPORT
from emu.units import format_count

#: Readers by the ending of a name; any other file is text.
_READERS: dict[str, Callable[[Path, Choices], FoundGraph]] = {
    ".npy": array_files.read_npy,
    ".npz": array_files.read_npz,
    ".pt": array_files.read_torch,
    ".pth": array_files.read_torch,
    ".bin": dgl_file.read_dgl,
    ".dgl": dgl_file.read_dgl,
}
MANIFEST = "manifest.json"
#: Classes that a line of a summary shows.
_SHOWN = 8


def imports_home() -> Path:
    """Return the folder of imported graphs."""
    return cache_home() / "data"


@confine
def import_graph(
    path: Path,
    name: str,
    *,
    features: Path | None = None,
    feature_length: int | None = None,
    labels: Path | None = None,
    classes: int | None = None,
    choices: Choices = NO_CHOICES,
    splits: Path | None = None,
    table: TableOptions | None = None,
    tell: Tell | None = None,
) -> PreparedArrays:
    """Bring a graph into the cache under a name, for ``job.dataset``.

    Raises DataError when something cannot be read, or does not fit together.

    Parameters
    ----------
    path
        An edge list (csv, tsv, txt, also gz), a graph of METIS, MatrixMarket or KONECT,
        npz, a ``Data`` of PyTorch Geometric (pt), a graph of dgl (bin), a folder of OGB
        or of DistDGL's partitions, or the json file of those.
    features, labels, splits
        A row per vertex, text, npy, npz or json, instead of what the file holds.
    table
        Answers to what text files leave open.
    tell
        Is given a line from time to time while a long text is read.
    feature_length, classes
        To make up features or labels, seeded, where there are none: volumes and times
        are those of real ones, but nothing can be learnt from them.
    choices
        Which graph, types, relation and split are taken where a file holds several.
    """
    folder = imports_home() / name
    # Never replaced unasked: runs under this name would silently be of another graph.
    if folder.exists():
        raise DataError(f"is there already; first: emu data clear {name}", path=name)
    if not path.exists():
        raise DataError("there is no such file or folder", path=path)

    options = table or TableOptions()
    options = replace(options, tell=tell, split_codes=choices.split_codes)
    files = {"features": features, "labels": labels, "split": splits}
    with one_error(path):
        has_npz = splits is not None and splits.suffix == ".npz"
        graph = _read_file(path, choices, options, beside=has_npz)
        graph_ids = KnownIds(graph)
        tables = []
        for kind, file in files.items():
            if file is not None:
                table_of_kind = _read_beside(file, kind, options, choices, graph_ids)
                tables.append(table_of_kind)
        graph = _join(graph, tables=tables, path=path, options=options)
        # Splits may come from tables beside, which know nothing of choices.
        graph = replace(graph, overlap=choices.overlap)
        # After the tables, which may bring what would be made up.
        graph = _make_up(graph, feature_length, classes)
        raw = graph.check()
        facts = {
            **summarize(raw, graph.split_origin),
            "notes": list(graph.notes),
            "left_out": list(graph.left_out),
        }

        def write(partial: Path) -> Facts:
            return _write(
                partial,
                graph=raw,
                path=path,
                facts=facts,
                ids=graph.ids,
            )

        return prepared.prepare_arrays(folder, write)


def _join(
    graph: FoundGraph,
    tables: list[VertexTable],
    path: Path,
    options: TableOptions,
) -> FoundGraph:
    """Return the graph with tables beside it; what they stand for is left out."""
    # Asked before the join, which replaces them.
    own_values: dict[str, object] = {
        "features": graph.features,
        "labels": graph.labels,
        "split": graph.splits or None,
    }
    replaced = [table for table in tables if own_values[table.kind] is not None]
    instead = [f"{table.kind} of {path.name} itself" for table in replaced]
    graph = join_tables(graph, tables, options.order)
    return replace(graph, left_out=(*graph.left_out, *instead))


def _read_beside(
    file: Path,
    kind: str,
    options: TableOptions,
    choices: Choices,
    known: KnownIds,
) -> VertexTable:
    """Return a table of vertices, by the name of its file and its content."""
    with one_error(file):
        if file.suffix == ".npy":
            return vertex_arrays.read_npy(file, kind)
        if file.suffix in {".npz", ".json"}:
            if file.suffix == ".npz":
                table = vertex_arrays.read_npz(file, kind, choices)
            else:
                table = vertex_arrays.read_mapping(file, kind, options)
            return replace(table, is_stated=bool(options.ids))

        readers = {
            "features": vertex_table.read_features,
            "labels": vertex_table.read_labels,
            "split": vertex_table.read_splits,
        }
        read = readers[kind]
        return read(file, options, known)


def source_of_import(folder: Path, *, seed: int) -> Source:
    """Return an imported graph; DataError if damaged. The seed is for a split."""
    arrays = open_imported(folder)

    def load() -> RawGraph:
        def members(part: str) -> Ints:
            if not arrays.holds(part):
                return np.empty(0, np.int64)
            return arrays.array(part)

        features = arrays.array("features")
        structure = Structure(
            indptr=arrays.array("indptr"),
            indices=arrays.array("indices"),
        )
        graph = RawGraph(
            structure=structure,
            labels=arrays.array("labels"),
            train=members("train"),
            valid=members("valid"),
            test=members("test"),
            classes=arrays.facts["classes"],
            feature_length=arrays.facts["feature_length"],
            # Features stay mapped: only the slice that is asked for is copied.
            rows=lambda start, stop: np.asarray(features[start:stop]),
            origin=str(folder),
            owner=arrays.array("owner") if arrays.holds("owner") else None,
        )
        # The split of those that came without one depends on the seed of the job.
        return split_at_random(graph, seed)

    # The manifest's checksum has those of all files in it: nothing is read anew.
    return Source(f"imported {arrays.checksum}", load)


def open_imported(folder: Path) -> PreparedArrays:
    """Open an imported graph. Raises DataError when it is damaged."""
    return PreparedArrays(folder, "import the graph again")


def _read_file(
    path: Path,
    choices: Choices,
    options: TableOptions,
    *,
    beside: bool,
) -> FoundGraph:
    check_command(path, IMPORT)
    description: Path | None = path
    if path.suffix != ".json":
        description = dgl_parts.partition_json(path)
    is_folder = path.is_dir() or description is not None
    is_text = not is_folder and path.suffix not in _READERS
    # Told at once: an answer that does nothing would look as if it had.
    answers = {options.columns, options.header, options.bipartite}
    has_answers = answers != {None} or options.neighbours
    if not is_text and has_answers:
        problem = "is no text: leave --columns, --header, --bipartite and "
        problem += "--neighbours out"
        raise DataError(problem, path=path)
    if description is not None:
        return dgl_parts.read_partitions(description, choices)
    if not is_text:
        read = read_ogb if is_folder else _READERS[path.suffix]
        return read(path, choices)

    # As Latin-1 every file is text: a pickle would be asked for its columns.
    array_files.refuse_pickle(path)
    # Codes and overlaps are of splits beside it; so is the rest, if these are arrays.
    of_file = replace(choices, split_codes=(), overlap="")
    if beside:
        of_file = replace(of_file, split_arrays="", split_number=None)
    if of_file != NO_CHOICES:
        problem = "is text: --graph, --flatten, --relation, --split-number and "
        raise DataError(f"{problem}--split-arrays are for other files", path=path)
    return _read_text(path, options)


def _read_text(path: Path, options: TableOptions) -> FoundGraph:
    answers = {options.columns, options.header}
    if matrix_files.is_matrix(path):
        if answers != {None} or options.neighbours:
            problem = "is MatrixMarket: leave --columns, --header and --neighbours out"
            raise DataError(problem, path=path)
        return matrix_files.read_matrix(path, options)

    layout = neighbour_lists.find_layout(path, options)
    if layout:
        return neighbour_lists.read_neighbours(path, layout, options)
    # Files of METIS have no options: whoever states one has a list of edges.
    all_answers = answers | {options.bipartite}
    is_open = all_answers == {None}
    if is_open:
        graph = matrix_files.read_metis(path, options.tell)
        if graph is not None:
            return graph
    return edge_list.read_edge_list(path, options)


def _make_up(
    found: FoundGraph,
    feature_length: int | None,
    classes: int | None,
) -> FoundGraph:
    """Return the graph with features and labels, made up where there are none."""
    counted = max(found.counts, default=0)
    vertices = counted or found.highest + 1
    # Before anything is made up: labels alone would take memory for each vertex.
    check_size(vertices, feature_length or 1, found.origin)

    notes = []
    note = " was not needed: the file's own are taken"
    if feature_length is not None and found.features is not None:
        notes.append(f"--feature-length{note}")
    if classes is not None and found.labels is not None:
        notes.append(f"--classes{note}")
    if feature_length is not None and found.features is None:
        notes.append(f"features of length {feature_length} are made up")

        def rows(start: int, stop: int) -> Rows:
            # By the slice: the same rows come of every slice that begins there.
            rng = np.random.default_rng([start, 7])
            shape = (stop - start, feature_length)
            return rng.standard_normal(shape, np.float32)

        features = FeatureRows(vertices, feature_length, rows)
        found = replace(found, features=features)
    if classes is not None and found.labels is None:
        notes.append(f"labels of {classes} classes are made up")
        if classes > vertices:
            raise DataError(f"--classes exceeds {vertices} vertices", path=found.origin)
        # Every class has as many vertices, or one more.
        # A seed of its own: labels do not depend on whether features are made up as
        # well.
        rng = np.random.default_rng(8)
        numbers = np.arange(vertices) % classes
        labels = rng.permutation(numbers)
        found = replace(found, labels=labels)
    return replace(found, notes=(*found.notes, *notes))


def _write(
    folder: Path,
    graph: RawGraph,
    path: Path,
    facts: Facts,
    ids: Array | None,
) -> Facts:
    arrays = {**graph.arrays, "owner": graph.owner, "ids": ids}
    if not len(graph.train):  # the split is drawn when it is opened, by a seed
        for part in SPLIT:
            del arrays[part]
    files = {name: array for name, array in arrays.items() if array is not None}
    prepared.write_arrays(folder, files)

    shape = (graph.structure.vertices, graph.feature_length)
    slices = ([rows] for _, rows in graph.slices())
    prepared.write_rows(folder, {"features": shape}, slices)

    note = ""
    if ids is not None:
        first = ids[0]
        last = ids[-1]
        note = f"{first} to {last}, by vertex in {folder.stem}/ids.npy"
    return {"origin": str(path.resolve()), **facts, "ids": note}


def summarize(graph: RawGraph, split_origin: str) -> Facts:
    """Return the facts of an import, JSON values; ``split_origin`` may be empty."""
    is_labelled = graph.labels >= 0
    sizes = np.bincount(graph.labels[is_labelled], minlength=graph.classes)
    degrees = graph.structure.degrees
    # Each edge stands there in both directions.
    pairs = len(graph.structure.indices) // 2
    if not len(graph.train):
        split_origin = "drawn at random"
    parts = 0
    if graph.owner is not None:
        parts = int(graph.owner.max()) + 1

    return {
        "vertices": graph.structure.vertices,
        "edges": 2 * pairs,
        "edges_given": graph.edges_given,
        "self_loops": graph.self_loops,
        # The reverse of an edge that is given counts as a double, too.
        "doubles": graph.edges_given - graph.self_loops - pairs,
        "isolated": int((degrees == 0).sum()),
        "classes": graph.classes,
        "class_sizes": sizes.tolist(),
        "class_names": [*graph.class_names],
        "unlabelled": int((~is_labelled).sum()),
        "feature_length": graph.feature_length,
        "train": len(graph.train),
        "valid": len(graph.valid),
        "test": len(graph.test),
        "split_origin": split_origin or "the file",
        "parts": parts,
    }


def summary_lines(facts: Mapping[str, Any]) -> list[str]:
    """Return the facts of an import as lines for people."""
    numbers = range(facts["classes"])
    names = facts["class_names"] or [str(number) for number in numbers]
    pairs = zip(names, facts["class_sizes"], strict=True)
    sizes = [f"{name}: {size:,}" for name, size in pairs]
    if len(sizes) > _SHOWN:
        sizes = [*sizes[:_SHOWN], "..."]
    classes = ", ".join(sizes)
    if facts["unlabelled"]:
        classes += f"; {facts['unlabelled']:,} vertices without"
    split = f"{facts['split_origin']}, 60 : 20 : 20 of what has a label"
    if facts["train"]:
        counts_of_parts = [f"{facts[part]:,} {part}" for part in SPLIT]
        counts = ", ".join(counts_of_parts)
        split = f"{counts}, by {facts['split_origin']}"

    loops = f"{facts['self_loops']:,} self-loops"
    doubles = f"{facts['doubles']:,} doubles (in either direction)"
    left_out = [f"left out: {text}" for text in facts["left_out"]]
    lines = [
        *facts["notes"],
        *left_out,
        f"edges: {facts['edges_given']:,} given; dropped: {loops}, {doubles}",
        f"vertices: {facts['vertices']:,}; {facts['isolated']:,} without an edge",
        f"classes: {classes}",
        f"split: {split}",
    ]
    if facts["ids"]:
        lines.append(f"ids: {facts['ids']}")
    if facts["parts"]:
        count = format_count(facts["parts"], "part")
        lines.append(f"{count} of its own: job.partitioner: imported")
    return lines
