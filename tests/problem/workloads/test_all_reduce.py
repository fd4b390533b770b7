"""All-reduce: everybody has the sum after the fewest bytes, in the golden order."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from emu.problem import Edge, Job, Task
from emu.problem.workloads import all_reduce, part_bounds, steps_of
from emu.problem.workloads.all_reduce import (
    NamedEdge,
    all_reduce_edge_count,
    all_reduce_edges,
    all_reduce_tasks,
    build_named_job,
    credit_edges,
    elements_of_rank,
    elements_sent,
    part_elements,
    window_of,
)
from tests.golden.cases import cases

HALVING = "halving_doubling"
RINGS = [case for case in cases("ring") if "got0" in str(case.job["tasks"])]


@pytest.mark.parametrize("case", RINGS, ids=str)
def test_tasks_edges_and_bytes_are_those_of_the_golden_ring(case: Any) -> None:
    workers = [t for t in case.job["tasks"] if "." not in t["name"]]
    names = [worker["name"] for worker in workers]
    elements = sum(
        flow["volume"][0]
        for flow in case.job["flows"]
        if flow["to"].startswith("w1.got") and flow["volume"]
    ) * len(names) // (2 * len(names) - 2)  # fmt: skip
    built = all_reduce_tasks([Task(name, "worker") for name in names])
    edges = all_reduce_edges(names, names, names, lag=1, carries="gradient")

    assert {t.name for t in built} == {t["name"] for t in case.job["tasks"]} - {*names}
    found = Counter(
        (
            edge.source,
            edge.destination,
            edge.lag,
            edge.credit,
            part_elements(elements, edge.place) if edge.carries else 0,
        )
        for edge in edges
    )
    assert found == Counter(
        (
            flow["from"],
            flow["to"],
            flow.get("lag", 0),
            flow.get("credit", False),
            flow["volume"][0] if flow["volume"] else 0,
        )
        for flow in case.job["flows"]
    )


@given(
    st.one_of(
        st.tuples(st.just("ring"), st.integers(1, 9)),
        st.tuples(st.just("halving_doubling"), st.sampled_from([1, 2, 4, 8, 16])),
    ),
    st.integers(1, 40),
)
def test_everybody_has_the_sum(shape: tuple[str, int], elements: int) -> None:
    algorithm, ranks = shape
    own = np.arange(ranks)[:, None] * 1000 + np.arange(elements)
    held, sent = own.copy(), 0
    steps = steps_of(algorithm, ranks)
    for number, step in enumerate(steps):
        before = held.copy()
        assert sorted(transfer.receiver for transfer in step) == [*range(ranks)]
        for sender, (receiver, first, last) in enumerate(step):
            part = slice(*part_bounds(elements, ranks, first, last))
            sent += len(before[sender, part])
            if 2 * number < len(steps):
                held[receiver, part] += before[sender, part]
            else:
                held[receiver, part] = before[sender, part]

    np.testing.assert_array_equal(held, np.tile(own.sum(axis=0), (ranks, 1)))
    assert sent == 2 * (ranks - 1) * elements


@given(st.integers(1, 9), st.integers(1, 40))
def test_chunks_are_those_of_array_split(ranks: int, elements: int) -> None:
    chunks = np.array_split(np.arange(elements), ranks)
    for number, chunk in enumerate(chunks):
        begin, end = part_bounds(elements, ranks, number, number + 1)
        np.testing.assert_array_equal(np.arange(begin, end), chunk)


def test_elements_of_a_rank_are_those_of_its_flows() -> None:
    """Seven elements make unequal chunks: each of three ranks sends another sum."""
    names = ["a", "b", "c"]
    edges = all_reduce_edges(names, names, names, lag=1, carries="sum")
    sent = Counter[str]()
    for edge in edges:
        if edge.carries:
            sender, _, _ = edge.source.partition(".")
            sent[sender] += part_elements(7, edge.place)

    found = [elements_of_rank(7, ranks=3, rank=rank) for rank in range(3)]
    assert found == [sent[name] for name in names]
    assert len(set(found)) > 1


def test_halving_and_doubling_takes_twice_the_logarithm_of_the_ranks() -> None:
    assert len(steps_of("halving_doubling", 16)) == 2 * 4
    with pytest.raises(ValueError, match="needs a power of two of ranks, not 6"):
        steps_of("halving_doubling", 6)
    with pytest.raises(ValueError, match="all-reduce by tree"):
        steps_of("tree", 4)


@pytest.mark.parametrize("algorithm", ["ring", "halving_doubling"])
def test_one_rank_has_its_sum_as_late_as_many(algorithm: str) -> None:
    assert [*all_reduce_tasks([Task("w0", "worker")], algorithm)] == []
    edges = all_reduce_edges(
        ["w0"], ["b"], ["f"], lag=2, carries="x", algorithm=algorithm
    )
    assert [*edges] == [NamedEdge("b", "f", 2)]


def test_credits_go_to_stores_where_there_are_any() -> None:
    """Without stores every task that begins an iteration takes a credit."""
    names = ("timer", "g0", "s0", "w0")
    kinds = ("clock", "graph_store", "sampler", "worker")
    edges = [Edge(0, 2), Edge(1, 2), Edge(2, 3), Edge(3, 2, lag=1)]
    tasks = [Task(name, kind) for name, kind in zip(names, kinds, strict=True)]
    credit = credit_edges(tasks, edges, 2)
    assert [(edge.source, edge.destination) for edge in credit] == [(3, 1)]
    assert credit[0].lag == 2
    custom = [Task(name, "custom") for name in names]
    both = credit_edges(custom, edges, 2)
    assert [(edge.source, edge.destination) for edge in both] == [(3, 0), (3, 1)]


def test_the_window_of_a_job_is_the_least_of_its_credits_with_lag() -> None:
    tasks = (Task("a", "worker"), Task("b", "worker"), Task("c", "worker"))
    lags = (5, 2, 0, 3)
    edges = [Edge(0, 1, lag=lag, credit=True) for lag in lags]
    job = Job(tasks, (*edges, Edge(0, 2, lag=1)), 9)
    assert window_of(job) == 2
    assert window_of(Job(tasks, (Edge(0, 2, lag=1),), 9)) is None


@st.composite
def _named(draw: st.DrawFn) -> tuple[list[Task], list[NamedEdge], int | None]:
    """Draw few tasks, so that names, kinds, edges and windows come again."""
    names = draw(st.permutations(["a", "b", "c"]))
    kinds = st.sampled_from(["graph_store", "worker"])
    tasks = [Task(name, draw(kinds)) for name in names]
    edges = []
    for source, destination in ((0, 1), (1, 2)):
        lag = draw(st.integers(0, 1))
        channel, coflow, carries = draw(st.tuples(*[st.sampled_from(["", "x"])] * 3))
        edge = NamedEdge(
            names[source],
            names[destination],
            lag,
            carries=carries,
            channel=channel,
            coflow=coflow,
            latest=draw(st.booleans()),
        )
        edges.append(edge)
    return tasks, edges, draw(st.sampled_from([None, 1, 2]))


@given(st.lists(_named(), min_size=2, max_size=12))
def test_edges_that_were_built_before_are_those_of_building_anew(
    jobs: list[tuple[list[Task], list[NamedEdge], int | None]],
) -> None:
    for tasks, edges, window in jobs:
        places = {task.name: number for number, task in enumerate(tasks)}
        expected = []
        for edge in edges:
            built = Edge(
                places[edge.source],
                places[edge.destination],
                edge.lag,
                channel=edge.channel,
                latest=edge.latest,
                coflow=edge.coflow,
            )
            expected.append(built)
        expected += credit_edges(tasks, expected, window)

        first = build_named_job(tasks, iter(edges), 3, {}, window=window)
        assert list(first.edges) == expected
        again = build_named_job(tasks, edges, 5, {"of": "another"}, window=window)
        assert again.edges is first.edges
        assert again.columns is first.columns


#: Ranks of one job, and of which worker's demands and settings nothing is left.
RANKS = st.builds(
    Task,
    name=st.just(""),
    kind=st.just("worker"),
    demands=st.sampled_from([{}, {"gpu": 1}]),
    pinned=st.sampled_from([None, "m0"]),
    process=st.sampled_from(["", "p"]),
    phase=st.sampled_from(["", "training"]),
    settings=st.sampled_from([{}, {"worker": 0}]),
    iterations=st.sampled_from([None, 2]),
    takes=st.sampled_from(["", "gpu"]),
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ring", HALVING]),
            st.sampled_from([1, 2, 4]),
            RANKS,
            st.sampled_from([("w", "gradient", ()), ("v", "upper", (1,))]),
        ),
        min_size=2,
        max_size=12,
    )
)
def test_rings_that_were_built_before_are_those_of_building_anew(
    rings: list[tuple[str, int, Task, tuple[str, str, tuple[int, ...]]]],
) -> None:
    def build(ring: tuple[str, int, Task, Any]) -> tuple[list[Task], list[NamedEdge]]:
        algorithm, count, rank, (letter, carries, about) = ring
        names = [f"{letter}{number}" for number in range(count)]
        ranks = [replace(rank, name=name) for name in names]
        tasks = all_reduce_tasks(ranks, algorithm)
        edges = all_reduce_edges(
            names,
            names,
            names,
            lag=1,
            carries=carries,
            about=about,
            algorithm=algorithm,
        )
        return list(tasks), list(edges)

    built = [build(ring) for ring in rings]
    for ring, expected in zip(rings, built, strict=True):
        all_reduce._latest_rings.clear()
        all_reduce._edges_of_ranks.cache_clear()
        assert build(ring) == expected


def test_edges_that_another_thread_builds_meanwhile_disturb_no_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It appends its own while those that were built last are compared."""
    latest = deque[Any](maxlen=4)

    class Slow:
        @override
        def __hash__(self) -> int:
            return 0

        @override
        def __eq__(self, other: object) -> bool:
            latest.append((None, None))
            return False

    latest.append((Slow(), None))
    monkeypatch.setattr(all_reduce, "_latest", latest)
    tasks = [Task("a", "worker"), Task("b", "worker")]
    edges = [NamedEdge("a", "b")]

    job = build_named_job(tasks, edges, 1, {})
    assert [(edge.source, edge.destination) for edge in job.edges] == [(0, 1)]
    assert len(latest) == 3


