"""Programs of DGCL: layers, stages of gathers, and gradients of one device.

A stage sends rows by the plan's tables to a task at the receiver, which keeps them; the
stage that follows takes them in. Tasks of a device share its process and its `Device`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.errors import NodeMisbehaved
from emu.graph_data import Adjacency, Part, open_layers
from emu.graph_data.sampling import Ids
from emu.systems.dgcl.planner import GatherPlan
from emu.systems.dgcl.plans import gradient_plan, open_plans
from emu.training import PartModel, initial_parameters, make_optimizer
from emu_nodes.all_reduce import share_vector
from emu_nodes.program import (
    Array,
    EdgeSpec,
    Inputs,
    Payload,
    Shared,
    TaskProgram,
    TaskSpec,
    tensor,
)

#: Stage, sender, receiver, vertices in ascending order.
Transfer = tuple[int, int, int, Ids]
Rows: TypeAlias = NDArray[np.intp]
#: Layer, and whether a plan is that of gradients.
PlanKey: TypeAlias = tuple[int, bool]


class Pass(NamedTuple):
    """A pass along the plan of a layer, back with gradients."""

    layer: int
    backward: bool
    iteration: int

    @property
    def plan(self) -> PlanKey:
        """Key of the plan that it goes along."""
        return (self.layer, self.backward)


class Tables:
    """A device's tables of a plan: which of its rows it sends, which it gets.

    Its rows are those of its part, then of vertices that it only relays.
    """

    def __init__(self, rank: int, part: Part, transfers: Iterable[Transfer]) -> None:
        passing = []
        for transfer in transfers:
            _, sender, receiver, _ = transfer
            if rank in (sender, receiver):
                passing.append(transfer)
        # Plans need not be in order; senders are taken in as these tables list them.
        passing.sort(key=lambda transfer: transfer[:3])

        # Rows that pass through go last, so that those of the part keep their places.
        parts = [part.local[:0]]
        parts += [vertices for *_, vertices in passing]
        crossing = np.concatenate(parts)
        relays = np.setdiff1d(crossing, part.vertices)
        all_vertices = np.concatenate([part.vertices, relays])
        order = np.argsort(all_vertices)
        ascending = all_vertices[order]

        self._count = len(all_vertices)
        self.sent: dict[tuple[int, int], Rows] = {}
        """Rows that go to a receiver in a stage, ascending by vertex."""
        self.received: dict[int, list[tuple[int, Rows]]] = {}
        """(sender, rows) of a stage, senders in ascending order."""
        for stage, sender, receiver, vertices in passing:
            places = np.searchsorted(ascending, vertices)
            rows = order[places]
            if sender == rank:
                self.sent[stage, receiver] = rows
            else:
                arrivals = self.received.setdefault(stage, [])
                arrivals.append((sender, rows))

    def begin(self, first: Array) -> Array:
        """Return values of all rows for one pass of a layer: the first, then 0."""
        count, width = first.shape
        shape = (self._count, width)
        values = np.zeros(shape, first.dtype)
        values[:count] = first
        return values

    def take_in(
        self,
        values: Array,
        stage: int,
        parts: Mapping[int, Array],
        *,
        add: bool,
    ) -> None:
        """Take in what a stage brought, in ascending order of the senders.

        So sums of gradients have one order, whoever was first. ``parts``: rows by
        sender, which are added to what is there, or replace it.

        Raises NodeMisbehaved when a sender's rows are missing, or of another shape.
        """
        _, width = values.shape
        for sender, rows in self.received.get(stage, ()):
            part = parts.get(sender)
            shape = (len(rows), width)
            if part is None or part.shape != shape:
                content = "nothing" if part is None else f"rows of shape {part.shape}"
                raise NodeMisbehaved(
                    f"device {sender} sent {content} in stage {stage}, not {shape}"
                )
            if add:
                values[rows] += part
            else:
                values[rows] = part


def _empty_part() -> Part:
    """Return the part of a machine that has no vertices."""
    vertices = np.empty(0, np.int64)
    owners = np.empty(0, np.int32)
    edges = Adjacency(
        indptr=np.zeros(1, np.int64),
        columns=owners,
        weights=np.empty(0),
    )
    return Part(
        local=vertices,
        remote=vertices,
        owners=owners,
        forward=edges,
        backward=edges,
    )


class Carrier:
    """Rows on their way through one machine, pass by pass and stage by stage.

    Raises DataError when the data set, its parts or the plans are missing or damaged.
    """

    def __init__(self, brief: TaskSpec) -> None:
        settings = brief.job_settings
        self.rank: int = brief.settings["rank"]
        self.ranks: int = settings["parts"]
        self._hidden: int = settings["model"]["hidden"]
        self._precision = np.dtype(settings["precision"])

        self._dataset, graphs = open_layers(settings)
        self.layers = len(graphs)
        if self.rank < self.ranks:
            self.parts = [graph.part(self.rank) for graph in graphs]
        else:
            part = _empty_part()
            self.parts = [part] * self.layers

        atomic = settings["backward"] == "atomic"
        self._plans: dict[PlanKey, GatherPlan] = {}
        for layer, plan in enumerate(open_plans(settings)):
            self._plans[layer, False] = plan
            # Gradients go the way of the rows back.
            way_back = gradient_plan(plan, atomic=atomic)
            self._plans[layer, True] = way_back

        self._tables: dict[PlanKey, Tables] = {}
        for key, plan in self._plans.items():
            layer, _ = key
            self._tables[key] = Tables(
                rank=self.rank,
                part=self.parts[layer],
                transfers=plan,
            )

        self._rows: dict[Pass, Array] = {}
        self._arrived: dict[tuple[Pass, int], dict[int, Array]] = {}

    def _width(self, layer: int) -> int:
        """Return the length of a layer's input rows."""
        if layer == 0:
            return self._dataset.feature_length
        return self._hidden

    def _zeros(self, rows: int, width: int) -> Array:
        return np.zeros((rows, width), self._precision)

    def send(self, key: Pass, stage: int, receiver: int) -> Array:
        """Return the rows that go to a receiver in a stage of a pass."""
        tables = self._tables[key.plan]
        rows = tables.sent[stage, receiver]
        return self._rows[key][rows]

    def receive(
        self,
        key: Pass,
        stage: int,
        sender: int,
        rows: Array,
    ) -> None:
        """Keep what a sender's stage brought: this machine may be behind it."""
        arrivals = self._arrived.setdefault((key, stage), {})
        arrivals[sender] = rows.copy()  # out of pooled memory

    def enter(self, key: Pass, stage: int) -> None:
        """Take in what the stage before has brought."""
        if stage == 0:
            return
        brought = stage - 1
        arrivals = self._arrived.pop((key, brought), {})
        tables = self._tables[key.plan]
        tables.take_in(
            values=self._rows[key],
            stage=brought,
            parts=arrivals,
            # Rows are copied forward; backward, gradients of all readers add up.
            add=key.backward,
        )

    def _begin(self, key: Pass, values: Array) -> None:
        tables = self._tables[key.plan]
        self._rows[key] = tables.begin(values)


