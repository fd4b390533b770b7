"""Graphs in npz files, and those that torch.save has written; nothing pickled is run.

Of npz files keys that hold objects are left alone. torch files hold a PyTorch Geometric
``Data`` or named tensors, read with torch's own loader for weights only, which builds
tensors and containers and calls nothing that the file names. The classes of PyTorch
Geometric are stood in for by empty ones, so that it need not be installed and none of
its code runs.
"""

from __future__ import annotations

import hashlib
import pickle
import warnings
from typing import TYPE_CHECKING, Any, Self

from emu.errors import DataError
from emu.foreign_code import INSTALL_TORCH, import_library
from emu.graph_data.raw_graph import Source, split_at_random
from emu.graph_data.readers.found_graph import NAMES, found_graph
from emu.input_file import one_error, open_input, read_arrays
from emu.names import printable

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from emu.graph_data.readers.found_graph import FoundGraph


def npz_source(path: Path, *, seed: int) -> Source:
    """Return the graph of an npz file.

    Parameters
    ----------
    seed
        Seed of the random split where the file has none.

    Raises
    ------
    DataError
        When the file cannot be read.
    """
    try:
        with open_input(path) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(error.strerror or "cannot be read", path=str(path)) from error
    return Source(
        f"npz {digest}", lambda: split_at_random(read_npz(path).checked(), seed)
    )


def read_npz(path: Path) -> FoundGraph:
    """Return the graph that an npz file states.

    Raises
    ------
    DataError
        When it is damaged or holds no edges.
    """
    with one_error(path):
        return found_graph(read_arrays(path, NAMES, optional=True), str(path))


_CLASSES = (
    "data.data.Data", "data.data.DataEdgeAttr", "data.data.DataTensorAttr",
    "data.storage.GlobalStorage", "data.storage.NodeStorage",
    "data.storage.EdgeStorage",
)  # fmt: skip
#: Messages, by a part of the name of a class that is never loaded; of these,
#: data.to_dict() keeps the last two as they are.
_HINTS = {
    "HeteroData": "has several types; save data.to_homogeneous()",
    "DynamicInheritance": "is a Batch of several graphs; save batch.get_example(0), or "
    "batch.to_dict() for all of them as one graph",
    "EdgeIndex": "edge_index is an EdgeIndex, which is never loaded; set "
    "data.edge_index = data.edge_index.as_tensor() and save data.to_dict()",
    "SparseTensor": "of adj_t nothing is read; set data.edge_index = "
    "torch_geometric.utils.to_edge_index(data.adj_t.t())[0], del data.adj_t, and save "
    "data.to_dict()",
}


class _StandIn:
    """An object of PyTorch Geometric, of which only the attributes are wanted."""

    def __new__(cls, *_: object) -> Self:
        return super().__new__(cls)


def read_torch(path: Path) -> FoundGraph:
    """Return the graph that a file of torch states.

    Raises
    ------
    DataError
        When it is damaged, holds no edges, or other objects than tensors and a Data.
    """
    torch = import_library("torch", str(path), INSTALL_TORCH)
    stands_in = [
        (type(name, (_StandIn,), {}), f"torch_geometric.{name}") for name in _CLASSES
    ]
    with one_error(path), open_input(path) as file:
        try:
            with (
                torch.serialization.safe_globals(stands_in),
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("ignore")  # the error has what matters
                content = torch.load(file, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            # What follows the first sentence advises to trust the file.
            said = str(error).split("Unsupported global: GLOBAL ")[-1].split(" was ")[0]
            hints = (hint for name, hint in _HINTS.items() if name in said)
            problem = next(hints, "") or (
                "holds more than tensors and a graph of PyTorch Geometric "
                f"({printable(said, limit=80)}), which is never loaded; save "
                "data.to_dict() instead"
            )
            raise DataError(problem, path=str(path)) from error
        named = _named(content, path)
        if "adj_t" in named and "edge_index" not in named:
            raise DataError(_HINTS["SparseTensor"], path=str(path))
        arrays = {
            name: _array(torch, name, value, path)
            for name, value in named.items()
            if name in NAMES and isinstance(value, torch.Tensor)
        }
        return found_graph(arrays, str(path))


def _array(torch: Any, name: str, value: Any, path: Path) -> NDArray[Any]:
    if value.layout != torch.strided:
        problem = f"{name} is sparse, save {name}.to_dense()"
        raise DataError(problem, path=str(path))
    short = value.dtype == torch.bfloat16  # numpy has no such numbers
    array: NDArray[Any] = (value.float() if short else value).detach().numpy()
    return array


def _named(content: Any, path: Path) -> dict[str, Any]:
    """Return the attributes of a ``Data``, or of what an in-memory data set stores."""
    if isinstance(content, (tuple, list)) and content:
        content, *beside = content  # (data, slices, class), or graphs
        slices = beside[0] if beside and isinstance(beside[0], dict) else {}
        of_edges = slices.get("edge_index")
        if (of_edges is not None and len(of_edges) > 2) or any(
            isinstance(one, _StandIn) for one in beside
        ):
            raise DataError("holds several graphs, save one of them", path=str(path))
    while isinstance(content, _StandIn):
        inner = vars(content)
        content = inner.get("_mapping", inner.get("_store", {}))
    named = content if isinstance(content, dict) else {}
    return {name: value for name, value in named.items() if isinstance(name, str)}
