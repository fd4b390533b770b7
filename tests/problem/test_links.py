"""Links, routes, and the cluster that states them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.problem import CapacityChange, Cluster, Link, Machine, Route
from emu.problem.changes import SpeedChange


def machines(*nics: float) -> tuple[Machine, ...]:
    return tuple(Machine(f"m{m}", nic, nic) for m, nic in enumerate(nics))


def two_racks() -> Cluster:
    return Cluster(
        machines(10, 10, 10, 20),
        (Link("r0 up", 12.0), Link("r1 down", 12.0)),
        (Route((0, 1), (2, 3), ("out", "r0 up", "r1 down", "in")),),
    )


def test_links_are_nics_and_what_is_shared() -> None:
    links = two_racks().links

    assert [link.name for link in links][:3] == ["m0 out", "m0 in", "m1 out"]
    assert [(link.machine, link.direction) for link in links][7:9] == [
        (3, "in"),
        (-1, ""),
    ]
    assert links.shared == (8, 9)
    assert links.of_machine(2) == (4, 5)
    assert links.capacities.tolist() == [10.0] * 6 + [20.0] * 2 + [12.0] * 2


def test_a_route_is_what_was_stated_or_from_nic_to_nic() -> None:
    links = two_racks().links

    def names(source: int, destination: int) -> list[str]:
        return [links[port].name for port in links.route(source, destination)]

    assert names(0, 3) == ["m0 out", "r0 up", "r1 down", "m3 in"]
    assert names(1, 2) == ["m1 out", "r0 up", "r1 down", "m2 in"]
    assert names(0, 1) == ["m0 out", "m1 in"]
    assert names(3, 0) == ["m3 out", "m0 in"]
    assert names(2, 2) == []
    assert links.zone.tolist() == [0, 0, 1, 1]


def test_a_nic_that_a_route_leaves_out_is_not_always_crossed() -> None:
    cluster = Cluster(
        machines(10, 10, 10), (Link("nv", 5.0),), (Route((0,), (1,), ("nv",)),)
    )

    crossed = [
        [cluster.links.always_crossed(m, side) for side in (0, 1)] for m in range(3)
    ]
    assert crossed == [[False, True], [True, False], [True, True]]


def test_what_a_machine_would_send_itself_crosses_nothing() -> None:
    """A route from both to m0 alone says nothing of what m0 sends to m1."""
    routes = (Route((0, 1), (0,), ("core",)),)
    links = Cluster(machines(10, 20), (Link("core", 5.0),), routes).links
    crossed = [[links.always_crossed(m, side) for side in (0, 1)] for m in range(2)]
    assert crossed == [[True, False], [False, True]]


def test_a_nic_is_not_crossed_between_machines_of_one_box() -> None:
    """To each other m0 and m1 send by a link of their own, to m2 by their NICs."""
    routes = (Route((0, 1), (0, 1), ("nv",)),)
    links = Cluster(machines(10, 10, 10), (Link("nv", 5.0),), routes).links
    crossed = [[links.always_crossed(m, side) for side in (0, 1)] for m in range(3)]
    assert crossed == [[False, False], [False, False], [True, True]]


def test_a_machine_that_sends_is_apart_from_one_that_receives() -> None:
    """Each of three routes leads one way: back, flows go from NIC to NIC."""
    shared = tuple(Link(name, 5.0) for name in ("x", "y", "z"))
    ends = ((0, 1), (2, 3), (4, 5))
    routes = [
        Route((source,), (destination,), (link.name,))
        for (source, destination), link in zip(ends, shared, strict=True)
    ]
    links = Cluster(machines(*[10] * 6), shared, tuple(routes)).links
    ways = {}
    for source, destination in (*ends, (1, 0), (3, 2), (5, 4)):
        ports = links.route(source, destination)
        ways[source, destination] = [links[port].name for port in ports]
    assert ways == {
        (0, 1): ["x"],
        (2, 3): ["y"],
        (4, 5): ["z"],
        (1, 0): ["m1 out", "m0 in"],
        (3, 2): ["m3 out", "m2 in"],
        (5, 4): ["m5 out", "m4 in"],
    }


def test_capacities_change_by_port() -> None:
    faster = two_racks().with_capacities({1, 8}, 2.0).links

    assert faster.capacities.tolist() == [10, 20, 10, 10, 10, 10, 20, 20, 24, 12]
    assert [link.name for link in faster] == [link.name for link in two_racks().links]


NV = (Link("nv", 5.0), Link("pcie", 1.0))


@pytest.mark.parametrize(
    ("routes", "story"),
    [
        ([Route((0,), (1,), ())], "needs at least one link"),
        ([Route((0,), (1,), ("nvlink",))], "no link is called nvlink"),
        ([Route((0,), (1,), ("nv", "nv"))], "crosses nv twice"),
        ([Route((0,), (1,), ("out", "m0 out"))], "crosses a NIC twice"),
        ([Route((0,), (2,), ("out", "in"))], "machine m2 has no NIC to cross"),
        ([Route((0,), (0,), ("nv",))], "joins no two machines"),
        (
            [Route((0, 1), (1,), ("nv",)), Route((0,), (0, 1), ("pcie",))],
            "from m0 to m1 is stated twice",
        ),
        (
            [Route((0, 1), (0, 1), ("nv",)), Route((0, 1), (0, 1), ("pcie",))],
            "from m0 to m1 is stated twice",
        ),
        ([Route((2,), (0, 1), ("nv",))], "every route to it must be stated"),
        ([Route((0, 1), (2,), ("nv",))], "every route from it must be stated"),
    ],
)
def test_routes_that_cannot_be(routes: list[Route], story: str) -> None:
    with pytest.raises(ValueError, match=story):
        Cluster(machines(10, 10, 0), NV, tuple(routes))


ENDS = st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple)


@given(st.lists(st.tuples(ENDS, ENDS), max_size=4))
def test_every_ordered_pair_has_the_one_route_that_states_it(
    ends: list[tuple[tuple[int, ...], tuple[int, ...]]],
) -> None:
    """Held against a table of all pairs of five machines, or the first fault in it."""
    shared = tuple(Link(f"l{number}", 5.0) for number in range(len(ends)))
    routes = tuple(
        Route(sources, destinations, (link.name,))
        for (sources, destinations), link in zip(ends, shared, strict=True)
    )
    stated: dict[tuple[int, int], str] = {}
    twice: set[tuple[str, str]] = set()
    story = ""
    for route in routes:
        pairs = {(s, d) for s in route.sources for d in route.destinations if s != d}
        twice = {(f"m{s}", f"m{d}") for s, d in pairs & stated.keys()}
        if not pairs or twice:
            story = "stated twice" if pairs else "joins no two machines"
            break
        stated |= dict.fromkeys(pairs, route.through[0])

    if story:
        with pytest.raises(ValueError, match=story) as caught:
            Cluster(machines(*[10.0] * 5), shared, routes)
        named = re.search(r"from (m\d) to (m\d)", str(caught.value))
        assert (named.groups() in twice) if named else not twice
        return

    links = Cluster(machines(*[10.0] * 5), shared, routes).links
    for source, destination in np.ndindex(5, 5):
        if source != destination:
            names = [links[port].name for port in links.route(source, destination)]
            nics = [f"m{source} out", f"m{destination} in"]
            link = stated.get((source, destination))
            assert names == (nics if link is None else [link])


@pytest.mark.parametrize(
    ("link", "story"),
    [
        (Link("nv", 0.0), "capacity 0.0 is not positive"),
        (Link("nv", float("inf")), "capacity inf"),
        (Link("m0 out", 1.0), "2 links are called m0 out"),
        (Link("in", 1.0), "cannot be called in"),
    ],
)
def test_links_that_cannot_be(link: Link, story: str) -> None:
    with pytest.raises(ValueError, match=story):
        Cluster(machines(10, 10), (link,))


def test_the_whole_table_of_a_large_cluster_is_small() -> None:
    racks, each = 40, 80
    routes = [
        Route(
            tuple(range(a * each, (a + 1) * each)),
            tuple(range(b * each, (b + 1) * each)),
            ("out", f"r{a} up", f"r{b} down", "in"),
        )
        for a in range(racks)
        for b in range(racks)
        if a != b
    ]
    shared = [Link(f"r{r} {way}", 40.0) for r in range(racks) for way in ("up", "down")]
    links = Cluster(
        machines(*[10.0] * racks * each), tuple(shared), tuple(routes)
    ).links

    assert links.route_of.size == racks**2
    assert [links[p].name for p in links.route(0, 3199)] == [
        *("m0 out", "r0 up", "r39 down", "m3199 in"),
    ]


def test_latencies_are_scaled_each_by_itself() -> None:
    machines = (
        Machine("a", 1.0, 2.0, latency_in=0.25, latency_out=0.5),
        Machine("b", 3.0, 4.0),
    )
    rack = Link("rack", 5.0, latency=1.0)
    scaled = Cluster(machines, shared_links=(rack,)).with_latencies(4.0)

    assert {link.name: link.latency for link in scaled.links} == {
        "a out": 2.0,
        "a in": 1.0,
        "b out": 0.0,
        "b in": 0.0,
        "rack": 4.0,
    }


@pytest.mark.parametrize("seed", range(40))
def test_capacities_and_speeds_are_those_of_then(seed: int) -> None:
    rng = np.random.default_rng(seed)
    links, names = ["m0 out", "m0 in", "m1 out"], ["m0", "m1"]
    changes = [
        CapacityChange(float(t), link, float(rng.choice([0.0, 3.0, 20.0])))
        for link in links
        for t in rng.uniform(0.1, 9.0, rng.integers(0, 5))
    ]
    speeds = [
        SpeedChange(float(t), name, float(rng.choice([0.0, 0.25, 1.0])))
        for name in names
        for t in rng.uniform(0.1, 9.0, rng.integers(0, 5))
    ]
    speeds += [SpeedChange(10.0, name, 1.0) for name in names]
    machines = tuple(Machine(name, 10.0, 10.0) for name in names)
    whole = Cluster(machines, changes=tuple(changes), speed_changes=tuple(speeds))
    first, second = rng.uniform(0.0, 6.0, 2)
    later = whole.beginning_at(first).beginning_at(second)
    assert whole.beginning_at(0.0) is whole
    assert later.machines == whole.machines
    since = float(first + second)
    times = np.append(2e-9, rng.uniform(0.0, 10.0, 40))
    for port in range(len(whole.links)):
        found = later.links.steps.at(port, times)
        np.testing.assert_array_equal(found, whole.links.steps.at(port, times + since))
    for machine in range(2):
        done = later.speed_steps.work(machine, np.zeros(41), times)
        there = whole.speed_steps.work(machine, np.full(41, since), times + since)
        np.testing.assert_allclose(done, there, atol=1e-8)
