"""Loads of ports, of schedules whose flows and rates are written down by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emu.prediction.analysis.link_load import (
    LinkContention,
    excess_loads,
    fluid_bytes,
    fluid_ends,
    mean_rates,
    peak_rate,
    pieces,
    sum_rates,
)
from emu.prediction.simulation import simulate
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    RateHistory,
    Realization,
    Schedule,
    Task,
)

#: Start, end and bytes of a flow.
Flow = tuple[float, float, float]
#: Time, edge and rate of a row of a history.
Row = tuple[float, int, float]


def moved(
    flows: list[Flow],
    *,
    rows: list[Row] | None = None,
    places: tuple[int, ...] = (),
    out: float = 10.0,
    into: float = 6.0,
) -> Schedule:
    """Return flows of one iteration from m0, to m1 unless ``places`` says where."""
    tasks = [Task("a", "x"), *(Task(f"b{n}", "x") for n in range(len(flows)))]
    edges = tuple(Edge(0, n + 1) for n in range(len(flows)))
    machines = (
        Machine("m0", 70.0, out),
        Machine("m1", into, 80.0),
        Machine("m2", 90.0, 95.0),
    )
    machine_of = (0, *(places or [1] * len(flows)))
    job = Job(tuple(tasks), edges, 1)
    problem = Problem(Cluster(machines), job, Placement(machine_of))
    start, end, size = np.array(flows).T[:, :, None]
    run = Realization(np.ones((len(tasks), 1)), size)
    schedule = replace(
        simulate(problem, run), flow_start=start, flow_end=end, flow_bytes=size
    )
    if rows is None:
        return schedule
    time, edge, rate = zip(*rows, strict=True)
    history = RateHistory(
        time=np.array(time),
        edge=np.array(edge, np.int64),
        iteration=np.zeros(len(rows), np.int64),
        rate=np.array(rate),
    )
    return replace(schedule, rates=history)


def port(schedule: Schedule, name: str) -> int:
    return [link.name for link in schedule.problem.links].index(name)


def test_mean_rates_are_bytes_over_time_and_end_at_exactly_nothing() -> None:
    """By 9 s what was added has been taken away, but for rounding of 1e9 B/s."""
    schedule = moved(
        [(1.0, 4.0, 1e9), (2.0, 9.0, 1e9), (9.0, 12.0, 5e9), (3.0, 3.0, 7.0)],
        places=(1, 2, 1, 1),
        out=1e10,
    )
    third, seventh = 1e9 / 3, 1e9 / 7

    steps = mean_rates(schedule)
    times, levels = steps[port(schedule, "m0 out")]
    assert times.tolist() == [1.0, 2.0, 4.0, 9.0, 12.0]
    assert levels[:-1] == pytest.approx([third, third + seventh, seventh, 5 * third])
    assert levels[-1] == 0.0
    times, levels = steps[port(schedule, "m1 in")]
    assert times.tolist() == [1.0, 4.0, 9.0, 12.0]
    assert levels == pytest.approx([third, 0.0, 5 * third, 0.0])


def test_without_rates_there_is_nothing_to_sum() -> None:
    schedule = moved([(1.0, 4.0, 6.0)])

    assert sum_rates(schedule) is None
    for asked in (peak_rate, fluid_ends):
        with pytest.raises(ValueError, match="holds no rates"):
            asked(schedule)


def test_assigned_rates_are_summed_from_row_to_row() -> None:
    rows = [(1.0, 0, 2.0), (1.5, 1, 5.0), (2.0, 0, 3.0), (4.0, 1, 1.0)]
    schedule = moved([(1.0, 4.0, 8.0), (1.5, 6.0, 14.5)], rows=rows, places=(1, 2))

    sums = sum_rates(schedule)
    assert sums is not None
    times, levels = sums[port(schedule, "m0 out")]
    assert times.tolist() == [1.0, 1.5, 2.0, 4.0, 6.0]
    assert levels.tolist() == [2.0, 7.0, 8.0, 1.0, 0.0]
    assert peak_rate(schedule) == 8.0
    split = pieces(schedule, schedule.rates)  # type: ignore[arg-type]
    assert fluid_bytes(split)[:, 0].tolist() == [2 + 6.0, 12.5 + 2.0]


def test_a_flow_does_not_end_before_its_last_rate() -> None:
    """A run's clocks may end a flow at 4 s and give it a new rate at 4.5 s."""
    schedule = moved([(1.0, 4.0, 8.0)], rows=[(1.0, 0, 2.0), (4.5, 0, 3.0)])

    steps = sum_rates(schedule)
    assert steps is not None
    times, levels = steps[port(schedule, "m0 out")]
    assert times.tolist() == [1.0, 4.5]
    assert levels.tolist() == [2.0, 0.0]
    assert peak_rate(schedule) == 2.0


