"""A partitioned data set, mapped from the cache: what every process of a job opens."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from emu.array_types import Ints, Rows, SmallInts
from emu.errors import DataError
from emu.graph_data import prepared
from emu.graph_data.raw_graph import CHUNK, RawGraph
from emu.graph_data.readers.split_arrays import check_labels
from emu.graph_data.sampling import Structure, bounds_of
from emu.graph_data.sources import find_source
from emu.host.files import cache_home, scratch_folder
from emu.host.foreign_code import import_library
from emu.host.stream_key import stream_key
from emu.names import file_part

#: The parts that a graph was imported with; nothing is to be computed.
AS_IMPORTED = "imported"


def partition(
    structure: Structure,
    parts: int,
    partitioner: str,
    *,
    seed: int = 0,
    boxes: Sequence[int] = (),
) -> SmallInts:
    """Assign every vertex to one of ``parts`` stores; returns int32, (vertices,).

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

    Raises
    ------
    ValueError
        When the partitioner is unknown, or boxes do not hold the parts.
    DataError
        When dgl is needed and not installed.
    """
    # A single store needs neither METIS nor dgl to be installed.
    if parts == 1:
        return np.zeros(structure.vertices, np.int32)
    if partitioner == "metis":
        return _metis(structure, parts)
    if partitioner == "metis-dgl":
        return _metis_of_dgl(structure, parts)
    if partitioner == "hierarchical":
        has_room = sum(boxes) == parts and min(boxes) >= 1
        if not has_room:
            raise ValueError(f"boxes {[*boxes]} do not hold {parts} parts")
        return _metis_by_box(structure, boxes)

    if partitioner != "hash":
        raise ValueError(f"no partitioner is called {partitioner}")
    return hash_parts(structure.vertices, parts, seed)


def hash_parts(vertices: int, parts: int, seed: int) -> SmallInts:
    """Return the parts by the finaliser of MurmurHash3, of vertex plus seed."""
    shift = np.uint64(33)
    # Unsigned numbers wrap around.
    keys = np.arange(vertices, dtype=np.uint64)
    keys += stream_key(seed)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        keys ^= keys >> shift
        keys *= np.uint64(factor)
    keys >>= shift
    owner = keys % np.uint64(parts)
    return owner.astype(np.int32)


def _metis(
    structure: Structure,
    parts: int,
    shares: list[float] | None = None,
) -> SmallInts:
    import pymetis  # noqa: PLC0415 - only what is prepared for the first time needs it

    indptr = structure.indptr.astype(np.int64)
    indices = structure.indices.astype(np.int64)
    graph = pymetis.CSRAdjacency(indptr, indices)
    # Recursive bisection cuts up to 23 % fewer edges than k-way, in as much time.
    cut = pymetis.part_graph(parts, graph, tpwgts=shares, recursive=True)
    return np.array(cut.vertex_part, np.int32)


def _metis_by_box(structure: Structure, boxes: Sequence[int]) -> SmallInts:
    box = np.zeros(structure.vertices, np.int32)
    if len(boxes) > 1:
        # METIS is told the shares: boxes of unequal size get as unequal parts.
        total = sum(boxes)
        shares = [size / total for size in boxes]
        box = _metis(structure, len(boxes), shares)

    owner = np.zeros(structure.vertices, np.int32)
    first = 0
    for number, size in enumerate(boxes):
        members = np.flatnonzero(box == number)
        owner[members] = first
        # METIS may leave a box empty, and cannot cut a graph without vertices.
        if size > 1 and len(members):
            inside = _induced(structure, members)
            owner[members] += _metis(inside, size)
        first += size
    return owner


def _induced(structure: Structure, members: Ints) -> Structure:
    """Return the edges between some vertices, which are numbered anew."""
    position = np.full(structure.vertices, -1, np.int64)
    numbers = np.arange(len(members))
    position[members] = numbers
    indptr, neighbours = structure.neighbours(members)
    places = position[neighbours]
    is_inside = places >= 0
    # Edges kept before a row are where it begins in what is left.
    kept_before = bounds_of(is_inside)
    starts = kept_before[indptr]
    return Structure(starts, places[is_inside])


def _metis_of_dgl(structure: Structure, parts: int) -> SmallInts:
    without = "it has wheels up to Python 3.11; partitioner: metis does without"
    dgl = import_library("dgl", "partitioner: metis-dgl", without)
    import torch

    wide_indices = structure.indices.astype(np.int64)
    own_indptr = np.array(structure.indptr)
    indptr = torch.from_numpy(own_indptr)
    indices = torch.from_numpy(wide_indices)
    edge_ids = torch.empty(0, dtype=torch.int64)  # edges are in order
    arrays = (indptr, indices, edge_ids)
    graph = dgl.graph(("csc", arrays))
    # METIS keeps its stack in files "metis<pid>.<n>" of the working directory, which a
    # kill would leave there, and an unwritable one would stop it.
    with scratch_folder("metis") as scratch, contextlib.chdir(scratch), _silence():
        owner: Any = dgl.metis_partition_assignment(graph, parts)
    vertex_parts: SmallInts = owner.numpy().astype(np.int32)
    return vertex_parts


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep quiet what dgl prints of its timings, in Python and, by C++, on stderr."""
    sys.stderr.flush()
    copy = os.dup(2)
    nothing = os.open(os.devnull, os.O_WRONLY)

    try:
        os.dup2(nothing, 2)
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            # It also leaves /proc/self/status open for the collector.
            warnings.simplefilter("ignore", ResourceWarning)
            yield
    finally:
        os.dup2(copy, 2)
        os.close(copy)
        os.close(nothing)


