"""OGB node-property data sets, read from ``raw/`` as the ``ogb`` package leaves them.

ogb itself is not used: it asks questions on standard input, reloads pickles, and holds
papers100M in memory at once (ogb issues 46, 306, 404). Layouts: ogbn-products is text
(csv.gz), ogbn-papers100M one npz whose members are mapped when they are stored.
"""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from emu.array_types import Array, Ints
from emu.errors import DataError
from emu.graph_data.raw_graph import RawGraph, Source
from emu.graph_data.readers.found_graph import FeatureRows, FoundGraph
from emu.graph_data.readers.questions import count_left_out
from emu.graph_data.readers.split_arrays import NO_CHOICES, SPLIT, Choices
from emu.graph_data.readers.typed_graph import TypedGraph, choose_types
from emu.host import input_file
from emu.host.confinement import confine
from emu.host.input_file import array_names, one_error, open_gzip, open_input

_LOCAL_HEADER = struct.Struct("<26xHH")  # lengths of name and extra field, at 26


def ogb_source(folder: Path) -> Source:
    """Return the graph in ``folder``, for example ``dataset/ogbn_products``.

    Raises DataError when ``raw/`` or ``split/`` is not there.
    """
    raw_files = folder.glob("raw/*")
    split_files = folder.glob("split/*/*.csv.gz")
    files = sorted([*raw_files, *split_files])
    has_split = any(file.name == "train.csv.gz" for file in files)
    if not has_split:
        raise DataError("holds no split/*/train.csv.gz", path=folder)

    # Sizes and times instead of content: papers100M has 57 GB.
    stats = []
    for file in files:
        stat = file.stat()
        row = (file.name, stat.st_size, stat.st_mtime_ns)
        stats.append(row)
    load = partial(_load, folder)
    return Source(f"ogb {stats}", load)


@confine
def _load(folder: Path) -> RawGraph:
    graph = read_ogb(folder)
    return graph.check()


def read_ogb(folder: Path, choices: Choices = NO_CHOICES) -> FoundGraph:
    """Return the graph in ``folder``, of one type of vertices or of several.

    Raises DataError when a file is missing or damaged, or they do not fit together.
    """
    raw = folder / "raw"
    has_text = any(raw.glob("*.csv.gz"))
    has_arrays = any(raw.glob("*.npz"))
    if not has_text and not has_arrays:
        raise DataError(_explain(folder), path=folder)

    with one_error(folder):
        relations = raw / "triplet-type-list.csv.gz"
        if relations.exists():
            typed_graph = _read_types(folder, one_split=choices.flatten)
            return choose_types(typed_graph, choices)
        # Told at once: a choice that does nothing would look as if it had.
        without_use = (NO_CHOICES, Choices(flatten=True))
        if choices not in without_use:
            raise DataError(
                "has one graph and type, of its splits the first is taken: leave "
                "--graph, --relation, --split-number and --split-arrays out",
                path=folder,
            )
        return _read(folder)


def _explain(folder: Path) -> str:
    """Return what a folder is that is none of OGB."""
    for name in ("metadata.yaml", "meta.yaml"):
        if (folder / name).exists():
            return (
                "is a data set of GraphBolt or dgl's csv, which is not read: import "
                f"the edges that {name} names, with --features, --labels"
            )
    problem = "is neither a folder of OGB (raw/) nor of DistDGL (part-0 in json)"
    if (folder / "processed").is_dir():
        problem += ": PyTorch Geometric has its graph in processed/*.pt"
    return problem


