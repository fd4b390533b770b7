"""Rows that machines keep, over sockets: what is sent, and what is learnt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.systems.cache_section import cache_figures
from tests.integration.scenarios import (
    Carried,
    carried_out,
    check_training,
    tiny_training,
    written,
)

pytestmark = [pytest.mark.emulation, pytest.mark.untimed]

ROUNDS = 5
#: Of every row 400 bytes in float32, here twice that.
ROW = 800


def feature_bytes(run: Carried) -> float:
    """Return what stores have sent to samplers, wherever these stand."""
    schedule = run.outcome.run.schedule
    job = schedule.problem.job
    features = [job.tasks[edge.source].kind == "graph_store" for edge in job.edges]
    return float(np.nansum(schedule.flow_bytes[np.array(features)]))


@pytest.mark.parametrize(
    ("policy", "keys"),
    [
        ("degree", {"sampling": "multiround"}),
        ("vip", {"system": "data_parallel"}),
        ("lru", {"samplers_per_worker": 2, "sync": "ring"}),
        ("window", {"sampling": "multiround", "parameter_servers": 2}),
    ],
)
def test_hits_are_not_sent_and_change_no_weight(
    policy: str, keys: dict[str, Any], tmp_path: Path
) -> None:
    document = tiny_training(ROUNDS, precision="float64", **keys)
    if keys.get("system"):
        of_dgtp = ("workers", "samplers_per_worker")
        document["job"] = {k: v for k, v in document["job"].items() if k not in of_dgtp}
        document["placement"] = {"policy": "ifs"}
    document["job"]["cache"] = {"policy": policy, "size": f"{60 * ROW} B"}
    if policy == "window":
        document["job"]["cache"]["window"] = 3
    run = carried_out(written(document, tmp_path), tmp_path)

    check_training(run, ROUNDS)
    job = run.outcome.run.schedule.problem.job
    (figures,) = cache_figures(run.outcome.run.schedule).values()
    assert run.result["cache"] == figures
    assert figures["rows"] == 60
    assert figures["hits"] > 0
    assert figures["bytes_saved"] == figures["hits"] * ROW
    del document["job"]["cache"]
    document["name"] = "without"
    whole = carried_out(written(document, tmp_path), tmp_path)
    assert feature_bytes(whole) - feature_bytes(run) == figures["bytes_saved"]
    assert job.settings["cache"]["policy"] == policy
