"""Lanes of bars, rows of figures and iterations beside measured ones, by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError
from emu.report import measured_rows
from emu.report.figure_rows import cost_row, model_rows, pace_line, setup_row
from emu.report.lanes import crossings, pack_lanes, pack_lanes_per_group
from emu.report.measured_rows import (
    _check_unit,
    full_iterations,
    measurement_rows,
)
from emu.units import format_duration, format_money, format_size


def test_bars_take_the_lowest_lane_that_is_free() -> None:
    """A bar may begin where another ends; of equal starts the shortest goes lowest."""
    bars = [(0.0, 9.0), (0.0, 2.0), (1.0, 3.0), (2.0, 4.0), (3.0, 5.0), (9.0, 9.5)]
    start, end = np.array(bars).T
    lanes, count = pack_lanes(start, end)

    assert lanes.tolist() == [1, 0, 2, 0, 2, 0]
    assert count == 3


def test_groups_have_lanes_of_their_own() -> None:
    bars = [(0.0, 4.0), (1.0, 2.0), (1.0, 3.0), (2.5, 3.5)]
    start, end = np.array(bars).T
    group = np.array([2, 0, 2, 2])
    lanes, counts = pack_lanes_per_group(start, end, group, groups=3)

    assert lanes.tolist() == [0, 0, 1, 2]
    assert counts == [1, 0, 3]


def test_a_flow_has_a_lane_at_every_link_of_its_way() -> None:
    """Flows of edges 1 and 0 meet at link 2 alone; the third stays on a machine."""
    links = [SimpleNamespace(name=f"l{number}") for number in range(4)]
    problem = SimpleNamespace(hops=[(0, 2), (2, 3), ()], links=links)
    start = np.array([[5.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    end = np.array([[6.0, 2.0], [4.0, 9.0], [1.0, 1.0]])
    flows = np.array([[1, 0], [0, 1], [2, 0]])
    schedule: Any = SimpleNamespace(
        problem=problem, flow_start=start, flow_end=end, flows=lambda: flows
    )
    found = crossings(schedule)

    assert found.flow.tolist() == [0, 0, 1, 1]
    assert found.port.tolist() == [2, 3, 0, 2]
    assert found.lane.tolist() == [1, 0, 0, 0]
    assert found.lanes == [1, 0, 2, 1]


def test_iterations_are_those_between_the_first_and_what_drains_a_pipeline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of eight with a pipeline of depth 2 three are full; of four none is."""
    lengths = np.array([9.0, 8.0, 7.0, 1.0, 2.0, 3.0, 6.0, 5.0])
    schedule: Any = SimpleNamespace(problem=SimpleNamespace(job=None))
    monkeypatch.setattr(measured_rows, "pipeline_depth", lambda _: 2)
    monkeypatch.setattr(measured_rows, "iteration_lengths", lambda _: lengths)
    mean = SimpleNamespace(iteration_seconds=1.25)
    monkeypatch.setattr(measured_rows, "pace", lambda *_: mean)
    assert full_iterations(schedule).tolist() == [1.0, 2.0, 3.0]

    monkeypatch.setattr(measured_rows, "iteration_lengths", lambda _: lengths[:4])
    assert full_iterations(schedule).tolist() == [1.25]


def test_a_link_that_carries_a_quarter_more_than_was_measured_is_off_by_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of three readings; one of nothing has no share."""
    sizes = [("m0 out", 12.5), ("m1 in", 3.0)]
    ports = [{"port": name, "bytes": size} for name, size in sizes]
    schedule: Any = SimpleNamespace()
    monkeypatch.setattr(measured_rows, "schedules_of", lambda _: {"emulated": schedule})
    monkeypatch.setattr(measured_rows, "port_rows", lambda _: ports)
    values = {"m1 in": [0.0, 0.0], "m0 out": [9.0, 10.0, 11.0]}
    measurement: Any = SimpleNamespace(unit="bytes", values=values, path=Path("m.csv"))
    run: Any = SimpleNamespace(name="r", steps=())

    rows = [*measurement_rows(measurement, [run])]
    found = [(row["what"], row["measured"], row["here"], row["error"]) for row in rows]
    assert found == [("m1 in", 0.0, 3.0, None), ("m0 out", 10.0, 12.5, 0.25)]
    assert [row["schedule"] for row in rows] == ["emulated"] * 2


@pytest.mark.parametrize(
    ("times", "here", "unit"),
    [
        ([2000.0, 4000.0], 3.0, "ms"),  # 0.67 and 1.33 times as much
        ([2e6, 4e6], 3.0, "us"),
        ([2.0, 4.0], 3.0, ""),
        ([2000.0, 9000.0], 3.0, ""),  # one of them is three times as much
        ([2000.0, 1000.0], 3.0, ""),  # or a third
        ([2000.0, 4000.0], 0.0, ""),
    ],
)
def test_times_of_another_unit_are_noticed(
    times: list[float], here: float, unit: str
) -> None:
    measurement: Any = SimpleNamespace(
        values={"iteration": times}, unit_stated=False, path=Path("m.csv")
    )
    if unit:
        factor = f"{np.median(times) / here:,.0f}"
        with pytest.raises(DataError, match=f"about {factor} times.*--unit {unit} or"):
            _check_unit(measurement, here, "run")
        measurement.unit_stated = True
    _check_unit(measurement, here, "run")


def test_rows_of_figures_say_of_what_they_are() -> None:
    """Causes without bytes are told by their seconds."""
    causes = {
        "features": {"bytes": 5e6, "seconds": 3.0},
        "planning": {"bytes": 0.0, "seconds": 0.25},
    }
    run = {"seconds": 4.0, "error": 0.5, "bytes": 7e6, "trust": "trusted"}
    length, note = setup_row({"causes": causes, "seconds": 2.0, "measured": run})
    assert length == format_duration(2.0, 4)
    assert note.startswith(
        f"before time 0: {format_size(5e6)} of features, "
        f"{format_duration(0.25, 4)} of planning; emulated {format_duration(4.0, 4)} ("
    )
    assert note.endswith(f"), {format_size(7e6)} arrived, trusted")
    nothing = setup_row({"causes": {}, "seconds": 0.0})[1]
    assert nothing == "before time 0: nothing to send"

    cost = {"servers": 3.0, "lambdas": 0.0, "parameter_servers": 2.0, "lost": 0.5}
    total, words = cost_row({**cost, "total": 5.0, "value": 0.125})
    assert total == format_money(5.0)
    assert words == (
        f"servers {format_money(3.0)}, parameter servers {format_money(2.0)}, "
        f"{format_money(0.5)} of lambdas without an answer, value 0.125 / (s $)"
    )

    models = [{"program": "a:B", "flops": 2.5e9, "seconds": 0.5, "parameters": 1234}]
    ((_, parameters, words),) = model_rows(models)
    assert parameters == "1,234 parameters"
    assert words.startswith("a:B, 2.5 GFLOP and ")
    path = {"link a": 0.75, "gap": 0.25}
    assert pace_line({"busy": 0.5, "critical_path": path}) == (
        "workers busy 50%, critical path link a 75%, gap 25%"
    )
