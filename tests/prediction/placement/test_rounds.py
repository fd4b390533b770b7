"""Rounds of the better search: where each begins, how it cools down, what it notes."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from emu.array_types import Floats, Ints
from emu.prediction.core import lib
from emu.prediction.placement.search import (
    COLD,
    HOT,
    ROUND,
    SKETCH,
    SearchOptions,
    _Run,
    search_run,
)
from emu.prediction.simulation import makespan
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Realization,
    Task,
)
from tests.prediction.placement.placement_cases import feasible_placements

CLUSTER = Cluster(
    (Machine("m0", 5.0, 4.0), Machine("m1", 8.0, 2.0), Machine("m2", 3.0, 9.0))
)
#: Tasks that may stand anywhere, of unlike times and volumes.
JOB = Job(
    tuple(Task(name, name) for name in "abcd"), (Edge(0, 1), Edge(1, 2), Edge(0, 3)), 1
)
RUN = Realization(
    np.array([[1.0], [2.0], [0.5], [3.0]]), np.array([[12.0], [7.0], [20.0]])
)
#: Placements that a search begins with by itself: four of IFS, one after the other, and
#: a random one where DistDGL's does not exist.
SIMPLE = 6


def search(**options: Any) -> Any:
    stated = SearchOptions(iterations=1, exhaustive=False, **options)
    return search_run(JOB, CLUSTER, RUN, seed=3, options=stated)


def test_its_defaults_are_those_that_are_documented() -> None:
    options = SearchOptions()

    assert (options.transfers, options.iterations) == (10_000, 20)
    assert (options.rounds, options.sketches) == (4, 24)
    assert options.exhaustive
    assert (options.policy, options.cost) == ("oes", None)
    assert SKETCH == (0.1, 0.0005, 2_000)


@dataclass
class Rounds:
    """The temperatures of every round, and after how many of them one began anew."""

    temperatures: list[Floats] = field(default_factory=list)
    begun_anew: list[int] = field(default_factory=list)


def watch(
    monkeypatch: pytest.MonkeyPatch, better: dict[tuple[int, int], float]
) -> Rounds:
    """Have no proposal be better but those of (round, step) that are stated."""
    rounds = Rounds()

    def cool_down(run: _Run, temperatures: Floats, _: Any) -> Floats:
        number = len(rounds.temperatures)
        rounds.temperatures.append(temperatures)
        best = np.full(len(temperatures), run.best)
        for (of_round, step), seconds in better.items():
            if of_round == number:
                best[step:] = seconds
                run.chain.cost[1] = seconds
        run.chain.tally[lib.PROPOSED] += len(temperatures)
        return best

    def begin_anew(_: _Run) -> None:
        rounds.begun_anew.append(len(rounds.temperatures))

    monkeypatch.setattr(_Run, "_cool_down", cool_down)
    monkeypatch.setattr(_Run, "_begin_anew", begin_anew)
    return rounds


@pytest.mark.parametrize(
    ("budget", "most", "lengths"),
    [
        (4 * ROUND, 4, [ROUND] * 4),
        (4 * ROUND + 3, 4, [240, 241, 241, 241]),
        (4 * ROUND - 1, 4, [319, 320, 320]),
        (2 * ROUND, 4, [ROUND] * 2),
        (ROUND - 1, 4, [239]),
        (9 * ROUND, 3, [720] * 3),
        (0, 4, [0]),
    ],
)
def test_rounds_share_what_the_start_leaves(
    budget: int, most: int, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds cool from hot to cold; every other one begins at a new sketch."""
    rounds = watch(monkeypatch, {})
    found = search(transfers=SIMPLE + budget, rounds=most, sketches=0)

    assert [len(temperatures) for temperatures in rounds.temperatures] == lengths
    for temperatures in rounds.temperatures:
        if len(temperatures):
            parts = temperatures / found.makespan
            assert parts[0] == pytest.approx(HOT)
            assert parts[-1] == pytest.approx(COLD)
            factors = parts[1:] / parts[:-1]
            assert np.ptp(factors) < 1e-9
    assert rounds.begun_anew == [*range(1, len(lengths), 2)]
    assert found.candidates == SIMPLE + budget