class _Folder:
    """The files of a data set, and which of them nobody has asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._raw = folder / "raw"
        tables = self._raw.rglob("*.csv.gz")
        split_files = folder.glob("split/**/*.csv.gz")
        files = [*tables, *split_files]
        paths = [file.relative_to(folder) for file in files]
        self._unread = {str(path) for path in paths}
        for file in self._raw.glob("*.npz"):
            names = array_names(file)
            self._unread.update(f"raw/{file.name}/{name}" for name in names)

    def holds(self, name: str) -> bool:
        path = self._raw / name
        return path.exists()

    def table(self, name: str, dtype: Any) -> Array:
        path = self._raw / f"{name}.csv.gz"
        return self.read(path, dtype)

    def read(self, path: Path, dtype: Any) -> Array:
        name = path.relative_to(self.folder)
        self._unread.discard(str(name))
        return _table(path, dtype)

    def ids(self, path: Path) -> Ints:
        ids: Ints = self.read(path, np.int64)
        return ids.reshape(-1)

    def member(self, file: str, name: str) -> Array:
        self._unread.discard(f"raw/{file}/{name}")
        return _member(self._raw / file, name)

    def edges(self, path: Path) -> Ints:
        edges: Ints = self.read(path, np.int64)
        if edges.shape[1] != 2:
            raise DataError("a line is not src,dst", path=path)
        return edges.T

    @property
    def unread(self) -> list[str]:
        return sorted(self._unread)


def _read(path: Path) -> FoundGraph:
    raw = path / "raw"
    folder = _Folder(path)
    features: Array | None = None
    # papers100M alone is binary.
    if folder.holds("data.npz"):
        stated_labels = folder.member("node-label.npz", "node_label")
        labels = np.asarray(stated_labels)
        edges = folder.member("data.npz", "edge_index")
        features = folder.member("data.npz", "node_feat")
    else:
        # As float: a vertex without a label has nan.
        labels = folder.table("node-label", np.float64)
        edges = folder.edges(raw / "edge.csv.gz")
        if folder.holds("node-feat.csv.gz"):
            features = folder.table("node-feat", np.float32)

    vertices = len(labels)
    _check_counts(folder, vertices=vertices, edges=edges.shape[1])
    if features is not None and len(features) != vertices:
        problem = f"{len(features)} feature rows for {vertices} labels"
        raise DataError(problem, path=raw)

    rows = None
    if features is not None:
        rows = FeatureRows.dense(features, str(raw))
    names = _list_splits(path)
    # All parts of one: those of two splits have vertices in common.
    split_folder = path / "split" / names[0]
    splits = {part: _split(folder, split_folder, part, vertices) for part in SPLIT}
    notes = []
    if len(names) > 1:
        all_names = ", ".join(names)
        notes.append(f"of the splits {all_names} the first")
    return FoundGraph(
        sources=edges[0],
        destinations=edges[1],
        origin=str(raw),
        vertices=vertices,
        features=rows,
        labels=labels,
        splits=splits,
        split_origin=f"split/{names[0]}",
        notes=tuple(notes),
        left_out=count_left_out("file", folder.unread),
    )


def _list_splits(path: Path) -> list[str]:
    """Return the names of the splits of a folder, one or more."""
    train_files = path.glob("split/*/train.csv.gz")
    names = sorted(file.parent.name for file in train_files)
    if not names:
        raise DataError("holds no split/*/train.csv.gz", path=path)
    return names


def _check_counts(folder: _Folder, *, vertices: int, edges: int) -> None:
    """Refuse other numbers of vertices and edges than those that are stated."""
    of_labels = f"vertices, one graph of {vertices} labels"
    _check_count(folder, "num-node-list", of_labels, vertices)
    _check_count(folder, "num-edge-list", f"edges, one graph of {edges}", edges)


def _check_count(folder: _Folder, table: str, found: str, count: int) -> None:
    """Refuse a number of vertices or edges that is not the count, if it is stated."""
    name = f"{table}.csv.gz"
    if not folder.holds(name):
        return
    file = folder.folder / "raw" / name
    counts = folder.ids(file).tolist()
    # A folder of many graphs lists a number for each; this reads one.
    if counts != [count]:
        first_counts = map(str, counts[:4])
        text = ", ".join(first_counts)
        raise DataError(f"says {text} {found} is there", path=file)


def _read_types(path: Path, *, one_split: bool) -> TypedGraph:
    """Return the graph of several types that ogbn-mag's layout holds.

    Raises DataError as `_choose_splits`.
    """
    raw = path / "raw"
    folder = _Folder(path)
    counts = folder.table("num-node-dict", str)
    vertices: dict[str, dict[str, Array]] = {}
    for name, count in zip(*counts, strict=True):
        number = np.array(int(count))
        vertices[name] = {"num_nodes": number}
    splits, notes = _choose_splits(path, vertices, one_split=one_split)
    for name, arrays in vertices.items():
        feature = f"node-feat/{name}/node-feat"
        label = f"node-label/{name}/node-label"
        if folder.holds(f"{feature}.csv.gz"):
            arrays["x"] = folder.table(feature, np.float32)
        if folder.holds(f"{label}.csv.gz"):
            arrays["y"] = folder.table(label, np.float64)
        if name in splits:
            split_folder = path / "split" / splits[name] / name
            count = int(arrays["num_nodes"])
            for part in SPLIT:
                arrays[part] = _split(folder, split_folder, part, count)

    edges = {}
    for triplet in folder.table("triplet-type-list", str):
        source, relation, target = triplet
        name = f"relations/{source}___{relation}___{target}"
        ends = folder.edges(raw / name / "edge.csv.gz")
        count = ends.shape[1]
        found = f"edges, one relation of {count}"
        _check_count(folder, f"{name}/num-edge-list", found, count)
        edges[source, relation, target] = ends
    return TypedGraph(
        origin=str(path),
        vertices=vertices,
        edges=edges,
        unread=tuple(folder.unread),
        notes=notes,
    )


def _choose_splits(
    path: Path, kinds: Iterable[str], *, one_split: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the split that is taken of each type, and sentences on those of several.

    Raises DataError where all types are to have ``one_split``, and have several.
    """
    splits = {}
    notes = {}
    for kind in kinds:
        # Of several the first with train. One that lacks a part is refused for it:
        # drawn at random, vertices for tests would be trained on.
        names = dict[str, None]()
        for part in SPLIT:
            files = sorted(path.glob(f"split/*/{kind}/{part}.csv.gz"))
            names |= dict.fromkeys(file.parent.parent.name for file in files)
        if names:
            splits[kind] = next(iter(names))
        if len(names) > 1:
            all_names = ", ".join(sorted(names))
            notes[kind] = f"split/{splits[kind]} is taken of {all_names}"

    if one_split and len({*splits.values()}) > 1:
        words = [f"split/{name} of {kind}" for kind, name in splits.items()]
        text = ", ".join(words)
        problem = f"would take {text}: leave one split in it, of all types"
        raise DataError(problem, path=path)
    return splits, notes


