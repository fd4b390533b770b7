"""Task times, credit windows and what else guards read of a scenario."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from emu.emulation.wire.frame_layout import FRAME_ROWS
from emu.prediction.simulation import simulate
from emu.problem import (
    CapacityChange,
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Realization,
    Task,
)
from emu.runs.audit_inputs import has_other_windows, list_windows
from emu.scenario import Experiment, load, prepare
from emu.testing import two_machine_example
from emu.testing.strategies import problems
from emu.trust.audit import audit
from emu.trust.guards.credit_windows import window
from emu.trust.guards.earliest_ends import earliest_ends
from emu.trust.guards.evidence import Evidence, fitting, list_capacities, most_stated
from emu.trust.guards.schedule import (
    headline_faults,
    least_makespan,
    task_times,
)
from tests.fidelity.drawn_systems import draw_system
from tests.integration.scenarios import GOLDEN
from tests.trust.guards.reported import reported
from tools.trials.trial import scenario_of


@given(drawn=problems(links=True, changes=True))
def test_capacities_over_time(drawn: tuple[Problem, Realization]) -> None:
    problem, _ = drawn
    times, steps = np.arange(0.0, 16.0, 0.25), problem.links.steps
    for port, link in enumerate(problem.links):
        of_guards = [list_capacities(problem, t)[link.name] for t in times.tolist()]
        np.testing.assert_array_equal(steps.at(port, times), of_guards)
        np.testing.assert_allclose(
            steps.carry(port, times), fitting(problem, link.name, times), rtol=1e-12
        )
        assert steps.most[port] == most_stated(problem)[link.name]


def experiment(most: int | str) -> Experiment:
    overrides = {"job.credit_window": most, "job.iterations": 6, "expect": None}
    return prepare(load(GOLDEN, overrides))


def evidence(
    made: Experiment, share: float = 1.0, stated: int | None = None
) -> Evidence:
    """Return what a run reports whose tasks take a share of their times."""
    realization = replace(made.realization, times=share * made.realization.times)
    none = np.zeros(0, FRAME_ROWS)
    schedule = simulate(made.problem, realization, "oes")
    return Evidence(
        schedule=schedule,
        sent=none,
        received=none,
        notified=None,
        began=schedule.task_start,
        statistics={},
        time_scale=1.0,
        byte_scale=1.0,
        lead=0.0,
        stale=0.0,
        stall=0.0,
        times=made.realization.times,
        windows=() if stated is None else (("", stated),),
    )


@pytest.mark.parametrize("share", [0.97, 0.999, 0.99999])
def test_tasks_that_take_a_share_of_their_time_are_named(share: float) -> None:
    (found,) = task_times(evidence(experiment("unlimited"), share))
    assert "that are stated" in found.sentence


@pytest.mark.parametrize("share", [1.0, 1.2])
def test_tasks_may_take_their_time_and_more(share: float) -> None:
    assert not [*task_times(evidence(experiment("unlimited"), share))]


@pytest.mark.parametrize(("share", "fires"), [(1.01, False), (1.02, True)])
def test_tasks_that_take_more_than_they_say_are_named(
    share: float, *, fires: bool
) -> None:
    """They say that they took 1.5 % more, since this host was late."""
    took = evidence(experiment("unlimited"), share)
    assert took.times is not None
    words = [f.sentence for f in task_times(replace(took, late=0.015 * took.times))]
    assert any("that are stated" in each for each in words) == fires


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_window_off_by_one_is_named(most: int) -> None:
    assert not [*window(evidence(experiment(most), stated=most))]
    (found,) = window(evidence(experiment(most + 1), stated=most))
    assert f"the credit window is {most}" in found.sentence
    assert f"[{most}] started" in found.sentence  # the first that may not yet


@pytest.mark.parametrize(
    ("system", "seed"),
    [
        ("apt", 20261304),
        ("apt", 20261305),
        ("rapid_gnn", 20261305),
        ("salient_plus_plus", 20261305),
    ],
)
def test_windows_of_systems_that_train_are_kept(system: str, seed: int) -> None:
    """As they are simulated, also where sums of gradients end after the next start."""
    made = prepare(scenario_of(draw_system(system, seed)))
    windows = list_windows(made.scenario)
    sound = replace(reported(made.simulate()), windows=windows)
    smaller = [(prefix, most - 1) for prefix, most in windows]

    assert windows
    assert not [*window(sound)]
    assert [*window(replace(sound, windows=tuple(smaller)))]


def headline() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a true headline, and what it is of: three runs of unlike lengths."""
    problem, stated = two_machine_example(3)
    runs = {
        name: simulate(problem, replace(stated, times=share * stated.times))
        for name, share in (("emulated", 1.5), ("predicted", 1.0), ("replayed", 1.2))
    }
    length, before, again = (run.makespan for run in runs.values())
    measured = replace(stated, times=1.5 * stated.times)
    least = least_makespan(problem, measured)
    result = {
        "makespan": length,
        "predicted_makespan": before,
        "makespan_error": length / before - 1,
        "replayed_makespan": again,
        "replay_error": length / again - 1,
        "bound": least,
        "gap": length / least - 1,
    }
    return result, {**runs, "measured": measured}


