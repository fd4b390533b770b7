"""Whole-graph training by boundary rows that are one epoch old, as PipeGCN has it.

The rows of this epoch are on their way while the layer computes with those of the last;
gradients of rows that others read come back an epoch later, too.
"""

import argparse

import torch
from torch import distributed, nn

#: Vertices of a part, those of another part that it needs, features and classes.
PART = 2000
BOUNDARY = 300
FEATURES = 128
CLASSES = 16


def draw_edges(world: int) -> torch.Tensor:
    """Return who reads whom: the part's vertices by its own and those of others."""
    count = PART + world * BOUNDARY
    readers = torch.arange(PART).repeat(10)
    edges = torch.stack([readers, torch.randint(count, (10 * PART,))])
    weights = torch.full((10 * PART,), 0.1)
    return torch.sparse_coo_tensor(edges, weights, (PART, count))


def exchange(rows: torch.Tensor) -> tuple[torch.Tensor, distributed.Work]:
    """Begin to give every rank its rows; return what comes, and when it is there."""
    taken = torch.empty_like(rows)
    work = distributed.all_to_all_single(taken, rows.detach(), async_op=True)
    return taken, work


def average_gradients(weights: list[nn.Parameter]) -> None:
    """Have every rank hold the mean of all ranks' gradients."""
    gradients = torch.cat([weight.grad.flatten() for weight in weights])
    distributed.all_reduce(gradients, distributed.ReduceOp.AVG)
    parts = gradients.split([weight.numel() for weight in weights])
    for weight, part in zip(weights, parts, strict=True):
        weight.grad.copy_(part.view_as(weight))


def main() -> None:
    """Train a graph convolution on a random graph."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--backend", default="gloo")
    given = parser.parse_args()
    torch.set_num_threads(1)
    distributed.init_process_group(given.backend)
    world = distributed.get_world_size()
    torch.manual_seed(distributed.get_rank())

    features = torch.randn(PART, FEATURES)
    labels = torch.randint(CLASSES, (PART,))
    sent = torch.randint(PART, (world * BOUNDARY,))
    adjacency = draw_edges(world)
    torch.manual_seed(0)  # the same weights everywhere
    inner = nn.Linear(FEATURES, FEATURES)
    outer = nn.Linear(FEATURES, CLASSES)
    weights = [*inner.parameters(), *outer.parameters()]
    optimiser = torch.optim.SGD(weights, lr=0.01)

    # What others gave in the last epoch: their rows, and gradients of those sent there.
    stale = torch.zeros(world * BOUNDARY, FEATURES)
    returned = torch.zeros_like(stale)
    under_way: list[distributed.Work] = []
    for step in range(given.steps):
        hidden = inner(features).relu()
        rows = hidden[sent]
        fresh, rows_work = exchange(rows)
        for work in under_way:
            work.wait()
        stale.requires_grad_()
        scores = outer(torch.sparse.mm(adjacency, torch.cat([hidden, stale])))
        loss = nn.functional.cross_entropy(scores, labels)
        optimiser.zero_grad()
        (loss + (rows * returned).sum()).backward()
        back, back_work = exchange(stale.grad)
        average_gradients(weights)
        optimiser.step()
        stale = fresh
        returned = back
        under_way = [rows_work, back_work]
        print(f"step {step} loss {loss.item():.6f}", flush=True)
    for work in under_way:
        work.wait()
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
