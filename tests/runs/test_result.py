"""Tables of result.json, of jobs whose figures are known."""

from __future__ import annotations

import json

import numpy as np
import pytest

from emu.runs.result import task_rows
from emu.scenario import prepare
from emu.scenario.scenario_file import loads


@pytest.mark.parametrize("pipeline", ["A", "B", "none"])
@pytest.mark.parametrize("several", [False, True])
def test_mean_times_of_a_pipeline_are_those_stated(
    pipeline: str, *, several: bool
) -> None:
    """Its first and last cycles, in which a phase has no mini-batch, take no time."""
    times = {"sampler": 4, "model_forward": 3, "data_forward": 2}
    times |= {"data_backward": 5, "model_backward": 1}
    job = {
        "system": "p3",
        "dataset": {"name": "products-like", "scale": 0.001},
        "model": {"hidden": 8, "layers": 2},
        "fanouts": [2, 2],
        "batch_size": 10,
        "iterations": 5,
        "pipeline": pipeline,
        "times": {kind: f"{time} ms" for kind, time in times.items()},
    }
    beside = {
        "system": "custom",
        "iterations": 9,
        "tasks": [{"name": "t", "time": "1 s"}],
    }
    jobs = [{"name": "a", "job": job}, {"name": "b", "job": beside}]
    cluster = {"machines": [{"count": 2, "nic": "1 Gbit/s"}]}
    text = {"cluster": cluster, **({"jobs": jobs} if several else {"job": job})}
    ready = prepare(loads(json.dumps(text)))
    taken = ready.realization.times
    rows = task_rows(ready.problem, taken, np.zeros_like(taken))

    found = {kind: rows[kind]["mean_seconds"] for kind in times}
    assert found == pytest.approx({kind: time / 1e3 for kind, time in times.items()})
    if several:
        assert rows["task"]["mean_seconds"] == 1.0
