"""Programs of DGCL: layers, stages of gathers, and gradients of one device.

A stage sends rows by the plan's tables to a task at the receiver, which keeps them; the
stage that follows takes them in. Tasks of a device share its process and its `Device`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.training import PartModel, initial_parameters, make_optimizer
from emu_nodes.all_reduce import share_vector
from emu_nodes.dgcl.carrier import Carrier, Host, Pass
from emu_nodes.program import (
    EdgeSpec,
    Inputs,
    Payload,
    Shared,
    TaskProgram,
    TaskSpec,
    tensor,
)


class Device(Carrier):
    """The state that the tasks of a device share.

    With ``compute: timed`` nothing is learnt and torch is not loaded: rows of layers
    beyond the features are zeros of the right size.

    Raises DataError as `Carrier`.
    """

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief)
        settings, dataset = brief.job_settings, self._dataset
        self._process = process
        self._classes = dataset.classes
        self._cached: bool = settings["cache_features"]
        part = self.parts[0]
        own = np.concatenate([part.local, part.held])
        vertices = part.vertices if self._cached else own
        self._features = dataset.gather(vertices).astype(self._precision)
        self.parameters = initial_parameters(settings, dataset)
        self._optimizer = make_optimizer(settings, self.parameters)
        self._gradient = np.zeros_like(self.parameters)
        self._steps = brief.first
        self._model: PartModel | None = None
        if settings["compute"] != "timed":
            self._model = PartModel(settings, dataset, *self.parts)
            self._rehearse(self._model)

    def _rehearse(self, model: PartModel) -> None:
        """Go through all layers once, before the start barrier."""
        model.load(self.parameters)
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
        if layer == 0 and self._cached:
            return self._features
        rows = self._rows.pop((layer, False, iteration), None)
        if rows is None:  # one device gathers no features
            return self._features
        return rows.values[: len(self.parts[layer].vertices)]

    def forward(self, layer: int, iteration: int) -> dict[str, float]:
        """Compute a layer; after the last one its gradient, and return figures."""
        if layer == 0:
            self._step(iteration)
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
        loss = self._model.score(out)
        self._backward(layer, iteration, loss.gradient)
        return {
            "loss": loss.loss * self.ranks,
            "accuracy": loss.accuracy * self.ranks,
        }

    def _step(self, epochs: int) -> None:
        """Step with the sum of all devices' gradients of the epochs before."""
        if self._model is None:
            return
        # The sum is there once an epoch's all-reduce has ended: it is taken late, at
        # the next one's first layer, or when a cut or the end asks.
        for _ in range(self._steps, epochs):
            self._optimizer.step(self._gradient)
            self._steps += 1
        self._model.load(self.parameters)

    def backward(self, layer: int, iteration: int) -> None:
        """Go back through a layer, whose gradient all consumers have sent."""
        rows = self._rows.pop((layer + 1, True, iteration))
        local = len(self.parts[layer].local)
        self._backward(layer, iteration, rows.values[:local])

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

    def state(self, epochs: int) -> Payload:
        """Return parameters and moments after the step of every epoch before one.

        The first layer of an epoch waits for the sum of all gradients of the epoch
        before: nothing else is left of it.
        """
        self._step(epochs)
        return self._optimizer.state()

    def restore(self, state: Payload) -> None:
        """Go on from the state of a device, which all hold alike."""
        self._optimizer.restore(state)

    def finish(self, epochs: int) -> NDArray[Any]:
        """Return the parameters after the step of every epoch."""
        self._step(epochs)
        return self.parameters


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


class _DeviceTask(_CarrierTask):
    """A task that computes."""

    @property
    def _device(self) -> Device:
        assert isinstance(self._carrier, Device)  # noqa: S101 - for mypy
        return self._carrier


class Layer(_DeviceTask):
    """Forward pass of a layer, of the last one with loss and backward pass.

    Its loss and accuracy are the device's shares of the graph's, times the number of
    devices: the mean over devices is that of the graph.
    """

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        """Compute the layer."""
        self._figures = self._device.forward(self._layer, iteration)
        return {}

    def state(self, iteration: int) -> Payload:
        """Return what the device has before an epoch; asked of the first layer."""
        return self._device.state(iteration)

    def restore(self, state: Mapping[str, Payload]) -> None:
        """Have the device go on from it."""
        (one,) = state.values()
        self._device.restore(one)

    @override
    def result(self) -> Payload:
        """Return the parameters, from the first layer."""
        if self._layer:
            return {}
        return {"parameters": self._device.finish(self._brief.iterations)}


class Gradient(_DeviceTask):
    """Backward pass of a layer below the last."""

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        """Go back through the layer."""
        self._device.backward(self._layer, iteration)
        return {}


class _Stage(_CarrierTask):
    """Takes in what the stage before brought, and sends the rows of its own."""

    #: True where gradients go back along the plan.
    backward = False

    @override
    def work(self, iteration: int, inputs: Inputs) -> Pass:
        """Return the pass, once what the stage before has brought is taken in."""
        of = self._layer, self.backward, iteration
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


class Gather(_Stage):
    """A stage of a gather of embeddings."""


class Scatter(_Stage):
    """A stage of the way back of their gradients."""

    backward = True


class Gathered(_CarrierTask):
    """Keeps what a peer's stage sent for the stage of this device that follows."""

    #: True where it is gradients.
    backward = False

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        """Keep the rows."""
        place = self._brief.settings
        (source,) = self._brief.inputs
        rows = tensor(inputs[source.edge], "rows", source)
        of = self._layer, self.backward, iteration
        self._carrier.receive(of, place["stage"], place["sender"], rows)
        return {}


class Scattered(Gathered):
    """The same of gradients."""

    backward = True
