"""Attempts at a job that is killed, against one task followed step by step."""

from __future__ import annotations

import importlib
from dataclasses import replace

import numpy as np
import pytest

from emu.errors import NodeLost, ScenarioError
from emu.prediction.simulation import simulate
from emu.prediction.simulation.attempts import (
    Holders,
    Rules,
    attempts,
    end_of,
    kills_after,
    later,
    time_down,
)
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Kill,
    Machine,
    Outages,
    Placement,
    Problem,
    Realization,
    Schedule,
    Task,
)
from emu.problem.workloads import CHECKPOINT
from emu.scenario import prepare
from emu.scenario.scenario_file import loads
from emu.testing import two_machine_example

STEPS, STEP = 12, 0.5
ONE = f"""
name: one
cluster: {{machines: [{{name: m0, nic: none}}]}}
job:
  system: custom
  iterations: {STEPS}
  tasks: [{{name: a, time: {STEP} s}}]
  flows: []
"""
WHOLE = prepare(loads(ONE))


def part(first: int, began: float) -> Schedule:
    return WHOLE.beginning_at(first, began).simulate()


def followed(
    times: list[float], counts: set[int], every: int, recovery: float, missed: int
) -> tuple[float, int]:
    """Return the length and the steps done, one step after the other."""
    now, done, kept, steps = 0.0, 0, 0, 0
    left, counts = sorted(set(times)), {*counts}
    while done < STEPS:
        whole = done - missed
        if every and whole > kept and whole % every == 0:
            kept = whole
        if left and left[0] < now + STEP:
            now, done = left.pop(0) + recovery, kept
            while left and left[0] < now:  # down already
                now = left.pop(0) + recovery
        else:
            now, done, steps = now + STEP, done + 1, steps + 1
            if done in counts:
                counts.remove(done)
                now, done = now + recovery, kept
                while left and left[0] < now:
                    now = left.pop(0) + recovery
    return now, steps


@pytest.mark.parametrize("seed", range(60))
def test_one_task_goes_on_from_its_last_cut(seed: int) -> None:
    rng = np.random.default_rng(seed)
    every, recovery = int(rng.integers(0, 5)), float(rng.choice([0.3, 1.7, 4.0]))
    times = sorted(rng.uniform(0.01, 9.0, rng.integers(0, 5)).tolist())
    times += times[:1]  # two at once are one death
    kills = [Kill(time, "a", ("a",)) for time in sorted(times)]
    counts = {*rng.integers(1, STEPS, rng.integers(0, 4)).tolist()}
    kills += [Kill(np.inf, "a", ("a",), None, (0, count)) for count in counts]

    missed = int(rng.integers(0, 3))
    found = attempts(part, kills, Rules(12, recovery, every, (0,), missed))
    own = [replace(kill, recovery=recovery) for kill in kills]
    assert (
        attempts(part, own, Rules(12, 99.0, every, (0,), missed)).killed == found.killed
    )

    length, steps = followed(times, counts, every, recovery, missed)
    assert found.makespan == pytest.approx(length)
    parts = sum(one.ran + one.recovery for one in found.killed) + found.last.makespan
    assert found.makespan == pytest.approx(parts)
    # What was lost is what the undisturbed job does not take.
    assert sum(found.lost.values()) == pytest.approx(length - STEPS * STEP)
    assert steps >= STEPS
    if not kills:
        assert found.killed == ()


def test_without_restarts_it_is_one_error() -> None:
    kills = [Kill(2.2, "m0", ("a",))]
    named = r"m0 is killed at 2.2 s \(task a, iteration 4\), and the run ends"
    with pytest.raises(NodeLost, match=named):
        attempts(part, kills, Rules(0, 1.0, 0, ()))
    late = [Kill(STEPS * STEP, "a", ("a",))]
    assert attempts(part, late, Rules(0, 1.0, 0, ())).makespan == STEPS * STEP


def test_a_process_is_named_by_its_first_task() -> None:
    """Two tasks have an iteration of 0.5 s and one of 2 s."""
    tasks = "[{name: a, time: 0.5 s, process: p}, {name: b, time: 2 s, process: p}]"
    whole = prepare(loads(ONE.replace(f"[{{name: a, time: {STEP} s}}]", tasks)))

    def both(first: int, began: float) -> Schedule:
        return whole.beginning_at(first, began).simulate()

    with pytest.raises(NodeLost, match=r"at 3\.2 s \(task a, iteration 6\)"):
        attempts(both, [Kill(3.2, "p", ("p",))], Rules(0, 1.0, 0, ()))


