"""One run directory for all tests that only read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.report.recorded import write_run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run directory that must not be changed."""
    return write_run(tmp_path_factory.mktemp("runs") / "golden-1")
