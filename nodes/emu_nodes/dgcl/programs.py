"""Programs of DGCL: layers, stages of gathers, and gradients of one device.

A stage sends rows by the plan's tables to a task at the receiver, which keeps them; the
stage that follows takes them in. Tasks of a device share its process and its `Device`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.errors import NodeMisbehaved
from emu.graph_data import Adjacency, Part, open_layers
from emu.systems.dgcl.plans import gradient_plan, open_plans
from emu.training import PartModel, initial_parameters, make_optimizer
from emu_nodes.all_reduce import share_vector
from emu_nodes.program import (
    EdgeSpec,
    Inputs,
    Payload,
    Shared,
    TaskProgram,
    TaskSpec,
    tensor,
)

#: Stage, sender, receiver, vertices in ascending order.
Transfer = tuple[int, int, int, NDArray[np.int64]]
#: (layer, backward, iteration): a pass along the plan, back with gradients.
Pass = tuple[int, bool, int]


class Tables:
    """A device's tables of a plan: which of its rows it sends, which it gets.

    Its rows are those of its part, then of vertices that it only relays.
    """

    def __init__(self, rank: int, part: Part, transfers: Iterable[Transfer]) -> None:
        mine = [one for one in transfers if rank in one[1:3]]
        mine.sort(key=lambda one: one[:3])
        passing = [vertices for *_, vertices in mine]
        every = np.unique(np.concatenate([part.local[:0], *passing]))
        # Rows that pass through go last, so that those of the part keep their places.
        relays = np.setdiff1d(every, part.vertices)
        vertices = np.concatenate([part.vertices, relays])
        order = np.argsort(vertices)
        self._count = len(vertices)
        self.sent: dict[tuple[int, int], NDArray[np.intp]] = {}
        """Rows that go to a receiver in a stage, ascending by vertex."""
        self.received: dict[int, list[tuple[int, NDArray[np.intp]]]] = {}
        """(sender, rows) of a stage, senders in ascending order."""
        for stage, sender, receiver, rows in mine:
            at = order[np.searchsorted(vertices[order], rows)]
            if sender == rank:
                self.sent[stage, receiver] = at
            else:
                self.received.setdefault(stage, []).append((sender, at))

    def begin(self, first: NDArray[Any]) -> NDArray[Any]:
        """Return values of all rows for one pass of a layer: the first, then 0."""
        values = np.zeros((self._count, first.shape[1]), first.dtype)
        values[: len(first)] = first
        return values

    def take_in(
        self,
        values: NDArray[Any],
        stage: int,
        parts: Mapping[int, NDArray[Any]],
        *,
        add: bool,
    ) -> None:
        """Take in what a stage brought, in ascending order of the senders.

        So sums of gradients have one order, whoever was first. ``parts``: rows by
        sender, which are added to what is there, or replace it.

        Raises NodeMisbehaved when a sender's rows are missing, or of another shape.
        """
        for sender, at in self.received.get(stage, ()):
            expected = len(at), values.shape[1]
            rows = parts.get(sender)
            if rows is None or rows.shape != expected:
                shape = "nothing" if rows is None else f"rows of shape {rows.shape}"
                raise NodeMisbehaved(
                    f"device {sender} sent {shape} in stage {stage}, not {expected}"
                )
            if add:
                values[at] += rows
            else:
                values[at] = rows


class Carrier:
    """Rows on their way through one machine, pass by pass and stage by stage.

    Raises DataError when the data set, its parts or the plans are missing or damaged.
    """

    def __init__(self, brief: TaskSpec) -> None:
        settings = brief.job_settings
        self.rank: int = brief.settings["rank"]
        self.ranks: int = settings["parts"]
        self._dataset, graphs = open_layers(settings)
        holds = self.rank < self.ranks
        none = np.empty(0, np.int64)
        few = np.empty(0, np.int32)
        empty = Adjacency(np.zeros(1, np.int64), few, np.empty(0))
        nothing = Part(none, none, few, empty, empty)
        self.parts = [g.part(self.rank) if holds else nothing for g in graphs]
        self.layers = len(graphs)
        self._hidden: int = settings["model"]["hidden"]
        self._precision = np.dtype(settings["precision"])
        atomic = settings["backward"] == "atomic"
        self._plans = {
            (layer, backward): gradient_plan(p, atomic=atomic) if backward else p
            for layer, p in enumerate(open_plans(settings))
            for backward in (False, True)
        }
        self._tables = {
            key: Tables(self.rank, self.parts[key[0]], plan)
            for key, plan in self._plans.items()
        }
        self._rows: dict[Pass, NDArray[Any]] = {}
        self._arrived: dict[tuple[Pass, int], dict[int, NDArray[Any]]] = {}

    def _width(self, layer: int) -> int:
        """Return the length of a layer's input rows."""
        return self._hidden if layer else self._dataset.feature_length

    def send(self, of: Pass, stage: int, receiver: int) -> NDArray[Any]:
        """Return the rows that go to a receiver in a stage of a pass."""
        return self._rows[of][self._tables[of[:2]].sent[stage, receiver]]

    def receive(self, of: Pass, stage: int, sender: int, rows: NDArray[Any]) -> None:
        """Keep what a sender's stage brought: this machine may be behind it."""
        self._arrived.setdefault((of, stage), {})[sender] = rows.copy()

    def enter(self, of: Pass, stage: int) -> None:
        """Take in what the stage before has brought."""
        if stage > 0:
            arrivals = self._arrived.pop((of, stage - 1), {})
            tables = self._tables[of[:2]]
            tables.take_in(self._rows[of], stage - 1, arrivals, add=of[1])

    def _begin(self, of: Pass, values: NDArray[Any]) -> None:
        self._rows[of] = self._tables[of[:2]].begin(values)


