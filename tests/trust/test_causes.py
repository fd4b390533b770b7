"""Causes are simulated from what was observed, and named where that explains."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from emu.prediction.analysis.flow_counts import FlowCounts
from emu.prediction.simulation import makespan, simulate
from emu.problem import (
    CapacityChange,
    Cluster,
    Edge,
    Job,
    Link,
    Machine,
    Placement,
    Problem,
    RateHistory,
    Realization,
    Schedule,
    Task,
    Tuner,
)
from emu.trust.causes import Cause, name_cause, slow_start
from emu.trust.changed_simulation import Change, ChangedSimulation, with_shares
from emu.trust.observed import Observations, ProcessWaits
from emu.trust.prediction import judge_prediction
from emu.trust.waiting_flows import let_flows_wait

ITERATIONS = 5
SHAPE = (2, ITERATIONS)
NONE = {field.name: np.zeros(SHAPE) for field in fields(FlowCounts)}


def problem(share: float = 1.0) -> Problem:
    """Return two tasks that send to each other by turns, 100 B/s."""
    machines = tuple(Machine(name, 100.0 * share, 100.0 * share) for name in "ab")
    edges = (Edge(0, 1), Edge(1, 0, lag=1))
    job = Job((Task("s", "worker"), Task("r", "worker")), edges, ITERATIONS)
    return Problem(Cluster(machines), job, Placement((0, 1)))


def simulated(work: float = 1.0, volume: float = 100.0, share: float = 1.0) -> Schedule:
    """Return its schedule; every step takes ``work``, every flow has ``volume``."""
    realization = Realization(np.full(SHAPE, work), np.full(SHAPE, volume))
    made = simulate(problem(share), realization, "maxmin")
    return replace(made, problem=problem(), rates=None)


STATED = simulated()


def reason(ran: Schedule, **observed: Any) -> str:
    """Return the reason of a run whose own times and volumes are those stated."""
    found = judge_prediction(
        ran, STATED, STATED, threshold=0.03, observed=Observations(**observed)
    )
    (said,) = found.reasons
    return said


@pytest.mark.parametrize(
    ("counts", "word"),
    [
        ({"hole": 0.5, "retransmitted": 3.0}, "segments were lost: 30 were sent"),
        ({"timeouts": 2.0, "timer": 0.25}, "segments were lost"),
        ({"unread": 0.5}, "receivers pause: bytes waited to be read for up to 500 ms"),
        ({"unread": 0.2, "receiver_limited": 0.5, "busy": 1.5}, "receivers pause"),
        (
            {
                "receiver_limited": 1.4,
                "busy": 1.5,
                "window": 10.0,
                "least_round_trip": 0.15,
            },
            "small window",
        ),
        ({"allowed": 1.0, "least_round_trip": 0.14}, "slow start"),
    ],
)
def test_what_kernels_count_of_flows_is_simulated(
    counts: dict[str, float], word: str
) -> None:
    """Every flow takes 1.5 s where 1 s is stated."""
    given = {name: np.full(SHAPE, value) for name, value in counts.items()}
    said = reason(simulated(share=2 / 3), counts=FlowCounts(**NONE | given))

    assert said.startswith(word)


def test_two_causes_at_once_and_none_at_all_are_not_named() -> None:
    """Each alone would be: which of the two it was, nobody observed."""
    ran = simulated(share=2 / 3)
    sound = dict.fromkeys(["a out", "a in", "b out", "b in"], 1.0)
    delay = np.full(SHAPE, 0.5)

    none = FlowCounts(**NONE)
    both = FlowCounts(**NONE | {"hole": delay, "unread": delay})

    assert reason(ran, counts=none, nics=sound) == "cause not found"
    assert reason(ran, counts=both, nics=sound) == "cause not found"


def test_a_clock_that_is_off_is_named_and_one_that_is_right_is_not() -> None:
    ran = simulated(share=2 / 3)
    sound = dict.fromkeys(["a out", "a in", "b out", "b in"], 1.0)

    for clock, word in ((3.0, "clock of r: off by 3 s"), (0.0, "cause not found")):
        processes = {"r": ProcessWaits(clock=clock)}
        assert reason(ran, processes=processes, nics=sound).startswith(word)


def test_a_clock_explains_as_much_however_wall_time_is_scaled() -> None:
    """It is off in wall seconds, which are as many times more as time is dilated."""
    ran = simulated(share=2 / 3)
    sound = dict.fromkeys(["a out", "a in", "b out", "b in"], 1.0)
    ends = set()
    for scale in (1.0, 0.5, 4.0):
        processes = {"r": ProcessWaits(clock=3.0 * scale)}
        said = reason(ran, processes=processes, nics=sound, time_scale=scale)
        ends.add(said.rpartition(": ")[2])

    assert len(ends) == 1
    assert "% of the difference" in ends.pop()


def test_waits_of_a_process_count_where_they_are_a_tenth_of_the_run() -> None:
    """Each was late by 0.5 s in 20 s, and waited for longer."""
    ran = simulated(work=1.1)
    for core, word in ((0.6, "cause not found"), (3.0, "waits for a core: s")):
        processes = dict.fromkeys(problem().job.processes, ProcessWaits(core=core))
        observed = Observations(processes=processes)
        found = judge_prediction(ran, STATED, ran, threshold=0.03, observed=observed)
        assert found.reasons[0].startswith(word)


def test_a_count_that_explains_less_than_half_is_no_cause() -> None:
    """Nor one that would have moved the end by twice as much, or the other way."""
    for hole in (0.2, 1.2):
        counts = FlowCounts(**NONE | {"hole": np.full(SHAPE, hole)})
        said = reason(simulated(share=2 / 3), counts=counts)
        assert not said.startswith("segments were lost")
    sound = dict.fromkeys(["a out", "a in", "b out", "b in"], 1.0)
    for share in (2 / 3, 1.5):
        assert reason(simulated(share=share), nics=sound) == "cause not found"


def test_a_clock_and_traffic_of_others_are_simulated() -> None:
    foreign = dict.fromkeys(("a out", "b in", "b out", "a in"), 33.0)
    said = reason(simulated(share=2 / 3), foreign=foreign)
    assert "another program's traffic" in said


@pytest.mark.parametrize(
    ("waits", "word"),
    [
        (
            ProcessWaits(),
            "tasks took other times than predicted, s most: 1.5 s for 1 s",
        ),
        (ProcessWaits(core=4.0), "waits for a core: s"),
        (ProcessWaits(core=0.5), "tasks took other times"),
        (ProcessWaits(core=2.0), "cause not found"),
        (ProcessWaits(disk=3.0), "slow disk"),
        (ProcessWaits(disk=1.0), "cause not found"),
        # Of 2.5 s that each process lost a tenth is 0.25 s.
        (ProcessWaits(disk=0.25), "cause not found"),
        (ProcessWaits(disk=0.2), "tasks took other times"),
    ],
)
def test_tasks_that_took_longer_are_told_apart_by_what_they_waited_for(
    waits: ProcessWaits, word: str
) -> None:
    ran = simulated(work=1.5)
    processes = dict.fromkeys(problem().job.processes, waits)
    found = judge_prediction(
        ran,
        STATED,
        ran,
        threshold=0.03,
        observed=Observations(processes=processes),
    )

    assert found.reasons[0].startswith(word)


@pytest.mark.parametrize("core", [0.0, 2.0, 4.0])
def test_cpu_time_of_real_work_is_named_whatever_its_process_waited(
    core: float,
) -> None:
    """Tasks of 1.5 s of CPU where a profile has 1 s: no wait for a core is in them."""
    ran = simulated(work=1.5)
    processes = dict.fromkeys(problem().job.processes, ProcessWaits(core=core))
    measured = np.full(SHAPE, 1.5)
    said = reason(ran, processes=processes, measured=measured)

    assert said.startswith(
        "real work took other CPU time than predicted, s most: 1.5 s for 1 s on average"
    )
    assert "emulation.compute: padded" in said


def test_real_work_of_the_predicted_time_is_no_cause() -> None:
    ran = simulated(work=1.5)
    processes = dict.fromkeys(problem().job.processes, ProcessWaits(core=4.0))
    said = reason(ran, processes=processes, measured=np.full(SHAPE, 1.0))

    assert said.startswith("waits for a core: s")


def test_orders_that_come_late_are_the_coordinators_where_it_was_at_work() -> None:
    """A turn of 0.5 s is work, a wait for a core, or both."""
    ran = simulated(share=2 / 3)
    starts = np.sort(ran.flow_start, axis=None)
    late = {flow: ran.flow_start[flow] + 0.5 for flow in np.ndindex(SHAPE)}
    sends = {
        flow: np.array([0.0, ran.flow_start[flow] - 0.1, instant, 0.0])
        for flow, instant in late.items()
    }

    def said(before: float, within: float) -> str:
        begin = starts + before
        waits = np.full((starts.size, 2), [before, within])
        turns = np.column_stack([begin, starts + 0.5, waits])
        return reason(ran, first=late, sends=sends, turns=turns)

    assert reason(ran, first=late, sends=sends) == "cause not found"
    assert said(0.0, 0.0).startswith("late coordinator: orders waited for it up to 500")
    assert said(0.0, 0.5).startswith("waits for a core: the coordinator")
    assert said(0.4, 0.0).startswith("waits for a core: the coordinator")
    assert said(0.0, 0.25) == "cause not found"
    assert said(0.25, 0.0) == "cause not found"


def test_a_cause_whose_half_moves_the_end_as_much_is_not_named() -> None:
    simulation = ChangedSimulation(STATED, "maxmin")
    work = np.zeros(SHAPE)
    work[0, 0] = 1.0
    right = Cause("right", Change(work=work))

    assert name_cause([right], simulation, 1.0) == ("right: 100 % of the difference",)
    assert name_cause([right], simulation, -1.0) == ("cause not found",)
    # However small the difference is.
    work = np.zeros(SHAPE)
    work[0, 0] = 0.25
    small = Cause("small", Change(work=work))
    assert name_cause([small], simulation, 0.25) == ("small: 100 % of the difference",)
    # Nor where half of it moves the end the other way, or not at all.
    for half in (1.0, -0.25, 0.0):
        with pytest.MonkeyPatch.context() as patch:
            moves = iter([1.0, half])
            patch.setattr(ChangedSimulation, "move", lambda *_, it=moves: next(it))
            said = name_cause([right], simulation, 1.0)
        assert said == ("cause not found",)


@pytest.mark.parametrize(
    ("shares", "named"),
    [
        ((1.0, 0.7), "1st: 100 %"),
        ((0.7, 1.0), "2nd: 100 %"),
        ((1.05, 0.7), "1st: 105 %"),
        # Nearer by a tenth alone: which of the two it was, nobody can say.
        ((0.8, 1.3), "cause not found"),
        ((1.3, 0.8), "cause not found"),
        ((0.45, 1.7), "cause not found"),
        ((0.55, 1.7), "1st: 55 %"),
    ],
)
def test_of_two_causes_the_one_that_is_clearly_nearer_is_named(
    shares: tuple[float, float], named: str
) -> None:
    simulation = ChangedSimulation(STATED, "maxmin")
    causes = []
    for place, share in zip(("1st", "2nd"), shares, strict=True):
        work = np.zeros(SHAPE)
        work[0, 0] = 2.0 * share
        causes.append(Cause(place, Change(work=work)))

    (said,) = name_cause(causes, simulation, 2.0)

    assert said.startswith(named)


def test_quotas_stay_those_of_the_simulation() -> None:
    """A tuner that looked at a changed queue would move the end, too.

    At 1.5 s task c waits for pool q, and p loses a slot: b, which comes at 2.5 s, gets
    one at 3 s, when c waits no more. It waits as long where c comes late.
    """
    machine = Machine("m", 1.0, 1.0, slots={"p": 2, "q": 1})
    cluster = Cluster((machine,), tuners=(Tuner(0, "p", "q", most=2, period=0.25),))
    pools = {"a": "p", "b": "p", "c": "q", "d": "q", "to b": "", "to c": ""}
    tasks = tuple(Task(name, name, takes=pool) for name, pool in pools.items())
    job = Job(tasks, (Edge(4, 1), Edge(5, 2)), 1)
    seconds = np.array([[5.0], [6.0], [2.0], [3.0], [2.5], [1.5]])
    run = Realization(seconds, np.zeros((2, 1)))
    made = simulate(Problem(cluster, job, Placement((0,) * 6)), run)
    assert made.task_start[1, 0] == 3.0
    assert made.makespan == 9.0

    later = np.zeros((6, 1))
    later[5] = 1.0
    assert ChangedSimulation(made, "oes").move(Change(work=later)) == 0.0


def test_a_symptom_is_named_where_no_cause_is() -> None:
    """However near it is: it may have a cause of its own."""
    simulation = ChangedSimulation(STATED, "maxmin")
    causes = []
    for share in (1.0, 0.7, 0.4):
        work = np.zeros(SHAPE)
        work[0, 0] = 2.0 * share
        causes.append(Cause(f"cause {share}", Change(work=work)))
    symptom = causes[0]._replace(is_symptom=True)

    for cause, named in ((causes[1], "cause 0.7"), (causes[2], "cause 1.0")):
        (said,) = name_cause([symptom, cause], simulation, 2.0)
        assert said.startswith(named)


@pytest.mark.parametrize(
    ("disk", "words"),
    [(2.0, "80 % of the difference"), (3.0, "100 % of the difference")],
)
def test_a_disk_makes_late_by_what_was_waited_for_it(disk: float, words: str) -> None:
    """Each process was late by 2.5 s, which take twice as long on the wall."""
    ran = simulated(work=1.5)
    processes = {name: ProcessWaits(disk=2 * disk) for name in "sr"}
    observed = Observations(processes=processes, time_scale=2.0)
    found = judge_prediction(ran, STATED, ran, threshold=0.03, observed=observed)
    (said,) = found.reasons
    assert said.startswith("slow disk")
    assert said.endswith(words)


@pytest.mark.parametrize("late_task", [0, 1])
def test_a_disk_of_one_process_alone_is_named_with_its_task(late_task: int) -> None:
    """Its five steps are late by 0.5 s each, all of which it waited for."""
    times = np.ones(SHAPE)
    times[late_task] = 1.5
    made = simulate(problem(), Realization(times, np.full(SHAPE, 100.0)), "maxmin")
    ran = replace(made, rates=None)
    late_name = "sr"[late_task]
    observed = Observations(processes={late_name: ProcessWaits(disk=2.5)})

    found = judge_prediction(ran, STATED, ran, threshold=0.03, observed=observed)

    (said,) = found.reasons
    assert said == (
        f"slow disk: {late_name} most waited for one, 2.5 s in all: 100 % of the "
        "difference"
    )


def test_chance_is_named_and_nothing_else() -> None:
    ran = simulated(share=2 / 3)
    found = judge_prediction(ran, STATED, ran, threshold=0.03, chance="by chance")

    assert found.reasons == ("by chance",)


def test_slow_start_leaves_the_way_idle_until_the_window_fills_it() -> None:
    """By hand: 10, 20 and 40 B of 70 B go at 100 B/s, in round trips of 1 s."""
    given = {"allowed": 10.0, "least_round_trip": 1.0}
    counts = FlowCounts(
        **NONE | {name: np.full(SHAPE, value) for name, value in given.items()}
    )
    volumes = np.full(SHAPE, 70.0)

    # The last window needs no acknowledgement: 0.9 s and 0.8 s are idle before it.
    assert np.allclose(slow_start(counts, volumes, volumes / 100.0), 1.7)


def incast() -> tuple[Problem, Realization]:
    """Return two senders whose flows of 100 B share a NIC of 100 B/s, for 2 s each."""
    machines = tuple(Machine(name, 100.0, 100.0) for name in "abc")
    tasks = (Task("s", "worker"), Task("t", "worker"), Task("r", "worker"))
    job = Job(tasks, (Edge(0, 2), Edge(1, 2)), 2)
    realization = Realization(np.zeros((3, 2)), np.full((2, 2), 100.0))
    return Problem(Cluster(machines), job, Placement((0, 1, 2))), realization


@pytest.mark.parametrize(
    ("waits", "seconds"),
    [
        # The other flow has the NIC for itself for a second, then this one.
        ([[1.0, 0.0], [0.0, 0.0]], 4.0),
        # From 1 to 3 s nothing is sent: the second flow of t is behind its first.
        ([[0.0, 0.0], [3.0, 0.0]], 5.0),
        ([[0.0, 0.0], [3.0, 2.0]], 6.0),
        ([[0.0, 0.0], [3.0, 4.0]], 8.0),
    ],
)
def test_a_link_carries_others_while_a_flow_waits(
    waits: list[list[float]], seconds: float
) -> None:
    problem, realization = incast()
    assert makespan(problem, realization, "maxmin") == 4.0

    changed = let_flows_wait(problem, realization, np.array(waits))

    assert makespan(*changed, "maxmin") == pytest.approx(seconds, abs=1e-12)


def test_a_wait_is_of_flows_that_are_sent() -> None:
    """Task s runs once, though its job has two iterations: its second wait is none."""
    machines = tuple(Machine(name, 100.0, 100.0) for name in "ab")
    tasks = (Task("s", "worker", iterations=1), Task("r", "worker"))
    job = Job(tasks, (Edge(0, 1),), 2)
    once = Problem(Cluster(machines), job, Placement((0, 1)))
    realization = Realization(np.zeros((2, 2)), np.full((1, 2), 100.0))

    changed = let_flows_wait(once, realization, np.array([[1.0, 9.0]]))

    assert makespan(*changed, "maxmin") == 2.0


@pytest.mark.parametrize(("volume", "moved"), [(0.5, 9.0), (0.0, 0.0)])
def test_only_flows_that_carry_bytes_wait(volume: float, moved: float) -> None:
    """Nine flows go one after the other, and each waits for 1 s: how few its bytes."""
    simulation = ChangedSimulation(simulated(volume=volume), "maxmin")
    assert simulation.move(Change(waits=np.ones(SHAPE))) == pytest.approx(moved)


def test_a_timeout_beside_many_flows_is_named() -> None:
    """One of eight flows that share a NIC for 8 s waits for 20 s, and ends after 21.

    As many bytes more, at the eighth of the NIC that it has, would end after 10.5.
    """
    machines = tuple(Machine(name, 100.0, 100.0) for name in "abcdefghr")
    tasks = tuple(Task(name, "worker") for name in "abcdefghr")
    job = Job(tasks, tuple(Edge(sender, 8) for sender in range(8)), 1)
    shared = Problem(Cluster(machines), job, Placement((*range(9),)))
    realization = Realization(np.zeros((9, 1)), np.full((8, 1), 100.0))
    stated = simulate(shared, realization, "maxmin")
    waits = np.zeros((8, 1))
    waits[3] = 20.0
    later = simulate(*let_flows_wait(shared, realization, waits), "maxmin")
    ran = replace(
        later,
        problem=shared,
        task_start=later.task_start[:9],
        task_end=later.task_end[:9],
        flow_ready=later.flow_ready[:8],
        flow_start=later.flow_start[:8],
        flow_end=later.flow_end[:8],
        flow_bytes=later.flow_bytes[:8],
        rates=None,
    )
    counts = {field.name: np.zeros((8, 1)) for field in fields(FlowCounts)}
    timeouts = FlowCounts(**counts | {"timeouts": waits / 20.0, "timer": waits})

    found = judge_prediction(
        ran, stated, stated, threshold=0.03, observed=Observations(counts=timeouts)
    )

    assert ran.makespan == pytest.approx(21.0)
    (said,) = found.reasons
    assert said.startswith("segments were lost")
    assert said.endswith("100 % of the difference")


def test_every_link_of_a_cluster_has_its_own_share() -> None:
    machines = (Machine("a", 100.0, 200.0), Machine("b", 300.0, 400.0))
    changes = (CapacityChange(1.0, "wan", 40.0), CapacityChange(2.0, "b in", 60.0))
    cluster = Cluster(machines, (Link("wan", 500.0),), changes=changes)
    shares = {"a out": 0.5, "b in": 0.25, "b out": 2.0, "wan": 0.1}

    changed = with_shares(cluster, shares)

    nics = [(m.bandwidth_in, m.bandwidth_out) for m in changed.machines]
    assert nics == [(100.0, 100.0), (75.0, 800.0)]
    assert [link.capacity for link in changed.shared_links] == [50.0]
    assert [change.capacity for change in changed.changes] == [4.0, 15.0]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        # Finished, queued, informed, and how late the alarm rang, after the fluid.
        ((0.5, 0.5, 0.5, 0.0), "payloads were ready after their flows should end"),
        ((0.5, -1.0, 0.5, 0.0), "late coordinator: rates reached senders late"),
        ((0.5, -1.0, -1.0, 0.5), "alarms of senders rang late"),
        ((0.5, -1.0, -1.0, 0.0), "cause not found"),
    ],
)
def test_what_delays_a_paced_flow_is_what_its_sender_noted(
    row: tuple[float, ...], words: str
) -> None:
    """Rates carry every flow in 1 s; its last byte comes half a second later."""
    ran = simulated(share=2 / 3)
    flows = ran.flows()
    starts = ran.flow_start[tuple(flows.T)]
    order = np.argsort(starts)
    edge, iteration = flows[order].T
    times = np.column_stack([starts[order], starts[order] + 1.0]).ravel()
    rates = RateHistory(
        time=times,
        edge=np.repeat(edge, 2),
        iteration=np.repeat(iteration, 2),
        rate=np.tile([100.0, 0.0], len(starts)),
    )
    sends = {}
    for flow in zip(edge.tolist(), iteration.tolist(), strict=True):
        *instants, lag = row
        due = ran.flow_start[flow] + 1.0
        sends[flow] = np.array([*(due + np.array(instants)), lag])

    said = reason(replace(ran, rates=rates), sends=sends)

    # No NIC is to blame for what senders did.
    named = "" if words == "cause not found" else ", by up to 500 ms: 100 %"
    if named:
        assert said.startswith(words + named)
    else:
        assert "senders" not in said
        assert "payloads" not in said


@pytest.mark.parametrize(
    ("volume", "words"),
    [
        (150.0, "flows had 450 B more than predicted"),
        (50.0, "flows had 450 B less than predicted"),
    ],
)
def test_other_volumes_than_predicted_are_named(volume: float, words: str) -> None:
    """Of nine flows: what the last iteration sends back, nobody reads."""
    ran = simulated(volume=volume)
    sound = dict.fromkeys(["a out", "a in", "b out", "b in"], 1.0)
    found = judge_prediction(
        ran, STATED, ran, threshold=0.03, observed=Observations(nics=sound)
    )
    assert found.reasons[0].startswith(words)
