"""A whole graph in parts: local and remote vertices, normalised adjacency per part.

Systems that train on the whole graph hold one part per device or server. Rows of a part
are its local vertices in ascending order, then its remote ones: those that an edge
joins to a local vertex and another part owns. The structure is symmetric, so the
remote vertices of both directions are the same.

Parts with replicas: a box of devices computes for layer l of L all vertices that are L
- l edges or less from its own, and nothing crosses between boxes (Medusa's replication
in Cai et al., DGCL, EuroSys 2021, section 3; DGCL-R, section 7.1). Within a box the
device that has most of its neighbours computes a replica, and the others get it as any
remote vertex. All layers share the order of a part's vertices: its own, then replicas
by distance, so that what a layer computes begins what the next reads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from emu.array_types import Array, Floats, Ints, SmallInts
from emu.errors import DataError
from emu.graph_data.dataset import Dataset
from emu.graph_data.drawn_graph import DrawnGraph, narrow
from emu.graph_data.opened import open_for
from emu.graph_data.prepared import Facts, PreparedArrays, prepare_arrays, write_arrays
from emu.graph_data.sampling import Structure, bounds_of, rows_of

#: Weights of `Aggregation`; a job's model states one of them.
NORMS = ("mean", "symmetric", "sum")

#: Kinds of model whose aggregation takes in the vertex itself.
_WITH_LOOPS = {"gcn", "plain_gcn", "gin", "gat", "plain_gat"}


@dataclass(frozen=True)
class Aggregation:
    """Weights of the edges of an aggregation; degrees are those of the whole graph."""

    norm: str
    """Weight of edge u -> v: ``mean`` 1 / d(v); ``symmetric`` 1 / sqrt(d(u) d(v)) (Kipf
    and Welling, ICLR 2017, equation 2); ``sum`` 1."""
    loops: bool
    """Each vertex has an edge to itself, which counts in its degree."""

    def __post_init__(self) -> None:
        if self.norm not in NORMS:
            raise ValueError(f"no norm is called {self.norm}; {NORMS}")

    @property
    def form(self) -> str:
        """Word of it in names of files."""
        if self.loops:
            return f"{self.norm}-loops"
        return self.norm

    @classmethod
    def of_model(cls, model: Mapping[str, Any]) -> Aggregation:
        """Return the aggregation of a model of ``Job.settings``: its kind and norm."""
        has_loops = model["kind"] in _WITH_LOOPS
        return cls(norm=model["norm"], loops=has_loops)


@dataclass(frozen=True, eq=False)
class Adjacency:
    """A sparse matrix, compressed by rows."""

    indptr: Ints
    """int64, shape (rows + 1,)."""
    columns: SmallInts
    """int32, shape (entries,)."""
    weights: Floats
    """float64, shape (entries,)."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    def transpose(self, columns: int) -> Adjacency:
        """Return the transpose, each row ascending; it has ``columns`` rows."""
        # Stable: entries of one column keep the order of their rows.
        order = np.argsort(self.columns, kind="stable")
        numbers = np.arange(self.rows, dtype=np.int32)
        counts_of_rows = np.diff(self.indptr)
        rows = np.repeat(numbers, counts_of_rows)
        counts = np.bincount(self.columns, minlength=columns)
        return Adjacency(
            indptr=bounds_of(counts),
            columns=rows[order],
            weights=self.weights[order],
        )


def _no_vertices() -> Ints:
    return np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Part:
    """One part's vertices, and the rows of both directions of the adjacency."""

    local: Ints
    """Vertices that it computes: its own, ascending; then replicas, see `replicas`."""
    remote: Ints
    """Vertices that it needs of others, ascending."""
    owners: SmallInts
    """Part that owns each remote vertex."""
    forward: Adjacency
    """Rows of A of the local vertices; columns are positions in ``vertices``."""
    backward: Adjacency
    """Rows of A transposed of the local vertices; columns likewise."""
    held: Ints = field(default_factory=_no_vertices)
    """Further replicas, which it computed for this layer and computes no more."""

    @property
    def vertices(self) -> Ints:
        """Local vertices, then those it holds besides, then remote ones."""
        return np.concatenate([self.local, self.held, self.remote])

    @property
    def _rows_held(self) -> int:
        """Number of local vertices, and of those it holds besides."""
        return len(self.local) + len(self.held)

    @property
    def size(self) -> int:
        """Number of `vertices`."""
        return self._rows_held + len(self.remote)

    def count_crossing_edges(self) -> int:
        """Return the entries of `forward` whose source is a vertex of another part."""
        is_remote = self.forward.columns >= self._rows_held
        return int(is_remote.sum())

    def positions(self, vertices: Ints) -> Ints:
        """Return the rows of vertices among `vertices`, of a part without replicas.

        Raises ValueError when one of them is neither local nor remote.
        """
        count = len(self.local)
        place = np.searchsorted(self.local, vertices)
        # A vertex beyond the last local one has no place: it is held against the last,
        # and differs.
        last = count - 1
        nearest = np.minimum(place, last)
        is_local = self.local[nearest] == vertices

        remote_place = np.searchsorted(self.remote, vertices)
        rows = np.where(is_local, place, count + remote_place)
        # A vertex above all remote ones is beyond the end, where it cannot be compared.
        is_inside = rows < count + len(self.remote)
        is_there = is_inside.all() and (self.vertices[rows] == vertices).all()
        if not is_there:
            raise ValueError("a vertex is neither local nor remote here")
        return rows


