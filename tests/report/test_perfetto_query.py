"""README's query for Perfetto, on the tables that Perfetto makes of a trace."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path

from emu.report.trace import write_trace
from emu.runs.recorded_run import load_run
from tests.report.drawn_run import write_run

PROJECT = Path(__file__).parents[2]


def _query() -> str:
    pages = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
    text = "\n".join(page.read_text() for page in pages if page.exists())
    found = re.search(r"    (select s\.name.*?limit 5)", text, re.DOTALL)
    assert found is not None
    return found[1]


def test_every_flow_is_found_once(tmp_path: Path) -> None:
    run, _ = write_run(tmp_path)
    events = json.loads(write_trace(run).read_text())["traceEvents"]
    base = sqlite3.connect(":memory:")
    base.executescript(
        "create table slice (name, dur, track_id); create table process (upid, name);"
        "create table thread (utid, upid, name); create table thread_track (id, utid);"
    )
    for event in events:
        name = event.get("args", {}).get("name")
        thread = f"{event.get('pid')}/{event.get('tid')}"
        if event["ph"] == "X":
            row = event["name"], event["dur"] * 1e3, thread
            base.execute("insert into slice values (?, ?, ?)", row)
        elif event["name"] == "process_name":
            base.execute("insert into process values (?, ?)", (event["pid"], name))
        elif event["name"] == "thread_name":
            base.execute(
                "insert into thread values (?, ?, ?)", (thread, event["pid"], name)
            )
            base.execute("insert into thread_track values (?, ?)", (thread, thread))
    found = base.execute(_query().replace("limit 5", "")).fetchall()

    schedule = load_run(run).emulated
    assert schedule is not None
    job = schedule.problem.job
    expected = sorted(
        f"{job.edge_names[e]} {n}"
        for e, n in schedule.flows().tolist()
        if re.match("s.*->w", job.edge_names[e])
    )
    assert sorted(name for name, _ in found) == expected