class Host(Carrier):
    """A machine that has no vertices and keeps rows for others."""

    @override
    def enter(self, key: Pass, stage: int) -> None:
        """Begin with nothing, and forget the rows after the last stage."""
        if key not in self._rows:
            width = self._width(key.layer)
            no_rows = self._zeros(0, width)
            self._begin(key, no_rows)
        super().enter(key, stage)
        plan = self._plans[key.plan]
        if stage == plan.stages:  # nobody takes them in here
            del self._rows[key]


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
        if self._cached:
            vertices = part.vertices  # all that layer 1 reads: nothing is gathered
        else:
            vertices = np.concatenate([part.local, part.held])
        features = dataset.gather(vertices)
        self._features = features.astype(self._precision)

        self.parameters = initial_parameters(settings, dataset)
        self.optimizer = make_optimizer(settings, self.parameters)
        self._gradient = np.zeros_like(self.parameters)
        self._steps = brief.first
        self._model: PartModel | None = None
        if settings["compute"] != "timed":
            self._model = PartModel(settings, dataset, *self.parts)
            self._rehearse(self._model)

    def _rehearse(self, model: PartModel) -> None:
        """Go through all layers once, before the start barrier."""
        model.load(self.parameters)
        scores = self._zeros(0, self._classes)
        for layer, part in enumerate(self.parts):
            count = len(part.vertices)
            width = self._width(layer)
            rows = self._zeros(count, width)
            scores = model.forward(layer, rows)

        gradient = model.score(scores).gradient
        for layer in reversed(range(self.layers)):
            gradients = model.backward(layer, gradient)
            if gradients is not None:
                part_below = self.parts[layer - 1]
                count = len(part_below.local)
                gradient = gradients[:count]

    @override
    def enter(self, key: Pass, stage: int) -> None:
        """Take in what the stage before has brought, or begin to gather features."""
        if stage == 0 and key.layer == 0:  # of other layers, their pass is begun
            self._begin(key, self._features)
        super().enter(key, stage)

    def gather(self, layer: int, iteration: int) -> Array:
        """Return the input rows of a layer: of local, then of remote vertices."""
        rows = None
        if layer or not self._cached:
            key = Pass(layer, backward=False, iteration=iteration)
            rows = self._rows.pop(key, None)
        if rows is None:  # cached, or of one device, which gathers no features
            return self._features
        count = len(self.parts[layer].vertices)
        return rows[:count]

    def forward(self, layer: int, iteration: int) -> dict[str, float]:
        """Compute a layer; after the last one its gradient, and return figures."""
        if layer == 0:
            self.step(iteration)
        rows = self.gather(layer, iteration)
        next_layer = layer + 1
        is_last = next_layer == self.layers
        if self._model is None:
            part = self.parts[layer]
            count = len(part.local)
            width = self._classes if is_last else self._hidden
            outputs = self._zeros(count, width)
        else:
            outputs = self._model.forward(layer, rows)

        if not is_last:
            key = Pass(next_layer, backward=False, iteration=iteration)
            self._begin(key, outputs)
            return {}
        if self._model is None:
            self._backward(layer, iteration, outputs)
            return {}

        score = self._model.score(outputs)
        self._backward(layer, iteration, score.gradient)
        # Shares of the graph's: their mean over devices is to be that of the graph.
        loss = score.loss * self.ranks
        accuracy = score.accuracy * self.ranks
        return {"loss": loss, "accuracy": accuracy}

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
        layer_above = layer + 1
        key = Pass(layer_above, backward=True, iteration=iteration)
        rows = self._rows.pop(key)
        count = len(self.parts[layer].local)  # what follows are relays
        gradient = rows[:count]
        self._backward(layer, iteration, gradient)

    def _backward(self, layer: int, iteration: int, gradient: Array) -> None:
        model = self._model
        if model is not None:
            shares = model.backward(layer, gradient)
        else:
            part = self.parts[layer]
            count = len(part.vertices)
            width = self._width(layer)
            shares = self._zeros(count, width)
        if layer > 0 and shares is not None:  # to those who own the rows
            key = Pass(layer, backward=True, iteration=iteration)
            self._begin(key, shares)
            return

        if model is not None:
            self._gradient = model.gradient
        if self.ranks > 1:
            share_vector(
                process=self._process,
                task=f"w{self.rank}",
                vector=self._gradient,
                iteration=iteration,
            )