def test_its_history_counts_proposals_over_all_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first round is better at its third proposal, the third at its first."""
    rounds = watch(monkeypatch, {(0, 2): 0.5, (2, 0): 0.25})
    found = search(transfers=SIMPLE + 4 * ROUND, sketches=0)

    first, *later = found.history
    assert first == (SIMPLE, found.start_makespan)
    assert later == [(SIMPLE + 3, 0.5), (SIMPLE + 2 * ROUND + 1, 0.25)]
    # Temperatures are parts of the best so far.
    starts = [temperatures[0] for temperatures in rounds.temperatures]
    expected = HOT * np.array([found.start_makespan, 0.5, 0.5, 0.25])
    assert starts == pytest.approx(expected)


def note_starts(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, ...]]]:
    """Return a list that gets the placements that chains begin with."""
    starts: list[list[tuple[int, ...]]] = []
    begin_chain = _Run._begin_chain

    def note(run: _Run, placements: Any) -> None:
        starts.append([tuple(machines.tolist()) for machines in placements])
        begin_chain(run, placements)

    monkeypatch.setattr(_Run, "_begin_chain", note)
    return starts


def test_a_chain_begins_at_the_first_of_equally_good_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last looks best and takes 3 s, all others 2 s.

    Simulations may stop where they pass what was the best, but not at it.
    """
    watch(monkeypatch, {})
    starts = note_starts(monkeypatch)
    estimates = iter(range(SIMPLE, 0, -1))
    limits: list[float] = []

    def cost(_: Any, machines: Ints, limit: float) -> float:
        limits.append(limit)
        return 3.0 if tuple(machines.tolist()) == starts[0][-1] else 2.0

    monkeypatch.setattr(_Run, "_estimate", lambda *_: next(estimates))
    monkeypatch.setattr(sys.modules[_Run.__module__], "units_cost", cost)
    found = search(transfers=ROUND, sketches=0)

    assert found.placement.machine_of == starts[0][0]
    assert found.start_makespan == 2.0
    assert limits == pytest.approx([np.inf, 3.0, 2.0, 2.0, 2.0, 2.0])
    assert min(limits) > 2.0


