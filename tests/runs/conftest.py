"""The run directory that the report tests read, too."""

from __future__ import annotations

from tests.report.conftest import run

__all__ = ["run"]
