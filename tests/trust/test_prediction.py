"""The verdict on a prediction and its witnesses, of runs that are made differ."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.prediction.simulation import simulate
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Outages,
    Placement,
    Problem,
    Realization,
    Schedule,
    Task,
)
from emu.scenario import load, prepare
from emu.testing.strategies import random_problem
from emu.trust.causes import NO_REASON
from emu.trust.link_shares import lone_rates
from emu.trust.observed import Observations
from emu.trust.prediction import (
    Outcome,
    Prediction,
    judge_prediction,
)
from emu.trust.verdict import Trust
from emu.trust.witnesses import Witnesses, _lead_with

RATE, ITERATIONS = 100.0, 4
ALL_OF_IT = "100 % of the difference"


def problem_of(senders: int, slow: float = 1.0) -> Problem:
    """Return machines that all send to the last, whose NIC in has a share of RATE."""
    names = [*(f"m{i}" for i in range(senders)), "sink"]
    machines = [Machine(name, RATE, RATE) for name in names]
    machines[-1] = replace(machines[-1], bandwidth_in=slow * RATE)
    tasks = tuple(Task(f"t{i}", "worker") for i in range(senders + 1))
    edges = tuple(Edge(i, senders) for i in range(senders))
    placement = Placement(tuple(range(senders + 1)))
    return Problem(Cluster(tuple(machines)), Job(tasks, edges, ITERATIONS), placement)


MACHINES = problem_of(2).cluster.machines


def judged(
    emulated: Schedule,
    stated: Schedule,
    again: Schedule | None = None,
    **beside: Any,
) -> Prediction:
    replayed = again or stated
    free = replace(emulated, rates=None, problem=stated.problem)
    return judge_prediction(
        free,
        stated,
        replayed,
        threshold=0.03,
        **beside,
    )


def expected(problem: Problem, seconds: float = 1.0) -> Realization:
    job = problem.job
    times = np.full((len(job.tasks), ITERATIONS), seconds)
    return Realization(times, np.full((len(job.edges), ITERATIONS), 400.0))


@pytest.mark.parametrize("slow", [1.0, 0.98])
def test_what_is_within_the_threshold_agrees(slow: float) -> None:
    stated = problem_of(1)
    found = judged(
        simulate(problem_of(1, slow), expected(stated), "maxmin"),
        simulate(stated, expected(stated), "maxmin"),
    )
    assert (found.outcome, found.since, found.reasons) == (Outcome.AGREES, None, ())
    assert found.error == pytest.approx(0.0, abs=0.025)


@pytest.mark.parametrize("slow", [0.5, 0.8, 0.875, 0.9])
def test_a_nic_below_its_stated_rate_is_named(slow: float) -> None:
    stated = problem_of(1)
    found = judged(
        simulate(problem_of(1, slow), expected(stated), "maxmin"),
        simulate(stated, expected(stated), "maxmin"),
    )
    assert found.outcome is Outcome.DIFFERS
    assert "sink in" in found.links
    said = "m0 out or sink in is below its stated rate: flows alone on their way had "
    assert found.reasons == (f"{said}{100 * slow:.3g} % of it: {ALL_OF_IT}",)
    # Measured beforehand, neither is what it was.
    sound = judged(
        simulate(problem_of(1, slow), expected(stated), "maxmin"),
        simulate(stated, expected(stated), "maxmin"),
        observed=Observations(nics={"sink in": 0.998, "m0 out": 1.001}),
    )
    assert sound.reasons == ("cause not found",)
    off, makespan = 4 / slow - 4, 1 + 4 * ITERATIONS + 1
    first = math.floor(0.03 * makespan / off) + 1
    assert found.since == pytest.approx(1 + first * 4 / slow + 1)


@pytest.mark.parametrize("senders", [2, 5])
def test_a_nic_that_several_fill_is_named_by_what_they_carry_together(
    senders: int,
) -> None:
    stated = problem_of(senders)
    found = judged(
        simulate(problem_of(senders, 0.85), expected(stated), "maxmin"),
        simulate(stated, expected(stated), "maxmin"),
    )
    assert found.outcome is Outcome.DIFFERS
    assert found.links[0] == "sink in"
    said = "sink in is below its stated rate: flows together had 85 % of it"
    assert found.reasons == (f"{said}: {ALL_OF_IT}",)


def test_tasks_that_take_other_times_are_no_fault_of_the_network() -> None:
    stated = problem_of(1)
    ran = simulate(stated, expected(stated, 1.5), "maxmin")
    found = judged(ran, simulate(stated, expected(stated), "maxmin"), ran)
    assert found.outcome is Outcome.DIFFERS
    assert found.links == ()
    assert "tasks took other times than predicted" in found.reasons[0]
    # Nor where the network was late by 0.16 s of 4.16 s.
    again = simulate(stated, expected(stated, 3.0), "maxmin")
    ran = simulate(problem_of(1, 0.99), expected(stated, 3.0), "maxmin")
    found = judged(ran, simulate(stated, expected(stated), "maxmin"), again)
    assert found.links == ()


def test_a_run_that_is_off_by_the_threshold_agrees() -> None:
    """Its repetition is off by more, where both are asked for: that is shown."""
    made, near, far = (in_a_row([size, size], 1.0) for size in (1.0, 0.5, 2.5))
    assert [run.makespan for run in (made, near, far)] == [5.0, 4.0, 8.0]
    ran = replace(made, rates=None)

    alike = judge_prediction(ran, near, near, threshold=0.25)
    assert alike.outcome is Outcome.AGREES
    found = judge_prediction(ran, near, far, threshold=0.25)
    assert found.outcome is Outcome.DIFFERS
    assert found.error == -3 / 8
    # Where both are off by more, the prediction's own is.
    found = judge_prediction(ran, near, far, threshold=0.03)
    assert found.error == 0.25


@pytest.mark.parametrize(("outage", "share"), [(2.0, "50"), (6.0, "75"), (1.75, "")])
def test_attempts_that_ended_are_named_where_they_are_half_of_it(
    outage: float, share: str
) -> None:
    """The network took 2 s longer; and whatever the slightest delays decide."""
    again = in_a_row([1.0, 1.0], 1.0)
    slower = replace(in_a_row([2.0, 2.0], 1.0), flow_bytes=again.flow_bytes)
    ran = replace(slower, outages=Outages(outage, recovery=0.5), rates=None)

    (said,) = judge_prediction(ran, again, again, threshold=0.03).reasons
    ended = f"attempts that ended: {share} % of the difference"
    assert (said == ended) == bool(share)
    found = judge_prediction(ran, again, again, threshold=0.03, chance="by chance")
    assert found.reasons == ("by chance",)


def test_a_verdict_that_found_no_cause_keeps_saying_so() -> None:
    """Unless something else stands before it."""
    verdict = Prediction(Outcome.DIFFERS, 0.2, 0.03, reasons=NO_REASON)

    assert _lead_with([], verdict).reasons == NO_REASON
    assert _lead_with(["first"], verdict).reasons == ("first",)
    named = replace(verdict, reasons=("named",))
    assert _lead_with(["first"], named).reasons == ("first", "named")


def test_two_errors_that_cancel_do_not_agree() -> None:
    """Tasks were shorter than predicted by what the network was longer."""
    stated = problem_of(1)
    slower = simulate(problem_of(1, 0.9), expected(stated, 0.2), "maxmin")
    predicted = simulate(stated, expected(stated), "maxmin")
    again = simulate(stated, expected(stated, 0.2), "maxmin")
    assert abs(slower.makespan / predicted.makespan - 1) < 0.03
    found = judged(slower, predicted, again)
    assert found.outcome is Outcome.DIFFERS
    assert "sink in" in found.links


def test_a_run_that_was_shorter_than_its_replay_differs() -> None:
    """Tasks were longer than predicted by what the network was faster."""
    stated = problem_of(1)
    machines = tuple(
        replace(machine, bandwidth_in=1.25 * RATE, bandwidth_out=1.25 * RATE)
        for machine in stated.cluster.machines
    )
    fast = replace(stated, cluster=Cluster(machines))
    quick = simulate(fast, expected(stated, 2.0), "maxmin")
    predicted = simulate(stated, expected(stated, 0.4), "maxmin")
    again = simulate(stated, expected(stated, 2.0), "maxmin")
    assert (quick.makespan, predicted.makespan) == pytest.approx((16.8, 16.8))

    found = judged(quick, predicted, again)

    assert found.outcome is Outcome.DIFFERS
    assert found.error == pytest.approx(16.8 / 20 - 1)


def test_a_run_that_agrees_states_its_distance_from_the_prediction() -> None:
    """It is 2 % beyond its replay, and 1 % beyond what was predicted."""
    made = [
        simulate(problem_of(1, slow), expected(problem_of(1)), "maxmin")
        for slow in (0.98, 0.99, 1.0)
    ]

    found = judged(*made)

    assert found.outcome is Outcome.AGREES
    assert found.error == pytest.approx(made[0].makespan / made[1].makespan - 1)


def in_a_row(sizes: list[float], seconds: float) -> Schedule:
    """Return three tasks on machines of their own, each of which sends to the next."""
    machines = tuple(Machine(name, RATE, RATE) for name in "abc")
    tasks = tuple(Task(name, "worker") for name in "abc")
    job = Job(tasks, (Edge(0, 1), Edge(1, 2)), 1)
    problem = Problem(Cluster(machines), job, Placement((0, 1, 2)))
    times = np.full((3, 1), seconds)
    return simulate(problem, Realization(times, RATE * np.array(sizes)[:, None]), "oes")


@pytest.mark.parametrize(
    ("foreseen", "seconds", "links"),
    [
        # Both flows took 1.5 s longer: less than a fifth of 12 s, but half of theirs.
        (1.0, [2.5, 2.5], {"a out", "b in", "b out", "c in"}),
        # The first took 3 s longer, of which the second gave 0.9 back.
        (3.0, [4.0, 0.1], {"a out", "b in"}),
    ],
)
def test_links_are_named_whose_flows_moved_the_end_as_it_moved(
    foreseen: float, seconds: list[float], links: set[str]
) -> None:
    """Flows of 1 s each were predicted, and tasks that took less than 4 s."""
    again = in_a_row([1.0, 1.0], 4.0)
    slower = in_a_row(seconds, 4.0)
    ran = replace(slower, flow_bytes=again.flow_bytes)

    found = judged(ran, in_a_row([1.0, 1.0], foreseen), again)

    assert {*found.links} == links


@pytest.mark.parametrize("seconds", [[2.0, 4.0], [0.9, 0.5]])
def test_causes_are_told_of_the_flows_that_moved_the_end_most_first(
    seconds: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each flow was to take 1 s; the second is off by more, later or sooner."""
    asked: list[list[tuple[int, int]]] = []

    def keep(*_: Any, late: list[tuple[int, int]], **_observed: Any) -> list[Any]:
        asked.append(late)
        return []

    monkeypatch.setattr("emu.trust.prediction.list_causes", keep)
    again = in_a_row([1.0, 1.0], 0.1)
    ran = replace(in_a_row(seconds, 0.1), flow_bytes=again.flow_bytes)
    judged(ran, again)

    assert asked == [[(1, 0), (0, 0)]]