def test_every_number_of_a_headline_is_held_against_its_own_run() -> None:
    result, of = headline()
    assert headline_faults(result, **of) == (7, [])
    for key, number in result.items():
        for other in {*result.values(), 0.9 * number} - {number}:
            if key == "bound" and other > number:
                continue  # may be above this one, which is not the best
            _, found = headline_faults(result | {key: other}, **of)
            assert key in [v.subject for v in found], (key, other)


def test_a_prediction_of_no_time_has_no_share_but_a_whole() -> None:
    """A run of 2 s is off by all of it, and one of no time by nothing."""
    result, of = headline()
    nothing = replace(of["predicted"], task_end=0.0 * of["predicted"].task_end)
    changed = {**of, "predicted": nothing}
    right = result | {"predicted_makespan": 0.0, "makespan_error": 1.0}

    assert headline_faults(right, **changed)[1] == []
    assert headline_faults(right | {"makespan_error": 0.0}, **changed)[1]


def test_the_least_makespan_is_the_longest_path_or_the_busiest_link() -> None:
    """One of 60 B over a NIC that goes from 2 to 10 B/s after 5 s: 10 B, and 5 s."""
    machines = (Machine("m0", 50.0, 2.0), Machine("m1", 40.0, 3.0))
    change = CapacityChange(5.0, "m0 out", 10.0)
    job = Job((Task("a", "x"), Task("b", "x")), (Edge(0, 1), Edge(0, 1, 1)), 2)
    problem = Problem(Cluster(machines, changes=(change,)), job, Placement((0, 1)))
    volumes = np.array([[30.0, 30.0], [10.0, 99.0]])  # the last is sent to nobody
    run = Realization(np.array([[0.5, 0.5], [1.0, 1.0]]), volumes)
    assert least_makespan(problem, run) == pytest.approx(5.0 + 60.0 / 10.0)
    # In whatever order its changes are stated: to 4 B/s after 2 s, then 10 B/s.
    before = CapacityChange(2.0, "m0 out", 4.0)
    cluster = Cluster(machines, changes=(change, before))
    turned = replace(problem, cluster=cluster)
    assert least_makespan(turned, run) == pytest.approx(5.0 + (70 - 4 - 12) / 10.0)
    # By a clock that is off a time may be before the run: no room is less than none.
    room = fitting(turned, "m0 out", np.array([-1.0, 0.0, 3.0]))
    assert room.tolist() == [0.0, 0.0, 8.0]
    rates = [list_capacities(turned, time)["m0 out"] for time in (1.0, 3.0, 6.0)]
    assert rates == [2.0, 4.0, 10.0]
    slow = replace(
        run, times=10 * run.times
    )  # 5 s, a flow of 30 B alone at most 10 B/s
    assert least_makespan(problem, slow) == pytest.approx(5 + 3 + 10 + 10)


def test_what_a_task_does_not_run_takes_no_time() -> None:
    """It runs once, and its reader twice; a second run is said to take 50 s."""
    machines = (Machine("m0", 5.0, 10.0), Machine("m1", 10.0, 5.0))
    tasks = (Task("a", "x", iterations=1), Task("b", "x"))
    job = Job(tasks, (Edge(0, 1),), 2)
    problem = Problem(Cluster(machines), job, Placement((0, 1)))
    run = Realization(np.array([[1.0, 50.0], [4.0, 2.0]]), np.array([[20.0, 90.0]]))

    least = earliest_ends(problem, run.times, run.volumes)
    assert least[1].tolist() == [1.0 + 2.0 + 4.0, 1.0 + 2.0 + 6.0]
    assert least_makespan(problem, run) == 9.0
    # What a link of 10 B/s lets go at once takes no time.
    least = earliest_ends(
        problem, run.times, run.volumes, at_once=lambda rate: rate / 2
    )
    assert least[1, 1] == 9.0 - 0.5


