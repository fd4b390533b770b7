"""Graphs in npz files, and those that torch.save has written; nothing pickled is run.

Of npz files keys that hold objects are left alone. torch files hold a PyTorch Geometric
``Data`` or named tensors, read with torch's own loader for weights only, which builds
tensors and containers and calls nothing that the file names. The classes of PyTorch
Geometric are stood in for by empty ones, so that it need not be installed and none of
its code runs.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import reprlib
import warnings
import zipfile
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np

from emu.array_types import Array
from emu.errors import DataError
from emu.graph_data.raw_graph import RawGraph, Source, split_at_random
from emu.graph_data.readers import found_graph
from emu.graph_data.readers.found_graph import FoundGraph, graph_of_arrays, is_read
from emu.graph_data.readers.split_arrays import (
    CODES,
    NESTED,
    NO_CHOICES,
    Choices,
    split_part,
)
from emu.graph_data.readers.stated_vertices import Shape, note_sizes
from emu.graph_data.readers.typed_graph import TypedGraph, choose_types
from emu.graph_data.sampling import rows_of
from emu.host import input_file
from emu.host.confinement import confine
from emu.host.foreign_code import INSTALL_TORCH, import_library
from emu.host.input_file import one_error, open_input
from emu.names import printable

#: Names of matrices: of other arrays a sparse one has no meaning that is known.
_MAY_BE_SPARSE = {*found_graph.MATRICES, *found_graph.FEATURES}
#: Attributes of a graph, as a file of torch has them.
_Mapping: TypeAlias = dict[Any, Any]


def npz_source(
    path: Path,
    *,
    seed: int,
    split: int | None = None,
) -> Source:
    """Return the graph of an npz file, as ``job.dataset`` names it.

    ``split`` is the number of one of several splits; ``seed`` draws one where there is
    none. Raises DataError when it cannot be read; loading it, when it holds no graph,
    or no split of that number.
    """
    try:
        with open_input(path) as file:
            # By content: a copy elsewhere is the same graph, and prepared once.
            hasher = hashlib.file_digest(file, "sha256")
            digest = hasher.hexdigest()
    except OSError as error:
        problem = error.strerror or "cannot be read"
        raise DataError(problem, path=path) from error
    choices = Choices(split_number=split, split_option="job.dataset.split: ")
    suffix = "" if split is None else f" split {split}"
    load = partial(_load_npz, path, choices, seed)
    return Source(f"npz {digest}{suffix}", load)


@confine
def _load_npz(path: Path, choices: Choices, seed: int) -> RawGraph:
    graph = read_npz(path, choices)
    raw_graph = graph.check()
    return split_at_random(raw_graph, seed)


def read_npz(path: Path, choices: Choices = NO_CHOICES) -> FoundGraph:
    """Return the graph of an npz file; DataError when it is damaged or has no edges."""
    with one_error(path):
        names = input_file.array_names(path)
        read = [name for name in names if is_read(name)]
        arrays = input_file.read_arrays(path, read)
        others = [name for name in names if name not in arrays]
        return graph_of_arrays(
            arrays,
            origin=str(path),
            choices=choices,
            others=others,
        )


def read_npy(path: Path, choices: Choices = NO_CHOICES) -> FoundGraph:
    """Return the graph of an npy file, edges or a square matrix; DataError if none."""
    with one_error(path):
        array = input_file.map_array(path)
        # Two edges, or a matrix of two vertices?
        if array.shape == (2, 2):
            problem = "has shape (2, 2): save it as edges or adj of an npz file"
            raise DataError(problem, path=path)
        is_square = array.ndim == 2 and array.shape[0] == array.shape[1]
        name = "adj" if is_square else "edges"
        arrays = {name: array}
        return graph_of_arrays(arrays, str(path), choices)


def refuse_pickle(path: Path) -> None:
    """Raise DataError where Python's pickle has written a file; nothing is read."""
    with open_input(path) as file:
        begin = file.read(9)
    # Protocols 2 and later; 0 and 1, as Python 2 has written dictionaries and classes.
    is_pickle = begin[:1] == b"\x80" or begin.startswith(_OLD_PICKLES)
    if is_pickle:
        raise DataError(
            "is a pickle, which runs what it names when it is read: load it where you "
            "trust it, and save its arrays with np.savez (edge_index, x, y, train_idx)",
            path=path,
        )


