"""The layers of every model, on torch alone; blocks and mini-batches they work on.

A layer is a function of a block, the vectors of its sources, and its tensors in the
order of `emu.problem.workloads.model_shapes`. tests/training compares each with dgl.nn.

Means and sums are ``embedding_bag``: the same bits as dgl's message passing, in a fifth
of its time forward (72,000 edges of 100 floats, one thread: 2.5 against 12.3 ms) and
twice its time with the gradient of the sources, which the first layer does not need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from emu.array_types import Array, Ints
from emu.graph_data import BatchPlan, Dataset, SampledBatch
from emu.problem.workloads import SPLIT_WEIGHTS, layer_shapes

#: A torch tensor; torch is imported where it is needed.
Tensor: TypeAlias = Any
#: A numpy array of any type.
#: Positions of vertices, or of edges.
Positions: TypeAlias = NDArray[np.int32]
#: Ends of the edges of a block: positions of their sources, of their destinations.
EdgeEnds: TypeAlias = tuple[Positions, Positions]
#: Of a tensor.
Shape: TypeAlias = tuple[int, ...]
#: ``Job.settings``, to read.
JobSettings: TypeAlias = Mapping[str, Any]

NEGATIVE_SLOPE = 0.2  # of GAT's leaky ReLU, as in its paper


def as_tensor(array: Array) -> Tensor:
    """Return a torch tensor on ``array``'s memory, or on a copy if it is read-only."""
    import torch

    if not array.flags.writeable:
        array = array.copy()
    return torch.from_numpy(array)


def linear(rows: Tensor, weight: Tensor, *bias: Tensor) -> Tensor:
    """Return rows times a weight transposed, plus the bias: torch's own."""
    from torch.nn import functional

    return functional.linear(rows, weight, *bias)


def _aggregate(block: Block, hidden: Tensor, mode: str) -> Tensor:
    from torch.nn import functional

    source = as_tensor(block.source)
    offsets = as_tensor(block.offsets)
    # A destination without edges is an empty bag: 0, as in dgl.
    return functional.embedding_bag(source, hidden, offsets, mode=mode)


def sum_weighted(
    aggregate: Callable[[Tensor], Tensor],
    hidden: Tensor,
    weight: Tensor,
) -> Tensor:
    """Aggregate the shorter rows, of the inputs or of the outputs."""
    outputs, inputs = weight.shape
    # Sums and products may change places: aggregation costs edges times columns.
    if outputs < inputs:
        shorter_rows = linear(hidden, weight)
        return aggregate(shorter_rows)
    sums = aggregate(hidden)
    return linear(sums, weight)


def _sage(
    block: Block,
    hidden: Tensor,
    neighbours: Tensor,
    root: Tensor,
) -> Tensor:
    def aggregate(rows: Tensor) -> Tensor:
        return _aggregate(block, rows, "mean")

    # A mean is linear, too, so that it may come before or behind the weights.
    mean = sum_weighted(aggregate, hidden, neighbours)
    local_rows = hidden[: block.inner]
    return linear(local_rows, root) + mean


def _gcn(block: Block, hidden: Tensor, weight: Tensor) -> Tensor:
    outputs, inputs = weight.shape
    weighs_first = inputs > outputs  # the shorter rows are aggregated
    rows = hidden
    if weighs_first:
        rows = linear(hidden, weight)

    sums = _aggregate(block, rows, "sum")
    local_rows = rows[: block.inner]
    total = sums + local_rows
    members = as_tensor(block.degrees + 1)
    divisors = members.to(total.dtype)
    mean = total / divisors.unsqueeze(1)
    if weighs_first:
        return mean
    return linear(mean, weight)


def _add_bias(_block: Block, summed: Tensor, bias: Tensor) -> Tensor:
    return summed + bias


def _weigh(_block: Block, hidden: Tensor, weight: Tensor) -> Tensor:
    return linear(hidden, weight)


