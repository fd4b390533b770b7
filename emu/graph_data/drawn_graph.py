"""Made-up graphs at their published size, counted by drawing, never all in memory.

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

from emu.array_types import Array, Floats, Ints, SmallInts
from emu.errors import DataError
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
#: Vertices whose edges are counted at once: of all of them arrays take gigabytes.
_SLICE = 1 << 20
#: Deviations of a normal estimate that hold it 95 times in 100.
_DEVIATIONS = 1.96
_STEP = np.uint64(0x9E3779B97F4A7C15)
#: Shifts, and what is multiplied by behind each.
_MIXERS = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
_LAST_SHIFT = np.uint64(31)
#: Bits that a float has no room for.
_REST = np.uint64(11)


def _uniform(key: np.uint64, *numbers: Array) -> Floats:
    """Return numbers in [0, 1), hashes of integers (the finaliser of splitmix64)."""
    first, *_ = numbers
    state = np.full(len(first), key, np.uint64)
    for number in numbers:
        state ^= number.astype(np.uint64)
        state *= _STEP
        for shift, mixer in _MIXERS:
            state ^= state >> shift
            state *= mixer
        state ^= state >> _LAST_SHIFT

    mantissa = state >> _REST
    numbers_of_53_bits = mantissa.astype(np.float64)
    fraction: Floats = numbers_of_53_bits * 2.0**-53
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
        weights = np.diff(self.prefix)
        shares = weights / self.total
        degrees = np.rint(shares * self.edges)
        counts: Ids = degrees.astype(np.int64)
        return counts

    def count_edges(self, vertices: Ids) -> int:
        """Return the sum of the `degrees` of some vertices, slice by slice."""
        count = 0
        for first in range(0, len(vertices), _SLICE):
            last = first + _SLICE
            weights = self.weights_of(vertices[first:last])
            shares = weights / self.total
            degrees = np.rint(shares * self.edges)
            count += int(degrees.sum())
        return count

    @property
    def total(self) -> Any:
        """Sum of the weights of all vertices."""
        return self.prefix[-1]

    def weights_of(self, vertices: Ids) -> Floats:
        """Return the weights by which vertices are drawn."""
        ends = self.prefix[vertices + 1]
        weights: Floats = ends - self.prefix[vertices]
        return weights

    def draws_of(self, vertices: Ids) -> Ids:
        """Return how many neighbours are drawn of each vertex, repeated ones too."""
        weights = self.weights_of(vertices)
        shares = weights / self.total
        draws = shares * self.edges * self.repeats
        # Rounded up or down at random, so that the mean is right.
        draws += _uniform(self.key, vertices)
        whole = np.floor(draws)
        counts: Ids = whole.astype(np.int64)
        return counts

    @property
    def _groups(self) -> list[tuple[float, Ids]]:
        """Shares of the draws within a block and within a class, and their bounds."""
        return [
            (self.preset.in_block, self.blocks.block_bounds),
            (self.preset.in_class, self.blocks.class_bounds),
        ]

    @property
    def _share_anywhere(self) -> float:
        """Share of the draws that stay within neither."""
        return 1 - self.preset.in_block - self.preset.in_class

    def _targets(self, vertices: Ids, numbers: Ids) -> Ids:
        """Return what the draw of each number of each vertex leads to."""
        # Two numbers of each draw: where its other end lies, and which vertex it is.
        double = numbers * 2
        choice = _uniform(self.key, vertices, double + 1)
        place = _uniform(self.key, vertices, double + 2)
        near = self.preset.in_block
        either = near + self.preset.in_class
        is_near = choice < near
        is_alike = ~is_near & (choice < either)
        bounds_of_chosen = [
            (is_near, self.blocks.block_bounds),
            (is_alike, self.blocks.class_bounds),
        ]

        low = np.zeros(len(vertices))
        high = np.full(len(vertices), self.total)
        for is_chosen, bounds in bounds_of_chosen:
            chosen_vertices = vertices[is_chosen]
            begin, end = _range_around(chosen_vertices, bounds)
            low[is_chosen] = self.prefix[begin]
            high[is_chosen] = self.prefix[end]

        width = high - low
        weight = low + place * width
        upper = np.searchsorted(self.prefix, weight, "right")
        last_vertex = self.vertices - 1
        return np.minimum(upper - 1, last_vertex)

    def _share(self, vertices: Ids, targets: Ids) -> Floats:
        """Return the share of each vertex's draws that lead to its target."""
        anywhere = self._share_anywhere / self.total
        shares = np.full(len(targets), anywhere)
        for part, bounds in self._groups:
            begin, end = _range_around(vertices, bounds)
            weight_before = self.prefix[begin]
            group_weight = self.prefix[end] - weight_before
            is_inside = (begin <= targets) & (targets < end)
            density = part / group_weight
            shares += np.where(is_inside, density, 0.0)
        return shares * self.weights_of(targets)

    def expect_hits(self, draws: Floats) -> Floats:
        """Return how often each vertex is drawn, if each draws so many neighbours."""
        anywhere = self._share_anywhere * draws.sum() / self.total
        hits_per_weight = np.full(self.vertices, anywhere)

        sums = np.cumsum(draws)
        draws_before = np.concatenate([[0.0], sums])
        for part, bounds in self._groups:
            draws_of_group = np.diff(draws_before[bounds])
            weight_of_group = np.diff(self.prefix[bounds])
            # A class that is rounded to no vertex has no weight.
            weight_of_group = np.maximum(weight_of_group, 1e-300)
            density = part * draws_of_group / weight_of_group
            sizes = np.diff(bounds)
            hits_per_weight += np.repeat(density, sizes)
        weights = np.diff(self.prefix)
        return hits_per_weight * weights

    @override
    def neighbours(self, vertices: Ids) -> tuple[Ids, Ids]:
        counts = self.draws_of(vertices)
        rows, numbers = _number_draws(counts)
        sources = vertices[rows]
        targets = self._targets(sources, numbers)
        rows, targets = self._differ(vertices, rows, targets)
        degrees = np.bincount(rows, minlength=len(vertices))
        return bounds_of(degrees), targets

    def _differ(
        self,
        vertices: Ids,
        rows: Ids,
        targets: Ids,
    ) -> tuple[Ids, Ids]:
        """Return each neighbour of a row once, the first draw of it, without loops."""
        is_edge = targets != vertices[rows]
        rows = rows[is_edge]
        targets = targets[is_edge]
        pairs = rows * self.vertices + targets
        _, first = np.unique(pairs, return_index=True)
        first.sort()
        return rows[first], targets[first]

    @override
    def draw(
        self,
        frontier: Ids,
        fanout: int,
        key: np.uint64,
    ) -> tuple[Ids, Positions]:
        """Return at most ``fanout`` neighbours of each vertex, and whose they are."""
        rows, targets = self._draw_some(frontier, fanout, key)
        # In a random order: what is beyond the fan-out is not of the last ranges.
        place = _uniform(key, targets, rows)
        order = np.lexsort((place, rows))
        rows = rows[order]
        targets = targets[order]
        rows, targets = self._differ(frontier, rows, targets)

        degrees = np.bincount(rows, minlength=len(frontier))
        _, numbers = _number_draws(degrees)
        is_within = numbers < fanout
        positions = rows[is_within].astype(np.int32)
        return targets[is_within], positions

    def _draw_some(
        self,
        frontier: Ids,
        fanout: int,
        key: np.uint64,
    ) -> tuple[Ids, Ids]:
        """Return rows and neighbours of more draws than a fan-out needs, as they count.

        All draws of a vertex that has few.
        """
        counts = self.draws_of(frontier)
        needed = _SPARE * self.repeats * fanout
        most = int(np.ceil(needed))
        wanted = np.minimum(counts, most)
        rows, ranks = _number_draws(wanted)
        vertices = frontier[rows]
        # One of each of so many equal ranges of its draws: none is taken twice.
        fraction = _uniform(key, vertices, ranks)
        row_counts = counts[rows]
        places = ranks + fraction
        draws = places * row_counts / wanted[rows]
        numbers = draws.astype(np.int64)
        targets = self._targets(vertices, numbers)

        # Of several draws that lead to one vertex one counts, also where most were not
        # made: each counts with the chance that it is that one.
        mean = row_counts * self._share(vertices, targets)
        expected_edges = -np.expm1(-mean)
        chance = expected_edges / mean
        is_counted = _uniform(key, targets, rows) < chance
        has_all = wanted == counts
        is_counted |= has_all[rows]
        return rows[is_counted], targets[is_counted]


