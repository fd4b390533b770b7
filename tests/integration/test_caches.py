"""Rows that machines keep, over sockets: what is sent, and what is learnt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.problem import Schedule
from emu.report.html.page import write_report
from emu.scenario import prepare
from emu.systems.cache_section import cache_figures
from tests.integration.scenarios import (
    carried_out,
    check_training,
    read,
    tiny_training,
    written,
)

pytestmark = [pytest.mark.emulation, pytest.mark.untimed]

ROUNDS = 5
#: Of every row 400 bytes in float32, here twice that.
ROW = 800


def feature_bytes(schedule: Schedule) -> float:
    """Return what stores have sent to samplers, wherever these stand."""
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

    check_training(run, ROUNDS)  # every flow has the bytes that are simulated
    job = run.outcome.run.schedule.problem.job
    (figures,) = cache_figures(run.outcome.run.schedule).values()
    assert run.result["cache"] == figures
    assert figures["rows"] == 60
    assert figures["hits"] > 0
    assert figures["bytes_saved"] == figures["hits"] * ROW
    # Samplers look rows up by themselves, and tell how many they found.
    told = [report.get("hits", 0.0) for *_, report in run.outcome.run.reports]
    assert sum(told) == figures["hits"]
    assert f" {figures['hits']:,} hits, " in write_report(run.path).read_text()
    del document["job"]["cache"]
    whole = feature_bytes(prepare(read(document)).simulate())
    saved = whole - feature_bytes(run.outcome.run.schedule)
    assert saved == figures["bytes_saved"]
    assert job.settings["cache"]["policy"] == policy


@pytest.mark.parametrize(
    ("system", "keys"),
    [
        ("salient_plus_plus", {}),
        ("rapid_gnn", {"cache": {"policy": "hot", "share": 0.2, "window": 2}}),
        ("whole_graph", {}),
    ],
)
def test_rows_that_are_asked_for_weigh_and_teach_as_simulated(
    system: str, keys: dict[str, Any], tmp_path: Path
) -> None:
    document = tiny_training(ROUNDS, precision="float64", system=system, **keys)
    for key in ("workers", "samplers_per_worker"):
        document["job"].pop(key)
    document["placement"] = {"policy": "ifs"}
    run = carried_out(written(document, tmp_path), tmp_path)
    check_training(run, ROUNDS)