@dataclass(frozen=True, eq=False)
class DrawnPart(Part):
    """A part of a drawn graph: its adjacency has a size, and no entries."""

    crossing_edges: int = field(kw_only=True)
    """Edges from vertices of other parts, estimated."""

    @override
    def count_crossing_edges(self) -> int:
        return self.crossing_edges


class WholeGraph:
    """All parts of a graph, each read when it is first asked for."""

    def __init__(
        self,
        vertices: int,
        parts: int,
        read: Callable[[int], Part],
    ) -> None:
        self.vertices = vertices
        self.parts = parts
        self._read = read

    def part(self, number: int) -> Part:
        """Return a part."""
        return self._read(number)

    def ghosts_of(self, owner: int, reader: int) -> Ints:
        """Return what ``reader`` needs of ``owner``, ascending: V_ij of DGCL (4.1)."""
        part = self.part(reader)
        is_owned = part.owners == owner
        return np.asarray(part.remote[is_owned])


def split_graph(
    structure: Structure,
    owner: SmallInts,
    parts: int,
    aggregation: Aggregation,
) -> Iterator[Part]:
    """Yield a graph in parts: all at once need not fit in memory.

    The structure is symmetric, without loops; a vertex has a part, shape (vertices,).
    Raises ValueError when there is not an owner per vertex, or one is no part,
    DataError when a part owns no vertex.
    """
    if len(owner) != structure.vertices:
        raise ValueError(f"{len(owner)} owners for {structure.vertices} vertices")
    if len(owner):
        lowest = owner.min()
        highest = owner.max()
        if lowest < 0 or highest >= parts:
            raise ValueError(f"owners reach from {lowest} to {highest} of {parts}")
    # A part without vertices would be a device that has no rows to compute or send.
    sizes = np.bincount(owner, minlength=parts)
    if not sizes.all():
        empty_part = int(np.argmin(sizes))
        raise DataError(
            f"part {empty_part} of {parts} owns no vertex of "
            f"{structure.vertices}: write fewer machines, or another partitioner"
        )

    # Ascending, which `Part.positions` searches by halves.
    for number in range(parts):
        local = np.flatnonzero(owner == number)
        yield part_of(
            structure,
            owner=owner,
            local=local,
            held=local[:0],
            aggregation=aggregation,
        )


def part_of(
    structure: Structure,
    owner: SmallInts,
    local: Ints,
    held: Ints,
    aggregation: Aggregation,
) -> Part:
    """Return the part that computes ``local``, holds ``held``, and gets the rest."""
    indptr, neighbours = structure.neighbours(local)
    own = np.concatenate([local, held])
    # -1 where the part has no row of a vertex.
    position = np.full(structure.vertices, -1, np.int32)
    position[own] = np.arange(len(own))
    # Sorted and distinct: what several edges need is sent once.
    is_missing = position[neighbours] < 0
    remote = np.unique(neighbours[is_missing])
    remote_numbers = np.arange(len(remote))
    position[remote] = len(own) + remote_numbers
    columns = position[neighbours]
    if aggregation.loops:  # first in its row
        loops = np.arange(len(local), dtype=np.int32)
        columns = np.insert(columns, indptr[:-1], loops)
        row_numbers = np.arange(len(indptr))
        indptr = indptr + row_numbers

    vertices = np.concatenate([own, remote])
    # Degrees of the whole graph: a part alone would see fewer edges and weigh them
    # otherwise than one device that has all.
    all_degrees = structure.degrees + aggregation.loops
    degrees = all_degrees[vertices]
    rows = rows_of(indptr)
    row_degree = degrees[rows]
    column_degree = degrees[columns]
    # Both directions have one weight, but for a mean: the degree of the destination's.
    if aggregation.norm == "mean":
        forward = 1.0 / row_degree
        backward = 1.0 / column_degree
    else:
        forward = np.ones(len(row_degree))
        backward = forward
    if aggregation.norm == "symmetric":
        # In place: backward is the same array, as this weight is symmetric.
        degree_product = row_degree.astype(np.float64) * column_degree
        forward /= np.sqrt(degree_product)
    return Part(
        local=local,
        remote=remote,
        owners=owner[remote],
        forward=Adjacency(indptr, columns, forward),
        backward=Adjacency(indptr, columns, backward),
        held=held,
    )


