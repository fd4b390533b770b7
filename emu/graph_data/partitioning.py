"""Partition a graph: every vertex belongs to one graph store."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.files import scratch_folder
from emu.foreign_code import import_library
from emu.stream_key import stream_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from emu.graph_data.sampling import Structure

PARTITIONERS = ("metis", "metis-dgl", "hash", "hierarchical")
#: The parts that a graph was imported with; nothing is to be computed.
AS_IMPORTED = "imported"


def partition(
    structure: Structure,
    parts: int,
    partitioner: str,
    *,
    seed: int = 0,
    boxes: Sequence[int] = (),
) -> NDArray[np.int32]:
    """Assign every vertex to one of ``parts`` stores.

    Parameters
    ----------
    structure
        Symmetric.
    partitioner
        ``metis``: few edges between parts of equal size, by recursive bisection;
        ``metis-dgl``: the partitions of dgl (METIS, k-way), which differ in one call
        of 14; ``hash``: by a hash of the vertex, as P3 does; ``hierarchical``: METIS
        between boxes, then within each (DGCL, section 6).
    seed
        Seed of the hash. METIS always starts from its own fixed seed.
    boxes
        Parts of each box, for ``hierarchical``: those of a box are consecutive.

    Returns
    -------
    owner
        int32, shape (vertices,).

    Raises
    ------
    ValueError
        When the partitioner is unknown, there are no parts, or boxes do not hold them.
    DataError
        When dgl is needed and not installed.
    """
    if partitioner not in PARTITIONERS:
        raise ValueError(f"no partitioner is called {partitioner}; {PARTITIONERS}")
    if parts < 1:
        raise ValueError(f"{parts} parts cannot hold a graph")
    if partitioner == "hierarchical" and (
        sum(boxes) != parts or min(boxes, default=0) < 1
    ):
        raise ValueError(f"boxes {[*boxes]} do not hold {parts} parts")
    if parts == 1:
        return np.zeros(structure.vertices, np.int32)
    if partitioner == "metis":
        return _metis(structure, parts)
    if partitioner == "metis-dgl":
        return _metis_of_dgl(structure, parts)
    if partitioner == "hierarchical":
        return _metis_by_box(structure, boxes)
    mixed = np.arange(structure.vertices, dtype=np.uint64) + stream_key(seed)
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return ((mixed >> np.uint64(33)) % np.uint64(parts)).astype(np.int32)


def _metis(
    structure: Structure, parts: int, shares: list[float] | None = None
) -> NDArray[np.int32]:
    import pymetis  # noqa: PLC0415 - only what is prepared for the first time needs it

    graph = pymetis.CSRAdjacency(
        structure.indptr.astype(np.int64), structure.indices.astype(np.int64)
    )
    # Recursive bisection cuts up to 23 % fewer edges than k-way, in as much time.
    found = pymetis.part_graph(parts, graph, tpwgts=shares, recursive=True)
    return np.array(found.vertex_part, np.int32)


def _metis_by_box(structure: Structure, boxes: Sequence[int]) -> NDArray[np.int32]:
    box = np.zeros(structure.vertices, np.int32)
    if len(boxes) > 1:
        box = _metis(structure, len(boxes), [size / sum(boxes) for size in boxes])
    owner, first = np.zeros(structure.vertices, np.int32), 0
    for number, size in enumerate(boxes):
        members = np.flatnonzero(box == number)
        owner[members] = first
        if size > 1 and len(members):
            owner[members] += _metis(_induced(structure, members), size)
        first += size
    return owner


def _induced(structure: Structure, members: NDArray[np.int64]) -> Structure:
    """Return the edges between some vertices, which are numbered anew in order."""
    position = np.full(structure.vertices, -1, np.int64)
    position[members] = np.arange(len(members))
    ends = np.repeat(position, np.diff(structure.indptr))
    starts = position[structure.indices]
    inside = (ends >= 0) & (starts >= 0)
    counts = np.bincount(ends[inside], minlength=len(members))
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return type(structure)(indptr, starts[inside])


def _metis_of_dgl(structure: Structure, parts: int) -> NDArray[np.int32]:
    without = "it has wheels up to Python 3.11; partitioner: metis does without"
    dgl = import_library("dgl", "partitioner: metis-dgl", without)
    import torch

    indptr = torch.from_numpy(np.array(structure.indptr))
    indices = torch.from_numpy(structure.indices.astype(np.int64))
    graph = dgl.graph(("csc", (indptr, indices, torch.empty(0, dtype=torch.int64))))
    # METIS keeps its stack in files "metis<pid>.<n>" of the working directory, which a
    # kill would leave there, and an unwritable one would stop it.
    with (
        scratch_folder("metis") as scratch,
        contextlib.chdir(scratch),
        _silence(),
    ):
        owner: Any = dgl.metis_partition_assignment(graph, parts)
    assigned: NDArray[np.int32] = owner.numpy().astype(np.int32)
    return assigned


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep quiet what dgl prints of its timings, in Python and, by C++, on stderr."""
    sys.stderr.flush()
    kept = os.dup(2)
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            # It also leaves /proc/self/status open for the collector.
            warnings.simplefilter("ignore", ResourceWarning)
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)