@pytest.mark.parametrize(
    ("transfers", "sketches", "count"),
    [(40, 24, 8 + 10), (40, 3, 8 + 3), (40, 0, 8), (43, 24, 8 + 10), (16, 24, 8 + 4)],
)
def test_a_quarter_of_the_candidates_are_sketches_at_most(
    transfers: int, sketches: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sketches begin at the other candidates: the simple ones and two known ones."""
    starts = note_starts(monkeypatch)
    begun: list[tuple[int, ...]] = []

    def sketch(_: _Run, machines: Ints) -> Ints:
        begun.append(tuple(machines.tolist()))
        return 2 - machines

    monkeypatch.setattr(_Run, "sketch", sketch)
    known = [Placement((0, 1, 2, 0)), Placement((2, 2, 1, 0))]
    options = SearchOptions(
        transfers=transfers, iterations=1, sketches=sketches, rounds=1, exhaustive=False
    )
    found = search_run(JOB, CLUSTER, RUN, seed=3, options=options, known=known)

    (placements,) = starts
    assert len(placements) == count
    assert placements[6:8] == [(0, 1, 2, 0), (2, 2, 1, 0)]
    stated = placements[:8]
    assert begun == [stated[number % 8] for number in range(count - 8)]
    sketched = [tuple(2 - machine for machine in machines) for machines in begun]
    assert placements[8:] == sketched
    assert found.history[0][0] == count


def test_of_a_small_budget_the_least_estimates_are_simulated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starts = note_starts(monkeypatch)
    monkeypatch.setattr(
        _Run, "_estimate", lambda _, machines: float(machines @ [27, 9, 3, 1])
    )
    search(transfers=9, sketches=0)
    search(transfers=4, sketches=0)

    every, chosen = starts
    assert len(every) == SIMPLE
    assert len({*every[:4]}) > 1  # IFS in orders of machines that are drawn
    assert chosen == sorted(every)[:4]


def test_a_round_that_begins_anew_keeps_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A round moves the chain to a sketch that is slower; the best one stays known."""
    places: list[tuple[list[int], float, float]] = []

    def cool_down(run: _Run, temperatures: Floats, _: Any) -> Floats:
        run.chain.tally[lib.PROPOSED] += len(temperatures)
        machines = run.chain.machines.tolist()
        places.append((machines, float(run.chain.cost[0]), run.best))
        return np.full(len(temperatures), run.best)

    # All tasks apart as far as can be, which is slow.
    worst = np.array([0, 1, 0, 2])
    monkeypatch.setattr(_Run, "_cool_down", cool_down)
    monkeypatch.setattr(_Run, "sketch", lambda *_: worst)
    found = search(transfers=SIMPLE + 2 * ROUND, sketches=0)

    (_, first_cost, first_best), (machines, cost, best) = places
    assert first_cost == first_best == best == found.makespan
    assert machines == worst.tolist()
    # Over 2 to 8 B/s to b, over 3 B/s to d: a takes 1 s, 20 B 20 / 3 s, d 3 s, or more.
    assert cost > best
    assert found.placement.machine_of != tuple(machines)


def test_known_placements_begin_the_search_of_teams_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Task b gives back the slot that a takes: apart they are two, together one."""
    tasks = (
        Task("a", "a", takes="gpu", frees=""),
        Task("b", "b", frees="gpu"),
        Task("c", "c"),
    )
    job = Job(tasks, (Edge(0, 1), Edge(1, 2)), 1)
    begun: list[tuple[int, list[Placement]]] = []
    begin = _Run.begin

    def note(run: _Run, known: Iterable[Placement]) -> None:
        begun.append((len(run.space.units), [*known]))
        begin(run, known)

    monkeypatch.setattr(_Run, "begin", note)
    known = [Placement((1, 1, 0))]
    run = Realization(np.ones((3, 1)), np.array([[12.0], [7.0]]))
    options = SearchOptions(
        transfers=12, iterations=1, rounds=1, sketches=0, exhaustive=False
    )
    search_run(job, CLUSTER, run, seed=0, options=options, known=known)

    assert begun == [(3, known), (2, known)]


def test_listing_stops_when_candidates_are_used_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Placements of four tasks, two to a machine at most, can be listed.

    What was not simulated proves nothing.
    """
    cooled: list[int] = []
    monkeypatch.setattr(_Run, "anneal", lambda run, _: cooled.append(run.proposed))
    tasks = tuple(Task(name, name, {"cpu": 1.0}) for name in "abcd")
    job = replace(JOB, tasks=tasks)
    machines = [
        replace(machine, resources={"cpu": 2.0}) for machine in CLUSTER.machines
    ]
    cluster = Cluster(tuple(machines))
    lengths = [
        makespan(Problem(cluster, job, placement), RUN)
        for placement in feasible_placements(job, cluster)
    ]

    def find(transfers: int) -> Any:
        options = SearchOptions(transfers=transfers, iterations=1, sketches=0)
        reported: list[tuple[int, int, float]] = []
        found = search_run(
            job,
            cluster,
            RUN,
            seed=0,
            options=options,
            progress=lambda *figures: reported.append(figures),
        )
        assert reported[-1] == (found.candidates, transfers, found.makespan)
        return found

    few = find(SIMPLE)
    assert few.candidates == few.evaluations == SIMPLE
    assert not few.optimal
    assert few.accepted == 0  # no chain has moved
    many = find(1000)
    assert many.optimal
    assert many.makespan == min(lengths) < few.makespan
    assert SIMPLE < many.candidates == many.evaluations < SIMPLE + len(lengths)
    # The last that was better, and what was listed before and after it.
    number, seconds = many.history[-1]
    assert SIMPLE < number <= many.candidates
    assert seconds == many.makespan
    assert not find(number - 1).optimal
    assert find(number - 1).makespan > find(number).makespan == seconds
    assert cooled == []

    # A space that cannot be listed is annealed.
    monkeypatch.setattr("emu.prediction.placement.search.LISTED", 3)
    assert not find(1000).optimal
    assert cooled == [SIMPLE]


@pytest.mark.parametrize(
    ("name", "least"),
    [("transfers", 1), ("iterations", 1), ("rounds", 1), ("sketches", 0)],
)
def test_numbers_of_a_search_have_a_least_value(name: str, least: int) -> None:
    stated: dict[str, Any] = {name: least}
    assert getattr(SearchOptions(**stated), name) == least

    stated[name] = least - 1
    with pytest.raises(ValueError, match=f"{name} must be {least} or more"):
        SearchOptions(**stated)
