"""The best placement of a run: never worse than others, and no slot waited for ever."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from emu.errors import InfeasiblePlacement, PlacementError, SchedulingError
from emu.prediction.placement import (
    PLACEMENT_POLICIES,
    PlacementResult,
    affordable,
    best_placement,
    place,
)
from emu.prediction.placement.candidates import (
    Candidates,
    JobsCost,
    cannot_beat,
    placement_cost,
)
from emu.prediction.placement.place import repeat_profile
from emu.prediction.placement.space import Space
from emu.prediction.simulation import makespan
from emu.problem import (
    CapacityChange,
    Cluster,
    Edge,
    Job,
    Link,
    Machine,
    Placement,
    Problem,
    Profile,
    Realization,
    Route,
    Task,
)
from emu.problem.links import NO_ROUTE
from emu.problem.placement import slot_teams
from tests.prediction.placement.placement_cases import (
    feasible_placements,
    paper_testbed,
    random_setting,
    realization,
)

OTHERS = tuple(name for name in PLACEMENT_POLICIES if name not in {"explicit", "best"})


def length(problem: Problem, run: Realization) -> float:
    """Return the makespan, infinity where tasks wait for ever or slots overflow."""
    if problem.placement.violations(problem.job, problem.cluster):
        return np.inf
    try:
        return makespan(problem, problem.stretch(run))
    except SchedulingError:
        return np.inf


def split_slots(rng: np.random.Generator) -> tuple[Job, Cluster, Realization]:
    """Return a small job in which some tasks free the slots that others take."""
    machines = tuple(
        Machine(
            f"m{m}",
            10.0,
            10.0,
            {"cpu": float(rng.integers(1, 4))} if rng.random() < 0.7 else {},
            {"gpu": int(rng.integers(1, 3))} if rng.random() < 0.8 else {},
        )
        for m in range(rng.integers(1, 4))
    )
    tasks: list[Task] = []
    edges = []
    for pair in range(rng.integers(1, 3)):
        first = len(tasks)
        tasks += [
            Task(f"a{pair}", "a", {"cpu": 1.0}, takes="gpu", frees=""),
            Task(f"b{pair}", "b", {"cpu": 1.0}, frees="gpu"),
        ]
        edges.append(Edge(first, first + 1))
        if rng.random() < 0.5:  # what is freed waits for a task between
            tasks.append(Task(f"c{pair}", "c", takes=str(rng.choice(["", "gpu"]))))
            edges += [Edge(first, first + 2), Edge(first + 2, first + 1)]
    if len(tasks) > 3 and rng.random() < 0.4:
        edges.append(Edge(0, len(tasks) - 1, lag=1))
    job = Job(tuple(tasks), tuple(edges), int(rng.integers(1, 4)))
    shape = len(edges), job.iterations
    times = rng.choice([0.0, 1.0, 3.0], (len(tasks), job.iterations))
    return job, Cluster(machines), Realization(times, rng.choice([0.0, 10.0], shape))


@pytest.mark.parametrize("seed", range(60))
def test_split_slots_are_placed_wherever_a_placement_exists(seed: int) -> None:
    job, cluster, run = split_slots(np.random.default_rng([28, seed]))
    every = itertools.product(range(len(cluster.machines)), repeat=len(job.tasks))
    lengths = [length(Problem(cluster, job, Placement(at)), run) for at in every]
    least, profile = min(lengths), Profile(run.times, run.volumes)

    for name in ("best", *OTHERS):
        if name == "distdgl":
            continue
        try:
            found = place(name, job, cluster, profile=profile, seed=seed)
        except InfeasiblePlacement:
            assert least == np.inf, name
            continue
        took = length(Problem(cluster, job, found.placement), run)
        assert took < np.inf, name
        if name == "best" and found.optimal:
            assert took == pytest.approx(least)


def test_who_frees_belongs_to_the_nearest_who_takes() -> None:
    tasks = (
        Task("x", "x"),
        Task("a", "t", takes="p", frees=""),
        Task("b", "t", takes="p", frees=""),
        Task("fa", "f", frees="p"),
        Task("mid", "m"),
        Task("fb", "f", frees="p"),
        Task("own", "o", takes="p"),
    )
    edges = (Edge(1, 3), Edge(2, 4), Edge(4, 5), Edge(0, 1), Edge(0, 2))

    assert slot_teams(Job(tasks, edges, 2)) == (("a", "fa"), ("b", "fb"))


def test_one_may_take_what_several_free() -> None:
    tasks = (
        Task("a", "t", takes="p", frees=""),
        Task("f", "f", frees="p", iterations=2),
        Task("g", "f", frees="p", iterations=2),
        Task("h", "f", frees="p", iterations=1),
    )
    assert slot_teams(Job(tasks, (Edge(0, 1), Edge(0, 2)), 4)) == (("a", "f", "g"),)


def _settings(count: int) -> list[tuple[Job, Cluster, Realization]]:
    rng = np.random.default_rng(5)
    found: list[tuple[Job, Cluster, Realization]] = []
    while len(found) < count:
        job, cluster = random_setting(rng, iterations=int(rng.integers(1, 40)))
        run = realization(job, rng)
        try:
            place("ifs", job, cluster)
        except PlacementError:
            continue
        found.append((job, cluster, run))
    return found


def test_what_is_proven_of_some_iterations_is_not_of_the_run() -> None:
    """Candidates have every other iteration, in which y is heavy; it is light else."""
    tasks = (
        Task("x", "t", {"cpu": 1.0}, pinned="a"),
        Task("y", "t", {"cpu": 1.0}),
        Task("z", "t", {"cpu": 1.0}),
    )
    job = Job(tasks, (Edge(0, 1), Edge(0, 2)), iterations=41)
    machines = (
        Machine("a", 10.0, 10.0, {"cpu": 2.0}),
        Machine("b", 10.0, 10.0, {"cpu": 1.0}),
    )
    cluster = Cluster(machines)
    shown = np.linspace(0, 40, 20).astype(np.int64)
    volumes = np.tile([[1.0], [40.0]], (1, 41))
    volumes[:, shown] = [[20.0], [18.0]]
    run = Realization(np.ones((3, 41)), volumes)

    part = best_placement(job, cluster, run)
    assert part.iterations == 20
    assert not part.optimal
    whole = best_placement(job, cluster, run, iterations=41)
    lengths = [
        length(Problem(cluster, job, placement), run)
        for placement in feasible_placements(job, cluster)
    ]
    assert whole.optimal
    assert whole.makespan == min(lengths) < max(lengths)


def test_best_is_never_worse_than_another_policy_or_what_is_known() -> None:
    for seed, (job, cluster, run) in enumerate(_settings(20)):
        profile, budget = Profile(run.times, run.volumes), 1 + 40 * seed
        options: dict[str, Any] = {
            "transfers": budget,
            "iterations": min(20, job.iterations),
        }
        known = place("random", job, cluster, seed=seed).placement
        best = best_placement(
            job, cluster, run, seed=seed, transfers=budget, known=[known]
        )
        took = length(Problem(cluster, job, best.placement), run)

        etp = place("etp", job, cluster, profile=profile, seed=seed, **options)
        ifs = place("ifs", job, cluster, seed=seed)
        for other in (etp.placement, ifs.placement, known):
            assert took <= length(Problem(cluster, job, other), run) * (1 + 1e-12)
        again = place("best", job, cluster, profile=profile, seed=seed, **options)
        assert length(Problem(cluster, job, again.placement), run) <= (
            length(Problem(cluster, job, etp.placement), run) * (1 + 1e-12)
        )


def test_the_optimum_of_one_iteration_is_no_reason_to_end() -> None:
    """The first iteration weighs nothing, so that any placement is its best."""
    for job, cluster, run in _settings(8):
        scale = np.array([0.0, *[1.0] * (job.iterations - 1)])
        rest = Realization(run.times * scale, run.volumes * scale)
        all_ = [*feasible_placements(job, cluster)]
        took = [length(Problem(cluster, job, one), rest) for one in all_]
        least = all_[int(np.argmin(took))]
        best = best_placement(
            job, cluster, rest, transfers=5, iterations=1, known=[least]
        )
        found = length(Problem(cluster, job, best.placement), rest)
        assert found <= min(took) * (1 + 1e-12)
        # Its makespan is of the iteration that candidates have, as all its figures.
        assert best.makespan == 0.0


@pytest.mark.parametrize("name", ["place_ifs", "place_distdgl"])
def test_simple_placements_are_finalists_whatever_a_search_has_found(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules[affordable.__module__]
    worst_found = 0
    for job, cluster, run in _settings(6):
        scale = np.array([0.0, *[1.0] * (job.iterations - 1)])
        rest = Realization(run.times * scale, run.volumes * scale)
        every = [*feasible_placements(job, cluster)]
        took = [length(Problem(cluster, job, placement), rest) for placement in every]
        least = every[int(np.argmin(took))]
        options: dict[str, Any] = {"transfers": 2, "iterations": 1}
        without = best_placement(job, cluster, rest, **options).placement
        worst_found += length(Problem(cluster, job, without), rest) > min(took)

        with monkeypatch.context() as patch:
            patch.setattr(module, name, lambda *_, least=least: least)
            best = best_placement(job, cluster, rest, **options).placement
        assert length(Problem(cluster, job, best), rest) == pytest.approx(min(took))
    assert worst_found > 0


def test_of_finalists_that_take_as_long_the_first_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = sys.modules[affordable.__module__]
    seconds = {Placement((0,)): 3.0, Placement((1,)): 2.0, Placement((2,)): 2.0}
    monkeypatch.setattr(
        module, "_judge", lambda _, placement, _limit: seconds[placement]
    )

    first, *rivals = seconds
    assert module._best_of(first, 3.0, rivals, None) == Placement((1,))
    assert module._best_of(first, 2.0, rivals, None) == first


@pytest.mark.parametrize("is_poor", [False, True])
def test_a_walk_that_cannot_win_ends_early_with_the_same_result(
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_poor: bool,
) -> None:
    """Drawn bytes on the paper's testbed, where some units move once or never.

    Beside a poor search the walk wins, and more than with its first placement.
    """
    module = sys.modules[affordable.__module__]
    looks: list[bool] = []

    def noted(*looked_at: Any) -> bool:
        found = cannot_beat(*looked_at)
        looks.append(found)
        return found

    def search_poorly(
        job: Job, cluster: Cluster, run: Realization, seed: int, *_more: Any
    ) -> PlacementResult:
        found = place("random", job, cluster, seed=seed)
        judge = Candidates(Space(job, cluster), run, "oes")
        machines = np.array(found.placement.machine_of)
        return replace(found, makespan=placement_cost(judge, machines, np.inf))

    job, cluster = paper_testbed()
    job = replace(job, iterations=4)
    for seed in range(16):
        drawn = realization(job, np.random.default_rng(seed))
        run = Realization(drawn.times, drawn.volumes * 10.0 ** (6 + seed % 4))
        options: dict[str, Any] = {"seed": seed, "transfers": 2 + 2 * seed}
        if is_poor:
            monkeypatch.setattr(module, "_search_run", search_poorly)
        monkeypatch.setattr(module, "cannot_beat", noted)
        early = best_placement(job, cluster, run, **options)
        monkeypatch.setattr(module, "_may_hang", lambda *_: True)  # walks to the end
        assert best_placement(job, cluster, run, **options) == early
        monkeypatch.undo()
    assert {*looks} == {False} if is_poor else {False, True}


def test_a_better_finalist_has_the_makespan_of_its_candidate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Candidates are compared by the first of the job's two iterations.

    The known placement takes 3 s for that one and 9 s for both, so its makespan is 3 s.
    """
    module = sys.modules[affordable.__module__]
    tasks = (Task("a", "a", pinned="m0"), Task("b", "b"))
    job = Job(tasks, (Edge(0, 1),), 2)
    machines = (Machine("m0", 5.0, 4.0), Machine("m1", 8.0, 2.0))
    run = Realization(np.array([[1.0, 1.0], [2.0, 6.0]]), np.array([[12.0, 4.0]]))
    apart, together = Placement((0, 1)), Placement((0, 0))
    found = PlacementResult(apart, "best", makespan=6.0, candidates=3, optimal=True)
    monkeypatch.setattr(module, "_search_run", lambda *_: found)
    monkeypatch.setattr(module, "_other_finalists", lambda *_: [])

    def best(known: list[Placement]) -> PlacementResult:
        return best_placement(
            job, Cluster(machines), run, transfers=3, iterations=1, known=known
        )

    assert best([apart]) == replace(found, optimal=False)
    assert best([together]) == replace(
        found, placement=together, makespan=3.0, optimal=False
    )