_LAYOUT = 2  # of the prepared form and its parts; in the cache key


# Names and values of the fields are in the cache key: to rename one makes every
# prepared form anew.
@dataclass(frozen=True)
class DatasetSpec:
    """Settings that identify a prepared data set, apart from the source's content."""

    name: str
    scale: float = 1.0
    seed: int = 0
    normalise: bool = False
    partitioner: str = "metis"
    parts: int = 1
    boxes: tuple[int, ...] = ()


def _map_once(name: str) -> Any:
    """Return a property of a data set: an array that is mapped once."""
    return cached_property(lambda self: self._prepared.array(name))


class Dataset:
    """Structure, labels, split and partitioned features of one graph.

    Every array is checked and mapped when it is first asked for. ``feature_length``
    stands for the columns that are there: the first so many of them, or all repeated
    until there are so many, as the paper of P3 varies them.
    """

    def __init__(
        self, arrays: prepared.PreparedArrays, feature_length: int | None = None
    ) -> None:
        self._prepared = arrays
        facts = arrays.facts
        self.folder = arrays.folder
        """Directory of the prepared form."""
        self.vertices: int = facts["vertices"]
        self.edges: int = facts["edges"]
        self.classes: int = facts["classes"]
        # Columns on disk; `feature_length` may be more or fewer than these.
        self._columns: int = facts["feature_length"]
        self.feature_length = feature_length or self._columns
        self.parts: int = facts["parts"]
        self.train_count: int = facts["train"]

        self._features: dict[int, Rows] = {}
        self._looks: list[Rows] = []

    # The feature length does not count: what is cached by data set (samples, intervals,
    # shares) depends on graph and parts alone.
    @override
    def __eq__(self, other: object) -> bool:
        """Return True where graph and parts are the same: folders go by content."""
        if not isinstance(other, Dataset):
            return False
        return self.folder == other.folder

    @override
    def __hash__(self) -> int:
        """Return the hash of the folder."""
        return hash(self.folder)

    @cached_property
    def graph(self) -> tuple[int, ...]:
        """Sizes and checksums of edges and split, equal for all partitions."""
        names = ("indptr", "indices", "train")
        checksums = [self._prepared.checksum_of(name) for name in names]
        return (self.vertices, self.edges, self.train_count, *checksums)

    @cached_property
    def structure(self) -> Structure:
        """In-neighbours of every vertex."""
        array = self._prepared.array
        indptr = array("indptr")
        indices = array("indices")
        return Structure(indptr, indices)

    labels: SmallInts = _map_once("labels")
    """Class of every vertex, -1 where unknown."""
    owner: SmallInts = _map_once("owner")
    """Partition of every vertex."""
    local: Ints = _map_once("local")
    """Row of every vertex within its partition's features."""
    train: Ints = _map_once("train")
    """Training vertices, sorted; likewise the others."""
    valid: Ints = _map_once("valid")
    test: Ints = _map_once("test")

    def features(self, part: int) -> Rows:
        """Map the features of one partition, float32, shape (owned, feature_length)."""
        if part not in self._features:
            rows = self._prepared.array(f"features_{part}")
            self._features[part] = self._convert(rows)
        return self._features[part]

    def _convert(self, rows: Rows) -> Rows:
        # A view of the mapped file; only the repeated columns below are copied.
        if self.feature_length <= self._columns:
            return rows[:, : self.feature_length]
        numbers = np.arange(self.feature_length)
        columns = numbers % self._columns
        return rows[:, columns]

    def look_at(self, vertices: Ints) -> Rows:
        """Return features of a few vertices, past the checksums of whole partitions."""
        # A few rows do not justify reading whole partitions for their checksums.
        if not self._looks:
            parts = range(self.parts)
            names = [f"features_{part}" for part in parts]
            self._looks = [self._prepared.map_unchecked(name) for name in names]
        owners = self.owner[vertices]
        rows_of_owners = self.local[vertices]
        places = zip(owners, rows_of_owners, strict=True)
        found_rows = [self._looks[part][row] for part, row in places]
        rows = np.array(found_rows, np.float32)
        rows = rows.reshape(-1, self._columns)
        return self._convert(rows)

    def gather(self, vertices: Ints) -> Rows:
        """Copy the features of any vertices, from every partition that owns one."""
        shape = (len(vertices), self.feature_length)
        rows = np.empty(shape, np.float32)
        owners = self.owner[vertices]
        # Every partition is mapped at most once.
        for part in range(self.parts):
            is_owned = owners == part
            owned_vertices = vertices[is_owned]
            owned_rows = self.local[owned_vertices]
            features = self.features(part)
            rows[is_owned] = features[owned_rows]
        return rows


