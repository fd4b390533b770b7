"""Operations of the tasks of a Dorylus job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from emu.problem import Job
from emu.problem.workloads.operations import LayerWork, Operations
from emu.systems.dorylus.volumes import weight_bytes
from emu.systems.training_section import number_bytes

if TYPE_CHECKING:
    from emu.graph_data.intervals import IntervalCounts
    from emu.systems.dorylus.keys import DorylusKeys


def count_step(
    section: DorylusKeys,
    kind: str,
    layer: int,
    widths: Sequence[int],
    sizes: tuple[float, float],
) -> dict[str, float]:
    """Return the operations of a task of an interval; none of one that only sends.

    A gather adds rows as they are: before they are multiplied in a GCN, after that in a
    GAT. Backwards it adds gradients of these.

    Parameters
    ----------
    kind, layer
        Of its step.
    widths
        f_0 .. f_L.
    sizes
        Vertices of the interval, and edges into it with a loop for each vertex.
    """
    vertices, edges = sizes
    before, after = widths[layer], widths[layer + 1]
    first, forward = layer == 0, LayerWork(0.0, vertices * before * after, True)
    if kind in {"gather", "gather_back"}:
        width = after if section.attends else before
        return LayerWork(edges * width, 0.0, narrows=True).forward
    if kind in {"edge_apply", "edge_apply_back"}:  # two products of a row with a vector
        of_edges = LayerWork(0.0, edges * 2 * after, narrows=True)
        back = of_edges.backward(first=False)
        return of_edges.forward if kind == "edge_apply" else back
    amounts = dict.fromkeys(forward.forward, 0.0)
    is_fused = section.fuse and not section.attends and layer == len(widths) - 2
    passes = [forward.forward] if kind == "apply" or section.rematerialize else []
    if kind == "apply_back" or (kind == "apply" and is_fused):
        passes.append(forward.backward(first=first))
    for one in passes:
        amounts = {name: amounts[name] + amount for name, amount in one.items()}
    return amounts


def count_steps(
    section: DorylusKeys,
    job: Job,
    counts: IntervalCounts,
    widths: Sequence[int],
    volumes: NDArray[np.float64],
) -> Operations:
    """Return the operations of a Dorylus job in every epoch.

    Parameters
    ----------
    counts
        Sizes of the intervals.
    widths
        f_0 .. f_L: features, hidden layers, classes.
    volumes
        Real bytes of (edge, 1): the same in every epoch.
    """
    itemsize = number_bytes(job.settings)
    weights = weight_bytes(section, widths, itemsize)
    operations = Operations(job)
    operations.add_bytes(job, volumes, "scatter", "scatter_back")
    operations.add_gradients(job, volumes, itemsize, "gradient_sum", "weight_update")
    work = ("gather", "apply", "edge_apply")
    for t, task in enumerate(job.tasks):
        if task.kind.removesuffix("_back") in work:
            interval = task.settings["interval"]
            vertices = float(counts.vertices[interval])
            sizes = vertices, vertices + float(counts.edges[interval])
            layer = task.settings["layer"]
            operations.add(t, count_step(section, task.kind, layer, widths, sizes))
        elif task.kind == "weight_update":
            size = sum(weights[task.settings["layer"]])
            operations.add(t, {"step": size / itemsize})
    return operations
