"""The improved search: optima of small clusters, symmetry, bounds, proofs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from emu.errors import InfeasiblePlacement
from emu.prediction.analysis.bounds import bounds
from emu.prediction.core import lib, pointer
from emu.prediction.placement.bound import placement_bound
from emu.prediction.placement.candidates import (
    Candidates,
    JobsCost,
    common_draws,
    lower_bound,
    placement_cost,
)
from emu.prediction.placement.distdgl import place_distdgl
from emu.prediction.placement.etp import EtpOptions, new_memory, search_etp
from emu.prediction.placement.search import ROUND, SearchOptions, _Run, search_run
from emu.prediction.placement.space import Space
from emu.prediction.placement.symmetry import find_symmetry, hub_followers
from emu.prediction.simulation import makespan
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Profile,
    Realization,
    Task,
)
from emu.problem.workloads import RELEASE
from tests import draws
from tests.prediction.placement.placement_cases import (
    dgtp_job,
    feasible_placements,
    paper_testbed,
    random_setting,
    realization,
)
from tools.benches.evaluator import search

ITERATIONS = 4


def even_profile(job: Job, rng: np.random.Generator) -> Profile:
    """Return times and volumes that depend on the kinds of tasks alone."""
    kinds = sorted({task.kind for task in job.tasks})
    times = dict(zip(kinds, rng.uniform(0.01, 0.2, len(kinds)), strict=True))
    volumes = {
        pair: rng.uniform(10, 300) for pair in np.ndindex(len(kinds), len(kinds))
    }
    ends = [
        (
            kinds.index(job.tasks[e.source].kind),
            kinds.index(job.tasks[e.destination].kind),
        )
        for e in job.edges
    ]
    return Profile(
        np.array([[times[task.kind]] for task in job.tasks]),
        np.array([[volumes[end]] for end in ends]).reshape(len(job.edges), 1),
    )


def small_settings(
    count: int, seed: int, most: int
) -> list[tuple[Job, Cluster, Profile, list[Placement]]]:
    """Return random clusters with all their feasible placements, 20 to ``most``."""
    rng = np.random.default_rng(seed)
    found: list[tuple[Job, Cluster, Profile, list[Placement]]] = []
    while len(found) < count:
        job, cluster = random_setting(rng, iterations=ITERATIONS)
        movable = sum(task.pinned is None for task in job.tasks)
        if len(cluster.machines) ** movable > 8000:
            continue
        placements = list(feasible_placements(job, cluster))
        if 20 <= len(placements) <= most:
            profile = realization(job, rng)
            if len(found) % 2:
                profile = Realization(*_both(even_profile(job, rng), ITERATIONS))
            found.append(
                (job, cluster, Profile(profile.times, profile.volumes), placements)
            )
    return found


def _both(
    profile: Profile, iterations: int
) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.float64]], ...]:
    return tuple(
        np.repeat(a, iterations, axis=1) for a in (profile.times, profile.volumes)
    )


def least_makespan(
    job: Job, cluster: Cluster, drawn: Realization, placements: list[Placement]
) -> float:
    return min(makespan(Problem(cluster, job, p), drawn) for p in placements)


def test_listing_ends_with_the_optimum_and_says_so() -> None:
    for job, cluster, profile, placements in small_settings(5, 3, 400):
        result = search(
            job, cluster, profile, options=SearchOptions(iterations=ITERATIONS)
        )
        drawn = common_draws(profile, 0, ITERATIONS)

        assert result.optimal
        assert result.makespan == pytest.approx(
            least_makespan(job, cluster, drawn, placements), rel=1e-12
        )
        assert result.placement.violations(job, cluster) == []


@pytest.mark.slow
@pytest.mark.timeout(900)  # all placements of 20 clusters
def test_finds_the_optimum_of_small_clusters_within_1000_candidates() -> None:
    """All clusters but one, with and without listing; ETP's rate beside it."""
    count = draws.count(20, few=7)
    hits = {"listed": 0, "annealed": 0, "etp": 0}
    settings = small_settings(count, 17, 4000)
    for seed, (job, cluster, profile, placements) in enumerate(settings):
        drawn = common_draws(profile, seed, ITERATIONS)
        optimum = least_makespan(job, cluster, drawn, placements)
        for name in hits:
            if name == "etp":
                etp = EtpOptions(transfers=1000, iterations=ITERATIONS)
                result = search_etp(job, cluster, profile, seed=seed, options=etp)
            else:
                options = SearchOptions(
                    transfers=1000, iterations=ITERATIONS, exhaustive=name == "listed"
                )
                result = search(job, cluster, profile, seed=seed, options=options)
            assert result.candidates <= 1000
            assert result.makespan is not None
            assert result.makespan >= optimum * (1 - 1e-12)
            hits[name] += result.makespan <= optimum * (1 + 1e-9)
    print(hits)  # noqa: T201 - the rates are the point of this test

    assert hits["listed"] >= count - 1
    assert hits["annealed"] >= count - 1
    assert hits["etp"] <= hits["annealed"]


