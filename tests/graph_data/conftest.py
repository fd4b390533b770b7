"""A cache of the tests' own, and small graph files to read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of the prepared data sets of one test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "emu" / "prepared"


@pytest.fixture
def npz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write ``tiny``: five vertices, a path; arrays may be replaced by keyword."""

    def write(**changes: Any) -> Path:
        arrays: dict[str, Any] = {
            "adj_indptr": [0, 1, 2, 3, 4, 4],
            "adj_indices": [1, 2, 3, 4],
            "adj_shape": [5, 5],
            "attr_indptr": [0, 2, 3, 4, 5, 6],
            "attr_indices": [0, 1, 1, 2, 0, 2],
            "attr_data": np.array([3, 4, 1, 2, 1, 1], np.float32),
            "attr_shape": [5, 3],
            "labels": [0, 1, 1, 0, 2],
            **changes,
        }
        folder = tmp_path / "data" / "tiny"
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / "tiny.npz", **arrays)
        return folder / "tiny.npz"

    monkeypatch.setenv("EMU_DATA", str(tmp_path / "data"))
    return write