def test_what_was_before_the_first_attempt_is_no_part_of_them() -> None:
    found = attempts(part, [], Rules(0, 1.0, 0, ()), first=4, began=10.0)
    assert found.makespan == pytest.approx((STEPS - 4) * STEP)


def test_a_kill_in_every_iteration_is_too_many() -> None:
    kills = [Kill(n * STEP + 0.2, "a", ("a",)) for n in range(99)]
    with pytest.raises(NodeLost, match=r"3 restarts before \(max_restarts: 3\)"):
        attempts(part, kills, Rules(3, 0.1, 1, (0,)))


def test_an_iteration_is_counted_from_the_first_of_the_whole_job() -> None:
    """Killed at 2.2 s, it goes on with iteration 4 at 3.2, and has done that at 4."""
    kills = [Kill(2.2, "a", ("a",)), Kill(4.0, "a", ("a",))]
    with pytest.raises(NodeLost, match=r"at 4 s \(task a, iteration 5\)"):
        attempts(part, kills, Rules(1, 1.0, 2, (0,)))


def test_what_comes_before_a_last_attempt_is_of_its_own_length() -> None:
    """A run of the same attempts whose last one took 0.25 s longer."""
    found = attempts(part, [Kill(2.2, "a", ("a",))], Rules(1, 1.0, 2, (0,)))
    assert (found.makespan, found.last.length) == pytest.approx((7.2, 4.0))

    outages = found.outages(4.25)
    assert outages.seconds == pytest.approx(7.2 - 4.25)
    assert outages.recovery == 1.0


def test_without_a_death_only_another_length_is_an_outage() -> None:
    """Attempts without a death have no lines on recovery, and an exact makespan."""
    found = attempts(part, [], Rules(1, 1.0, 2, (0,)), first=5, began=1.1)

    assert found.makespan != found.last.length == 3.5  # by rounding alone
    assert found.outages(3.5) == Outages()
    assert found.outages(1.25).seconds == pytest.approx(3.5 - 1.25)
    assert found.to_json() == {}


def test_the_longest_recovery_of_kills_at_once_counts() -> None:
    kills = [Kill(2.2, "a", ("a",), recovery=seconds) for seconds in (1.5, 4.0, 2.5)]

    (death,) = attempts(part, kills, Rules(1, 9.0, 0, ())).killed

    assert death.recovery == 4.0


def test_deaths_while_a_job_is_down_are_taken_by_time() -> None:
    """That at 11.5 s has it down until 13.5, within which 13 s comes, until 15."""
    first, second, third, later = (
        Kill(time, "a", ("a",), recovery=2.0) for time in (10.0, 11.5, 13.0, 15.5)
    )

    down, fallen = time_down([later, third, second, first], (first,), 10.0, 9.0)

    assert down == 5.0
    assert fallen == (first, second, third)


@pytest.mark.parametrize(
    ("died", "down", "at"), [(0.1, 0.2, 0.3), (0.085, 0.7, 0.785), (0.25, 0.25, 0.5)]
)
def test_a_kill_as_a_job_goes_on_is_of_the_next_attempt(
    died: float, down: float, at: float
) -> None:
    """However the end of recovery is rounded: above it, below it, and exactly."""
    first = Kill(died, "a", ("a",), recovery=down)
    second = Kill(at, "b", ("b",), recovery=0.9)
    sooner = Kill(at - 1e-6, "c", ("c",), recovery=0.9)

    pause, fallen = time_down([second], (first,), died, 9.0)
    _, both = time_down([sooner, second], (first,), died, 9.0)
    left = kills_after([first, second], fallen, died + pause)

    assert (pause, fallen, left) == (down, (first,), (second,))
    assert both == (first, sooner, second)


def test_a_death_that_is_due_has_a_job_down_once() -> None:
    """By rounding the job died just before the time that is stated."""
    kill = Kill(10.0, "a", ("a",), recovery=2.0)

    assert time_down([kill], (kill,), 10.0 - 1e-12, 9.0) == (2.0, (kill,))


def test_what_has_come_to_nothing_is_not_left() -> None:
    """The job goes on at 5 s: what was due by then and killed nothing is over."""
    past, fallen, same, ahead = (
        Kill(time, "a", ("a",)) for time in (3.0, 4.0, 5.0, 6.0)
    )
    counted = Kill(np.inf, "a", ("a",), ended=(0, 7))

    left = kills_after([past, fallen, same, ahead, counted], (fallen,), 5.0)

    assert left == (same, ahead, counted)
    assert kills_after([same, counted], (same, counted), 5.0) == ()


