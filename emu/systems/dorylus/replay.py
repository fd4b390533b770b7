"""Dorylus training in one process, in the order and with the reads of a schedule.

Written from the definitions, apart from the programs: the matrix is that of the whole
graph, and every value is a function of the epochs that the log of reads names. What
`pipe` trains so is what `emu.training.reference.reference_training` trains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar

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
from emu.training.optimizers import make_optimizer
from emu.training.reference import WholeGraphModel, attend

T = TypeVar("T")

if TYPE_CHECKING:
    from emu.systems.dorylus.sections import DorylusKeys
    from emu.systems.job_section import BuildContext

    Array = NDArray[np.floating[Any]]


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
        self._into: dict[int, list[int]] = {}
        for number, edge in enumerate(self._job.edges):
            self._into.setdefault(edge.destination, []).append(number)
        # The first task of a step: what reads for a gather, or for the edges of a GAT.
        self._entry: dict[tuple[str, int], int] = {}
        for position, task in enumerate(self._job.tasks):
            if "step" in task.settings:
                key = task.settings["step"], task.settings["interval"]
                self._entry.setdefault(key, position)

    def _epoch(self, edge: int, epoch: int) -> int:
        """Return what an edge brought to an epoch of its destination."""
        if self._job.edges[edge].latest and self._reads is not None:
            return int(self._reads[edge, epoch])
        return epoch - self._job.edges[edge].lag

    def weights(self, layer: int, interval: int, epoch: int) -> int:
        """Return the epoch of the weights of a forward pass, -1 for the first."""
        names = self._job.tasks
        first = f"av{layer}_{interval}"
        if self._streams:
            first += ".first"
        for edge in self._into[self._job.index(first)]:
            if names[self._job.edges[edge].source].kind == "weight_update":
                return self._epoch(edge, epoch)
        raise ValueError(f"{first} reads no weights")

    def rows(self, gather: str, interval: int, epoch: int) -> Iterator[tuple[int, int]]:
        """Yield (interval, epoch) of the rows that a gather sums, none of epoch -1."""
        task = self._entry[gather, interval]
        epochs: dict[int, int] = {interval: epoch}
        for edge in self._into[task]:
            source = self._job.edges[edge].source
            kind = self._job.tasks[source].kind
            at = self._epoch(edge, epoch)
            if kind.startswith("scatter") and source != task:
                epochs[self._job.tasks[source].settings["interval"]] = at
            elif kind == "ghosts":
                for behind in self._into[source] if at >= 0 else ():
                    sender = self._job.tasks[self._job.edges[behind].source]
                    number = sender.settings["interval"]
                    if number != interval:
                        epochs[number] = self._epoch(behind, at)
        yield from ((number, at) for number, at in epochs.items() if at >= 0)


def _once(compute: Callable[..., T]) -> Callable[..., T]:
    """Return a method of a replay that computes every value once; `after` forgets."""

    @wraps(compute)
    def find(replay: Replay, *place: int, **way: bool) -> T:
        key = (compute.__name__, *place, *way.values())
        if key not in replay.known:
            replay.known[key] = compute(replay, *place, **way)
        value: T = replay.known[key]
        return value

    return find


class Replay:
    """Values of a training run, each computed when it is first asked for.

    Raises DataError and ValueError as `open_for` and `cut_intervals`.
    """

    def __init__(
        self, section: DorylusKeys, context: BuildContext, schedule: Schedule
    ) -> None:
        self._section = section
        self._settings = settings = section.settings(context)
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
        self._weights: list[list[Array]] = [[one] for one in first]  # by epoch + 1
        self._held = [one.copy() for one in first]
        self._optimizers = [
            make_optimizer(settings, array.reshape(-1)) for array in self._held
        ]
        self.known: dict[tuple[Any, ...], Any] = {}

    @cached_property
    def _matrix(self) -> Any:
        return WholeGraphModel(self._settings, self._dataset).matrix

    @cached_property
    def _transpose(self) -> Any:
        return self._matrix.t().coalesce()

    @cached_property
    def _features(self) -> Array:
        rows = self._dataset.gather(np.arange(self._dataset.vertices))
        return rows.astype(self._dtype, copy=False)

    @_once
    def _rows_of(self, interval: int, *, backward: bool) -> Any:
        """Return the rows of A, or of A transposed, of an interval."""
        import torch

        whole = self._transpose if backward else self._matrix
        return whole.index_select(0, torch.from_numpy(self._rows[interval]))

    def _sums(self, interval: int, vectors: Array, *, backward: bool) -> Array:
        """Return the rows of A, or of A transposed, of an interval times vectors."""
        import torch

        matrix = self._rows_of(interval, backward=backward)
        return np.asarray(torch.sparse.mm(matrix, torch.from_numpy(vectors)).numpy())

    def _sum_gather(
        self, gather: str, i: int, n: int, value: Callable[..., Array]
    ) -> Array:
        """Return the sums of what a gather has read, by ``value(interval, epoch)``."""
        width = value(i, n).shape[1]  # its own rows are always there
        vectors = np.zeros((self._dataset.vertices, width), self._dtype)
        for number, epoch in self._log.rows(gather, i, n):
            vectors[self._rows[number]] = value(number, epoch)
        return self._sums(i, vectors, backward=gather.startswith("d"))

    @_once
    def _first_gather(self, i: int) -> Array:
        return self._sums(i, self._features, backward=False)

    @_once
    def gather(self, layer: int, i: int, n: int) -> Array:
        """Return A H of a layer for interval i in epoch n."""
        if layer == 0:
            return self._first_gather(i)
        value = partial(self.activation, layer - 1)
        return self._sum_gather(f"ga{layer}", i, n, value)

    @_once
    def scores(self, layer: int, i: int, n: int) -> Array:
        """Return Z = A H W."""
        return np.asarray(self.gather(layer, i, n) @ self._weights_in_use(layer, i, n))

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
        while epoch + 1 >= len(self._weights[layer]):
            step = len(self._weights[layer]) - 1
            total = np.zeros_like(self._held[layer])
            for i in range(len(self._rows)):
                total += self._gradient(layer, i, step)
            self._optimizers[layer].step(total.reshape(-1))
            self._weights[layer].append(self._held[layer].copy())
        return self._weights[layer][epoch + 1]

    def _gradient(self, layer: int, i: int, n: int) -> Array:
        """Return an interval's gradient of the weights of a layer."""
        return np.asarray(self.gather(layer, i, n).T @ self.of_scores(layer, i, n))

    @_once
    def _targets(self, i: int) -> Any:
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
            return np.asarray(self._loss(i, n).gradient)
        back = "gather_back", layer + 1
        steps = self._section.steps
        gather = next(s.name for s in steps if (s.kind, s.layer) == back)
        sums = self._sum_gather(gather, i, n, partial(self._of_gathered, layer + 1))
        return sums * activation_slope(self._activation, self.scores(layer, i, n))

    def loss(self, epoch: int) -> float:
        """Return the mean loss over the training vertices in an epoch."""
        return float(sum(self._loss(i, epoch).value for i in range(len(self._rows))))

    def after(self, epoch: int) -> Array:
        """Return all weights after an epoch, flat; asked for epoch by epoch."""
        layers = range(self._section.model.layers)
        weights = [self.weights(layer, epoch) for layer in layers]
        unread = epoch - 2 * self._section.lag - 1  # by any later one
        by_epoch = [k for k in self.known if len(k) == 4 or k[0] == "_loss"]
        for key in by_epoch:
            if key[-1] == unread:
                del self.known[key]
        return flat_weights(weights, self._settings["model"]["kind"])