@pytest.mark.parametrize("optimal", [False, True])
def test_a_search_of_the_whole_run_has_rivals_unless_it_is_proven(
    monkeypatch: pytest.MonkeyPatch, *, optimal: bool
) -> None:
    """It found 12 s; the known placement takes 1 + 2 + 6 = 9 s, another one more."""
    module = sys.modules[affordable.__module__]
    job = Job((Task("a", "a", pinned="m0"), Task("b", "b")), (Edge(0, 1),), 2)
    machines = (Machine("m0", 5.0, 4.0), Machine("m1", 8.0, 2.0))
    run = Realization(np.array([[1.0, 1.0], [2.0, 6.0]]), np.array([[48.0, 48.0]]))
    apart, together = Placement((0, 1)), Placement((0, 0))
    found = PlacementResult(apart, "best", makespan=12.0, optimal=optimal)
    monkeypatch.setattr(module, "_search_run", lambda *_: found)
    monkeypatch.setattr(module, "_other_finalists", lambda *_: [apart])
    best = best_placement(
        job, Cluster(machines), run, transfers=3, iterations=2, known=[together]
    )
    if optimal:
        assert best == found
    else:
        assert best == replace(found, placement=together, makespan=9.0)


@pytest.mark.parametrize(("flows", "together"), [(4, True), (3, False)])
def test_finalists_are_judged_by_whole_runs_of_so_many_flows(
    flows: int, *, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two finalists send one flow in each of two iterations, the first of no bytes.

    By the first iteration both placements take as long, and that of the search stays.
    """
    module = sys.modules[affordable.__module__]
    job = Job((Task("a", "a", pinned="m0"), Task("b", "b")), (Edge(0, 1),), 2)
    machines = (Machine("m0", 5.0, 4.0), Machine("m1", 8.0, 2.0))
    run = Realization(np.array([[1.0, 1.0], [2.0, 6.0]]), np.array([[0.0, 40.0]]))
    apart, beside = Placement((0, 1)), Placement((0, 0))
    found = PlacementResult(apart, "best", makespan=3.0)
    monkeypatch.setattr(module, "_search_run", lambda *_: found)
    monkeypatch.setattr(module, "_other_finalists", lambda *_: [])
    monkeypatch.setattr(module, "_WHOLE_RUNS", flows)

    best = best_placement(
        job, Cluster(machines), run, transfers=3, iterations=1, known=[beside]
    )
    assert best.placement == (beside if together else apart)
    assert best.makespan == 3.0


def test_a_pinned_job_is_judged_by_the_iterations_of_candidates() -> None:
    """Twenty of thirty."""
    job = Job((Task("a", "a", pinned="m0"),), (), 30)
    cluster = Cluster((Machine("m0", 5.0, 4.0),))
    run = Realization(np.ones((1, 30)), np.zeros((0, 30)))

    found = best_placement(job, cluster, run)
    assert (found.makespan, found.iterations) == (20.0, 20)


def test_for_the_portfolio_a_placement_is_judged_by_equal_shares() -> None:
    """Both flows take 20 s then, and b 10 s; one after the other they end at 20 s."""
    pins = {"a": "m0", "b": "m1", "c": "m2"}
    tasks = [Task(name, name, pinned=machine) for name, machine in pins.items()]
    job = Job(tuple(tasks), (Edge(0, 1), Edge(0, 2)), 1)
    cluster = Cluster(tuple(Machine(name, 1.0, 1.0) for name in pins.values()))
    run = Realization(np.array([[0.0], [10.0], [0.0]]), np.full((2, 1), 10.0))

    assert best_placement(job, cluster, run, "fifo").makespan == 20.0
    assert best_placement(job, cluster, run, "portfolio").makespan == 30.0


def test_a_flow_of_pinned_tasks_needs_a_route() -> None:
    machines = (Machine("m0", 5.0, 4.0), Machine("m1", 8.0, 2.0))
    cut = Route((0,), (1,), (NO_ROUTE,))
    cluster = Cluster(machines, (Link(NO_ROUTE, 1.0),), (cut,))
    tasks = (Task("a", "a", pinned="m0"), Task("b", "b", pinned="m1"))
    run = Realization(np.ones((2, 1)), np.ones((1, 1)))

    with pytest.raises(InfeasiblePlacement, match="a") as refused:
        best_placement(Job(tasks, (Edge(0, 1),), 1), cluster, run)
    assert refused.value.key == "cluster.routes"


def test_a_cost_of_jobs_reaches_every_search_and_every_judge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also of a job that is pinned, whose makespan it is not."""
    module = sys.modules[affordable.__module__]
    costs: list[JobsCost | None] = []

    def noted(space: Any, run: Any, rates: str, cost: JobsCost | None = None) -> Any:
        costs.append(cost)
        return Candidates(space, run, rates, cost)

    def search(job: Job, cluster: Cluster, *more: Any, **_named: Any) -> Any:
        *_, walk = more
        costs.append(walk.cost)
        return place("random", job, cluster)

    job, cluster, run = next(drawn for drawn in _settings(9) if drawn[0].iterations > 3)
    cost = JobsCost(total=True)
    monkeypatch.setattr(module, "Candidates", noted)
    monkeypatch.setattr(module, "_search_etp", search)
    best_placement(job, cluster, run, transfers=9, iterations=3, cost=cost)
    assert costs == [cost] * 3

    # By the walk itself, which has nothing to move.
    monkeypatch.undo()
    tasks = (Task("a/x", "x", pinned="m0"), Task("b/y", "y", pinned="m0"))
    pinned = Job(tasks, (), 1)
    machine = Cluster((Machine("m0", 1.0, 1.0),))
    seconds = Realization(np.array([[2.0], [5.0]]), np.zeros((0, 1)))
    total = best_placement(pinned, machine, seconds, cost=cost)
    assert (best_placement(pinned, machine, seconds).makespan, total.makespan) == (5, 7)


@pytest.mark.parametrize("budget", [1, 2, 3, 4, 5, 6, 7, 8, 13, 50])
def test_every_budget_ends_with_a_placement(budget: int) -> None:
    for job, cluster, run in _settings(4):
        best = best_placement(job, cluster, run, transfers=budget)
        assert best.placement.violations(job, cluster) == []
        assert best.candidates <= best.budget  # "at most N candidates", say commands
        profile = Profile(run.times, run.volumes)
        etp = place("etp", job, cluster, profile=profile, transfers=budget - 1)
        assert etp.placement.violations(job, cluster) == []


@pytest.mark.parametrize("whole", [0, 5, 10**9])
def test_a_run_of_many_flows_has_sixteen_candidates_of_fewer_iterations(
    monkeypatch: pytest.MonkeyPatch, whole: int
) -> None:
    """And where its finalists send too many flows, they are judged by those alone."""
    job, cluster, run = next(one for one in _settings(40) if one[0].iterations > 20)
    flows = 16 * 5 * len(job.edges)
    monkeypatch.setattr(affordable, "__defaults__", (flows, 10_000))
    assert len(job.edges) > 2
    most_flows = whole * job.iterations  # of three finalists or more
    monkeypatch.setattr(sys.modules[affordable.__module__], "_WHOLE_RUNS", most_flows)
    judged: list[int] = []

    def judge(candidates: Candidates, *more: Any) -> float:
        judged.append(candidates.space.job.iterations)
        return placement_cost(candidates, *more)

    monkeypatch.setattr(sys.modules[affordable.__module__], "placement_cost", judge)
    best = best_placement(job, cluster, run)

    assert (best.iterations, best.budget) == (5, 16)
    assert judged[0] == (job.iterations if whole > 5 else 5)
    stated = best_placement(job, cluster, run, transfers=7)
    assert (stated.iterations, stated.budget) == (20, 7)


@pytest.mark.parametrize("name", ["best", *OTHERS])
@pytest.mark.parametrize("beta_unit", [None, 0.5])
def test_a_first_placement_that_takes_no_time_is_kept(
    name: str, beta_unit: float | None
) -> None:
    job, cluster, run = _settings(1)[0]
    profile = Profile(run.times * 0.0, run.volumes * 0.0)
    options: dict[str, Any] = {"beta_unit": beta_unit} if name == "etp" else {}
    found = place(name, job, cluster, profile=profile, **options)
    assert found.makespan == 0.0


def test_best_of_a_short_run_is_the_best_of_all_placements() -> None:
    for job, cluster, run in _settings(30):
        movable = sum(task.pinned is None for task in job.tasks)
        if job.iterations > 20 or len(cluster.machines) ** movable > 3000:
            continue
        least = min(
            length(Problem(cluster, job, p), run)
            for p in feasible_placements(job, cluster)
        )
        best = best_placement(job, cluster, run)
        took = length(Problem(cluster, job, best.placement), run)
        assert took == pytest.approx(least, rel=1e-9)


def test_the_expected_run_repeats_the_profile() -> None:
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1),), 5)
    profile = Profile(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[5.0, 6.0]]))
    run = repeat_profile(replace(job, iterations=5), profile)
    assert run.times.tolist() == [[1, 2, 1, 2, 1], [3, 4, 3, 4, 3]]