def test_of_deaths_at_once_the_first_is_named() -> None:
    """At 2 s, when iteration 3 has just ended."""
    kills = [Kill(2.0, name, ("a",)) for name in ("first", "second")]

    with pytest.raises(NodeLost, match=r"^first is killed .*task a, iteration 4"):
        attempts(part, kills, Rules(0, 1.0, 0, ()))


def test_a_crash_at_the_very_end_kills_nothing() -> None:
    crash = Kill(STEPS * STEP, "host h has gone", ())

    assert attempts(part, [crash], Rules(0, 1.0, 0, ())).killed == ()


def test_a_later_death_with_a_longer_recovery_lengthens_no_earlier_one() -> None:
    """The first has the job down for 1.5 s, until 3.7 s: it runs again at 4."""
    first = Kill(2.2, "a", ("a",), recovery=1.5)
    later = Kill(4.0, "a", ("a",), recovery=4.0)

    found = attempts(part, [first, later], Rules(2, 9.0, 0, ()))

    assert [death.recovery for death in found.killed] == [1.5, 4.0]


def test_a_kill_as_the_last_of_its_processes_ends_is_a_tie() -> None:
    """Task a ends at 6 s, b at 3: at 3 s a kill of both is none yet."""
    tasks = f"[{{name: a, time: {STEP} s}}, {{name: b, time: {STEP / 2} s}}]"
    whole = prepare(loads(ONE.replace(f"[{{name: a, time: {STEP} s}}]", tasks)))
    kill = Kill(6.0, "m0", ("b", "a"))

    found = attempts(
        lambda first, began: whole.beginning_at(first, began).simulate(),
        [kill],
        Rules(0, 1.0, 0, ()),
    )

    assert found.killed == ()
    assert found.ties == {kill}


def test_a_cut_is_of_the_time_at_which_its_last_keeper_began() -> None:
    """Task a begins iteration 2 at 1 s; b, which takes 1 s each, begins it at 2.5 s."""
    text = ONE.replace("}]\n  flows: []", "}, {name: b, time: 1 s}]\n  flows: [FLOW]")
    both = prepare(loads(text.replace("FLOW", "{from: a, to: b, volume: 0 B}")))

    (death,) = attempts(
        lambda first, began: both.beginning_at(first, began).simulate(),
        [Kill(2.6, "a", ("a",))],
        Rules(1, 1.0, 2, (0, 1)),
    ).killed

    assert death.next_iteration == 2
    assert death.again == pytest.approx(0.1)


