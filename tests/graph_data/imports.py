"""Bringing graphs in, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from emu.graph_data.dataset import open_dataset
from emu.graph_data.imported import import_graph, imports_home


def imported(path: Path, **options: Any) -> Any:
    """Bring a graph in under a name of its own, and open it."""
    name = f"own{len(list(imports_home().glob('*')))}"
    import_graph(path, name, **options)
    return open_dataset(name)


def neighbours(dataset: Any) -> list[list[int]]:
    indptr, indices = dataset.structure.indptr, dataset.structure.indices
    return [indices[indptr[v] : indptr[v + 1]].tolist() for v in range(len(indptr) - 1)]


def edge_cut(structure: Any, owner: Any) -> float:
    """Return the share of edges whose ends have different owners."""
    destinations = np.repeat(np.arange(structure.vertices), np.diff(structure.indptr))
    return float(np.mean(owner[structure.indices] != owner[destinations]))
