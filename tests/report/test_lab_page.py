"""The page of a lab, of a run that was made up: what it holds, and what is missing."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.prediction.analysis.traffic import CONNECTION, OWNER, PACKET, Traffic
from emu.report.facts import lab_facts
from emu.report.html.lab_page import _talks, nic_table, talks_of
from emu.report.html.page import write_report
from emu.runs.array_files import SAMPLES, read_traffic, write_traffic
from emu.runs.run_directory import RunDirectory

NODE = shutil.which("node")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a lab of two: ``<ask>`` on a asks ``tell`` on b at 1 s, is told at 2 s."""
    packets = np.zeros(3, PACKET)
    packets["time"], packets["bytes"] = [1.0, 2.0, 2.01], [100, 3000, 1000]
    ends = ((0, 1, 5000, 80), (1, 0, 80, 5000), (1, 0, 80, 5000))
    for row, told in zip(packets, ends, strict=True):
        for name, value in zip(CONNECTION, told, strict=True):
            row[name] = value
    owners = np.array([(0, 5000, 0), (1, 80, 1)], OWNER)
    nics = np.array([[1e6, 1e6], [1e6, 1e6]])
    write_traffic(
        tmp_path, Traffic(packets, ("a", "b"), nics, ("<ask>", "tell"), owners)
    )
    time = np.array([0.0, 2.0, 4.0])
    nothing = np.zeros((3, 2))
    RunDirectory(tmp_path).write_arrays(
        SAMPLES,
        time=time,
        ran=time / 2,
        waited=time / 4,
        retransmitted=np.array([[0, 0], [0, 6], [0, 6]]),
        timeouts=nothing,
        dropped=np.zeros((3, 2, 2)),
        queued=np.zeros((3, 2, 2)),
    )
    (tmp_path / "lab.json").write_text(json.dumps(lab_json()))
    return tmp_path


def lab_json() -> dict[str, Any]:
    """Return what lab.json says of it; b's NIC was halved at 1.5 s."""
    return {
        "wall_seconds": 4.0,
        "startup_seconds": 0.1,
        "sharing": "fair",
        "nics": {name: {"out": 1e6, "in": 1e6} for name in "ab"},
        "programs": [
            {"program": "<ask>", "machine": "a", "start": 0.0, "end": 3.0}
            | {"code": 3, "stopped": False},
            {"program": "tell", "machine": "b", "start": 0.0, "end": 4.0}
            | {"code": -15, "stopped": True},
        ],
        "failed": {"program": "<ask>", "machine": "a", "code": 3},
        "events": [{"time": 1.5, "machine": "b", "nic_out": 5e5, "nic_in": 5e5}],
        "traffic": {
            name: dict.fromkeys(("out_bytes", "out_packets", "in_bytes"), 9)
            | {"in_packets": 9}
            for name in "ab"
        },
        "tcp": {n: {"segments": 9, "retransmitted": 6, "timeouts": 0} for n in "ab"},
        "dropped": {name: {"out": 0, "in": 0} for name in "ab"},
        "computed_seconds": 2.0,
        "waited_seconds": 1.0,
        "waited_share": 1 / 3,
        "trust": "degraded",
        "capture": {"lost": 7, "cpu_seconds": 0.0},
        "crossed": {
            "packets": 3,
            "messages": 2,
            "connections": 2,
            "shared_queues": 0,
            "bytes": {"a": {"a": 0, "b": 100}, "b": {"a": 4000, "b": 0}},
            "nic_use": {},
        },
    }


def test_the_page_of_a_lab_says_what_happened(run: Path) -> None:
    page = write_report(run).read_text()

    assert "<ask>" not in page.split("<script")[0]
    for said in ("failed first, on a (code 3)", "7 packets were not noted", "4 kB"):
        assert said in page, said
    assert "src=" not in page  # nothing of it comes from elsewhere