def test_pins_that_overload_a_machine_are_named_with_what_is_missing() -> None:
    machines = tuple(Machine(f"m{m}", 1.0, 1.0, {"gpu": 1.0}) for m in range(2))
    tasks = tuple(Task(name, "w", demands={"gpu": 1.0}, pinned="m0") for name in "ab")
    run = Realization(np.ones((2, 1)), np.ones((0, 1)))

    with pytest.raises(InfeasiblePlacement, match=r"m0 has 1 gpu.* need 2 \(1 more\)"):
        best_placement(Job(tasks, (), 1), Cluster(machines), run)


@pytest.mark.parametrize("judged", [True, False])
@pytest.mark.parametrize("seed", range(60))
def test_a_pinned_job_is_judged_as_one_that_is_searched(
    seed: int,
    *,
    judged: bool,
) -> None:
    """Every placement that holds its slots is taken, and every other one refused."""
    rng = np.random.default_rng([17, seed])
    job, cluster, run = split_slots(rng)
    names = [machine.name for machine in cluster.machines]
    at = {process: int(rng.integers(len(names))) for process in job.processes}
    machine_of = tuple(at.get(task.process_name, -1) for task in job.tasks)
    pinned = replace(
        job,
        tasks=tuple(
            replace(task, pinned=None if m < 0 else names[m])
            for task, m in zip(job.tasks, machine_of, strict=True)
        ),
    )
    took = length(Problem(cluster, pinned, Placement(machine_of)), run)
    if took == np.inf:
        # Also where the makespan is not asked for: the job would never end.
        with pytest.raises(InfeasiblePlacement):
            best_placement(
                pinned, cluster, run, iterations=job.iterations, judged=judged
            )
        return
    found = best_placement(
        pinned, cluster, run, iterations=job.iterations, judged=judged
    )
    best = found.with_makespan()
    assert best == best_placement(pinned, cluster, run, iterations=job.iterations)
    assert best.placement.machine_of == machine_of
    assert best.makespan == took
    assert best.optimal


