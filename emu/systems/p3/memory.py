"""Memory of devices that P3 takes: columns, versions of weights, batches under way."""

from __future__ import annotations

from collections.abc import Mapping

from emu.graph_data import count_job, open_for
from emu.problem import Job
from emu.problem.workloads import SampleCounts, model_shapes
from emu.systems.device_memory import (
    COLUMNS,
    Parts,
    batch_bytes,
    most_of_batches,
    weight_bytes,
)
from emu.systems.p3.builder import P3Builder
from emu.systems.p3.operations import FEATURE_BYTES
from emu.systems.p3.volumes import SplitModel


def count_memory(
    builder: P3Builder,
    job: Job,
    split: SplitModel,
) -> Mapping[str, Parts]:
    """Return task ``Mf`` of every machine -> what the machine keeps on its device.

    As many mini-batches are there at a time as the pipeline has under way: of its own
    what its layers compute, of its group the columns and what layer 1 gives.
    """
    settings = job.settings
    dataset = open_for(settings)
    counts = count_job(settings, dataset, builder.batches)

    def layers_bytes(batch: SampleCounts) -> float:
        # Features are by columns, counted below: a row has no bytes here.
        return batch_bytes(
            batch,
            settings["model"],
            dataset.classes,
            row=0,
            number=split.itemsize,
        )

    def first_layer_bytes(batch: SampleCounts, columns: int) -> float:
        rows = FEATURE_BYTES * columns * batch.inputs
        edges = model_shapes.BLOCK_EDGE_BYTES * batch.first_edges
        pulled = split.pull_bytes(batch)
        return float(rows + edges + pulled)

    memory: dict[str, Parts] = {}
    for rank in range(len(builder.machines)):
        columns = builder.columns_of(rank, dataset.feature_length)
        samplers = builder.samplers_of(rank)
        sizes = [list(map(layers_bytes, counts[sampler])) for sampler in samplers]
        if columns:
            for sampler in builder.samplers_of_group(rank):
                batches = counts[sampler]
                sizes.append([first_layer_bytes(batch, columns) for batch in batches])

        # Of layer 1 a machine has the rows of its own columns alone.
        parameters = split.first_width * columns + split.upper
        # Updates under way leave as many older versions of the weights in use.
        versions = builder.pipeline.missed * split.upper * split.itemsize
        under_way = builder.pipeline.depth + 1
        weights = weight_bytes(settings, parameters, steps=True)
        parts = {
            "weights": weights + versions,
            "mini-batches": under_way * most_of_batches(sizes),
        }
        if builder.entries[rank] == "Mf":
            rows = dataset.vertices * columns
            parts[COLUMNS] = float(rows * FEATURE_BYTES)
        memory[f"Mf{rank}"] = parts
    return memory