def open_dataset(
    name: str,
    *,
    scale: float = 1.0,
    seed: int = 0,
    normalise: bool = False,
    partitioner: str = "metis",
    parts: int = 1,
    boxes: Sequence[int] = (),
    root: str = "",
    split: int | None = None,
    feature_length: int | None = None,
) -> Dataset:
    """Open a data set, prepared on first use and cached by content.

    Parameters
    ----------
    name
        A synthetic preset (``products-like``, ...), an OGB name, the folder of an npz
        graph, or what `import_graph` has called one.
    scale
        Share of the published vertices; synthetic presets only.
    seed
        Seed of generator, random split and hash partition.
    normalise
        Scale every feature row to L2 length 1.
    partitioner, parts, boxes
        See `partition`, which raises ValueError for them.
    root
        Folder of the data files, instead of the one in ``EMU_DATA``.
    split
        Number of one of several splits that an npz file holds.
    feature_length
        As of `Dataset`; nothing is prepared anew for it.

    Raises DataError when the data is missing, damaged, or wrong (NaN, vertex out of
    range).
    """
    spec = DatasetSpec(
        name=name,
        scale=scale,
        seed=seed,
        normalise=normalise,
        partitioner=partitioner,
        parts=parts,
        boxes=tuple(boxes),
    )
    fields = dict(vars(spec))
    if not boxes:  # as before there were any: what is cached stays
        del fields["boxes"]
    source = find_source(name, scale=scale, seed=seed, root=root, split=split)

    settings = sorted(fields.items())
    # The source's fingerprint makes a changed file a new folder: none that is in use is
    # written again.
    content = f"{_LAYOUT} {settings} {source.fingerprint}"
    digest = hashlib.sha256(content.encode())
    key = digest.hexdigest()[:16]
    prepared_folder = cache_home() / "prepared"
    folder = prepared_folder / f"{file_part(name)}-{key}"

    def build(partial: Path) -> prepared.Facts:
        graph = source.load()
        return _write(partial, graph, spec)

    arrays = prepared.prepare_arrays(folder, build)
    return Dataset(arrays, feature_length)


