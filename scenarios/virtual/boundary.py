"""Whole-graph training by boundary rows that are one epoch old, as PipeGCN has it.

The rows of this epoch are on their way while the layer computes with those of the last.
"""

import argparse

import torch
from torch import distributed, nn

#: Vertices of a part, those of another part that it needs, features and classes.
PART = 2000
BOUNDARY = 300
FEATURES = 128
CLASSES = 16


def main() -> None:
    """Train a graph convolution on a random graph."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    given = parser.parse_args()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    world = distributed.get_world_size()
    torch.manual_seed(rank)

    features = torch.randn(PART, FEATURES)
    labels = torch.randint(CLASSES, (PART,))
    sent = torch.randint(PART, (world, BOUNDARY))
    count = PART + world * BOUNDARY
    edges = torch.stack(
        [torch.arange(PART).repeat(10), torch.randint(count, (10 * PART,))]
    )
    adjacency = torch.sparse_coo_tensor(
        edges, torch.full((10 * PART,), 0.1), (PART, count)
    )
    torch.manual_seed(0)  # the same weights everywhere
    inner = nn.Linear(FEATURES, FEATURES)
    outer = nn.Linear(FEATURES, CLASSES)
    weights = [*inner.parameters(), *outer.parameters()]
    optimiser = torch.optim.SGD(weights, lr=0.01)

    stale = torch.zeros(world * BOUNDARY, FEATURES)
    for step in range(given.steps):
        hidden = inner(features).relu()
        fresh = torch.empty_like(stale)
        rows = hidden.detach()[sent.flatten()]
        under_way = distributed.all_to_all_single(fresh, rows, async_op=True)
        scores = outer(torch.sparse.mm(adjacency, torch.cat([hidden, stale])))
        loss = nn.functional.cross_entropy(scores, labels)
        optimiser.zero_grad()
        loss.backward()
        gradients = torch.cat([weight.grad.flatten() for weight in weights])
        distributed.all_reduce(gradients, distributed.ReduceOp.AVG)
        parts = gradients.split([weight.numel() for weight in weights])
        for weight, part in zip(weights, parts, strict=True):
            weight.grad.copy_(part.view_as(weight))
        optimiser.step()
        under_way.wait()
        stale = fresh
        print(f"step {step} loss {loss.item():.6f}", flush=True)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