def test_annealing_beats_its_start_and_stays_feasible() -> None:
    job, cluster = paper_testbed()
    profile = realization(job, np.random.default_rng(0))
    profile_of = Profile(profile.times, profile.volumes * 1e7)

    result = search(
        job,
        cluster,
        profile_of,
        options=SearchOptions(transfers=400, iterations=4),
    )

    assert not result.optimal
    assert result.placement.violations(job, cluster) == []
    assert result.start_makespan is not None
    assert result.makespan is not None
    assert result.makespan < result.start_makespan
    assert result.history[-1][1] == result.makespan
    assert [made for _, made in result.history] == sorted(
        (made for _, made in result.history), reverse=True
    )
    drawn = common_draws(profile_of, 0, 4)
    least = placement_bound(replace(job, iterations=4), cluster, drawn)
    assert 0.5 * result.makespan < least <= result.makespan


def test_the_start_is_no_worse_than_the_best_simple_placement() -> None:
    """Where mini-batches are most of the bytes, that is DistDGL's.

    Without sketches, of which one is often better.
    """
    job, cluster = paper_testbed()
    job = replace(job, iterations=2)
    drawn = realization(job, np.random.default_rng(0))
    sampled = [job.tasks[edge.source].kind == "sampler" for edge in job.edges]
    scale = np.where(sampled, 1e8, 1e6)[:, None]
    profile = Profile(drawn.times, drawn.volumes * scale)
    options = SearchOptions(transfers=10, iterations=2, rounds=1, sketches=0)

    found = search(job, cluster, profile, seed=3, options=options)

    distdgl = Problem(cluster, job, place_distdgl(job, cluster))
    known = makespan(distdgl, common_draws(profile, 3, 2))
    assert found.start_makespan is not None
    assert found.start_makespan <= known


def test_same_seed_same_result() -> None:
    job, cluster = paper_testbed()
    drawn = realization(job, np.random.default_rng(0))
    profile = Profile(drawn.times, drawn.volumes * 1e7)
    options = SearchOptions(transfers=200, iterations=3)

    first = search(job, cluster, profile, seed=4, options=options)

    assert search(job, cluster, profile, seed=4, options=options) == first


def test_infeasible_cluster() -> None:
    job, cluster = paper_testbed(cpu=3)
    drawn = realization(job, np.random.default_rng(0))

    with pytest.raises(InfeasiblePlacement, match="cpu"):
        search(job, cluster, Profile(drawn.times, drawn.volumes))


def test_relabelling_interchangeable_tasks_leaves_the_makespan() -> None:
    """Samplers of a worker, and workers with their samplers, at equal volumes."""
    rng = np.random.default_rng(6)
    job = dgtp_job(stores=3, workers=4, per_worker=2, demands={}, iterations=ITERATIONS)
    job_cluster = random_cluster(3, rng)
    drawn = even_profile(job, rng).draw(rng, ITERATIONS)
    space = Space(job, job_cluster)
    symmetry = find_symmetry(space, drawn)
    moved = 0
    for _ in range(100):
        machines = rng.integers(3, size=len(space.units))
        canonical = machines.copy()
        lib.canonicalise(symmetry.core, pointer(canonical))
        moved += bool((canonical != machines).any())
        before, after = (
            makespan(Problem(job_cluster, job, space.placement(m)), drawn)
            for m in (machines, canonical)
        )
        assert after == pytest.approx(before, rel=1e-12)
        again = canonical.copy()
        lib.canonicalise(symmetry.core, pointer(again))
        assert (again == canonical).all()

    assert moved > 50


