"""Several jobs as one: names, channels, releases, and repeated iterations."""

from __future__ import annotations

import numpy as np

from emu.problem import Edge, Job, Realization, Task
from emu.problem.workloads.several_jobs import (
    JobPart,
    repeat,
    several_jobs,
    several_realizations,
)


def _job() -> Job:
    """Return a task of three iterations, and what it sends to a task of two."""
    tasks = Task("a", "a"), Task("b", "b", iterations=2)
    edges = Edge(0, 1, channel="c"), Edge(1, 0, 1), Edge(0, 1, channel="c")
    return Job(tasks, edges, 3)


def test_each_job_has_channels_of_its_own() -> None:
    job = several_jobs([JobPart("x", _job()), JobPart("y", _job())])

    assert [edge.channel for edge in job.edges] == ["x/c", "", "x/c", "y/c", "", "y/c"]
    assert job.channels == ("x/c", "y/c")


def test_what_waits_for_nothing_at_first_waits_for_the_release() -> None:
    """Task a has an input, but one that its first iteration does not need."""
    job = several_jobs([JobPart("x", _job()), JobPart("y", _job(), 2.0)])

    assert job.tasks[4].name == "y/release"
    assert [(e.source, e.destination) for e in job.edges[6:]] == [(4, 2)]


def test_every_row_repeats_the_iterations_that_it_has() -> None:
    """Searches draw from three iterations: b has two of them, and so its edge."""
    times = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 0.0]])
    volumes = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 0.0], [6.0, 7.0, 8.0]])

    profile = repeat(_job(), Realization(times, volumes))

    assert profile.times.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 4.0]]
    assert profile.volumes.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 4.0], [6, 7, 8]]


#: A server that takes turns, and a task of a pool of its machine; not all run as often.
SERVED = Job(
    (
        Task("p", "t", takes="p", process="p"),
        Task("q", "t", takes="gpu", frees="", iterations=2),
        Task("r", "t", frees="gpu"),
    ),
    (Edge(0, 1, coflow="c"), Edge(1, 2, lag=1)),
    3,
    settings={"seed": 5},
)


def test_tasks_keep_their_rounds_and_pools_and_servers_get_names() -> None:
    """The longer job is the first: the second has its own numbers of iterations."""
    longer = Job((Task("a", "t"),), (), 7)
    job = several_jobs([JobPart("x", longer), JobPart("y", SERVED)])

    assert job.iterations == 7
    assert job.rounds == (7, 3, 2, 3)
    assert [task.name for task in job.tasks] == ["x/a", "y/p", "y/q", "y/r"]
    assert [task.process for task in job.tasks] == ["x/a", "y/p", "y/q", "y/r"]
    # A pool of a machine is shared by all jobs, a server is of its own.
    assert [task.takes for task in job.tasks] == ["", "y/p", "gpu", ""]
    assert [task.gives_back for task in job.tasks] == ["", "y/p", "", "gpu"]
    assert [edge.coflow for edge in job.edges] == ["y/c", ""]
    assert [(edge.source, edge.destination) for edge in job.edges] == [(1, 2), (2, 3)]
    assert job.settings == {"jobs": {"x": {}, "y": {"seed": 5}}}


def test_a_release_takes_its_time_in_its_only_iteration() -> None:
    """Gates come after the rows of both parts, and so do the edges that leave them."""
    parts = [JobPart("x", SERVED, 2.5), JobPart("y", Job(SERVED.tasks[:1], (), 1), 4.0)]
    runs = [
        Realization(np.full((3, 3), 6.0), np.full((2, 3), 7.0)),
        Realization(np.full((1, 1), 8.0), np.empty((0, 1))),
    ]
    run = several_realizations(parts, runs)
    job = several_jobs(parts)

    assert [task.name for task in job.tasks[4:]] == ["x/release", "y/release"]
    assert [task.process for task in job.tasks[4:]] == ["x/p", "y/p"]
    assert job.rounds[4:] == (1, 1)
    assert run.times[3:].tolist() == [[8, 0, 0], [2.5, 0, 0], [4, 0, 0]]
    # Tasks p and r of x wait for nothing in their first iteration, and p of y.
    assert [(edge.source, edge.destination) for edge in job.edges[2:]] == [
        (4, 0),
        (4, 2),
        (5, 3),
    ]
    assert run.volumes.tolist() == [[7] * 3, [7] * 3, [0] * 3, [0] * 3, [0] * 3]
    run.check_shapes(job)
