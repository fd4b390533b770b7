"""Replicas: each layer of a box holds all that its own vertices need, once."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from emu.graph_data import open_layers
from emu.graph_data.raw_graph import build_structure
from emu.graph_data.whole_graph import Aggregation, replicate_parts
from tests.graph_data.test_whole_graph import dense, normalised

FORM = Aggregation("symmetric", loops=True)


def within(edges: NDArray[Any], start: set[int], hops: int) -> set[int]:
    """Return the vertices at most ``hops`` edges from a set, edge by edge."""
    found = set(start)
    for _ in range(hops):
        found |= {v for u, v in [*edges, *edges[:, ::-1]] if u in found}
    return found


@given(
    seed=st.integers(0, 2**32 - 1),
    boxes=st.sampled_from([[1, 1, 1], [2, 1], [3], [1, 3], [2, 2]]),
    layers=st.integers(1, 4),
)
def test_layers_of_boxes(seed: int, boxes: list[int], layers: int) -> None:
    draws = np.random.default_rng(seed)
    vertices, devices = 14, sum(boxes)
    edges = draws.integers(0, vertices, (16, 2)).astype(np.int32)
    structure = build_structure(*edges.T, vertices=vertices, origin="test")
    owner = draws.permutation(np.arange(vertices) % devices).astype(np.int32)
    every = [*replicate_parts(structure, owner, boxes, layers, FORM)]
    matrix = normalised(edges, vertices, FORM)
    box = np.repeat(np.arange(len(boxes)), boxes)

    for number in range(len(boxes)):
        members = np.flatnonzero(box == number).tolist()
        own = {*np.flatnonzero(np.isin(owner, members)).tolist()}
        parts = {d: every[d * layers : (d + 1) * layers] for d in members}
        for layer in range(1, layers + 1):
            computed = [parts[d][layer - 1].local.tolist() for d in members]
            expected = within(edges, own, layers - layer)
            assert sorted(itertools.chain(*computed)) == sorted(expected)  # each once
        for mine in parts.values():
            _check_device(mine, parts, matrix)
    for device in range(devices):
        last = every[device * layers + layers - 1]
        np.testing.assert_array_equal(last.local, np.flatnonzero(owner == device))


def _check_device(
    mine: list[Any], parts: dict[int, list[Any]], matrix: NDArray[Any]
) -> None:
    """Check inputs of layers against outputs of those before, and all weights."""
    for layer, part in enumerate(mine):
        full = np.zeros((len(part.local), len(matrix)))
        full[:, part.vertices] = dense(part.forward, len(part.vertices))
        np.testing.assert_allclose(full, matrix[part.local], rtol=1e-15)
        before = np.concatenate([part.local, part.held])
        if layer:
            np.testing.assert_array_equal(before, mine[layer - 1].local)
        for vertex, at in zip(part.remote.tolist(), part.owners.tolist(), strict=True):
            there = parts[at][layer]
            assert vertex in {*there.local.tolist(), *there.held.tolist()}


def test_layers_are_kept_and_read() -> None:
    settings = {
        "dataset": {"name": "products-like", "scale": 0.0005, "seed": 1},
        "partitioner": "metis", "parts": 3, "boxes": [], "seed": 1,
        "model": {"kind": "gcn", "norm": "symmetric", "layers": 2},
        "replicas": [2, 1],
    }  # fmt: skip
    dataset, graphs = open_layers(settings)
    expected = [*replicate_parts(dataset.structure, dataset.owner, [2, 1], 2, FORM)]
    for device in range(3):
        for layer in range(2):
            part, other = graphs[layer].part(device), expected[2 * device + layer]
            for name in ("local", "held", "remote", "owners"):
                np.testing.assert_array_equal(getattr(part, name), getattr(other, name))
            np.testing.assert_array_equal(part.forward.weights, other.forward.weights)
    plain = open_layers({**settings, "replicas": []})[1]
    assert plain[0] is plain[1]