def narrow(vertices: Ints) -> Any:
    """Return numbers of vertices, of a graph of up to 2 billion in half the bytes."""
    most = np.iinfo(np.int32).max
    if vertices.max(initial=0) <= most:
        return vertices.astype(np.int32)
    return vertices


def _range_around(vertices: Ids, bounds: Ids) -> tuple[Ids, Ids]:
    """Return the first vertex of the range that each is in, and that behind it."""
    next_group = np.searchsorted(bounds, vertices, "right")
    return bounds[next_group - 1], bounds[next_group]


def _number_draws(counts: Ids) -> tuple[Ids, Ids]:
    """Return the row and the number of each of so many draws per row, row by row."""
    numbers = np.arange(len(counts))
    rows = np.repeat(numbers, counts)
    bounds = bounds_of(counts)
    starts = bounds[:-1]
    places = np.arange(len(rows))
    return rows, places - starts[rows]


class _NoArrays:
    """The prepared form of a graph that has none."""

    def array(self, _: str) -> Any:
        """Raise DataError, whatever array is asked for."""
        problem = "a drawn graph holds neither features nor labels"
        raise DataError(f"{problem}: write job.dataset.drawn: false")

    map_unchecked = array


@dataclass(frozen=True, eq=False)
class _Sample:
    """Neighbours of some members of a part."""

    members: Ints
    """All vertices of the part."""
    stride: int
    """Members per one whose neighbours were drawn."""
    rows: Ids
    """Whose neighbour each is: the number of that member among those drawn."""
    owners: Ints
    """Part that owns each neighbour."""


