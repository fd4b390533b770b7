"""Seeded synthetic graphs that resemble the published ones at any scale.

A degree-corrected stochastic block model, drawn edge by edge: heavy-tailed degrees,
blocks for METIS to find, classes that neighbours share. Parameters were tuned to the
published homophily of ogbn-products (0.81) and ogbn-papers100M (0.57); METIS cut and
accuracy were not tuned to anything.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache

import numpy as np

from emu.array_types import Floats, Ints, Rows
from emu.errors import DataError
from emu.graph_data import raw_graph
from emu.graph_data.raw_graph import CHUNK, RawGraph, Source, build_structure
from emu.graph_data.sampling import bounds_of, rows_of
from emu.prediction.core import ffi, lib, pointer

_VERSION = 1  # of the generator; part of the cache key
_MAX_DENSITY = 0.1  # beyond it, topping up duplicate edges takes for ever
# Of a graph that is kept for those who ask for other parts, 40 MB.
_MOST_KEPT_EDGES = 5_000_000


@dataclass(frozen=True)
class Preset:
    """A published data set as the generator sees it."""

    vertices: int
    edges: int
    """Published vertices, and undirected edges as drawn, at scale 1."""
    feature_length: int
    classes: int
    split: tuple[int, int, int]
    """Published sizes of train, valid, test."""
    tail: float
    """Exponent of the degree distribution's tail."""
    in_block: float
    in_class: float
    """Share of edges that end in the block, or elsewhere in the class, of their source;
    the others end anywhere."""
    zipf: float
    """Exponent of the class sizes."""
    block: int
    """Vertices of a block, at every scale: METIS finds the same kind of cut."""
    signal: float
    """Length of a class mean against noise of deviation 1, per feature."""
    flip: float
    """Share of vertices whose label is redrawn."""


PRESETS = {
    "products-like": Preset(
        2_449_029, 61_859_140, 100, 47, (196_615, 39_323, 2_213_091),
        2.5, 0.78, 0.13, 1.0, 150, 0.09, 0.03,
    ),
    "reddit-like": Preset(
        232_965, 57_307_946, 602, 41, (153_431, 23_831, 55_703),
        2.5, 0.60, 0.27, 0.8, 1500, 0.04, 0.02,
    ),
    "papers100m-like": Preset(
        111_059_956, 1_615_685_872, 128, 172, (1_207_179, 125_265, 214_338),
        2.7, 0.46, 0.17, 0.8, 80, 0.20, 0.02,
    ),
}  # fmt: skip


def synthetic_source(name: str, *, scale: float, seed: int) -> Source:
    """Return a preset of `PRESETS` with ``scale`` times its vertices and edges.

    Raises DataError when the scale is not positive, or the graph would be dense.
    """
    preset = PRESETS[name]
    if not 0 < scale <= 1:
        raise DataError(f"{name}: scale is {scale}, it must be in (0, 1]")
    vertices = round(preset.vertices * scale)
    edges = round(preset.edges * scale)
    # Share of all pairs; it grows as the scale falls, which cuts vertices and edges
    # alike.
    pairs = max(vertices, 1) ** 2
    density = 2 * edges / pairs
    if vertices < preset.classes or density > _MAX_DENSITY:
        for_density = 2 * preset.edges / preset.vertices**2 / _MAX_DENSITY
        for_classes = preset.classes / preset.vertices
        # Rounded up, so that the scale which the message names is accepted.
        millionths = 1e6 * max(for_density, for_classes)
        least = math.ceil(millionths) / 1e6
        share_of_pairs = min(density, 1)
        raise DataError(
            f"{name}: at scale {scale} there are {vertices} vertices, and "
            f"{share_of_pairs:.0%} of their pairs are edges; write {least} or more"
        )
    # At least one each: a graph without a part could not be trained or judged.
    counts = [round(part * scale) for part in preset.split]
    train, valid, test = (max(1, count) for count in counts)
    rest = vertices - train - valid
    shares = (train, valid, min(test, rest))

    make = _generate_once if edges <= _MOST_KEPT_EDGES else _generate

    def generate() -> RawGraph:
        return make(
            preset,
            name=name,
            vertices=vertices,
            edges=edges,
            shares=shares,
            seed=seed,
        )

    fingerprint = f"synthetic {_VERSION} {asdict(preset)} {scale} {seed}"
    return Source(fingerprint, generate, train)


def _generate(
    preset: Preset,
    *,
    name: str,
    vertices: int,
    edges: int,
    shares: tuple[int, int, int],
    seed: int,
) -> RawGraph:
    """Return a graph with so many vertices and edges, and ``shares`` of its split."""
    # One stream per purpose: 1 edges, 2 means, 3 split, 4 noise. What one of them draws
    # does not shift the others.
    rng = np.random.default_rng([seed, 1])
    blocks = Blocks(preset, vertices)
    first, second = _draw_edges(
        preset,
        blocks=blocks,
        edges=edges,
        rng=rng,
    )
    ids = rng.permutation(vertices)  # the order of generation must not show
    of_vertex = np.empty(vertices, np.int64)
    of_vertex[ids] = np.arange(vertices)
    vertex_class = blocks.classes[of_vertex]
    vertex_block = blocks.blocks[of_vertex]

    # A few labels are wrong, as published ones are.
    labels = vertex_class.copy()
    is_redrawn = rng.random(vertices) < preset.flip
    count = np.count_nonzero(is_redrawn)
    labels[is_redrawn] = rng.integers(preset.classes, size=count)
    split_rng = np.random.default_rng([seed, 3])
    structure = build_structure(ids[first], ids[second], vertices=vertices, origin=name)
    train, valid, test = raw_graph.random_split(vertices, shares, split_rng)
    return RawGraph(
        structure=structure,
        labels=labels.astype(np.int32),
        train=train,
        valid=valid,
        test=test,
        classes=preset.classes,
        feature_length=preset.feature_length,
        rows=_feature_rows(
            preset,
            classes=vertex_class,
            blocks=vertex_block,
            seed=seed,
        ),
        origin=name,
    )