def _attention(
    block: Block,
    weighed: Tensor,
    of_source: Tensor,
    of_destination: Tensor,
    bias: Tensor,
) -> Tensor:
    """Weigh neighbours and the vertex itself by what each head attends to."""
    from torch.nn.functional import leaky_relu

    heads, width = of_source.shape
    rows = weighed.view(-1, heads, width)
    # Every vertex attends to itself, too.
    loops = np.arange(block.inner, dtype=block.source.dtype)
    sources = np.concatenate([block.source, loops])
    destinations = np.concatenate([block.destination, loops])
    source = as_tensor(sources).long()
    destination = as_tensor(destinations).long()

    local_rows = rows[: block.inner]
    # Products have no name: they would take memory to the end of the function.
    of_sources = (rows * of_source).sum(2)
    of_destinations = (local_rows * of_destination).sum(2)
    scores = of_sources[source] + of_destinations[destination]
    scores = leaky_relu(scores, NEGATIVE_SLOPE)

    # A softmax per destination, from its highest score so that none overflows.
    fixed_scores = scores.detach()
    per_head = (block.inner, heads)
    lowest = fixed_scores.new_full(per_head, -np.inf)
    places = destination.unsqueeze(1).expand_as(scores)
    highest = lowest.scatter_reduce(0, places, fixed_scores, "amax")
    offsets = scores - highest[destination]
    exponentials = offsets.exp()
    zeros = exponentials.new_zeros(per_head)
    totals = zeros.index_add(0, destination, exponentials)
    shares = exponentials / totals[destination]

    zeros = rows.new_zeros(block.inner, heads, width)
    terms = rows[source] * shares.unsqueeze(2)
    sums = zeros.index_add(0, destination, terms)
    return sums.flatten(1) + bias


def _gin(block: Block, hidden: Tensor, inner: Tensor) -> Tensor:
    local_rows = hidden[: block.inner]
    sums = _aggregate(block, hidden, "sum")
    total = local_rows + sums
    return linear(total, inner)


def _second_linear(
    _block: Block,
    summed: Tensor,
    bias: Tensor,
    outer: Tensor,
    outer_bias: Tensor,
) -> Tensor:
    hidden = (summed + bias).relu()
    return linear(hidden, outer, outer_bias)


@dataclass(frozen=True)
class Layer:
    """A layer in two parts, so that its first may be computed column by column (P3)."""

    weights: int
    """Leading tensors, of shape (out, in), that the linear part takes."""
    linear: Callable[..., Tensor]
    """Linear in the vectors of the sources: what it returns for blocks of their
    columns, and of the weights', sums up to what it returns for all."""
    rest: Callable[..., Tensor]
    """Rest of the layer, from that sum and the other tensors."""

    def __call__(
        self,
        block: Block,
        hidden: Tensor,
        *tensors: Tensor,
    ) -> Tensor:
        """Return the vectors of a block's destinations."""
        weights = tensors[: self.weights]
        others = tensors[self.weights :]
        sums = self.linear(block, hidden, *weights)
        return self.rest(block, sums, *others)


#: ``sage`` weighs the neighbours' mean and the vertex itself, ``gcn`` the mean over
#: both; ``gat`` attends to both; ``gin`` puts their sum through two linear layers.
LAYERS = {
    "sage": Layer(SPLIT_WEIGHTS["sage"], _sage, _add_bias),
    "gcn": Layer(SPLIT_WEIGHTS["gcn"], _gcn, _add_bias),
    "gat": Layer(SPLIT_WEIGHTS["gat"], _weigh, _attention),
    "gin": Layer(SPLIT_WEIGHTS["gin"], _gin, _second_linear),
}


