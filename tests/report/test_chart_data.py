"""Data of the page's charts, by hand."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError
from emu.prediction.simulation import simulate
from emu.problem import CapacityChange, RateHistory
from emu.report.html.chart_data import (
    chart_data,
    pack_flows,
    rates_by_bytes,
    run_bars,
    thin,
    training_data,
)
from emu.report.lanes import Crossings, pack_columns
from emu.runs.recorded_run import load_run
from emu.testing import two_machine_example
from tests.report.recorded import with_deaths, write_run


def unpacked(text: str, kind: str) -> list[float]:
    """Return a column as a browser reads it."""
    found: list[float] = np.frombuffer(base64.b64decode(text), kind).tolist()
    return found


def test_columns_are_packed_by_what_they_hold() -> None:
    columns = pack_columns(
        time=np.array([1.5, -2.0]),
        row=np.array([3, 4]),
        size=np.array([5, 6], dtype=np.uint8),
    )
    assert unpacked(columns["time"], "<f4") == [1.5, -2.0]
    assert unpacked(columns["row"], "<u4") == [3, 4]
    assert unpacked(columns["size"], "<u4") == [5, 6]


def test_each_column_of_flows_has_its_own_figures() -> None:
    """Bytes that are whole numbers are packed as numbers with a point."""
    crossed = Crossings(
        flow=np.array([0, 0]), port=np.array([2, 3]), lane=np.array([1, 0]), lanes=[7]
    )
    packed = pack_flows(
        edge=np.array([4]),
        iteration=np.array([5]),
        start=np.array([6.0]),
        end=np.array([8.0]),
        size=np.array([9]),
        crossed=crossed,
    )
    whole = ("edge", "iteration", "crossing", "port", "lane")
    assert [unpacked(packed[name], "<u4") for name in whole] == [
        *([4], [5], [0, 0], [2, 3], [1, 0])
    ]
    broken = ("start", "end", "bytes")
    assert [unpacked(packed[name], "<f4") for name in broken] == [[6.0], [8.0], [9.0]]
    assert packed["lanes"] == [7]


def test_a_curve_of_few_steps_stays_as_it_is() -> None:
    time, rate = np.array([0.0, 1.0, 2.0]), np.array([4.0, 2.0, 6.0])
    assert thin(time, rate, 4.0, points=3)[0] is time
    assert thin(time, rate, 4.0, points=3)[1] is rate


def test_a_thinned_curve_has_the_means_of_equal_spans() -> None:
    """Bytes 4 and 2 up to 2 s, then 6 B/s for two seconds."""
    time, rate = np.array([0.0, 1.0, 2.0]), np.array([4.0, 2.0, 6.0])
    begins, means = thin(time, rate, 4.0, points=2)
    assert begins.tolist() == [0.0, 2.0]
    assert means.tolist() == [3.0, 6.0]
    # A job that ended before the last step leaves that without a length.
    begins, means = thin(time + 1.0, rate, 2.0, points=2)
    assert begins.tolist() == [1.0, 2.0]
    assert means.tolist() == [4.0, 2.0]


def test_means_of_training_are_of_the_figures_that_are_numbers(tmp_path: Path) -> None:
    """Rows come in any order; the latest point of an iteration gives its time."""
    path = tmp_path / "training.csv"
    rows = [
        *("5,w0,1,accuracy,0.5", "3,w1,0,loss,2", "1,w0,0,loss,4", "7,w0,1,loss,inf"),
        *("6,w1,1,loss,1", "9,w0,0,rows,120", "2,w1,3,test_accuracy,0.25", "8,w1,2,l"),
    ]
    path.write_text("\n".join(["time,task,iteration,figure,value", *rows]))
    loss, accuracy, test = training_data(path)

    assert [row["figure"] for row in (loss, accuracy, test)] == [
        *("loss", "accuracy", "test_accuracy")
    ]
    assert loss["means"] == [[3.0, 3.0], [6.0, 1.0]]
    assert loss["points"][0] == (3.0, "w1", 0, 2.0)
    assert [point.time for point in loss["points"]] == [3.0, 1.0, 6.0]
    assert test["points"] == [(2.0, "w1", 3, 0.25)]
    assert test["means"] == [[2.0, 0.25]]
    with pytest.raises(DataError, match="cannot be read"):
        training_data(tmp_path / "nothing.csv")


def test_charts_span_all_attempts_and_both_schedules(tmp_path: Path) -> None:
    """Attempts that deaths ended came in the 10.5 s before the last one began."""
    run = load_run(with_deaths(write_run(tmp_path / "run")))
    assert run.emulated is not None
    assert run.simulated is not None
    charts = chart_data(run)

    assert charts["iterations"] == 3
    assert charts["machines"] == ["m0", "m1"]
    assert charts["start"] == pytest.approx(-10.5)
    longest = max(run.emulated.length, run.simulated.length)
    assert run.emulated.length != run.simulated.length
    assert charts["end"] == longest
    assert {band["run"] for band in charts["bands"]} == {"emulated", "simulated"}
    assert [one["makespan"] for one in charts["runs"]] == [
        *(run.emulated.length, run.simulated.length)
    ]
    tasks = charts["tasks"]
    assert [task["machine"] for task in tasks] == [0, 1, 0, 1, 0, 1]
    assert [task["name"] for task in tasks] == ["g0", "g1", "s0", "s1", "w0", "p0"]
    assert tasks[4] == {
        "name": "w0",
        "kind": "worker",
        "machine": 0,
        "lane": 4,
        "lane_name": "w0",
    }
    assert charts["edges"][5] == [3, 4, "s1->w0"]

    nothing = replace(run, emulated=None, simulated=None, result={})
    charts = chart_data(nothing)
    assert (charts["start"], charts["end"], charts["runs"]) == (0.0, 0.0, [])


def test_a_port_has_the_most_that_it_ever_has_and_its_limits(tmp_path: Path) -> None:
    """The NIC of m1 falls from 10 B/s to 4 B/s, and rises to 25 B/s on the way in."""
    run = load_run(write_run(tmp_path / "run"))
    cluster = run.problem.cluster
    changes = (
        CapacityChange(5.0, "m1 out", 4.0),
        CapacityChange(7.0, "m1 in", 25.0),
    )
    changed = replace(cluster, changes=changes)
    problem = replace(run.problem, cluster=changed)
    bare = replace(run, problem=problem, emulated=None, simulated=None)
    ports = {port["name"]: port for port in chart_data(bare)["ports"]}

    assert [*ports] == ["m0 out", "m0 in", "m1 out", "m1 in"]
    assert [port["capacity"] for port in ports.values()] == [10.0, 10.0, 10.0, 25.0]
    assert ports["m1 out"]["limits"][-1] == [5.0, 4.0]
    assert ports["m1 in"]["limits"][-1] == [7.0, 25.0]
    assert (ports["m1 in"]["machine"], ports["m1 in"]["direction"]) == (1, "in")


def test_rates_are_scaled_to_what_each_flow_has_carried() -> None:
    """Both are allowed 8 bytes, of which one moves 4; the third is allowed none."""
    problem, realization = two_machine_example(1)
    schedule = simulate(problem, realization, record_rates=True)
    assert schedule.rates is not None
    halved = replace(schedule, flow_bytes=schedule.flow_bytes / 2)
    rates = rates_by_bytes(halved, schedule.rates)
    np.testing.assert_allclose(rates.rate, schedule.rates.rate / 2)

    # Rates that amount to less than a byte are scaled as others are.
    slow = replace(schedule.rates, rate=schedule.rates.rate / 100)
    np.testing.assert_allclose(rates_by_bytes(schedule, slow).rate, schedule.rates.rate)

    idle = RateHistory(
        time=schedule.rates.time,
        edge=schedule.rates.edge,
        iteration=schedule.rates.iteration,
        rate=np.zeros_like(schedule.rates.rate),
    )
    assert not rates_by_bytes(schedule, idle).rate.any()


def test_bars_of_one_schedule_stand_in_their_columns() -> None:
    """Moved rates are assigned ones where every flow ends as it was allowed to."""
    schedule = simulate(*two_machine_example(2), record_rates=True)
    bars = run_bars("simulated", schedule)
    rows = [int(row) for row in unpacked(bars["tasks"]["row"], "<u4")]
    turns = [int(turn) for turn in unpacked(bars["tasks"]["iteration"], "<u4")]
    assert list(zip(rows, turns, strict=True)) == [
        (task, turn) for task in range(6) for turn in range(2)
    ]
    for end in ("start", "end"):
        times = getattr(schedule, f"task_{end}").ravel()
        assert unpacked(bars["tasks"][end], "<f4") == pytest.approx(times.tolist())
    assert (bars["name"], bars["makespan"]) == ("simulated", schedule.length)
    flows = bars["flows"]
    pairs = schedule.flows()
    assert unpacked(flows["edge"], "<u4") == pairs[:, 0].tolist()
    assert unpacked(flows["iteration"], "<u4") == pairs[:, 1].tolist()
    assert set(unpacked(flows["bytes"], "<f4")) == {40.0, 60.0, 10.0}
    curves = bars["curves"]
    assert [*curves] == ["allocated", "moved"]
    assert curves["allocated"][0]["time"] == curves["moved"][0]["time"]

    unknown = run_bars("emulated", replace(schedule, rates=None))
    assert [*unknown["curves"]] == ["moved"]


def test_links_of_a_chain_have_what_the_chart_draws() -> None:
    schedule = simulate(*two_machine_example(1))
    chain = run_bars("simulated", schedule)["chain"]
    assert [*chain[0]] == [
        *("cause", "start", "end", "task", "edge", "iteration", "port")
    ]
    assert chain[0]["start"] == 0.0
    assert chain[-1]["end"] == schedule.length


def test_of_tasks_of_one_process_those_without_a_length_have_no_bar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task alone in its lane is shown even where it takes no time.

    Of two in a lane the second has none in its first iteration.
    """
    import emu.report.html.chart_data as module

    empty = np.zeros((0, 2), dtype=int)
    schedule: Any = SimpleNamespace(
        problem=SimpleNamespace(job=SimpleNamespace(tasks="abc", lanes=[0, 0, 2])),
        task_start=np.array([[0.0, 2.0], [1.0, 3.0], [1.0, 1.0]]),
        task_end=np.array([[1.0, 3.0], [1.0, 4.0], [1.0, 1.0]]),
        bars=lambda: np.array([[True, True], [True, True], [True, False]]),
        flows=lambda: empty,
        flow_start=np.zeros((1, 1)),
        flow_end=np.zeros((1, 1)),
        flow_bytes=np.zeros((1, 1)),
        length=4.0,
    )
    no_crossing = Crossings(empty[:, 0], empty[:, 0], empty[:, 0], [])
    monkeypatch.setattr(module, "crossings", lambda _: no_crossing)
    monkeypatch.setattr(module, "_rate_curves", lambda _: {})
    no_chain = SimpleNamespace(links=())
    monkeypatch.setattr(module, "critical_path", lambda _: no_chain)

    tasks = run_bars("emulated", schedule)["tasks"]
    assert unpacked(tasks["row"], "<u4") == [0, 0, 1, 2]
    assert unpacked(tasks["iteration"], "<u4") == [0, 1, 1, 0]
    assert unpacked(tasks["end"], "<f4") == [1.0, 3.0, 4.0, 1.0]
