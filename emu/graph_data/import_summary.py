"""Summary of an import, in lines that a person can check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from emu.graph_data.raw_graph import RawGraph

#: Classes that a line shows.
_SHOWN = 8


def summarize(graph: RawGraph, split_origin: str) -> dict[str, Any]:
    """Return the facts of an import, JSON values.

    ``split_origin`` is empty for the file itself.
    """
    sizes = np.bincount(graph.labels[graph.labels >= 0], minlength=graph.classes)
    degrees = np.diff(graph.structure.indptr)
    pairs = len(graph.structure.indices) // 2
    is_drawn = not len(graph.train)
    return {
        "vertices": graph.structure.vertices,
        "edges": 2 * pairs,
        "edges_given": graph.edges_given,
        "self_loops": graph.self_loops,
        "doubles": graph.edges_given - graph.self_loops - pairs,
        "isolated": int((degrees == 0).sum()),
        "classes": graph.classes,
        "class_sizes": sizes.tolist(),
        "class_names": [*graph.class_names],
        "unlabelled": int((graph.labels < 0).sum()),
        "feature_length": graph.feature_length,
        "train": len(graph.train),
        "valid": len(graph.valid),
        "test": len(graph.test),
        "split_origin": "drawn at random" if is_drawn else split_origin or "the file",
        "parts": int(graph.owner.max()) + 1 if graph.owner is not None else 0,
    }


def summary_lines(facts: Mapping[str, Any]) -> list[str]:
    """Return the facts of an import as lines for people."""
    names = facts["class_names"] or [*map(str, range(facts["classes"]))]
    pairs = zip(names, facts["class_sizes"], strict=True)
    sizes = [f"{name}: {size:,}" for name, size in pairs]
    more = ["..."] if len(sizes) > _SHOWN else []
    classes = ", ".join([*sizes[:_SHOWN], *more])
    if facts["unlabelled"]:
        classes += f"; {facts['unlabelled']:,} vertices without"
    split = f"{facts['split_origin']}, 60 : 20 : 20 of what has a label"
    if facts["train"]:
        counts = (f"{facts[part]:,} {part}" for part in ("train", "valid", "test"))
        split = f"{', '.join(counts)}, by {facts['split_origin']}"
    loops = f"{facts['self_loops']:,} self-loops"
    doubles = f"{facts['doubles']:,} doubles (in either direction)"
    lines = [
        *facts["notes"],
        f"edges: {facts['edges_given']:,} given; dropped: {loops}, {doubles}",
        f"vertices: {facts['vertices']:,}; {facts['isolated']:,} without an edge",
        f"classes: {classes}",
        f"split: {split}",
    ]
    if facts["ids"]:
        lines.append(f"ids: {facts['ids']}")
    if facts["parts"]:
        lines.append(f"{facts['parts']} parts of its own: job.partitioner: imported")
    return lines
