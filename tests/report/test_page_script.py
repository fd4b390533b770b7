"""The script of report.html in node: search, pins, and what is saved."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from emu.problem import Fault, with_faults
from emu.report.html.page import write_report
from emu.testing import two_machine_example
from tests.report.drawn_run import write_run, write_run_of
from tests.report.recorded import with_deaths

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="no node: apt-get install nodejs")


def asked(page: Path, expression: str) -> Any:
    """Return the value of an expression in a fresh page."""
    assert NODE is not None
    driver = Path(__file__).with_name("page_in_node.js")
    command = [NODE, str(driver), str(page), expression]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """Return what asks a fresh page for the value of an expression."""
    run, _ = write_run(tmp_path_factory.mktemp("page"))
    page = write_report(run)

    return partial(asked, page)


LANES = "gantt.draw(); [...new Set(gantt.rows.map(row => row.lane.name))]"
TASKS = 6 * 4  # of each run


def test_bands_are_where_machines_and_links_were_disturbed(
    tmp_path: Path,
) -> None:
    problem, realization = two_machine_example(4)
    faults = [
        Fault("m0", 2.0, 9.0, 0.0, of_machine=True),
        Fault("m1 in", 4.0, 5.0, 0.5),
    ]
    cluster = with_faults(problem.cluster, faults)
    run, _ = write_run_of(tmp_path, replace(problem, cluster=cluster), realization)
    bands = (
        "gantt.draw(); Object.fromEntries(gantt.rows.map(row => [row.lane.name, "
        "gantt.bandsOf(row).map(({what, since, until}) => [what, since, until])]))"
    )
    found = asked(write_report(run), bands)

    tasks = {
        t.name for t in problem.job.tasks if problem.machine_of_task[t.name] == "m0"
    }
    assert {name for name, there in found.items() if there} == {*tasks, "m1 in"}
    assert all(found[name] == [["pause", 2.0, 9.0]] for name in tasks)
    assert found["m1 in"] == [["slow", 4.0, 5.0]]


def test_deaths_are_on_all_lanes_of_a_run_before_its_last_attempt(
    tmp_path: Path,
) -> None:
    run = with_deaths(write_run(tmp_path)[0])
    rows, (begins, _), notes = asked(
        write_report(run),
        "gantt.draw(); view.show(-99, 99); [gantt.rows.map(row => [row.run.name, "
        "gantt.bandsOf(row).map(({what, since, until}) => [what, since, until])]), "
        "view.range, data.bands.filter(band => band.note).map(band => band.note)]",
    )

    emulated = [["done", -10.5, -6.5], ["done again", -6.5, -4.5], ["down", -4.5, -3.5]]
    emulated += [["done", -3.5, -3.5], ["done again", -3.5, -0.5], ["down", -0.5, 0]]
    simulated = [["done", -7, -3], ["done again", -3, -1], ["down", -1, 0]]
    assert {name for name, _ in rows} == {"emulated", "simulated"}
    for name, bands in rows:
        assert bands == (emulated if name == "emulated" else simulated)
    assert begins == -10.5
    assert notes[0] == "w0 died: goes on at iteration 4; noticed in 0.25 s of wall time"
    assert notes[2] == "w0 died: goes on at iteration 4"


def test_search_leaves_lanes_and_flows_with_all_words(
    ask: Callable[[str], Any],
) -> None:
    def found(words: str) -> Any:
        return ask(f"gantt.search = {json.dumps(words)}; gantt.layOut(); {LANES}")

    every = found("")
    assert {"g0", "s0", "w0", "p0", "m0 out", "m1 in"} <= {*every}
    assert found("sampler") == ["s0", "s1"]
    assert found("SAMPLER m1") == ["s1"]
    assert found("m0 out") == ["m0 out"]
    assert found("g0->s1") == ["m0 out", "m1 in"]
    assert found("no such thing") == []
    iterations = ask(
        "gantt.search = 'g0->s1'; gantt.layOut(); "
        "gantt.rows.map(row => [row.run.name, row.lane.name, row.bars.length])"
    )
    assert sum(count for *_, count in iterations) == 2 * 2 * 4  # runs, ends, iterations


def test_a_pinned_lane_stays_on_top_whatever_is_searched_for(
    ask: Callable[[str], Any],
) -> None:
    pin = "gantt.pin(gantt.rows.find(row => row.lane.name === 'w0').lane); "
    assert ask(pin + LANES)[0] == "w0"
    assert ask(f"{pin} gantt.search = 'm1 in'; gantt.layOut(); {LANES}") == [
        "w0",
        "m1 in",
    ]
    there = "gantt.window.scrollTop = 90; gantt.draw(); "
    assert ask(pin + there + "gantt.rows[0].y === gantt.screen(gantt.rows[0])")
    assert ask(pin + pin + LANES) == ask(LANES)


def test_what_is_shown_is_saved_as_numbers(ask: Callable[[str], Any]) -> None:
    saved = ask("press('gantt', 'CSV'); saved")["gantt.csv"]
    rows = [*csv.DictReader(io.StringIO(saved))]
    tasks = [row for row in rows if not row["bytes"]]

    assert len(tasks) == 2 * TASKS
    assert {row["name"] for row in tasks if row["lane"] == "w0"} == {"w0"}
    assert all(float(row["start_s"]) <= float(row["end_s"]) for row in rows)
    zoomed = ask("view.show(0, 1); press('gantt', 'CSV'); saved")["gantt.csv"]
    assert 0 < len(zoomed.splitlines()) < len(saved.splitlines())


def test_what_is_shown_is_saved_as_a_picture(ask: Callable[[str], Any]) -> None:
    """As many bars as on the screen, and text that stays text."""
    for chart, name in (
        ("gantt", "gantt"),
        ("ports", "rates"),
        ("training", "training"),
    ):
        said = ask(f"press('{chart}', 'SVG'); ({{saved, drawn: gantt.drawn}})")
        picture = ET.fromstring(said["saved"][f"{name}.svg"])  # noqa: S314 - our own
        texts = {text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")}
        assert "emulated time (s)" in texts
        if chart == "gantt":
            bars = [*picture.iter("{http://www.w3.org/2000/svg}rect")]
            filled = [bar for bar in bars if bar.attrib.get("fill", "none") != "none"]
            assert len(filled) == said["drawn"] + 1  # and the paper
            assert {"w0", "NIC out"} <= texts


def test_colours_by_kind_are_named(ask: Callable[[str], Any]) -> None:
    names = (
        "everything(charts.gantt).find(one => one.className === 'legend')"
        ".children.map(item => item.children[1])"
    )
    assert ask(names)[0] == "iteration 0, 6 …"
    shown = ask(f"press('gantt', 'colour by kind'); {names}")
    assert shown == ["graph_store", "sampler", "worker", "parameter_server"]
