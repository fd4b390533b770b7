"""Clusters by hand: parts of them, other capacities, what may not be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emu.problem import CapacityChange, Cluster, Link, Machine, Route, Tuner
from emu.problem.changes import SpeedChange, SpeedSteps

#: Three machines that differ in everything, of which the last has no NIC.
CLUSTER = Cluster(
    machines=(
        Machine("m0", 3.0, 4.0, {"gpu": 2.0}, slots={"cpu": 2, "gpu": 5}),
        Machine("m1", 5.0, 6.0, {"ram": 9.0}, slots={"gpu": 3}, latency_in=0.5),
        Machine("m2", 0.0, 0.0),
    ),
    shared_links=(Link("wire", 9.0, latency=0.25), Link("bus", 8.0)),
    routes=(
        Route((0, 1), (2,), ("out", "wire")),
        Route((2,), (0, 1), ("bus", "in")),
        Route((0,), (1,), ("out", "bus", "in")),
    ),
    changes=(
        CapacityChange(2.0, "wire", 1.0),
        CapacityChange(3.0, "m1 in", 7.0),
        CapacityChange(4.0, "m0 out", 2.0),
    ),
    tuners=(
        Tuner(1, "gpu", "gpu", most=7, period=0.5),
        Tuner(0, "cpu", "gpu", most=6, period=0.25),
    ),
    speed_changes=(SpeedChange(1.0, "m0", 0.5), SpeedChange(2.0, "m1", 0.25)),
)


@pytest.mark.parametrize(
    ("tuners", "story"),
    [
        ([Tuner(3, "gpu", "gpu", most=2)], "a tuner is of machine number 3"),
        ([Tuner(-1, "gpu", "gpu", most=2)], "a tuner is of machine number -1"),
        ([Tuner(0, "gpu", "cpu", most=2)] * 2, "pool gpu of m0 has 2 tuners"),
        ([Tuner(1, "cpu", "gpu", most=2)], "pool cpu of m1 is tuned: it needs slots"),
    ],
)
def test_a_tuner_is_of_one_pool_that_has_slots(tuners: list[Tuner], story: str) -> None:
    with pytest.raises(ValueError, match=story):
        replace(CLUSTER, tuners=tuple(tuners))


def test_machines_are_some_and_have_names_of_their_own() -> None:
    with pytest.raises(ValueError, match="at least one machine"):
        Cluster(())
    with pytest.raises(ValueError, match="machine a occurs twice"):
        Cluster((Machine("a", 1.0, 2.0), Machine("a", 3.0, 4.0)))
    assert CLUSTER.index("m1") == 1
    with pytest.raises(ValueError, match="no machine is called m3; there are m0, m1"):
        CLUSTER.index("m3")
    assert CLUSTER.resource_names() == ("gpu", "ram")


def test_a_part_has_what_is_of_its_machines() -> None:
    part = CLUSTER.only({"m1", "m2"})

    assert part.machines == CLUSTER.machines[1:]
    assert part.shared_links == CLUSTER.shared_links
    # Positions are others; the route from m0 to m1 is of a machine that is gone.
    assert part.routes == (
        Route((0,), (1,), ("out", "wire")),
        Route((1,), (0,), ("bus", "in")),
    )
    assert part.changes == CLUSTER.changes[:2]
    assert part.tuners == (replace(CLUSTER.tuners[0], machine=0),)
    assert part.speed_changes == CLUSTER.speed_changes[1:]
    alone = CLUSTER.only({"m0"})
    assert (alone.routes, alone.changes) == (
        (),
        (*CLUSTER.changes[:1], CLUSTER.changes[2]),
    )


def test_a_route_within_a_group_goes_with_all_but_one_of_it() -> None:
    """Two of three machines that a link joins keep it; the last one has no use."""
    group = (0, 1, 2)
    cluster = replace(CLUSTER, routes=(Route(group, group, ("bus",)),), changes=())

    pair = cluster.only({"m0", "m2"})
    assert pair.routes == (Route((0, 1), (0, 1), ("bus",)),)
    assert cluster.only({"m1"}).routes == ()


def test_tuners_follow_the_quotas_of_a_run() -> None:
    quotas = np.array([[3, 2], [4, 1], [0, 5]])

    assert CLUSTER.tuned_names == ("gpu of m1", "cpu of m0")
    paths = [tuner.path for tuner in CLUSTER.following(quotas).tuners]
    assert paths == [(3, 4), (2, 1, 5)]
    assert CLUSTER.following(None).tuners == CLUSTER.tuners


def test_capacities_are_scaled_then_and_later() -> None:
    ports = [link.name for link in CLUSTER.links]
    chosen = [ports.index("m1 in"), ports.index("wire")]
    wider = CLUSTER.with_capacities(chosen, 10.0)

    found = {link.name: link.capacity for link in wider.links}
    assert found == {
        "m0 out": 4.0,
        "m0 in": 3.0,
        "m1 out": 6.0,
        "m1 in": 50.0,
        "wire": 90.0,
        "bus": 8.0,
    }
    assert [change.capacity for change in wider.changes] == [10.0, 70.0, 2.0]


def test_latencies_are_scaled_of_machines_and_links() -> None:
    slower = CLUSTER.with_latencies(4.0)

    assert [machine.latency_in for machine in slower.machines] == [0.0, 2.0, 0.0]
    assert [link.latency for link in slower.shared_links] == [1.0, 0.0]


def test_the_widest_has_the_most_that_links_and_machines_ever_have() -> None:
    widest = CLUSTER.widest

    capacity = {link.name: link.capacity for link in widest.links}
    assert (capacity["wire"], capacity["m1 in"], capacity["m0 out"]) == (9.0, 7.0, 4.0)
    assert (widest.changes, widest.speed_changes) == ((), ())
    steady = replace(CLUSTER, changes=(), speed_changes=())
    assert steady.widest is steady
    for part in ({"changes": ()}, {"speed_changes": ()}):
        part_widest = replace(CLUSTER, **part).widest
        assert (part_widest.changes, part_widest.speed_changes) == ((), ())


def test_what_begins_later_has_each_last_change_at_once() -> None:
    """At 3.5 s wire has changed twice, m1 in once; m0 out changes 0.5 s later."""
    again = CapacityChange(3.25, "wire", 6.0)
    cluster = replace(CLUSTER, changes=(again, *CLUSTER.changes))

    assert cluster.beginning_at(0.0) is cluster
    later = cluster.beginning_at(3.5)
    found = {change.link: (change.time, change.capacity) for change in later.changes}
    assert found == {"wire": (1e-9, 6.0), "m1 in": (1e-9, 7.0), "m0 out": (0.5, 2.0)}
    speeds = {
        change.machine: (change.time, change.share) for change in later.speed_changes
    }
    assert speeds == {"m0": (1e-9, 0.5), "m1": (1e-9, 0.25)}


def test_of_changes_before_a_later_beginning_the_last_one_counts() -> None:
    """Changes are in no order: at 6 s m0 takes in 2 B/s and m1 has half its speed."""
    cluster = Cluster(
        (Machine("m0", 9.0, 8.0), Machine("m1", 7.0, 6.0)),
        changes=(
            CapacityChange(5.0, "m0 in", 2.0),
            CapacityChange(8.0, "m0 in", 4.0),
            CapacityChange(1.0, "m0 in", 3.0),
            CapacityChange(7.0, "m1 in", 1.0),
        ),
        speed_changes=(SpeedChange(4.0, "m1", 0.5), SpeedChange(2.0, "m1", 0.25)),
    )
    later = cluster.beginning_at(6.0)

    changes = {(change.link, change.time): change.capacity for change in later.changes}
    assert changes == {("m0 in", 1e-9): 2.0, ("m0 in", 2.0): 4.0, ("m1 in", 1.0): 1.0}
    assert later.speed_changes == (SpeedChange(1e-9, "m1", 0.5),)


def test_speeds_go_by_time_however_they_are_listed() -> None:
    changes = (
        SpeedChange(4.0, "m1", 0.5),
        SpeedChange(2.0, "m1", 0.25),
        SpeedChange(3.0, "m0", 0.125),
    )
    steps = SpeedSteps(changes, {"m0": 0, "m1": 1})

    assert steps.of(1) == ([0.0, 2.0, 4.0], [1.0, 0.25, 0.5])
    first, times, shares = steps.flat
    assert first.tolist() == [0, 2, 5]
    assert times.tolist() == [0.0, 3.0, 0.0, 2.0, 4.0]
    assert shares.tolist() == [1.0, 0.125, 1.0, 0.25, 0.5]
    work = steps.work(1, np.array([1.0, 3.0]), np.array([5.0, 3.5]))
    assert work.tolist() == [1.0 + 2 * 0.25 + 0.5, 0.125]
