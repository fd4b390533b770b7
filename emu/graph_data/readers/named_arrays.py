"""Arrays of a graph by the names that people give them.

``edge_index`` (2, E), ``edges`` (E, 2) or ``adj_indptr``, ``adj_indices`` (CSR);
``x``, ``features``, ``node_features``, or ``attr_*`` (CSR); ``y``, ``labels``,
``node_labels``; ``train_mask``, ``val_mask``, ``test_mask``, also in the plural. CSR is
as in gnn-benchmark (Shchur et al., 2018), ``x`` and ``y`` are those of PyTorch
Geometric, ``feat`` and ``label`` those of dgl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import DataError
from emu.graph_data.readers.found_graph import WIDEST, FeatureRows, FoundGraph

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]

_EDGES = ("edge_index", "edges")
_FEATURES = ("x", "features", "node_features", "feat")
_LABELS = ("y", "labels", "node_labels", "label")
_MASKS = {
    "train": ("train_mask", "train_masks"),
    "valid": ("val_mask", "val_masks", "valid_mask", "valid_masks"),
    "test": ("test_mask", "test_masks"),
}
_CSR = ("indptr", "indices", "shape")

#: Values on edges, which no model here uses.
_WEIGHTS = ("edge_weight", "edge_attr", "edge_weights", "edge_features")

#: Every name that is looked at.
NAMES = (
    *_EDGES, *_FEATURES, *_LABELS, *_MASKS["train"], *_MASKS["valid"], *_MASKS["test"],
    *_WEIGHTS, *(f"adj_{part}" for part in _CSR),
    *(f"attr_{part}" for part in (*_CSR, "data")),
)  # fmt: skip


def found_graph(arrays: Arrays, origin: str) -> FoundGraph:
    """Return the graph that named arrays state.

    Raises
    ------
    DataError
        When there are no edges, or parts of one matrix contradict each other.
    """
    sources, destinations, vertices = _edges(arrays, origin)
    features = first_of(arrays, _FEATURES)
    masks = {part: first_of(arrays, names) for part, names in _MASKS.items()}
    return FoundGraph(
        sources,
        destinations,
        origin,
        vertices=vertices,
        features=(
            _sparse_rows(arrays, origin)
            if features is None
            else FeatureRows.dense(features, origin)
        ),
        labels=first_of(arrays, _LABELS),
        masks={part: mask for part, mask in masks.items() if mask is not None},
        notes=left_out(name for name in _WEIGHTS if name in arrays),
    )


def left_out(names: Iterable[str]) -> tuple[str, ...]:
    """Return a sentence per value of edges that is not read."""
    return tuple(f"{name} was left out: edges count alike" for name in names)


def first_of(arrays: Arrays, names: tuple[str, ...]) -> NDArray[Any] | None:
    """Return the array of the first name that is there."""
    return next((arrays[name] for name in names if name in arrays), None)


def _edges(
    arrays: Arrays, origin: str
) -> tuple[NDArray[Any], NDArray[Any], int | None]:
    for name, axis in zip(_EDGES, (0, 1), strict=True):
        if name in arrays:
            return *_ends(arrays[name], axis, name, origin), None
    missing = [f"adj_{part}" for part in _CSR if f"adj_{part}" not in arrays]
    if missing:
        what = ", ".join(missing) if len(missing) < len(_CSR) else "adj_indices"
        raise DataError(
            f"holds no {what}, and neither edge_index nor edges", path=origin
        )
    vertices = int(arrays["adj_shape"][0])
    check_rows(arrays["adj_indptr"], arrays["adj_indices"], vertices, "adj", origin)
    rows = np.repeat(np.arange(vertices), np.diff(arrays["adj_indptr"]))
    return rows, arrays["adj_indices"], vertices


def _ends(
    edges: NDArray[Any], axis: int, name: str, origin: str
) -> tuple[NDArray[Any], NDArray[Any]]:
    if edges.ndim != 2 or 2 not in edges.shape:
        raise DataError(
            f"{name} has shape {edges.shape}, it needs two ends per edge", path=origin
        )
    if edges.shape[axis] != 2:
        axis = 1 - axis
    return edges.take(0, axis), edges.take(1, axis)


def check_rows(
    indptr: NDArray[Any], indices: NDArray[Any], rows: int, kind: str, origin: str
) -> None:
    """Check the row pointers of a CSR matrix.

    Raises
    ------
    DataError
        When they do not fit.
    """
    whole = (
        indptr.shape == (rows + 1,)
        and indptr[0] == 0
        and indptr[-1] == len(indices)
        and bool(np.all(np.diff(indptr) >= 0))
    )
    if not whole:
        raise DataError(f"{kind}_indptr does not fit {kind}_indices", path=origin)


def _sparse_rows(arrays: Arrays, origin: str) -> FeatureRows | None:
    stated = [f"attr_{part}" for part in ("shape", "indptr", "indices", "data")]
    if not any(name in arrays for name in stated):
        return None
    missing = [name for name in stated if name not in arrays]
    if missing:
        raise DataError(f"holds no {', '.join(missing)}", path=origin)
    shape, indptr, indices, data = (arrays[name] for name in stated)
    rows, width = int(shape[0]), int(shape[1])
    if not 0 < width <= WIDEST:
        raise DataError(f"has features of length {width}", path=origin)
    check_rows(indptr, indices, rows, "attr", origin)
    wrong = (indices < 0) | (indices >= width)
    if len(data) != len(indices) or wrong.any():
        raise DataError(
            f"attr_indices leave the {width} columns at entry {int(np.argmax(wrong))}",
            path=origin,
        )

    def dense(start: int, stop: int) -> NDArray[np.float32]:
        slots = slice(indptr[start], indptr[stop])
        part = np.zeros((stop - start, width), np.float32)
        row = np.repeat(np.arange(stop - start), np.diff(indptr[start : stop + 1]))
        part[row, indices[slots]] = data[slots]
        return part

    return FeatureRows(rows, width, dense)
