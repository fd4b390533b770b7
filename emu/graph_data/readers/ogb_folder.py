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
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import DataError
from emu.graph_data.raw_graph import RawGraph, Source, build_structure, count_loops
from emu.graph_data.readers.found_graph import left_out
from emu.input_file import map_member, one_error, open_gzip, open_input, read_arrays

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_MOST_CLASSES = 2**31 - 1
_LOCAL_HEADER = struct.Struct("<26xHH")  # lengths of name and extra field, at 26


def ogb_source(folder: Path) -> Source:
    """Return the graph in ``folder``, for example ``dataset/ogbn_products``.

    Raises
    ------
    DataError
        When ``raw/`` or ``split/`` is not there.
    """
    files = sorted([*folder.glob("raw/*"), *folder.glob("split/*/*.csv.gz")])
    if not any(file.name == "train.csv.gz" for file in files):
        raise DataError("holds no split/*/train.csv.gz", path=str(folder))
    # Sizes and times instead of content: papers100M has 57 GB.
    stats = [
        (file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files
    ]

    def load() -> RawGraph:
        with one_error(folder):
            return _load(folder)

    return Source(f"ogb {stats}", load)


def _load(folder: Path) -> RawGraph:
    raw = folder / "raw"
    packed = raw / "data.npz"
    reader = _read_packed if packed.exists() else _read_text
    edges, features, labels = reader(raw)
    vertices = len(labels)
    origin = str(packed if packed.exists() else raw / "edge.csv.gz")
    _check_count(raw, vertices)
    if len(features) != vertices:
        raise DataError(
            f"{len(features)} feature rows for {vertices} labels", path=str(raw)
        )
    return RawGraph(
        build_structure(edges[0], edges[1], vertices=vertices, origin=origin),
        labels,
        train=_split(folder, "train", vertices),
        valid=_split(folder, "valid", vertices),
        test=_split(folder, "test", vertices),
        classes=int(labels.max()) + 1,
        feature_length=features.shape[1],
        rows=lambda start, stop: np.asarray(features[start:stop], np.float32),
        origin=origin,
        edges_given=len(edges[0]),
        self_loops=count_loops(edges[0], edges[1]),
    )


def ogb_notes(folder: Path) -> list[str]:
    """Return sentences on what of a folder is not read."""
    splits = sorted({path.parent.name for path in folder.glob("split/*/train.csv.gz")})
    notes = [f"of the splits {', '.join(splits)} the first"] if splits[1:] else []
    weighed = (folder / "raw" / "edge-feat.csv.gz").exists()
    return [*notes, *left_out(["edge-feat"] if weighed else [])]


def _check_count(raw: Path, vertices: int) -> None:
    path = raw / "num-node-list.csv.gz"
    if not path.exists():
        return
    counts = _table(path, np.int64).reshape(-1)
    if counts.tolist() != [vertices]:
        stated = ", ".join(map(str, counts[:4]))
        problem = f"says {stated} vertices, one graph of {vertices} labels is there"
        raise DataError(problem, path=str(path))


_Parts = tuple["NDArray[Any]", "NDArray[Any]", "NDArray[np.int32]"]


def _read_text(raw: Path) -> _Parts:
    edges = _table(raw / "edge.csv.gz", np.int64)
    if edges.ndim != 2 or edges.shape[1] != 2:
        raise DataError("a line is not src,dst", path=str(raw / "edge.csv.gz"))
    features = _table(raw / "node-feat.csv.gz", np.float32)
    labels = _table(raw / "node-label.csv.gz", np.float64)
    return edges.T, features, _classes(labels, raw)


def _read_packed(raw: Path) -> _Parts:
    labels = _member(raw / "node-label.npz", "node_label")
    return (
        _member(raw / "data.npz", "edge_index"),
        _member(raw / "data.npz", "node_feat"),
        _classes(np.asarray(labels), raw),
    )


def _classes(labels: NDArray[Any], raw: Path) -> NDArray[np.int32]:
    flat = labels.reshape(-1).astype(np.float64)
    flat = np.where(np.isnan(flat), -1, flat)
    wrong = (flat < -1) | (flat >= _MOST_CLASSES) | (np.trunc(flat) != flat)
    if wrong.any():
        vertex = int(np.argmax(wrong))
        problem = f"vertex {vertex} of {len(flat)} has label {flat[vertex]:g}, classes "
        raise DataError(problem + "count from 0", path=str(raw))
    return flat.astype(np.int32)


def _table(path: Path, dtype: Any) -> NDArray[Any]:
    try:
        with (
            warnings.catch_warnings(action="ignore"),  # it may be empty
            open_gzip(path) as packed,
            io.TextIOWrapper(packed, "ascii") as lines,
        ):
            return np.loadtxt(lines, dtype=dtype, delimiter=",", ndmin=2)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        said = getattr(error, "strerror", None) or error
        raise DataError(f"cannot be read: {said}", path=str(path)) from error


def _split(folder: Path, part: str, vertices: int) -> NDArray[np.int64]:
    path = sorted(folder.glob(f"split/*/{part}.csv.gz"))
    if not path:
        raise DataError(f"holds no split/*/{part}.csv.gz", path=str(folder))
    ids = _table(path[0], np.int64).reshape(-1)
    if len(ids) and not (ids.min() >= 0 and ids.max() < vertices):
        line = int(np.argmax((ids < 0) | (ids >= vertices)))
        raise DataError(
            f"line {line + 1} names vertex {ids[line]}, "
            f"there are only 0..{vertices - 1}",
            path=str(path[0]),
        )
    return np.unique(ids)


def _member(path: Path, name: str) -> NDArray[Any]:
    """Map a stored npz member; read a deflated one. np.load maps neither."""
    try:
        with open_input(path) as file:
            with zipfile.ZipFile(file) as archive:
                info = archive.getinfo(f"{name}.npy")
            if info.compress_type != zipfile.ZIP_STORED:
                return read_arrays(path, [name])[name]
            file.seek(info.header_offset)
            lengths = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
            file.seek(sum(lengths), 1)
            return map_member(file)
    except KeyError as error:
        raise DataError(f"holds no {name}", path=str(path)) from error
    except (OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"is damaged: {error}", path=str(path)) from error
