"""GraphSAGE with mean aggregation, on torch alone.

A block has ``edges()``, ``num_src_nodes()`` and ``num_dst_nodes()``; its destinations
are the first of its sources. Where dgl is installed it is a block of dgl, so that
``dgl.nn.SAGEConv(...)(block, h)`` does the same.
"""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn


class MeanLayer(nn.Module):
    """Weigh each vertex and the mean of its sampled neighbours."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.own = nn.Linear(inputs, outputs)
        self.near = nn.Linear(inputs, outputs, bias=False)

    def forward(self, block: Any, h: Tensor) -> Tensor:
        """Return the vectors of the block's destinations."""
        source, to = (end.long() for end in block.edges())
        count = block.num_dst_nodes()
        total = h.new_zeros(count, h.shape[1]).index_add(0, to, h[source])
        degree = torch.bincount(to, minlength=count).clamp(min=1)
        return self.own(h[:count]) + self.near(total / degree.unsqueeze(1))


class SAGE(nn.Module):
    """As DGL's example of sampled training has it: a layer per block, dropout."""

    def __init__(
        self, in_size: int, hid_size: int, out_size: int, num_layers: int
    ) -> None:
        super().__init__()
        widths = [in_size, *[hid_size] * (num_layers - 1), out_size]
        self.layers = nn.ModuleList(MeanLayer(*pair) for pair in pairwise(widths))
        self.dropout = nn.Dropout(0.3)

    def forward(self, blocks: list[Any], x: Tensor) -> Tensor:
        """Return a score per class for the destinations of the last block."""
        h = x
        for number, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            h = layer(block, h)
            if number < len(self.layers) - 1:
                h = self.dropout(torch.relu(h))
        return h