def open_whole_graph(dataset: Dataset, aggregation: Aggregation) -> WholeGraph:
    """Open the parts of a data set, prepared on first use and cached beside it.

    Raises DataError when a part owns no vertex, or the cached form is damaged.
    """
    parts = dataset.parts
    name = f"whole-{aggregation.form}"

    def split() -> Iterator[Part]:
        return split_graph(
            dataset.structure,
            owner=dataset.owner,
            parts=parts,
            aggregation=aggregation,
        )

    read = open_prepared(dataset, name, split)
    return WholeGraph(dataset.vertices, parts, read)


def open_prepared(
    dataset: Dataset,
    name: str,
    parts: Callable[[], Iterator[Part]],
) -> Callable[[int], Part]:
    """Return what reads parts by number, made once; raises as `open_whole_graph`."""

    def write(folder: Path) -> Facts:
        # Part by part: the iterator makes each when it is asked for.
        for number, part in enumerate(parts()):
            arrays = _arrays_of(part)
            files = {f"{name}_{number}": array for name, array in arrays.items()}
            write_arrays(folder, files)
        return {
            "vertices": dataset.vertices,
            "edges": dataset.edges,
            "whole": dataset.parts,
        }

    folder = dataset.folder.with_name(f"{dataset.folder.name}-{name}")
    part_arrays = prepare_arrays(folder, write)
    # Each is compared with its checksum when it is read: once is enough.
    read = functools.partial(_read_part, part_arrays)
    return functools.cache(read)


def _arrays_of(part: Part) -> dict[str, Array]:
    """Return the arrays of a part by their names in files."""
    arrays: dict[str, Array] = {
        "local": part.local,
        "remote": part.remote,
        "owners": part.owners,
        # Both directions have the same entries, and weights of their own.
        "indptr": part.forward.indptr,
        "columns": part.forward.columns,
        "forward": part.forward.weights,
        "backward": part.backward.weights,
    }

    # An empty array would be a further file for each part of any other job.
    if len(part.held):
        arrays["held"] = part.held
    return arrays


def _read_part(prepared: PreparedArrays, number: int) -> Part:
    def array(name: str) -> Array:
        return prepared.array(f"{name}_{number}")

    local = array("local")
    remote = array("remote")
    owners = array("owners")
    indptr = array("indptr")
    columns = array("columns")
    held = local[:0]
    if prepared.holds(f"held_{number}"):
        held = array("held")
    return Part(
        local=local,
        remote=remote,
        owners=owners,
        forward=Adjacency(indptr, columns, weights=array("forward")),
        backward=Adjacency(indptr, columns, weights=array("backward")),
        held=held,
    )


def open_parts(settings: Mapping[str, Any]) -> tuple[Dataset, WholeGraph]:
    """Open the data set and the parts of a whole-graph job from ``Job.settings``.

    Raises DataError, ValueError as `open_for` and `open_whole_graph`.
    """
    dataset = open_for(settings)
    aggregation = Aggregation.of_model(settings["model"])
    if isinstance(dataset, DrawnGraph):
        return dataset, _drawn_parts(dataset, aggregation)
    return dataset, open_whole_graph(dataset, aggregation)


def _drawn_parts(dataset: DrawnGraph, aggregation: Aggregation) -> WholeGraph:
    """Return the parts of a drawn graph."""

    @functools.lru_cache(maxsize=dataset.parts)
    def read(number: int) -> Part:
        local = dataset.members_of(number)
        bit = dataset.readers.dtype.type(1 << number)
        reads = np.flatnonzero(dataset.readers & bit)
        remote = narrow(reads)
        edges = dataset.drawn.count_edges(local)
        crossing_edges = round(edges * dataset.crossing_shares[number])
        edges += aggregation.loops * len(local)

        nothing = np.empty(0)
        adjacency = Adjacency(
            indptr=np.array([0, edges]),
            columns=nothing.astype(np.int32),
            weights=nothing,
        )
        return DrawnPart(
            local=local,
            remote=remote,
            owners=dataset.owner[remote],
            forward=adjacency,
            backward=adjacency,
            crossing_edges=crossing_edges,
        )

    return WholeGraph(dataset.vertices, dataset.parts, read)


