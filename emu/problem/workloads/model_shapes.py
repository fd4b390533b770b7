"""Tensors that the layers of a model hold, and bytes of what is sampled for them.

``sage``
    GraphSAGE with mean aggregation (Hamilton et al., NeurIPS 2017, algorithm 1):
    weights of the neighbours' mean, of the vertex itself, bias.
``gcn``
    The inductive GCN of the same paper (section 3.3): weights of the mean over the
    neighbours and the vertex itself, bias. Kipf and Welling's own norm takes degrees
    that a sampled block does not have.
``gat``
    Graph attention (Velickovic et al., ICLR 2018): weights, attention of sources and of
    destinations per head, bias. Every vertex attends to itself too.
``gin``
    GIN-0 (Xu et al., ICLR 2019): two linear layers on the sum over the neighbours and
    the vertex itself.
``commnet``
    CommNet (Sukhbaatar et al., NIPS 2016, equation 2): weights of the neighbours' mean
    and of the vertex itself, no bias. Of whole graphs alone.

Bytes are as in the paper's implementation: features and parameters in the precision of
the job, labels int32, block edges as two int32, vertex ids and structure on request
int64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Shape = tuple[int, ...]
    #: Counts by store, or by hop or layer.
    Counts = tuple[int, ...]


#: Leading tensors of a layer, of shape (out, in), that are linear in its input before
#: anything else is done: what P3 splits by columns in the first layer.
SPLIT_WEIGHTS = {
    "sage": 2,
    "gcn": 1,
    "gat": 1,
    "gin": 1,
}
#: Names of a layer's tensors, in the order of their shapes.
PARTS = {
    "sage": ("neighbours", "own", "bias"),
    "gcn": ("weight", "bias"),
    "gat": ("weight", "attention_source", "attention_destination", "bias"),
    "gin": ("weight_1", "bias_1", "weight_2", "bias_2"),
    "commnet": ("neighbours", "own"),
    "plain_gcn": ("weight",),
    "plain_gat": ("weight", "attention_source", "attention_destination"),
}
#: One int32, as a count of ids; an edge of a block is two; ids are int64, as is
#: structure on request.
LABEL_BYTES = 4
BLOCK_EDGE_BYTES = 8
VERTEX_ID_BYTES = 8
COUNT_BYTES = 4
ANSWERED_EDGE_BYTES = 16


def shard_sizes(parameters: int, servers: int) -> tuple[int, ...]:
    """Return the parameters in each part: of a server, or a chunk of an all-reduce."""
    # As numpy.array_split: the first parts are longer by one.
    size, longer = divmod(parameters, servers)
    return (size + 1,) * longer + (size,) * (servers - longer)


def shard_bounds(count: int, servers: int) -> list[tuple[int, int]]:
    """Return where each part begins, and where the next one does (A14)."""
    sizes = shard_sizes(count, servers)
    bounds = [0, *accumulate(sizes)]
    return list(pairwise(bounds))


def layer_shapes(
    model: Mapping[str, Any],
    feature_length: int,
    classes: int,
) -> Iterator[tuple[Shape, ...]]:
    """Yield the shapes of each layer's tensors from the input, weights as (out, in)."""
    kind = model.get("kind", "sage")
    layers = model["layers"]
    hidden = [model["hidden"]] * (layers - 1)
    widths = [feature_length, *hidden, classes]
    layer_ends = pairwise(widths)

    for number, (inputs, width) in enumerate(layer_ends, 1):
        heads = model.get("heads", 1)
        if number == layers:  # one head, as wide as there are classes
            heads = 1

        matrix = (width, inputs)
        square = (width, width)
        bias = (width,)
        attention = (1, width)
        # Attention is per head, and all heads make the width together.
        scores = (heads, width // heads)
        shapes: dict[str, tuple[Shape, ...]] = {
            "sage": (matrix, matrix, bias),
            "gcn": (matrix, bias),
            "gat": (matrix, scores, scores, bias),
            "gin": (matrix, bias, square, bias),
            "commnet": (matrix, matrix),
            "plain_gcn": (matrix,),
            "plain_gat": (matrix, attention, attention),
        }
        yield shapes[kind]


def parameter_count(model: Mapping[str, Any], feature_length: int, classes: int) -> int:
    """Return the number of parameters of a model; of a program's, what it notes."""
    if "program" in model:
        return int(model["parameters"])
    count = 0
    for shapes in layer_shapes(model, feature_length, classes):
        for shape in shapes:
            count += prod(shape)
    return count


@dataclass(frozen=True)
class SampleCounts:
    """Counts of the sample of one sampler in one iteration."""

    owned: Counts
    """#(S_0 ∩ owned(g)): input vertices that each store owns."""
    edges: int
    """Sum of #E_l over the blocks."""
    seeds: int
    """B_s."""
    outputs: int = 0
    first_edges: int = 0
    """#S_1 and #E_1: destinations and edges of the first layer's block."""
    frontier_owned: tuple[Counts, ...] = ()
    answered: tuple[Counts, ...] = ()
    """Per hop and store: vertices of the hop's frontier that the store owns, edges that
    it answers."""

    hits: Counts = ()
    """Per store: input vertices whose rows the sampler has already; empty for none."""

    ahead: Counts = ()
    """Per store: rows for the next window of a cache; empty where none begins."""

    def sent_ahead(self, store: int) -> int:
        """Return the rows that a store sends for the next window of a cache."""
        if not self.ahead:
            return 0
        return self.ahead[store]

    def sent(self, store: int) -> int:
        """Return the rows that a store sends: all that it owns but the hits."""
        if not self.hits:
            return self.owned[store]
        return self.owned[store] - self.hits[store]

    @property
    def inputs(self) -> int:
        """#S_0: every input vertex has one owner."""
        return sum(self.owned)

    @property
    def block_edges(self) -> Counts:
        """#E_1 to #E_L: edges of the block of every layer."""
        # Hops go from the seeds inwards, layers from the input outwards.
        by_layer = reversed(self.answered)
        return tuple(sum(edges) for edges in by_layer)

    @property
    def block_vertices(self) -> Counts:
        """#S_0 to #S_L: inputs of layer 1, and what every layer computes."""
        by_layer = reversed(self.frontier_owned)
        vertices = [sum(counts) for counts in by_layer]
        return (self.inputs, *vertices)
