"""Programs of Dorylus for a GAT: AV, SC, AE and GA of a layer, and their way back."""

from __future__ import annotations

from typing_extensions import override

from emu.training.interval_layers import Ends, activate, activation_slope, cross_entropy
from emu_nodes.dorylus import programs
from emu_nodes.dorylus.graph_server import ATTENTION, OUT, READ, AttentionServer, Z
from emu_nodes.dorylus.task import Computed, Nothing
from emu_nodes.program import (
    Array,
    EdgeSpec,
    Inputs,
    Payload,
)


class _Reader(Nothing):
    def take_rows(self, iteration: int, inputs: Inputs) -> None:
        """Keep the rows that a layer's edges read, where they come to this task."""
        server: AttentionServer = self._process["server"]
        payloads = [payload for payload in self.rows(inputs) if payload]
        if payloads:
            values = server.values(self.interval, iteration)
            values[f"{READ}{self.layer}"] = server.assemble(payloads)


class _OnServer(programs.OnServer):
    server: AttentionServer


class Launch(_Reader, programs.OnServer):
    """Launch a lambda; that of edges has the rows that came until then."""

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        self.take_rows(iteration, inputs)
        return {}


class Call(Launch, programs.Call):
    """Send a lambda what it pulls, of rows that came where no launch has read them."""


class Gather(_OnServer):
    """Sum the rows that an interval has read, by attention, and keep the sums."""

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        layer = self.layer
        values = self.values(iteration)
        attention = values[f"{ATTENTION}{layer}"]
        rows = values[f"{READ}{layer}"]

        edges = self.server.edges(self.interval)
        values[f"{OUT}{layer}"] = edges.sum_weighted(attention, rows)
        return {}


class GatherBack(_OnServer):
    """Add up the gradients of an interval's rows, and keep the sums."""

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        payloads = self.rows(inputs)
        sums = self.server.sum_gradients(self.interval, payloads)
        values = self.values(iteration)
        values["gathered"] = sums
        return {}


class ScatterBack(_OnServer, programs.Scatter):
    """Send the gradients of the sources of an interval's edges to their owners."""

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        self.server.push(self.interval, iteration)  # sums them by source
        return {}

    @override
    def payload(self, output: EdgeSpec, iteration: int, made: Payload) -> Payload:
        server = self.server_of(output)
        return self.server.push_gradients(self.interval, iteration, server)


class Apply(programs.Apply):
    """Multiply the activations of what was summed with the weights, to z."""

    compares = False  # the loss follows from a gather after it

    @override
    def compute(self, pulled: Payload, weights: Array) -> Computed:
        rows = pulled["rows"]
        width = rows.shape[1]  # the attention's vectors stand below the weights
        if self.layer:  # what was summed has not been activated yet
            rows = activate(self.activation, rows)
        answer = {Z: rows @ weights[:width]}
        return Computed(answer)


class ApplyBack(programs.ApplyBack):
    """Backward pass of that, with the weights of the forward pass."""

    compares = False  # the last layer's edges do

    @override
    def compute(self, pulled: Payload, weights: Array) -> Computed:
        """Return the gradient of what was summed, but of features; of the weights."""
        rows = pulled["rows"]
        of_z = pulled["gradient"]
        if not self.layer:  # features have no gradient
            of_weights = rows.T @ of_z
            return Computed({}, gradient=of_weights)

        slope = activation_slope(self.activation, rows)
        activations = activate(self.activation, rows)
        of_rows = of_z @ weights.T * slope
        of_weights = activations.T @ of_z
        return Computed({"gradient": of_rows}, gradient=of_weights)


class EdgeApply(_Reader, programs.ApplyBack):
    """Compute the attention of an interval's edges.

    On a server it keeps the rows that came first.
    """

    compares = False

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        if "server" in self._process:
            self.take_rows(iteration, inputs)
        return super().work(iteration, inputs)

    @override
    def compute(self, pulled: Payload, weights: Array) -> Computed:
        ends = _ends(pulled, weights)
        answer = {ATTENTION: ends.attention()}
        return Computed(answer)


class EdgeApplyBack(programs.ApplyBack):
    """Compute the gradients of the ends of an interval's edges."""

    @override
    def compute(self, pulled: Payload, weights: Array) -> Computed:
        """Return them, that of the attention's vectors, and the last layer's loss."""
        gradient = pulled.get("gradient")
        loss = 0.0
        if gradient is None:  # of the last layer
            comparison = cross_entropy(pulled["scores"], pulled["targets"])
            gradient = comparison.gradient
            loss = comparison.value

        ends = _ends(pulled, weights)
        of_sources, of_destinations, of_vectors = ends.backward(gradient)
        return Computed(
            answer={"of_sources": of_sources, "of_own": of_destinations},
            gradient=of_vectors,
            loss=loss,
        )


def _ends(pulled: Payload, vectors: Array) -> Ends:
    return Ends(
        sources=pulled["sources"],
        destinations=pulled["destinations"],
        ends=pulled["ends"],
        vectors=vectors,
    )