@pytest.mark.parametrize("judged", [True, False])
def test_a_pinned_job_whose_flow_is_cut_off_is_refused(*, judged: bool) -> None:
    """At once: who asks for the placement may never ask for its makespan."""
    machines = (Machine("m0", 10.0, 10.0), Machine("m1", 10.0, 10.0))
    cuts = (CapacityChange(2.0, "m1 in", 0.0), CapacityChange(9.0, "m0 in", 0.0))
    tasks = (Task("a", "a", pinned="m0"), Task("b", "b", pinned="m1"))
    job = Job(tasks, (Edge(0, 1),), 1)
    run = Realization(np.ones((2, 1)), np.array([[40.0]]))

    with pytest.raises(InfeasiblePlacement, match="m1 in"):
        best_placement(job, Cluster(machines, changes=cuts), run, judged=judged)
    # Nor does a job end whose tasks take a slot and give another one back.
    slots = (replace(machines[0], slots={"a": 1, "b": 1}), machines[1])
    taker = Task("t", "t", takes="a", frees="b", pinned="m0")
    twice = Realization(np.ones((1, 2)), np.zeros((0, 2)))
    with pytest.raises(InfeasiblePlacement):
        best_placement(Job((taker,), (), 2), Cluster(slots), twice, judged=judged)
    # What is cut off where nothing of it passes, or afterwards, holds nothing up.
    late = (CapacityChange(5.5, "m1 in", 0.0), cuts[1])
    found = best_placement(job, Cluster(machines, changes=late), run, judged=judged)
    assert found.with_makespan().makespan == 6.0


def test_one_placement_is_simulated_when_somebody_asks() -> None:
    tasks = tuple(
        Task(name, "w", demands={"gpu": 1.0}, takes="gpu", pinned="m0") for name in "ab"
    )
    cluster = Cluster((Machine("m0", 1.0, 1.0, {"gpu": 2.0}, slots={"gpu": 1}),))
    run = Realization(np.array([[1.0], [2.0]]), np.ones((0, 1)))

    job = Job(tasks, (), 1)
    unjudged = best_placement(job, cluster, run, judged=False, transfers=7)

    assert best_placement(job, cluster, run).makespan == 3.0
    assert unjudged.budget == 7
    assert unjudged.makespan is None
    assert unjudged.history == ()
    assert unjudged.with_makespan().makespan == 3.0
    assert unjudged.with_makespan().history == ((1, 3.0),)