def test_who_sent_to_whom_is_a_row_with_its_lengths_and_answers(run: Path) -> None:
    """Draw a that is answered in 10 ms, after a second, and b that nothing answers."""
    programs = lab_json()["programs"]
    table = _talks(talks_of(programs, read_traffic(run)))

    rows = zip(*(column.cells for column in table.columns), strict=True)
    assert [*rows] == [
        ("<ask> on a → tell on b", "1", "100 B", "100 B", "0 us", "1 s"),
        ("tell on b → <ask> on a", "1", "4 kB", "4 kB", "10 ms", ""),
    ]


def test_what_is_missing_of_a_lab_is_named(run: Path) -> None:
    (run / "samples.npz").unlink()
    (run / "traffic.npz").write_text("no such thing")
    page = write_report(run).read_text()

    assert "samples.npz: is missing" in page
    assert "traffic.npz: is damaged" in page
    assert "signal 15, asked to at the end" in page


@pytest.mark.skipif(NODE is None, reason="no node: apt-get install nodejs")
def test_the_charts_of_a_lab_hold_what_crossed(run: Path) -> None:
    assert NODE is not None
    page = write_report(run)
    driver = Path(__file__).with_name("page_in_node.js")
    press = "['gantt', 'ports', 'counts'].forEach(chart => press(chart, 'CSV')); saved"
    command = [NODE, str(driver), str(page), press]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    saved = {
        name: [*csv.DictReader(io.StringIO(text))]
        for name, text in json.loads(said.stdout).items()
    }

    bars = {(row["lane"], row["name"], row["bytes"]) for row in saved["gantt.csv"]}
    asked, told = "<ask> on a->tell on b", "tell on b-><ask> on a"
    assert ("tell", "tell", "") in bars
    assert {("b out", told, "4000"), ("a in", told, "4000")} <= bars
    assert ("a out", asked, "100") in bars
    through = sum(
        float(row["bytes_per_s"]) * 4 / 600
        for row in saved["rates.csv"]
        if row["port"] == "b out"
    )
    assert through == pytest.approx(4000, rel=1e-5)
    counts = {
        (row["curve"], row["time_s"]): float(row["value"])
        for row in saved["counts.csv"]
    }
    assert counts["computing", "0"] == 0.5
    assert counts["waiting", "2"] == 0.25
    assert counts["b", "0"] == 3.0  # segments a second


def test_each_way_of_a_nic_has_its_own_counts() -> None:
    lab: Any = {
        "nics": {"a": {"out": 1e6, "in": 2e6}},
        "tcp": {"a": {"segments": 3, "retransmitted": 4, "timeouts": 5}},
        "traffic": {
            "a": {"out_bytes": 6, "in_bytes": 7, "out_packets": 8, "in_packets": 9}
        },
        "dropped": {"a": {"out": 10, "in": 11}},
    }
    columns = [
        [str(cell) for cell in column.cells] for column in nic_table(lab).columns
    ]
    out, into = zip(*columns, strict=True)

    assert out == ("a out", "8 Mbit/s", "6 B", "8", "10", "3", "4", "5")
    assert into == ("a in", "16 Mbit/s", "7 B", "9", "11", "", "", "")


def test_computing_waiting_and_starting_are_told_apart() -> None:
    lab: Any = {
        "trust": "trusted",
        "wall_seconds": 1.0,
        "startup_seconds": 2.0,
        "computed_seconds": 3.0,
        "waited_seconds": 4.0,
        "tcp": {"a": {"retransmitted": 5, "timeouts": 6}},
        "dropped": {"a": {"out": 7, "in": 8}},
    }
    facts = {fact.label: fact for fact in lab_facts(lab)}

    assert facts["time"].note == "real time; machines took 2 s to start"
    assert facts["verdict"].note == "programs computed 3 s and waited 4 s for a core"
    assert facts["sent again"][1:3] == ("5", "segments; 6 timeouts")
    assert facts["dropped by queues"].value == "15"
