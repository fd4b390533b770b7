"""Faults as changes of capacities: held against a look at every instant."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.problem import (
    CapacityChange,
    Cluster,
    Fault,
    Kill,
    Machine,
    disturbances,
    next_kills,
    with_faults,
)
from emu.problem.faults import Due

CLUSTER = Cluster((Machine("m0", 10.0, 10.0), Machine("m1", 7.0, 3.0)))


def drawn(rng: np.random.Generator) -> tuple[Cluster, list[Fault]]:
    """Return stated changes and faults of two links, some at the same times."""
    changes = {
        (float(rng.integers(1, 12)), str(rng.choice(["m0 out", "m1 in"])))
        for _ in range(rng.integers(0, 5))
    }
    faults = []
    for _ in range(rng.integers(1, 8)):
        since = float(rng.integers(1, 12))
        until = math.inf if rng.random() < 0.1 else since + float(rng.integers(1, 6))
        link = str(rng.choice(["m0 out", "m1 in"]))
        factor = float(rng.choice([0.0, 0.25, 0.3, 1 / 3]))
        faults.append(Fault(link, since, until, factor))
    stated = tuple(CapacityChange(*c, float(rng.uniform(1, 9))) for c in changes)
    return Cluster(CLUSTER.machines, changes=stated), faults


def test_a_capacity_is_what_is_stated_times_all_faults_of_then() -> None:
    rng = np.random.default_rng(3)
    for _ in range(60):
        stated, faults = drawn(rng)
        links = with_faults(stated, faults).links
        for port, link in enumerate(links):
            for now in (0.0, *np.arange(0.25, 20.0, 0.25)):
                factors = [
                    f.factor
                    for f in faults
                    if f.subject == link.name and f.since <= now < f.until
                ]
                base = float(stated.links.steps.at(port, np.array([now]))[0])
                found = float(links.steps.at(port, np.array([now]))[0])
                assert found == pytest.approx(base * math.prod(factors), rel=1e-15)
                if not factors:
                    assert found == base  # the same bits


def test_a_cluster_without_faults_is_the_same() -> None:
    assert with_faults(CLUSTER, []) is CLUSTER


def test_a_change_to_the_same_capacity_is_none() -> None:
    stated = (
        CapacityChange(1.0, "m0 out", 10.0),
        CapacityChange(2.0, "m0 out", 5.0),
        CapacityChange(3.0, "m0 out", 5.0),
    )
    links = Cluster(CLUSTER.machines, changes=stated).links
    assert links.steps.rows.tolist() == [[2.0, 0.0, 5.0]]


@pytest.mark.parametrize(
    "fault",
    [
        ("m0 out", 0.0, 2.0, 0.0),
        ("m0 out", 2.0, 2.0, 0.0),
        ("m0 out", math.inf, math.inf, 0.0),
        ("m0 out", 1.0, 2.0, 1.5),
        ("m0 out", 1.0, 2.0, -0.5),
    ],
)
def test_faults_that_cannot_be(fault: tuple[str, float, float, float]) -> None:
    with pytest.raises(ValueError, match="a fault of m0 out"):
        Fault(*fault)


def test_a_fault_of_no_link() -> None:
    with pytest.raises(ValueError, match="no link is called m7 out"):
        with_faults(CLUSTER, [Fault("m7 out", 1.0, 2.0)])


def test_when_a_port_can_have_carried_bytes() -> None:
    faults = [Fault("m0 out", 2.0, 4.0), Fault("m0 out", 8.0, math.inf)]
    steps = with_faults(CLUSTER, faults).links.steps

    sizes = [0.0, 5.0, 20.0, 20.5, 60.0, 60.5]
    assert [steps.when(0, size) for size in sizes] == [
        0.0, 0.5, 2.0, pytest.approx(4.05), 8.0, math.inf,
    ]  # fmt: skip
    assert steps.cut_for_good == [0]


def test_a_change_of_an_instant_is_made_by_then_but_for_rounding() -> None:
    """A third of 0.9 is a little less than 0.1 + 0.2."""
    instant = 0.1 + 0.2
    change = CapacityChange(instant, "m0 out", 4.0)
    steps = Cluster(CLUSTER.machines, changes=(change,)).links.steps
    times = np.array([0.9 / 3, 0.2999])
    assert instant > 0.9 / 3
    assert steps.at(0, times).tolist() == [4.0, 10.0]


def test_what_comes_last_of_a_port_says_whether_it_is_cut_for_good() -> None:
    faults = [
        Fault("m0 out", 2.0, 4.0),
        Fault("m1 in", 3.0, 5.0, 0.5),
        Fault("m1 in", 6.0, math.inf),
    ]
    steps = with_faults(CLUSTER, faults).links.steps
    assert steps.cut_for_good == [3]


def test_every_change_of_a_port_loses_from_what_it_had_by_then() -> None:
    changes = (
        CapacityChange(1.0, "m1 in", 5.0),
        CapacityChange(2.0, "m1 out", 1.0),
        CapacityChange(4.0, "m1 in", 2.0),
        CapacityChange(7.0, "m1 in", 6.0),
    )
    steps = Cluster(CLUSTER.machines, changes=changes).links.steps
    # Of m1 7 come in at first, and 3 go out.
    assert steps.losses.tolist() == [
        [1.0, 3, 2.0],
        [2.0, 2, 2.0],
        [4.0, 3, 3.0],
        [7.0, 3, -4.0],
    ]


def test_times_in_which_something_is_slow_or_stands_still() -> None:
    faults = [
        Fault("m0 out", 2.0, 4.0),
        Fault("m1 in", 3.0, math.inf, 0.5),
        Fault("m1", 5.0, 6.0, 0.0, of_machine=True),
        Fault("m1", 6.0, 99.0, 0.5, of_machine=True),
        Fault("m0", 20.0, 21.0, 0.5, of_machine=True),  # after the end
    ]
    found = disturbances(with_faults(CLUSTER, faults), 10.0)

    assert [(d.what, d.since, d.until, d.port, d.machine) for d in found] == [
        ("cut", 2.0, 4.0, 0, -1),
        ("slow", 3.0, 10.0, 3, -1),
        ("pause", 5.0, 6.0, -1, 1),
        ("slow", 6.0, 10.0, -1, 1),
    ]


def test_a_link_is_disturbed_where_it_has_less_than_at_first() -> None:
    """Not where it has more, or as much as at first again."""
    rates = {2.0: 20.0, 3.0: 10.0, 5.0: 4.0, 7.0: 15.0}
    changes = [CapacityChange(time, "m0 out", rate) for time, rate in rates.items()]
    cluster = Cluster(CLUSTER.machines, changes=tuple(changes))

    (row,) = disturbances(cluster, 100.0)

    assert (row.what, row.since, row.until, row.port) == ("slow", 5.0, 7.0, 0)


@pytest.mark.parametrize(("end", "spans"), [(2.0, []), (2.5, [(2.0, 2.5)])])
def test_what_begins_as_a_run_ends_has_not_disturbed_it(
    end: float, spans: list[tuple[float, float]]
) -> None:
    cluster = Cluster(
        (Machine("m0", 3.0, 4.0),),
        changes=(CapacityChange(2.0, "m0 in", 1.0), CapacityChange(3.0, "m0 in", 3.0)),
    )

    found = disturbances(cluster, end)
    assert [(row.since, row.until) for row in found] == spans


def test_a_kill_by_iterations_counts_them_from_the_first_of_the_attempt() -> None:
    """The attempt begins with iteration 4, at 10 s; each of task 2 takes 3 s of it."""
    kills = [Kill(math.inf, "a", ("a",), ended=(2, count)) for count in (4, 6)]

    due = next_kills(kills, 4, 10.0, lambda task, count: task + 3.0 * (count + 1))
    assert (due.time, due.now) == (0.0, (kills[0],))  # it has ended four by then
    due = next_kills(kills[1:], 4, 10.0, lambda task, count: task + 3.0 * (count + 1))
    assert (due.time, due.now) == (2 + 3.0 * 2, (kills[1],))


@pytest.mark.parametrize("processes", [(), ("p0",)])
def test_of_an_iteration_that_has_not_ended_yet_no_kill_is_due(
    processes: tuple[str, ...],
) -> None:
    kill = Kill(math.inf, "some", processes, ended=(0, 3))
    assert next_kills([kill], 0, 0.0, lambda *_: math.inf) == Due()
    assert next_kills([kill], 2, 1.0, lambda *_: 4.0) == Due(4.0, (kill,))
    # What had ended before the attempt has ended at its beginning.
    assert next_kills([kill], 3, 1.0, lambda *_: 4.0) == Due(0.0, (kill,))


PROCESSES = ("p0", "p1", "p2")


@st.composite
def kills_of(draw: st.DrawFn) -> Kill:
    """Draw a kill at a time, or as a task ends an iteration, of up to two processes."""
    processes = tuple(draw(st.lists(st.sampled_from(PROCESSES), max_size=2)))
    ended = None
    time = float(draw(st.integers(0, 20)))
    if draw(st.booleans()):
        ended = draw(st.tuples(st.integers(0, 1), st.integers(1, 8)))
        time = math.inf
    return Kill(time, "some", processes, ended=ended)


@given(
    kills=st.lists(kills_of(), max_size=5),
    first=st.integers(0, 4),
    began=st.integers(0, 10),
    steps=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    ended=st.integers(0, 6),
    overs=st.lists(st.sampled_from([2.0, 5.0, 9.0, math.inf]), min_size=3, max_size=3),
)
def test_kills_of_an_attempt_are_those_that_a_clock_second_by_second_comes_to(
    kills: list[Kill],
    first: int,
    began: int,
    steps: tuple[int, int],
    ended: int,
    overs: list[float],
) -> None:
    """Its first iteration and instant are the whole job's ``first`` and ``began``.

    A task takes some seconds for each of the ``ended`` iterations that are known.
    """
    over = dict(zip(PROCESSES, overs, strict=True))

    def has_come(kill: Kill, now: int) -> bool:
        if kill.ended is None:
            return kill.time <= began + now
        task, count = kill.ended
        known = min(max(now, 0) // steps[task], ended)
        return first + known >= count and now >= 0

    now = -began - 1
    come: list[Kill] = []
    idle: list[Kill] = []
    fatal: list[Kill] = []
    while not fatal and now < 40:
        now += 1
        news = [kill for kill in kills if kill not in come and has_come(kill, now)]
        come += news
        for kill in news:
            lives = any(over[process] > now for process in kill.processes)
            (fatal if lives or not kill.processes else idle).append(kill)

    due = next_kills(
        kills,
        first,
        began,
        lambda task, iteration: (
            (iteration + 1.0) * steps[task] if iteration < ended else math.inf
        ),
        over.__getitem__,
    )

    assert {*due.now} == {*fatal}
    assert {*due.idle} == {*idle}
    assert due.time == (now if fatal else math.inf)


def test_a_kill_is_fatal_while_one_of_its_processes_lives() -> None:
    """Tasks that end at that instant have ended; a kill without a name takes any."""
    overs = {"p0": 4.0, "p1": 6.0, "p2": 5.0}
    kills = [
        Kill(7.0, "all over", ("p0", "p1")),
        Kill(5.0, "just over", ("p0", "p2")),
        Kill(5.5, "one lives", ("p0", "p1", "p2")),
    ]
    due = next_kills(kills, 0, 0.0, lambda *_: math.inf, overs.__getitem__)
    assert due.time == 5.5
    assert [kill.name for kill in due.now] == ["one lives"]
    assert [kill.name for kill in due.idle] == ["just over"]