def credited(store_starts: list[float], worker_ends: list[float]) -> list[str]:
    """Return what a window of 2 finds of a store, a parameter server and a worker.

    The worker has fewer iterations than the store.
    """
    tasks = (
        Task("g", "graph_store"),
        Task("ps", "parameter_server"),
        Task("w", "worker", iterations=len(worker_ends)),
    )
    job = Job(tasks, (Edge(0, 2), Edge(1, 2)), len(store_starts))
    problem = Problem(Cluster((Machine("m", 1.0, 1.0),)), job, Placement((0,) * 3))
    shape = (2, len(store_starts))
    made = simulate(problem, Realization(np.zeros((3, shape[1])), np.zeros(shape)))
    start = made.task_start.copy()
    end = made.task_end.copy()
    start[0] = store_starts
    end[2, : len(worker_ends)] = worker_ends
    schedule = replace(made, task_start=start, task_end=end)
    found = window(
        replace(evidence(experiment(1)), schedule=schedule, windows=(("", 2),))
    )
    return [finding.sentence.partition(":")[0] for finding in found]


def test_a_window_counts_iterations_of_who_ends_a_batch() -> None:
    """The parameter server begins at once, and asks for no batches."""
    assert credited([0, 0, 3, 5, 5, 5], [3, 5]) == []
    assert credited([0, 0, 3, 4, 5, 5], [3, 5]) == [
        "g[3] started at 4 s, before w[1] ended at 5 s"
    ]


def test_a_gate_begins_no_mini_batch() -> None:
    """It opens before the worker has ended the iteration before: that may be."""
    tasks = Task("b.release", "gate", gate=True), Task("b.w", "worker")
    job = Job(tasks, (Edge(0, 1),), 2)
    problem = Problem(Cluster((Machine("m", 1.0, 1.0),)), job, Placement((0, 0)))
    made = simulate(problem, Realization(np.zeros((2, 2)), np.zeros((1, 2))))
    schedule = replace(
        made,
        task_start=np.array([[0.0, 0.5], [1.0, 3.0]]),
        task_end=np.array([[0.0, 0.5], [3.0, 5.0]]),
    )
    stated = replace(evidence(experiment(1)), schedule=schedule)

    assert not [*window(replace(stated, windows=(("b.", 1),)))]


def test_a_window_is_of_one_job_alone() -> None:
    """Job b runs ahead of its worker without bound; a keeps its window of 1."""
    names = {
        "a.g": "graph_store",
        "a.w": "worker",
        "b.g": "graph_store",
        "b.w": "worker",
    }
    tasks = tuple(Task(name, kind) for name, kind in names.items())
    job = Job(tasks, (Edge(0, 1), Edge(2, 3)), 2)
    problem = Problem(Cluster((Machine("m", 1.0, 1.0),)), job, Placement((0,) * 4))
    made = simulate(problem, Realization(np.zeros((4, 2)), np.zeros((2, 2))))
    schedule = replace(
        made,
        task_start=np.array([[0.0, 3.0], [1.0, 3.0], [0.0, 0.5], [1.0, 4.0]]),
        task_end=np.array([[0.0, 3.0], [2.0, 4.0], [0.0, 0.5], [3.0, 5.0]]),
    )
    stated = replace(evidence(experiment(1)), schedule=schedule)

    assert not [*window(replace(stated, windows=(("a.", 1),)))]
    (found,) = window(replace(stated, windows=(("a.", 1), ("b.", 1))))
    assert found.sentence.startswith("b.g[1] started at 0.5 s, before b.w[0] ended")


def test_a_slot_is_held_until_the_one_that_frees_it_ends() -> None:
    """The taker ends after 1 s, the task that gives its slot back 2 s later."""
    tasks = (Task("a", "x", takes="gpu", frees=""), Task("b", "x", frees="gpu"))
    machines = Cluster((Machine("m", 1.0, 1.0, slots={"gpu": 1}),))
    job = Job(tasks, (Edge(0, 1),), 2)
    run = Realization(np.array([[1.0, 1.0], [2.0, 2.0]]), np.zeros((1, 2)))
    schedule = simulate(Problem(machines, job, Placement((0, 0))), run)
    assert audit(schedule).passed
    schedule.task_start[0, 1], schedule.task_end[0, 1] = 1.0, 4.0
    said = [str(violation) for violation in audit(schedule).violations]
    assert any("is overdrawn at 1 s" in words for words in said)