def random_cluster(machines: int, rng: np.random.Generator) -> Cluster:
    _, cluster = random_setting(rng)
    while len(cluster.machines) < machines:
        _, cluster = random_setting(rng)
    return Cluster(tuple(replace(m, resources={}) for m in cluster.machines[:machines]))


def test_all_relabellings_have_one_canonical_form() -> None:
    """2 workers with 2 samplers each: 2! * 2! * 2! labels of one placement."""
    rng = np.random.default_rng(1)
    job = dgtp_job(stores=1, workers=2, per_worker=2, demands={}, iterations=2)
    cluster = random_cluster(3, rng)
    job = dgtp_job(stores=3, workers=2, per_worker=2, demands={}, iterations=2)
    drawn = even_profile(job, rng).draw(rng, 2)
    symmetry = find_symmetry(Space(job, cluster), drawn)
    labels = [
        # s0 s1 s2 s3 w0 w1 ps
        [0, 1, 2, 1, 0, 2, 1],
        [1, 0, 2, 1, 0, 2, 1],
        [0, 1, 1, 2, 0, 2, 1],
        [2, 1, 0, 1, 2, 0, 1],
        [1, 2, 1, 0, 2, 0, 1],
    ]
    forms = set()
    for label in labels:
        machines = np.array(label, dtype=np.int64)
        lib.canonicalise(symmetry.core, pointer(machines))
        forms.add(tuple(machines.tolist()))

    assert len(forms) == 1


def test_unequal_volumes_break_the_symmetry() -> None:
    rng = np.random.default_rng(1)
    job = dgtp_job(stores=2, workers=2, per_worker=2, demands={}, iterations=2)
    drawn = realization(job, rng)

    symmetry = find_symmetry(Space(job, random_cluster(2, rng)), drawn)

    assert symmetry.twin.size == 0
    assert symmetry.block.size == 0


def test_a_second_edge_between_two_tasks_breaks_the_symmetry() -> None:
    """One sampler sends twice what the other sends, or of a coflow of its own."""
    tasks = (Task("s0", "sampler"), Task("s1", "sampler"), Task("w0", "worker"))
    once = Job(tasks, (Edge(0, 2), Edge(1, 2)), 2)
    twice = replace(once, edges=(*once.edges, Edge(0, 2)))
    alone = replace(once, edges=(replace(once.edges[0], coflow="a"), once.edges[1]))
    twins = []
    for job in (once, twice, alone):
        drawn = Realization(np.ones((3, 2)), np.ones((len(job.edges), 2)))
        space = Space(job, random_cluster(2, np.random.default_rng(1)))
        twins.append(find_symmetry(space, drawn).twin.tolist())

    assert twins == [[0, 1], [], []]


def test_teams_are_workers_with_their_samplers() -> None:
    job, cluster = paper_testbed()
    space = Space(job, cluster)

    teams = hub_followers(space)

    assert [space.units[hub].name for hub, _ in teams] == [f"w{i}" for i in range(6)]
    assert [space.units[u].name for u in teams[2][1]] == ["s4", "s5"]


def excess(c: Candidates, machines: NDArray[np.int64]) -> float:
    """Return the violated part of all capacities."""
    used = c.space.used.copy()
    np.add.at(used, machines, c.space.demand)
    return float(lib.excess(c.core, pointer(used)))


def test_lower_bound_is_below_every_makespan() -> None:
    rng = np.random.default_rng(11)
    tightest = 0.0
    for job, cluster, profile, placements in small_settings(5, 5, 60):
        drawn = profile.draw(rng, ITERATIONS)
        space = Space(job, cluster)
        c = Candidates(space, drawn, "oes")
        floor = placement_bound(job, cluster, drawn)
        whole = placement_bound(job, cluster, drawn, nodes=50)
        assert floor <= whole * (1 + 1e-5)
        for placement in placements:
            machines = space.machines(placement)
            problem = Problem(cluster, job, placement)
            simulated = makespan(problem, drawn)
            bound = lower_bound(c, c.space.expand(machines))
            assert bounds(problem, drawn).nic_load <= bound * (1 + 1e-9)
            assert bound <= simulated * (1 + 1e-9)
            assert whole <= bound * (1 + 1e-9)
            assert excess(c, machines) == 0
            tightest = max(tightest, bound / simulated)

    assert tightest > 0.9


