"""Optimisers: equal to torch's, and to themselves when sharded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.problem.workloads import shard_bounds
from emu.training import make_optimizer, mean_gradient


def stepped(
    name: str, start: Any, gradients: list[Any], half_life: int | None = None
) -> Any:
    parameters = start.copy()
    stated = {"name": name, "lr": 0.02, "half_life": half_life}
    optimizer = make_optimizer({"optimizer": stated}, parameters)
    for gradient in gradients:
        optimizer.step(gradient)
    return parameters


@pytest.mark.parametrize("half_life", [None, 8])
@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_steps_equal_those_of_torch(name: str, half_life: int | None) -> None:
    import torch

    rng = np.random.default_rng(0)
    start, gradients = rng.normal(size=50), list(rng.normal(size=(30, 50)))
    parameter = torch.nn.Parameter(torch.tensor(start))
    make = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[name]
    optimizer = make([parameter], lr=0.02)
    gamma = 0.5 ** (1 / half_life) if half_life else 1.0
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma)
    for gradient in gradients:
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
        schedule.step()

    expected = parameter.detach().numpy()
    found = stepped(name, start, gradients, half_life)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@given(st.integers(1, 40), st.integers(1, 5), st.sampled_from(["adam", "sgd"]))
def test_sharded_steps_are_bitwise_equal(count: int, servers: int, name: str) -> None:
    rng = np.random.default_rng(count)
    start = rng.normal(size=count).astype(np.float32)
    gradients = list(rng.normal(size=(4, count)).astype(np.float32))
    shards = [
        stepped(name, start[first:last], [g[first:last] for g in gradients])
        for first, last in shard_bounds(count, servers)
    ]

    whole = stepped(name, start, gradients)
    assert whole.dtype == np.float32
    np.testing.assert_array_equal(np.concatenate(shards), whole)


@pytest.mark.parametrize("half_life", [None, 8])
@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_what_is_restored_goes_on_bit_by_bit(name: str, half_life: int | None) -> None:
    rng = np.random.default_rng(1)
    start, gradients = rng.normal(size=7), list(rng.normal(size=(9, 7)))
    stated = {"optimizer": {"name": name, "lr": 0.02, "half_life": half_life}}
    optimizer = make_optimizer(stated, start.copy())
    for gradient in gradients[:5]:
        optimizer.step(gradient)
    parameters = np.zeros(7)
    restored = make_optimizer(stated, parameters)
    restored.restore(optimizer.state())
    for gradient in gradients[5:]:
        restored.step(gradient)
    whole = stepped(name, start, gradients, half_life)
    np.testing.assert_array_equal(parameters, whole)


@given(st.integers(0, 100), st.integers(1, 9))
def test_shards_are_those_of_array_split(count: int, servers: int) -> None:
    shards = [np.arange(count)[a:b] for a, b in shard_bounds(count, servers)]

    for shard, expected in zip(
        shards, np.array_split(np.arange(count), servers), strict=True
    ):
        np.testing.assert_array_equal(shard, expected)


def test_the_mean_is_summed_in_rank_order() -> None:
    """1e16 + 1 - 1e16 is 0 in this order, and would be 1 in another."""
    ranks = [np.array([1e16]), np.array([1.0]), np.array([-1e16])]

    assert mean_gradient(ranks).tolist() == [0.0]
    assert mean_gradient([ranks[0], ranks[2], ranks[1]]).tolist() == [1 / 3]


def test_the_mean_leaves_its_inputs_alone() -> None:
    ranks = [np.ones(2), np.full(2, 3.0)]

    assert mean_gradient(ranks).tolist() == [2.0, 2.0]
    assert ranks[0].tolist() == [1.0, 1.0]


def test_misuse_is_refused() -> None:
    with pytest.raises(ValueError, match="no gradient"):
        mean_gradient([])
    with pytest.raises(ValueError, match="neither adam nor sgd"):
        stepped("rmsprop", np.zeros(1), [])
