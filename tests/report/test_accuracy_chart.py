"""The chart of accuracy over time: its order, its units, and what its script saves."""

from __future__ import annotations

import base64
import csv
import json
import shutil
import subprocess
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.report.html import markup as html
from emu.report.html.accuracy_chart import accuracy_chart
from emu.report.html.page import whole_page

CURVES = {
    "late": [(0.001, 0.2), (0.009, 0.71)],
    "never": [(0.002, 0.1), (0.02, 0.5)],
    "early": [(0.003, 0.3), (0.005, 0.8)],
}


def columns(row: dict[str, Any], name: str) -> list[float]:
    """Return a column as the page's script unpacks it."""
    return [*map(float, np.frombuffer(base64.b64decode(row[name]), "<f4"))]


def test_curves_stand_in_the_order_in_which_they_reach_the_target() -> None:
    data = accuracy_chart(CURVES, 0.7, split="test", missed=["never"])
    plot = data["accuracy"]

    assert [curve["name"] for curve in plot["curves"]] == ["early", "late", "never"]
    assert [curve["reached"] for curve in plot["curves"]] == [True, True, False]
    assert columns(plot["curves"][1], "time") == pytest.approx([1, 9])
    assert columns(plot["curves"][1], "share") == pytest.approx([20, 71])
    assert (plot["unit"], plot["target"], data["end"]) == ("ms", 70, pytest.approx(20))


@pytest.mark.parametrize(
    ("longest", "unit"),
    [(1e-9, "us"), (1.9e-3, "us"), (2e-3, "ms"), (1.9, "ms"), (7199, "s"), (7200, "h")],
)
def test_its_clock_has_a_unit_of_which_two_fit(longest: float, unit: str) -> None:
    data = accuracy_chart({"a": [(longest, 0.5)]}, 0.4, split="valid")

    assert data["accuracy"]["unit"] == unit
    assert data["clock"] == f"emulated time ({unit})"


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not here")
@pytest.mark.parametrize("width", [1000, 360])
def test_its_script_draws_and_saves_the_numbers(tmp_path: Path, width: int) -> None:
    many = {f"row{n}": [(0.1 * n + 0.1, 0.3), (n + 1.0, 0.75)] for n in range(14)}
    data = accuracy_chart(many, 0.7, split="valid", missed=["row13"])
    page = tmp_path / "page.html"
    page.write_text(whole_page("name", html.chart("accuracy", "a", "b"), data))
    driver = Path(__file__).with_name("page_in_node.js").read_text()
    narrow = tmp_path / "page_in_node.js"
    narrow.write_text(driver.replace("clientWidth: 1000", f"clientWidth: {width}"))
    press = "press('accuracy', 'SVG'); press('accuracy', 'CSV');"
    names = "everything(charts.accuracy).flatMap(one => one.children)"

    done = subprocess.run(
        ["node", narrow, page, f"{press} [saved, {names}.filter(c => !c.tag)]"],
        capture_output=True,
        text=True,
        check=True,
    )
    saved, shown = json.loads(done.stdout)

    rows = [*csv.DictReader(StringIO(saved["accuracy.csv"]))]
    assert [row["system"] for row in rows[::2]] == [*many]
    assert float(rows[-1]["time_s"]) == 14
    assert float(rows[-1]["accuracy_percent"]) == 75
    drawing = saved["accuracy.svg"]
    assert "target 70 %" in drawing
    if width == 1000:  # named where the curves end, else below
        assert ">row13, not reached<" in drawing
    else:
        assert "row13, not reached, dotted" in shown