def test_a_lower_bound_by_hand() -> None:
    """Task a (1 s) sends 20 B over 10 B/s, which the last iteration of b needs."""
    machines = Machine("m0", 30.0, 10.0), Machine("m1", 40.0, 50.0)
    tasks = Task("a", "a", iterations=1), Task("b", "b")
    job = Job(tasks, (Edge(0, 1, lag=2),), 3)
    for seconds in (0.5, 4.0):
        times = np.array([[1.0] * 3, [seconds] * 3])
        drawn = Realization(times, np.array([[20.0, 0.0, 0.0]]))
        c = Candidates(Space(job, Cluster(machines)), drawn, "oes")
        alone = max(1.0 + 2.0 + seconds, 3 * seconds)
        assert lower_bound(c, np.array([0, 1])) == alone
        # A bound rules out what is beyond the limit, and nothing that is at it.
        for limit in (np.inf, alone):
            assert placement_cost(c, np.array([0, 1]), limit) == alone
        assert placement_cost(c, np.array([0, 1]), 0.99 * alone) == np.inf
        # Back it goes at 40 B/s: the narrower of 50 out and 30 in.
        back = max(1.0 + 20 / 30 + seconds, 3 * seconds)
        assert lower_bound(c, np.array([1, 0])) == pytest.approx(back)