class AttentionReplay(Replay):
    """Values of a training run of a GAT, by autograd within an interval's attention."""

    def _input(self, layer: int, i: int, n: int) -> Array:
        """Return the rows that a layer multiplies with its weights."""
        if not layer:
            return self._features[self._rows[i]]
        return activate(self._activation, self.scores(layer - 1, i, n))

    @_once
    def _z(self, layer: int, i: int, n: int) -> Array:
        weights = self._weights_in_use(layer, i, n)[:-2]
        return np.asarray(self._input(layer, i, n) @ weights)

    @_once
    def _attend(self, layer: int, i: int, n: int) -> tuple[Any, Any, Any]:
        """Return what GA sums, and what it follows from: rows and attention."""
        import torch

        width = self._z(layer, i, n).shape[1]
        read = np.zeros((self._dataset.vertices, width), self._dtype)
        for number, epoch in self._log.rows(f"ae{layer}", i, n):
            read[self._rows[number]] = self._z(layer, number, epoch)
        rows = torch.tensor(read, requires_grad=True)
        weights = self._weights_in_use(layer, i, n)
        vectors = torch.tensor(weights[-2:], requires_grad=True)
        places = torch.from_numpy(self._rows[i])
        edges = self._matrix.index_select(0, places).coalesce()
        return attend(edges, rows, rows[places], vectors), rows, vectors

    @override
    def scores(self, layer: int, i: int, n: int) -> Array:
        return np.asarray(self._attend(layer, i, n)[0].detach().numpy())

    @_once
    def _push(self, layer: int, i: int, n: int) -> tuple[Array, Array]:
        """Return the gradients of all rows, and of the attention, from an interval."""
        import torch

        out, *ends = self._attend(layer, i, n)
        gradient = torch.from_numpy(self.of_scores(layer, i, n))
        rows, vectors = torch.autograd.grad(out, ends, gradient)
        return rows.numpy(), vectors.numpy()

    @_once
    def _of_z(self, layer: int, i: int, n: int) -> Array:
        total: Array = np.zeros_like(self._z(layer, i, n))
        for number, epoch in self._log.rows(f"dga{layer}", i, n):
            total += self._push(layer, number, epoch)[0][self._rows[i]]
        return total

    @override
    def of_scores(self, layer: int, i: int, n: int) -> Array:
        if layer == self._section.model.layers - 1:
            return np.asarray(self._loss(i, n).gradient)
        of_rows = (
            self._of_z(layer + 1, i, n) @ self._weights_in_use(layer + 1, i, n)[:-2].T
        )
        return of_rows * activation_slope(self._activation, self.scores(layer, i, n))

    @override
    def _gradient(self, layer: int, i: int, n: int) -> Array:
        of_weights = self._input(layer, i, n).T @ self._of_z(layer, i, n)
        return np.concatenate([of_weights, self._push(layer, i, n)[1]])


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
