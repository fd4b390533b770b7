"""ETP: what Algorithm 3 promises, and that the tricks change nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from emu.errors import InfeasiblePlacement
from emu.placement import (
    EtpOptions,
    PlacementResult,
    common_draws,
    place_round_robin,
    search_etp,
)
from emu.problem import Cluster, Job, Machine, Problem, Profile, Task
from emu.simulation import makespan
from tests.placement.placement_cases import (
    feasible_exists,
    paper_testbed,
    random_setting,
    realization,
)

# The first call compiles: 30 s of processor time, more on a busy machine.
pytestmark = pytest.mark.timeout(300)

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


def test_makespan_is_that_of_the_simulator_under_the_common_draws() -> None:
    job, cluster = paper_testbed()
    profile = profile_of(job)
    result = search_etp(job, cluster, profile, seed=5, options=EtpOptions(**SHORT))

    drawn = common_draws(profile, 5, 4)
    four = Job(job.tasks, job.edges, 4)

    assert result.makespan == makespan(Problem(cluster, four, result.placement), drawn)


@pytest.mark.parametrize("beta_unit", [None, 1.0, 1e-3])
def test_same_chain_with_no_one_and_two_tricks(beta_unit: float | None) -> None:
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
                options=EtpOptions(beta_unit=beta_unit, effort=effort, **SHORT),
            )
            for effort in ("simulate_all", "stop_early", "bound_first")
        ]
        plain, stopped, bounded = results

        for result in (stopped, bounded):
            assert result.placement == plain.placement
            assert result.makespan == plain.makespan
            assert result.accepted == plain.accepted
            assert result.history == plain.history
        assert bounded.evaluations <= plain.evaluations


def test_bound_first_spares_most_simulations() -> None:
    job, cluster = paper_testbed()
    profile = profile_of(job)

    result = search_etp(
        job, cluster, profile, options=EtpOptions(transfers=1000, beta_unit=1e-3)
    )

    assert result.candidates == 1000
    assert result.evaluations < 700


def test_chains_do_not_depend_on_the_number_of_cores() -> None:
    job, cluster = paper_testbed()
    profile = profile_of(job)
    options = EtpOptions(chains=3, **SHORT)

    alone = search_etp(job, cluster, profile, seed=1, options=options)
    with ThreadPoolExecutor(2) as pool:
        pooled = search_etp(
            job, cluster, profile, seed=1, options=options, chain_map=pool.map
        )

    assert alone == pooled


def test_the_first_of_many_chains_is_the_chain_that_runs_alone() -> None:
    job, cluster = paper_testbed()
    profile = profile_of(job)
    alone = search_etp(job, cluster, profile, seed=1, options=EtpOptions(**SHORT))
    many = search_etp(
        job, cluster, profile, seed=1, options=EtpOptions(chains=3, **SHORT)
    )

    assert many.start_makespan == alone.start_makespan
    assert many.candidates == 3 * alone.candidates
    assert many.makespan is not None
    assert alone.makespan is not None
    assert many.makespan <= alone.makespan


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


def test_starts_where_it_is_told_to() -> None:
    job, cluster = paper_testbed()
    start = place_round_robin(job, cluster)

    result = search_etp(
        job,
        cluster,
        profile_of(job),
        start=start,
        options=EtpOptions(transfers=0, iterations=2),
    )

    assert result.placement == start
    assert result.makespan == result.start_makespan


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
        {"effort": "none"},
        {"chains": 0},
    ]
    for options in bad:
        with pytest.raises(ValueError, match=next(iter(options))):
            EtpOptions(**options)


def test_the_best_of_many_chains_is_the_result() -> None:
    """And the history is that of all chains: it ends with what the result takes."""
    job, cluster = paper_testbed()
    profile = profile_of(job)
    gained = 0
    for seed in range(6):
        alone, many = (
            search_etp(
                job,
                cluster,
                profile,
                seed=seed,
                options=EtpOptions(transfers=40, iterations=2, chains=chains),
            )
            for chains in (1, 4)
        )
        assert many.history[-1][1] == many.makespan
        drawn = common_draws(profile, seed, 2)
        short = Problem(cluster, replace(job, iterations=2), many.placement)
        assert makespan(short, drawn) == many.makespan
        assert many.makespan is not None
        assert alone.makespan is not None
        gained += many.makespan < alone.makespan

    assert gained, "some chain must have been better than the first"
