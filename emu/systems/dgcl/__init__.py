"""DGCL: rows of embeddings travel along trees of links, planned for those there are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from emu.problem import Job
from emu.systems.dgcl.job import CARRIES, PROGRAMS
from emu.systems.setup import Transfer, ghost_features
from emu.systems.system import (
    AS_ONE_DEVICE,
    GRADIENT_MODULES,
    System,
    calling,
    equal_states,
    initial_weights,
    on_demand,
)


def _list_setup(job: Job) -> Iterator[Transfer]:
    """Yield features of vertices that others own, straight from them, and weights.

    Those of remote vertices where they are kept, and of replicas in any case.
    """
    from emu.graph_data import open_layers  # noqa: PLC0415 - numpy

    dataset, graphs = open_layers(job.settings)
    graph = graphs[0]
    parts = [graph.part(number) for number in range(graph.parts)]
    computed_vertices = [np.concatenate([part.local, part.held]) for part in parts]
    is_kept = job.settings["cache_features"]
    reads = [part.vertices for part in parts] if is_kept else computed_vertices
    devices = [f"d{rank}.layer1" for rank in range(len(parts))]
    row = np.dtype(job.settings["precision"]).itemsize * dataset.feature_length
    yield from ghost_features(devices, reads, dataset.owner, row)
    yield from initial_weights(job)


DGCL = System(
    "dgcl",
    on_demand("emu.systems.dgcl.section:DgclJobSection"),
    programs=PROGRAMS,
    knobs={
        "partitioner": ("metis", "hash"),
        "cache_features": (True, False),
        "plan": ("best_of",),
    },
    translation=on_demand("emu.systems.dgcl.section:TRANSLATION"),
    needs_torch=True,
    late_modules=GRADIENT_MODULES,
    trainer=AS_ONE_DEVICE,
    open_data=calling("emu.systems.dgcl.plans:open_plans"),
    # With one layer there is no `gradient1`: layer 1 ends the step itself.
    step_kinds=("gradient1", "layer1"),
    **equal_states("layer1"),
    setup=_list_setup,
    carries=CARRIES,
    remarks=calling("emu.systems.dgcl.remarks:gather_lines"),
    outlook=calling("emu.systems.dgcl.plans:plan_lines"),
)