@pytest.mark.parametrize(
    ("size", "makespan"), [(0.0, 3.0), (5.0, 3.5), (40.0, 7.0), (40.5, np.inf)]
)
def test_a_link_that_is_cut_for_good_carries_nothing_more(
    size: float, makespan: float
) -> None:
    """It has 10 B/s until 4 s: the busiest link or the longest path is the bound."""
    machines = Machine("m0", 40.0, 10.0), Machine("m1", 50.0, 60.0)
    cluster = Cluster(machines, changes=(CapacityChange(4.0, "m0 out", 0.0),))
    job = Job((Task("a", "x"), Task("b", "x")), (Edge(0, 1),), 1)
    problem = Problem(cluster, job, Placement((0, 1)))
    run = Realization(np.array([[1.0], [2.0]]), np.array([[size]]))

    assert least_makespan(problem, run) == makespan


def test_the_newest_of_a_source_that_has_ended_is_new_enough() -> None:
    """It sends twice, and is read five times."""
    tasks = (Task("a", "x", iterations=2), Task("b", "x"))
    job = Job(tasks, (Edge(0, 1, 1, latest=True),), 5)
    problem = Problem(Cluster((Machine("m", 1.0, 1.0),)), job, Placement((0, 0)))
    schedule = simulate(problem, Realization(np.ones((2, 5)), np.zeros((1, 5))))
    assert schedule.reads is not None
    assert audit(schedule).passed
    schedule.reads[0, 4] = 0
    (found,) = audit(schedule).violations
    assert found.sentence.startswith("b[4] read of a->b iteration 0, the lag allows 1")


@pytest.mark.parametrize(("capacity", "at_once"), [(30.0, 50.0), (3000.0, 150.0)])
def test_what_a_bucket_lets_go_at_once(capacity: float, at_once: float) -> None:
    """0.2 s of wall time of its rate, at 4 wall seconds each, or 500 of 10 B each."""
    made = replace(evidence(experiment(1)), time_scale=4.0, byte_scale=10.0)
    assert replace(made, burst=(0.2, 500.0)).at_once(capacity) == at_once


@pytest.mark.parametrize("broken", ["a/", "b/"])
def test_the_window_of_every_job_is_checked(broken: str) -> None:
    """Of two jobs one keeps to 3 batches; the other, which may have 2, has 4."""
    tasks = [
        Task(f"{job}/{name}", kind)
        for job in "ab"
        for name, kind in (("g", "graph_store"), ("w", "worker"))
    ]
    job = Job(tuple(tasks), (Edge(0, 1), Edge(2, 3)), 6)
    problem = Problem(Cluster((Machine("m", 1.0, 1.0),)), job, Placement((0,) * 4))
    length = {"a/": (1.0, 1.0), "b/": (1.0, 1.0)} | {broken: (1.0, 5.0)}
    times = np.array([[length[t.name[:2]][t.kind == "worker"]] * 6 for t in tasks])
    schedule = simulate(problem, Realization(times, np.zeros((2, 6))))
    made = replace(
        evidence(experiment(1)), schedule=schedule, windows=(("a/", 2), ("b/", 2))
    )
    (found,) = window(made)
    assert found.sentence.startswith(
        f"{broken}g[2] started at 2 s, before {broken}w[0]"
    )


def test_a_store_may_wait_for_a_slot_and_for_nothing_else() -> None:
    """Constraint (5), on a machine with one slot for two stores, or with two."""
    stores = tuple(Task(f"g{n}", "graph_store", takes="gpu") for n in range(2))
    for slots, late in ((1, 1.0), (2, 0.0)):
        machines = Cluster((Machine("m", 1.0, 1.0, slots={"gpu": slots}),))
        job = Job(stores, (), 1)
        schedule = simulate(
            Problem(machines, job, Placement((0, 0))),
            Realization(np.ones((2, 1)), np.zeros((0, 1))),
        )
        assert schedule.task_start.max() == late
        assert audit(schedule).passed
        free = replace(job, tasks=tuple(replace(t, takes="") for t in stores))
        problem = replace(schedule.problem, job=free)
        sentences = [
            str(v) for v in audit(replace(schedule, problem=problem)).violations
        ]
        assert sentences == ["(5) g1[0] started after the run began: 1 s"][: slots % 2]


@pytest.mark.parametrize(
    ("name", "unchecked"),
    [("p3_products", True), ("golden", False), ("demo", False)],
)
def test_an_audit_names_windows_that_it_does_not_check(
    name: str, *, unchecked: bool
) -> None:
    """Those of P3's cycles, each of which works on several mini-batches."""
    assert has_other_windows(load(name)) == unchecked