@pytest.mark.parametrize(
    ("algorithm", "ranks"),
    [
        *(("ring", ranks) for ranks in range(1, 7)),
        *((HALVING, 1 << n) for n in range(4)),
    ],
)
def test_edges_of_an_all_reduce_are_counted_before_they_are_made(
    algorithm: str, ranks: int
) -> None:
    names = [f"w{rank}" for rank in range(ranks)]
    edges = all_reduce_edges(
        names, names, names, lag=1, carries="sum", algorithm=algorithm
    )
    assert all_reduce_edge_count(ranks, algorithm) == len(list(edges))


def test_steps_need_nothing_of_their_own() -> None:
    """Demands, slots and programs are of the rank's task; its place is theirs too."""
    owner = Task(
        "w0",
        "worker",
        {"gpu": 1.0},
        pinned="m3",
        takes="gpu",
        frees="other",
        iterations=7,
        behind=2,
    )
    tasks = list(all_reduce_tasks([owner, Task("w1", "worker", process="p")]))

    assert [task.name for task in tasks] == [
        *("w0.ring0", "w0.ring1", "w0.ring2", "w0.got0", "w0.got1"),
        *("w1.ring0", "w1.ring1", "w1.ring2", "w1.got0", "w1.got1"),
    ]
    for task in tasks[:5]:
        assert (task.demands, task.takes, task.frees, task.gives_back) == (
            {}, "", None, ""
        )  # fmt: skip
        assert (task.pinned, task.iterations, task.behind) == ("m3", 7, 2)
    assert [task.process for task in tasks] == ["w0"] * 5 + ["p"] * 5
    shared = {"of": "w1", "algorithm": "ring", "ranks": 2, "rank": 1}
    assert tasks[-1].settings == {**shared, "step": 1}


