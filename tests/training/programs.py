"""Programs of models as their users write them, by what they are called."""

HEAD = """
import torch, torch.nn as nn, torch.nn.functional as F
"""
DGL = f"{HEAD}import dgl.nn as dglnn\n"

#: DGL's own example of sampled training (examples/pytorch/graphsage), as it is but for
#: its layer-wise inference.
SAGE = f"""{DGL}
class Net(nn.Module):
    def __init__(self, in_size, hid_size, out_size, p=0.0):
        super().__init__()
        self.layers = nn.ModuleList()
        self.layers.append(dglnn.SAGEConv(in_size, hid_size, "mean"))
        self.layers.append(dglnn.SAGEConv(hid_size, out_size, "mean"))
        self.dropout = nn.Dropout(p)

    def forward(self, blocks, x):
        h = x
        for l, (layer, block) in enumerate(zip(self.layers, blocks)):
            h = layer(block, h)
            if l != len(self.layers) - 1:
                h = F.relu(h)
                h = self.dropout(h)
        return h
"""

GCN = f"""{DGL}
class Net(nn.Module):
    def __init__(self, in_feats, hid_size, n_classes, p=0.0):
        super().__init__()
        self.first = dglnn.GraphConv(in_feats, hid_size, activation=F.relu)
        self.second = dglnn.GraphConv(hid_size, n_classes)
        self.dropout = nn.Dropout(p)

    def forward(self, blocks, inputs):
        return self.second(blocks[1], self.dropout(self.first(blocks[0], inputs)))
"""

GAT = f"""{DGL}
class GAT(nn.Module):
    def __init__(self, in_dim, hidden, num_classes, heads, drop):
        super().__init__()
        self.first = dglnn.GATConv(in_dim, hidden, heads, feat_drop=drop,
                                   activation=F.elu)
        self.second = dglnn.GATConv(hidden * heads, num_classes, 1, attn_drop=drop)

    def forward(self, mfgs, h):
        return self.second(mfgs[1], self.first(mfgs[0], h).flatten(1)).mean(1)

def Net(in_dim, num_classes, hid_size, p=0.0):
    return GAT(in_dim, hid_size, num_classes, 2, p)
"""

#: On torch alone: counts of a block, its edges, and a mean by index_add.
TORCH = f"""{HEAD}
class Net(nn.Module):
    def __init__(self, in_channels, hid_size, out_channels, p=0.0):
        super().__init__()
        self.own = nn.Linear(in_channels, hid_size)
        self.near = nn.Linear(in_channels, hid_size, bias=False)
        self.last = nn.Linear(2 * hid_size, out_channels)
        self.dropout = nn.Dropout(p)

    def mean(self, block, rows):
        source, to = (end.long() for end in block.edges())
        count = block.num_dst_nodes()
        total = rows.new_zeros(count, rows.shape[1]).index_add(0, to, rows[source])
        return total / torch.bincount(to, minlength=count).clamp(min=1).unsqueeze(1)

    def forward(self, blocks, x):
        first, second = blocks
        h = self.own(x[: first.num_dst_nodes()]) + self.near(self.mean(first, x))
        h = self.dropout(h.relu())
        return self.last(torch.cat(
            [h[: second.num_dst_nodes()], self.mean(second, h)], 1))
"""

#: The same as PyTorch Geometric's examples of NeighborSampler have it.
ADJS = TORCH.replace(
    """    def forward(self, blocks, x):
        first, second = blocks
        h = self.own(x[: first.num_dst_nodes()]) + self.near(self.mean(first, x))
        h = self.dropout(h.relu())
        return self.last(torch.cat(
            [h[: second.num_dst_nodes()], self.mean(second, h)], 1))
""",
    """    def forward(self, x, adjs):
        (edges, _, (_, inner)), (later, _, (_, seeds)) = adjs
        h = self.own(x[:inner]) + self.near(self.pooled(edges, inner, x))
        h = self.dropout(h.relu())
        return self.last(torch.cat([h[:seeds], self.pooled(later, seeds, h)], 1))

    def pooled(self, edge_index, count, rows):
        source, to = edge_index
        total = rows.new_zeros(count, rows.shape[1]).index_add(0, to, rows[source])
        return total / torch.bincount(to, minlength=count).clamp(min=1).unsqueeze(1)
""",
)

PROGRAMS = {"sage": SAGE, "gcn": GCN, "gat": GAT, "torch": TORCH, "adjs": ADJS}


def model_of(name: str, **args: object) -> dict[str, object]:
    """Return ``model`` of ``Job.settings`` for one of the programs."""
    return {
        "program": f"{name}.py:Net",
        "source": PROGRAMS[name],
        "args": {"hid_size": 16, **args},
        "layers": 2,
    }