#: First bytes of pickles of Python 2.
_OLD_PICKLES = (b"(dp", b"(lp", b"ccopy_reg", b"cscipy")
#: Classes that are stood in for: what a ``Data`` or ``HeteroData`` is saved as.
_CLASSES = (
    "data.data.Data", "data.data.DataEdgeAttr", "data.data.DataTensorAttr",
    "data.storage.BaseStorage", "data.storage.GlobalStorage",
    "data.storage.NodeStorage", "data.storage.EdgeStorage",
    "data.hetero_data.HeteroData", "data.graph_store.EdgeAttr",
    "data.feature_store.TensorAttr",
)  # fmt: skip
#: Messages, by a part of the name of a class that is never loaded; of these,
#: data.to_dict() keeps EdgeIndex and SparseTensor as they are.
_HINTS = {
    "DynamicInheritance": "is a Batch of several graphs; save batch.get_example(0), or "
    "batch.to_dict() for all of them as one graph",
    "EdgeIndex": "edge_index is an EdgeIndex, which is never loaded; set "
    "data.edge_index = data.edge_index.as_tensor() and save data.to_dict()",
    "SparseTensor": "adj_t is a SparseTensor, which is never loaded; set "
    "data.edge_index = torch_geometric.utils.to_edge_index(data.adj_t.t())[0], del "
    "data.adj_t, and save data.to_dict()",
    "FusedCSCSamplingGraph": "is a graph of GraphBolt, which is not read; save the "
    "DGLGraph that it was made of with dgl.save_graphs",
    "dgl.": "is a graph of dgl; save it with dgl.save_graphs",
    "numpy": "holds arrays of numpy, which need pickle; save tensors "
    "(torch.from_numpy), or the arrays with np.savez",
}


class _StandIn:
    """An object of PyTorch Geometric, of which only the attributes are wanted."""

    def __new__(cls, *_: object) -> Self:
        return super().__new__(cls)


def read_torch(path: Path, choices: Choices = NO_CHOICES) -> FoundGraph:
    """Return the graph that a file of torch states.

    Raises DataError when it is damaged, or holds no edges, or other objects.
    """
    torch = import_library("torch", str(path), INSTALL_TORCH)
    with one_error(path):
        loaded = _load(torch, path)
        content = choose_graph(loaded, choices, str(path))
        # Only relations have three names for a key: without them there is one type.
        has_relations = any(isinstance(key, tuple) for key in content)
        if not has_relations:
            arrays, others = _arrays(torch, content, path)
            return graph_of_arrays(
                arrays,
                origin=str(path),
                choices=choices,
                others=others,
            )

        typed_graph = _read_typed_graph(torch, content, path)
        return choose_types(typed_graph, choices)


def _read_typed_graph(
    torch: Any,
    content: _Mapping,
    path: Path,
) -> TypedGraph:
    """Return the arrays of every type, and the ends of every relation."""
    vertices: dict[str, dict[str, Array]] = {}
    edges = {}
    shapes: list[Shape] = []
    unread: list[str] = []
    for key, values in content.items():
        if not isinstance(values, dict):
            unread.append(str(key))
            continue
        # What is of no type: nothing there is a row per vertex.
        if key == "_global_store":
            unread.extend(map(str, values))
            continue

        arrays, others = _arrays(torch, values, path)
        unread += others
        if not isinstance(key, tuple):
            vertices[str(key)] = arrays
            continue
        source, name, target = map(str, key)
        shape = arrays.pop("shape", None)
        if shape is not None:
            # Of an adjacency between two types.
            relation_shape = source, target, shape
            shapes.append(relation_shape)
        asked_arrays = found_graph.AskedArrays(arrays)
        # As of a graph of one type: edges may be lists, sparse, or a matrix.
        relation = found_graph.find_edges(asked_arrays, f"{path} ({name})")
        ends = np.stack([relation.sources, relation.destinations])
        edges[source, name, target] = ends
        unread += asked_arrays.unread

    note_sizes(vertices, shapes, path)
    distinct = dict.fromkeys(unread)
    return TypedGraph(
        origin=str(path),
        vertices=vertices,
        edges=edges,
        unread=tuple(distinct),
    )


