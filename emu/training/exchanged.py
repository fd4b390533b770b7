"""Whole-graph training in parts that exchange what `Exchange`s state.

`ExchangedPart` is the share of one part: node programs and the training in one process
call the same methods, in the same order, so that their weights have the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import permutations

import numpy as np

from emu.graph_data import open_for, open_parts
from emu.problem.workloads import shard_bounds
from emu.problem.workloads.exchange import (
    GRADIENTS,
    ROWS,
    SKIP_BYTES,
    Exchange,
    carries_numbers,
    is_exact,
    read_exchanges,
)
from emu.training.graph_model import initial_parameters
from emu.training.layers import Array, JobSettings
from emu.training.messages import Message, Positions, Reader, decode, draw_rows, encode
from emu.training.optimizers import make_optimizer
from emu.training.reference import (
    Watch,
    WholeGraphModel,
    evaluate,
    reference_training,
)
from emu.training.whole_graph import PartModel, Scored


class ExchangedPart:
    """One part's rows and gradients, layer by layer; with ``timed`` they are zeros.

    Raises DataError when the data set or its parts are missing or damaged.
    """

    def __init__(self, settings: JobSettings, rank: int) -> None:
        dataset, graph = open_parts(settings)
        self._seed: int = settings["seed"]
        self._rank = rank
        self._dtype = np.dtype(settings["precision"])
        self._exchanges = read_exchanges(settings)
        self.part = graph.part(rank)
        hidden = [settings["model"]["hidden"]] * (settings["model"]["layers"] - 1)
        self._widths = [dataset.feature_length, *hidden, dataset.classes]
        self.layers = len(hidden) + 1
        self.ranks = graph.parts

        parts = [graph.part(number) for number in range(graph.parts)]
        self._largest = max(len(part.local) for part in parts)
        # By the other part: rows of its that this one reads, by their places among the
        # remote rows and among the owner's, and own rows that the other reads.
        self._borrowed: dict[int, Positions] = {}
        self._places: dict[int, Positions] = {}
        self._lent: dict[int, Positions] = {}
        for peer, other in enumerate(parts):
            if peer == rank:
                continue
            is_owned = self.part.owners == peer
            self._borrowed[peer] = np.flatnonzero(is_owned)
            ghosts = graph.ghosts_of(peer, rank)
            self._places[peer] = np.searchsorted(other.local, ghosts)
            lent = graph.ghosts_of(rank, peer)
            self._lent[peer] = np.searchsorted(self.part.local, lent)

        features = dataset.gather(self.part.vertices)
        features = features.astype(self._dtype)
        self._features = features
        # By layer, from 1: its inputs, of local vertices, and gradients of remote ones.
        local = len(self.part.local)
        self._inputs: dict[int, Array] = {1: features[:local]}
        self._shares: dict[int, Array] = {}
        self._local_gradient = features[:0]
        self.scored = Scored(0.0, 0.0, features[:0])
        """Loss of this part in the last epoch."""
        self._readers: dict[tuple[Exchange, int], Reader] = {}
        self._model: PartModel | None = None
        if settings.get("compute") != "timed":
            self._model = PartModel(settings, dataset, self.part)
            self._rehearse(initial_parameters(settings, dataset))

    def _rehearse(self, parameters: Array) -> None:
        """Go through all layers once, before anything is timed."""
        self.begin(parameters)
        for layer in range(1, self.layers + 1):
            self.forward(layer)
        for layer in range(self.layers, 0, -1):
            self.backward(layer)
        self._readers.clear()

    def exchange(self, content: str, layer: int) -> Exchange | None:
        """Return what is exchanged of a layer's inputs, or of their gradients."""
        for exchange in self._exchanges:
            if exchange.content == content and exchange.layer == layer:
                return exchange
        return None

    def begin(self, parameters: Array) -> None:
        """Begin an epoch with these parameters."""
        if self._model is not None:
            self._model.load(parameters)

    def _shared_with(self, exchange: Exchange, peer: int, *, sends: bool) -> Positions:
        """Return the rows that are sent to a peer, or that it sends, by position."""
        is_lent = sends == (exchange.content == ROWS)
        return self._lent[peer] if is_lent else self._borrowed[peer]

    def _draw(
        self, exchange: Exchange, epoch: int, peer: int, *, sends: bool
    ) -> Positions:
        """Return which of the rows that it shares with a peer an epoch sends."""
        # Gradients go back by the draw of their rows, to the owner.
        owner = peer
        reader = self._rank
        is_owner = sends == (exchange.content == ROWS)
        if is_owner:
            owner = self._rank
            reader = peer
        shared = self._count_shared(exchange, peer, sends=sends)
        return draw_rows(exchange, self._seed, epoch, owner, reader, shared)

    def _count_shared(self, exchange: Exchange, peer: int, *, sends: bool) -> int:
        """Return how many rows a message would have if all were drawn."""
        if exchange.whole:
            return self._largest
        return len(self._shared_with(exchange, peer, sends=sends))

    def send(self, exchange: Exchange, epoch: int, peer: int) -> Message:
        """Return what goes to another part after an epoch's pass of a layer."""
        if not exchange.sends(epoch):
            return {"skip": np.zeros(SKIP_BYTES, np.uint8)}
        shared = self._shared_with(exchange, peer, sends=True)
        drawn = self._draw(exchange, epoch, peer, sends=True)
        sources = self._inputs if exchange.content == ROWS else self._shares
        if exchange.whole:
            rows = self._block(exchange, peer)
        else:
            places = shared[drawn]
            rows = sources[exchange.layer][places]
        if exchange.share < 1 and len(drawn):
            # What an epoch leaves out counts in the mean.
            rows = rows * (len(shared) / len(drawn))

        message = encode(exchange, rows, self._seed, epoch, self._rank, peer)
        if carries_numbers(exchange, self._exchanges):
            message["ids"] = drawn
        return message

    def _block(self, exchange: Exchange, peer: int) -> Array:
        """Return all rows of a whole part, 0 where it is smaller than the largest."""
        width = self._widths[exchange.layer - 1]
        block = np.zeros((self._largest, width), self._dtype)
        if exchange.content == ROWS:
            rows = self._inputs[exchange.layer]
            block[: len(rows)] = rows
        else:
            shares = self._shares[exchange.layer]
            block[self._places[peer]] = shares[self._borrowed[peer]]
        return block

    def receive(
        self, exchange: Exchange, epoch: int, peer: int, message: Message
    ) -> None:
        """Take in what another part has sent in an epoch.

        Raises ValueError when it has another form, or rows that were not drawn.
        """
        reader = self._reader(exchange, peer)
        if "skip" in message:
            return
        drawn = self._draw(exchange, epoch, peer, sends=False)
        if not np.array_equal(message.get("ids", drawn), drawn):
            raise ValueError("rows that were not drawn")
        width = reader.rows.shape[1]
        rows = decode(exchange, message, len(drawn), width, self._dtype)
        reader.take(drawn, rows)

    def _reader(self, exchange: Exchange, peer: int) -> Reader:
        """Return what is read of a peer's rows, 0 at first."""
        key = (exchange, peer)
        if key not in self._readers:
            shared = self._count_shared(exchange, peer, sends=False)
            width = self._widths[exchange.layer - 1]
            self._readers[key] = Reader(exchange, shared, width, self._dtype)
        return self._readers[key]

    def _read(self, exchange: Exchange, peer: int) -> Array:
        """Return what is read of the rows that it shares with a peer."""
        rows = self._reader(exchange, peer).rows
        if not exchange.whole:
            return rows
        is_own = exchange.content == GRADIENTS
        return rows[self._lent[peer] if is_own else self._places[peer]]

    def forward(self, layer: int) -> None:
        """Compute the vectors of the local vertices after a layer."""
        rows = self._rows_before(layer)
        if self._model is None:
            shape = (len(self.part.local), self._widths[layer])
            self._inputs[layer + 1] = np.zeros(shape, self._dtype)
        else:
            self._inputs[layer + 1] = self._model.forward(layer - 1, rows)

    def _rows_before(self, layer: int) -> Array:
        exchange = self.exchange(ROWS, layer)
        if layer == 1 and exchange is None:
            return self._features  # of others as well, fetched before training
        local = self._inputs[layer]
        remote = np.zeros((len(self.part.remote), local.shape[1]), self._dtype)
        if exchange is not None:
            for peer, places in self._borrowed.items():
                remote[places] = self._read(exchange, peer)
        return np.concatenate([local, remote])

    def backward(self, layer: int) -> None:
        """Go back through a layer; after the last one begin with its loss."""
        if self._model is None:
            shape = (len(self.part.remote), self._widths[layer - 1])
            self._shares[layer] = np.zeros(shape, self._dtype)
            return
        if layer == self.layers:
            self.scored = self._model.score(self._inputs[layer + 1])
            gradient = self.scored.gradient
        else:
            gradient = self._gradient_after(layer)
        shares = self._model.backward(layer - 1, gradient)
        if shares is not None:
            count = len(self.part.local)
            self._local_gradient = shares[:count].copy()
            self._shares[layer] = shares[count:]

    def _gradient_after(self, layer: int) -> Array:
        """Return the gradient of a layer's vectors: its own share, then others'."""
        gradient = self._local_gradient
        exchange = self.exchange(GRADIENTS, layer + 1)
        if exchange is not None:
            # In the order of ranks: sums of floats depend on it.
            for peer, places in self._lent.items():
                gradient[places] += self._read(exchange, peer)
        return gradient

    @property
    def gradient(self) -> Array | None:
        """Gradient of the parameters from this part, None where nothing is computed."""
        return None if self._model is None else self._model.gradient


