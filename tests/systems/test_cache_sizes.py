"""Sizes of caches by hand: rows that they need, memory that they take, homes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from emu.graph_data import CachePlan
from emu.problem import Cluster, Job, Machine, Task
from emu.scenario.error_messages import describe
from emu.systems.cache_section import (
    CacheSection,
    _beyond,
    _homes,
    _least_rows,
    _size_problem,
    _without_store,
    cache_bytes,
    cache_line,
    keeps_rows,
    settle_caches,
)
from tests.systems.sections import section_of

#: Rows of 12 float32.
DATASET: Any = SimpleNamespace(feature_length=12, vertices=900, parts=3)


def settings_of(**cache: Any) -> dict[str, Any]:
    stated = {"policy": "lru", "size": 0.0, "share": 0.0, "window": 0, "homes": [0]}
    return {"precision": "float32", "cache": {**stated, **cache}}


@pytest.mark.parametrize(
    ("cache", "size"),
    [
        # 10 rows of 48 bytes and what is over; 8 bytes for the number of each.
        ({"size": 500.0}, 500 + 8 * 10),
        ({"size": 480.0}, 480 + 8 * 10),
        ({"size": 479.0}, 479 + 8 * 9),
        # Half of the 300 rows of a mean store.
        ({"share": 0.5}, (48 + 8) * 150),
    ],
)
def test_a_cache_takes_its_size_and_the_numbers_of_its_rows(
    cache: dict[str, Any], size: float
) -> None:
    assert cache_bytes(settings_of(**cache), DATASET) == size


def test_a_cache_takes_in_no_more_rows_than_others_own() -> None:
    settings = settings_of(share=0.5)
    assert cache_bytes(settings, DATASET, 149) == (48 + 8) * 149
    assert cache_bytes(settings, DATASET, 150) == (48 + 8) * 150
    assert cache_bytes(settings, DATASET, 151) == (48 + 8) * 150


@pytest.mark.parametrize(
    ("policy", "rows"), [("vip", 1), ("degree", 1), ("lru", 3), ("hot", 3)]
)
def test_each_sampler_of_a_machine_needs_a_row_but_of_fixed_ones(
    policy: str, rows: int
) -> None:
    plan = CachePlan(policy, 100, 0, (0, 2, 2, 1, 2))
    assert _least_rows(plan) == rows


@pytest.mark.parametrize(
    ("window", "iterations", "fits"),
    [(3, 3, True), (4, 3, False), (None, 3, True), (4, None, True), (2, 3, True)],
)
def test_a_window_is_no_longer_than_the_job(
    window: int | None, iterations: int | None, *, fits: bool
) -> None:
    assert (_beyond(window, iterations) == "") is fits


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"size": "1 kB"}, ""),
        ({"share": 2.0}, ""),
        ({"share": 2.01}, "found share 2.01, machines beside one's own have 2"),
        ({}, "found neither of size and share"),
        ({"size": "1 kB", "share": 1.0}, "found both of size and share"),
    ],
)
def test_a_size_is_one_of_two_and_a_share_at_most_that_of_all_others(
    keys: dict[str, Any], words: str
) -> None:
    section = CacheSection.model_validate({"policy": "vip", **keys})
    problem = _size_problem(section, 2)
    assert problem.startswith(words)
    assert bool(problem) == bool(words)


def test_a_share_may_be_in_percent() -> None:
    """A number is one as it stands, also above 1."""
    for stated, share in (("20 %", 0.2), (0.2, 0.2), ("150 %", 1.5), (1.5, 1.5)):
        section = CacheSection.model_validate({"policy": "vip", "share": stated})
        assert section.share == share
    with pytest.raises(ValidationError) as found:
        CacheSection.model_validate({"policy": "vip", "share": "much"})
    (error,) = found.value.errors()
    assert describe(error).startswith("found 'much' for a share, write a number and")


#: Two stores; two samplers beside the second, others on machines without one.
PLACES = {"g0": "a", "g1": "b", "s0": "b", "s1": "d", "s2": "c", "s3": "b", "s4": "d"}
TASKS = [
    Task(name, "graph_store" if name[0] == "g" else "sampler", pinned=machine)
    for name, machine in PLACES.items()
]


def test_machines_without_a_store_have_numbers_behind_all_of_them() -> None:
    assert _homes(TASKS, PLACES) == [1, 2, 3, 1, 2]


def test_caches_lie_where_samplers_may_stand_and_no_store_does() -> None:
    cluster = Cluster(tuple(Machine(name, 1.0, 1.0) for name in "abcde"))
    assert _without_store(TASKS, cluster) == ["c", "d"]
    movable = [*TASKS, Task("s5", "sampler")]
    assert _without_store(movable, cluster) == ["c", "d", "e"]
    assert _without_store([*TASKS, Task("w", "worker")], cluster) == ["c", "d"]


def test_settled_caches_have_the_homes_of_their_samplers() -> None:
    settings = settings_of(homes=[0] * 5, share=0.5)
    job = Job(tuple(TASKS), (), 3, settings=settings)
    found = settle_caches(job, PLACES, first=2).settings["cache"]
    assert (found["homes"], found["first"]) == ([1, 2, 3, 1, 2], 2)
    assert found["share"] == 0.5
    # Of p3 the key is another.
    other = Job(tuple(TASKS), (), 3, settings={"cache": 3})
    assert not keeps_rows(other)
    assert settle_caches(other, PLACES) is other
    assert not keeps_rows(Job(tuple(TASKS), (), 1))


@pytest.mark.parametrize(("stores", "homes"), [(2, [0, 0, 1, 1]), (3, [0, 0, 1, 2])])
def test_before_placement_samplers_are_spread_over_the_stores(
    stores: int, homes: list[int]
) -> None:
    cache = {"policy": "window", "size": "4 kB", "window": 2}
    section = section_of("dgtp", cache=cache)
    assert section.cache_settings(stores, 4) == {
        "cache": {
            "policy": "window",
            "size": 4000.0,
            "share": 0.0,
            "window": 2,
            "homes": homes,
            "first": 0,
        }
    }
    by_share = section_of("dgtp", cache={"policy": "vip", "share": 0.5})
    settings = by_share.cache_settings(stores, 4)["cache"]
    assert (settings["size"], settings["share"], settings["window"]) == (0.0, 0.5, 0)
    unstated = section_of("rapid_gnn")
    assert unstated.cache_settings(1, 4) == {}
    assert unstated.cache_settings(2, 4)["cache"]["homes"] == [0, 0, 1, 1]
    assert section_of("dgtp").cache_settings(2, 4) == {}


def test_a_line_on_caches_has_every_figure() -> None:
    figures = {
        "rows": 1200,
        "policy": "vip",
        "hits": 3000,
        "misses": 1000,
        "hit_rate": 0.75,
        "bytes_saved": 144000,
        "empty_messages": 7,
    }
    assert cache_line(figures) == (
        "caches of 1,200 rows (vip): 3,000 hits, 1,000 misses of rows that others own "
        "(75.0%), 144 kB saved, 7 messages without a row"
    )
