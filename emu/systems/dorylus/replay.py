"""Dorylus training in one process, in the order and with the reads of a schedule.

Written from the definitions, apart from the programs: the matrix is that of the whole
graph, and every value is a function of the epochs that the log of reads names. What
`pipe` trains so is what `emu.training.reference.reference_training` trains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.graph_data import open_for
from emu.graph_data.intervals import cut_intervals
from emu.problem import Schedule, Task
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
#: Step and interval of a task.
StepKey: TypeAlias = tuple[str, int]


class Place(NamedTuple):
    """One layer of an interval in an epoch."""

    layer: int
    interval: int
    epoch: int

    @property
    def below(self) -> Place:
        """The layer before it."""
        return self._replace(layer=self.layer - 1)

    @property
    def above(self) -> Place:
        """The layer after it."""
        return self._replace(layer=self.layer + 1)


class ReadLog:
    """Epochs of every value that the intervals of a schedule have read.

    ``section``, ``context``: of the job that `schedule` is of; a recorded run holds no
    settings of tasks.
    """

    def __init__(
        self,
        section: DorylusKeys,
        context: BuildContext,
        schedule: Schedule,
    ) -> None:
        self._job = dorylus_job(section, context)
        self._reads = schedule.reads
        self._streams = section.stream > 1 and section.uses_lambdas
        self._in_edges: dict[int, list[int]] = {}
        for position, edge in enumerate(self._job.edges):
            in_edges = self._in_edges.setdefault(edge.destination, [])
            in_edges.append(position)

        # The first task of a step: what reads for a gather, or for the edges of a GAT.
        self._entry: dict[StepKey, int] = {}
        for position, task in enumerate(self._job.tasks):
            place = task.settings
            if "step" in place:
                key = (place["step"], place["interval"])
                self._entry.setdefault(key, position)

    def _epoch(self, edge: int, epoch: int) -> int:
        """Return what an edge brought to an epoch of its destination."""
        # Where an edge reads the newest, its lag is only a bound: the log tells.
        settings = self._job.edges[edge]
        if self._reads is None or not settings.latest:
            return epoch - settings.lag
        return int(self._reads[edge, epoch])

    def _source(self, edge: int) -> Task:
        position = self._job.edges[edge].source
        return self._job.tasks[position]

    def weights(self, place: Place) -> int:
        """Return the epoch of the weights of a forward pass, -1 for the first."""
        first = f"av{place.layer}_{place.interval}"
        # Of a lambda in two parts the server sends its weights to the first alone.
        if self._streams:
            first += ".first"
        reader = self._job.index(first)
        for edge in self._in_edges[reader]:
            source = self._source(edge)
            if source.kind == "weight_update":
                return self._epoch(edge, place.epoch)
        raise ValueError(f"{first} reads no weights")

    def rows(self, step: str, place: Place) -> Iterator[Place]:
        """Yield the places of the rows that a step has read, none of epoch -1."""
        reader = self._entry[step, place.interval]
        # An interval reads its own rows from its server's memory: always of this epoch.
        epochs = {place.interval: place.epoch}

        for edge in self._in_edges[reader]:
            position = self._job.edges[edge].source
            source = self._job.tasks[position]
            epoch = self._epoch(edge, place.epoch)
            is_scatter = source.kind.startswith("scatter")
            if is_scatter and position != reader:
                interval = source.settings["interval"]
                epochs[interval] = epoch
            elif source.kind == "ghosts" and epoch >= 0:
                # What receives for a server has read each interval at its own epoch.
                for scatter_edge in self._in_edges[position]:
                    scatter = self._source(scatter_edge)
                    interval = scatter.settings["interval"]
                    # It receives these rows, too, but they are read from memory.
                    if interval != place.interval:
                        sent = self._epoch(scatter_edge, epoch)
                        epochs[interval] = sent

        for interval, epoch in epochs.items():
            if epoch >= 0:
                yield Place(place.layer, interval, epoch)


def _once(compute: Callable[..., T]) -> Callable[..., T]:
    """Return a method of a replay that computes every value once; `after` forgets."""

    @wraps(compute)
    def find(replay: Replay, place: Place | int, **options: bool) -> T:
        # The place stands second: `after` finds the epoch of a value there.
        key = (compute.__name__, place, *options.values())
        if key not in replay.known:
            replay.known[key] = compute(replay, place, **options)
        value: T = replay.known[key]
        return value

    return find


class Replay:
    """Values of a training run, each computed when it is first asked for.

    Raises DataError and ValueError as `open_for` and `cut_intervals`.
    """

    def __init__(
        self,
        section: DorylusKeys,
        context: BuildContext,
        schedule: Schedule,
    ) -> None:
        settings = section.settings(context)
        self._settings = settings
        self._section = section
        self._log = ReadLog(section, context, schedule)
        self._dataset = open_for(settings)
        self._dtype = np.dtype(settings["precision"])
        model = settings["model"]
        self._activation = model["activation"]

        # The same cut as that of the programs, from the data set alone.
        parts = self._dataset.parts
        cut = cut_intervals(
            self._dataset.structure,
            self._dataset.owner,
            parts,
            section.intervals,
            section.interval_cut,
        )
        intervals = range(parts * section.intervals)
        self._rows = [np.flatnonzero(cut == interval) for interval in intervals]

        first = initial_weights(settings, self._dataset)
        self._weights = [[layer] for layer in first]  # of each layer by epoch + 1
        # Optimizers step these arrays in place, so that every version kept is a copy.
        self._newest = [layer.copy() for layer in first]
        self._optimizers = []
        for layer in self._newest:
            flat_layer = layer.reshape(-1)  # the same memory
            optimizer = make_optimizer(settings, flat_layer)
            self._optimizers.append(optimizer)
        self.known: dict[tuple[Any, ...], Any] = {}

    @cached_property
    def _matrix(self) -> Tensor:
        # The matrix of the reference: it knows no parts, so a wrong cut shows.
        model = WholeGraphModel(self._settings, self._dataset)
        return model.matrix

    @cached_property
    def _transpose(self) -> Tensor:
        transpose = self._matrix.t()
        return transpose.coalesce()

    @cached_property
    def _features(self) -> Array:
        vertices = np.arange(self._dataset.vertices)
        rows = self._dataset.gather(vertices)
        return rows.astype(self._dtype, copy=False)

    @_once
    def _rows_of(self, interval: int, *, backward: bool) -> Tensor:
        """Return the rows of A, or of A transposed, of an interval."""
        import torch

        matrix = self._transpose if backward else self._matrix
        rows = torch.from_numpy(self._rows[interval])
        return matrix.index_select(0, rows)

    def _sums(
        self,
        interval: int,
        vectors: Array,
        *,
        backward: bool,
    ) -> Array:
        """Return the rows of A, or of A transposed, of an interval times vectors."""
        import torch

        matrix = self._rows_of(interval, backward=backward)
        columns = torch.from_numpy(vectors)
        product = torch.sparse.mm(matrix, columns)
        sums = product.numpy()
        return np.asarray(sums)

    def _read_rows(
        self,
        step: str,
        place: Place,
        value: Callable[[Place], Array],
    ) -> Array:
        """Return the values of the rows that a step has read, 0 of all others."""
        _, width = value(place).shape  # its own rows are always there
        shape = (self._dataset.vertices, width)
        vectors = np.zeros(shape, self._dtype)
        for source in self._log.rows(step, place):
            rows = self._rows[source.interval]
            vectors[rows] = value(source)
        return vectors

    @_once
    def _first_gather(self, interval: int) -> Array:
        return self._sums(interval, self._features, backward=False)

    @_once
    def gather(self, place: Place) -> Array:
        """Return A H."""
        if place.layer == 0:
            return self._first_gather(place.interval)
        step = f"ga{place.layer}"
        rows = self._read_rows(step, place.below, self.activation)
        return self._sums(place.interval, rows, backward=False)

    @_once
    def scores(self, place: Place) -> Array:
        """Return Z = A H W."""
        gathered = self.gather(place)
        weights = self._weights_in_use(place)
        return np.asarray(gathered @ weights)

    @_once
    def activation(self, place: Place) -> Array:
        """Return act(Z)."""
        scores = self.scores(place)
        return activate(self._activation, scores)

    def _slope(self, place: Place) -> Array:
        scores = self.scores(place)
        return activation_slope(self._activation, scores)

    def _weights_in_use(self, place: Place) -> Array:
        epoch = self._log.weights(place)
        return self.weights(place.layer, epoch)

    def weights(self, layer: int, epoch: int) -> Array:
        """Return the weights of a layer after an epoch, the first ones after -1.

        Those of the last layer are there before the epoch has ended elsewhere.
        """
        versions = self._weights[layer]
        newest = self._newest[layer]

        optimizer = self._optimizers[layer]
        # A version needs the gradients of its epoch, and they need older ones alone.
        while epoch + 1 >= len(versions):
            step = len(versions) - 1
            total = np.zeros_like(newest)
            # In one order, whatever a run's was: weights equal its own to rounding.
            for interval in range(len(self._rows)):
                place = Place(layer, interval, step)
                total += self._gradient(place)
            flat_total = total.reshape(-1)
            optimizer.step(flat_total)
            versions.append(newest.copy())
        return versions[epoch + 1]

    def _gradient(self, place: Place) -> Array:
        """Return an interval's gradient of the weights of a layer."""
        gathered = self.gather(place)
        of_scores = self.of_scores(place)
        return np.asarray(gathered.T @ of_scores)

    @_once
    def _targets(self, interval: int) -> Array:
        vertices = self._rows[interval]
        return training_targets(self._dataset, vertices, self._dtype)

    @property
    def _last(self) -> int:
        layers: int = self._section.model.layers
        return layers - 1

    @_once
    def _loss(self, place: Place) -> Loss:
        """Return the loss of the last layer."""
        # Targets are over the training vertices of the whole graph: losses add up.
        scores = self.scores(place)
        targets = self._targets(place.interval)
        return cross_entropy(scores, targets)

    @_once
    def _of_gathered(self, place: Place) -> Array:
        """Return the gradient of A H."""
        of_scores = self.of_scores(place)
        weights = self._weights_in_use(place)
        return np.asarray(of_scores @ weights.T)

    @_once
    def of_scores(self, place: Place) -> Array:
        """Return the gradient of Z."""
        if place.layer == self._last:
            return self._loss(place).gradient

        above = place.above
        names = {}
        for step in self._section.steps:
            names[step.kind, step.layer] = step.name

        gather = names["gather_back", above.layer]
        rows = self._read_rows(gather, above, self._of_gathered)
        # dH = A^T (dZ W^T): a lambda sends dZ W^T, the gather back multiplies with A^T.
        sums = self._sums(place.interval, rows, backward=True)
        return sums * self._slope(place)

    def loss(self, epoch: int) -> float:
        """Return the mean loss over the training vertices in an epoch."""
        total = 0.0
        for interval in range(len(self._rows)):
            place = Place(self._last, interval, epoch)
            total += self._loss(place).value
        return total

    def after(self, epoch: int) -> Array:
        """Return all weights after an epoch, flat; asked for epoch by epoch."""
        layers = range(self._section.model.layers)
        weights = [self.weights(layer, epoch) for layer in layers]

        # What is older is forgotten, or memory would grow with the epochs.
        unread = epoch - 2 * self._section.lag - 1  # by any later one
        for key in [*self.known]:
            place = key[1]
            is_place = isinstance(place, Place)
            if is_place and place.epoch == unread:
                del self.known[key]
        kind = self._settings["model"]["kind"]
        return flat_weights(weights, kind)


