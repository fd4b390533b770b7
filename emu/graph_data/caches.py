"""Rows of other stores that machines keep, and what batches weigh with them.

As batches do, all of it follows from the job's settings: a store knows which rows of
its own a sampler has, and sends the others. What is fixed before the start belongs to a
machine. What changes belongs to a sampler, in the order of its iterations, so that it
does not depend on who ran when.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from typing_extensions import override

from emu.array_types import Array, Ints, Mask, SmallInts
from emu.graph_data.batches import BatchPlan
from emu.graph_data.chances import chance_to_meet
from emu.graph_data.dataset import Dataset
from emu.graph_data.drawn_batches import DrawnBatch, draw_batch, structure_of
from emu.prediction.core import ffi, lib, pointer
from emu.problem.workloads import SampleCounts
from emu.problem.workloads.fetches import feature_type

#: Policies whose rows are chosen before the start.
FIXED = ("degree", "vip")
#: Vertices of a graph per vertex of batches up to which a table of them is made.
_TABLE = 64
#: Policy whose rows are those that a window of batches needs most often.
HOT = "hot"


@dataclass(frozen=True)
class CachePlan:
    """Rows that the machines of a job keep of other stores."""

    policy: str
    """``degree``, ``vip``, ``lru``, ``window`` or ``hot``."""
    rows: int
    """Number of rows of every machine."""
    window: int
    """Batches that ``window`` looks ahead, and of a window of ``hot``; else 0."""
    homes: tuple[int, ...]
    """Store on the machine of every sampler, whose rows are none of others."""

    @classmethod
    def from_settings(
        cls,
        settings: Mapping[str, Any],
        dataset: Dataset,
    ) -> CachePlan | None:
        """Return the plan of ``Job.settings``; None where nothing is kept."""
        section = settings.get("cache")
        if section is None:
            return None

        number_bytes = np.dtype(feature_type(settings)).itemsize
        row_bytes = dataset.feature_length * number_bytes
        # Either is stated: memory, or a share of the rows of a mean store.
        rows = section["size"] // row_bytes
        if section["share"]:
            rows = section["share"] * dataset.vertices / dataset.parts
        return cls(
            policy=section["policy"],
            rows=int(rows),
            window=section["window"],
            homes=tuple(section["homes"]),
        )


@lru_cache(maxsize=64)
def choose_rows(
    dataset: Dataset,
    plan: BatchPlan,
    cache: CachePlan,
    home: int,
) -> Ints:
    """Return the vertices, ascending, whose rows the machine of a store begins with.

    The first of those that others own: of ``degree`` by neighbours, of ``vip`` by the
    batches of the machine's samplers that have them; those of one worth by number.
    """
    if cache.policy not in FIXED or home not in cache.homes:
        return np.empty(0, np.int64)
    worth = dataset.structure.degrees.astype(np.float64)
    if cache.policy == "vip":
        chances = []
        for sampler, store in enumerate(cache.homes):
            if store == home:
                chance = chance_to_meet(dataset, plan, cache.homes, sampler)
                chances.append(chance)
        worth = np.sum(chances, axis=0)

    # Its own rows are at hand: to keep them would take room from others'.
    others = np.flatnonzero(np.asarray(dataset.owner) != home)
    places = places_of_most(worth[others], cache.rows)
    return others[places]


def places_of_most(worth: Array, count: int) -> Ints:
    """Return the places, ascending, of so many of the worthiest; of equals the first.

    Only the least worth is looked for: to sort all of them was an eighth of the CPU of
    `emu compare --systems all` on 16 machines.
    """
    if count >= len(worth):
        return np.arange(len(worth))
    if count < 1:
        return np.empty(0, np.int64)

    first = len(worth) - count
    least = np.partition(worth, first)[first]
    is_chosen = worth > least
    equals = np.flatnonzero(worth == least)
    rest = count - np.count_nonzero(is_chosen)
    is_chosen[equals[:rest]] = True
    return np.flatnonzero(is_chosen)


#: Returns the vertices of the batch of an iteration.
Drawer: TypeAlias = Callable[[int], Array]


def kept_batches(
    dataset: Dataset,
    plan: BatchPlan,
    sampler: int,
) -> Drawer:
    """Return a sampler's batches, which are kept for who asks for the same again."""
    train = plan.walk(dataset)

    def draw(iteration: int) -> Array:
        batch = draw_batch(
            dataset,
            plan=plan,
            train=train,
            sampler=sampler,
            iteration=iteration,
        )
        return batch.vertices

    return draw