def _table(path: Path, dtype: Any) -> Array:
    try:
        with (
            warnings.catch_warnings(action="ignore"),  # it may be empty
            open_gzip(path) as stream,
            io.TextIOWrapper(stream, "utf-8") as lines,
        ):
            return np.loadtxt(lines, dtype=dtype, delimiter=",", ndmin=2)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        problem = getattr(error, "strerror", None) or error
        raise DataError(f"cannot be read: {problem}", path=path) from error


def _split(
    folder: _Folder,
    split_folder: Path,
    part: str,
    vertices: int,
) -> Ints:
    file = split_folder / f"{part}.csv.gz"
    if not file.exists():
        name = file.relative_to(folder.folder)
        raise DataError(f"holds no {name}", path=folder.folder)

    ids = folder.ids(file)
    is_wrong = (ids < 0) | (ids >= vertices)
    if is_wrong.any():
        row = int(np.argmax(is_wrong))
        last = vertices - 1
        raise DataError(
            f"line {row + 1} names vertex {ids[row]}, there are only 0..{last}",
            path=file,
        )
    return ids


def _member(path: Path, name: str) -> Array:
    """Map a stored npz member; read a deflated one. np.load maps neither."""
    try:
        with open_input(path) as file:
            with zipfile.ZipFile(file) as archive:
                info = archive.getinfo(f"{name}.npy")
            # Only what is stored as it is can be mapped.
            if info.compress_type != zipfile.ZIP_STORED:
                arrays = input_file.read_arrays(path, [name])
                return arrays[name]
            # The directory does not say how long the local header is; that says it
            # itself.
            file.seek(info.header_offset)
            header = file.read(_LOCAL_HEADER.size)
            lengths = _LOCAL_HEADER.unpack(header)
            file.seek(sum(lengths), 1)
            return input_file.map_member(file)
    except KeyError as error:
        raise DataError(f"holds no {name}", path=path) from error
    except (OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"is damaged: {error}", path=path) from error
