"""A first layer computed column by column gives what the whole layer gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emu.graph_data import BatchPlan, open_columns, open_for
from emu.problem.workloads import SPLIT_WEIGHTS
from emu.systems.p3.column_split import ColumnSplit
from emu.training import GraphModel, MiniBatch, initial_parameters
from emu.training.layers import Block

#: 100 columns, which three machines cannot share evenly.
BLOCKS = (34, 33, 33)


def settings(kind: str, layers: int) -> dict[str, Any]:
    return {
        "dataset": {"name": "products-like", "scale": 0.001, "seed": 3},
        "partitioner": "hash",
        "parts": 2,
        "model": {"kind": kind, "hidden": 8, "layers": layers, "heads": 2},
        "fanouts": [4, 6][:layers],
        "batch_size": 12,
        "workers": 1,
        "samplers_per_worker": 1,
        "precision": "float64",
        "epoch": "replicate",
        "seed": 7,
    }


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", SPLIT_WEIGHTS)
def test_parts_sum_up_to_the_model(kind: str, layers: int) -> None:
    job = settings(kind, layers)
    dataset = open_for(job)
    batch = BatchPlan.from_settings(job).batch(dataset.structure, dataset.train, 0, 0)
    labels = dataset.labels[batch.seeds]
    flat = initial_parameters(job, dataset)
    model = GraphModel(job, dataset)
    model.load(flat)
    whole = MiniBatch.of(batch, dataset.gather(batch.vertices), labels)
    expected, loss, accuracy = model.gradient([whole])

    columns = open_columns(dataset, BLOCKS)
    splits = [ColumnSplit(job, dataset, BLOCKS, number) for number in range(3)]
    rows = [columns.array(f"columns_{number}")[batch.vertices] for number in range(3)]
    block = Block(*batch.edges[0], batch.sizes[0], batch.sizes[1])
    own = [split.own(flat) for split in splits]
    parts = [
        split.partial(weights, block, part)
        for split, weights, part in zip(splits, own, rows, strict=True)
    ]
    total = parts[0] + parts[1] + parts[2]
    upper = splits[0].upper(flat)
    done = splits[0].forward(upper, batch.sizes, batch.edges, total, labels)
    of_upper, of_sum = done.backward()
    of_own = [
        split.own_gradient(block, part, of_sum)
        for split, part in zip(splits, rows, strict=True)
    ]

    assert splits[1].columns == slice(34, 67)
    np.testing.assert_array_equal(splits[0].join(own, upper), flat)
    assert (done.loss, done.accuracy) == pytest.approx((loss, accuracy), rel=1e-12)
    found = splits[0].join(of_own, of_upper)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-13)


def test_seeds_that_are_a_part_of_a_mini_batch_count_by_their_share() -> None:
    """Samplers of a machine share its mini-batch: a quarter of loss and gradient."""
    job = settings("gcn", 2)
    dataset = open_for(job)
    batch = BatchPlan.from_settings(job).batch(dataset.structure, dataset.train, 0, 0)
    labels = dataset.labels[batch.seeds]
    split = ColumnSplit(job, dataset, [dataset.feature_length], 0)
    flat = initial_parameters(job, dataset)
    block = Block(*batch.edges[0], batch.sizes[0], batch.sizes[1])
    summed = split.partial(split.own(flat), block, dataset.gather(batch.vertices))
    upper = split.upper(flat)
    whole = split.forward(upper, batch.sizes, batch.edges, summed, labels)
    part = split.forward(upper, batch.sizes, batch.edges, summed, labels, share=0.25)

    assert part.loss == pytest.approx(whole.loss / 4)
    assert part.accuracy == pytest.approx(whole.accuracy / 4)
    for quarter, all_of_it in zip(part.backward(), whole.backward(), strict=True):
        np.testing.assert_allclose(quarter, all_of_it / 4, rtol=1e-12)