class DrawnGraph(Dataset):
    """A data set of which sizes alone are known."""

    def __init__(
        self,
        settings: dict[str, Any],
        partitioner: str,
        parts: int,
    ) -> None:
        name = settings["name"]
        if name not in PRESETS:
            names = ", ".join(PRESETS)
            problem = f"{name} is not made up, and cannot be drawn: remove job.dataset"
            raise DataError(f"{problem}.drawn, or write one of {names}")

        preset = PRESETS[name]
        scale = settings["scale"]
        if not 0 < scale <= 1:
            raise DataError(f"{name}: scale is {scale}, it must be in (0, 1]")

        content = f"drawn 1 {asdict(preset)} {settings} {partitioner} {parts}"
        digest = sha256(content.encode())
        key = digest.hexdigest()[:16]
        prepared_folder = cache_home() / "prepared"
        self.folder = prepared_folder / f"drawn-{name}-{key}"

        edges = round(preset.edges * scale)
        most_train, *_ = preset.split
        train = round(most_train * scale)
        self._prepared: Any = _NoArrays()
        self.vertices = round(preset.vertices * scale)
        self.edges = 2 * edges
        self.classes = preset.classes
        self.feature_length = settings["feature_length"] or preset.feature_length
        self.parts = parts
        self.train_count = max(1, train)
        self._features = {}
        self._looks = []
        self._seed: int = settings["seed"]
        self._partitioner = partitioner
        self.drawn = draw_structure(name, scale, self._seed)

    @cached_property
    @override
    def graph(self) -> tuple[int, ...]:
        """Sizes, and a hash of what all is drawn by, equal for all partitions."""
        causes = f"{asdict(self.drawn.preset)} {self.drawn.key}"
        hasher = sha256(causes.encode())
        first_bytes = hasher.digest()[:8]
        number = int.from_bytes(first_bytes, "big")
        return (
            self.vertices,
            self.edges,
            self.train_count,
            number,
        )

    @cached_property
    @override
    def structure(self) -> Structure:
        return self.drawn

    @cached_property
    @override
    def owner(self) -> SmallInts:  # type: ignore[override]
        """Part of every vertex; whatever cuts few edges finds the blocks, in order."""
        if self._partitioner == "hash":
            return hash_parts(self.vertices, self.parts, self._seed)
        if self._partitioner == "imported":
            raise DataError("a drawn graph comes in no parts: write metis or hash")

        ends = self.drawn.blocks.block_bounds
        numbers = np.arange(1, self.parts)
        even_ends = numbers * self.vertices / self.parts
        # The first end of a block that is no earlier: parts consist of whole blocks.
        places = np.searchsorted(ends, even_ends)
        bounds = [0, *ends[places], self.vertices]
        sizes = np.diff(bounds)
        parts = np.arange(self.parts, dtype=np.int32)
        return np.repeat(parts, sizes)

    @cached_property
    @override
    def train(self) -> Ints:  # type: ignore[override]
        rng = np.random.default_rng([self._seed, 3])
        chosen = rng.choice(self.vertices, self.train_count, replace=False)
        return np.sort(chosen)

    @cached_property
    def _samples(self) -> list[_Sample]:
        """Neighbours of one in so many members of every part."""
        draws = self.drawn.draws_of(self.train)
        all_draws = self.vertices * draws.mean()
        members_per_drawn = all_draws // _READER_DRAWS
        stride = int(max(1, members_per_drawn))

        samples = []
        for part in range(self.parts):
            is_member = self.owner == part
            members = narrow(np.flatnonzero(is_member))
            drawn = members[::stride].astype(np.int64)
            indptr, targets = self.drawn.neighbours(drawn)
            degrees = np.diff(indptr)
            rows, _ = _number_draws(degrees)
            owners = self.owner[targets]
            sample = _Sample(
                members=members,
                stride=stride,
                rows=rows,
                owners=owners.astype(np.int64),
            )
            samples.append(sample)
        return samples

    def members_of(self, part: int) -> Ints:
        """Return the vertices that a part owns, ascending."""
        return self._samples[part].members

    @cached_property
    def readers(self) -> Ints:
        """Parts that read each vertex but its owner, as bits: of one in so many drawn.

        Others of its part have those of the vertex before them that was drawn.
        """
        # A byte for up to eight parts: of 111 million vertices eight take 0.9 GB.
        most = (1 << self.parts) - 1
        narrow = np.min_scalar_type(most)
        readers = np.zeros(self.vertices, narrow)

        for part, sample in enumerate(self._samples):
            members = sample.members
            sets = self._sets_of(part)
            narrow_sets = sets.astype(narrow)
            sets_of_members = np.repeat(narrow_sets, sample.stride)
            readers[members] = sets_of_members[: len(members)]
        return readers

    def _sets_of(self, part: int) -> Ints:
        """Return the other parts that read each drawn member of a part, as bits."""
        sample = self._samples[part]
        drawn = sample.members[:: sample.stride]
        bit = np.int64(1)
        owner_bits = bit << sample.owners
        own_bit = bit << np.int64(part)

        sets = np.zeros(len(drawn), np.int64)
        np.bitwise_or.at(sets, sample.rows, owner_bits)
        sets &= ~own_bit
        return sets

    @cached_property
    def ghost_error(self) -> float:
        """Half of the 95 % interval of the rows that a part reads of others.

        As a share of them, of the part where it is the widest: of a sample of members
        the share that a part reads is binomial. 0 where all members were drawn.
        """
        counts = np.zeros(self.parts)
        variances = np.zeros(self.parts)
        for part, sample in enumerate(self._samples):
            sets = self._sets_of(part)
            members = len(sample.members)
            drawn = len(sets)
            unseen = 1 - drawn / members
            for reader in range(self.parts):
                is_read = sets >> reader & 1
                share = float(is_read.mean())
                variance = share * (1 - share) / drawn
                counts[reader] += members * share
                variances[reader] += members**2 * variance * unseen

        reads = counts > 0
        deviations = np.sqrt(variances[reads])
        errors = deviations / counts[reads]
        largest_error = errors.max(initial=0.0)
        return float(_DEVIATIONS * largest_error)

    @cached_property
    def crossing_shares(self) -> list[float]:
        """Share of every part's edges whose other end another part owns, estimated."""
        shares = []
        for part, sample in enumerate(self._samples):
            crosses = sample.owners != part
            share = 0.0
            if crosses.size:
                share = float(crosses.mean())
            shares.append(share)
        return shares


