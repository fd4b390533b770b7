"""Dorylus training in one process, in the order and with the reads of a schedule.

Written from the definitions, apart from the programs: the matrix is that of the whole
graph, and every value is a function of the epochs that the log of reads names. What
`pipe` trains so is what `emu.training.reference.reference_training` trains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial, wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.graph_data import open_for
from emu.graph_data.intervals import cut_intervals
from emu.problem import Schedule
from emu.systems.dorylus.job import dorylus_job
from emu.training.interval_layers import (
    Loss,
    activate,
    activation_slope,
    cross_entropy,
    flat_weights,
    initial_weights,
    training_targets,
)
from emu.training.layers import Tensor
from emu.training.optimizers import make_optimizer
from emu.training.reference import WholeGraphModel, attend

if TYPE_CHECKING:
    from emu.systems.dorylus.sections import DorylusKeys
    from emu.systems.job_section import BuildContext

T = TypeVar("T")
Array: TypeAlias = "NDArray[np.floating[Any]]"


class ReadLog:
    """Epochs of every value that the intervals of a schedule have read.

    ``section``, ``context``: of the job that `schedule` is of; a recorded run holds no
    settings of tasks.
    """

    def __init__(
        self, section: DorylusKeys, context: BuildContext, schedule: Schedule
    ) -> None:
        self._job = dorylus_job(section, context)
        self._reads = schedule.reads
        self._streams = section.stream > 1 and section.uses_lambdas
        self._in_edges: dict[int, list[int]] = {}
        for position, edge in enumerate(self._job.edges):
            self._in_edges.setdefault(edge.destination, []).append(position)

        # The first task of a step: what reads for a gather, or for the edges of a GAT.
        self._entry: dict[tuple[str, int], int] = {}
        for position, task in enumerate(self._job.tasks):
            if "step" in task.settings:
                key = (task.settings["step"], task.settings["interval"])
                self._entry.setdefault(key, position)

    def _epoch(self, edge: int, epoch: int) -> int:
        """Return what an edge brought to an epoch of its destination."""
        if self._job.edges[edge].latest and self._reads is not None:
            return int(self._reads[edge, epoch])
        return epoch - self._job.edges[edge].lag

    def _source(self, edge: int) -> int:
        return self._job.edges[edge].source

    def weights(self, layer: int, interval: int, epoch: int) -> int:
        """Return the epoch of the weights of a forward pass, -1 for the first."""
        first = f"av{layer}_{interval}"
        if self._streams:
            first += ".first"
        for edge in self._in_edges[self._job.index(first)]:
            if self._job.tasks[self._source(edge)].kind == "weight_update":
                return self._epoch(edge, epoch)
        raise ValueError(f"{first} reads no weights")

    def rows(self, gather: str, interval: int, epoch: int) -> Iterator[tuple[int, int]]:
        """Yield (interval, epoch) of the rows that a gather sums, none of epoch -1."""
        reader = self._entry[gather, interval]
        epochs = {interval: epoch}
        for edge in self._in_edges[reader]:
            source = self._source(edge)
            task = self._job.tasks[source]
            read = self._epoch(edge, epoch)
            if task.kind.startswith("scatter") and source != reader:
                epochs[task.settings["interval"]] = read
            elif task.kind == "ghosts" and read >= 0:
                for scatter_edge in self._in_edges[source]:
                    scatter = self._job.tasks[self._source(scatter_edge)]
                    number = scatter.settings["interval"]
                    if number != interval:
                        epochs[number] = self._epoch(scatter_edge, read)
        for number, read in epochs.items():
            if read >= 0:
                yield number, read


def _once(compute: Callable[..., T]) -> Callable[..., T]:
    """Return a method of a replay that computes every value once; `after` forgets."""

    @wraps(compute)
    def find(replay: Replay, *place: int, **options: bool) -> T:
        key = (compute.__name__, *place, *options.values())
        if key not in replay.known:
            replay.known[key] = compute(replay, *place, **options)
        value: T = replay.known[key]
        return value

    return find


class Replay:
    """Values of a training run, each computed when it is first asked for.

    Methods are of a layer, interval i and epoch n. Raises DataError and ValueError as
    `open_for` and `cut_intervals`.
    """

    def __init__(
        self, section: DorylusKeys, context: BuildContext, schedule: Schedule
    ) -> None:
        settings = section.settings(context)
        self._settings = settings
        self._section = section
        self._log = ReadLog(section, context, schedule)
        self._dataset = open_for(settings)
        self._dtype = np.dtype(settings["precision"])
        self._activation = settings["model"]["activation"]

        cut = cut_intervals(
            self._dataset.structure,
            self._dataset.owner,
            self._dataset.parts,
            section.intervals,
            section.interval_cut,
        )
        count = self._dataset.parts * section.intervals
        self._rows = [np.flatnonzero(cut == i) for i in range(count)]

        first = initial_weights(settings, self._dataset)
        self._weights = [[layer] for layer in first]  # of each layer by epoch + 1
        self._newest = [layer.copy() for layer in first]
        self._optimizers = [
            make_optimizer(settings, layer.reshape(-1)) for layer in self._newest
        ]
        self.known: dict[tuple[Any, ...], Any] = {}

    @cached_property
    def _matrix(self) -> Tensor:
        return WholeGraphModel(self._settings, self._dataset).matrix

    @cached_property
    def _transpose(self) -> Tensor:
        return self._matrix.t().coalesce()

    @cached_property
    def _features(self) -> Array:
        rows = self._dataset.gather(np.arange(self._dataset.vertices))
        return rows.astype(self._dtype, copy=False)

    @_once
    def _rows_of(self, interval: int, *, backward: bool) -> Tensor:
        """Return the rows of A, or of A transposed, of an interval."""
        import torch

        matrix = self._transpose if backward else self._matrix
        return matrix.index_select(0, torch.from_numpy(self._rows[interval]))

    def _sums(self, interval: int, vectors: Array, *, backward: bool) -> Array:
        """Return the rows of A, or of A transposed, of an interval times vectors."""
        import torch

        matrix = self._rows_of(interval, backward=backward)
        return np.asarray(torch.sparse.mm(matrix, torch.from_numpy(vectors)).numpy())

    def _read_rows(
        self, step: str, i: int, n: int, value: Callable[..., Array]
    ) -> Array:
        """Return ``value(interval, epoch)`` as read by a step; of no one else 0."""
        width = value(i, n).shape[1]  # its own rows are always there
        vectors = np.zeros((self._dataset.vertices, width), self._dtype)
        for interval, epoch in self._log.rows(step, i, n):
            vectors[self._rows[interval]] = value(interval, epoch)
        return vectors

    @_once
    def _first_gather(self, i: int) -> Array:
        return self._sums(i, self._features, backward=False)

    @_once
    def gather(self, layer: int, i: int, n: int) -> Array:
        """Return A H of a layer for interval i in epoch n."""
        if layer == 0:
            return self._first_gather(i)
        value = partial(self.activation, layer - 1)
        rows = self._read_rows(f"ga{layer}", i, n, value)
        return self._sums(i, rows, backward=False)

    @_once
    def scores(self, layer: int, i: int, n: int) -> Array:
        """Return Z = A H W."""
        sums = self.gather(layer, i, n)
        return np.asarray(sums @ self._weights_in_use(layer, i, n))

    @_once
    def activation(self, layer: int, i: int, n: int) -> Array:
        """Return act(Z)."""
        return activate(self._activation, self.scores(layer, i, n))

    def _weights_in_use(self, layer: int, i: int, n: int) -> Array:
        return self.weights(layer, self._log.weights(layer, i, n))

    def weights(self, layer: int, epoch: int) -> Array:
        """Return the weights of a layer after an epoch, the first ones after -1.

        Those of the last layer are there before the epoch has ended elsewhere.
        """
        versions = self._weights[layer]
        newest = self._newest[layer]
        while epoch + 1 >= len(versions):
            step = len(versions) - 1
            total = np.zeros_like(newest)
            for i in range(len(self._rows)):
                total += self._gradient(layer, i, step)
            self._optimizers[layer].step(total.reshape(-1))
            versions.append(newest.copy())
        return versions[epoch + 1]

    def _gradient(self, layer: int, i: int, n: int) -> Array:
        """Return an interval's gradient of the weights of a layer."""
        return np.asarray(self.gather(layer, i, n).T @ self.of_scores(layer, i, n))

    @_once
    def _targets(self, i: int) -> Array:
        return training_targets(self._dataset, self._rows[i], self._dtype)

    @_once
    def _loss(self, i: int, n: int) -> Loss:
        last = self._section.model.layers - 1
        return cross_entropy(self.scores(last, i, n), self._targets(i))

    @_once
    def _of_gathered(self, layer: int, i: int, n: int) -> Array:
        """Return the gradient of A H."""
        weights = self._weights_in_use(layer, i, n)
        return np.asarray(self.of_scores(layer, i, n) @ weights.T)

    @_once
    def of_scores(self, layer: int, i: int, n: int) -> Array:
        """Return the gradient of Z."""
        if layer == self._section.model.layers - 1:
            return self._loss(i, n).gradient

        steps = {(step.kind, step.layer): step.name for step in self._section.steps}
        gather = steps["gather_back", layer + 1]
        value = partial(self._of_gathered, layer + 1)
        rows = self._read_rows(gather, i, n, value)
        sums = self._sums(i, rows, backward=True)
        return sums * activation_slope(self._activation, self.scores(layer, i, n))

    def loss(self, epoch: int) -> float:
        """Return the mean loss over the training vertices in an epoch."""
        losses = [self._loss(i, epoch).value for i in range(len(self._rows))]
        return float(sum(losses))

    def after(self, epoch: int) -> Array:
        """Return all weights after an epoch, flat; asked for epoch by epoch."""
        layers = range(self._section.model.layers)
        weights = [self.weights(layer, epoch) for layer in layers]

        unread = epoch - 2 * self._section.lag - 1  # by any later one
        for key in [*self.known]:
            has_epoch = len(key) == 4 or key[0] == "_loss"
            if has_epoch and key[-1] == unread:
                del self.known[key]
        return flat_weights(weights, self._settings["model"]["kind"])


