"""Several jobs as one: names, channels, releases, and repeated iterations."""

from __future__ import annotations

import numpy as np

from emu.problem import Edge, Job, Realization, Task
from emu.problem.workloads.several_jobs import JobPart, repeat, several_jobs


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
