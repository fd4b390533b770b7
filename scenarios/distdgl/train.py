"""GraphSAGE by dgl.distributed, as its users write it: nothing here knows of emu."""

import argparse
import os
import time
from itertools import pairwise

import dgl
import dgl.nn
import numpy as np
import torch
from torch import distributed, nn
from torch.nn import functional


class GraphSage(nn.Module):
    """Layers of mean aggregation."""

    def __init__(self, features: int, hidden: int, classes: int, layers: int) -> None:
        super().__init__()
        widths = [features, *[hidden] * (layers - 1), classes]
        self.layers = nn.ModuleList(
            dgl.nn.SAGEConv(a, b, "mean") for a, b in pairwise(widths)
        )

    def forward(self, blocks: list, rows: torch.Tensor) -> torch.Tensor:
        """Return the classes' scores."""
        for number, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            rows = layer(block, rows)
            if number + 1 < len(self.layers):
                rows = functional.relu(rows)
        return rows


def options() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batches", type=int, default=20, help="per epoch, at most")
    parser.add_argument("--first", type=int, help="batches of the first epoch")
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--fanouts", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--ahead", type=int, help="batches that samplers are ahead")
    parser.add_argument(
        "--cache",
        type=float,
        default=0.0,
        help="rows of others that are kept, as a share of a part: those of most edges",
    )
    parser.add_argument("--test", action="store_true", help="test accuracy at the end")
    return parser.parse_args()


def part_of(graph: dgl.distributed.DistGraph, split: str) -> torch.Tensor:
    """Return the vertices of a split that this trainer takes."""
    book = graph.get_partition_book()
    mask = graph.ndata[f"{split}_mask"]
    return dgl.distributed.node_split(mask, book, force_even=True)


class Rows:
    """Features by vertex, of which a trainer keeps some of other machines."""

    def __init__(self, graph: dgl.distributed.DistGraph, share: float) -> None:
        self.features = graph.ndata["feat"]
        count = graph.num_nodes()
        vertices = torch.arange(count)
        book = graph.get_partition_book()
        self.is_own = book.nid2partid(vertices) == book.partid

        degrees = graph.in_degrees(vertices) if share else torch.zeros(count)
        degrees[self.is_own] = -1
        order = degrees.argsort(descending=True, stable=True)
        kept = round(share * count / book.num_partitions())
        hot = order[:kept]
        # Where the row of each vertex is kept; -1: nowhere.
        self.places = torch.full((count,), -1)
        self.places[hot] = torch.arange(kept)
        self.kept = self.features[hot] if kept else torch.empty(0)

        self.found = 0
        self.asked = 0

    def of(self, vertices: torch.Tensor) -> torch.Tensor:
        """Return the rows of some vertices, from the cache or their owners."""
        if not len(self.kept):
            return self.features[vertices]
        places = self.places[vertices]
        is_kept = places >= 0
        rows = torch.empty(len(vertices), self.kept.shape[1])
        rows[is_kept] = self.kept[places[is_kept]]
        rows[~is_kept] = self.features[vertices[~is_kept]]

        self.found += int(is_kept.sum())
        self.asked += int((~self.is_own[vertices]).sum())
        return rows


def train(given: argparse.Namespace, graph: dgl.distributed.DistGraph) -> nn.Module:
    """Train; print a line per epoch."""
    rank = distributed.get_rank()
    torch.manual_seed(0)  # every replica begins with the same weights
    classes = int(graph.ndata["label"][torch.arange(graph.num_nodes())].max()) + 1
    features = graph.ndata["feat"].shape[1]
    model = GraphSage(features, given.hidden, classes, len(given.fanouts))
    model = nn.parallel.DistributedDataParallel(model)
    optimiser = torch.optim.Adam(model.parameters(), lr=given.rate)
    dgl.random.seed(rank)
    np.random.seed(rank)
    features = Rows(graph, given.cache)
    vertices = part_of(graph, "train")
    for epoch in range(given.epochs):
        most = given.batches if epoch or given.first is None else given.first
        # No more than its batches: samplers would be ahead with those of no epoch.
        chosen = vertices[torch.randperm(len(vertices))[: most * given.batch_size]]
        loader = dgl.dataloading.DistNodeDataLoader(
            graph,
            chosen,
            dgl.dataloading.NeighborSampler(given.fanouts),
            batch_size=given.batch_size,
            drop_last=True,
            queue_size=given.ahead,
        )
        distributed.barrier()
        began, losses = time.monotonic(), []
        for inputs, outputs, blocks in loader:
            rows, labels = features.of(inputs), graph.ndata["label"][outputs]
            loss = functional.cross_entropy(model(blocks, rows), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        seconds = time.monotonic() - began
        print(
            f"rank {rank} epoch {epoch} {seconds:.3f} s "
            f"batches {len(losses)} loss {np.mean(losses):.4f}",
            flush=True,
        )
    if features.asked:
        share = features.found / features.asked
        print(f"rank {rank} found {share:.4f} of the rows of others", flush=True)
    return model


def test(
    given: argparse.Namespace, graph: dgl.distributed.DistGraph, model: nn.Module
) -> None:
    """Print the accuracy on the test vertices of all trainers."""
    model.eval()
    right = torch.zeros(2)
    loader = dgl.dataloading.DistNodeDataLoader(
        graph,
        part_of(graph, "test"),
        dgl.dataloading.NeighborSampler(given.fanouts),
        batch_size=4 * given.batch_size,
    )
    with torch.no_grad():
        for inputs, outputs, blocks in loader:
            scores = model.module(blocks, graph.ndata["feat"][inputs])
            hits = scores.argmax(1) == graph.ndata["label"][outputs]
            right += torch.tensor([int(hits.sum()), len(outputs)])
    distributed.all_reduce(right)
    print(f"test accuracy {float(right[0] / right[1]):.4f}", flush=True)


def main() -> None:
    """Serve, or train: DGL_ROLE says which."""
    given = options()
    torch.set_num_threads(1)
    dgl.distributed.initialize(os.environ["DGL_IP_CONFIG"])  # servers end in here
    distributed.init_process_group("gloo")
    graph = dgl.distributed.DistGraph("graph", part_config=os.environ["DGL_CONF_PATH"])
    model = train(given, graph)
    if given.test:
        test(given, graph, model)
    distributed.barrier()


if __name__ == "__main__":
    main()