def test_credits_come_from_workers_where_there_are_some() -> None:
    """A store waits for the end of the worker, although a server follows it.

    Without a worker the store waits for the server, the last task that it reaches.
    """
    tasks = [Task("g", "graph_store"), Task("w", "worker"), Task("ps", "server")]
    edges = [Edge(0, 1), Edge(1, 2), Edge(2, 1, lag=1)]

    assert credit_edges(tasks, edges, 3) == (Edge(1, 0, lag=3, credit=True),)
    plain = [*tasks[:1], Task("x", "x"), *tasks[2:]]
    assert credit_edges(plain, edges, 3) == (Edge(2, 0, lag=3, credit=True),)
    # Without stores, every task that waits for none of its iteration.
    loose = [Task("a", "a"), Task("b", "worker"), Task("c", "c"), Task("d", "worker")]
    found = credit_edges(loose, [Edge(0, 1), Edge(2, 1), Edge(2, 3)], 2)
    pairs = [(edge.source, edge.destination) for edge in found]
    assert pairs == [(1, 0), (1, 2), (3, 2)]
    # One that begins and ends an iteration waits for itself anyhow.
    assert credit_edges([Task("a", "worker"), Task("b", "x")], [], 2) == ()


def test_a_window_is_the_least_lag_of_credits_of_later_iterations() -> None:
    tasks = tuple(Task(name, "x") for name in "ab")
    edges = (
        Edge(0, 1),
        Edge(1, 0, lag=1),
        Edge(1, 0, lag=5, credit=True),
        Edge(0, 1, credit=True),
        Edge(0, 1, lag=3, credit=True),
    )
    assert window_of(Job(tasks, edges, 9)) == 3
    assert window_of(Job(tasks, edges[:2], 9)) is None