class _Attention(NamedTuple):
    """Sums that GA makes, and what autograd leads them back to."""

    sums: Tensor
    rows: Tensor
    vectors: Tensor


class AttentionReplay(Replay):
    """Values of a training run of a GAT, by autograd within an interval's attention."""

    def _input(self, place: Place) -> Array:
        """Return the rows that a layer multiplies with its weights."""
        if place.layer == 0:
            rows = self._rows[place.interval]
            return self._features[rows]
        # A GAT has gathered already: its layer needs no row of another interval here.
        scores = self.scores(place.below)
        return activate(self._activation, scores)

    def _matrix_in_use(self, place: Place) -> Array:
        """Return the weights without the two rows of attention below them."""
        weights = self._weights_in_use(place)
        return weights[:-2]

    @_once
    def _z(self, place: Place) -> Array:
        rows = self._input(place)
        matrix = self._matrix_in_use(place)
        return np.asarray(rows @ matrix)

    @_once
    def _attend(self, place: Place) -> _Attention:
        import torch

        step = f"ae{place.layer}"
        read = self._read_rows(step, place, self._z)
        # Autograd from these rows on alone: where they came from is another place.
        rows = torch.tensor(read, requires_grad=True)
        weights = self._weights_in_use(place)
        attention = weights[-2:]
        vectors = torch.tensor(attention, requires_grad=True)

        vertices = self._rows[place.interval]
        positions = torch.from_numpy(vertices)
        edges = self._matrix.index_select(0, positions)
        sums = attend(edges.coalesce(), rows, rows[positions], vectors)
        return _Attention(sums=sums, rows=rows, vectors=vectors)

    @override
    def scores(self, place: Place) -> Array:
        # `_attend` is kept, so this needs no `_once` of its own.
        sums = self._attend(place).sums
        sums = sums.detach()
        return np.asarray(sums.numpy())

    @_once
    def _push(self, place: Place) -> tuple[Array, Array]:
        """Return the gradients of all rows, and of the attention, from an interval."""
        import torch

        attention = self._attend(place)
        of_scores = self.of_scores(place)
        rows, vectors = torch.autograd.grad(
            outputs=attention.sums,
            inputs=[attention.rows, attention.vectors],
            grad_outputs=torch.from_numpy(of_scores),
        )
        return rows.numpy(), vectors.numpy()

    @_once
    def _of_z(self, place: Place) -> Array:
        rows = self._rows[place.interval]
        z = self._z(place)
        total: Array = np.zeros_like(z)
        # Gradients run against edges, from an interval to the sources of its edges.
        step = f"dga{place.layer}"
        for source in self._log.rows(step, place):
            of_rows, _ = self._push(source)
            total += of_rows[rows]
        return total

    @override
    def of_scores(self, place: Place) -> Array:
        if place.layer == self._last:
            return self._loss(place).gradient
        above = place.above
        of_z = self._of_z(above)
        matrix = self._matrix_in_use(above)
        of_rows = of_z @ matrix.T
        return of_rows * self._slope(place)

    @override
    def _gradient(self, place: Place) -> Array:
        rows = self._input(place)
        of_z = self._of_z(place)
        of_weights = rows.T @ of_z
        _, of_attention = self._push(place)
        # The rows of attention stand below the weights, as in `initial_weights`.
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
        loss = replay.loss(epoch)
        losses.append(loss)
        flat = replay.after(epoch)
        if watch(epoch, flat):
            break
    return flat, losses
