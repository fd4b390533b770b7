"""What the dashboard costs a run: makespan, replay error and CPU time, off against on.

    python tools/bench_dashboard.py [scenario] [pairs] [viewers]

Runs alternate off and on; "on" has viewers that read everything. CPU seconds are those
of the coordinator's process, wherein the dashboard's thread is. The tasks are timed.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from emu.dashboard import LiveRun
from emu.dashboard.server import Dashboard
from emu.experiment.run_experiment import carry_out, emulation_settings
from emu.runs.run_directory import RunDirectory
from emu.scenario import load, prepare

_STATED = ("job.iterations=10", "emulation.compute=timed", "placement={policy: ifs}")


async def view(url: str, heard: list[int]) -> None:
    """Read everything that a viewer is told until the server leaves."""
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
        heard.extend([len(message.data) async for message in socket])


def once(scenario_file: str, viewers: int | None) -> dict[str, Any]:
    """Run the scenario, with so many viewers or (None) without a dashboard."""
    scenario = load(scenario_file, [*_STATED, "expect=null"])
    experiment = prepare(scenario)
    settings = emulation_settings(scenario)
    heard: list[int] = []
    with ExitStack() as stack:
        parent = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        directory = RunDirectory.create(scenario.name, parent)
        observer = None
        if viewers is not None:
            live = LiveRun(
                experiment.problem,
                scenario.name,
                experiment.policy,
                settings.time_scale,
            )
            page = stack.enter_context(Dashboard(live, directory.path))
            observer = live.tape
            for _ in range(viewers):
                threading.Thread(
                    target=lambda: asyncio.run(view(page.at("ws"), heard)),
                    daemon=True,
                ).start()
        began = time.process_time()
        result = carry_out(experiment, settings, directory, observer).result
        cpu = time.process_time() - began
    keys = ("makespan", "replay_error", "wall_seconds")
    return {**{key: result[key] for key in keys}, "cpu": cpu, "updates": len(heard)}


def main() -> None:
    """Measure."""
    scenario = sys.argv[1] if len(sys.argv) > 1 else "scenarios/demo.yaml"
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    viewers = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    once(scenario, None)  # compiles, reads the data set
    found: dict[str, list[dict[str, Any]]] = {"off": [], "on": []}
    for _ in range(pairs):
        for name, count in (("off", None), ("on", viewers)):
            found[name].append(once(scenario, count))
            print(name, found[name][-1], flush=True)
    for key in ("makespan", "cpu"):
        off, on = (
            np.median([one[key] for one in found[name]]) for name in ("off", "on")
        )
        print(f"{key}: off {off:.4f} s, on {on:.4f} s, {on / off - 1:+.2%}")


if __name__ == "__main__":
    main()