def test_a_window_of_one_iteration_is_the_least_of_all() -> None:
    tasks = (Task("w", "worker"), Task("g", "graph_store"))
    edges = (Edge(1, 0), Edge(0, 1, lag=3, credit=True), Edge(0, 1, lag=1, credit=True))

    assert window_of(Job(tasks, edges, 4)) == 1
    assert window_of(Job(tasks, edges[:1], 4)) is None


def test_a_task_without_a_phase_has_that_of_its_kind() -> None:
    tasks = [Task("g", "graph_store"), Task("w", "worker", phase="own"), Task("p", "p")]
    job = build_named_job(tasks, [], 1, {})

    assert [task.phase for task in job.tasks] == ["sampling", "own", ""]


def test_rings_that_were_built_before_are_of_their_own_algorithm() -> None:
    ranks = [Task(name, "worker") for name in ("w0", "w1", "w2", "w3")]
    for algorithm in ("ring", HALVING, "ring"):
        tasks = all_reduce_tasks(ranks, algorithm)
        assert {task.settings["algorithm"] for task in tasks} == {algorithm}


def test_an_edge_carries_elements_from_a_step_to_who_receives_it() -> None:
    """Part ten elements into 4, 3 and 3; of three ranks rank 1 sends the second."""
    ranks = [Task(name, "worker") for name in ("w0", "w1", "w2")]
    tasks = {task.name: task for task in all_reduce_tasks(ranks)}
    step = tasks["w0.ring0"]
    assert step.program.endswith("Step")
    (receiver,) = {name for name in tasks if name.startswith("w1.") and "got0" in name}
    assert elements_sent(step, tasks[receiver], 10) == 4
    (receiver,) = {name for name in tasks if name.startswith("w2.") and "got0" in name}
    assert elements_sent(tasks["w1.ring0"], tasks[receiver], 10) == 3
    # Order between the tasks of a rank carries nothing, nor does what a task leaves.
    assert elements_sent(step, tasks["w0.ring1"], 10) == 0
    assert elements_sent(ranks[0], tasks[receiver], 10) == 0