@dataclass(frozen=True, eq=False)
class Block:
    """One layer's edges; its destinations are the first of its sources.

    Raises ValueError when an edge leaves its sets, or destinations do not ascend.
    """

    source: Array
    destination: Array
    """Positions of the ends of every edge, of one integer type; destinations ascend."""
    outer: int
    inner: int
    """Number of sources and of destinations."""

    def __post_init__(self) -> None:
        source = self.source
        destination = self.destination
        fits = len(source) == len(destination) and self.inner <= self.outer
        if not fits:
            raise ValueError("a block's ends or sets do not fit each other")
        if not len(source):
            return

        earlier = destination[:-1]
        later = destination[1:]
        ascends = later >= earlier
        are_within = (
            source.min() >= 0
            and source.max() < self.outer
            and destination[0] >= 0
            and destination[-1] < self.inner
        )
        if not are_within or not ascends.all():
            raise ValueError("a block's edges leave its sets, or are out of order")

    @property
    def degrees(self) -> Ints:
        """Edges into every destination."""
        return np.bincount(self.destination, minlength=self.inner)

    @property
    def offsets(self) -> Array:
        """Position of the first edge into every destination."""
        ends = np.cumsum(self.degrees)
        starts = ends - self.degrees
        # embedding_bag wants offsets of the type of the sources.
        return starts.astype(self.source.dtype)


def make_blocks(
    sizes: Sequence[int],
    edges: Sequence[EdgeEnds],
) -> list[Block]:
    """Return the blocks of a mini-batch, input side first, as of `SampledBatch`.

    Raises ValueError as `Block`, or when edge lists are not one less than sets.
    """
    blocks = []
    layers = zip(pairwise(sizes), edges, strict=True)
    for sets, ends in layers:
        outer, inner = sets
        source, destination = ends
        block = Block(
            source=source,
            destination=destination,
            outer=outer,
            inner=inner,
        )
        blocks.append(block)
    return blocks


class LayerTensors:
    """Parameters of emu's layers in one flat tensor.

    Building one, of ``Job.settings``, gives this process a single torch thread: the
    machine's cores belong to dozens of processes, and one thread sums in one order.
    """

    def __init__(self, settings: JobSettings, dataset: Dataset) -> None:
        import torch

        torch.set_num_threads(1)
        model = settings["model"]
        layers = layer_shapes(model, dataset.feature_length, dataset.classes)
        shapes_of_layers = list(layers)
        flat_shapes = chain.from_iterable(shapes_of_layers)
        size = sum(map(prod, flat_shapes))
        dtype = getattr(torch, settings["precision"])
        self._dtype = dtype
        self._flat: Tensor = torch.zeros(size, dtype=dtype)
        self._flat_gradient: Tensor = torch.zeros(size, dtype=dtype)
        self._tensors = self._views(shapes_of_layers)

    def _views(self, shapes_of_layers: Sequence[Sequence[Shape]]) -> list[list[Tensor]]:
        """Return the tensors of every layer, whose gradients gather in a flat one.

        As parts of one tensor, each of a layer's would have a gradient of all layers,
        of zeros but for itself: a seventh of the time of a small batch.
        """
        start = 0
        layers = []
        for shapes in shapes_of_layers:
            tensors = []
            for shape in shapes:
                end = start + prod(shape)
                tensor = self._flat[start:end].view(shape)
                tensor.requires_grad_()
                tensor.grad = self._flat_gradient[start:end].view(shape)
                tensors.append(tensor)
                start = end
            layers.append(tensors)
        return layers

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self._tensors)

    def load(self, flat: Array) -> None:
        """Copy a flat parameter vector into the model, and forget its gradient.

        Raises ValueError when its length is not the model's.
        """
        import torch

        size = self._flat.numel()
        if len(flat) != size:
            raise ValueError(f"{len(flat)} parameters for a model of {size}")
        with torch.no_grad():
            # In place: the layers' tensors are views of this vector.
            self._flat.copy_(as_tensor(flat))
        self._forget_gradient()

    def _forget_gradient(self) -> None:
        """Have what backward passes add begin at 0."""
        self._flat_gradient.zero_()

    def _copy_gradient(self) -> Array:
        """Return what backward passes have added so far, flat."""
        gradient = self._flat_gradient.numpy()
        return np.array(gradient)


