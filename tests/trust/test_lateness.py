"""Lateness of a run, and what it does to the end, by hand and by integrals."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.prediction.analysis.critical_path import (
    Cause,
    ChainLink,
    CriticalPath,
    critical_path,
)
from emu.prediction.analysis.link_load import fluid_ends
from emu.prediction.simulation import simulate
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Outages,
    Placement,
    Problem,
    RateHistory,
    Realization,
    Schedule,
    Task,
)
from emu.testing import two_machine_example
from emu.trust.lateness import (
    YOUNG,
    FlowCompletion,
    HostEffect,
    chain_lateness,
    clock_uncertainty,
    flow_completion,
    host_effect,
    late_times,
    seconds_of_waits,
    shares_of_waits,
)


def _simulated(iterations: int = 4) -> Schedule:
    return simulate(*two_machine_example(iterations), record_rates=True)


def test_in_a_simulation_every_flow_ends_with_its_fluid() -> None:
    schedule = _simulated()
    at = tuple(schedule.flows().T)

    np.testing.assert_allclose(fluid_ends(schedule)[at], schedule.flow_end[at])


def test_a_simulation_is_never_late() -> None:
    schedule = _simulated()

    late = chain_lateness(schedule, np.zeros(schedule.task_end.shape))

    assert late.seconds == pytest.approx(0.0, abs=1e-9)


@given(delay=st.floats(1e-3, 5.0))
def test_the_delay_of_the_only_flow_is_the_lateness(delay: float) -> None:
    problem = Problem(
        Cluster((Machine("m0", 10.0, 10.0), Machine("m1", 10.0, 10.0))),
        Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1),), iterations=1),
        Placement((0, 1)),
    )
    times, volumes = np.array([[1.0], [2.0]]), np.array([[30.0]])
    schedule = simulate(problem, Realization(times, volumes), record_rates=True)
    shift = np.array([[0.0], [delay]])
    delayed = dataclasses.replace(
        schedule,
        flow_end=schedule.flow_end + delay,
        task_start=schedule.task_start + shift,
        task_end=schedule.task_end + shift,
    )

    late = chain_lateness(delayed, np.array([[0.0], [0.25]]))

    assert late.flows == pytest.approx(delay)
    assert late.tasks == 0.25
    assert late.gaps == 0.0


def test_what_is_late_beside_the_path_is_no_lateness_of_it() -> None:
    """Task c, of 2 s, ends long before b, and is late by more than b."""
    tasks = Task("a", "a"), Task("b", "b"), Task("c", "c")
    machines = Machine("m0", 10.0, 10.0), Machine("m1", 10.0, 10.0)
    job = Job(tasks, (Edge(0, 1),), 1)
    problem = Problem(Cluster(machines), job, Placement((0, 1, 0)))
    run = Realization(np.array([[1.0], [2.0], [2.0]]), np.array([[30.0]]))
    schedule = simulate(problem, run, record_rates=True)

    late = chain_lateness(schedule, np.array([[0.25], [0.5], [1.5]]))

    assert (late.flows, late.tasks, late.gaps) == (0.0, 0.75, 0.0)


def test_an_effect_is_of_the_run_as_it_was_and_without_what_came_late() -> None:
    """First a takes 5 s, of which 1 s came late, then b 0.5 s, all of it late.

    What b was late by is more than it took, as by rounding it may be.
    """
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1),), 1)
    problem = Problem(Cluster((Machine("m", 1.0, 1.0),)), job, Placement((0, 0)))
    none = np.zeros((1, 1))
    late = np.array([[1.0], [0.75]])

    effect = host_effect(
        problem,
        "oes",
        None,
        emulated=7.0,
        simulated=5.5,
        measured=Realization(np.array([[5.0], [0.5]]), none),
        perturbed=Realization(np.array([[5.25], [1.5]]), none),
        late=late,
        clocks=0.125,
    )

    assert effect == HostEffect(
        emulated=7.0, repeated=6.75, punctual=4.0, simulated=5.5, clocks=0.125
    )


def test_a_flow_whose_latency_is_waited_for_is_late_once() -> None:
    """It moves for 3 s and lands 2 s later: two links of the chain, one flow."""
    machines = Machine("m0", 10.0, 10.0, latency_out=2.0), Machine("m1", 10.0, 10.0)
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1),), 1)
    problem = Problem(Cluster(machines), job, Placement((0, 1)))
    run = Realization(np.array([[1.0], [2.0]]), np.array([[30.0]]))
    schedule = simulate(problem, run, record_rates=True)
    shift = np.array([[0.0], [0.5]])
    delayed = dataclasses.replace(
        schedule,
        flow_end=schedule.flow_end + 0.5,
        task_start=schedule.task_start + shift,
        task_end=schedule.task_end + shift,
    )
    assert len(critical_path(delayed).links) == 4

    late = chain_lateness(delayed, np.zeros((2, 1)))

    assert (late.flows, late.tasks, late.gaps) == (0.5, 0.0, 0.0)


@pytest.mark.parametrize(
    ("emulated", "repeated", "simulated", "unexplained"),
    [
        (90.0, 95.0, 100.0, -10.0),  # the run was shorter by more than its repetition
        (90.0, 105.0, 100.0, -15.0),
        (110.0, 105.0, 100.0, 10.0),
        (110.0, 95.0, 100.0, 15.0),
    ],
)
def test_of_two_distances_from_a_run_the_larger_has_no_reason(
    emulated: float, repeated: float, simulated: float, unexplained: float
) -> None:
    effect = HostEffect(
        emulated, repeated=repeated, punctual=repeated, simulated=simulated, clocks=2.0
    )

    assert effect.unexplained == unexplained
    # What clocks leave open comes on top.
    expected = (abs(unexplained) + 2.0) / repeated
    assert effect.uncertainty == pytest.approx(expected)


def test_time_between_parts_is_a_gap() -> None:
    schedule = _simulated()
    later = dataclasses.replace(
        schedule,
        task_start=schedule.task_start.copy(),
        task_end=schedule.task_end.copy(),
    )
    last = int(schedule.task_end[:, -1].argmax())
    later.task_start[last, -1] += 0.5
    later.task_end[last, -1] += 0.5

    late = chain_lateness(later, np.zeros(schedule.task_end.shape))

    assert late.gaps == pytest.approx(0.5)


def test_without_rates_there_is_no_fluid() -> None:
    with pytest.raises(ValueError, match="no rates"):
        fluid_ends(simulate(*two_machine_example(1)))


def test_a_fluid_ends_with_its_last_byte_whatever_rates_follow() -> None:
    schedule = _simulated(1)
    flow = np.array([1, 1, 1]), np.array([0, 0, 0])
    rates = RateHistory(np.array([1.0, 6.0, 7.0]), *flow, np.array([10.0, 5.0, 0.0]))

    ends = fluid_ends(dataclasses.replace(schedule, rates=rates))

    assert ends[1, 0] == 5.0  # 40 bytes


def test_what_no_rate_ever_carried_has_no_end() -> None:
    schedule = _simulated(1)
    nothing = np.empty(0, dtype=np.int64)
    none = RateHistory(np.empty(0), nothing, nothing, np.empty(0))
    half = RateHistory(
        np.array([0.0, 1.0]), np.array([1, 1]), np.array([0, 0]), np.array([1.0, 0.0])
    )

    for rates in (none, half):
        ends = fluid_ends(dataclasses.replace(schedule, rates=rates))
        assert np.isnan(ends).all()


def _held_up(scale: float, waited: dict[str, float], *, works: bool = False) -> float:
    """Return it of two flows of 3 s, after tasks of 1 s: a of 1, b of 2 iterations."""
    problem = Problem(
        Cluster((Machine("m0", 10.0, 10.0), Machine("m1", 10.0, 10.0))),
        Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1),), iterations=2),
        Placement((0, 1)),
    )
    made = simulate(problem, Realization(np.full((2, 2), 1.0), np.full((1, 2), 30.0)))
    return seconds_of_waits(made, waited, scale, critical_path(made), works=works)


def test_waits_delay_the_flows_of_the_critical_path_while_these_are_young() -> None:
    # Flows from 1 to 7 s, all on the path: at scale 0.02 60 ms each, all of it young.
    assert _held_up(0.02, {"a": 0.012}) == pytest.approx(0.012 / 0.02)
    assert _held_up(0.02, {"a": 0.012, "b": 0.006}) == pytest.approx(0.018 / 0.02)
    assert _held_up(0.02, {"a": 0.0, "b": 0.0}) == 0.0
    # At scale 1 the first 0.1 s of each 3 s.
    assert _held_up(1.0, {"a": 0.6}) == pytest.approx(0.6 * YOUNG / 3)
    # A process that computes, too, waits then as well: a from 0 to 2 s, b from 4 on.
    held = _held_up(0.02, {"a": 0.014}, works=True)
    assert held == pytest.approx(0.014 / 0.02 * 6 / 7)


@given(waited=st.floats(0.0, 1e3), scale=st.floats(1e-3, 1e2))
def test_flows_are_held_up_for_no_longer_than_they_last(
    waited: float, scale: float
) -> None:
    assert 0.0 <= _held_up(scale, {"a": waited, "b": waited}) <= 2 * 6 * (1 + 1e-9)


def test_flows_within_another_keep_a_process_busy_once() -> None:
    """Of a the flows last from 0 to 10 s, 1 to 2 s and 3 to 4 s; 40 s of wall time."""
    tasks = tuple(Task(name, name) for name in "abcd")
    job = Job(tasks, (Edge(0, 1), Edge(0, 2), Edge(0, 3)), 1)
    machines = tuple(Machine(f"m{number}", 10.0, 10.0) for number in range(4))
    problem = Problem(Cluster(machines), job, Placement((0, 1, 2, 3)))
    made = simulate(problem, Realization(np.zeros((4, 1)), np.full((3, 1), 10.0)))
    spread = dataclasses.replace(
        made,
        flow_start=np.array([[0.0], [1.0], [3.0]]),
        flow_end=np.array([[10.0], [2.0], [4.0]]),
    )

    shares = shares_of_waits(spread, {"a": 10.0, "c": 3.0}, time_scale=4.0)

    assert shares == {0: 0.25, 1: 0.0, 2: 0.75, 3: 0.0}


ONE, OTHER = 3e-5, 2e-4


def host(machine: str, uncertainty: float) -> dict[str, object]:
    return {"machines": [machine], "clock": {"uncertainty": uncertainty}}


def test_every_crossing_of_the_chain_counts_and_nothing_within_a_host() -> None:
    problem, realization = two_machine_example(3)
    schedule = simulate(problem, realization)
    chain = critical_path(schedule)
    first, second = (machine.name for machine in problem.cluster.machines)
    machine_of, edges = problem.placement.machine_of, problem.job.edges
    crossings = sum(
        machine_of[edges[link.edge].source] != machine_of[edges[link.edge].destination]
        for link in chain.links
        if link.edge >= 0
    )
    last = (ONE, OTHER)[machine_of[chain.links[-1].task]]
    apart = [host(first, ONE), host(second, OTHER)]
    together = [{**host(first, OTHER), "machines": [first, second]}]

    assert crossings > 1
    assert clock_uncertainty(chain, problem, apart) == pytest.approx(
        last + crossings * (ONE + OTHER)
    )
    assert clock_uncertainty(chain, problem, together) == pytest.approx(OTHER)
    assert clock_uncertainty(chain, problem, [{"machines": [first, second]}]) == 0


def test_a_flow_that_takes_no_time_reads_no_other_clock() -> None:
    problem, _ = two_machine_example(1)
    first, second = (machine.name for machine in problem.cluster.machines)
    machine_of = problem.placement.machine_of
    edge = next(
        position
        for position, edge in enumerate(problem.job.edges)
        if machine_of[edge.source] != machine_of[edge.destination]
    )
    at_once = ChainLink(Cause.TRANSFER, 1.0, 1.0, edge=edge, iteration=0)
    apart = [host(first, ONE), host(second, OTHER)]

    def unknown(link: ChainLink) -> float:
        return clock_uncertainty(CriticalPath((link,)), problem, apart)

    assert unknown(at_once) == 0.0
    assert clock_uncertainty(CriticalPath(()), problem, apart) == 0.0
    # A chain that ends with a flow has no last task.
    task = ChainLink(Cause.COMPUTE, 0.0, 1.0, task=0, iteration=0)
    flow = dataclasses.replace(at_once, end=1.5)
    chain = CriticalPath((task, flow))
    assert clock_uncertainty(chain, problem, apart) == pytest.approx(ONE + OTHER)
    assert unknown(dataclasses.replace(at_once, end=1.5)) == pytest.approx(ONE + OTHER)


def test_the_first_edge_of_a_job_crosses_hosts_like_any_other() -> None:
    """Task a (1 s) sends for 3 s to b (2 s), whose host knows its clock worse."""
    tasks = Task("a", "a"), Task("b", "b")
    machines = Machine("m0", 10.0, 10.0), Machine("m1", 20.0, 20.0)
    problem = Problem(
        Cluster(machines), Job(tasks, (Edge(0, 1),), 1), Placement((0, 1))
    )
    run = Realization(np.array([[1.0], [2.0]]), np.array([[30.0]]))
    chain = critical_path(simulate(problem, run))

    unknown = clock_uncertainty(chain, problem, [host("m0", ONE), host("m1", OTHER)])

    crossings = sum(link.edge == 0 for link in chain.links)
    assert crossings > 0
    assert unknown == pytest.approx(OTHER + crossings * (ONE + OTHER))


def test_simulated_flows_end_when_their_fluid_does() -> None:
    problem, realization = two_machine_example(3)
    schedule = simulate(problem, realization, "oes", record_rates=True)

    finish = flow_completion(schedule, time_scale=3.0)

    assert len(finish.error) == len(schedule.flows()) > 0
    assert np.abs(finish.error).max() < 1e-9
    at = tuple(schedule.flows().T)
    lengths = (schedule.flow_end - schedule.flow_start)[at]
    assert finish.length == pytest.approx(3.0 * lengths)


def test_what_is_late_is_held_against_its_length_or_two_milliseconds() -> None:
    problem, realization = two_machine_example(3)
    schedule = simulate(problem, realization, "oes", record_rates=True)
    late = schedule.flow_end.copy()
    flows = [tuple(at) for at in schedule.flows().tolist()]
    late[flows[0]] += 0.003
    late[flows[1]] -= 0.001
    run = dataclasses.replace(schedule, flow_end=late)

    finish = flow_completion(run, time_scale=2.0)

    assert finish.error[:3] == pytest.approx([0.006, -0.002, 0.0], abs=1e-9)
    # Until its fluid ends, however late the flow.
    lengths = (schedule.flow_end - schedule.flow_start)[tuple(schedule.flows().T)]
    assert finish.length == pytest.approx(2.0 * lengths)
    allowed = np.maximum(0.01 * finish.length[:2], 0.002)
    assert finish.excess[:2] == pytest.approx([0.006, 0.002] / allowed)
    assert finish.share[0] == pytest.approx(0.006 / finish.length[0])


def test_the_share_of_a_flow_is_of_its_length_however_short() -> None:
    finish = FlowCompletion(
        error=np.array([0.2, -0.1, 0.1]), length=np.array([0.5, 2.0, 0.0])
    )
    assert finish.share.tolist() == [0.4, 0.05, np.inf]


def test_an_effect_on_the_whole_job_has_the_attempts_that_ended() -> None:
    """In the run they took 7 s, simulated 4 s, of which 1.5 s are recovery."""
    effect = HostEffect(emulated=20.0, repeated=21.0, punctual=22.0, simulated=23.0)

    whole = effect.after(Outages(7.0, 2.5), Outages(4.0, 1.5))

    assert whole == HostEffect(
        emulated=27.0, repeated=28.0, punctual=26.0, simulated=27.0, recovery=1.5
    )
    assert whole.up == 24.5


def test_a_task_lasts_from_its_inputs_until_its_end_was_known() -> None:
    """By hand, with a latency of 2 s: a sends 30 B at 10 B/s, b reads them.

    a ends at 1 and 2 s and is known to at 1.25 and 2.5; its flows end at 4 and 7. The
    first is known to at 3.5, by a clock that is off: b may begin at 5.5, and then when
    its first end is known, at 7.5 s, or at 9 with the second flow.
    """
    machines = (
        Machine("m0", 10.0, 10.0, latency_out=1.5),
        Machine("m1", 10.0, 10.0, latency_in=0.5),
    )
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1),), 3)
    problem = Problem(Cluster(machines), job, Placement((0, 1)))
    run = Realization(np.ones((2, 3)), np.full((1, 3), 30.0))
    made = simulate(problem, run, record_rates=True)
    assert made.task_end.tolist() == [[1.0, 2.0, 3.0], [7.0, 10.0, 13.0]]

    known = dataclasses.replace(
        made,
        task_settled=np.array([[1.25, 2.5, 3.0], [7.5, 12.5, 14.0]]),
        flow_settled=np.array([[3.5, 7.25, 10.0]]),
    )

    # The third flow landed at 12 s, before b's second end was known.
    assert late_times(known) == pytest.approx(
        np.array([[1.25, 1.25, 0.5], [7.5 - 5.5, 12.5 - 9.0, 14.0 - 12.5]])
    )


@pytest.mark.parametrize("missing", ["task_settled", "flow_settled"])
def test_without_the_times_of_settling_no_task_is_late(missing: str) -> None:
    made = _simulated(1)
    known = dataclasses.replace(
        made, task_settled=made.task_end, flow_settled=made.flow_end
    )
    nothing: dict[str, Any] = {missing: None}
    with pytest.raises(ValueError, match="when ends were settled"):
        late_times(dataclasses.replace(known, **nothing))


def test_a_task_that_got_its_slot_late_did_not_work_meanwhile() -> None:
    """Two tasks share a slot: the second has it at 2 s, and hears of it at 2.5 s."""
    tasks = tuple(Task(name, name, takes="gpu") for name in "ab")
    machine = Machine("m", 10.0, 10.0, slots={"gpu": 1})
    problem = Problem(Cluster((machine,)), Job(tasks, (), 1), Placement((0, 0)))
    run = Realization(np.array([[2.0], [3.0]]), np.zeros((0, 1)))
    made = simulate(problem, run, record_rates=True)
    known = dataclasses.replace(
        made,
        task_start=np.array([[0.0], [2.5]]),
        task_settled=np.array([[2.25], [6.0]]),
        flow_settled=made.flow_end,
    )

    assert late_times(known).tolist() == [[2.25], [3.5]]


def test_a_flow_without_bytes_hands_over_when_it_starts() -> None:
    """It starts at 1.5 s, and is known to have come at 2 s: b takes until 4 s."""
    machines = Machine("m0", 10.0, 10.0), Machine("m1", 10.0, 10.0)
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1),), 1)
    problem = Problem(Cluster(machines), job, Placement((0, 1)))
    run = Realization(np.array([[1.0], [2.0]]), np.zeros((1, 1)))
    made = simulate(problem, run, record_rates=True)
    known = dataclasses.replace(
        made,
        flow_start=np.array([[1.5]]),
        task_settled=np.array([[1.25], [4.0]]),
        flow_settled=np.array([[2.0]]),
    )

    assert late_times(known).tolist() == [[1.25], [2.5]]
