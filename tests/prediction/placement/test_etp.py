"""ETP: what Algorithm 3 promises, and that the tricks change nothing."""

from __future__ import annotations

import importlib
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from emu.errors import InfeasiblePlacement
from emu.prediction.placement import PlacementResult
from emu.prediction.placement.candidates import JobsCost, common_draws
from emu.prediction.placement.etp import EtpOptions, new_memory, search_etp
from emu.prediction.placement.packing import sum_edge_bytes
from emu.prediction.placement.space import Space
from emu.prediction.simulation import makespan
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Problem,
    Profile,
    Realization,
    Task,
)
from tests.prediction.placement.placement_cases import (
    feasible_exists,
    paper_testbed,
    random_setting,
    realization,
)

SHORT: dict[str, Any] = {"transfers": 300, "iterations": 4}


def profile_of(job: Job, seed: int = 0) -> Profile:
    drawn = realization(job, np.random.default_rng(seed))
    return Profile(drawn.times, drawn.volumes * 1e7)


def test_result_is_feasible_and_no_worse_than_its_start() -> None:
    job, cluster = paper_testbed()
    profile = profile_of(job)

    for seed in range(3):
        result = search_etp(
            job, cluster, profile, seed=seed, options=EtpOptions(**SHORT)
        )

        assert result.placement.violations(job, cluster) == []
        assert result.makespan is not None
        assert result.start_makespan is not None
        assert result.makespan <= result.start_makespan
        assert result.history[0] == (0, result.start_makespan)
        assert result.history[-1][1] == result.makespan


def test_its_defaults_are_those_of_the_paper_and_nothing_is_better_than_0_s() -> None:
    options = EtpOptions()
    assert (options.transfers, options.iterations) == (10_000, 20)
    assert (options.mu, options.beta, options.beta_unit) == (1.0, 0.1, None)

    job, cluster = paper_testbed()
    profile = profile_of(job)
    nothing = Profile(0 * profile.times, 0 * profile.volumes)
    found = search_etp(job, cluster, nothing, options=EtpOptions(**SHORT))
    assert (found.makespan, found.candidates, found.evaluations) == (0.0, 0, 0)


def test_a_job_a_millionth_as_long_is_searched_alike() -> None:
    """The unit of cost is a part of the makespan; in seconds it would not scale."""
    job, cluster = paper_testbed()
    profile, options = profile_of(job), EtpOptions(**SHORT)
    small = 2.0**-20  # exact
    shorter = Profile(small * profile.times, small * profile.volumes)
    once, again = (
        search_etp(job, cluster, each, seed=3, options=options)
        for each in (profile, shorter)
    )

    assert again.accepted == once.accepted
    assert again.placement == once.placement
    assert again.makespan == pytest.approx(small * (once.makespan or 0.0))


def test_bytes_that_no_task_would_receive_are_not_sent() -> None:
    tasks = Task("a", "a"), Task("b", "b", iterations=2)
    job = Job(tasks, (Edge(0, 1), Edge(0, 1, 1), Edge(1, 0, 1, credit=True)), 3)
    volumes = np.full((3, 3), [1.0, 2.0, 4.0])

    sent = sum_edge_bytes(job, Realization(np.ones((2, 3)), volumes))
    assert sent.tolist() == [3.0, 1.0, 0.0]


def test_makespan_is_that_of_the_simulator_under_the_common_draws() -> None:
    job, cluster = paper_testbed()
    profile = profile_of(job)
    result = search_etp(job, cluster, profile, seed=5, options=EtpOptions(**SHORT))

    drawn = common_draws(profile, 5, 4)
    four = Job(job.tasks, job.edges, 4)

    assert result.makespan == makespan(Problem(cluster, four, result.placement), drawn)


@pytest.mark.parametrize("beta_unit", [None, 1.0, 1e-3])
def test_the_same_chain_where_simulations_are_spared(beta_unit: float | None) -> None:
    rng = np.random.default_rng(8)
    settings = [paper_testbed()]
    while len(settings) < 8:
        job, cluster = random_setting(rng)
        if feasible_exists(job, cluster):
            settings.append((job, cluster))
    for job, cluster in settings:
        profile = profile_of(job)
        results = [
            search_etp(
                job,
                cluster,
                profile,
                seed=2,
                options=EtpOptions(beta_unit=beta_unit, simulate_all=plainly, **SHORT),
            )
            for plainly in (True, False)
        ]
        plain, bounded = results

        assert bounded.placement == plain.placement
        assert bounded.makespan == plain.makespan
        assert bounded.accepted == plain.accepted
        assert bounded.history == plain.history
        assert bounded.evaluations <= plain.evaluations


