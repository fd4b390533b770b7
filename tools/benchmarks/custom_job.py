"""A custom job of 42,000 flows: from its file to what can be simulated."""

from __future__ import annotations

import functools
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.scenario import load, prepare
from tools.benchmarks.rows import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TASKS, MACHINES, AHEAD, TURNS = 21_000, 150, 400, 5


def _scenario() -> dict[str, Any]:
    """Return a scenario in which every task sends to two of the next ones."""
    rng = np.random.default_rng(1)
    flows = [
        {"from": f"t{j}", "to": f"t{j + d}", "volume": "2.5 GB"}
        for j in range(TASKS)
        for d in rng.integers(1, AHEAD, 2).tolist()
        if j + d < TASKS
    ]
    tasks = [{"name": f"t{j}", "time": "1.25 s"} for j in range(TASKS)]
    at = rng.integers(MACHINES, size=TASKS).tolist()
    placed = {f"t{j}": f"m{m}" for j, m in enumerate(at)}
    return {
        "cluster": {"machines": [{"name": "m", "count": MACHINES, "nic": "10 Gbit/s"}]},
        "job": {"system": "custom", "iterations": 1, "tasks": tasks, "flows": flows},
        "placement": {"policy": "explicit", "tasks": placed},
    }


def _cpu_seconds(call: Callable[[], object]) -> float:
    taken = []
    for _ in range(TURNS):
        began = time.process_time()
        call()
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def custom_rows() -> Iterator[Row]:
    """Yield the CPU time of reading the file, and of preparing what it says."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "custom.json"
        path.write_text(json.dumps(_scenario()))
        scenario = load(path)
        flows = len(scenario.to_job().edges)
        steps: dict[str, Callable[[], object]] = {
            "load": functools.partial(load, path),
            "prepare": functools.partial(prepare, scenario),
        }
        for what, step in steps.items():
            seconds = _cpu_seconds(step)
            yield Row("custom", what, seconds, f"{flows:,} flows, CPU time")