def _write(
    folder: Path,
    graph: RawGraph,
    spec: DatasetSpec,
) -> prepared.Facts:
    # Readers refuse such parts, but what emu 0.1.0 has imported may have them. Refused
    # before the graph is cut, which takes far longer.
    parts = {"train": graph.train, "valid": graph.valid, "test": graph.test}
    check_labels(parts, graph.labels, graph.origin)

    owner = _assign_parts(graph, spec)
    # Rows of a part keep the order of its vertices, as `by_part` writes them.
    local = np.empty(len(owner), np.int64)
    shapes = {}
    for part in range(spec.parts):
        is_member = owner == part
        count = int(np.count_nonzero(is_member))
        local[is_member] = np.arange(count)
        shapes[f"features_{part}"] = (count, graph.feature_length)
    arrays = {**graph.arrays, "owner": owner, "local": local}
    prepared.write_arrays(folder, arrays)

    # One slice is in memory at a time: features of papers100M are larger than that.
    def by_part() -> Iterator[list[Rows]]:
        smallest = np.finfo(np.float32).tiny
        for vertices, read in graph.slices():
            rows = read
            if spec.normalise:
                length = np.linalg.norm(rows, axis=1, keepdims=True)
                # A row of zeros stays one.
                rows = rows / np.maximum(length, smallest)
            owners = owner[vertices]
            parts = range(spec.parts)
            yield [rows[owners == part] for part in parts]

    prepared.write_rows(folder, shapes, by_part())
    return {
        **asdict(spec),
        "vertices": graph.structure.vertices,
        "edges": len(graph.structure.indices),
        "classes": graph.classes,
        "feature_length": graph.feature_length,
        "train": len(graph.train),
    }


def _assign_parts(graph: RawGraph, spec: DatasetSpec) -> SmallInts:
    """Return the part of every vertex."""
    if spec.partitioner != AS_IMPORTED:
        return partition(
            graph.structure,
            spec.parts,
            spec.partitioner,
            seed=spec.seed,
            boxes=spec.boxes,
        )

    if graph.owner is None:
        raise DataError(
            f"partitioner: {AS_IMPORTED} needs a graph that was imported with its "
            "parts (a DistDGL folder)",
            path=graph.origin,
        )
    # A DistDGL folder fixes the number of parts; a job cannot have another.
    last_part = int(graph.owner.max())
    parts = last_part + 1
    if parts != spec.parts:
        problem = f"was imported in {parts} parts, the job has {spec.parts} graph "
        raise DataError(f"{problem}stores, one per machine", path=graph.origin)
    return graph.owner


def open_columns(dataset: Dataset, blocks: Sequence[int]) -> prepared.PreparedArrays:
    """Open the columns of a data set, cut into blocks on first use and cached.

    Arrays ``columns_0``, ... are float32, shape (vertices, columns of the block), each
    checked when it is read. Raises DataError when they are damaged or cannot be
    written.
    """
    # The folder's name has the content of the data set already: the key adds the blocks
    # alone.
    words = repr(list(blocks))
    digest = hashlib.sha256(words.encode())
    key = digest.hexdigest()[:8]

    def write(folder: Path) -> prepared.Facts:
        vertices = dataset.vertices
        cuts = np.cumsum(blocks)[:-1]

        # Vertices in their own order again, whichever partition has them.
        def slices() -> Iterator[list[Rows]]:
            for start in range(0, vertices, CHUNK):
                stop = min(start + CHUNK, vertices)
                chunk = np.arange(start, stop)
                rows = dataset.gather(chunk)
                yield np.split(rows, cuts, axis=1)

        shapes = {}
        for number, size in enumerate(blocks):
            shapes[f"columns_{number}"] = (vertices, size)
        prepared.write_rows(folder, shapes, slices())
        return {"vertices": vertices, "blocks": list(blocks)}

    name = f"{dataset.folder.name}-columns-{key}"
    folder = dataset.folder.with_name(name)
    return prepared.prepare_arrays(folder, write)