class Host(Carrier):
    """A machine that has no vertices and keeps rows for others."""

    @override
    def enter(self, of: Pass, stage: int) -> None:
        """Begin with nothing, and forget the rows after the last stage."""
        if of not in self._rows:
            self._begin(of, np.zeros((0, self._width(of[0])), self._precision))
        super().enter(of, stage)
        if stage == self._plans[of[:2]].stages:
            del self._rows[of]


class Device(Carrier):
    """The state that the tasks of a device share.

    With ``compute: timed`` nothing is learnt and torch is not loaded: rows of layers
    beyond the features are zeros of the right size. Raises DataError as `Carrier`.
    """

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief)
        settings = brief.job_settings
        dataset = self._dataset
        self._process = process
        self._classes = dataset.classes
        self._cached: bool = settings["cache_features"]
        part = self.parts[0]
        own = np.concatenate([part.local, part.held])
        vertices = part.vertices if self._cached else own
        self._features = dataset.gather(vertices).astype(self._precision)
        self.parameters = initial_parameters(settings, dataset)
        self.optimizer = make_optimizer(settings, self.parameters)
        self._gradient = np.zeros_like(self.parameters)
        self._steps = brief.first
        self._model: PartModel | None = None
        if settings["compute"] != "timed":
            model = self._model = PartModel(settings, dataset, *self.parts)
            model.load(self.parameters)
            # All layers once, before the start barrier.
            out = np.zeros((0, self._classes), self._precision)
            for layer in range(self.layers):
                shape = len(self.parts[layer].vertices), self._width(layer)
                out = model.forward(layer, np.zeros(shape, self._precision))
            gradient = model.score(out).gradient
            for layer in reversed(range(self.layers)):
                gradients = model.backward(layer, gradient)
                if gradients is not None:
                    gradient = gradients[: len(self.parts[layer - 1].local)]

    @override
    def enter(self, of: Pass, stage: int) -> None:
        """Take in what the stage before has brought, or begin to gather features."""
        if stage == 0 and of[0] == 0:  # of other layers, their pass is begun
            self._begin(of, self._features)
        super().enter(of, stage)

    def gather(self, layer: int, iteration: int) -> NDArray[Any]:
        """Return the input rows of a layer: of local, then of remote vertices."""
        rows = None
        if layer or not self._cached:
            rows = self._rows.pop((layer, False, iteration), None)
        if rows is None:  # cached, or of one device, which gathers no features
            return self._features
        return rows[: len(self.parts[layer].vertices)]

    def forward(self, layer: int, iteration: int) -> dict[str, float]:
        """Compute a layer; after the last one its gradient, and return figures."""
        if layer == 0:
            self.step(iteration)
        rows = self.gather(layer, iteration)
        last = layer == self.layers - 1
        width = self._classes if last else self._hidden
        if self._model is None:
            out = np.zeros((len(self.parts[layer].local), width), self._precision)
        else:
            out = self._model.forward(layer, rows)
        if not last:
            self._begin((layer + 1, False, iteration), out)
            return {}
        if self._model is None:
            self._backward(layer, iteration, out)
            return {}
        score = self._model.score(out)
        self._backward(layer, iteration, score.gradient)
        own = {"loss": score.loss, "accuracy": score.accuracy}
        return {name: figure * self.ranks for name, figure in own.items()}

    def step(self, epochs: int) -> None:
        """Step with the sum of all devices' gradients of the epochs before."""
        if self._model is None:
            return
        # The sum is there once an epoch's all-reduce has ended: it is taken late, at
        # the next one's first layer, or when a cut or the end asks.
        for _ in range(self._steps, epochs):
            self.optimizer.step(self._gradient)
            self._steps += 1
        self._model.load(self.parameters)

    def backward(self, layer: int, iteration: int) -> None:
        """Go back through a layer, whose gradient all consumers have sent."""
        rows = self._rows.pop((layer + 1, True, iteration))
        self._backward(layer, iteration, rows[: len(self.parts[layer].local)])

    def _backward(self, layer: int, iteration: int, gradient: NDArray[Any]) -> None:
        if self._model is not None:
            shares = self._model.backward(layer, gradient)
        else:
            shape = len(self.parts[layer].vertices), self._width(layer)
            shares = np.zeros(shape, self._precision)
        if layer > 0 and shares is not None:
            self._begin((layer, True, iteration), shares)
            return
        if self._model is not None:
            self._gradient = self._model.gradient.copy()
        if self.ranks > 1:
            name = f"w{self.rank}"
            share_vector(self._process, name, self._gradient, iteration)


