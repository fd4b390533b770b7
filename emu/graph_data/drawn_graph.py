"""Made-up graphs at their published size, counted by drawing and held by nobody.

The generator (`emu.graph_data.synthetic_graph`) draws each end of an edge by weight:
within the block of the other end, its class, or anywhere. Here the neighbours of a
vertex are drawn so when they are asked for, always the same ones, by a hash of seed,
vertex and number of the draw. Batches and readers have the sizes that they have in the
generated graph; what has no size, as features and labels, is not there.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Any

import numpy as np
from typing_extensions import override

from emu.errors import DataError
from emu.graph_data.array_types import Array, Floats, Ints, SmallInts
from emu.graph_data.dataset import Dataset, hash_parts
from emu.graph_data.sampling import Ids, Positions, Structure, bounds_of
from emu.graph_data.synthetic_graph import PRESETS, Blocks, Preset, weigh_vertices
from emu.host.files import cache_home
from emu.host.stream_key import stream_key

#: Draws of a vertex over what it needs on average, so that enough of them count.
_SPARE = 2.5
#: Draws by which repeated ones are made up for, and those that tell who reads whom.
_SAMPLE_DRAWS = 500_000
_READER_DRAWS = 4_000_000
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIXERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def _uniform(key: np.uint64, *numbers: Array) -> Floats:
    """Return numbers in [0, 1), hashes of integers (the finaliser of splitmix64)."""
    state = np.full(len(numbers[0]), key, np.uint64)
    for number in numbers:
        state = (state ^ number.astype(np.uint64)) * _STEP
        state = (state ^ (state >> np.uint64(30))) * _MIXERS[0]
        state = (state ^ (state >> np.uint64(27))) * _MIXERS[1]
        state ^= state >> np.uint64(31)
    fraction: Floats = (state >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return fraction


@dataclass(frozen=True, eq=False)
class DrawnStructure(Structure):
    """Neighbours that are drawn when they are asked for."""

    preset: Preset
    blocks: Blocks
    """Blocks and classes, ranges of vertices."""
    prefix: Floats
    """Sum of the weights of all vertices before each, and of all."""
    key: np.uint64
    """Key of all draws."""
    edges: int
    """Edges in both directions."""
    repeats: float = 1.0
    """Draws per edge: those that repeat another of their vertex are one edge."""

    @property
    @override
    def vertices(self) -> int:
        return len(self.prefix) - 1

    @property
    @override
    def degrees(self) -> Ids:
        """Number of neighbours that every vertex has on average, rounded."""
        shares = np.diff(self.prefix) / self.prefix[-1]
        counts: Ids = np.rint(shares * self.edges).astype(np.int64)
        return counts

    def draws_of(self, vertices: Ids) -> Ids:
        """Return how many neighbours are drawn of each vertex, repeated ones too."""
        weights = self.prefix[vertices + 1] - self.prefix[vertices]
        draws = weights / self.prefix[-1] * self.edges * self.repeats
        counts: Ids = np.floor(draws + _uniform(self.key, vertices)).astype(np.int64)
        return counts

    def _targets(self, vertices: Ids, numbers: Ids) -> Ids:
        """Return what the draw of each number of each vertex leads to."""
        choice = _uniform(self.key, vertices, numbers * 2 + 1)
        place = _uniform(self.key, vertices, numbers * 2 + 2)
        low = np.zeros(len(vertices))
        high = np.full(len(vertices), self.prefix[-1])
        near = self.preset.in_block
        shares = (near, near + self.preset.in_class)
        is_near = choice < near
        is_alike = ~is_near & (choice < shares[1])
        for chosen, bounds in (
            (is_near, self.blocks.block_bounds),
            (is_alike, self.blocks.class_bounds),
        ):
            group = np.searchsorted(bounds, vertices[chosen], "right") - 1
            low[chosen] = self.prefix[bounds[group]]
            high[chosen] = self.prefix[bounds[group + 1]]
        weight = low + place * (high - low)
        found = np.searchsorted(self.prefix, weight, "right") - 1
        return np.minimum(found, self.vertices - 1)

    def _share(self, vertices: Ids, targets: Ids) -> Floats:
        """Return the share of each vertex's draws that lead to its target."""
        weights = self.prefix[targets + 1] - self.prefix[targets]
        near = self.preset.in_block
        alike = self.preset.in_class
        shares = np.full(len(targets), (1 - near - alike) / self.prefix[-1])
        for part, bounds in (
            (near, self.blocks.block_bounds),
            (alike, self.blocks.class_bounds),
        ):
            group = np.searchsorted(bounds, vertices, "right") - 1
            begin = bounds[group]
            end = bounds[group + 1]
            is_inside = (begin <= targets) & (targets < end)
            of_group = part / (self.prefix[end] - self.prefix[begin])
            shares += np.where(is_inside, of_group, 0.0)
        return shares * weights

    @override
    def neighbours(self, vertices: Ids) -> tuple[Ids, Ids]:
        counts = self.draws_of(vertices)
        rows = np.repeat(np.arange(len(vertices)), counts)
        starts = bounds_of(counts)[:-1]
        numbers = np.arange(len(rows)) - np.repeat(starts, counts)
        targets = self._targets(vertices[rows], numbers)
        rows, targets = self._differ(vertices, rows, targets)
        return bounds_of(np.bincount(rows, minlength=len(vertices))), targets

    def _differ(self, vertices: Ids, rows: Ids, targets: Ids) -> tuple[Ids, Ids]:
        """Return each neighbour of a row once, the first draw of it, without loops."""
        is_edge = targets != vertices[rows]
        rows = rows[is_edge]
        targets = targets[is_edge]
        _, first = np.unique(rows * self.vertices + targets, return_index=True)
        first.sort()
        return rows[first], targets[first]

    @override
    def draw(self, frontier: Ids, fanout: int, key: np.uint64) -> tuple[Ids, Positions]:
        """Return at most ``fanout`` neighbours of each vertex, and whose they are."""
        counts = self.draws_of(frontier)
        most = int(np.ceil(_SPARE * self.repeats * fanout))
        wanted = np.minimum(counts, most)
        rows = np.repeat(np.arange(len(frontier)), wanted)
        ranks = np.arange(len(rows)) - np.repeat(bounds_of(wanted)[:-1], wanted)
        # One of each of so many equal ranges of its draws: none is taken twice.
        fraction = _uniform(key, frontier[rows], ranks)
        numbers = (ranks + fraction) * counts[rows] / wanted[rows]
        targets = self._targets(frontier[rows], numbers.astype(np.int64))
        # Of several draws that lead to one vertex one counts, also where most were not
        # made: each counts with the chance that it is that one.
        mean = counts[rows] * self._share(frontier[rows], targets)
        chance = -np.expm1(-mean) / mean
        is_counted = _uniform(key, targets, rows) < chance
        is_counted |= wanted[rows] == counts[rows]
        rows = rows[is_counted]
        targets = targets[is_counted]
        # In a random order: what is beyond the fan-out is not of the last ranges.
        order = np.lexsort((_uniform(key, targets, rows), rows))
        rows, targets = self._differ(frontier, rows[order], targets[order])
        starts = bounds_of(np.bincount(rows, minlength=len(frontier)))[:-1]
        is_within = np.arange(len(rows)) - starts[rows] < fanout
        return targets[is_within], rows[is_within].astype(np.int32)


