"""The same training in one process, which every distributed run must equal; accuracy.

Whole-graph training is written from the definitions, apart from
`emu.training.whole_graph`: the matrix is built from the edges of the graph, and
autograd goes through all layers at once. Parts and their order play no role. Accuracy
is with every neighbour, layer by layer over the whole graph.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from math import prod
from typing import Any, TypeAlias

import numpy as np
from typing_extensions import override

from emu.array_types import Array
from emu.graph_data import BatchPlan, Dataset, open_for, relabel
from emu.graph_data.sampling import Ids
from emu.problem.workloads.fetches import feature_type
from emu.training.graph_model import (
    GraphModel,
    build_model,
    initial_parameters,
    parameter_shapes,
)
from emu.training.layers import (
    Block,
    JobSettings,
    MiniBatch,
    Tensor,
    as_tensor,
)
from emu.training.looks import trains_whole_graph
from emu.training.optimizers import make_optimizer, mean_gradient
from emu.training.own_model import OwnModel

#: Part of the vertices -> share of them whose label is predicted.
Accuracy: TypeAlias = dict[str, float]
#: Called after every step with its number, from 0, the parameters, and what returns
#: their accuracy as `evaluate`; True ends the training there.
Watch: TypeAlias = Callable[[int, Array, Callable[[], Accuracy]], bool | None]
#: What a training returns: parameters, and the loss of every step.
Trained: TypeAlias = tuple[Array, list[float]]
#: Destinations that are computed at once: memory beside a layer's output is bounded.
_SLICE = 16_384


def _edge_weights(
    norm: str,
    source: Array,
    destination: Array,
    count: int,
) -> Array:
    """Return the weight of every edge in the sums of ``count`` vertices."""
    edges_into = np.bincount(destination, minlength=count)
    degree = edges_into.astype(np.float64)
    if norm == "symmetric":
        # Kipf and Welling's D^-1/2 A D^-1/2; A has loops where the layer has them.
        destination_factor = degree[destination] ** -0.5
        source_factor = degree[source] ** -0.5
        return np.asarray(destination_factor * source_factor)
    if norm == "mean":
        weights = 1 / degree[destination]
        return np.asarray(weights)
    return np.ones(len(destination))


class WholeGraphModel:
    """A model of ``Job.settings`` with the matrix of its graph."""

    def __init__(
        self,
        settings: JobSettings,
        dataset: Dataset,
    ) -> None:
        import torch

        # One thread sums in one order, so that a run can be repeated bit by bit.
        torch.set_num_threads(1)
        self._model = settings["model"]
        self._shapes = parameter_shapes(settings, dataset)
        self._dtype = getattr(torch, settings["precision"])
        vertices = np.arange(dataset.vertices)
        features = torch.from_numpy(dataset.gather(vertices))
        self._features = features.to(self._dtype)

        structure = dataset.structure
        destination = np.repeat(vertices, structure.degrees)
        source = structure.indices.astype(np.int64)
        kind = self._model["kind"]
        if kind in {"gcn", "plain_gcn", "plain_gat", "gin"}:
            # These layers see the vertex itself as one of its neighbours.
            destination = np.concatenate([destination, vertices])
            source = np.concatenate([source, vertices])

        count = dataset.vertices
        norm = self._model["norm"]
        ends = np.stack([destination, source])
        weights = _edge_weights(norm, source, destination, count)
        values = torch.from_numpy(weights)
        matrix = torch.sparse_coo_tensor(
            torch.from_numpy(ends),
            values.to(self._dtype),
            (count, count),
            check_invariants=True,
        )
        self.matrix = matrix.coalesce()
        """Weights of all edges, rows by destination."""

    @cached_property
    def _sum(self) -> Callable[[Tensor], Tensor]:
        """Product of the matrix with a row per vertex.

        Its gradient is the product with the transpose, in the order and to the bit of
        torch's own, which sorts the transpose anew in every step: 204 ms of CPU against
        81 (products-like at 0.01, 64 columns).
        """
        import torch

        matrix = self.matrix
        transpose = functools.cache(lambda: matrix.t().coalesce())

        class Sum(torch.autograd.Function):
            @staticmethod
            @override
            def forward(_: Any, rows: Tensor) -> Tensor:
                return torch.sparse.mm(matrix, rows)

            @staticmethod
            @override
            def backward(_: Any, gradient: Tensor) -> Tensor:
                return torch.sparse.mm(transpose(), gradient)

        product: Callable[[Tensor], Tensor] = Sum.apply
        return product

    def scores(self, flat: Tensor) -> Tensor:
        """Return a score per vertex and class, from flat parameters."""
        import torch

        count = self._model["layers"]
        layers: list[dict[str, Tensor]] = [{} for _ in range(count)]
        sizes = [prod(shape) for shape in self._shapes.values()]
        pieces = flat.split(sizes)
        for name, piece in zip(self._shapes, pieces, strict=True):
            _, number, part = name.split(".")
            layer = layers[int(number)]
            layer[part] = piece.view(self._shapes[name])

        activation = getattr(torch, self._model["activation"])
        if self._model.get("decoupled"):
            return self._aggregate_last(layers, activation)
        # The activation stands before each layer but the first: scores are without one.
        first, *later_layers = layers
        hidden = self._layer(self._features, first)
        for layer in later_layers:
            rows = activation(hidden)
            hidden = self._layer(rows, layer)
        return hidden

    def _aggregate_last(
        self,
        layers: Sequence[Mapping[str, Tensor]],
        activation: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """Return scores where all products come first, then a sum per layer."""
        hidden = self._features
        for number, layer in enumerate(layers):
            rows = hidden
            if number:
                rows = activation(hidden)
            hidden = rows @ layer["weight"].T + layer["bias"]
        for _ in layers:
            hidden = self._sum(hidden)
        return hidden

    def _layer(self, hidden: Tensor, parts: Mapping[str, Tensor]) -> Tensor:
        import torch

        kind = self._model["kind"]
        if kind in {"gcn", "plain_gcn"}:
            rows = hidden @ parts["weight"].T
            return self._sum(rows) + parts.get("bias", 0.0)
        if kind == "plain_gat":
            rows = hidden @ parts["weight"].T
            attention = [parts["attention_source"], parts["attention_destination"]]
            vectors = torch.cat(attention)
            return attend(self.matrix, rows, rows, vectors)
        if kind == "gin":
            total = self._sum(hidden)
            inner = total @ parts["weight_1"].T + parts["bias_1"]
            activation = inner.relu()
            return activation @ parts["weight_2"].T + parts["bias_2"]
        # GraphSAGE and CommNet: the vertex itself has weights of its own.
        rows = hidden @ parts["neighbours"].T
        sums = self._sum(rows)
        local_rows = hidden @ parts["own"].T
        return sums + local_rows + parts.get("bias", 0.0)


def attend(
    edges: Tensor,
    sources: Tensor,
    destinations: Tensor,
    vectors: Tensor,
) -> Tensor:
    """Return each destination's mean of its sources' rows, weighed by attention.

    One head of Velickovic et al. (ICLR 2018), equations 1 to 4. Edges are coalesced,
    rows by destination; their values play no role. Rows z of both ends have shape
    (vertices, width), the vectors, attention of sources and of destinations, (2,
    width).
    """
    import torch
    from torch.nn.functional import leaky_relu

    destination, source = edges.indices()
    source_vector, destination_vector = vectors
    of_sources = sources @ source_vector
    of_destinations = destinations @ destination_vector
    scores = of_sources[source] + of_destinations[destination]
    matrix = torch.sparse_coo_tensor(
        edges.indices(),
        leaky_relu(scores, 0.2),
        edges.shape,
        check_invariants=True,
    )
    # A softmax over the entries that are there, not over zeros.
    matrix = matrix.coalesce()
    attention = torch.sparse.softmax(matrix, 1)
    return torch.sparse.mm(attention, sources)


def _train_whole_graph(
    settings: JobSettings,
    epochs: int,
    watch: Watch,
) -> Trained:
    """Train as `reference_training`, with a step per epoch on the mean loss."""
    import torch
    from torch.nn.functional import cross_entropy

    dataset = open_for(settings)
    model = WholeGraphModel(settings, dataset)
    parameters = initial_parameters(settings, dataset)
    optimizer = make_optimizer(settings, parameters)
    vertices = np.array(dataset.train)
    train = torch.from_numpy(vertices)
    train_labels = dataset.labels[dataset.train]
    train_labels = train_labels.astype(np.int64)
    labels = torch.from_numpy(train_labels)

    losses = list[float]()
    for epoch in range(epochs):
        flat = torch.tensor(parameters, requires_grad=True)
        scores = model.scores(flat)
        # A look at the weights of the epoch before: they are what this one begins with.
        classes = scores.argmax(1).numpy()
        look = partial(_grade, dataset, classes)
        # The forward pass is there anyway: it spares the look one of its own.
        if epoch and watch(epoch - 1, parameters, look):
            return parameters, losses

        loss = cross_entropy(scores[train], labels)
        (gradient,) = torch.autograd.grad(loss, flat)
        optimizer.step(gradient.numpy())
        final_loss = loss.detach()
        losses.append(float(final_loss))

    # After the last step no forward pass follows: this look needs its own.
    if epochs:
        look = partial(evaluate, settings, parameters, dataset, model)
        watch(epochs - 1, parameters, look)
    return parameters, losses


def reference_training(
    settings: JobSettings,
    iterations: int,
    missed: int = 0,
    watch: Watch = lambda *_: None,
) -> Trained:
    """Train as the workers and servers of a job would, without any of them.

    Gradients are averaged over workers in rank order, each worker's being that of its
    mean loss (specs section 2c); a system without mini-batches takes a step per epoch.
    Nothing else may influence the weights. Returns flat parameters after the last step,
    and the mean loss over workers per iteration.

    ``missed``: updates that the weights of a gradient lack: delayed descent, w_i =
    w_(i-1) - lr * grad f_i(w_(i-1-missed)), where there is no w before w_0. Raises
    DataError and ValueError as `open_for` and `BatchPlan.from_settings`.
    """
    if trains_whole_graph(settings):
        return _train_whole_graph(settings, iterations, watch)

    dataset = open_for(settings)
    plan = BatchPlan.from_settings(settings)
    parameters = initial_parameters(settings, dataset)
    optimizer = make_optimizer(settings, parameters)
    model = build_model(settings, dataset)
    samplers_per_worker = settings["samplers_per_worker"]
    row_type = feature_type(settings)

    mean_losses = []
    versions: deque[Array] = deque(maxlen=missed + 1)
    for iteration in range(iterations):
        # A copy: the optimiser changes parameters in place.
        versions.append(parameters.copy())
        # The oldest version that is kept: `missed` updates behind the newest.
        model.load(versions[0])

        # Workers in rank order: sums of floats depend on it.
        gradients = []
        losses = []
        for worker in range(settings["workers"]):
            first = worker * samplers_per_worker
            samplers = range(first, first + samplers_per_worker)
            batches = []
            for sampler in samplers:
                batch = MiniBatch.draw(dataset, plan, sampler, iteration, row_type)
                batches.append(batch)
            gradient, loss, _ = model.gradient(batches, worker, iteration)
            gradients.append(gradient)
            losses.append(loss)

        gradient = mean_gradient(gradients)
        optimizer.step(gradient)
        mean_loss = float(np.mean(losses))
        mean_losses.append(mean_loss)
        look = partial(evaluate, settings, parameters, dataset)
        if watch(iteration, parameters, look):
            break
    return parameters, mean_losses


def evaluate(
    settings: JobSettings,
    parameters: Array,
    dataset: Dataset | None = None,
    whole: WholeGraphModel | None = None,
) -> Accuracy:
    """Return the accuracy on the train, valid and test vertices, of flat parameters.

    Full neighbourhoods, so the figure does not depend on any sample. Holds one value
    per (vertex, hidden unit) in memory; of a program, what it keeps of one call with
    the whole graph. Looks at one training share its data set, opened, and of a job on
    the whole graph its model. Raises DataError as `open_for`; ValueError when the
    parameters do not fit the model.
    """
    dataset = dataset or open_for(settings)
    classes = predict(settings, dataset, parameters, whole)
    return _grade(dataset, classes)


def _grade(dataset: Dataset, classes: Ids) -> Accuracy:
    splits = {
        "train": dataset.train,
        "valid": dataset.valid,
        "test": dataset.test,
    }

    accuracy = {}
    for name, vertices in splits.items():
        # A mean of none would be NaN.
        if len(vertices):
            labels = dataset.labels[vertices]
            is_right = classes[vertices] == labels
            accuracy[name] = float(np.mean(is_right))
    return accuracy


def predict(
    settings: JobSettings,
    dataset: Dataset,
    parameters: Array,
    whole: WholeGraphModel | None = None,
) -> Ids:
    """Return the predicted class of every vertex; raises ValueError as `evaluate`."""
    import torch

    if trains_whole_graph(settings):
        on_graph = whole or WholeGraphModel(settings, dataset)
        with torch.no_grad():
            flat = torch.tensor(parameters)
            scores = on_graph.scores(flat)
            classes = scores.argmax(1)
            return np.asarray(classes.numpy())

    model = build_model(settings, dataset)
    model.load(parameters)
    vertices = np.arange(dataset.vertices)
    features = dataset.gather(vertices)
    # As they are stored: rounded, perhaps, before anything is computed of them.
    features = features.astype(feature_type(settings), copy=False)
    features = features.astype(settings["precision"], copy=False)
    if isinstance(model, OwnModel):  # it has no layers to call one by one
        layers = settings["model"]["layers"]
        return _predict_at_once(model, layers, dataset, features)

    hidden = features
    with torch.no_grad():
        for number in range(model.layers):
            hidden = _layer_in_slices(model, number, dataset, hidden)
    return np.asarray(hidden.argmax(1), np.int64)


def _predict_at_once(
    model: OwnModel,
    layers: int,
    dataset: Dataset,
    features: Array,
) -> Ids:
    """Return the classes that a program gives to blocks of all vertices and edges."""
    structure = dataset.structure
    vertices = np.arange(dataset.vertices, dtype=np.int32)
    destination = np.repeat(vertices, structure.degrees)
    all_edges = (structure.indices, destination)
    edges = [all_edges] * layers
    sizes = [dataset.vertices] * (layers + 1)
    rows = as_tensor(features)
    classes = model.predict(sizes, edges, rows)
    return np.asarray(classes.numpy())


def _layer_in_slices(
    model: GraphModel,
    number: int,
    dataset: Dataset,
    hidden: Array,
) -> Array:
    """Return the vectors of all vertices after a layer."""
    import torch

    outputs = []
    for first in range(0, dataset.vertices, _SLICE):
        inner = min(_SLICE, dataset.vertices - first)
        seeds = np.arange(first, first + inner)
        indptr, neighbours = dataset.structure.neighbours(seeds)
        vertices, source = relabel(seeds, neighbours)
        positions = np.arange(inner, dtype=np.int32)
        degrees = np.diff(indptr)
        destination = np.repeat(positions, degrees)

        block = Block(
            source=source,
            destination=destination,
            outer=len(vertices),
            inner=inner,
        )
        rows = as_tensor(hidden[vertices])
        output = model.layer(number, block, rows)
        outputs.append(output)
    all_rows = torch.cat(outputs)
    return np.asarray(all_rows.numpy())
