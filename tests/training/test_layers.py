"""Every layer beside the one of dgl.nn, on blocks that were really sampled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emu.problem.workloads import SPLIT_WEIGHTS, layer_shapes
from emu.training.layers import LAYERS, Block
from tests.training.test_mini_batch import sampled

HEADS = 3


def as_dgl(block: Block, *, loops: bool) -> Any:
    """Return a block of dgl, with an edge from every destination to itself or not."""
    dgl = pytest.importorskip("dgl")
    import torch

    own = np.arange(block.inner, dtype=np.int32)[: block.inner if loops else 0]
    ends = [
        torch.tensor(np.concatenate([end, own]))
        for end in (block.source, block.destination)
    ]
    return dgl.create_block(
        (ends[0], ends[1]), num_src_nodes=block.outer, num_dst_nodes=block.inner
    )


def of_dgl(kind: str, tensors: list[Any], block: Block, hidden: Any) -> Any:
    """Return what dgl.nn computes from the same tensors."""
    nn = pytest.importorskip("dgl.nn")
    import torch

    after, before = tensors[0].shape

    def filled(*pairs: tuple[Any, Any]) -> None:
        for parameter, tensor in pairs:
            parameter.data = tensor.detach().view(parameter.shape).clone()

    made: Any
    if kind in ("sage", "gcn"):
        made = nn.SAGEConv(before, after, "mean" if kind == "sage" else "gcn")
        own = [(made.fc_self.weight, tensors[1])] if kind == "sage" else []
        bias = made.fc_self.bias if kind == "sage" else made.bias
        filled((made.fc_neigh.weight, tensors[0]), *own, (bias, tensors[-1]))
    elif kind == "gat":
        made = nn.GATConv(before, after // HEADS, HEADS)
        parts = (made.fc.weight, made.attn_l, made.attn_r, made.bias)
        filled(*zip(parts, tensors, strict=True))
    else:
        first, second = torch.nn.Linear(before, after), torch.nn.Linear(after, after)
        made = nn.GINConv(torch.nn.Sequential(first, torch.nn.ReLU(), second))
        parts = (first.weight, first.bias, second.weight, second.bias)
        filled(*zip(parts, tensors, strict=True))
    made = made.to(hidden.dtype)
    if kind == "gin":
        return made(as_dgl(block, loops=False), (hidden, hidden[: block.inner]))
    return made(as_dgl(block, loops=kind == "gat"), hidden).flatten(1)


@pytest.mark.parametrize("kind", SPLIT_WEIGHTS)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("before", "after"), [(4, 6), (7, 3)])
@pytest.mark.parametrize(
    ("precision", "tolerance"), [("float32", 1e-5), ("float64", 1e-13)]
)
def test_a_layer_and_its_gradient_are_those_of_dgl(
    kind: str, seed: int, before: int, after: int, precision: str, tolerance: float
) -> None:
    """Vertices without neighbours are among the destinations."""
    import torch

    batch = sampled(0.02 + 0.08 * seed, 6, 2, seed)
    block = Block(*batch.edges[0], batch.sizes[0], batch.sizes[1])
    rng = np.random.default_rng(seed)

    def drawn(*shape: int) -> Any:
        values = torch.tensor(rng.normal(size=shape), dtype=getattr(torch, precision))
        return values.requires_grad_()

    model = {"kind": kind, "hidden": after, "layers": 2, "heads": HEADS}
    shapes = next(layer_shapes(model, before, 5))
    tensors, hidden = [drawn(*shape) for shape in shapes], drawn(block.outer, before)
    results = []
    for compute in (LAYERS[kind], lambda b, h, *ts: of_dgl(kind, [*ts], b, h)):
        hidden.grad = None
        out = compute(block, hidden, *tensors)
        torch.autograd.backward((out * out).sum())
        results.append((out.detach().numpy(), hidden.grad.numpy()))
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance * 10)


def test_means_are_those_of_dgl_to_the_bit() -> None:
    import torch

    batch = sampled(0.3, 8, 2, 1)
    block = Block(*batch.edges[0], batch.sizes[0], batch.sizes[1])
    hidden = torch.tensor(batch.features)
    nothing, one, none = torch.zeros(4, 4), torch.eye(4), torch.zeros(4)
    tensors = [one, nothing, none]

    assert torch.equal(
        LAYERS["sage"](block, hidden, *tensors), of_dgl("sage", tensors, block, hidden)
    )


@pytest.mark.parametrize(
    ("source", "destination"),
    [([5], [0]), ([-1], [0]), ([0], [2]), ([0, 1], [1, 0]), ([0, 1], [0])],
)
def test_edges_that_leave_their_sets_are_refused(
    source: list[int], destination: list[int]
) -> None:
    with pytest.raises(ValueError, match="a block's"):
        Block(np.array(source), np.array(destination), outer=3, inner=2)