def test_tasks_that_moved_the_end_are_no_flows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks took 0.4 s longer than in the repetition, and the first flow 3 s."""
    asked: list[list[tuple[int, int]]] = []

    def keep(*_: Any, late: list[tuple[int, int]], **_observed: Any) -> list[Any]:
        asked.append(late)
        return []

    monkeypatch.setattr("emu.trust.prediction.list_causes", keep)
    again = in_a_row([1.0, 1.0], 0.1)
    ran = replace(in_a_row([4.0, 1.0], 0.5), flow_bytes=again.flow_bytes)
    judged(ran, again)

    assert asked == [[(0, 0)]]


def test_connections_that_share_a_nic_unequally_are_named() -> None:
    """Older flows first: a flow of 10 B waits for one of 60 B, and NICs are full."""
    stated = prepare(load("golden", ["schedule.policy=maxmin", "expect=null"]))
    ran = simulate(stated.problem, stated.realization, "fifo")
    found = judged(ran, stated.simulate())
    assert found.links == ("m1 out", "m0 in")
    said = (
        "unequal shares of m1 out: ps0->w0 had 22.2 % of its max-min share in "
        "iteration 0, s1->w0 beside it 200 %"
    )
    assert found.reasons == (f"{said}: {ALL_OF_IT}",)


def test_a_run_that_was_faster_is_explained_by_no_cause_that_makes_it_slower() -> None:
    for senders in (2, 5):
        stated = problem_of(senders)
        found = judged(
            simulate(problem_of(senders, 1.2), expected(stated), "maxmin"),
            simulate(stated, expected(stated), "maxmin"),
        )
        assert (found.outcome, found.reasons) == (Outcome.DIFFERS, ("cause not found",))
        assert found.links[0] == "sink in"
        # The first flows ended too soon by more than 3 %.
        assert found.since == pytest.approx(1 + senders * 4 / 1.2 + 1)


class _Verdict:
    trust, reasons = Trust.DEGRADED, ("waits for a core",)


def schedule(slow: float) -> Schedule:
    """Return the job with its last NIC at a share of the stated rate."""
    stated = problem_of(2)
    made = simulate(problem_of(2, slow), expected(stated), "maxmin")
    return replace(made, problem=stated, rates=None)


def seen(
    fluid: float, packets: float, measured: float, maxmin: float = 1.0, dropped: int = 0
) -> tuple[Witnesses, dict[str, Any]]:
    """Return witnesses with NICs at these shares, and the verdicts by pair."""
    found = [schedule(slow) for slow in (fluid, maxmin, packets)]
    run = schedule(measured)
    all_of = Witnesses(found[0], found[1], found[2], dropped, run, "oes")
    verdict: Any = _Verdict()
    pairs = all_of.pairs(judged(run, found[0]), verdict)
    return all_of, {f"{pair.of} over {pair.over}": pair.verdict for pair in pairs}


def test_three_that_agree_have_no_reasons() -> None:
    _, found = seen(1.0, 0.99, 0.98)

    assert [*found] == [
        "packets over fluid",
        "measured over fluid",
        "measured over packets",
    ]
    assert [str(one.outcome) for one in found.values()] == ["agrees"] * 3
    assert [one.reasons for one in found.values()] == [()] * 3


@pytest.mark.parametrize(
    ("shares", "odd"),
    [
        ((1.0, 0.8, 1.0), "packets"),
        ((1.0, 0.8, 0.8), "fluid"),
        ((1.0, 1.0, 0.8), "measured"),
    ],
)
def test_the_one_that_is_off_is_in_both_pairs_that_differ(
    shares: tuple[float, float, float], odd: str
) -> None:
    all_of, found = seen(*shares)

    differ = {name for name, one in found.items() if one.outcome == "differs"}
    assert differ == {name for name in found if odd in name.split(" over ")}
    for name, one in found.items():
        of, over = (all_of.makespans[side] for side in name.split(" over "))
        assert one.error == pytest.approx(of / over - 1)
        if odd in name.split(" over "):
            assert one.reasons


def test_what_queues_dropped_and_the_run_lacked_come_first() -> None:
    _, found = seen(1.0, 0.8, 1.0, dropped=7)

    assert found["packets over fluid"].reasons[0].startswith("queues dropped 7 packets")
    assert len(found["packets over fluid"].reasons) > 1
    first = found["measured over packets"].reasons[0]
    assert first == "the measurement is degraded: waits for a core"


def test_a_rule_of_rates_is_blamed_for_its_own_part_alone() -> None:
    _, found = seen(0.8, 1.0, 0.8, maxmin=1.0)

    for name, sign in (("packets over fluid", "-"), ("measured over packets", "+")):
        first = found[name].reasons[0]
        assert first.startswith("rates by oes, while TCP shares about max-min")
        assert f"is {sign}" in first
    # Nor is it where its part is less than a fifth: 5 % of 100 %.
    _, found = seen(1.0, 0.5, 0.5, maxmin=0.95)
    assert "rates by" not in " ".join(found["packets over fluid"].reasons)
    _, found = seen(0.8, 0.6, 0.8, maxmin=1.0)
    assert "rates by" not in " ".join(found["packets over fluid"].reasons)


def test_what_kernel_nics_let_go_at_once_is_named_where_a_run_is_shorter() -> None:
    all_of, _ = seen(1.0, 0.9, 1.0)
    verdict: Any = _Verdict()
    for gift, named in (((0.0, 0.0), False), ((0.0, 40.0), True), ((0.4, 0.0), True)):
        given = replace(all_of, gift=gift)
        pairs = given.pairs(judged(given.measured, given.fluid), verdict)
        said = " ".join(pairs[-1].verdict.reasons)
        assert ("first bytes go at once after a pause: up to 1.6 s" in said) == named
    # The more of either; over the narrowest of unequal links; of flows that take 8 s.
    wide = tuple(replace(machine, bandwidth_out=4 * RATE) for machine in MACHINES)
    problem = replace(problem_of(2), cluster=Cluster(wide))
    for gift, seconds in (((0.2, 40.0), "1.6"), ((9.0, 0.0), "32")):
        measured = replace(all_of.measured, problem=problem)
        given = replace(all_of, gift=gift, measured=measured)
        pairs = given.pairs(judged(given.measured, given.fluid), verdict)
        said = " ".join(pairs[-1].verdict.reasons)
        assert f"up to {seconds} s of the 4 on the critical path" in said
    longer, _ = seen(1.0, 1.0, 0.9)
    pairs = replace(longer, gift=(0.4, 0.0)).pairs(
        judged(longer.measured, longer.fluid), verdict
    )
    assert "after a pause" not in " ".join(pairs[-1].verdict.reasons)


def met(made: Schedule, flow: tuple[int, int], port: int) -> list[tuple[int, int]]:
    """Return the flows over a link that move while ``flow`` does, itself included."""
    start, end = made.flow_start[flow], made.flow_end[flow]
    return [
        (e, n)
        for e, n in made.flows().tolist()
        if port in made.problem.hops[e]
        and made.flow_start[e, n] < end
        and made.flow_end[e, n] > start
    ]


SEEDS = st.integers(0, 2**32 - 1)


@settings(deadline=None, max_examples=25)
@given(SEEDS)
def test_a_flow_alone_is_one_that_meets_no_other(seed: int) -> None:
    made = simulate(*random_problem(np.random.default_rng(seed)))
    capacity, wanted = made.problem.links.capacities, dict[int, int]()
    for e, n in made.flows().tolist():
        hops = made.problem.hops[e]
        moves = made.flow_end[e, n] > made.flow_start[e, n]
        if moves and all(met(made, (e, n), port) == [(e, n)] for port in hops):
            for port in hops:
                if capacity[port] == min(capacity[[*hops]]):
                    wanted[port] = wanted.get(port, 0) + 1

    found = lone_rates(made)
    assert {port: len(rates) for port, rates in found.items()} == wanted
    for share in (share for rates in found.values() for share in rates):
        assert share == pytest.approx(1.0)  # a flow alone has all there is
