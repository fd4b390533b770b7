"""A graph as it comes from its source, before it is partitioned and cached."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from emu.array_types import Array, Ints, Rows, SmallInts
from emu.errors import DataError
from emu.graph_data.sampling import Structure
from emu.prediction.core import lib, pointer


@dataclass(frozen=True, eq=False)
class RawGraph:
    """Structure, labels, split, and features that can be read in slices."""

    structure: Structure
    labels: SmallInts
    """int32, shape (vertices,); -1 where there is none."""
    train: Ints
    valid: Ints
    test: Ints
    """Distinct vertex ids, sorted; all empty where a split is yet to be drawn."""
    classes: int
    feature_length: int
    rows: Callable[[int, int], Rows]
    """``rows(start, stop)`` returns the features of these vertices, float32, shape
    (stop - start, feature_length); asked in slices of `CHUNK` rows."""
    origin: str
    """File or generator that the features come from, for messages."""
    owner: SmallInts | None = None
    """Part of every vertex, int32, where the graph comes partitioned."""
    edges_given: int = 0
    """Edges that the file has, self-loops and doubles among them."""
    self_loops: int = 0
    """Edges from a vertex to itself among them."""
    class_names: tuple[str, ...] = ()
    """Words of the classes, in order; empty where they are numbers."""

    @property
    def arrays(self) -> dict[str, Array]:
        """Structure, labels and split by their names in files."""
        return {
            **vars(self.structure),
            "labels": self.labels,
            "train": self.train,
            "valid": self.valid,
            "test": self.test,
        }

    def slices(self) -> Iterator[tuple[slice, Rows]]:
        """Yield features in slices of vertices; DataError at one that is not finite."""
        vertices = self.structure.vertices

        # Always the same slices: generated features are drawn by slice.
        for start in range(0, vertices, CHUNK):
            stop = min(start + CHUNK, vertices)
            rows = self.rows(start, stop)
            is_finite = np.isfinite(rows)
            if not is_finite.all():
                first_wrong = np.argwhere(~is_finite)[0]
                row, column = first_wrong
                vertex = start + row
                problem = (
                    f"feature {column} of vertex {vertex} is {rows[row, column]}: a "
                    "finite number that float32 holds is needed"
                )
                raise DataError(problem, path=self.origin)
            yield slice(start, stop), rows

    def __post_init__(self) -> None:
        """Refuse sizes that models are made of and that no file can bear out.

        Raises DataError when there are more classes than vertices.
        """
        if self.classes > len(self.labels):
            problem = f"{self.classes} classes of {len(self.labels)} vertices: one "
            raise DataError(f"{problem}label is too large", path=self.origin)


@dataclass(frozen=True)
class Source:
    """Origin of a graph."""

    fingerprint: str
    """Changes whenever the content may have changed."""
    load: Callable[[], RawGraph]
    """Reads or generates the graph."""
    train: int | None = None
    """Training vertices, where their number is known without that."""


#: Feature rows are read, generated and written in slices of so many vertices.
CHUNK = 4096
#: Edges that are compared at once: they may be mapped, and need not fit in memory.
_STEP = 1 << 24


def count_loops(sources: Array, destinations: Array) -> int:
    """Return the number of edges from a vertex to itself."""
    loops = 0
    for begin in range(0, len(sources), _STEP):
        part = slice(begin, begin + _STEP)
        is_loop = sources[part] == destinations[part]
        loops += int(is_loop.sum())
    return loops


def build_structure(
    sources: Array,
    destinations: Array,
    *,
    vertices: int,
    origin: str,
) -> Structure:
    """Compress edges and their reverses by destination, without loops and duplicates.

    ``origin`` is the file that the edges come from. Raises DataError, which names the
    edge, when one names a vertex that does not exist, or ends are not two lists of one
    length.
    """
    if not sources.shape == destinations.shape == (sources.size,):
        problem = f"edges have ends of shapes {sources.shape} and {destinations.shape}"
        raise DataError(f"{problem}: two lists of one length are needed", path=origin)
    for ends in (sources, destinations):
        _check_ends(ends, vertices, origin)

    is_small = vertices <= np.iinfo(np.int32).max
    # Half the memory, for all but the largest graphs.
    indices_type = np.int32 if is_small else np.int64
    indices = np.empty(2 * len(sources), indices_type)
    # The compiled code reads both lists in one width; others are converted.
    are_narrow = sources.dtype == destinations.dtype == np.int32
    ends_type = np.int32 if are_narrow else np.int64
    # Both directions of every edge; loops and duplicates are cut off at the end.
    indptr = np.zeros(vertices + 1, np.int64)
    from_lists = np.ascontiguousarray(sources, ends_type)
    to_lists = np.ascontiguousarray(destinations, ends_type)
    counts = np.zeros_like(indptr)
    cursors = np.empty_like(indptr)  # one for each vertex
    lib.compressed(
        pointer(from_lists),
        pointer(to_lists),
        not are_narrow,
        len(sources),
        vertices,
        pointer(counts),
        pointer(cursors),
        pointer(indices),
        not is_small,
        pointer(indptr),
    )
    edges = indptr[-1]
    return Structure(indptr, indices[:edges])


def _check_ends(ends: Array, vertices: int, origin: str) -> None:
    """Refuse ends of edges that are no vertices; the error names the first edge."""
    for begin in range(0, len(ends), _STEP):
        stop = begin + _STEP
        part = np.asarray(ends[begin:stop])
        is_wrong = (part < 0) | (part >= vertices)
        if is_wrong.any():
            place = int(np.argmax(is_wrong))
            edge = begin + place
            last = vertices - 1
            problem = (
                f"edge {edge} names vertex {part[place]}, there are only 0..{last}"
            )
            raise DataError(problem, path=origin)


def random_split(
    vertices: int,
    shares: tuple[int, int, int],
    rng: np.random.Generator,
) -> tuple[Ints, Ints, Ints]:
    """Return sorted train, valid and test ids, ``shares`` of each."""
    # Shares may leave some over: most vertices of papers100M are in no part.
    order = rng.permutation(vertices)
    cuts = np.cumsum(shares)
    train, valid, test, _ = np.split(order, cuts)
    return np.sort(train), np.sort(valid), np.sort(test)


def split_at_random(graph: RawGraph, seed: int) -> RawGraph:
    """Return a graph with its split, or with 60, 20 and 20 % of what has a label."""
    # A split that the file states always wins over one that is drawn.
    if len(graph.train):
        return graph

    has_label = graph.labels >= 0
    vertices = np.flatnonzero(has_label)
    count = len(vertices)
    train = int(0.6 * count)
    valid = int(0.2 * count)
    # The last part takes what rounding leaves: every labelled vertex is in one.
    rest = count - train - valid
    shares = (train, valid, rest)
    rng = np.random.default_rng([seed, 3])
    parts = random_split(count, shares, rng)
    train_ids, valid_ids, test_ids = (vertices[part] for part in parts)
    return replace(graph, train=train_ids, valid=valid_ids, test=test_ids)
