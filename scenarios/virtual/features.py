"""Mini-batches whose features lie on all ranks: fetched by all_to_all, then DDP.

As WholeGraph and cuGraph fetch them: ids to their owners, rows back. The layer is one
of PyTorch Geometric (PyG).
"""

import argparse
import sys

import torch
from torch import distributed, nn

try:
    from torch_geometric.nn import SAGEConv
except ImportError:
    sys.exit("features.py trains a layer of PyG: pip install torch_geometric")

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
    layer = SAGEConv((FEATURES, FEATURES), CLASSES)
    model = nn.parallel.DistributedDataParallel(layer)
    optimiser = torch.optim.Adam(model.parameters())
    for step in range(given.steps):
        seeds = torch.randint(VERTICES, (given.batch,))
        neighbours = torch.randint(VERTICES, (given.batch, FANOUT))
        drawn = torch.cat([seeds, neighbours.flatten()])
        vertices, places = drawn.unique(return_inverse=True)
        rows = fetch(vertices, own)
        targets = torch.arange(given.batch)
        sources = places[given.batch :]
        edges = torch.stack([sources, targets.repeat_interleave(FANOUT)])
        scores = model((rows, rows[places[: given.batch]]), edges)
        loss = nn.functional.cross_entropy(scores, seeds % CLASSES)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        print(f"step {step} loss {loss.item():.6f}", flush=True)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