def _drawn_anew(dataset: Dataset, plan: BatchPlan, sampler: int) -> Drawer:
    """Return a sampler's batches, none of which is kept: a run needs each once."""

    def draw(iteration: int) -> Array:
        train = plan.walk(dataset)
        batch = plan.batch(dataset.structure, train, sampler, iteration)
        return batch.vertices

    return draw


class SamplerCache:
    """Rows of other stores that one sampler has, batch after batch.

    ``held``: vertices of these rows before the next batch, ascending, int64.
    """

    def __init__(
        self,
        dataset: Dataset,
        plan: BatchPlan,
        cache: CachePlan,
        sampler: int,
        first: int = 0,
        draw: Drawer | None = None,
    ) -> None:
        self._owner = dataset.owner
        self._draw = draw or _drawn_anew(dataset, plan, sampler)
        self._home = cache.homes[sampler]
        self._changes = cache.policy not in FIXED
        self._window = cache.window
        # Samplers of one machine share its room equally, whatever each would need.
        sharing = cache.homes.count(self._home)
        self._most = cache.rows // sharing
        self.held = choose_rows(dataset, plan, cache, self._home)
        self._tabled: Ints | None = None  # rows of which `_is_held` is the table

        self._stamps = np.empty(0, np.int64)  # of a row, when it was used last
        self._next_stamp = 0
        self._coming = deque[Array]()
        self._iteration = 0
        if self._changes:
            # Its rows depend on all batches before the first one.
            for iteration in range(first):
                self.look(self._draw(iteration))

    def look(self, vertices: Array) -> Mask:
        """Return which rows of the next batch are there; keep those of it, too."""
        # Before the batch's own rows are kept: a hit is what need not be sent.
        hits = self._find_held(vertices)
        if not self._changes:
            return hits

        # What is drawn twice is equal: a batch is a function of its iteration.
        while len(self._coming) < self._window:
            distance = len(self._coming) + 1
            batch = self._draw(self._iteration + distance)
            self._coming.append(batch)
        owners = np.asarray(self._owner)[vertices]
        remote = vertices[owners != self._home]
        self._keep(remote)
        self._iteration += 1
        if self._coming:
            self._coming.popleft()
        return hits

    def _find_held(self, vertices: Array) -> Mask:
        """Return which of some vertices' rows are there."""
        # A table of all vertices takes a tenth of the time of sorting these, unless
        # the graph is far larger than a batch.
        if len(self._owner) > _TABLE * len(vertices):
            return np.isin(vertices, self.held, assume_unique=True)
        if self._tabled is not self.held:
            # Most policies hold the same rows from batch to batch.
            self._is_held = np.zeros(len(self._owner), np.bool_)
            self._is_held[self.held] = True
            self._tabled = self.held
        found: Mask = self._is_held[vertices]
        return found

    def begin(self) -> None:
        """Hold what the next batch begins with, where that has come ahead of it."""

    def look_ahead(self) -> Ints:
        """Return the rows that come with the next batch for later ones."""
        return np.empty(0, np.int64)

    def _keep(self, batch: Ints) -> None:
        # What the next batches need, the nearest first, then what is newest: of a batch
        # the vertices that were met last, farthest from its seeds.
        stamps = self._next_stamp + np.arange(len(batch))
        self._next_stamp += len(batch)
        all_vertices = np.concatenate([batch, self.held])
        all_stamps = np.concatenate([stamps, self._stamps])
        vertices, first = np.unique(all_vertices, return_index=True)
        stamps = all_stamps[first]

        need = np.full(len(vertices), self._window)
        # Farthest first: the nearest batch that needs a row has the last word.
        for distance in reversed(range(len(self._coming))):
            is_needed = np.isin(vertices, self._coming[distance])
            need[is_needed] = distance
        order = np.lexsort((-stamps, need))
        places = np.sort(order[: self._most])
        self.held = vertices[places]
        self._stamps = stamps[places]


