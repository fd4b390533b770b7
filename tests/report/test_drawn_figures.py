"""What figures draw and where: bars, curves, links and meters, by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError
from emu.prediction.simulation import simulate
from emu.problem import CapacityChange
from emu.report import plot_curves as curves
from emu.report.death_bands import DeathBand
from emu.report.html import markup
from emu.report.html.link_drawing import Node, _bend, _link, _middles, _places
from emu.report.plot_curves import choose_unit
from emu.report.plot_progress import sum_crossed
from emu.report.plot_style import Window, colours, palette
from emu.report.plots import _rows, gantt
from emu.testing import two_machine_example


def axes_of(figure: Any) -> Any:
    """Return the one panel of a figure."""
    (axes,) = figure.axes
    return axes


def test_a_unit_is_the_largest_of_which_there_is_one() -> None:
    units = (("kB/s", 1e3), ("B/s", 1.0))
    assert choose_unit(1000.0, units) == ("kB/s", 1e3)
    assert choose_unit(999.0, units) == ("B/s", 1.0)
    assert choose_unit(0.5, units) == ("B/s", 1.0)


def test_bytes_of_a_flow_cross_evenly() -> None:
    """30 bytes from 1 to 4 s, and 7 at once at 5 s of a job of 10 s."""
    schedule: Any = SimpleNamespace(
        flows=lambda: np.array([[0, 0], [1, 0]]),
        flow_start=np.array([[1.0], [5.0]]),
        flow_end=np.array([[4.0], [5.0]]),
        flow_bytes=np.array([[30.0], [7.0]]),
        length=10.0,
    )
    times = np.array([0.0, 1.0, 2.0, 4.0, 4.9, 5.1, 10.0])
    found = sum_crossed(schedule, times)
    assert found.tolist() == pytest.approx([0.0, 0.0, 10.0, 30.0, 30.0, 37.0, 37.0])


def test_bars_stand_in_their_rows_with_their_intervals() -> None:
    """Two series of three rows; a mean of 3 s has half an interval of 12.7 s."""
    groups = {"a": {"x": [1.0], "y": [2.0, 4.0]}, "b": {"y": [7.0]}}
    figure: Any = curves.bars(groups)
    (axes,) = figure.axes
    places = {
        str(bar.get_gid()): (bar.get_width(), bar.get_y() + bar.get_height() / 2)
        for bar in axes.patches
    }
    assert places["bar-0-0"] == (1.0, pytest.approx(-0.2))
    assert places["bar-0-1"] == (3.0, pytest.approx(0.2))
    assert places["bar-1-1"] == (7.0, pytest.approx(1.2))
    assert axes.patches[0].get_height() == pytest.approx(0.4 * 0.92)
    assert axes.get_xlim() == (0.0, pytest.approx(1.16 * (3.0 + 12.706)))
    assert axes.get_ylim() == (1.5, -0.5)
    texts = [text.get_text().strip() for text in axes.texts]
    assert texts == ["1", "3 ± 13", "7"]
    assert axes.texts[1].xy == (pytest.approx(15.706), pytest.approx(0.2))
    assert figure.get_figheight() == pytest.approx(0.9 + 2 * 0.5)


def point(makespan: float, **values: Any) -> dict[str, Any]:
    """Return a point of a sweep."""
    return {"values": values, "figures": {"makespan": makespan}}


def test_a_sweep_is_drawn_over_its_first_key_of_numbers() -> None:
    """The first key has words, the second one number alone, the third several."""
    rows = [
        point(4.0, rule="oes", one=1, size="20", seed=0),
        point(6.0, rule="oes", one=1, size="20", seed=1),
        point(3.0, rule="oes", one=1, size="10", seed=0),
        point(9.0, rule="fifo", one=1, size="10", seed=0),
    ]
    keys = ["rule", "one", "size"]
    assert curves._key_of_numbers(rows, keys) == "size"
    assert curves._key_of_numbers(rows, keys[:2]) is None
    group = curves._group_values
    assert group(rows, "makespan", ["rule", "one"], "size", by_number=True) == {
        "oes, 1": {20.0: [4.0, 6.0], 10.0: [3.0]},
        "fifo, 1": {10.0: [9.0]},
    }
    assert group(rows, "makespan", ["rule"], None, by_number=False) == {
        "oes": {"makespan": [4.0, 6.0, 3.0]},
        "fifo": {"makespan": [9.0]},
    }
    axes = axes_of(curves.sweep_figure(rows, keys))
    lines = {
        container.get_label(): container.lines[0].get_xydata().tolist()
        for container in axes.containers
    }
    assert lines == {
        "oes, 1": [[10.0, 3.0], [20.0, 5.0]],
        "fifo, 1": [[10.0, 9.0]],
    }
    assert axes.get_xlabel() == "size"
    assert axes.get_xticks().tolist() == [10.0, 20.0]
    assert axes.get_ylim() == (0.0, pytest.approx(1.08 * (5.0 + 12.706)))
    axes = axes_of(curves.sweep_figure(rows, ["rule", "one"]))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["oes", "fifo"]


def test_a_distribution_rises_by_a_step_for_each_flow() -> None:
    """Three flows took 1, 2 and 4 s."""
    schedule = simulate(*two_machine_example(1))
    starts = np.zeros_like(schedule.flow_start)
    axes = axes_of(curves.cdf({"": replace(schedule, flow_start=starts)}, Window()))
    for line in axes.lines:
        times, shares = np.transpose(line.get_xydata())
        count = len(times) - 1
        assert shares.tolist() == pytest.approx([n / count for n in range(count + 1)])
        assert times[0] == times[1]
        assert (np.diff(times) >= 0).all()
    assert axes.get_ylim() == (0, 1.02)
    nothing = replace(schedule, flow_start=schedule.flow_end)
    with pytest.raises(DataError, match="no flow between machines took time"):
        curves.cdf({"": nothing}, Window())


def test_a_port_is_drawn_with_its_capacity_until_the_end() -> None:
    """The NIC of m1 falls from 10 to 4 B/s at 2 s."""
    problem, realization = two_machine_example(1)
    changes = (CapacityChange(2.0, "m1 out", 4.0),)
    cluster = replace(problem.cluster, changes=changes)
    schedule = simulate(
        replace(problem, cluster=cluster), realization, record_rates=True
    )
    figure: Any = curves.ports(schedule, Window())
    panels = {axes.get_title(): axes for axes in figure.axes}
    assert [*panels] == ["m0 out", "m0 in", "m1 out", "m1 in"]
    rate, capacity = panels["m1 out"].lines
    assert capacity.get_xydata().tolist() == [
        *([0.0, 10.0], [2.0, 4.0], [schedule.length, 4.0])
    ]
    assert rate.get_xydata()[0].tolist() == [0.0, 0.0]
    assert panels["m1 out"].get_ylim() == (0.0, pytest.approx(11.2))
    assert rate.get_label() == "assigned"
    for axes in panels.values():
        assert axes.get_xlim() == (0.0, schedule.length)


def test_curves_of_accuracy_are_named_in_the_order_of_their_ends() -> None:
    points = {"slow": [(1.0, 0.25), (9.0, 0.5)], "fast": [(2.0, 0.5), (3.0, 0.75)]}
    axes = axes_of(curves.accuracy_figure(points, 0.625))
    lines = [line.get_xydata().tolist() for line in axes.lines]
    assert lines[0] == [[2.0, 50.0], [3.0, 75.0]]
    assert lines[1] == [[1.0, 25.0], [9.0, 50.0]]
    names = [text.get_text() for text in axes.texts]
    assert names == ["fast", "slow", "target 62.5 %"]
    assert axes.texts[0].xy == (3.0, 75.0)
    assert axes.texts[0].get_position()[1] > axes.texts[1].get_position()[1]
    assert axes.get_xlim() == (0.0, pytest.approx(1.02 * 9.0))


def test_colours_come_again_after_all_of_them() -> None:
    count = len({*palette(50)})
    names = [f"n{number}" for number in range(count + 1)]
    found = colours([*names, names[0]])
    assert [*found] == names
    assert found["n0"] == found[f"n{count}"]
    assert len({*found.values()}) == count


@pytest.mark.parametrize(
    ("since", "until", "limits"),
    [
        (0.0, np.inf, (-2.0, 8.0)),
        (3.0, 5.0, (3.0, 5.0)),
        (0.0, 50.0, (-2.0, 8.0)),
    ],
)
def test_a_time_axis_shows_what_was_asked_for(
    since: float, until: float, limits: tuple[float, float]
) -> None:
    """Attempts began 2 s before a job of 8 s."""
    axes: Any = SimpleNamespace(set_xlabel=lambda _: None)
    shown: list[tuple[float, float]] = []
    axes.set_xlim = lambda *ends: shown.append(ends)
    Window(since=since, until=until).time_axis(axes, 8.0, -2.0)
    assert shown == [limits]
    with pytest.raises(DataError, match="nothing is left from 9 s to 8 s"):
        Window(since=9.0).time_axis(axes, 8.0)
    with pytest.raises(DataError, match="nothing is left from 8 s to 8 s"):
        Window(since=8.0).time_axis(axes, 8.0)


@pytest.mark.parametrize(
    ("fraction", "width", "is_over"),
    [
        (-0.5, "0.0", False),
        (0.25, "25.0", False),
        (1.0, "100.0", False),
        (2.0, "100.0", True),
    ],
)
def test_a_meter_is_full_at_most(fraction: float, width: str, *, is_over: bool) -> None:
    text = markup.meter("cpu", fraction, "1 of 2")
    assert f"width:{width}%" in text
    assert ("track over" in text) == is_over


def test_a_link_keeps_to_the_right_of_its_direction() -> None:
    """Downwards on a screen y grows: right of a way to the right is below it."""
    tail, head = np.array([0.0, 0.0]), np.array([100.0, 0.0])
    control, middle = _bend(tail, head)
    assert control.tolist() == [50.0, 20.0]
    assert middle.tolist() == [50.0, 10.0]
    control, _ = _bend(head, tail)
    assert control.tolist() == [50.0, -20.0]
    control, _ = _bend(np.array([10.0, 0.0]), np.array([10.0, 1000.0]))
    assert control.tolist() == [-24.0, 500.0]
    control, middle = _bend(tail, tail)
    assert middle.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("use", "colour"),
    [
        (0.0, "rgb(154,164,175)"),
        (0.25, "rgb(77,139,176)"),
        (0.5, "rgb(0,114,178)"),
        (1.0, "rgb(213,94,0)"),
    ],
)
def test_a_link_has_the_colour_of_its_use(use: float, colour: str) -> None:
    ends = np.array([0.0, 0.0]), np.array([100.0, 0.0])
    text = _link(*ends, use=use, figures="f", used=use > 0)
    assert colour in text
    assert ("unused" in text) == (use == 0)
    loop = _link(ends[0], ends[0], use=use, figures="f", used=True)
    assert re.search(r'<circle fill="none" cx="22" cy="0" r="22"', loop)


def test_a_junction_stands_amid_what_it_joins() -> None:
    """Two machines stand side by side, and a second junction beside the first."""
    left, right = Node(1, is_junction=False), Node(0, is_junction=False)
    first, second = Node(0, is_junction=True), Node(1, is_junction=True)
    places = _places(
        2, [(left, first), (first, right), (left, second), (second, right)]
    )
    assert places[right].tolist() == pytest.approx([480 + 420, 320])
    assert places[left].tolist() == pytest.approx([480 - 420, 320])
    assert places[first].tolist() == pytest.approx([480, 320])
    assert places[second].tolist() == pytest.approx(
        [480 + 0.12 * 420, 320 + 0.072 * 270]
    )
    machines = {left: np.array([0.0, 0.0]), right: np.array([3.0, 6.0])}
    middles = _middles(machines, [(left, first), (first, second), (second, right)])
    assert middles[first].tolist() == pytest.approx([1.0, 2.0], abs=2e-2)
    assert middles[second].tolist() == pytest.approx([2.0, 4.0], abs=2e-2)


def test_rows_of_a_gantt_chart_stand_by_machine() -> None:
    problem, _ = two_machine_example(1)
    rows = _rows(problem, Window())
    names = [
        problem.job.tasks[number].name if kind == "task" else problem.links[number].name
        for kind, number in rows
    ]
    assert names == [
        *("g0", "s0", "w0", "m0 out", "m0 in"),
        *("g1", "s1", "p0", "m1 out", "m1 in"),
    ]
    assert [*rows.values()] == [*range(10)]
    shared, _ = two_machine_example(1, shared_link=5.0)
    assert [*_rows(shared, Window())][-1] == ("port", 4)
    assert len(_rows(shared, Window(machines=("m1",)))) == 5


def test_bars_of_a_gantt_chart_are_in_the_rows_of_their_tasks() -> None:
    """A panel begins with the first attempt, and ends with the longest schedule."""
    schedule = simulate(*two_machine_example(2))
    longer = replace(schedule, task_end=schedule.task_end + 1.0)
    deaths = [DeathBand("b", "done", -3.0, 0.0), DeathBand("x", "done", -9.0, 0.0)]
    figure: Any = gantt({"a": schedule, "b": longer}, Window(), deaths)
    first, second = figure.axes
    assert first.get_xlim() == (-3.0, longer.length)
    boxes = {
        str(shown.get_gid()): [path.vertices for path in shown.get_paths()]
        for shown in first.collections
    }
    worker, again = boxes["a-tasks-worker"]
    start, end = schedule.task_start[4, 0], schedule.task_end[4, 0]
    corners = [[start, 1.6], [end, 1.6], [end, 2.4], [start, 2.4]]
    np.testing.assert_allclose(worker[:4], corners)
    assert again[0].tolist() == [schedule.task_start[4, 1], pytest.approx(1.6)]
    assert len(boxes["a-tasks-graph_store"]) == 4
    # m1 out has two of three rows' height for two flows at once.
    flows = boxes["a-flows-m0-out"]
    pairs = [
        pair
        for pair in schedule.flows().tolist()
        if schedule.problem.hops[pair[0]][0] == 0
    ]
    lefts = sorted(float(box[0, 0]) for box in flows)
    assert lefts == sorted(float(schedule.flow_start[tuple(pair)]) for pair in pairs)
    assert min(box[:, 1].min() for box in flows) == pytest.approx(2.6)
    assert max(box[:, 1].max() for box in flows) <= 3.4 + 1e-9
    labels = [label.get_text() for label in first.get_yticklabels()]
    assert labels[:5] == ["g0", "s0", "w0", "m0 out", "m0 in"]
    assert first.get_ylim() == (9.6, -0.6)
    assert second.get_title() == f"b, makespan {longer.makespan:.4g} s"
    separators = [
        line.get_ydata()[0] for line in first.lines if len({*line.get_ydata()}) == 1
    ]
    assert separators == [4.5]
