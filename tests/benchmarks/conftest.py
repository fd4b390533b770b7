"""These tests ask how good searches are, or how fast."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def short_searches() -> None:
    """Search as users do."""