class _NoArrays:
    """The prepared form of a graph that has none."""

    def array(self, _: str) -> Any:
        """Raise DataError, whatever array is asked for."""
        problem = "a drawn graph holds neither features nor labels"
        raise DataError(f"{problem}: write job.dataset.drawn: false")

    map_unchecked = array


class DrawnGraph(Dataset):
    """A data set of which sizes alone are known."""

    def __init__(self, settings: dict[str, Any], partitioner: str, parts: int) -> None:
        name = settings["name"]
        if name not in PRESETS:
            problem = f"{name} is not made up, and cannot be drawn: remove job.dataset"
            raise DataError(f"{problem}.drawn, or write one of {', '.join(PRESETS)}")
        preset = PRESETS[name]
        scale = settings["scale"]
        if not 0 < scale <= 1:
            raise DataError(f"{name}: scale is {scale}, it must be in (0, 1]")
        content = f"drawn 1 {asdict(preset)} {settings} {partitioner} {parts}"
        key = sha256(content.encode()).hexdigest()[:16]
        self.folder = cache_home() / "prepared" / f"drawn-{name}-{key}"
        self._prepared: Any = _NoArrays()
        self.vertices = round(preset.vertices * scale)
        self.edges = 2 * round(preset.edges * scale)
        self.classes = preset.classes
        self.feature_length = settings["feature_length"] or preset.feature_length
        self.parts = parts
        self.train_count = max(1, round(preset.split[0] * scale))
        self._features = {}
        self._looks = []
        self._seed: int = settings["seed"]
        self._partitioner = partitioner
        self._drawn = draw_structure(name, scale, self._seed)

    @cached_property
    @override
    def graph(self) -> tuple[int, ...]:
        """Sizes, and a hash of what all is drawn by, equal for all partitions."""
        causes = f"{asdict(self._drawn.preset)} {self._drawn.key}"
        digest = sha256(causes.encode()).digest()
        number = int.from_bytes(digest[:8], "big")
        return (self.vertices, self.edges, self.train_count, number)

    @cached_property
    @override
    def structure(self) -> Structure:
        return self._drawn

    @cached_property
    @override
    def owner(self) -> SmallInts:  # type: ignore[override]
        """Part of every vertex; whatever cuts few edges finds the blocks, in order."""
        if self._partitioner == "hash":
            return hash_parts(self.vertices, self.parts, self._seed)
        if self._partitioner == "imported":
            raise DataError("a drawn graph comes in no parts: write metis or hash")
        ends = self._drawn.blocks.block_bounds
        shares = np.arange(1, self.parts) * self.vertices / self.parts
        bounds = ends[np.searchsorted(ends, shares)]
        return np.searchsorted(bounds, np.arange(self.vertices), "right").astype(
            np.int32
        )

    @cached_property
    @override
    def train(self) -> Ints:  # type: ignore[override]
        rng = np.random.default_rng([self._seed, 3])
        chosen = rng.choice(self.vertices, self.train_count, replace=False)
        return np.sort(chosen)

    @cached_property
    def readers(self) -> Ints:
        """Parts that read each vertex but its owner, as bits: of one in so many drawn.

        Others of its part have those of the vertex before them that was drawn.
        """
        owner = self.owner
        mean_draws = self._drawn.draws_of(self.train).mean()
        stride = int(max(1, self.vertices * mean_draws // _READER_DRAWS))
        readers = np.zeros(self.vertices, np.int64)
        for part in range(self.parts):
            members = np.flatnonzero(owner == part)
            drawn = members[::stride]
            indptr, targets = self._drawn.neighbours(drawn)
            bits = np.int64(1) << owner[targets].astype(np.int64)
            sets = np.zeros(len(drawn), np.int64)
            rows = np.repeat(np.arange(len(drawn)), np.diff(indptr))
            np.bitwise_or.at(sets, rows, bits)
            sets &= ~(np.int64(1) << np.int64(part))
            readers[members] = np.repeat(sets, stride)[: len(members)]
        return readers


@lru_cache(maxsize=2)
def draw_structure(name: str, scale: float, seed: int) -> DrawnStructure:
    """Return the structure of a preset, with the degrees of the generated graph."""
    preset = PRESETS[name]
    vertices = round(preset.vertices * scale)
    edges = round(preset.edges * scale)
    rng = np.random.default_rng([seed, 1])
    nothing = np.empty(0, np.int64)
    plain = DrawnStructure(
        indptr=nothing,
        indices=nothing,
        preset=preset,
        blocks=Blocks(preset, vertices),
        prefix=bounds_of(weigh_vertices(preset, vertices, edges, rng)),
        key=stream_key(seed, 5),
        edges=2 * edges,
    )
    return replace(plain, repeats=_find_repeats(plain))


def _find_repeats(plain: DrawnStructure) -> float:
    """Return the draws per edge with which vertices have the degrees of their graph."""
    rng = np.random.default_rng(0)
    size = _SAMPLE_DRAWS * plain.vertices // plain.edges
    sample = np.unique(rng.integers(plain.vertices, size=size))
    weights = plain.prefix[sample + 1] - plain.prefix[sample]
    wanted = weights.sum() / plain.prefix[-1] * plain.edges
    low = 1.0
    high = 8.0
    # Of denser blocks more draws repeat: halving finds how many in 12 steps.
    for _ in range(12):
        middle = (low + high) / 2
        _, found = replace(plain, repeats=middle).neighbours(sample)
        if len(found) < wanted:
            low = middle
        else:
            high = middle
    return (low + high) / 2
