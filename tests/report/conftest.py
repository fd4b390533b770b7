"""One run directory for all tests that only read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report.recorded import write_run


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run directory that must not be changed."""
    return write_run(tmp_path_factory.mktemp("runs") / "golden-1")