def train_exchanged(
    settings: JobSettings,
    epochs: int,
    missed: int = 0,
    watch: Watch = lambda *_: None,
) -> tuple[Array, list[float]]:
    """Train in one process as the parts of a job would, with what they exchange.

    Exact exchanges train as one device that has all. Arguments, values and errors are
    those of `reference_training`.
    """
    if is_exact(settings):
        return reference_training(settings, epochs, missed, watch)

    dataset = open_for(settings)
    evaluated = WholeGraphModel(settings, dataset)
    parameters = initial_parameters(settings, dataset)
    optimizer = make_optimizer(settings, parameters)
    training = _Training(settings)
    losses = list[float]()
    for epoch in range(epochs):
        gradient, loss = training.run_epoch(epoch, parameters)
        optimizer.step(gradient)
        losses.append(loss)
        look = partial(evaluate, settings, parameters, dataset, evaluated)
        if watch(epoch, parameters, look):
            break
    return parameters, losses


class _Training:
    """All parts of a training in one process, and the messages under way."""

    def __init__(self, settings: JobSettings) -> None:
        first = ExchangedPart(settings, 0)
        others = [ExchangedPart(settings, rank) for rank in range(1, first.ranks)]
        self._parts = [first, *others]
        self._layers = range(1, first.layers + 1)
        self._messages: dict[tuple[Exchange, int, int, int], Message] = {}

    def run_epoch(self, epoch: int, parameters: Array) -> tuple[Array, float]:
        """Return the sum of all parts' gradients, and the loss of the whole graph."""
        for part in self._parts:
            part.begin(parameters)
        self._post(ROWS, 1, epoch)
        for layer in self._layers:
            self._deliver(ROWS, layer, epoch)
            for part in self._parts:
                part.forward(layer)
            self._post(ROWS, layer + 1, epoch)

        for layer in reversed(self._layers):
            self._deliver(GRADIENTS, layer + 1, epoch)
            for part in self._parts:
                part.backward(layer)
            self._post(GRADIENTS, layer, epoch)
        gradients = [np.asarray(part.gradient) for part in self._parts]
        losses = [part.scored.loss for part in self._parts]
        loss = float(sum(losses))
        return sum_round_ring(gradients), loss

    def _post(self, content: str, layer: int, epoch: int) -> None:
        exchange = self._parts[0].exchange(content, layer)
        if exchange is None:
            return
        for sender, receiver in permutations(range(len(self._parts)), 2):
            message = self._parts[sender].send(exchange, epoch, receiver)
            # A message may be of arrays that the next epoch overwrites.
            kept = {name: array.copy() for name, array in message.items()}
            self._messages[exchange, epoch, sender, receiver] = kept

    def _deliver(self, content: str, layer: int, epoch: int) -> None:
        exchange = self._parts[0].exchange(content, layer)
        if exchange is None or epoch < exchange.age:
            return
        sent = epoch - exchange.age
        for sender, receiver in permutations(range(len(self._parts)), 2):
            message = self._messages.pop((exchange, sent, sender, receiver))
            self._parts[receiver].receive(exchange, sent, sender, message)


def sum_round_ring(vectors: Sequence[Array]) -> Array:
    """Return the sum of the ranks' vectors, chunk by chunk in the order of a ring.

    So it has the bits of an all-reduce (`emu.problem.workloads.all_reduce`): chunk c
    begins with rank c, and every rank that follows adds its own.
    """
    ranks = len(vectors)
    total = np.empty_like(vectors[0])
    for chunk, (begin, end) in enumerate(shard_bounds(len(total), ranks)):
        partial_sum = vectors[chunk][begin:end].copy()
        for step in range(1, ranks):
            rank = (chunk + step) % ranks
            partial_sum += vectors[rank][begin:end]
        total[begin:end] = partial_sum
    return total