# The last graph that was made stays: a comparison of systems cuts it into a number of
# parts after the other, and drawing it takes longer than all else.
_generate_once = lru_cache(maxsize=1)(_generate)


class Blocks:
    """Classes and blocks; both are contiguous ranges of vertices."""

    def __init__(self, preset: Preset, vertices: int) -> None:
        rank = np.arange(1, preset.classes + 1, dtype=float)
        # Zipf's law: the class of rank r has a share of r to the minus zipf.
        share = rank**-preset.zipf
        shares = share / share.sum()
        ends = np.cumsum(shares) * vertices
        bounds = np.round([0, *ends])
        self.class_bounds = bounds.astype(np.int64)

        starts = []
        # Blocks lie within a class.
        for first, last in itertools.pairwise(self.class_bounds):
            size = last - first
            blocks_of_class = round(size / preset.block)
            count = max(1, blocks_of_class)
            offsets = np.arange(count) * size // count
            starts.append(first + offsets)
        last_end = np.array([vertices])
        starts.append(last_end)
        all_starts = np.concatenate(starts)
        # A class that is rounded to no vertex begins where the next does.
        self.block_bounds = np.unique(all_starts)

    @cached_property
    def classes(self) -> Ints:
        """Class of every vertex."""
        return rows_of(self.class_bounds)

    @cached_property
    def blocks(self) -> Ints:
        """Block of every vertex."""
        return rows_of(self.block_bounds)


def weigh_vertices(
    preset: Preset,
    vertices: int,
    edges: int,
    rng: np.random.Generator,
) -> Floats:
    """Return the weight by which each vertex is an end of edges."""
    exponent = -1 / (preset.tail - 1)
    # A Pareto law by inversion; 1 - random() is never 0, which would be infinite.
    weight = (1 - rng.random(vertices)) ** exponent
    degree = 2 * edges / vertices
    # sqrt(2 edges) is where two hubs would expect more than one edge, and none is drawn
    # twice; 0.2 of the vertices bounds a hub of a small graph.
    most_expected = min(0.2 * vertices, np.sqrt(vertices * degree))
    cap = most_expected / degree
    heaviest = cap * weight.mean()
    capped_weight: Floats = np.minimum(weight, heaviest)
    return capped_weight


def _draw_edges(
    preset: Preset,
    blocks: Blocks,
    edges: int,
    rng: np.random.Generator,
) -> tuple[Ints, Ints]:
    vertices = len(blocks.blocks)
    weights = weigh_vertices(
        preset,
        vertices=vertices,
        edges=edges,
        rng=rng,
    )
    prefix = bounds_of(weights)
    # Begin and end of the block, and of the class, of every vertex.
    begin_and_end = np.array([0, 1])
    block_places = blocks.blocks[:, None] + begin_and_end
    class_places = blocks.classes[:, None] + begin_and_end
    bounds_of_block = blocks.block_bounds[block_places]
    bounds_of_class = blocks.class_bounds[class_places]
    near = (preset.in_block, preset.in_block + preset.in_class)

    keys = np.empty(edges, np.int64)
    last_slot = max(2 * edges - 1, 15)  # half of the slots stay free
    slot_bits = last_slot.bit_length()
    slots = np.full(1 << slot_bits, -1, np.int64)
    draws = rng.bit_generator.ctypes
    next_double = ctypes.cast(draws.next_double, ctypes.c_void_p).value
    # The compiled code calls numpy's generator itself, past the lock that it would
    # take.
    with rng.bit_generator.lock:
        lib.drawn_keys(
            pointer(prefix),
            len(prefix) - 1,
            pointer(bounds_of_block),
            pointer(bounds_of_class),
            near,
            edges,
            ffi.cast("RandomDouble", next_double),
            ffi.cast("void *", draws.state_address),
            pointer(slots),
            len(slots),
            pointer(keys),
        )
    # A key is lower end * vertices + higher end.
    return keys // vertices, keys % vertices


def _feature_rows(
    preset: Preset,
    classes: Ints,
    blocks: Ints,
    seed: int,
) -> Callable[[int, int], Rows]:
    """Return what makes rows by chunks from the seed, the same in every process."""
    length = preset.feature_length
    rng = np.random.default_rng([seed, 2])
    count = int(blocks.max()) + 1
    of_class = rng.standard_normal((preset.classes, length), np.float32)
    of_block = rng.standard_normal((count, length), np.float32)
    class_mean = preset.signal * of_class
    block_mean = preset.signal / 2 * of_block

    def make(start: int, stop: int) -> Rows:
        last_chunk = -(-stop // CHUNK)
        chunks = range(start // CHUNK, last_chunk)
        pieces = []
        # Whole chunks, whatever rows are asked for: the noise of a row never depends on
        # it.
        for chunk in chunks:
            first = chunk * CHUNK
            members = slice(first, first + CHUNK)
            member_classes = classes[members]
            member_blocks = blocks[members]
            noise = np.random.default_rng([seed, 4, chunk])
            shape = (len(member_classes), length)
            rows = noise.standard_normal(shape, np.float32)
            rows += class_mean[member_classes]
            rows += block_mean[member_blocks]
            pieces.append(rows)

        offset = chunks.start * CHUNK
        made = np.concatenate(pieces)
        begin = start - offset
        end = stop - offset
        return made[begin:end]

    return make