def test_bound_first_spares_most_simulations() -> None:
    job, cluster = paper_testbed()
    profile = profile_of(job)

    result = search_etp(
        job, cluster, profile, options=EtpOptions(transfers=1000, beta_unit=1e-3)
    )

    assert result.candidates == 1000
    assert result.evaluations < 700


def test_its_history_says_after_how_many_proposals_it_was_better() -> None:
    """A search of one proposal less ends with what was best before."""
    job, cluster = paper_testbed()

    def search(transfers: int) -> PlacementResult:
        options = EtpOptions(transfers=transfers, iterations=2)
        return search_etp(job, cluster, profile_of(job), seed=1, options=options)

    history = search(1200).history
    assert len(history) > 3
    for (_, worse), (number, better) in pairwise(history[:4]):
        assert search(number).makespan == better
        assert search(number - 1).makespan == worse


def test_progress_tells_the_best_so_far() -> None:
    job, cluster = paper_testbed()
    calls: list[tuple[int, int, float]] = []

    result = search_etp(
        job,
        cluster,
        profile_of(job),
        options=EtpOptions(transfers=1200, iterations=2),
        progress=lambda *call: calls.append(call),
    )

    assert [call[:2] for call in calls] == [(500, 1200), (1000, 1200), (1200, 1200)]
    assert calls[-1][2] == result.makespan


def test_walks_through_infeasible_placements_but_never_returns_one() -> None:
    """Two tasks that must change machines can only do so through an overload (A22)."""
    tasks = tuple(Task(f"t{i}", "x", {"cpu": 1.0}) for i in range(2))
    job = Job(tasks, (), 1)
    cluster = Cluster(tuple(Machine(f"m{i}", 1, 1, {"cpu": 1.0}) for i in range(2)))
    profile = Profile(np.ones((2, 1)), np.ones((0, 1)))

    def run(mu: float) -> PlacementResult:
        options = EtpOptions(transfers=50, iterations=1, mu=mu, beta_unit=1.0)
        return search_etp(job, cluster, profile, options=options)

    walked, strict = run(1.0), run(0.0)

    assert walked.accepted > 0
    assert not walked.placement.violations(job, cluster)
    assert strict.accepted == 0, "no machine has room, every step is stuck"


def test_nothing_to_move() -> None:
    job = Job((Task("g", "graph_store", pinned="m0"),), (), 1)
    profile = Profile(np.ones((1, 1)), np.ones((0, 1)))
    cluster = Cluster((Machine("m0", 1, 1),))

    result = search_etp(
        job, cluster, profile, options=EtpOptions(transfers=5, iterations=1)
    )

    assert result.placement.machine_of == (0,)
    assert result.makespan == 1.0


def test_infeasible_and_bad_options() -> None:
    job, cluster = paper_testbed(cpu=4)

    with pytest.raises(InfeasiblePlacement, match="31 cpu in total"):
        search_etp(job, cluster, profile_of(job))
    bad: list[dict[str, Any]] = [
        {"mu": -1.0},
        {"beta": 0.0},
        {"transfers": -1},
    ]
    for options in bad:
        with pytest.raises(ValueError, match=next(iter(options))):
            EtpOptions(**options)


def test_its_defaults_are_those_of_the_paper() -> None:
    options = EtpOptions()

    assert (options.transfers, options.iterations) == (10_000, 20)
    assert (options.mu, options.beta, options.beta_unit) == (1.0, 0.1, None)
    assert (options.policy, options.cost) == ("oes", None)
    assert not options.simulate_all


def test_it_minimises_what_its_options_state() -> None:
    """Two jobs of 2 s and 5 s on one machine: 5 s long, 7 s in all."""
    job = Job((Task("a/x", "x"), Task("b/y", "y")), (), 1)
    cluster = Cluster((Machine("m0", 3.0, 4.0),))
    profile = Profile(np.array([[2.0], [5.0]]), np.ones((0, 1)))
    for cost, seconds in ((None, 5.0), (JobsCost(total=True), 7.0)):
        options = EtpOptions(transfers=3, iterations=1, cost=cost)
        result = search_etp(job, cluster, profile, options=options)

        assert result.makespan == seconds
        assert result.start_makespan == seconds
        assert (result.budget, result.candidates, result.iterations) == (3, 3, 1)


def test_the_first_placement_counts_where_no_move_is_better() -> None:
    """Task b is fastest on m1, with what it takes there from a on m0."""
    tasks = (Task("a", "a", pinned="m0"), Task("b", "b"))
    job = Job(tasks, (Edge(0, 1),), 1)
    machines = (Machine("m0", 5.0, 4.0), Machine("m1", 8.0, 2.0))
    profile = Profile(np.array([[1.0], [2.0]]), np.array([[12.0]]))
    options = EtpOptions(transfers=60, iterations=1, beta_unit=0.01)
    result = search_etp(job, Cluster(machines), profile, options=options)

    assert result.placement.machine_of == (0, 0)
    assert result.makespan == 3.0
    assert result.start_makespan in {3.0, 6.0}


