"""Key ``stores`` by hand: which machines own a part, and what each store needs."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from emu.errors import ScenarioError
from emu.problem.fields.cluster_section import ClusterSection
from tests.systems.sections import section_of

#: Of the machines without gpus one has no room for a store of 8 GB.
CLUSTER = ClusterSection.model_validate(
    {
        "machines": [
            {"name": "gpu0", "nic": "1 Gbit/s", "gpu": 1, "memory": "16 GB"},
            {"name": "small", "nic": "1 Gbit/s", "memory": "4 GB"},
            {"name": "disk0", "nic": "1 Gbit/s", "memory": "16 GB"},
            {"name": "gpu1", "nic": "1 Gbit/s", "gpu": 1, "memory": "4 GB"},
            {"name": "disk1", "nic": "1 Gbit/s", "memory": "8 GB"},
        ]
    }
)
NAMES = tuple(CLUSTER.names)


def section(stores: Any, **keys: Any) -> Any:
    demands = {"graph_store": {"memory": "8 GB"}}
    return section_of("dgtp", stores=stores, demands=demands, **keys)


@pytest.mark.parametrize(
    ("stores", "keys", "pool"),
    [
        # Storage with room, where there is enough of it.
        (1, {}, ("disk0", "disk1")),
        (2, {}, ("disk0", "disk1")),
        # Else all, those with room first.
        (3, {}, ("gpu0", "disk0", "disk1", "small", "gpu1")),
        (5, {}, ("gpu0", "disk0", "disk1", "small", "gpu1")),
        # Of a number that best chooses as well all that have room.
        ("auto", {}, ("gpu0", "disk0", "disk1")),
        (1, {"machines": ["small", "disk1", "gpu0"]}, ("disk1",)),
        (2, {"machines": ["small", "disk1", "gpu0"]}, ("disk1", "gpu0", "small")),
        (None, {}, NAMES),
    ],
)
def test_stores_are_chosen_among_storage_where_there_is_enough(
    stores: Any, keys: dict[str, Any], pool: tuple[str, ...]
) -> None:
    job = section(stores, **keys).on_cluster(CLUSTER)
    assert job.choice_pool(NAMES) == pool
    assert job.chosen_count == (stores if isinstance(stores, int) else None)
    if isinstance(stores, int):
        # In the order of the cluster, by which parts are numbered.
        first = [name for name in NAMES if name in pool[:stores]]
        assert job.owners(NAMES) == tuple(first)


def test_without_room_anywhere_all_machines_may_be_asked() -> None:
    demands = {"graph_store": {"memory": "99 GB"}}
    job = section_of("dgtp", stores="auto", demands=demands).on_cluster(CLUSTER)
    assert job.choice_pool(NAMES) == NAMES


@pytest.mark.parametrize(
    ("stores", "names", "memory"),
    [
        # The memory of one of five is stated: of three, or one, the rest is shared.
        ("auto", ("a", "b", "c"), 13_333_333_334),
        ("auto", ("a",), 40_000_000_000),
        # Of a number that of one store, which stays.
        (2, ("a", "b"), 8_000_000_000),
    ],
)
def test_fewer_stores_need_more_memory_each(
    stores: Any, names: tuple[str, ...], memory: float
) -> None:
    job = section(stores).on_machines(names, 5)
    assert job.stores == names
    assert job.demands.graph_store.memory == memory
    keys = job.machine_keys()
    assert keys["job.stores"] == list(names)
    size = keys["job.demands.graph_store.memory"]
    assert section(stores).memory_key["job.demands.graph_store.memory"] == "8 GB"
    assert (size == "8 GB") == (memory == 8e9)


def test_stores_that_are_stated_are_no_choice() -> None:
    assert section(["a", "b"]).on_machines(("a",), 5) is None
    assert section(2).on_machines(("a",), 5) is None
    assert section(["a", "b"]).owners("abc") == ("a", "b")
    assert section(["a", "b"]).has_stores_apart
    assert section(2).has_stores_apart
    assert not section("auto").has_stores_apart
    assert not section(None).has_stores_apart
    assert section(None).store_keys == {}
    assert section(2).store_keys == {"stores": 2}
    assert section("auto").machine_keys() == {}


@pytest.mark.parametrize(("stores", "fits"), [(7, True), (8, False)])
def test_each_store_owns_a_vertex(stores: int, *, fits: bool) -> None:
    if fits:
        section(2).check_parts(stores, 7)
    else:
        with pytest.raises(ScenarioError, match="8 graph stores for 7 vertices"):
            section(2).check_parts(stores, 7)


@pytest.mark.parametrize("found", [0, -1, True, [], ["a", 1], "all", 1.5])
def test_what_stores_cannot_be(found: Any) -> None:
    with pytest.raises(ValidationError, match="write names of machines, how many"):
        section(found)


@pytest.mark.parametrize(
    ("stores", "keys", "words"),
    [
        (5, {}, ""),
        (6, {}, "found 6, 5 machines may have one: write 5 or fewer"),
        (3, {"machines": ["gpu0", "small"]}, "found 3, 2 machines may have one"),
        (2, {"machines": ["gpu0", "small"]}, ""),
        (["disk0", "disk0"], {}, "'disk0' occurs 2 times"),
    ],
)
def test_no_more_stores_than_machines(
    stores: Any, keys: dict[str, Any], words: str
) -> None:
    found = [*section(stores, **keys).problems(CLUSTER)]
    assert bool(found) == bool(words)
    for trail, problem in found:
        assert trail[:2] == ("job", "stores")
        assert problem.startswith(words)
