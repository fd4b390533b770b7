"""The input of ns-3's program: what scales, and what stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from emu.errors import SchedulingError
from emu.prediction.packets import (
    Control,
    Shares,
    _lines,
    _read_drops,
    _read_schedule,
    packets_of,
)
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


def test_times_grow_and_rates_shrink_with_the_time_scale() -> None:
    """Packets of twice the bytes, four times as slow: 20 B/s out are 10, 40 in 20."""
    slow: Any = {"latency_in": 0.5, "latency_out": 0.5}
    machines = (Machine("m0", 40.0, 20.0, **slow), Machine("m1", 10.0, 10.0))
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1, 1),), 2)
    problem = Problem(Cluster(machines), job, Placement((0, 1)))
    realization = Realization(np.array([[1.0, 2.0]] * 2), np.array([[5.0, 7.0]]))
    scaled = Realization(4 * realization.times, 2 * realization.volumes)
    lines = [
        *_lines(
            problem, scaled, Shares.FAIR, Control.CUBIC, byte_scale=2.0, time_scale=4.0
        )
    ]

    assert lines[2:4] == ["10.0 20.0 2.0", "5.0 5.0 0.0"]
    assert lines[6:8] == ["0 -1 -1 2 4.0 8.0", "1 -1 -1 2 4.0 8.0"]
    # One flow is sent: nothing serves the second iteration's. Half a second is two.
    assert lines[-1] == "0 1 1 2.0 1 10"
    local = replace(problem, placement=Placement((0, 0)))
    *_, last = _lines(
        local, scaled, Shares.FAIR, Control.CUBIC, byte_scale=2.0, time_scale=4.0
    )
    assert last == "0 1 1 0.0 1 0"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "hello",
        "task 0 0 x 1.0",
        "task 0 0 1.0",
        "task 0 0 1.0 2.0 3.0",
        "flow 0 0 1.0 2.0",
        "flow 1 0 1.0 2.0 3.0",
        "task 0 5 1.0 2.0",
        "dropped",
        "dropped many",
    ],
)
def test_a_line_that_the_program_does_not_write_is_named(line: str) -> None:
    """Another version of ns-3 may say things of its own."""
    machines = (Machine("m0", 40.0, 20.0), Machine("m1", 10.0, 10.0))
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1),), 1)
    problem = Problem(Cluster(machines), job, Placement((0, 1)))
    realization = Realization(np.ones((2, 1)), np.array([[5.0]]))
    text = f"task 0 0 0.0 4.0\nflow 0 0 4.0 4.0 8.0\n{line}\ndropped 3\nend\n"
    rows = [row.split() for row in text.splitlines()]

    with pytest.raises(SchedulingError, match=f"ns-3 wrote {line!r}, no time of"):
        _read_schedule(problem, realization, rows, 4.0)
    del rows[2]
    schedule = _read_schedule(problem, realization, rows, 4.0)
    assert schedule.task_end[0, 0] == 1.0
    assert schedule.flow_end[0, 0] == 2.0


@pytest.mark.parametrize("lines", [[], ["dropped 3", "dropped 4"]])
def test_packets_that_nobody_counted_are_not_none(lines: list[str]) -> None:
    ends = [line.split() for line in ["task 0 0 0.0 4.0", "end"]]
    counts = [line.split() for line in lines]

    with pytest.raises(SchedulingError, match="ns-3 wrote no line 'dropped PACKETS'"):
        _read_drops([*counts, *ends])
    assert _read_drops([["dropped", "3"], *ends]) == 3


def test_packets_are_counted_of_what_crosses_and_rounded_up() -> None:
    """Segments of 1448 B: half of 2,900 B takes two; none are sent within m0."""
    machines = (Machine("m0", 40.0, 20.0), Machine("m1", 10.0, 15.0))
    job = Job(
        (Task("a", "a"), Task("b", "b"), Task("c", "c")), (Edge(0, 1), Edge(0, 2)), 2
    )
    problem = Problem(Cluster(machines), job, Placement((0, 1, 0)))
    volumes = np.array([[2900.0, 2896.0], [1e9, 1e9]])

    assert packets_of(problem, Realization(np.ones((3, 2)), volumes), 0.5) == 2 + 1
