"""The runs that we ship pass their audit, and the table of them says what they hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emu.runs.recorded_run import load_run
from emu.runs.shared_run import unpack_shared
from tests import draws
from tests.integration.scenarios import emu
from tools.runner import Ledger
from tools.studies.exchange import CASES, Shared

DOCS = Path(__file__).parents[2] / "docs"
ROWS = Ledger(DOCS / "exchange" / "rows.csv", Shared).rows


@pytest.fixture(scope="module", autouse=True)
def short_searches() -> None:
    """Search as the runs did, in full."""


def test_every_system_and_network_is_there() -> None:
    stated = {f"{name}-{network}" for name, some in CASES.items() for network in some}
    files = {path.stem for path in (DOCS / "exchange").glob("*.zip")}
    assert stated == files == {row.case for row in ROWS}
    table = (DOCS / "exchange" / "table.txt").read_text().strip()
    assert table in (DOCS / "results.md").read_text()


@pytest.mark.parametrize("row", draws.rarely_but(2, ROWS), ids=lambda row: row.case)
def test_a_run_that_we_ship_passes_its_audit(row: Shared) -> None:
    """And its own records have the figures of the table."""
    file = DOCS / "exchange" / f"{row.case}.zip"
    audited = emu("audit", file, "--json", "-", cwd=DOCS)
    assert audited.returncode == 0, audited.stderr
    assert json.loads(audited.stdout)["violations"] == []
    with unpack_shared(file) as there:
        content = load_run(there).result
    assert content["makespan"] == row.emulated
    assert content["predicted_makespan"] == row.expected
    assert content["verdict"]["trust"] == row.trust