@dataclass(frozen=True, eq=False)
class MiniBatch:
    """Sample from which a model learns in one step of one sampler."""

    features: Array
    """Rows of S_0, of any type of floats, shape (#S_0, feature_length)."""
    labels: Positions
    """int32, shape (#S_L,)."""
    sizes: tuple[int, ...]
    edges: tuple[EdgeEnds, ...]
    """As in `SampledBatch`."""

    @classmethod
    def of(
        cls,
        batch: SampledBatch,
        features: Array,
        labels: Positions,
    ) -> MiniBatch:
        """Join a sampled batch with its rows and labels."""
        return cls(
            features=features,
            labels=labels,
            sizes=batch.sizes,
            edges=batch.edges,
        )

    @classmethod
    def draw(
        cls,
        dataset: Dataset,
        plan: BatchPlan,
        sampler: int,
        iteration: int,
        feature_type: str = "float32",
    ) -> MiniBatch:
        """Sample the mini-batch of one (sampler, iteration), with its features."""
        train = plan.walk(dataset)
        batch = plan.batch(dataset.structure, train, sampler, iteration)
        rows = dataset.gather(batch.vertices)
        features = rows.astype(feature_type, copy=False)
        labels = dataset.labels[batch.seeds]
        return cls.of(batch, features, labels)

    def tensors(self) -> dict[str, Array]:
        """Return the arrays that travel, exactly d of the edge sampler -> worker."""
        arrays: dict[str, Array] = {
            "features": self.features,
            "labels": self.labels,
        }
        for number, (source, destination) in enumerate(self.edges):
            arrays[f"source_{number}"] = source
            arrays[f"destination_{number}"] = destination
        return arrays

    @classmethod
    def from_tensors(cls, named: Mapping[str, Array], layers: int) -> MiniBatch:
        """Rebuild a mini-batch from what `tensors` returned.

        The sizes need not travel: S_L has a label each, and a block's sources are its
        destinations and the other starting points of edges (see `SampledBatch`).

        Raises ValueError when a tensor is missing or they contradict each other.
        """
        names = [(f"source_{n}", f"destination_{n}") for n in range(layers)]
        needed = {"features", "labels", *chain.from_iterable(names)}
        missing = needed - named.keys()
        if missing:
            raise ValueError(f"a mini-batch of {layers} blocks is not {sorted(named)}")

        features = named["features"]
        labels = named["labels"]
        edges = tuple((named[source], named[end]) for source, end in names)
        sizes = [len(labels)]  # from the output side back
        for source, destination in reversed(edges):
            inner = sizes[-1]
            # Beyond destinations a source is there because an edge names it.
            sources = int(source.max(initial=-1)) + 1
            outer = max(inner, sources)
            # It came over a socket: a block checks its edges.
            Block(
                source=source,
                destination=destination,
                outer=outer,
                inner=inner,
            )
            sizes.append(outer)

        rows = len(features)
        inputs = sizes[-1]
        if rows != inputs:
            raise ValueError(f"{rows} feature rows for {inputs} input vertices")
        return cls(
            features=features,
            labels=labels,
            sizes=tuple(reversed(sizes)),
            edges=edges,
        )


def add_gradients(
    scores_of: Callable[[MiniBatch], Tensor],
    batches: Sequence[MiniBatch],
) -> tuple[float, float]:
    """Add the gradients of the mean loss over the seeds of all ``batches``.

    Returns that mean cross-entropy, and the share of seeds whose label scores highest.
    """
    from torch.nn import functional

    seeds = sum(len(batch.labels) for batch in batches)
    loss = 0.0
    correct = 0

    for batch in batches:
        scores = scores_of(batch)
        labels = as_tensor(batch.labels).long()
        # Summed over all seeds: a mean of means would weigh batches unevenly.
        total = functional.cross_entropy(scores, labels, reduction="sum")
        share = total / seeds
        # Its gradients are added to those of the batches before.
        share.backward()  # type: ignore[no-untyped-call]
        loss += share.item()
        is_right = scores.argmax(1) == labels
        correct += int(is_right.sum())

    return loss, correct / seeds
