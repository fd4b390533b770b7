"""Figures hold as many bars as there is to show, in every format."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import emu
from emu.errors import DataError
from emu.prediction.simulation import simulate
from emu.problem import CapacityChange
from emu.report.death_bands import DeathBand
from emu.report.many_runs import write_pair
from emu.report.plot_curves import bars, cdf, ports
from emu.report.plot_style import Window
from emu.report.plots import FIGURES, _box, _legend, plot
from emu.runs.intervals import interval, pair
from emu.testing import two_machine_example
from tests.report.recorded import with_deaths, write_run

SVG = "{http://www.w3.org/2000/svg}"


def groups(path: Path) -> dict[str, int]:
    """Return the id of every group of an SVG and how many paths are drawn in it."""
    found = {}
    for group in ET.parse(path).getroot().iter(f"{SVG}g"):  # noqa: S314 - our own file
        if "id" in group.attrib:
            drawn = group.findall(f"{SVG}path") + group.findall(f"{SVG}use")
            for clipped in group.findall(f"{SVG}g"):
                drawn += clipped.findall(f"{SVG}use") + clipped.findall(f"{SVG}path")
            found[group.attrib["id"]] = len(drawn)
    return found


def texts(path: Path) -> set[str]:
    root = ET.parse(path).getroot()  # noqa: S314 - our own file
    return {"".join(text.itertext()).strip() for text in root.iter(f"{SVG}text")}


def test_gantt_has_a_bar_per_task_and_flow(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "gantt.svg"
    read = emu.load_run(run)
    plot([read], "gantt", out)
    bars = groups(out)

    for name, made in (("emulated", read.emulated), ("simulated", read.simulated)):
        assert made is not None
        assert bars[f"{name}-tasks-graph_store"] == 2 * 3
        assert bars[f"{name}-tasks-sampler"] == 2 * 3
        assert bars[f"{name}-tasks-worker"] == 3
        flows = sum(n for key, n in bars.items() if key.startswith(f"{name}-flows-"))
        assert flows == 2 * len(made.flows()), "where they leave and where they arrive"
    # The critical path is framed, with a line where it moves on to another row: in the
    # simulation five of its eleven bars are of the flows to w0, one behind the other.
    assert (bars["PolyCollection_1"], bars["LineCollection_1"]) == (12, 11)
    assert (bars["PolyCollection_2"], bars["LineCollection_2"]) == (11, 6)
    assert {"emulated time (s)", "w0", "m1 out", "critical path"} <= texts(out)


def test_a_bar_is_drawn_in_the_middle_of_its_row() -> None:
    corners = _box(1.0, end=3.0, row=5, thickness=0.5)
    assert corners.min(axis=0).tolist() == [1.0, 4.75]
    assert corners.max(axis=0).tolist() == [3.0, 5.25]


def test_gantt_shades_the_attempts_before_the_last(tmp_path: Path) -> None:
    out = tmp_path / "gantt.svg"
    recorded = emu.load_run(with_deaths(write_run(tmp_path / "run")))
    plot([recorded], "gantt", out)
    emulated = {"done--10.5", "done-again--6.5", "down--4.5"}
    emulated |= {"done--3.5", "done-again--3.5", "down--0.5"}
    simulated = {"done--7", "done-again--3", "down--1"}
    wanted = {f"emulated-{one}" for one in emulated}
    wanted |= {f"simulated-{one}" for one in simulated}
    assert {one for one in groups(out) if "-do" in one} == wanted
    assert {"done", "done again", "down", "\N{MINUS SIGN}10"} <= texts(out)
    plot([recorded], "gantt", out, window=Window(since=0.5))
    assert "\N{MINUS SIGN}10" not in texts(out)


def test_a_legend_names_no_state_that_takes_no_time() -> None:
    bands = [
        DeathBand("emulated", "done", -3.1, -3.1 + 1e-16),
        DeathBand("emulated", "done again", -3.1, -2.0),
        DeathBand("emulated", "down", -2.0, 0.0),
    ]
    labels = [patch.get_label() for patch in _legend({}, bands)]
    assert labels == ["critical path", "done again", "down"]


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("dark", [False, True])
def test_every_figure_names_its_units(
    run: Path, tmp_path: Path, figure: str, *, dark: bool
) -> None:
    out = tmp_path / f"{figure}.svg"
    plot([emu.load_run(run)], figure, out, dark=dark)
    shown = texts(out)
    expected = {
        "gantt": {"emulated time (s)"},
        "ports": {"emulated time (s)", "B/s", "m0 out", "m1 in"},
        "loss": {"emulated time (s)", "step", "training loss (nats)"},
        "cdf": {"time from first to last byte (s)", "share of flows"},
        "compare": {"makespan (s)", "golden, explicit, oes"},
        "progress": {"emulated time (s)", "golden, explicit, oes"},
    }

    assert expected[figure] <= shown


def test_every_panel_of_ports_shows_its_own_scale() -> None:
    """A NIC of 20 B/s in and 10 out was read as one of 10 and 10.

    The other has 100 B/s in from an event on.
    """
    problem, realization = two_machine_example(1)
    machine, other = problem.cluster.machines
    faster = replace(machine, bandwidth_in=20.0)
    change = CapacityChange(2.0, "m1 in", 100.0)
    cluster = replace(problem.cluster, machines=(faster, other), changes=(change,))
    schedule = simulate(replace(problem, cluster=cluster), realization)

    figure = ports(schedule, Window())
    figure.canvas.draw()
    highest = {}
    for axes in figure.axes:
        shown = [label for label in axes.get_yticklabels() if label.get_visible()]
        _, top = axes.get_ylim()
        marks = [float(label.get_text()) for label in shown]
        highest[axes.get_title()] = max(mark for mark in marks if mark <= top)
    assert highest == {"m0 out": 10, "m0 in": 20, "m1 out": 10, "m1 in": 100}


@pytest.mark.parametrize("figure", ["gantt", "ports", "progress"])
def test_a_time_axis_is_named_by_what_measured_it(
    figure: str, run: Path, tmp_path: Path
) -> None:
    read, out = emu.load_run(run), tmp_path / "figure.svg"
    for only in ("emulated", "simulated"):
        plot([read], figure, out, window=Window(only=only))
        named = {text for text in texts(out) if text.endswith(" time (s)")}
        assert named == {f"{only} time (s)"}
    plot([replace(read, emulated=None)], figure, out)
    assert "simulated time (s)" in texts(out)
    if figure == "progress":
        plot([read, replace(read, emulated=None)], figure, out)
        assert "time (s)" in texts(out)


@pytest.mark.parametrize(
    ("ending", "magic"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")]
)
def test_formats(run: Path, tmp_path: Path, ending: str, magic: bytes) -> None:
    """The same figure is the same file, and nothing else is left beside it."""
    out = tmp_path / f"ports.{ending}"
    plot([emu.load_run(run)], "ports", out)
    first = out.read_bytes()
    plot([emu.load_run(run)], "ports", out)

    assert first.startswith(magic)
    assert out.read_bytes() == first
    assert list(tmp_path.iterdir()) == [out]


def test_a_window_cuts_a_figure_to_a_column(run: Path, tmp_path: Path) -> None:
    read, out = emu.load_run(run), tmp_path / "gantt.svg"
    window = Window(3.35, 5.0, 30.0, ("m1",), "emulated")
    plot([read], "gantt", out, window=window)
    shown, bars = texts(out), groups(out)

    assert {"g1", "s1", "m1 in", "5", "30"} <= shown
    assert not shown & {"g0", "m0 out", "0", "simulated, makespan 38 s"}
    assert bars["emulated-tasks-graph_store"] == 3
    assert not any(name.startswith("simulated") for name in bars)
    width = ET.parse(out).getroot().attrib["width"]  # noqa: S314 - our own file
    assert float(width.removesuffix("pt")) == pytest.approx(3.35 * 72)


@pytest.mark.parametrize(
    ("window", "message"),
    [
        (Window(since=99.0), "nothing is left from 99 s to 38"),
        (Window(since=9.0, until=9.0), "nothing is left from 9 s to 9 s"),
        (Window(machines=("m9",)), "has no machine 'm9', known: m0, m1"),
    ],
)
def test_a_window_that_leaves_nothing(
    run: Path, tmp_path: Path, window: Window, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        plot([emu.load_run(run)], "ports", tmp_path / "ports.svg", window=window)


def test_compare_has_a_bar_per_makespan_and_joins_repeats(
    run: Path, tmp_path: Path
) -> None:
    other = write_run(tmp_path / "other", policy="maxmin")
    out = tmp_path / "compare.svg"
    plot([emu.load_run(path) for path in (run, run, other)], "compare", out)

    bars = {key for key in groups(out) if key.startswith("bar-")}
    assert bars == {f"bar-{row}-{series}" for row in range(2) for series in range(3)}
    assert {"golden, explicit, oes", "golden, explicit, maxmin"} <= texts(out)


def test_several_runs_share_a_figure(run: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", policy="maxmin")
    runs = [emu.load_run(run), emu.load_run(other)]
    plot(runs, "loss", tmp_path / "loss.svg")
    plot(runs, "cdf", tmp_path / "cdf.svg")

    assert "golden, explicit, maxmin" in texts(tmp_path / "loss.svg")
    shown = texts(tmp_path / "cdf.svg")
    assert "sampler -> worker, golden, explicit, oes" in shown
    assert not any("$" in text for text in shown)  # a number, not how TeX writes it


def test_what_cannot_be_drawn_says_why(run: Path, tmp_path: Path) -> None:
    read = emu.load_run(run)
    with pytest.raises(DataError, match=r"\.svg, \.pdf, \.png"):
        plot([read], "gantt", tmp_path / "gantt.gif")
    with pytest.raises(DataError, match="gantt is of one run, found 2"):
        plot([read, read], "gantt", tmp_path / "gantt.svg")
    with pytest.raises(ValueError, match="no figure is called pie"):
        plot([read], "pie", tmp_path / "pie.svg")
    with pytest.raises(DataError, match="cannot be written"):
        plot([read], "gantt", tmp_path / "nowhere" / "gantt.svg")
    broken = write_run(tmp_path / "broken")
    (broken / "training.csv").unlink()
    with pytest.raises(DataError, match="no loss was reported"):
        plot([emu.load_run(broken)], "loss", tmp_path / "loss.svg")


def test_half_a_run_is_drawn(tmp_path: Path) -> None:
    broken = write_run(tmp_path / "broken")
    (broken / "result.json").unlink()
    plot([emu.load_run(broken)], "gantt", tmp_path / "gantt.svg")
    plot([emu.load_run(broken)], "ports", tmp_path / "ports.svg")

    assert not any(key.startswith("emulated") for key in groups(tmp_path / "gantt.svg"))
    assert "mean rate of each flow, summed" in texts(tmp_path / "ports.svg")


def test_differences_are_taken_draw_by_draw() -> None:
    """Draws that differ tenfold, and one way that takes some 1 % longer."""
    base = {0: 1.0, 1: 10.0, 2: 3.0, 3: 7.0}
    longer = {0: 1.01, 1: 10.11, 2: 3.03, 9: 1.0}

    found = pair(longer, base)

    assert found is not None
    assert found.count == 3
    assert found.mean == pytest.approx((0.01 + 0.011 + 0.01) / 3)
    assert not found.tie
    assert write_pair(found) == "+1 ± 0.14 %"
    assert pair({5: 1.0}, base) is None
    assert write_pair(None) == ""


def test_what_is_within_its_interval_is_a_tie() -> None:
    mixed = pair({0: 1.01, 1: 0.99, 2: 1.02}, {0: 1.0, 1: 1.0, 2: 1.0})

    assert mixed is not None
    assert mixed.tie
    assert write_pair(mixed) == "tie (+0.67 ± 3.8 %)"
    assert not interval([0.01]).tie  # one draw says nothing about others
    assert write_pair(interval([0.01])) == "+1 %"
    assert write_pair(pair({0: 0.0}, {0: 0.0})) == "0 %"


def test_interval() -> None:
    """The textbook's five numbers: 95 % of t with 4 degrees of freedom is 2.776."""
    found = interval([1.0, 2.0, 3.0, 4.0, 5.0])

    assert found.mean == 3.0
    assert found.half == pytest.approx(2.776 * 2.5**0.5 / 5**0.5)
    assert interval([7.0]).half == 0.0
    with pytest.raises(ValueError, match="no values"):
        interval([])


def test_a_distribution_is_of_times_between_first_and_last_byte() -> None:
    schedule = simulate(*two_machine_example(3))
    flows = tuple(schedule.flows().T)
    moving = schedule.flow_end[flows] - schedule.flow_start[flows]
    since_ready = schedule.flow_end[flows] - schedule.flow_ready[flows]
    assert moving.max() < since_ready.max()

    (axes,) = cdf({"": schedule}, Window()).axes
    ends = [np.asarray(line.get_xdata()).max() for line in axes.lines]
    assert max(ends) == moving.max()


def test_a_series_that_the_first_row_lacks_is_in_the_legend() -> None:
    figure = bars({"a": {"x": [1.0]}, "b": {"x": [2.0], "y": [3.0]}})
    (axes,) = figure.axes
    assert axes.get_legend_handles_labels()[1] == ["x", "y"]
