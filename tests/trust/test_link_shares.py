"""Parts of stated rates that links and flows had, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emu.prediction.simulation import simulate
from emu.problem import (
    CapacityChange,
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    RateHistory,
    Realization,
    Schedule,
    Task,
)
from emu.trust.link_shares import (
    Share,
    _means_of,
    links_to_blame,
    lone_rates,
    max_min_shares,
    slow_links,
    unequal_shares,
)

#: From s (20 B/s out) and t (40 B/s out) to r (10 B/s in), and from r (50 B/s out) to
#: t (25 B/s in).
MACHINES = (
    Machine("s", 30.0, 20.0),
    Machine("t", 25.0, 40.0),
    Machine("r", 10.0, 50.0),
)


def ran(
    start: list[float],
    end: list[float],
    size: list[float],
    changes: tuple[CapacityChange, ...] = (),
) -> Schedule:
    """Return a run of the flows s->r, t->r and r->t, each once, as they went."""
    tasks = tuple(Task(name, "x") for name in ("s", "t", "r", "r2", "t2"))
    job = Job(tasks, (Edge(0, 2), Edge(1, 2), Edge(3, 4)), 1)
    cluster = Cluster(MACHINES, changes=changes)
    problem = Problem(cluster, job, Placement((0, 1, 2, 2, 1)))
    volumes = np.array(size)[:, None]
    made = simulate(problem, Realization(np.ones((5, 1)), volumes), "maxmin")
    return replace(
        made,
        flow_start=np.array(start)[:, None],
        flow_end=np.array(end)[:, None],
        rates=None,
    )


def test_links_are_blamed_by_what_their_flows_lost_then_by_what_they_carry() -> None:
    """Both of the first cross r in: 5 + 3 s; its flows take 12 s of it at full rate."""
    schedule = ran([1, 1, 1], [9, 9, 9], [40.0, 80.0, 100.0])
    late = [(0, 5.0), (1, -3.0), (2, 5.0)]

    # s out is busy for 2 s, r out for 2 s, t in for 4 s: of equal losses the busier.
    assert links_to_blame(schedule, late, 0.0) == [
        "r in",
        "t in",
        "s out",
        "r out",
        "t out",
    ]
    assert links_to_blame(schedule, late, 5.0) == ["r in", "t in", "s out", "r out"]
    assert links_to_blame(schedule, late, 5.1) == ["r in"]
    assert links_to_blame(schedule, [], 0.0) == []


def test_a_flow_alone_has_its_share_of_the_narrowest_link() -> None:
    """The first two meet in r in; the last has 60 B in 4 s over 25 B/s of t in."""
    schedule = ran([1, 2, 1], [3, 4, 5], [10.0, 10.0, 60.0])
    assert {
        schedule.problem.links[port].name: rates
        for port, rates in lone_rates(schedule).items()
    } == {"t in": [60 / 4 / 25]}
    # Of its 4 s one and a half do not count; nor more than nine tenths of them.
    for stalled, moving in ((1.5, 2.5), (3.9, 0.4)):
        stalls = np.array([[9.0], [9.0], [stalled]])
        (rates,) = lone_rates(schedule, stalls).values()
        assert rates == pytest.approx([60 / moving / 25])


@pytest.mark.parametrize(("second", "is_alone"), [(3.0, True), (2.9, False)])
def test_flows_that_follow_each_other_at_once_are_alone(
    second: float, *, is_alone: bool
) -> None:
    schedule = ran([1, second, 1], [3, 7, 5], [10.0, 20.0, 60.0])
    found = {
        schedule.problem.links[port].name: rates
        for port, rates in lone_rates(schedule).items()
    }
    expected = {"r in": [10 / 2 / 10, 20 / 4 / 10]} if is_alone else {}
    assert found == {"t in": [60 / 4 / 25]} | expected


def test_a_link_that_changes_has_the_mean_of_what_it_had_meanwhile() -> None:
    """Link t in has 25 B/s, 5 from 2 s, 100 from 4 s on: r out, 50, is less then."""
    changes = (CapacityChange(2.0, "t in", 5.0), CapacityChange(4.0, "t in", 100.0))
    schedule = ran([1, 9, 1], [3, 9, 3], [10.0, 0.0, 20.0], changes)
    found = {schedule.problem.links[p].name: r for p, r in lone_rates(schedule).items()}
    assert found["t in"] == pytest.approx([20 / 2 / ((25 + 5) / 2)])

    later = ran([1, 9, 5], [3, 9, 6], [10.0, 0.0, 20.0], changes)
    found = {later.problem.links[p].name: r for p, r in lone_rates(later).items()}
    assert found == {"r in": [10 / 2 / 10], "r out": [20 / 50]}


def test_shares_leave_out_what_held_a_flow_up() -> None:
    """Each could have had half of r in, 5 B/s, while both went, from 1 to 5 s."""
    schedule = ran([1, 1, 1], [5, 5, 5], [30.0, 10.0, 90.0])
    stalls = np.array([[1.0], [4.0], [0.0]])

    shares = max_min_shares(schedule, [(0, 0)], stalls)

    # The second did not move at all; the third met nobody.
    assert shares == {(0, 0): Share(30.0, 4 * 5.0 * 0.75)}
    assert shares[0, 0].lost == -15.0
    assert shares[0, 0].part == 2.0
    assert max_min_shares(schedule, [], stalls) == {}
    # Nor has one a share whose link was cut all the while.
    cut = (CapacityChange(0.5, "t in", 0.0), CapacityChange(9.0, "t in", 25.0))
    over_cut = ran([1, 1, 1], [5, 5, 5], [30.0, 10.0, 90.0], cut)
    assert max_min_shares(over_cut, [(2, 0)], np.zeros((3, 1))) == {}
    none = np.empty(0, np.int64)
    rates = RateHistory(np.empty(0), none, none, np.empty(0))
    assert max_min_shares(replace(schedule, rates=rates), [(0, 0)], stalls) == {}


def test_of_flows_that_meet_the_one_that_lost_most_is_named_with_who_won_it() -> None:
    """s->r had 12 B of 20 in 4 s, t->r 28 B; r->t lost as much, to nobody."""
    schedule = ran([1, 1, 1], [5, 5, 5], [12.0, 28.0, 60.0])
    nothing = np.zeros((3, 1))
    late = [(2, 0), (0, 0)]
    shares = max_min_shares(schedule, late, nothing)

    (found,) = unequal_shares(schedule, ["t in", "r in"], late, shares)

    assert found.sentence == (
        "unequal shares of r in: s->r had 60 % of its max-min share in iteration 0, "
        "t->r beside it 140 %"
    )
    assert found.flows.tolist() == [[0, 0], [1, 0]]
    assert found.lost == {(0, 0): 8.0, (1, 0): -8.0}
    assert not [*unequal_shares(schedule, ["s out"], late, shares)]
    # What is within 3 % on either side is no other share.
    for sizes in ([19.5, 28.0, 60.0], [12.0, 20.5, 60.0]):
        equal = ran([1, 1, 1], [5, 5, 5], sizes)
        of_equal = max_min_shares(equal, late, nothing)
        assert not [*unequal_shares(equal, ["r in"], late, of_equal)]


@pytest.mark.parametrize(
    ("start", "end"), [([1, 3, 1], [3, 5, 5]), ([3, 1, 1], [5, 3, 5])]
)
def test_flows_that_follow_each_other_take_nothing_of_each_other(
    start: list[float], end: list[float]
) -> None:
    """Of 20 B s->r had 12 and t->r 28, one after the other."""
    schedule = ran(start, end, [12.0, 28.0, 60.0])
    shares = {(0, 0): Share(12.0, 20.0), (1, 0): Share(28.0, 20.0)}

    assert not [*unequal_shares(schedule, ["r in"], [(0, 0)], shares)]
    beside = replace(schedule, flow_end=schedule.flow_end + 0.5)
    assert [*unequal_shares(beside, ["r in"], [(0, 0)], shares)]


def test_a_flow_without_bytes_has_no_rate() -> None:
    schedule = ran([1, 9, 1], [3, 9, 5], [10.0, 0.0, 60.0])
    nothing = replace(schedule, flow_bytes=np.array([[10.0], [0.0], [0.0]]))

    assert len(lone_rates(schedule)) > len(lone_rates(nothing))
    assert all(share > 0 for rates in lone_rates(nothing).values() for share in rates)


def test_a_flow_of_no_length_beside_two_others_is_not_alone() -> None:
    """All three go from s to r: at once at 2 s, from 1 to 5 s and from 1 to 4 s."""
    tasks = Task("s", "x"), Task("r", "x")
    job = Job(tasks, (Edge(0, 1), Edge(0, 1), Edge(0, 1)), 1)
    problem = Problem(Cluster((MACHINES[0], MACHINES[2])), job, Placement((0, 1)))
    volumes = np.array([[10.0], [20.0], [30.0]])
    made = simulate(problem, Realization(np.ones((2, 1)), volumes), "maxmin")
    schedule = replace(
        made,
        flow_start=np.array([[2.0], [1.0], [1.0]]),
        flow_end=np.array([[2.0], [5.0], [4.0]]),
        rates=None,
    )

    assert lone_rates(schedule) == {}


def test_links_below_their_rate_are_told_by_lone_flows_or_by_all_together() -> None:
    """Of r in, 40 B in 4 s, both have 36; alone on its way r->t has 80 of 100."""
    schedule = ran([1, 1, 1], [5, 5, 5], [12.0, 24.0, 80.0])
    nothing = np.zeros((3, 1))
    shares = max_min_shares(schedule, [(0, 0)], nothing)

    def said(links: list[str], nics: dict[str, float]) -> list[tuple[str, float]]:
        found = slow_links(schedule, links, shares, nothing, nics)
        return [(link.sentence, link.share) for link in found]

    together = "r in is below its stated rate: flows together had 90 % of it"
    alone = "t in is below its stated rate: flows alone on their way had 80 % of it"
    assert said(["r in", "t in"], {}) == [(together, 0.9), (alone, 0.8)]
    # One that was sound before the run, 97 % and more, is not below its rate.
    assert said(["r in", "t in"], {"r in": 0.97, "t in": 0.9}) == [(alone, 0.8)]
    assert said([], {}) == []
    # Where the same flow crosses both, the first of them says by how much.
    shares = {(2, 0): Share(90.0, 95.0)}
    ahead = f"r out or {together}".replace("r in", "t in").replace("90 %", "94.7 %")
    assert said(["r out", "t in"], {}) == [(ahead, 90 / 95)]
    behind = alone.replace("t in is", "t in or r out is")
    assert said(["t in", "r out"], {}) == [(behind, 0.8)]
    # Where no share of a flow is known, none is below it.
    assert not [*slow_links(schedule, ["r in"], {}, nothing, {})]
    # 97 % is sound: 38.8 of 40 B, and 97 of 100.
    schedule = ran([1, 1, 1], [5, 5, 5], [14.8, 24.0, 97.0])
    shares = max_min_shares(schedule, [(0, 0)], nothing)
    assert said(["r in", "t in"], {}) == []


def test_a_link_is_judged_by_the_median_of_its_lone_flows() -> None:
    """Three flows alone on their way into t, of 25 B/s, have 40, 100 and 80 % of it."""
    tasks = Task("r", "x"), Task("t", "x")
    job = Job(tasks, (Edge(0, 1),), 3)
    problem = Problem(Cluster((MACHINES[2], MACHINES[1])), job, Placement((0, 1)))
    volumes = np.array([[10.0, 25.0, 40.0]])
    made = simulate(problem, Realization(np.zeros((2, 3)), volumes), "maxmin")
    schedule = replace(
        made,
        flow_start=np.array([[0.0, 1.0, 2.0]]),
        flow_end=np.array([[1.0, 2.0, 4.0]]),
        rates=None,
    )

    (found,) = slow_links(schedule, ["t in"], {}, np.zeros((1, 3)), {})

    assert found.share == pytest.approx(0.8)


def test_a_flow_that_took_no_time_is_held_against_the_most_that_a_link_has() -> None:
    """Link t in has 25 B/s, then 100 and 5: neither the first nor the last."""
    changes = (CapacityChange(2.0, "t in", 100.0), CapacityChange(4.0, "t in", 5.0))
    schedule = ran([1, 9, 1], [3, 9, 1], [10.0, 0.0, 20.0], changes)

    links = schedule.problem.links
    port = [link.name for link in links].index("t in")
    means = _means_of(schedule, port, start=np.array([1.0]), end=np.array([1.0]))
    assert means.tolist() == [100.0]


def test_a_link_that_changes_once_has_the_mean_of_both() -> None:
    """Link t in has 25 B/s, and 5 from 2 s on."""
    changes = (CapacityChange(2.0, "t in", 5.0),)
    schedule = ran([1, 9, 1], [3, 9, 3], [10.0, 0.0, 20.0], changes)

    links = schedule.problem.links
    port = [link.name for link in links].index("t in")
    means = _means_of(schedule, port, start=np.array([1.0]), end=np.array([4.0]))
    assert means.tolist() == [(25 * 1 + 5 * 2) / 3]


def test_a_link_that_was_cut_all_the_while_has_the_most_that_it_ever_has() -> None:
    """From 2 to 4 s nothing crosses t in; before it had 25 B/s, and has 5 after it."""
    changes = (CapacityChange(2.0, "t in", 0.0), CapacityChange(4.0, "t in", 5.0))
    schedule = ran([1, 9, 1], [3, 9, 9], [10.0, 0.0, 20.0], changes)

    links = schedule.problem.links
    port = [link.name for link in links].index("t in")
    spans = np.array([[2.5, 3.5], [1.5, 3.5], [3.5, 5.0]])
    means = _means_of(schedule, port, start=spans[:, 0], end=spans[:, 1])
    assert means.tolist() == [25.0, 25 * 0.5 / 2.0, 5.0 / 1.5]
