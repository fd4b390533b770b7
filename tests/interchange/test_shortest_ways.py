"""Shortest ways by hand: the first found of one cost, ties, ends not run through."""

from __future__ import annotations

import pytest

from emu.interchange.shortest_ways import Way, shortest_ways

#: Two ways from a to d that cost 3; a third one costs more.
COSTS = {
    ("a", "b"): 1,
    ("a", "c"): 2,
    ("a", "d"): 4,
    ("b", "d"): 2,
    ("c", "d"): 1,
    ("d", "e"): 5,
}


def test_of_ways_of_one_cost_the_one_found_first_is_taken() -> None:
    """Over b, which is nearer; what runs through the tie is one of several, too."""
    ways = shortest_ways("a", COSTS)
    assert ways == {
        "a": Way(0, ["a"]),
        "b": Way(1, ["a", "b"]),
        "c": Way(2, ["a", "c"]),
        "d": Way(3, ["a", "b", "d"], is_tie=True),
        "e": Way(8, ["a", "b", "d", "e"], is_tie=True),
    }


@pytest.mark.parametrize("first", ["b", "c"])
def test_of_places_as_near_the_edge_that_is_stated_first_leads_on(first: str) -> None:
    second = "c" if first == "b" else "b"
    edges = [("a", first), ("a", second), ("b", "d"), ("c", "d")]
    ways = shortest_ways("a", dict.fromkeys(edges, 1))
    assert ways["d"] == Way(2, ["a", first, "d"], is_tie=True)


def test_a_last_place_ends_ways_unless_they_begin_there() -> None:
    ways = shortest_ways("a", COSTS, last={"a", "b"})
    assert ways["b"] == Way(1, ["a", "b"])
    assert ways["d"] == Way(3, ["a", "c", "d"])


def test_back_over_an_edge_of_no_cost_is_no_other_way() -> None:
    ways = shortest_ways("a", {("a", "b"): 0, ("b", "a"): 0, ("b", "c"): 1})
    assert not any(way.is_tie for way in ways.values())
