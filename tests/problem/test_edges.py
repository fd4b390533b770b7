"""Edges as columns, against edges looked at one by one."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.problem import Edge, Job, Task
from emu.problem.edges import columns_of

#: Names of which some are read alike, and numbers count as numbers.
NAMES = ("w10", "w2", "w02", "w2.a", "g1", "g01b", "")


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Draw forward edges of any lag, and some back with one."""
    count = draw(st.integers(2, len(NAMES)))
    names = draw(st.permutations(NAMES))[:count]
    edges = []
    for _ in range(draw(st.integers(0, 12))):
        ends = draw(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)))
        lag = draw(st.integers(0 if ends[0] < ends[1] else 1, 3))
        channel, coflow = draw(st.tuples(*[st.sampled_from(["", "a", "b"])] * 2))
        credit = draw(st.booleans())
        edges.append(Edge(*ends, lag, credit=credit, channel=channel, coflow=coflow))
    rounds = st.one_of(st.none(), st.integers(1, 6))
    tasks = [
        Task(
            name,
            "x",
            gate=bool(number and draw(st.booleans())),
            iterations=draw(rounds),
        )
        for number, name in enumerate(names)
    ]
    return Job(tuple(tasks), tuple(edges), draw(st.integers(1, 5)))


def _words(name: str) -> list[str | int]:
    parts = re.split(r"(\d+)", name)
    return [int(part) if number % 2 else part for number, part in enumerate(parts)]


@given(jobs())
def test_columns_say_what_edges_do(job: Job) -> None:
    tasks = job.tasks
    expected_order = sorted(
        (_words(tasks[e.destination].name), _words(tasks[e.source].name), e.lag, number)
        for number, e in enumerate(job.edges)
    )
    ranks = {number: rank for rank, (*_, number) in enumerate(expected_order)}
    assert job.edge_ranks == tuple(ranks[n] for n in range(len(job.edges)))

    for number, edge in enumerate(job.edges):
        gates = tasks[edge.source].gate or tasks[edge.destination].gate
        assert job.control[number] == (edge.credit or gates)
        sent = min(job.rounds[edge.source], job.rounds[edge.destination] - edge.lag)
        assert job.flow_counts[number] == max(sent, 0)
    named = [edge.coflow for edge in job.edges if edge.coflow]
    assert job.coflows == tuple(dict.fromkeys(named))
    channels = [edge.channel for edge in job.edges if edge.channel]
    assert job.channels == tuple(dict.fromkeys(channels))

    place = {task: number for number, task in enumerate(job.order)}
    assert sorted(place) == [*range(len(tasks))]
    for edge in job.edges:
        if edge.lag == 0:
            assert place[edge.source] < place[edge.destination]


def test_jobs_of_the_same_edges_share_their_columns() -> None:
    tasks = (Task("a", "x"), Task("b", "x"))
    job = Job(tasks, (Edge(0, 1),), 3)
    assert replace(job, iterations=2).columns is job.columns
    # Equal edges are others: nobody compares them.
    assert replace(job, edges=(Edge(0, 1),)).columns is not job.columns


def test_other_tasks_of_checked_edges_are_checked_themselves() -> None:
    edges = (Edge(0, 1),)
    tasks = (Task("a", "x"), Task("b", "x"))
    job = Job(tasks, edges, 3)
    assert job.columns.fitting is tasks
    with pytest.raises(ValueError, match="task a occurs 2 times"):
        Job((tasks[0], tasks[0]), edges, 3)
    with pytest.raises(ValueError, match="task number 1, which is not there"):
        Job(tasks[:1], edges, 3)
    with pytest.raises(ValueError, match="0 iterations"):
        Job(tasks, edges, 0)
    # Not even after the others: nothing of them is kept.
    with pytest.raises(ValueError, match="occurs 2 times"):
        replace(job, tasks=(tasks[1], tasks[1]))


def test_ranks_are_those_of_the_names_that_are_asked_for() -> None:
    """Jobs of the same edges may call their tasks otherwise."""
    edges = (Edge(0, 1), Edge(1, 2, lag=1))
    names = ("a", "b", "c")
    job = Job(tuple(Task(name, "x") for name in names), edges, 3)
    other = Job(tuple(Task(name, "x") for name in names[::-1]), edges, 3)
    assert job.edge_ranks == (0, 1)
    assert other.edge_ranks == (1, 0)
    assert job.columns is other.columns
    assert replace(job, iterations=1).edge_ranks == (0, 1)


def test_columns_go_with_the_last_job_of_their_edges() -> None:
    edges = (Edge(0, 1), Edge(0, 1, lag=1))
    columns = columns_of(edges)
    assert columns_of(edges) is columns
    order = columns.order(2)
    del columns
    assert columns_of(edges).order(2) == order
