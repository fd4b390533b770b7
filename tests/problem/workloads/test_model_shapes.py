"""Shapes of a model's tensors, its parts, and counts of samples, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from emu.problem.workloads.model_shapes import (
    ANSWERED_EDGE_BYTES,
    BLOCK_EDGE_BYTES,
    COUNT_BYTES,
    LABEL_BYTES,
    VERTEX_ID_BYTES,
    SampleCounts,
    layer_shapes,
    parameter_count,
    shard_bounds,
    shard_sizes,
)

#: Widths are 5, 4 and 3; heads are of the first layer alone.
MODEL: dict[str, Any] = {"hidden": 4, "layers": 2, "heads": 2}


@pytest.mark.parametrize(
    ("kind", "first", "last", "parameters"),
    [
        ("sage", ((4, 5), (4, 5), (4,)), ((3, 4), (3, 4), (3,)), 44 + 27),
        ("gcn", ((4, 5), (4,)), ((3, 4), (3,)), 24 + 15),
        (
            "gat",
            ((4, 5), (2, 2), (2, 2), (4,)),
            ((3, 4), (1, 3), (1, 3), (3,)),
            32 + 21,
        ),
        (
            "gin",
            ((4, 5), (4,), (4, 4), (4,)),
            ((3, 4), (3,), (3, 3), (3,)),
            44 + 27,
        ),
        ("commnet", ((4, 5), (4, 5)), ((3, 4), (3, 4)), 40 + 24),
        ("plain_gcn", ((4, 5),), ((3, 4),), 20 + 12),
        ("plain_gat", ((4, 5), (1, 4), (1, 4)), ((3, 4), (1, 3), (1, 3)), 28 + 18),
    ],
)
def test_layers_have_the_tensors_of_their_kind(
    kind: str, first: Any, last: Any, parameters: int
) -> None:
    model = {**MODEL, "kind": kind}

    assert list(layer_shapes(model, 5, 3)) == [first, last]
    assert parameter_count(model, 5, 3) == parameters


def test_a_program_notes_its_parameters_and_a_model_is_graphsage() -> None:
    assert parameter_count({"program": "m.py:Model", "parameters": 17}, 5, 3) == 17
    assert parameter_count({"hidden": 4, "layers": 1}, 5, 3) == 2 * 15 + 3


def test_the_first_parts_are_longer_by_one() -> None:
    assert shard_sizes(11, 4) == (3, 3, 3, 2)
    assert shard_sizes(12, 4) == (3, 3, 3, 3)
    assert shard_sizes(2, 3) == (1, 1, 0)
    assert shard_bounds(11, 4) == [(0, 3), (3, 6), (6, 9), (9, 11)]


def test_counts_of_a_sample_go_by_store_and_by_layer() -> None:
    """Hops go from the seeds inwards, layers from the input outwards."""
    counts = SampleCounts(
        owned=(3, 40),
        edges=12,
        seeds=2,
        frontier_owned=((1, 1), (2, 3)),
        answered=((2, 1), (4, 5)),
    )
    assert counts.inputs == 43
    assert counts.block_edges == (9, 3)
    assert counts.block_vertices == (43, 5, 2)
    assert [counts.sent(store) for store in (0, 1)] == [3, 40]
    assert [counts.sent_ahead(store) for store in (0, 1)] == [0, 0]

    cached = SampleCounts((3, 40), 12, 2, hits=(1, 7), ahead=(5, 6))
    assert [cached.sent(store) for store in (0, 1)] == [2, 33]
    assert [cached.sent_ahead(store) for store in (0, 1)] == [5, 6]


def test_sizes_of_structure_are_those_of_32_and_64_bits() -> None:
    """An edge of a block is two int32; answered on request, two int64."""
    assert (LABEL_BYTES, COUNT_BYTES, BLOCK_EDGE_BYTES) == (4, 4, 2 * 4)
    assert (VERTEX_ID_BYTES, ANSWERED_EDGE_BYTES) == (8, 2 * 8)