class HotCache(SamplerCache):
    """Rows that a window of batches needs most often, fetched a window before."""

    def __init__(
        self,
        dataset: Dataset,
        plan: BatchPlan,
        cache: CachePlan,
        sampler: int,
        first: int,
        batches: int,
        draw: Drawer | None = None,
    ) -> None:
        super().__init__(dataset, plan, cache, sampler, draw=draw)
        self._iteration = first
        self._batches = batches
        self._held_window = first // self._window
        self._chosen: tuple[int, Ints] | None = None  # the last window, and its rows
        self.held = self._rows_of(self._held_window)

    def _rows_of(self, window: int) -> Ints:
        """Return as `_choose`: rows that were asked for ahead are not chosen twice."""
        if self._chosen is None or self._chosen[0] != window:
            self._chosen = (window, self._choose(window))
        _, rows = self._chosen
        return rows

    def _choose(self, window: int) -> Ints:
        """Return the vertices, ascending, whose rows a window of batches has.

        Of others' rows those that most of its batches need, of equals by number.
        """
        first = window * self._window
        last = min(first + self._window, self._batches)
        batches = [self._draw(number) for number in range(first, last)]
        drawn = np.concatenate(batches)
        is_small = len(self._owner) <= _TABLE * len(drawn)
        if is_small:
            counts = np.bincount(drawn)
            vertices = np.flatnonzero(counts)
            needs = counts[vertices]
        else:
            vertices, needs = np.unique(drawn, return_counts=True)

        owners = np.asarray(self._owner)[vertices]
        is_remote = owners != self._home
        remote: Ints = vertices[is_remote].astype(np.int64)
        hottest = places_of_most(needs[is_remote], self._most)
        return remote[hottest]

    @override
    def begin(self) -> None:
        window = self._iteration // self._window
        if window > self._held_window:
            self.held = self._rows_of(window)
            self._held_window = window

    @override
    def look_ahead(self) -> Ints:
        window, place = divmod(self._iteration, self._window)
        following = (window + 1) * self._window
        # The first batch of a window asks for the next one, if that comes at all.
        if place or following >= self._batches:
            return super().look_ahead()
        return self._rows_of(window + 1)

    @override
    def look(self, vertices: Array) -> Mask:
        self.begin()
        self._iteration += 1
        return self._find_held(vertices)


def open_cache(
    dataset: Dataset,
    plan: BatchPlan,
    cache: CachePlan,
    sampler: int,
    first: int,
    batches: int,
    draw: Drawer | None = None,
) -> SamplerCache:
    """Return what a sampler has of other stores before batch ``first`` of a job's.

    ``draw``: its batches, default is to draw each anew.
    """
    if cache.policy == HOT:
        return HotCache(
            dataset=dataset,
            plan=plan,
            cache=cache,
            sampler=sampler,
            first=first,
            batches=batches,
            draw=draw,
        )
    return SamplerCache(
        dataset=dataset,
        plan=plan,
        cache=cache,
        sampler=sampler,
        first=first,
        draw=draw,
    )


def _count_by_store(
    owner: SmallInts,
    stores: int,
    vertices: Array,
    counted: Mask | None = None,
) -> tuple[int, ...]:
    """Return how many vertices each store owns.

    ``counted``: of them those that count, all without it.
    """
    counts = np.zeros(stores, np.int64)
    lib.count_owned(
        pointer(vertices),
        vertices.dtype == np.int64,
        len(vertices),
        ffi.NULL if counted is None else pointer(counted),
        pointer(owner),
        pointer(counts),
    )
    return tuple(counts.tolist())


def _count_frontiers(
    batch: DrawnBatch, owner: SmallInts, stores: int
) -> list[tuple[int, ...]]:
    """Return vertices of every frontier by store, of all, then edges of every hop."""
    hops = len(batch.sizes) - 1
    counts = np.zeros((hops + 1 + hops, stores), np.int64)
    lib.count_frontiers(
        pointer(batch.vertices),
        batch.vertices.dtype == np.int64,
        hops,
        pointer(np.array(batch.sizes[::-1])),
        pointer(batch.counts),
        pointer(owner),
        stores,
        pointer(counts),
    )
    return [tuple(row) for row in counts.tolist()]


def batch_counts(
    batch: DrawnBatch,
    owner: SmallInts,
    stores: int,
) -> SampleCounts:
    """Count what each store owns of a mini-batch, without touching features."""
    owner = np.ascontiguousarray(owner, np.int32)
    # Hop by hop from the seeds.
    hops = len(batch.sizes) - 1
    rows = _count_frontiers(batch, owner, stores)
    *frontier_owned, owned = rows[: hops + 1]
    answered = rows[hops + 1 :]
    edge_counts = [sum(counts) for counts in answered]
    return SampleCounts(
        owned=owned,
        edges=sum(edge_counts),
        seeds=batch.sizes[-1],
        outputs=batch.sizes[1],
        # The block of the first layer is drawn last.
        first_edges=edge_counts[-1],
        frontier_owned=tuple(frontier_owned),
        answered=tuple(answered),
    )


