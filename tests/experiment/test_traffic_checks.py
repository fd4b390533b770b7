"""Counts of kernels against payloads: an edit of either is a contradiction."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from emu.experiment.recompute import audit_whole
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
