"""The data set of a job: one that is held, or one that is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from emu.graph_data.dataset import Dataset, open_dataset
from emu.graph_data.drawn_graph import DrawnGraph


def open_for(settings: Mapping[str, Any]) -> Dataset:
    """Open the data set of a job from ``Job.settings``; raises as `open_dataset`."""
    dataset = dict(settings["dataset"])
    partitioner = settings["partitioner"]
    parts = settings["parts"]
    if dataset.pop("drawn", False):
        return _draw(partitioner, parts, **dataset)
    return open_dataset(
        **dataset,
        partitioner=partitioner,
        parts=parts,
        boxes=settings.get("boxes") or (),
    )


@lru_cache(maxsize=8)
def _draw(partitioner: str, parts: int, **dataset: Any) -> DrawnGraph:
    return DrawnGraph(dataset, partitioner, parts)
