"""The script of the dashboard's page in node: tasks so far beside the simulation."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from emu.report.dashboard.server import page
from emu.report.dashboard.status import NOTHING
from tests import report
from tests.report.dashboard.replay import Replay

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="no node: apt-get install nodejs")
#: What the page asks for, in which order the simulation and the first news come.
SETTLED = "new Promise(done => setTimeout(done, 20))"


def ask(replay: Replay, messages: list[dict[str, Any]], where: Path, what: str) -> Any:
    """Return the value of an expression once a page has heard some messages."""
    assert NODE is not None
    file = where / "page.html"
    file.write_text(page(replay.live), "utf-8")
    expected = json.dumps(replay.live.prediction_json())
    hear = "".join(f"hear({json.dumps(message)});" for message in messages)
    script = (
        f"answers['api/prediction?token=x'] = {expected}; {hear}"
        f"{SETTLED}.then(() => ({what}))"
    )
    driver = Path(report.__path__[0]) / "page_in_node.js"
    command = [NODE, str(driver), str(file), script]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


def test_tasks_so_far_stand_beside_the_simulation(tmp_path: Path) -> None:
    replay = Replay()
    seen = NOTHING
    messages = []
    for time in (0.5 * replay.schedule.makespan, 0.9 * replay.schedule.makespan):
        replay.until(time)
        news, seen = replay.live.news(seen)
        status = replay.live.status().model_dump()
        messages.append({"status": status, "report": False, **news})
    shown = ask(
        replay,
        messages,
        tmp_path,
        "{ended: lanes.ended.flat().length, expected: lanes.expected.flat().length, "
        "computing: lanes.computing, whole: view.whole[1], "
        "order: lanes.shown.map(task => lanes.tasks[task].machine)}",
    )
    last = messages[-1]["status"]

    assert shown["ended"] == last["steps_ended"]
    assert shown["expected"] == last["steps"]
    assert len(shown["computing"]) == len(last["running"])
    assert shown["whole"] == pytest.approx(1.01 * replay.schedule.makespan)
    assert shown["order"] == sorted(shown["order"])


def test_a_death_is_a_line_on_the_lanes_with_what_died(tmp_path: Path) -> None:
    replay = Replay()
    replay.until(0.5 * replay.schedule.makespan)
    replay.live.tape.restarting("w0 died", 1)
    news, seen = replay.live.news(NOTHING)
    status = replay.live.status().model_dump()
    messages = [{"status": status, "report": False, **news}]
    (time, note), *_ = replay.live.history_json()["deaths"]
    again, _ = replay.live.news(seen)
    assert again["samples"]["deaths"] == [(time, note)]
    drawn, near, far = ask(
        replay,
        messages,
        tmp_path,
        "(() => { const { top } = lanes.canvas.getBoundingClientRect(), "
        "at = { clientY: top + 2 }; "
        f"return [lanes.deaths, lanes.describe(at, {time}), "
        f"lanes.describe(at, {0.1 * time})]; }})()",
    )
    assert drawn == [[time, note]]
    assert note == "w0 died: goes on at iteration 1"
    assert near.endswith(note)
    assert note not in far
