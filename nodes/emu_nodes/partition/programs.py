"""Programs of one part of a graph: the passes of its layers, and what it exchanges.

Tasks of a part share its process and its `ExchangedPart`. A task takes in what other
parts have sent for it, computes, and sends: which rows, how old and how exact they are,
the job's exchanges say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
from typing_extensions import override

from emu.errors import NodeMisbehaved
from emu.graph_data import open_for
from emu.problem.workloads.exchange import GRADIENTS, ROWS, Exchange
from emu.training import initial_parameters, make_optimizer
from emu.training.decoupled import TensorPart
from emu.training.exchanged import ExchangedPart
from emu_nodes.all_reduce import share_vector
from emu_nodes.program import (
    EdgeSpec,
    Inputs,
    Payload,
    Shared,
    TaskProgram,
    TaskSpec,
)


class Part:
    """State that the tasks of a part share: its rows, parameters and optimizer."""

    def __init__(
        self, brief: TaskSpec, process: Shared, trained: ExchangedPart | TensorPart
    ) -> None:
        settings = brief.job_settings
        self.rank: int = brief.settings["rank"]
        self.trained = trained
        self.parameters = initial_parameters(settings, open_for(settings))
        self.optimizer = make_optimizer(settings, self.parameters)
        self._gradient = np.zeros_like(self.parameters)
        self._computes = settings["compute"] != "timed"
        self._steps = brief.first
        self._process = process

    def step(self, epochs: int) -> None:
        """Step with the sum of all parts' gradients of the epochs before."""
        # The sum is there once an epoch's all-reduce has ended: it is taken late, at
        # the next one's first task, or when a cut or the end asks.
        for _ in range(self._steps, epochs):
            if self._computes:
                self.optimizer.step(self._gradient)
            self._steps += 1
        self.trained.begin(self.parameters)

    def share_gradient(self, epoch: int) -> None:
        """Let the all-reduce sum the gradient of an epoch up, in place."""
        gradient = self.trained.gradient
        if gradient is not None:
            self._gradient = gradient.copy()
        if self.trained.ranks > 1:
            share_vector(
                process=self._process,
                task=f"w{self.rank}",
                vector=self._gradient,
                iteration=epoch,
            )

    def figures(self) -> dict[str, float]:
        """Return the part's shares of the graph's figures, times the number of parts.

        So their mean over parts is that of the graph.
        """
        scored = self.trained.scored
        ranks = self.trained.ranks
        return {
            "loss": scored.loss * ranks,
            "accuracy": scored.accuracy * ranks,
        }


class PartTask(TaskProgram):
    """A task of a part, which exchanges rows with those of others."""

    _shared: Part

    def _peer(self, edge: EdgeSpec) -> int | None:
        """Return the rank of the other part of an edge, None within this one."""
        match = re.fullmatch(r"d(\d+)\..*", edge.peer)
        if match is None:
            return None
        rank = int(match[1])
        return None if rank == self._shared.rank else rank


class StatefulTask(PartTask):
    """A task of which the first of a part hands over what all of them share."""

    _is_first: bool

    def state(self, iteration: int) -> Payload:
        """Return parameters and moments before an epoch; asked of the first task."""
        self._shared.step(iteration)
        return self._shared.optimizer.state()

    def restore(self, state: Mapping[str, Payload]) -> None:
        """Have the part go on from the state of one, which all hold alike."""
        (arrays,) = state.values()
        self._shared.optimizer.restore(arrays)

    @override
    def result(self) -> Payload:
        # All tasks of a part have the same: the first hands it over.
        if not self._is_first:
            return {}
        self._shared.step(self._brief.iterations)
        return {"parameters": self._shared.parameters}


class _Pass(PartTask):
    """Task of one layer and direction."""

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        if "part" not in process:
            part = ExchangedPart(brief.job_settings, brief.settings["rank"])
            process["exchanged"] = part
            process["part"] = Part(brief, process, part)
        super().__init__(brief, process)
        self._shared: Part = process["part"]
        self._part: ExchangedPart = process["exchanged"]
        self._layer: int = brief.settings["layer"]
        # Where no features are sent there is no layer 0.
        sends_features = self._part.exchange(ROWS, 1) is not None
        first_layer = 0 if sends_features else 1
        self._is_first = self._layer <= first_layer

    def _go_back(self, epoch: int) -> dict[str, Exchange]:
        """Go back through the layer; return what that sends to other parts."""
        self._part.backward(self._layer)
        if self._layer == 1:
            self._shared.share_gradient(epoch)
        return self._sent(GRADIENTS, self._layer)

    def _take_in(
        self,
        content: str,
        layer: int,
        epoch: int,
        inputs: Inputs,
    ) -> None:
        exchange = self._part.exchange(content, layer)
        if exchange is None:
            return
        # Epochs before the first that is sent read zeros: they have no input.
        for source in self._brief.inputs:
            peer = self._peer(source)
            if peer is None or source.edge not in inputs:
                continue
            message = dict(inputs[source.edge])
            try:
                self._part.receive(
                    exchange=exchange,
                    epoch=epoch - source.lag,
                    peer=peer,
                    message=message,
                )
            except (KeyError, ValueError) as error:
                raise NodeMisbehaved(f"{source.peer} sent {error}") from error

    @override
    def payload(
        self, output: EdgeSpec, iteration: int, made: Mapping[str, Exchange]
    ) -> Payload:
        """Return the rows, or the gradients, that another part reads."""
        peer = self._peer(output)
        kind = output.peer_kind.rstrip("0123456789")
        content = ROWS if kind == "layer" else GRADIENTS
        if peer is None or content not in made:
            return {}
        exchange = made[content]
        message: Payload = self._part.send(exchange, iteration, peer)
        return message

    def _sent(self, content: str, layer: int) -> dict[str, Exchange]:
        """Return the exchange that this task sends, by its content, if there is one."""
        exchange = self._part.exchange(content, layer)
        if exchange is None:
            return {}
        return {content: exchange}


class Layer(_Pass, StatefulTask):
    """Forward pass of a layer, of the last one with loss and backward pass.

    Layer 0 sends features alone. Loss and accuracy are the part's shares of the
    graph's, times the number of parts: the mean over parts is that of the graph.
    """

    @override
    def work(self, iteration: int, inputs: Inputs) -> dict[str, Exchange]:
        if self._is_first:
            self._shared.step(iteration)
        layer = self._layer
        if layer == 0:
            return self._sent(ROWS, 1)
        self._take_in(ROWS, layer, iteration, inputs)
        self._part.forward(layer)
        if layer < self._part.layers:
            return self._sent(ROWS, layer + 1)

        exchanges = self._go_back(iteration)
        if self._part.gradient is not None:
            self._figures = self._shared.figures()
        return exchanges


class Gradient(_Pass):
    """Backward pass of a layer below the last."""

    @override
    def work(self, iteration: int, inputs: Inputs) -> dict[str, Exchange]:
        layer_above = self._layer + 1
        self._take_in(GRADIENTS, layer_above, iteration, inputs)
        return self._go_back(iteration)