class _Attention(NamedTuple):
    """Sums that GA makes, and what autograd leads them back to."""

    sums: Tensor
    rows: Tensor
    vectors: Tensor


class AttentionReplay(Replay):
    """Values of a training run of a GAT, by autograd within an interval's attention."""

    def _input(self, layer: int, i: int, n: int) -> Array:
        """Return the rows that a layer multiplies with its weights."""
        if layer == 0:
            return self._features[self._rows[i]]
        return activate(self._activation, self.scores(layer - 1, i, n))

    def _matrix_in_use(self, layer: int, i: int, n: int) -> Array:
        """Return the weights without the two rows of attention below them."""
        return self._weights_in_use(layer, i, n)[:-2]

    @_once
    def _z(self, layer: int, i: int, n: int) -> Array:
        rows = self._input(layer, i, n)
        return np.asarray(rows @ self._matrix_in_use(layer, i, n))

    @_once
    def _attend(self, layer: int, i: int, n: int) -> _Attention:
        import torch

        read = self._read_rows(f"ae{layer}", i, n, partial(self._z, layer))
        rows = torch.tensor(read, requires_grad=True)
        attention = self._weights_in_use(layer, i, n)[-2:]
        vectors = torch.tensor(attention, requires_grad=True)

        places = torch.from_numpy(self._rows[i])
        edges = self._matrix.index_select(0, places).coalesce()
        sums = attend(edges, rows, rows[places], vectors)
        return _Attention(sums=sums, rows=rows, vectors=vectors)

    @override
    def scores(self, layer: int, i: int, n: int) -> Array:
        return np.asarray(self._attend(layer, i, n).sums.detach().numpy())

    @_once
    def _push(self, layer: int, i: int, n: int) -> tuple[Array, Array]:
        """Return the gradients of all rows, and of the attention, from an interval."""
        import torch

        attention = self._attend(layer, i, n)
        gradient = torch.from_numpy(self.of_scores(layer, i, n))
        rows, vectors = torch.autograd.grad(
            attention.sums, [attention.rows, attention.vectors], gradient
        )
        return rows.numpy(), vectors.numpy()

    @_once
    def _of_z(self, layer: int, i: int, n: int) -> Array:
        total: Array = np.zeros_like(self._z(layer, i, n))
        for interval, epoch in self._log.rows(f"dga{layer}", i, n):
            of_rows, _ = self._push(layer, interval, epoch)
            total += of_rows[self._rows[i]]
        return total

    @override
    def of_scores(self, layer: int, i: int, n: int) -> Array:
        if layer == self._section.model.layers - 1:
            return self._loss(i, n).gradient
        of_z = self._of_z(layer + 1, i, n)
        of_rows = of_z @ self._matrix_in_use(layer + 1, i, n).T
        return of_rows * activation_slope(self._activation, self.scores(layer, i, n))

    @override
    def _gradient(self, layer: int, i: int, n: int) -> Array:
        of_weights = self._input(layer, i, n).T @ self._of_z(layer, i, n)
        _, of_attention = self._push(layer, i, n)
        return np.concatenate([of_weights, of_attention])


def replay_training(
    section: DorylusKeys,
    context: BuildContext,
    schedule: Schedule,
    watch: Callable[[int, Array], bool | None] = lambda *_: None,
) -> tuple[Array, list[float]]:
    """Return the weights that a schedule of a Dorylus job trains, and all mean losses.

    They are flat, as of `emu.training.parameter_shapes`. ``watch``: called after every
    epoch with its number and all weights, flat; True ends it. Raises DataError and
    ValueError as `Replay`.
    """
    kind = AttentionReplay if section.attends else Replay
    replay = kind(section, context, schedule)
    losses = []
    flat: Array = np.zeros(0)
    for epoch in range(section.epochs):
        losses.append(replay.loss(epoch))
        flat = replay.after(epoch)
        if watch(epoch, flat):
            break
    return flat, losses