def test_what_cannot_be_better_than_the_best_is_not_simulated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One task of 5 s, on three machines of unlike NICs: all bounds are 5 s."""
    machines = tuple(Machine(f"m{n}", 1.0 + n, 9.0 - n) for n in range(3))
    job = Job((Task("a", "a"),), (), 1)
    run = Realization(np.array([[5.0]]), np.zeros((0, 1)))
    options = SearchOptions(iterations=1, sketches=0)
    listed: list[float] = []
    monkeypatch.setattr(_Run, "_try", lambda *_: listed.append(5.0))

    found = search_run(job, Cluster(machines), run, seed=0, options=options)

    assert found.makespan == 5.0
    assert found.optimal
    assert listed == []


@pytest.mark.parametrize("transfers", [ROUND, 4 * ROUND])
def test_a_history_has_what_was_better_and_progress_the_best_so_far(
    transfers: int,
) -> None:
    """By one round, or by four of which every other begins at a random placement."""
    job, cluster = paper_testbed()
    run = realization(job, np.random.default_rng(3))
    run = Realization(run.times, run.volumes * 1e7)
    options = SearchOptions(transfers=transfers, iterations=2, exhaustive=False)
    job = replace(job, iterations=2)
    run = Realization(run.times[:, :2], run.volumes[:, :2])
    told: list[tuple[int, int, float]] = []

    found = search_run(
        job,
        cluster,
        run,
        seed=1,
        options=options,
        progress=lambda *call: told.append(call),
    )

    numbers, makespans = zip(*found.history, strict=True)
    assert all(a > b for a, b in pairwise(makespans))
    assert all(a <= b for a, b in pairwise(numbers))
    assert numbers[-1] <= found.candidates <= transfers
    assert found.makespan == makespans[-1]
    assert makespan(Problem(cluster, job, found.placement), run) == found.makespan
    for number, budget, best in told:
        assert budget == transfers
        assert best == min(span for at, span in found.history if at <= number)
    assert told[-1][0] == found.candidates
    # In every round at least, and in the end.
    assert len(told) > 1


@pytest.mark.parametrize(
    ("cost", "seconds"),
    [
        (None, 13.0),
        (JobsCost(), 9.0),
        (JobsCost(total=True), 5.0 + 9.0 + 8.5),
        (JobsCost(weights={"a": 2.0}), 10.0),
        (JobsCost(total=True, weights={"a": 2.0, "c": 0.5}), 10.0 + 9.0 + 4.25),
    ],
)
def test_jobs_cost_what_they_take_from_their_releases(
    cost: JobsCost | None, seconds: float
) -> None:
    """Job a ends at 5 s; b and c, there from 4 s on, send 20 B each over 5 B/s."""
    tasks = (
        Task("a/w", "worker"),
        Task("b/release", RELEASE, iterations=1),
        Task("b/s", "store", iterations=1),
        Task("b/w", "worker", iterations=1),
        Task("c/release", RELEASE, iterations=1),
        Task("c/s", "store", iterations=1),
        Task("c/w", "worker", iterations=1),
    )
    edges = (
        Edge(1, 2, credit=True),
        Edge(2, 3),
        Edge(4, 5, credit=True),
        Edge(5, 6),
    )
    job = Job(tasks, edges, 2)
    machines = (Machine("m0", 50.0, 50.0), Machine("m1", 5.0, 50.0))
    times = np.zeros((7, 2))
    times[0] = [2.0, 3.0]
    times[[1, 3, 4, 6], 0] = [4.0, 1.0, 4.0, 0.5]
    volumes = np.zeros((4, 2))
    volumes[[1, 3], 0] = 20.0
    run = Realization(times, volumes)

    c = Candidates(Space(job, Cluster(machines)), run, "oes", cost=cost)

    placed = np.array([0, 0, 0, 1, 0, 0, 1])
    assert placement_cost(c, placed, np.inf) == seconds


def test_a_team_that_shares_slots_stands_where_its_first_process_was() -> None:
    tasks = (
        Task("a", "a", takes="gpu", frees=""),
        Task("b", "b"),
        Task("c", "c", frees="gpu"),
        Task("d", "d"),
    )
    job = Job(tasks, (Edge(0, 1), Edge(1, 2), Edge(2, 3)), 1)
    machines = tuple(Machine(f"m{n}", 1.0, 1.0, slots={"gpu": 1}) for n in range(2))
    space = Space(job, Cluster(machines))

    assert [(unit.name, unit.tasks) for unit in space.units] == [
        ("a", (0, 2)),
        ("b", (1,)),
        ("d", (3,)),
    ]
    assert space.unit_start.tolist() == [0, 2, 3, 4]
    assert space.expand([1, 0, 1]).tolist() == [1, 0, 1, 1]


def test_excess_is_the_penalty_of_equation_21() -> None:
    job, cluster = paper_testbed()
    drawn = realization(job, np.random.default_rng(0))
    space = Space(job, cluster)
    c = Candidates(space, drawn, "oes")
    everything_on_m0 = np.zeros(len(space.units), dtype=np.int64)

    over = excess(c, everything_on_m0)

    cpu, gpu, memory = (31 - 8) / 8, (6 - 2) / 2, (14 + 84 + 18 + 5 - 48) / 48
    assert over == pytest.approx(cpu + gpu + memory)


def test_memory_finds_what_it_holds_and_stops_when_half_full() -> None:
    memory = new_memory(8, 3)
    rng = np.random.default_rng(0)
    kept: dict[tuple[int, ...], float] = {}
    for _ in range(200):
        machines = rng.integers(4, size=3)
        place = lib.place_of(memory.core, pointer(machines), 3)
        key = tuple(machines.tolist())
        if key in kept:
            assert memory.high[place] == kept[key]
        elif place >= 0:
            high = float(len(kept))
            lib.remember(memory.core, place, pointer(machines), 3, 1.0, high)
            kept[key] = high

    assert memory.held[0] == len(kept) == memory.low.size // 2


def test_bound_when_nothing_moves_or_nothing_is_sent() -> None:
    """Two pinned tasks at 10 B/s have one placement; without bytes times decide."""
    cluster = Cluster(tuple(Machine(f"m{i}", 10.0, 10.0) for i in range(2)))
    pinned = Job(
        (Task("a", "x", pinned="m0"), Task("b", "x", pinned="m1")), (Edge(0, 1),), 2
    )
    free = Job((Task("a", "x"), Task("b", "x")), (Edge(0, 1),), 2)
    times = np.full((2, 2), 1.0)

    sent = placement_bound(pinned, cluster, Realization(times, np.full((1, 2), 40.0)))
    silent = placement_bound(free, cluster, Realization(times, np.zeros((1, 2))))

    assert sent == pytest.approx(1 + 8 + 1)
    assert silent == pytest.approx(3)