class _CarrierTask(TaskProgram):
    """State and methods that the tasks of a device, or of a host, share.

    They return nothing for each other: they share its memory.
    """

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        if "dgcl" not in process:
            host = brief.settings["rank"] == brief.job_settings["parts"]
            process["dgcl"] = Host(brief) if host else Device(brief, process)
        super().__init__(brief, process)
        self._carrier: Carrier = process["dgcl"]
        self._layer: int = brief.settings["layer"] - 1  # the job counts from 1


class Layer(_CarrierTask):
    """Forward pass of a layer, of the last one with loss and backward pass.

    Its loss and accuracy are the device's shares of the graph's, times the number of
    devices: the mean over devices is that of the graph.
    """

    _carrier: Device

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        self._figures = self._carrier.forward(self._layer, iteration)
        return {}

    def state(self, iteration: int) -> Payload:
        """Return parameters and moments before an epoch; asked of the first layer.

        It waits for the sum of all gradients of the epoch before: nothing else is left
        of that.
        """
        self._carrier.step(iteration)
        return self._carrier.optimizer.state()

    def restore(self, state: Mapping[str, Payload]) -> None:
        """Have the device go on from the state of one, which all hold alike."""
        (one,) = state.values()
        self._carrier.optimizer.restore(one)

    @override
    def result(self) -> Payload:
        # All layers of a device have the same: the first hands it over.
        if self._layer:
            return {}
        self._carrier.step(self._brief.iterations)
        return {"parameters": self._carrier.parameters}


class Gradient(_CarrierTask):
    """Backward pass of a layer below the last."""

    _carrier: Device

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        self._carrier.backward(self._layer, iteration)
        return {}


class Stage(_CarrierTask):
    """Takes in what the stage before brought, and sends the rows of its own."""

    @override
    def work(self, iteration: int, inputs: Inputs) -> Pass:
        of = self._layer, self._brief.kind == "scatter", iteration
        self._carrier.enter(of, self._brief.settings["stage"])
        return of

    @override
    def payload(self, output: EdgeSpec, iteration: int, made: Pass) -> Payload:
        """Return the rows of a receiver, whose task is called ``...FROMtoRANK``."""
        # ``f0.2to1`` or ``f0.2to1@3`` to rank 1, others are of this device.
        to = re.fullmatch(r"[fb]\d+\.\d+to(\d+)(@\d+)?", output.peer)
        if to is None:
            return {}
        stage: int = self._brief.settings["stage"]
        return {"rows": self._carrier.send(made, stage, int(to[1]))}


class Received(_CarrierTask):
    """Keeps what a peer's stage sent for the stage of this device that follows."""

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        place = self._brief.settings
        (source,) = self._brief.inputs
        rows = tensor(inputs[source.edge], "rows", source)
        of = self._layer, self._brief.kind == "scattered", iteration
        self._carrier.receive(of, place["stage"], place["sender"], rows)
        return {}