def _load(torch: Any, path: Path) -> Any:
    """Return what a file of torch holds; DataError where that is more than data."""
    stand_ins = []
    # Under their full names, which the file states and torch compares.
    for name in _CLASSES:
        stand_in = type(name, (_StandIn,), {})
        stand_ins.append((stand_in, f"torch_geometric.{name}"))

    with open_input(path) as file:
        # A small file may inflate to all memory.
        if zipfile.is_zipfile(file):
            status = os.fstat(file.fileno())
            archive = zipfile.ZipFile(file)
            sizes = [member.file_size for member in archive.infolist()]
            input_file.check_inflation(path, status.st_size, sum(sizes))
        file.seek(0)
        try:
            with torch.serialization.safe_globals(stand_ins), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the error has what matters
                # weights_only: anything else is refused instead of run.
                return torch.load(file, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            problem = _explain(str(error))
            raise DataError(problem, path=path) from error


def _explain(message: str) -> str:
    """Return what a file holds that torch refuses, and what to save instead."""
    # What follows the first sentence advises to trust the file.
    _, _, tail = message.rpartition("Unsupported global: GLOBAL ")
    global_name, _, _ = tail.partition(" was ")
    for name, hint in _HINTS.items():
        if name in global_name:
            return hint
    return (
        "holds more than tensors and a graph of PyTorch Geometric "
        f"({printable(global_name, limit=80)}), which is never loaded; save "
        "data.to_dict() instead"
    )


def choose_graph(content: Any, choices: Choices, origin: str) -> _Mapping:
    """Return the attributes of the graph that is read, of one or several.

    Several are a list of graphs, or ``(data, slices)`` with the beginning of every
    graph in each tensor, as a data set in memory is stored. Raises DataError when it
    holds no graph, or several and none is chosen.
    """
    are_several = isinstance(content, (list, tuple))
    several = content if are_several else [content]
    graphs = [_mapping(graph) for graph in several]
    are_graphs = all(isinstance(graph, dict) for graph in graphs)
    # A data set in memory is saved as the pair (data, slices).
    is_pair = isinstance(content, tuple) and len(graphs) > 1
    if is_pair and isinstance(graphs[0], dict):
        whole, slices, *_ = graphs  # the class may follow
        has_slices = isinstance(slices, dict) and _are_slices(slices)
        if slices is None or has_slices:
            return _cut(
                whole,
                slices=slices or {},
                choices=choices,
                origin=origin,
            )

    if not graphs or not are_graphs:
        raise DataError(
            "holds no graph with names: save a Data, or a dict "
            '{"edge_index": ..., "x": ..., "y": ...}',
            path=origin,
        )
    number = choices.choose_graph(len(graphs), origin)
    attributes: _Mapping = graphs[number]
    return attributes


def _mapping(content: Any) -> Any:
    """Return the attributes of an object of PyTorch Geometric, anything else as it is.

    Those of several types are by type, and by the three names of a relation.
    """
    # Objects hold one another: a Data a store, and that a mapping.
    while isinstance(content, _StandIn):
        inner = vars(content)
        if "_node_store_dict" in inner:
            of_vertices = inner["_node_store_dict"]
            of_edges = inner["_edge_store_dict"]
            stores = {**of_vertices, **of_edges}
            return {name: _mapping(store) for name, store in stores.items()}
        store = inner.get("_store", {})
        content = inner.get("_mapping", store)
        if "_num_nodes" in inner:
            content = {**content, "_num_nodes": inner["_num_nodes"]}
    return content


def _are_slices(content: Any) -> bool:
    """Return True for a dict that says where each graph begins in each tensor."""
    if not isinstance(content, dict):
        return getattr(content, "ndim", 0) == 1
    values = content.values()
    return bool(content) and all(map(_are_slices, values))


def _cut(
    merged: _Mapping,
    slices: _Mapping,
    choices: Choices,
    origin: str,
) -> _Mapping:
    """Return one graph of those that are merged, by its beginning in each tensor."""
    bounds: Any = slices
    # Every tensor is cut into as many graphs: one says how many.
    while isinstance(bounds, dict) and bounds:  # by type
        bounds = next(iter(bounds.values()))
    count = len(bounds) - 1 if slices else 1
    number = choices.choose_graph(count, origin)
    return _cut_values(merged, slices, number, origin)


def _cut_values(
    values: _Mapping,
    slices: _Mapping,
    number: int,
    origin: str,
) -> _Mapping:
    """Return the part of a graph in each value; DataError where slices fit none."""
    graph = {}
    counts = values.get("_num_nodes")  # num_nodes is their sum

    for name, value in values.items():
        bounds = slices.get(name)
        if counts and name in {"num_nodes", "_num_nodes"}:
            graph["num_nodes"] = counts[number]
        elif isinstance(value, dict):
            inner_slices = bounds or {}
            graph[name] = _cut_values(value, inner_slices, number, origin)
        elif bounds is None:
            graph[name] = value
        else:
            first = int(bounds[number])
            last = int(bounds[number + 1])
            # As in PyTorch Geometric: what holds ids grows along the last axis.
            is_of_ids = "index" in name
            length = value.shape[-1] if is_of_ids else len(value)
            _check_bounds(
                name,
                bounds=bounds,
                length=length,
                origin=origin,
            )
            if is_of_ids:
                graph[name] = value[..., first:last]
            else:
                graph[name] = value[first:last]
    return graph


def _check_bounds(
    name: str,
    bounds: Any,
    length: int,
    origin: str,
) -> None:
    """Refuse slices that leave out rows of what is read, or have one twice."""
    starts = bounds.tolist()
    is_rising = starts == sorted(starts)
    is_whole = is_rising and starts[0] == 0 and starts[-1] == length
    # Classes of one's own may cut along other axes what has no meaning here.
    if is_read(name) and not is_whole:
        shown_starts = reprlib.repr(starts)
        problem = f"slices of {name} are {shown_starts}, write 0 to its {length} rows"
        raise DataError(problem, path=origin)


def _arrays(
    torch: Any,
    content: _Mapping,
    path: Path,
) -> tuple[dict[str, Array], list[str]]:
    """Return the arrays that are read, and the names of what is not."""
    arrays: dict[str, Array] = {}
    unread = []
    sparse_layouts = (torch.sparse_coo, torch.sparse_csr)

    by_name = _without_nesting(content)
    for name, value in by_name.items():
        is_tensor = isinstance(value, torch.Tensor)
        is_sparse = is_tensor and value.layout in sparse_layouts
        may_be_other = name in CODES and not is_tensor
        if is_sparse and value.ndim == 2 and name in _MAY_BE_SPARSE:
            arrays |= _sparse_arrays(
                torch,
                name=name,
                value=value,
                path=path,
            )
            # Weights of edges are not used: the summary says so.
            if name in found_graph.MATRICES:
                unread.append(f"{name}.values")
        elif is_read(name) and value is not None and not may_be_other:
            arrays[name] = _array(
                torch,
                name=name,
                value=value,
                path=path,
            )
        elif value is not None:
            unread.append(name)
    return arrays, unread


def _without_nesting(content: _Mapping) -> dict[str, Any]:
    """Return values by name, those of a dictionary of splits among them."""
    by_name: dict[str, Any] = {}
    for key, value in content.items():
        if key not in NESTED or not isinstance(value, dict):
            by_name[str(key)] = value
            continue
        for inner, ids in value.items():
            name = str(inner)
            if split_part(name) is None:
                name = f"{key}.{name}"
            by_name[name] = ids
    return by_name


def _sparse_arrays(
    torch: Any,
    name: str,
    value: Any,
    path: Path,
) -> dict[str, Array]:
    """Return a sparse adjacency by the names of scipy, sparse features as ``attr_*``.

    Not by torch's own conversions: they write beyond their memory where indices do.
    """
    rows = value.shape[0]
    shape = np.array(value.shape)
    if value.layout == torch.sparse_coo:
        indices = value._indices()  # noqa: SLF001
        row, col = _array(torch, name=name, value=indices, path=path)
        data = value._values()  # noqa: SLF001
    else:
        indptr = _array(torch, name=name, value=value.crow_indices(), path=path)
        col = _array(torch, name=name, value=value.col_indices(), path=path)
        indptr = found_graph.check_rows(
            indptr,
            indices=col,
            rows=rows,
            kind=f"{name} ",
            origin=str(path),
        )
        row = rows_of(indptr)
        data = value.values()
    if name in found_graph.MATRICES:
        return _adjacency_arrays(name, row, col, shape)

    # COO may be in any order, a CSR matrix is by rows.
    order = np.argsort(row, kind="stable")
    counts = np.bincount(row, minlength=rows)
    values = _array(
        torch,
        name=name,
        value=data,
        path=path,
    )
    return {
        "attr_indptr": np.cumsum([0, *counts]),
        "attr_indices": col[order],
        "attr_data": values[order],
        "attr_shape": shape,
    }


def _adjacency_arrays(
    name: str,
    row: Array,
    col: Array,
    shape: Array,
) -> dict[str, Array]:
    """Return an adjacency by the names of scipy, its rows the sources."""
    if name == found_graph.TRANSPOSED:
        row, col = col, row
        shape = shape[::-1]
    return {
        "row": row,
        "col": col,
        "shape": shape,
    }


def _array(
    torch: Any,
    name: str,
    value: Any,
    path: Path,
) -> Array:
    if isinstance(value, int):
        return np.array([value])
    if not isinstance(value, torch.Tensor):
        kind = type(value).__name__
        raise DataError(f"{name} is a {kind}, save it as a tensor", path=path)
    if value.layout != torch.strided:
        # Columns first or by blocks; dense, an adjacency would be terabytes.
        is_matrix = value.ndim == 2 and name in _MAY_BE_SPARSE
        form = "to_sparse_csr" if is_matrix else "to_dense"
        problem = f"{name} is sparse, save {name}.{form}()"
        raise DataError(problem, path=path)

    # A tensor may repeat one number without end: its shape is no size of the file.
    size = value.numel() * value.element_size()
    storage = value.untyped_storage().nbytes()
    allowed = max(storage, input_file.ALWAYS_ALLOWED)
    if size > allowed:
        raise DataError(
            f"{name} would take {size / 1e9:.3g} GB and repeats {storage} bytes of the "
            f"file: save {name}.contiguous(), or leave it out",
            path=path,
        )
    if value.dtype == torch.bfloat16:  # numpy has no such numbers
        value = value.float()
    array: Array = value.detach().numpy()
    return array