def test_where_a_cut_is_lost_all_work_is_done_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the third death, whose attempt has a newer cut, of 1 s, that is lost as well.

    Copies have a cut again when their iteration 1 has begun, at 0.5 s of an attempt.
    """
    came = []

    def left(_: Holders, newest: int, *others: object) -> int:
        came.append(others[-1])
        return newest if len(came) < 3 else 0

    monkeypatch.setattr(Holders, "left_of", left)
    kills = [Kill(time, "a", ("a",)) for time in (2.8, 4.2, 6.8)]

    found = attempts(part, kills, Rules(3, 1.0, 2, (0,), missed=1))

    assert came == [{0}, set(), {0}]
    assert [death.next_iteration for death in found.killed] == [4, 4, 0]
    lost = [death.again for death in found.killed]
    assert lost == [death.ran for death in found.killed]
    assert lost == pytest.approx([2.8, 0.4, 1.6])


@pytest.mark.parametrize(
    ("missed", "killed", "copies"),
    [(1, 0.5, set()), (1, 0.6, {0}), (99, 5.2, set()), (99, 5.7, {0})],
)
def test_a_copy_has_a_cut_again_when_its_iteration_has_begun(
    monkeypatch: pytest.MonkeyPatch, missed: int, killed: float, copies: set[int]
) -> None:
    """Iteration 1 begins at 0.5 s, too late for a kill of then; the last at 5.5 s."""
    came = []

    def left(_: Holders, newest: int, *others: object) -> int:
        came.append(others[-1])
        return newest

    monkeypatch.setattr(Holders, "left_of", left)
    attempts(part, [Kill(killed, "a", ("a",))], Rules(1, 1.0, 2, (0,), missed))

    assert came == [copies]


def test_a_copy_that_died_is_missed_in_the_next_attempt() -> None:
    """The copy dies at 1.7 s, with cut 2; its owner 0.3 s after it came again."""
    tasks = (Task("a", "x"), Task("a.copy", CHECKPOINT))
    machines = Machine("m0", 9.0, 8.0), Machine("m1", 7.0, 6.0)

    def kept(first: int, _began: float) -> Schedule:
        rest = 6 - first
        job = Job(tasks, (Edge(0, 1),), rest)
        problem = Problem(Cluster(machines), job, Placement((0, 1)))
        times = np.repeat([[STEP], [0.0]], rest, axis=1)
        return simulate(problem, Realization(times, np.zeros((1, rest))))

    kills = [Kill(1.7, "m1", ("a.copy",)), Kill(3.0, "m0", ("a",))]
    found = attempts(kept, kills, Rules(2, 1.0, 2, (0,), copies=(1,)))

    assert [death.next_iteration for death in found.killed] == [2, 0]
    assert [death.again for death in found.killed] == pytest.approx([1.7, 0.3])


@pytest.mark.parametrize(("killed", "cut", "again"), [(1.4, 0, 1.4), (2.6, 2, 1.6)])
def test_a_cut_counts_when_its_copy_is_there_and_is_of_its_own_time(
    killed: float, cut: int, again: float
) -> None:
    """Task a begins iteration 2 at 1 s; b, which takes 1 s each, has it at 2.5 s."""
    text = ONE.replace("}]\n  flows: []", "}, {name: b, time: 1 s}]\n  flows: [FLOW]")
    both = prepare(loads(text.replace("FLOW", "{from: a, to: b, volume: 0 B}")))
    rules = Rules(1, 1.0, 2, (0,), copies=(1,))

    (death,) = attempts(
        lambda first, began: both.beginning_at(first, began).simulate(),
        [Kill(killed, "a", ("a",))],
        rules,
    ).killed

    assert death.next_iteration == cut
    assert death.again == pytest.approx(again)


def sender_and_reader(*, copy: bool = False) -> Schedule:
    """Return a (1 s), whose 20 B go at 10 B/s and land 3 s later; b takes 1 s."""
    machines = (
        Machine("m0", 10.0, 10.0, latency_out=2.0),
        Machine("m1", 10.0, 10.0, latency_in=1.0),
    )
    tasks = (
        Task("a", "x", process="p"),
        Task("b", "x", process="q"),
        Task("c", CHECKPOINT if copy else "x", process="p"),
    )
    job = Job(tasks, (Edge(0, 1),), 1)
    problem = Problem(Cluster(machines), job, Placement((0, 1, 0)))
    run = Realization(np.array([[1.0], [1.0], [0.5]]), np.array([[20.0]]))
    return simulate(problem, run)


def test_a_process_is_over_when_its_last_byte_has_landed() -> None:
    schedule = sender_and_reader()

    assert end_of(schedule, "p") == 1.0 + 2.0 + 3.0
    assert end_of(schedule, "q") == 7.0
    # Who keeps a copy beside other tasks is never over.
    assert end_of(sender_and_reader(copy=True), "p") == np.inf


def test_after_a_crash_several_jobs_begin_again_together() -> None:
    """One that is killed would leave the others running, which is not simulated."""
    tasks = tuple(Task(f"{name}/t", "x") for name in "ab")
    job = Job(tasks, (), 2, settings={"jobs": {"a": {}, "b": {}}})
    problem = Problem(Cluster((Machine("m", 1.0, 1.0),)), job, Placement((0, 0)))

    def whole(_first: int, _began: float) -> Schedule:
        return simulate(problem, Realization(np.ones((2, 2)), np.zeros((0, 2))))

    rules = Rules(restarts=3, recovery=0.5, every=0, keepers=())
    crash = Kill(1.5, "host h has gone", ())
    assert attempts(whole, [crash], rules).makespan == 1.5 + 0.5 + 2.0
    with pytest.raises(ScenarioError, match="with several jobs"):
        attempts(whole, [Kill(1.5, "a/t", ("a/t",))], rules)


def test_what_comes_later_than_a_cut_is_of_the_part_that_begins_with_it() -> None:
    """The part begins at 2 s with iteration 4: what came by then has come."""
    kills = [Kill(time, "a", ("a",)) for time in (1.0, 2.0, 2.5)]
    kills += [Kill(np.inf, "a", ("a",), ended=(0, count)) for count in (4, 5)]

    assert later(kills, 4, 2.0) == (kills[2], kills[4])


def test_a_portfolio_chooses_by_what_is_expected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run must not choose by what is to come; without a profile it is its own."""
    module = importlib.import_module("emu.prediction.simulation.simulate")
    asked: list[Realization] = []

    def choose(_: Problem, run: Realization) -> str:
        asked.append(run)
        return "oes"

    monkeypatch.setattr(module, "best_policy", choose)
    problem, run = two_machine_example(2)
    profile = Realization(2 * run.times, 3 * run.volumes)
    simulate(problem, run, "portfolio", profile=profile)
    simulate(problem, run, "portfolio")

    assert asked == [profile, run]
