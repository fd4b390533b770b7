"""Graphs in parts, held in memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emu.graph_data import WholeGraph
from emu.graph_data.sampling import Structure
from emu.graph_data.whole_graph import Aggregation, split_graph


def whole_of(
    structure: Structure, owner: NDArray[np.int32], parts: int, form: Aggregation
) -> WholeGraph:
    every = [*split_graph(structure, owner, parts, form)]
    return WholeGraph(structure.vertices, parts, every.__getitem__)