def count_with_cache(
    counts: SampleCounts,
    vertices: Array,
    owner: SmallInts,
    hits: Mask,
    early: Ints,
) -> SampleCounts:
    """Return the counts of a mini-batch with what its sampler has of other stores.

    ``hits``: of which of its ``vertices`` it has the rows; ``early``: vertices whose
    rows come with it for later batches.
    """
    owner = np.ascontiguousarray(owner, np.int32)
    stores = len(counts.owned)
    return replace(
        counts,
        hits=_count_by_store(owner, stores, vertices, counted=hits),
        ahead=_count_by_store(owner, stores, early),
    )


#: Batches that one thread counts before others may: handing each over takes 50 us.
_AT_ONCE = 20


@lru_cache(maxsize=32)  # each row of a table counts them, with a cache of its own
def _count_drawn(
    dataset: Dataset,
    plan: BatchPlan,
    batches: int,
) -> tuple[tuple[SampleCounts, ...], ...]:
    """Return the counts of every sampler, by batch, without a cache."""
    # Before samplers do: they would all copy, or compute, the same at once.
    train = plan.walk(dataset)
    structure_of(dataset)

    def count(sampler: int, iterations: range) -> list[SampleCounts]:
        counts = []
        for iteration in iterations:
            batch = draw_batch(dataset, plan, train, sampler, iteration)
            of_batch = batch_counts(batch, dataset.owner, dataset.parts)
            counts.append(of_batch)
        return counts

    firsts = range(0, batches, _AT_ONCE)
    pieces = [range(batches)[first : first + _AT_ONCE] for first in firsts]
    # Compiled sampling lets others run.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        promises = []
        for sampler in range(plan.samplers):
            row = [pool.submit(count, sampler, piece) for piece in pieces]
            promises.append(row)
        # In the order of samplers and batches, whichever was done first.
        counts = []
        for row in promises:
            of_pieces = [promise.result() for promise in row]
            counts.append(tuple(chain.from_iterable(of_pieces)))
        return tuple(counts)


@lru_cache(maxsize=4)  # one sample weighs what it weighs at every hidden width
def count_samples(
    dataset: Dataset,
    plan: BatchPlan,
    batches: int,
    cache: CachePlan | None = None,
) -> tuple[tuple[SampleCounts, ...], ...]:
    """Return the counts of every sampler, by batch; raises as `BatchPlan.batch`."""
    drawn_counts = _count_drawn(dataset, plan, batches)
    if cache is None:
        return drawn_counts

    def count_in_order(sampler: int) -> tuple[SampleCounts, ...]:
        # Rows that are kept depend on the batches before: one sampler is one task.
        draw = kept_batches(dataset, plan, sampler)
        held = open_cache(dataset, plan, cache, sampler, 0, batches, draw)

        counts = []
        for iteration, drawn in enumerate(drawn_counts[sampler]):
            vertices = draw(iteration)
            early = held.look_ahead()
            hits = held.look(vertices)
            with_cache = count_with_cache(
                drawn, vertices, dataset.owner, hits=hits, early=early
            )
            counts.append(with_cache)
        return tuple(counts)

    # As above: once, and not by each sampler.
    for home in sorted({*cache.homes}):
        choose_rows(dataset, plan, cache, home)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return tuple(pool.map(count_in_order, range(plan.samplers)))


def count_remote_rows(
    settings: Mapping[str, Any],
    dataset: Dataset,
    batches: int,
    sampler: int,
    home: int,
) -> Ints:
    """Return the rows that stores but ``home`` send for one sampler's own batches.

    Those of `count_samples` of these ``Job.settings``, by batch, but those that come
    ahead. ``home``: also the store of its cache.
    """
    plan = BatchPlan.from_settings(settings)
    cache = CachePlan.from_settings(settings, dataset)
    draw = kept_batches(dataset, plan, sampler)
    held = None
    if cache is not None:
        held = open_cache(dataset, plan, cache, sampler, 0, batches, draw)

    is_remote = np.asarray(dataset.owner) != home
    rows = []
    for iteration in range(batches):
        vertices = draw(iteration)
        is_sent = is_remote[vertices]
        if held is not None:
            held.look_ahead()
            is_sent &= ~held.look(vertices)
        rows.append(np.count_nonzero(is_sent))
    return np.array(rows)


def count_job(
    settings: Mapping[str, Any],
    dataset: Dataset,
    batches: int,
) -> tuple[tuple[SampleCounts, ...], ...]:
    """Return `count_samples` of ``Job.settings``, with the cache that they state.

    Raises ValueError as `BatchPlan.from_settings` and `count_samples`.
    """
    plan = BatchPlan.from_settings(settings)
    cache = CachePlan.from_settings(settings, dataset)
    return count_samples(dataset, plan, batches, cache)
