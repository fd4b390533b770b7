"""Mini-batches: what travels is enough to rebuild them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.graph_data import sample_batch
from emu.graph_data.sampling import Structure
from emu.host.stream_key import stream_key
from emu.training import MiniBatch


def sampled(density: float, seeds: int, layers: int, seed: int) -> MiniBatch:
    rng = np.random.default_rng(seed)
    rows = [np.flatnonzero(rng.random(30) < density) for _ in range(30)]
    structure = Structure(
        np.concatenate([[0], np.cumsum([len(row) for row in rows])]),
        np.concatenate(rows).astype(np.int32),
    )
    batch = sample_batch(
        structure, rng.permutation(30)[:seeds], fanouts=[3] * layers,
        stream=stream_key(seed),
    )  # fmt: skip
    features = rng.normal(size=(batch.sizes[0], 4)).astype(np.float32)
    return MiniBatch.of(batch, features, np.zeros(seeds, np.int32))


batches = st.builds(
    sampled,
    st.floats(0, 0.4),
    st.integers(1, 30),
    st.integers(1, 4),
    st.integers(0, 999),
)


@given(batches)
def test_sizes_are_derived_from_what_travels(batch: MiniBatch) -> None:
    """Also with vertices without neighbours and blocks without edges."""
    rebuilt = MiniBatch.from_tensors(batch.tensors(), len(batch.edges))

    assert rebuilt.sizes == batch.sizes
    for one, other in zip(rebuilt.edges, batch.edges, strict=True):
        np.testing.assert_array_equal(one, other)


@given(batches)
def test_the_bytes_are_those_of_the_formula(batch: MiniBatch) -> None:
    edges = sum(len(source) for source, _ in batch.edges)
    travelling = sum(array.nbytes for array in batch.tensors().values())

    assert travelling == 4 * 4 * batch.sizes[0] + 8 * edges + 4 * batch.sizes[-1]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda t: t.pop("labels"),
        lambda t: t.pop("source_1"),
        lambda t: t.update(features=t["features"][1:]),
        lambda t: t.update(destination_1=t["destination_1"] + 9),
        lambda t: t.update(source_0=t["source_0"][1:]),
        lambda t: t.update(source_1=t["source_1"] - 99),
        lambda t: t.update(destination_0=t["destination_0"][::-1]),
    ],
    ids=[
        "no labels",
        "no block",
        "fewer rows",
        "strangers",
        "fewer sources",
        "negative",
        "out of order",
    ],
)
def test_contradictions_are_refused(spoil: Callable[[dict[str, Any]], Any]) -> None:
    tensors = sampled(0.2, 6, 2, 1).tensors()
    spoil(tensors)

    with pytest.raises(ValueError, match=r"blocks|block's|rows"):
        MiniBatch.from_tensors(tensors, 2)
