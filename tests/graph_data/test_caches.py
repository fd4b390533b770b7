"""Contents of caches, against the definitions written vertex by vertex."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, replace
from math import prod
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from emu.graph_data import (
    BatchPlan,
    CachePlan,
    Dataset,
    SamplerCache,
    caches,
    chances,
    choose_rows,
)
from emu.graph_data.caches import open_cache, places_of_most
from emu.graph_data.sampling import Structure

STORES, COUNT, BATCHES = 3, 24, 8


@dataclass(frozen=True, eq=False)
class Graph:
    """As much of a data set as sampling takes; vertex v belongs to store v % 3."""

    structure: Structure
    train: NDArray[np.int64]
    owner: NDArray[np.int32]
    parts: int = STORES

    @property
    def graph(self) -> tuple[bytes, ...]:
        """Content of edges and split, as checksums stand for it."""
        arrays = self.structure.indptr, self.structure.indices, self.train
        return tuple(array.tobytes() for array in arrays)


@st.composite
def graphs(draw: st.DrawFn) -> Dataset:
    """Draw edges of both directions: degrees differ, some vertices have none."""
    ends = st.integers(0, COUNT - 1)
    pairs = draw(st.sets(st.tuples(ends, ends), min_size=10, max_size=45))
    both_ways = pairs | {(v, u) for u, v in pairs}
    into = [sorted(u for u, v in both_ways if v == w and u != w) for w in range(COUNT)]
    indptr = np.cumsum([0, *map(len, into)])
    indices = np.array([u for some in into for u in some], np.int32)
    owner = np.arange(COUNT, dtype=np.int32) % STORES
    train = np.arange(0, COUNT, 2)
    return cast("Dataset", Graph(Structure(indptr, indices), train, owner))


plans = st.builds(
    BatchPlan,
    seed=st.integers(0, 99),
    samplers=st.just(4),
    batch_size=st.integers(1, 3),
    fanouts=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    epoch=st.sampled_from(["replicate", "shard"]),
)
#: Two samplers share a machine, and one stands where no store is.
homes = st.permutations([0, 0, 1, -1]).map(tuple)


def batches(data: Dataset, plan: BatchPlan, sampler: int, count: int) -> list[Any]:
    of = (plan.batch(data.structure, data.train, sampler, n) for n in range(count))
    return [batch.vertices.tolist() for batch in of]


@given(graphs(), plans, homes, st.integers(0, 3), st.integers(2, 12), st.integers(0, 4))
def test_changing_caches_hold_what_the_definition_says(
    data: Dataset, plan: BatchPlan, at: Any, sampler: int, rows: int, window: int
) -> None:
    policy = "window" if window else "lru"
    cache = CachePlan(policy, rows, window, at)
    most = rows // at.count(at[sampler])
    drawn = batches(data, plan, sampler, BATCHES + window)
    one = SamplerCache(data, plan, cache, sampler)
    used: OrderedDict[int, None] = OrderedDict()  # the newest last
    for n, batch in enumerate(drawn[:BATCHES]):
        hits = [vertex in used for vertex in batch]
        assert one.held.tolist() == sorted(used)
        assert one.look(np.array(batch)).tolist() == hits
        for vertex in batch:
            if data.owner[vertex] != at[sampler]:
                used[vertex] = used.pop(vertex, None)
        ahead = drawn[n + 1 : n + 1 + window]
        newest = [*reversed(used)]

        def rank(vertex: int, ahead: Any = ahead, newest: Any = newest) -> Any:
            need = [d for d, later in enumerate(ahead) if vertex in later]
            return min(need, default=window), newest.index(vertex)

        for vertex in sorted(used, key=rank)[most:]:
            del used[vertex]
    resumed = SamplerCache(data, plan, cache, sampler, BATCHES)
    assert resumed.held.tolist() == one.held.tolist()


@given(
    graphs(),
    plans,
    st.lists(st.integers(-1, 3), min_size=1, max_size=9),
    st.integers(0, 12),
)
def test_samplers_that_are_counted_at_once_meet_what_each_alone_does(
    data: Dataset, plan: BatchPlan, at: list[int], rows: int
) -> None:
    """To the last bit: a kept row more or less would change what is sent."""
    plan = replace(plan, samplers=len(at))
    cache = CachePlan("vip", rows, 0, tuple(at))
    together = [
        chances.chance_to_meet(data, plan, at, sampler) for sampler in range(len(at))
    ]
    chosen = [choose_rows(data, plan, cache, home) for home in range(4)]

    choose_rows.cache_clear()
    with patch.object(chances, "_COUNTED_AT_ONCE", 0):
        for sampler, met in enumerate(together):
            alone = chances.chance_to_meet(data, plan, at, sampler)
            assert met.tobytes() == alone.tobytes()
        for home, found in enumerate(chosen):
            rows_alone = choose_rows(data, plan, cache, home)
            assert found.tolist() == rows_alone.tolist()


@pytest.mark.parametrize("epoch", ["replicate", "shard", "local"])
def test_chances_follow_the_parts_where_samplers_walk_near_owners(epoch: str) -> None:
    """Chances of other walks are counted once, for all parts of a graph.

    Vertices draw from each other in pairs; training vertices are the first four.
    """
    vertices = np.arange(8)
    structure = Structure(np.arange(9), np.array([1, 0, 3, 2, 5, 4, 7, 6], np.int32))
    even = cast("Dataset", Graph(structure, vertices[:4], vertices.astype("i4") % 2, 2))
    halves = vertices.astype("i4") // 2 % 2
    other_parts = cast("Dataset", Graph(structure, vertices[:4], halves, 2))
    plan = BatchPlan(7, samplers=2, batch_size=2, fanouts=(1,), epoch=epoch)

    def meet(dataset: Dataset) -> Any:
        return chances.chance_to_meet(dataset, plan, (0, 1), 0).tolist()

    chances._chances_to_meet.cache_clear()
    first = meet(even)
    second = meet(other_parts)

    expected = {
        "replicate": [0.75, 0.75, 0.75, 0.75, 0.0, 0.0, 0.0, 0.0],
        "shard": [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        "local": [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0],
    }
    assert first == expected[epoch]
    near = [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert second == (near if epoch == "local" else first)
    counted = chances._chances_to_meet.cache_info().misses
    assert counted == (2 if epoch == "local" else 1)


@given(graphs(), plans, homes, st.integers(0, 12), st.integers(0, 2))
def test_fixed_caches_hold_the_worthiest_rows_of_others(
    data: Dataset, plan: BatchPlan, at: Any, rows: int, home: int
) -> None:
    degrees = np.diff(data.structure.indptr)
    into = [*np.split(data.structure.indices, data.structure.indptr[1:-1])]
    readers = [[v for v, some in enumerate(into) if u in some] for u in range(COUNT)]

    def meet(sampler: int) -> list[float]:
        first, last = plan.share_bounds(len(data.train))[sampler : sampler + 2]
        every = plan.epoch == "replicate"
        train = [*(data.train if every else data.train[first:last])]
        p = [plan.batch_size / len(train) * (v in train) for v in range(COUNT)]
        p = [min(1.0, one) for one in p]
        for fanout in reversed(plan.fanouts):
            draw = [
                one * min(1.0, fanout / max(d, 1))
                for one, d in zip(p, degrees, strict=True)
            ]
            p = [
                1 - (1 - p[u]) * prod(1 - draw[v] for v in readers[u])
                for u in range(COUNT)
            ]
        return p

    own = [sampler for sampler, store in enumerate(at) if store == home]
    worth = {"degree": degrees.astype(float), "vip": np.zeros(COUNT)}
    for sampler in own:
        worth["vip"] += meet(sampler)
    others = [v for v in range(COUNT) if own and data.owner[v] != home]
    for policy, value in worth.items():
        found = choose_rows(data, plan, CachePlan(policy, rows, 0, at), home).tolist()
        assert len(found) == min(rows, len(others))
        assert {*found} <= {*others}
        out = [value[v] for v in others if v not in found]
        least = min((value[v] for v in found), default=np.inf)
        assert least >= max(out, default=0.0) - 1e-12
        ties = [v for v in others if policy == "degree" and value[v] == least]
        assert [v for v in ties if v in found] == ties[: sum(v in found for v in ties)]


@given(st.lists(st.integers(0, 4), max_size=30), st.integers(0, 31))
def test_of_equal_worth_the_first_places_are_chosen(
    worth: list[int], count: int
) -> None:
    order = sorted(range(len(worth)), key=lambda place: -worth[place])  # stable
    expected = sorted(order[:count])
    assert places_of_most(np.array(worth, np.int64), count).tolist() == expected
    floats = np.array(worth, np.float64) / 3
    assert places_of_most(floats, count).tolist() == expected


@pytest.mark.parametrize("table", [0, 64])
@given(graphs(), plans, homes, st.integers(0, 3), st.integers(2, 30), st.integers(1, 4))
def test_hot_caches_hold_what_most_batches_of_a_window_need(
    table: int,
    data: Dataset,
    plan: BatchPlan,
    at: Any,
    sampler: int,
    rows: int,
    window: int,
) -> None:
    cache = CachePlan("hot", rows, window, at)
    most = rows // at.count(at[sampler])
    drawn = batches(data, plan, sampler, BATCHES)

    def hottest(first: int) -> list[int]:
        needs = Counter(v for batch in drawn[first : first + window] for v in batch)
        remote = [v for v in sorted(needs) if data.owner[v] != at[sampler]]
        return sorted(sorted(remote, key=lambda v: -needs[v])[:most])  # stable

    # Small graphs by a table, large ones by sorting.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(caches, "_TABLE", table)
        opened = open_cache(data, plan, cache, sampler, 0, BATCHES)
        assert opened.held.tolist() == hottest(0)
        for number, batch in enumerate(drawn):
            begin = number // window * window
            ahead = []
            if number == begin and begin + window < BATCHES:
                ahead = hottest(begin + window)
            assert opened.look_ahead().tolist() == ahead
            hits = [vertex in hottest(begin) for vertex in batch]
            assert opened.look(np.array(batch)).tolist() == hits
