"""Partition a graph for dgl.distributed: ``python partition.py GRAPH DIRECTORY``.

GRAPH is one that emu knows: ``products-like`` is synthetic and needs no data,
``amazon_computers`` is looked for where EMU_DATA says.
"""

import argparse
from pathlib import Path

import dgl
import numpy as np
import torch

from emu.graph_data.dataset import open_dataset

#: Of products-like: 24,490 vertices.
SCALE = 0.01
#: Columns of the features, so that sending is most of an iteration at 100 Mbit/s.
FEATURE_LENGTH = 512


def load(name: str) -> dgl.DGLGraph:
    """Return the graph with features, labels, and masks: 60 % train, 40 % test."""
    if name.endswith("-like"):
        data = open_dataset(name, scale=SCALE, feature_length=FEATURE_LENGTH)
    else:
        data = open_dataset(name, normalise=True)
    indptr = torch.tensor(data.structure.indptr).long()
    indices = torch.tensor(data.structure.indices).long()
    graph = dgl.add_self_loop(dgl.graph(("csc", (indptr, indices, []))))
    graph.ndata["feat"] = torch.tensor(data.gather(np.arange(data.vertices)))
    graph.ndata["label"] = torch.tensor(data.labels).long()
    drawn = torch.tensor(np.random.default_rng(0).random(data.vertices))
    graph.ndata["train_mask"], graph.ndata["test_mask"] = drawn < 0.6, drawn >= 0.6
    return graph


def main() -> None:
    """Partition by METIS, training vertices balanced."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graph")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--parts", type=int, default=4, help="one for every machine")
    given = parser.parse_args()
    graph = load(given.graph)
    given.directory.mkdir(parents=True, exist_ok=True)
    dgl.distributed.partition_graph(
        graph,
        "graph",
        given.parts,
        str(given.directory),
        part_method="metis",
        balance_ntypes=graph.ndata["train_mask"],
        balance_edges=True,
        num_hops=1,
    )
    print(f"{given.graph}: {graph.num_nodes():,} vertices, {graph.num_edges():,} edges")


if __name__ == "__main__":
    main()
