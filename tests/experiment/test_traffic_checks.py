"""Counts of kernels against payloads: an edit of either is a contradiction."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.emulation.wire.frame_layout import FRAME_ROWS
from emu.experiment.recompute import audit_whole
from emu.experiment.traffic_checks import check_traffic
from emu.problem import Cluster, Edge, Job, Machine, Placement, Problem, Task
from emu.runs.audit_inputs import read_to_audit
from emu.runs.shared_run import unpack_shared
from tests.integration.edits import forge

SHARED = Path(__file__).parents[2] / "docs" / "exchange"


@pytest.mark.parametrize(
    ("key", "factor", "is_seen"),
    [
        ("out_bytes", 1.0, False),
        ("out_bytes", 0.9, True),
        ("in_bytes", 0.9, True),
        ("in_bytes", 1.5, False),  # of others: who shares a NIC is no contradiction
    ],
)
def test_a_kernel_counts_no_less_than_came(
    key: str, factor: float, *, is_seen: bool, tmp_path: Path
) -> None:
    with unpack_shared(SHARED / "p3.none-fair.zip") as folder:
        run = Path(shutil.copytree(folder, tmp_path / "run"))
    path = run / "processes.json"
    content = json.loads(path.read_text())
    counts = content["hosts"][0]["traffic"]
    counts[key] = int(counts[key] * factor)
    path.write_text(json.dumps(content))
    forge(run)

    subject = read_to_audit(run)
    report, _ = audit_whole(subject, subject.tolerance, 1e-6)

    found = [violation.constraint for violation in report.violations]
    assert found == (["traffic"] if is_seen else [])


def test_a_kernel_that_counted_the_payload_alone_is_right() -> None:
    """Two edges bring 5 and 7 bytes to m1, and one of 9 stays on a machine."""
    edges = (Edge(0, 1), Edge(0, 2), Edge(1, 2))
    tasks = tuple(Task(f"t{number}", "task") for number in range(3))
    machines = tuple(Machine(f"m{number}", 1.0, 1.0) for number in range(2))
    problem = Problem(Cluster(machines), Job(tasks, edges, 1), Placement((0, 1, 1)))
    received = np.zeros(3, FRAME_ROWS)
    received["edge"], received["bytes"] = (0, 1, 2), (5, 7, 9)
    traffic = {"out_bytes": 0, "in_bytes": 12}
    hosts = [{"name": "m1", "traffic": traffic}, {"name": "else", "traffic": {}}]
    hosts.append({"name": "m0"})
    schedule = SimpleNamespace(problem=problem)
    run: Any = SimpleNamespace(schedule=schedule, received=received, hosts=hosts)

    assert check_traffic(run) == {"traffic": (2, [])}
    traffic["in_bytes"] = 11
    count, faults = check_traffic(run)["traffic"]
    assert count == 2
    assert "counted 11 bytes in, payloads alone are 12" in faults[0].sentence
    run.hosts = []
    assert check_traffic(run) == {}