def replicate_parts(
    structure: Structure,
    owner: SmallInts,
    boxes: Sequence[int],
    layers: int,
    aggregation: Aggregation,
) -> Iterator[Part]:
    """Yield the parts of layer 1, ..., ``layers`` of each device in turn.

    A vertex has a part, shape (vertices,); devices of a box are consecutive.
    """
    first = 0
    for size in boxes:
        devices = range(first, first + size)
        # Boxes are on their own: each has its replicas of what it needs, and sends
        # none.
        holder, distance = _hold_replicas(
            structure,
            owner=owner,
            devices=devices,
            layers=layers,
        )
        for device in devices:
            is_held = holder == device

            # Vertices by distance: each layer computes a shell fewer than the last.
            shells = []
            for hops in range(layers + 1):
                is_in_shell = is_held & (distance == hops)
                shells.append(np.flatnonzero(is_in_shell))
            # The first layer computes most: every later one reads what it leaves.
            for layer in range(1, layers + 1):
                hops = layers - layer
                local = np.concatenate(shells[: hops + 1])
                held = shells[hops + 1]
                yield part_of(
                    structure,
                    owner=holder,
                    local=local,
                    held=held,
                    aggregation=aggregation,
                )
        first += size


def _hold_replicas(
    structure: Structure,
    owner: SmallInts,
    devices: range,
    layers: int,
) -> tuple[SmallInts, SmallInts]:
    """Return the device of a box that has each vertex, and its distance; -1 beyond."""
    size = len(devices)
    is_inside = (owner >= devices.start) & (owner < devices.stop)
    nowhere = np.int32(-1)
    holder = np.where(is_inside, owner, nowhere)
    distance = np.where(is_inside, np.int32(0), nowhere)
    edge = np.flatnonzero(is_inside)

    # Breadth first: what a step finds gets its holder only after all of it is counted.
    for hops in range(1, layers + 1):
        indptr, neighbours = structure.neighbours(edge)
        counts = np.diff(indptr)
        device = np.repeat(holder[edge], counts) - devices.start
        is_new = holder[neighbours] < 0
        edge, row = np.unique(neighbours[is_new], return_inverse=True)
        # Of each new vertex the neighbours that every device of the box has.
        cells = row * size + device[is_new]
        cell_count = len(edge) * size
        links = np.bincount(cells, minlength=cell_count)
        links_by_device = links.reshape(len(edge), size)
        # Of devices with equally many the first: every process decides alike.
        holder[edge] = devices.start + links_by_device.argmax(axis=1)
        distance[edge] = hops
    return holder, distance


def open_layers(settings: Mapping[str, Any]) -> tuple[Dataset, tuple[WholeGraph, ...]]:
    """Open the data set and the parts of each layer of a job, from ``Job.settings``.

    ``replicas`` there are devices per box; where it is empty, or absent, nothing is
    replicated and all layers have the same parts. Raises as `open_parts`.
    """
    dataset, graph = open_parts(settings)
    layers = settings["model"]["layers"]
    boxes = settings.get("replicas", [])
    if boxes and isinstance(dataset, DrawnGraph):
        raise DataError("replicas follow edges that a drawn graph does not hold")
    # Without replicas all layers share one object, and its arrays are read once.
    if not boxes:
        return dataset, (graph,) * layers
    aggregation = Aggregation.of_model(settings["model"])
    structure = dataset.structure
    sizes = "-".join(map(str, boxes))
    name = f"whole-{aggregation.form}-{layers}-{sizes}"

    def replicate() -> Iterator[Part]:
        return replicate_parts(
            structure,
            owner=dataset.owner,
            boxes=boxes,
            layers=layers,
            aggregation=aggregation,
        )

    read = open_prepared(dataset, name, replicate)
    return dataset, graphs_by_layer(dataset, layers, read)


def graphs_by_layer(
    dataset: Dataset,
    layers: int,
    read: Callable[[int], Part],
) -> tuple[WholeGraph, ...]:
    """Return the parts of every layer; ``read`` has all layers of a device in a row."""

    def of_layer(layer: int) -> WholeGraph:
        def read_part(number: int) -> Part:
            return read(number * layers + layer)

        return WholeGraph(dataset.vertices, dataset.parts, read_part)

    graphs = [of_layer(layer) for layer in range(layers)]
    return tuple(graphs)