@lru_cache(maxsize=2)
def draw_structure(name: str, scale: float, seed: int) -> DrawnStructure:
    """Return the structure of a preset, with the degrees of the generated graph."""
    preset = PRESETS[name]
    vertices = round(preset.vertices * scale)
    edges = round(preset.edges * scale)
    rng = np.random.default_rng([seed, 1])
    weights = weigh_vertices(
        preset,
        vertices=vertices,
        edges=edges,
        rng=rng,
    )
    nothing = np.empty(0, np.int64)

    plain = DrawnStructure(
        indptr=nothing,
        indices=nothing,
        preset=preset,
        blocks=Blocks(preset, vertices),
        prefix=bounds_of(weights),
        key=stream_key(seed, 5),
        edges=2 * edges,
    )
    return replace(plain, repeats=_find_repeats(plain))


def _find_repeats(plain: DrawnStructure) -> float:
    """Return the draws per edge with which vertices have the degrees of their graph."""
    rng = np.random.default_rng(0)
    size = _SAMPLE_DRAWS * plain.vertices // plain.edges
    vertices = rng.integers(plain.vertices, size=size)
    sample = np.unique(vertices)
    weights = plain.weights_of(sample)
    share = weights.sum() / plain.total
    wanted = share * plain.edges

    low = 1.0
    high = 8.0
    # Of denser blocks more draws repeat: halving finds how many in 12 steps.
    for _ in range(12):
        middle = (low + high) / 2
        drawn = replace(plain, repeats=middle)
        _, found = drawn.neighbours(sample)
        if len(found) < wanted:
            low = middle
        else:
            high = middle
    return (low + high) / 2
