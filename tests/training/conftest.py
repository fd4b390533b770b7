"""Settings of a small job, and a cache of the tests' own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def settings() -> dict[str, Any]:
    """``Job.settings`` of a job on 2,449 vertices."""
    return {
        "dataset": {"name": "products-like", "scale": 0.001, "seed": 3},
        "partitioner": "hash",
        "parts": 2,
        "model": {"hidden": 16, "layers": 2},
        "fanouts": [4, 6],
        "batch_size": 12,
        "workers": 2,
        "samplers_per_worker": 1,
        "parameter_servers": 1,
        "optimizer": {"name": "adam", "lr": 0.01},
        "sampling": "oneshot",
        "precision": "float64",
        "epoch": "replicate",
        "compute": "real",
        "seed": 7,
    }