class _CarrierTask(TaskProgram):
    """State and methods that the tasks of a device, or of a host, share.

    They return nothing for each other: they share its memory.
    """

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        if "dgcl" not in process:
            rank = brief.settings["rank"]
            devices = brief.job_settings["parts"]
            is_host = rank == devices  # it has the rank after theirs
            process["dgcl"] = Host(brief) if is_host else Device(brief, process)
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
        (arrays,) = state.values()
        self._carrier.optimizer.restore(arrays)

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
        backward = self._brief.kind == "scatter"
        stage: int = self._brief.settings["stage"]
        key = Pass(self._layer, backward, iteration)
        self._carrier.enter(key, stage)
        return key

    @override
    def payload(self, output: EdgeSpec, iteration: int, made: Pass) -> Payload:
        """Return the rows of a receiver, whose task is called ``...FROMtoRANK``."""
        # ``f0.2to1`` or ``f0.2to1@3`` to rank 1, others are of this device.
        match = re.fullmatch(r"[fb]\d+\.\d+to(\d+)(@\d+)?", output.peer)
        if match is None:
            return {}
        stage: int = self._brief.settings["stage"]
        receiver = int(match[1])
        rows = self._carrier.send(made, stage, receiver)
        return {"rows": rows}


class Received(_CarrierTask):
    """Keeps what a peer's stage sent for the stage of this device that follows."""

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        place = self._brief.settings
        (source,) = self._brief.inputs
        payload = inputs[source.edge]
        rows = tensor(payload, "rows", source)
        backward = self._brief.kind == "scattered"
        self._carrier.receive(
            key=Pass(self._layer, backward, iteration),
            stage=place["stage"],
            sender=place["sender"],
            rows=rows,
        )
        return {}
