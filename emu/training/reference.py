"""The same training in one process, which every distributed run must equal; accuracy.

Whole-graph training is written from the definitions, apart from
`emu.training.whole_graph`: the matrix is built from the edges of the graph, and
autograd goes through all layers at once. Parts and their order play no role. Accuracy
is with every neighbour, layer by layer over the whole graph.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from emu.graph_data import BatchPlan, Dataset, open_for, relabel
from emu.training.graph_model import build_model, initial_parameters, parameter_shapes
from emu.training.layers import Block, MiniBatch, Tensor, as_tensor
from emu.training.looks import trains_whole_graph
from emu.training.optimizers import make_optimizer, mean_gradient
from emu.training.own_model import OwnModel

#: Called after every step with its number, from 0, the parameters, and what returns
#: their accuracy as `evaluate`; True ends the training there.
Watch: TypeAlias = Callable[
    [int, NDArray[Any], Callable[[], dict[str, float]]], bool | None
]


class WholeGraphModel:
    """A model of ``Job.settings`` with the matrix of its graph."""

    def __init__(self, settings: Mapping[str, Any], dataset: Dataset) -> None:
        import torch

        torch.set_num_threads(1)
        self._model = settings["model"]
        self._shapes = parameter_shapes(settings, dataset)
        self._dtype = getattr(torch, settings["precision"])
        features = dataset.gather(np.arange(dataset.vertices))
        self._features = torch.from_numpy(features).to(self._dtype)
        count = dataset.vertices
        structure = dataset.structure
        to = np.repeat(np.arange(count), np.diff(structure.indptr))
        of = structure.indices.astype(np.int64)
        if self._model["kind"] in {"gcn", "plain_gcn", "plain_gat", "gin"}:
            to, of = (np.concatenate([ends, np.arange(count)]) for ends in (to, of))
        degree = np.bincount(to, minlength=count).astype(np.float64)
        if self._model["norm"] == "symmetric":
            weights = degree[to] ** -0.5 * degree[of] ** -0.5
        else:
            is_mean = self._model["norm"] == "mean"
            weights = 1 / degree[to] if is_mean else np.ones(len(to))
        ends = torch.from_numpy(np.stack([to, of]))
        values = torch.from_numpy(weights)
        #: Weights of all edges, rows by destination.
        self.matrix = torch.sparse_coo_tensor(
            ends, values.to(self._dtype), (count, count), check_invariants=True
        ).coalesce()

    def scores(self, flat: Tensor) -> Tensor:
        """Return a score per vertex and class, from flat parameters."""
        import torch

        pieces = flat.split([prod(shape) for shape in self._shapes.values()])
        layers: list[dict[str, Tensor]] = [{} for _ in range(self._model["layers"])]
        for (name, shape), piece in zip(self._shapes.items(), pieces, strict=True):
            _, place, part = name.split(".")
            layers[int(place)][part] = piece.view(shape)
        hidden = self._features
        for number, layer in enumerate(layers):
            if number:
                hidden = getattr(torch, self._model["activation"])(hidden)
            hidden = self._layer(hidden, layer)
        return hidden

    def _layer(self, hidden: Tensor, parts: Mapping[str, Tensor]) -> Tensor:
        import torch

        kind = self._model["kind"]
        if kind in {"gcn", "plain_gcn"}:
            product = hidden @ parts["weight"].T
            return torch.sparse.mm(self.matrix, product) + parts.get("bias", 0.0)
        if kind == "plain_gat":
            rows = hidden @ parts["weight"].T
            names = "attention_source", "attention_destination"
            vectors = torch.cat([parts[name] for name in names])
            return attend(self.matrix, rows, rows, vectors)
        if kind == "gin":
            total = torch.sparse.mm(self.matrix, hidden)
            inner = (total @ parts["weight_1"].T + parts["bias_1"]).relu()
            return inner @ parts["weight_2"].T + parts["bias_2"]
        around = torch.sparse.mm(self.matrix, hidden @ parts["neighbours"].T)
        return around + hidden @ parts["own"].T + parts.get("bias", 0.0)


def attend(
    edges: Tensor, sources: Tensor, destinations: Tensor, vectors: Tensor
) -> Tensor:
    """Return each destination's mean of its sources' rows, weighed by attention.

    One head of Velickovic et al. (ICLR 2018), equations 1 to 4. Edges are coalesced,
    rows by destination; their values play no role. Rows z of both ends have shape
    (vertices, width), the vectors, attention of sources and of destinations, (2,
    width).
    """
    import torch
    from torch.nn.functional import leaky_relu

    to, of = edges.indices()
    scores = (sources @ vectors[0])[of] + (destinations @ vectors[1])[to]
    matrix = torch.sparse_coo_tensor(
        edges.indices(), leaky_relu(scores, 0.2), edges.shape, check_invariants=True
    )
    attention = torch.sparse.softmax(matrix.coalesce(), 1)
    return torch.sparse.mm(attention, sources)


def _train_whole_graph(
    settings: Mapping[str, Any], epochs: int, watch: Watch
) -> tuple[NDArray[Any], list[float]]:
    """Return what `reference_training` does, of a step per epoch on the mean loss."""
    import torch
    from torch.nn.functional import cross_entropy

    dataset = open_for(settings)
    model = WholeGraphModel(settings, dataset)
    parameters = initial_parameters(settings, dataset)
    optimizer = make_optimizer(settings, parameters)
    train = torch.from_numpy(np.array(dataset.train))
    labels = torch.from_numpy(dataset.labels[dataset.train].astype(np.int64))
    losses = list[float]()
    for epoch in range(epochs):
        flat = torch.tensor(parameters, requires_grad=True)
        scores = model.scores(flat)
        # A look at the weights of the epoch before: they are what this one begins with.
        look = partial(_grade, dataset, scores.argmax(1).numpy())
        if epoch and watch(epoch - 1, parameters, look):
            return parameters, losses
        loss = cross_entropy(scores[train], labels)
        (gradient,) = torch.autograd.grad(loss, flat)
        optimizer.step(gradient.numpy())
        losses.append(float(loss.detach()))
    if epochs:
        look = partial(evaluate, settings, parameters, dataset, model)
        watch(epochs - 1, parameters, look)
    return parameters, losses


def reference_training(
    settings: Mapping[str, Any],
    iterations: int,
    missed: int = 0,
    watch: Watch = lambda *_: None,
) -> tuple[NDArray[Any], list[float]]:
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
    each = settings["samplers_per_worker"]
    losses = []
    versions: deque[NDArray[Any]] = deque(maxlen=missed + 1)
    for iteration in range(iterations):
        versions.append(parameters.copy())
        model.load(versions[0])
        results = []
        for worker in range(settings["workers"]):
            samplers = range(worker * each, (worker + 1) * each)
            batches = [MiniBatch.draw(dataset, plan, s, iteration) for s in samplers]
            results.append(model.gradient(batches, worker, iteration))
        optimizer.step(mean_gradient([gradient for gradient, _, _ in results]))
        losses.append(float(np.mean([loss for _, loss, _ in results])))
        look = partial(evaluate, settings, parameters, dataset)
        if watch(iteration, parameters, look):
            break
    return parameters, losses


_SLICE = 16_384  # destinations at a time: bounds memory beside the layer's own output


def evaluate(
    settings: Mapping[str, Any],
    parameters: NDArray[Any],
    dataset: Dataset | None = None,
    whole: WholeGraphModel | None = None,
) -> dict[str, float]:
    """Return the accuracy on the train, valid and test vertices, of flat parameters.

    Full neighbourhoods, so the figure does not depend on any sample. Holds one value
    per (vertex, hidden unit) in memory; of a program, what it keeps of one call with
    the whole graph. Looks at one training share its data set, opened, and of a job on
    the whole graph its model. Raises DataError as `open_for`; ValueError when the
    parameters do not fit the model.
    """
    dataset = dataset or open_for(settings)
    return _grade(dataset, predict(settings, dataset, parameters, whole))


def _grade(dataset: Dataset, classes: NDArray[np.int64]) -> dict[str, float]:
    parts = {"train": dataset.train, "valid": dataset.valid, "test": dataset.test}
    return {
        name: float(np.mean(classes[vertices] == dataset.labels[vertices]))
        for name, vertices in parts.items()
        if len(vertices)
    }


def predict(
    settings: Mapping[str, Any],
    dataset: Dataset,
    parameters: NDArray[Any],
    whole: WholeGraphModel | None = None,
) -> NDArray[np.int64]:
    """Return the predicted class of every vertex; raises ValueError as `evaluate`."""
    import torch

    if trains_whole_graph(settings):
        model = whole or WholeGraphModel(settings, dataset)
        with torch.no_grad():
            return np.asarray(model.scores(torch.tensor(parameters)).argmax(1).numpy())
    sampled = build_model(settings, dataset)
    sampled.load(parameters)
    hidden = dataset.gather(np.arange(dataset.vertices))
    hidden = hidden.astype(settings["precision"], copy=False)
    if isinstance(sampled, OwnModel):  # it has no layers to call one by one
        layers = settings["model"]["layers"]
        to = np.arange(dataset.vertices, dtype=np.int32)
        to = np.repeat(to, np.diff(dataset.structure.indptr))
        every = [(dataset.structure.indices, to)] * layers
        sizes = [dataset.vertices] * (layers + 1)
        return np.asarray(sampled.predict(sizes, every, as_tensor(hidden)).numpy())
    with torch.no_grad():
        for number in range(sampled.layers):
            outputs = []
            for first in range(0, dataset.vertices, _SLICE):
                inner = min(_SLICE, dataset.vertices - first)
                own = np.arange(first, first + inner)
                indptr, neighbours = dataset.structure.neighbours(own)
                vertices, source = relabel(own, neighbours)
                to = np.repeat(np.arange(inner, dtype=np.int32), np.diff(indptr))
                block = Block(source, to, len(vertices), inner)
                rows = as_tensor(hidden[vertices])
                outputs.append(sampled.layer(number, block, rows))
            hidden = torch.cat(outputs).numpy()
    return np.asarray(hidden.argmax(1), np.int64)
