"""Whole-graph training in parts that exchange what `Exchange`s state.

`ExchangedPart` is the share of one part: node programs and the training in one process
call the same methods, in the same order, so that their weights have the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations

import numpy as np

from emu.array_types import Array
from emu.graph_data import WholeGraph, open_for
from emu.graph_data.dependencies import open_dependencies
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
from emu.training.layers import JobSettings
from emu.training.messages import (
    Message,
    Passage,
    Positions,
    Reader,
    decode,
    draw_rows,
    encode,
)
from emu.training.optimizers import make_optimizer
from emu.training.reference import (
    Watch,
    WholeGraphModel,
    evaluate,
    reference_training,
)
from emu.training.whole_graph import PartModel, Scored


@dataclass(frozen=True)
class _Neighbour:
    """Rows that a part shares with another one."""

    borrowed: Positions
    """Rows of the other part, by position among the remote ones of this part."""
    places: Positions
    """The same rows, by position among the local ones of the other part."""
    lent: Positions
    """Rows that the other part reads, by position among the local ones of this part."""
    borrowed_vertices: Positions
    lent_vertices: Positions
    """Vertices of the borrowed rows, and of those that are lent."""

    def vertices(self, content: str, *, sent: bool) -> Array:
        """Return the numbers beside rows, or gradients, that the part sends or gets."""
        is_forward = content == ROWS
        is_lent = sent == is_forward
        vertices = self.lent_vertices if is_lent else self.borrowed_vertices
        return np.asarray(vertices).astype(np.int32)


def _find_neighbours(
    graph: WholeGraph,
    owned: WholeGraph,
    rank: int,
) -> dict[int, _Neighbour]:
    """Return what a part shares with every other one, by the rank of that.

    ``owned``: the parts of the last layer, which compute their own vertices alone;
    these begin the rows of every layer.
    """
    part = graph.part(rank)
    local = owned.part(rank).local
    neighbours: dict[int, _Neighbour] = {}
    for peer in range(graph.parts):
        if peer == rank:
            continue

        other_local = owned.part(peer).local
        is_borrowed = part.owners == peer
        borrowed = graph.ghosts_of(peer, rank)
        lent = graph.ghosts_of(rank, peer)
        neighbours[peer] = _Neighbour(
            borrowed=np.flatnonzero(is_borrowed),
            places=np.searchsorted(other_local, borrowed),
            lent=np.searchsorted(local, lent),
            borrowed_vertices=borrowed,
            lent_vertices=lent,
        )
    return neighbours


class ExchangedPart:
    """One part's rows and gradients, layer by layer; with ``timed`` they are zeros.

    Raises DataError when the data set or its parts are missing or damaged.
    """

    def __init__(self, settings: JobSettings, rank: int) -> None:
        dataset, graphs = open_dependencies(settings)
        self._seed: int = settings["seed"]
        self._rank = rank
        self._dtype = np.dtype(settings["precision"])
        self._exchanges = read_exchanges(settings)
        self._parts = [graph.part(rank) for graph in graphs]
        owned = graphs[-1]
        self.ranks = owned.parts
        owners = [owned.part(number) for number in range(self.ranks)]
        self._largest = max(len(part.local) for part in owners)

        # Where nothing is cached all layers share one graph.
        distinct_graphs = dict.fromkeys(graphs)
        by_graph = {}
        for graph in distinct_graphs:
            by_graph[graph] = _find_neighbours(graph, owned, rank)
        self._neighbours = [by_graph[graph] for graph in graphs]

        model = settings["model"]
        self.layers: int = model["layers"]
        hidden = [model["hidden"]] * (self.layers - 1)
        self._widths = [dataset.feature_length, *hidden, dataset.classes]

        input_vertices = self._parts[0].vertices
        features = dataset.gather(input_vertices)
        features = features.astype(self._dtype)
        self._features = features

        # By layer, from 1: its inputs, of local vertices, and gradients of remote ones.
        local = len(self._parts[-1].local)
        local_features = features[:local]
        self._inputs: dict[int, Array] = {1: local_features}
        self._shares: dict[int, Array] = {}
        nothing = features[:0]
        self._local_gradient = nothing
        self.scored = Scored(0.0, 0.0, nothing)
        """Loss of this part in the last epoch."""
        self._readers: dict[tuple[Exchange, int], Reader] = {}

        self._model: PartModel | None = None
        if settings.get("compute") != "timed":
            parts = [graph.part(rank) for graph in distinct_graphs]
            self._model = PartModel(settings, dataset, *parts)
            parameters = initial_parameters(settings, dataset)
            self._rehearse(parameters)

    def _rehearse(self, parameters: Array) -> None:
        """Go through all layers once, before anything is timed."""
        self.begin(parameters)
        layers = range(1, self.layers + 1)
        for layer in layers:
            self.forward(layer)
        for layer in reversed(layers):
            self.backward(layer)
        self._readers.clear()

    def exchange(self, content: str, layer: int) -> Exchange | None:
        """Return what is exchanged of a layer's inputs, or of their gradients."""
        for exchange in self._exchanges:
            is_layer = exchange.layer == layer
            if exchange.content == content and is_layer:
                return exchange
        return None

    def begin(self, parameters: Array) -> None:
        """Begin an epoch with these parameters."""
        if self._model is not None:
            self._model.load(parameters)

    def send(self, exchange: Exchange, epoch: int, peer: int) -> Message:
        """Return what goes to another part after an epoch's pass of a layer."""
        if not exchange.sends(epoch):
            nothing = np.zeros(SKIP_BYTES, np.uint8)
            return {"skip": nothing}

        passage = Passage(
            seed=self._seed,
            epoch=epoch,
            sender=self._rank,
            receiver=peer,
        )
        rows = self._rows_for(exchange, peer)
        shared = len(rows)
        drawn = draw_rows(exchange, passage, shared)
        if exchange.share < 1:
            # What an epoch leaves out counts in the mean.
            weight = shared / max(1, len(drawn))
            rows = rows[drawn] * weight

        message = encode(exchange, rows, passage)
        if carries_numbers(exchange, self._exchanges):
            message["ids"] = drawn
        if exchange.numbered:
            neighbour = self._find(exchange, peer)
            vertices = neighbour.vertices(exchange.content, sent=True)
            message["numbers"] = vertices
        return message

    def _find(self, exchange: Exchange, peer: int) -> _Neighbour:
        """Return what this part shares with another one before a layer."""
        layer = exchange.layer - 1
        neighbours = self._neighbours[layer]
        return neighbours[peer]

    def _rows_for(self, exchange: Exchange, peer: int) -> Array:
        """Return the rows of which an epoch draws those that it sends to a peer."""
        neighbour = self._find(exchange, peer)
        if exchange.content == ROWS:
            rows = self._inputs[exchange.layer]
            if not exchange.whole:
                return rows[neighbour.lent]
            places = np.arange(len(rows))
        else:
            gradients = self._shares[exchange.layer]
            rows = gradients[neighbour.borrowed]
            if not exchange.whole:
                return rows
            places = neighbour.places

        # A block has as many rows as the largest part, 0 where there is none.
        block = self._zeros(self._largest, exchange.layer - 1)
        block[places] = rows
        return block

    def _zeros(self, count: int, layer: int) -> Array:
        """Return zeros for the vectors of so many vertices after a layer."""
        width = self._widths[layer]
        shape = (count, width)
        return np.zeros(shape, self._dtype)

    def receive(
        self,
        exchange: Exchange,
        epoch: int,
        peer: int,
        message: Message,
    ) -> None:
        """Take in what another part has sent in an epoch.

        Raises ValueError when it has another form, or rows that were not drawn.
        """
        if "skip" in message:
            return
        reader = self._reader(exchange, peer)
        shared, width = reader.rows.shape
        passage = Passage(
            seed=self._seed,
            epoch=epoch,
            sender=peer,
            receiver=self._rank,
        )

        drawn = draw_rows(exchange, passage, shared)
        stated = message.get("ids", drawn)
        if not np.array_equal(stated, drawn):
            raise ValueError("rows that were not drawn")
        if exchange.numbered:
            neighbour = self._find(exchange, peer)
            vertices = neighbour.vertices(exchange.content, sent=False)
            stated = message["numbers"]
            if not np.array_equal(stated, vertices):
                raise ValueError("rows of vertices that it was not asked for")

        shape = (len(drawn), width)
        rows = decode(exchange, message, shape, self._dtype)
        reader.take(drawn, rows)

    def _reader(self, exchange: Exchange, peer: int) -> Reader:
        """Return what is read of a peer's rows, 0 at first."""
        key = (exchange, peer)
        if key not in self._readers:
            count = self._count_read(exchange, peer)
            zeros = self._zeros(count, exchange.layer - 1)
            self._readers[key] = Reader(exchange, zeros)
        return self._readers[key]

    def _count_read(self, exchange: Exchange, peer: int) -> int:
        """Return how many rows a peer's message has if all are drawn."""
        if exchange.whole:
            return self._largest
        neighbour = self._find(exchange, peer)
        if exchange.content == GRADIENTS:
            return len(neighbour.lent)
        return len(neighbour.borrowed)

    def _read(self, exchange: Exchange, peer: int) -> Array:
        """Return what is read of the rows that it shares with a peer."""
        reader = self._reader(exchange, peer)
        rows = reader.rows
        if not exchange.whole:
            return rows
        neighbour = self._find(exchange, peer)
        if exchange.content == GRADIENTS:
            return rows[neighbour.lent]
        return rows[neighbour.places]

    def forward(self, layer: int) -> None:
        """Compute the vectors of the local vertices after a layer."""
        rows = self._rows_before(layer)
        if self._model is None:
            part = self._parts[layer - 1]
            local = len(part.local)
            vectors = self._zeros(local, layer)
        else:
            vectors = self._model.forward(layer - 1, rows)
        self._inputs[layer + 1] = vectors

    def _rows_before(self, layer: int) -> Array:
        """Return a layer's inputs: local ones, then what is read of remote ones."""
        exchange = self.exchange(ROWS, layer)
        if layer == 1 and exchange is None:
            return self._features  # of others as well, fetched before training

        part = self._parts[layer - 1]
        local = self._inputs[layer]
        remote_count = len(part.remote)
        remote = self._zeros(remote_count, layer - 1)
        if exchange is not None:
            neighbours = self._neighbours[layer - 1]
            for peer, neighbour in neighbours.items():
                rows = self._read(exchange, peer)
                remote[neighbour.borrowed] = rows
        return np.concatenate([local, remote])

    def backward(self, layer: int) -> None:
        """Go back through a layer; after the last one begin with its loss."""
        part = self._parts[layer - 1]
        if self._model is None:
            remote = len(part.remote)
            self._shares[layer] = self._zeros(remote, layer - 1)
            return

        if layer == self.layers:
            outputs = self._inputs[layer + 1]
            self.scored = self._model.score(outputs)
            gradient = self.scored.gradient
        else:
            gradient = self._gradient_after(layer)
        shares = self._model.backward(layer - 1, gradient)
        if shares is not None:
            count = len(part.local) + len(part.held)
            local_shares = shares[:count]
            self._local_gradient = local_shares.copy()
            self._shares[layer] = shares[count:]

    def _gradient_after(self, layer: int) -> Array:
        """Return the gradient of a layer's vectors: its own share, then others'."""
        gradient = self._local_gradient
        exchange = self.exchange(GRADIENTS, layer + 1)
        if exchange is not None:
            # In the order of ranks: sums of floats depend on it.
            neighbours = self._neighbours[layer]
            for peer, neighbour in neighbours.items():
                rows = self._read(exchange, peer)
                gradient[neighbour.lent] += rows
        return gradient

    @property
    def gradient(self) -> Array | None:
        """Gradient of the parameters from this part, None where nothing is computed."""
        if self._model is None:
            return None
        return self._model.gradient


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
        self._parts = [first]
        for rank in range(1, first.ranks):
            part = ExchangedPart(settings, rank)
            self._parts.append(part)
        self._layers = range(1, first.layers + 1)
        ranks = range(first.ranks)
        self._pairs = list(permutations(ranks, 2))
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
        """Have every part send what is exchanged of a layer."""
        exchange = self._parts[0].exchange(content, layer)
        if exchange is None:
            return
        for sender, receiver in self._pairs:
            part = self._parts[sender]
            message = part.send(exchange, epoch, receiver)
            # A message may be of arrays that the next epoch overwrites.
            arrays = {name: array.copy() for name, array in message.items()}
            self._messages[exchange, epoch, sender, receiver] = arrays

    def _deliver(self, content: str, layer: int, epoch: int) -> None:
        """Have every part take in what it reads of a layer, as old as stated."""
        exchange = self._parts[0].exchange(content, layer)
        if exchange is None or epoch < exchange.age:
            return
        sent = epoch - exchange.age
        for sender, receiver in self._pairs:
            key = (exchange, sent, sender, receiver)
            message = self._messages.pop(key)
            part = self._parts[receiver]
            part.receive(exchange, sent, sender, message)


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
