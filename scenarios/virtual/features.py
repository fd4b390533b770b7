"""Mini-batches whose features lie on all ranks: fetched by all_to_all, then DDP.

As WholeGraph and cuGraph fetch them: ids to their owners, rows back.
"""

import argparse

import torch
from torch import distributed, nn

#: Vertices, their neighbours that a batch draws, features and classes.
VERTICES = 100_000
FANOUT = 10
FEATURES = 128
CLASSES = 256


def fetch(ids: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """Return the rows of vertices, wherever they lie, in the order of ``ids``."""
    world = distributed.get_world_size()
    owner = ids % world
    order = owner.argsort(stable=True)
    asked = ids[order]
    counts = owner.bincount(minlength=world)
    others = torch.empty_like(counts)
    distributed.all_to_all_single(others, counts)

    wanted = torch.empty(int(others.sum()), dtype=torch.int64)
    distributed.all_to_all_single(wanted, asked, others.tolist(), counts.tolist())
    rows = torch.empty(len(ids), FEATURES)
    given = own[wanted // world]
    distributed.all_to_all_single(rows, given, counts.tolist(), others.tolist())
    return rows[order.argsort()]


def main() -> None:
    """Train a layer of GraphSAGE on random vertices."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--backend", default="gloo")
    given = parser.parse_args()
    torch.set_num_threads(1)
    distributed.init_process_group(given.backend)
    rank = distributed.get_rank()
    torch.manual_seed(rank)

    own = torch.randn(-(-VERTICES // distributed.get_world_size()), FEATURES)
    model = nn.parallel.DistributedDataParallel(nn.Linear(2 * FEATURES, CLASSES))
    optimiser = torch.optim.Adam(model.parameters())
    for step in range(given.steps):
        seeds = torch.randint(VERTICES, (given.batch,))
        neighbours = torch.randint(VERTICES, (given.batch, FANOUT))
        drawn = torch.cat([seeds, neighbours.flatten()])
        vertices, places = drawn.unique(return_inverse=True)
        rows = fetch(vertices, own)[places]
        means = rows[given.batch :].view(given.batch, FANOUT, -1).mean(1)
        scores = model(torch.cat([rows[: given.batch], means], 1))
        loss = nn.functional.cross_entropy(scores, seeds % CLASSES)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        print(f"step {step} loss {loss.item():.6f}", flush=True)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