def test_a_fluid_ends_when_its_rates_have_carried_its_bytes() -> None:
    rows = [
        (1.0, 0, 2.0),  # 6 of 20 B by 4 s; the other 14 in 2 s
        (1.0, 3, 1.0),  # 0.5 of 10 B, and then nothing
        (1.5, 3, 0.0),
        (2.0, 1, 3.0),  # 3 of 9 B by 3 s, nothing until 8 s, 6 B in 12 s
        (3.0, 1, 0.0),
        (4.0, 0, 7.0),
        (8.0, 1, 0.5),
        (1000.0, 2, 4.0),  # 4 B by the next row, but for rounding
        (1001.0, 2, 0.0),
        (1002.0, 4, 3.0),  # 5 of 5 B by 1003 s and 2/3: not moved by what follows
        (1004.0, 4, 9.0),
    ]
    flows = [
        (1.0, 6.5, 20.0),
        (2.0, 21.0, 9.0),
        (1000.0, 1001.5, 4.0000004),
        (1.0, 9.0, 10.0),
        (1002.0, 1005.0, 5.0),
    ]

    ends = fluid_ends(moved(flows, rows=rows))[:, 0].tolist()
    assert ends == pytest.approx(
        [6.0, 20.0, 1001.0000001, np.nan, 1002 + 5 / 3], rel=1e-12, nan_ok=True
    )


def test_flows_of_many_edges_are_told_apart() -> None:
    """Edges 1 and 257, in turn: in 8 bits they would be one flow."""
    flows = [(0.0, 9.0, 5.0)] * 258
    rows = [(1.0, 1, 2.0), (1.0, 257, 3.0), (2.0, 1, 0.5), (2.5, 257, 1.0)]

    ends = fluid_ends(moved(flows, rows=rows))
    assert ends[1, 0] == 2.0 + 3 / 0.5
    assert ends[257, 0] == 2.5 + 0.5


def test_an_empty_history_has_carried_nothing() -> None:
    none = np.zeros(0)
    numbers = np.zeros(0, np.int64)
    rates = RateHistory(time=none, edge=numbers, iteration=numbers, rate=none)
    schedule = replace(moved([(1.0, 4.0, 6.0)]), rates=rates)

    assert fluid_bytes(pieces(schedule, rates)).tolist() == [[0.0]]


@pytest.mark.parametrize(("tolerance", "excess"), [(0.01, -4.0), (0.001, 2.0)])
def test_what_is_exchanged_within_a_tolerance_is_no_excess(
    tolerance: float, excess: float
) -> None:
    """At 4 s 6 B/s of one flow begin, 0.005 s before those of another end."""
    rows = [(1.0, 0, 6.0), (4.0, 1, 6.0)]
    schedule = moved([(1.0, 4.005, 18.03), (4.0, 5.0, 6.0)], rows=rows)
    split = pieces(schedule, schedule.rates)  # type: ignore[arg-type]

    found, time = excess_loads(split, tolerance)[port(schedule, "m0 out")]
    assert found == pytest.approx(excess)
    assert time == (4.0 if excess > 0 else 1.0)


def test_flows_without_bytes_are_no_contention() -> None:
    schedule = moved([(1.0, 4.0, 0.5), (2.0, 6.0, 9.0), (3.0, 5.0, 0.0)])

    assert LinkContention(schedule).most == 2
    alone = moved([(1.0, 4.0, 0.0)])
    assert LinkContention(alone).most == 0


def test_the_longest_bottleneck_may_be_the_last() -> None:
    """Half of 10 B/s out of m0 until 4 s, then all of 6 B/s into m1 until 10 s."""
    schedule = moved([(0.0, 10.0, 56.0), (0.0, 4.0, 20.0)], places=(1, 2))

    for end, name in ((10.0, "m1 in"), (9.0, "m1 in"), (7.0, "m0 out")):
        found = LinkContention(schedule).bottleneck(0, 0.0, end)
        assert schedule.problem.links[found].name == name