def test_a_memory_is_at_most_half_full_of_what_it_is_made_for() -> None:
    places = {
        entries: new_memory(entries, 3).machines.shape for entries in (0, 1, 2, 3, 8, 9)
    }
    assert places == {
        0: (0, 3),
        1: (2, 3),
        2: (4, 3),
        3: (8, 3),
        8: (16, 3),
        9: (32, 3),
    }


@pytest.mark.parametrize(
    ("options", "entries"),
    [
        ({"transfers": 7}, 7),
        ({"transfers": 60_000}, 50_000),
        ({"transfers": 7, "simulate_all": True}, 0),
    ],
)
def test_it_remembers_as_many_placements_as_it_looks_at(
    options: dict[str, Any], entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("emu.prediction.placement.etp")
    asked: list[int] = []

    def note(entries: int, units: int) -> Any:
        asked.append(entries)
        return new_memory(entries, units)

    monkeypatch.setattr(module, "new_memory", note)
    monkeypatch.setattr(module, "_walk_in_strides", lambda *_: np.empty(0))
    job = Job((Task("a", "x"), Task("b", "x")), (), 1)
    profile = Profile(np.ones((2, 1)), np.ones((0, 1)))
    cluster = Cluster((Machine("m0", 3.0, 4.0), Machine("m1", 5.0, 6.0)))
    search_etp(job, cluster, profile, options=EtpOptions(iterations=1, **options))

    assert asked == [entries]


def test_a_job_that_waits_for_slots_forever_has_no_first_placement() -> None:
    """A task takes one of two slots in every iteration, and none is given back."""
    task = Task("a", "x", takes="gpu", frees="")
    cluster = Cluster((Machine("m0", 3.0, 4.0, slots={"gpu": 2}),))
    profile = Profile(np.ones((1, 1)), np.ones((0, 1)))

    with pytest.raises(InfeasiblePlacement, match="wait for slots forever"):
        search_etp(
            Job((task,), (), 3),
            cluster,
            profile,
            options=EtpOptions(transfers=3, iterations=3),
        )
    found = search_etp(
        Job((task,), (), 2),
        cluster,
        profile,
        options=EtpOptions(transfers=3, iterations=2),
    )
    assert found.makespan == 2.0


def test_options_at_the_ends_of_their_ranges() -> None:
    for refused in ({"iterations": 0}, {"beta_unit": 0.0}, {"beta_unit": -1.0}):
        with pytest.raises(ValueError, match="must be"):
            EtpOptions(**refused)
    allowed = EtpOptions(transfers=0, iterations=1, mu=0.0, beta_unit=1e-9)
    assert allowed.transfers == 0


def test_a_walk_ends_among_what_each_of_its_looks_left_open() -> None:
    """Units that no proposal to come may move stand in the end where they stood."""
    job, cluster = paper_testbed()
    profile = profile_of(job)
    space = Space(job, cluster)
    settled_units = 0
    for seed in range(6):
        options = EtpOptions(transfers=8 * (seed + 1), iterations=2)
        looks: list[Any] = []

        def noted(settled: Any, best: Any, looks: list[Any] = looks) -> bool:
            looks.append((settled.copy(), best.copy()))
            return False

        walk = search_etp(
            job, cluster, profile, seed=seed, options=options, hopeless=noted
        )
        assert walk == search_etp(job, cluster, profile, seed=seed, options=options)
        found = space.machines(walk.placement)
        for settled, best in looks:
            is_settled = settled >= 0
            settled_units += int(is_settled.sum())
            stands = np.array_equal(found[is_settled], settled[is_settled])
            assert stands or np.array_equal(found, best)
    assert settled_units > 20


def test_a_start_without_hope_is_the_result_and_is_not_simulated() -> None:
    """Its callback sees where units stand, and -1 of those that may move."""
    job, cluster = paper_testbed()
    profile = profile_of(job)
    seen: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []

    def give_up(settled: Any, machines: Any) -> bool:
        seen.append((settled.copy(), machines.copy()))
        return True

    options = EtpOptions(transfers=3, iterations=2)
    result = search_etp(
        job, cluster, profile, seed=5, options=options, hopeless=give_up
    )

    ((settled, machines),) = seen
    may_move = settled < 0
    assert 1 <= may_move.sum() <= 3
    np.testing.assert_array_equal(settled[~may_move], machines[~may_move])
    space = Space(job, cluster)
    assert result.placement == space.placement(machines)
    assert (result.policy, result.makespan, result.evaluations) == ("etp", None, 0)
