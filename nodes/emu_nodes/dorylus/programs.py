"""Programs of Dorylus: graph tasks, lambdas and parameter servers.

Tasks of one server hand rows over in its memory; only what crosses an edge between
processes is a payload of the volumes in `emu.systems.dorylus.volumes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from typing_extensions import override

from emu.errors import NodeMisbehaved
from emu.graph_data import open_for
from emu.systems.dorylus.deaths import DIES, IDLE, LATE
from emu.systems.dorylus.steps import CALLS, EDGE_TENSORS, TENSORS
from emu.training.interval_layers import (
    activate,
    activation_slope,
    cross_entropy,
    initial_weights,
)
from emu.training.optimizers import make_optimizer
from emu_nodes.dorylus.graph_server import ROWS, AttentionServer, GraphServer, Z
from emu_nodes.dorylus.task import (
    Computed,
    Nothing,
    Weights,
    attention_rows,
    copy_all,
    sum_gradients,
    versions,
)
from emu_nodes.program import (
    Array,
    EdgeSpec,
    Inputs,
    Payload,
    Shared,
    TaskSpec,
    pick,
    tensor,
)


@dataclass(frozen=True, eq=False)
class _Held:
    """Sums over the first parts of a chunk, and the weights that all parts use."""

    weights: Weights
    gradient: Array | None
    loss: float


class OnServer(Nothing):
    """A task of a graph server."""

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        if "server" not in process:
            kind = AttentionServer if attention_rows(brief) else GraphServer
            number = brief.settings["server"]
            process["server"] = kind(brief.job_settings, number)
        self.server: GraphServer = process["server"]

    def values(self, epoch: int) -> Payload:
        """Return what the tasks of its interval keep for each other in an epoch."""
        return self.server.values(self.interval, epoch)


class Begin(OnServer):
    """Read what the gather after it sums, when its lambda is launched."""

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        arrays: Payload = {}
        for payload in self.rows(inputs):
            arrays.update(payload)
        return arrays

    @override
    def payload(self, output: EdgeSpec, iteration: int, made: Payload) -> Payload:
        if output.peer_kind.startswith("gather"):
            return made
        return {}


class Gather(OnServer):
    """Sum the neighbours of an interval, A H, or their gradients by A transposed."""

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        backward = brief.kind == "gather_back"
        self._name = "gathered" if backward else f"ah{self.layer}"
        self._sums = self.server.sums(self.interval, backward=backward)
        self._constant: Array | None = None
        if self.layer == 0:  # of features, which never change
            features = self.server.features
            self._constant = self._sums(features)

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        """Keep the sums for the lambda; return nothing."""
        sums = self._constant
        if sums is None:
            payloads = self.rows(inputs)
            vectors = self.server.assemble(payloads)
            sums = self._sums(vectors)
        values = self.values(iteration)
        values[self._name] = sums
        return {}


class Scatter(OnServer):
    """Send the rows of an interval, or their gradients, to who gathers them."""

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        self._server: int = brief.settings["server"]
        if brief.kind == "scatter_back":
            self._value = "gradient"
        elif attention_rows(brief):
            self._value = f"{Z}{self.layer}"
        else:
            self._value = "h"

        #: Server that an edge leads to, where that is another task's.
        self.servers: dict[int, int] = {}
        for output in brief.outputs:
            if output.peer_kind == "ghosts":
                _, _, number = output.peer.rpartition("_")
                self.servers[output.edge] = int(number)
        # A rehearsal: they are searched once.
        servers = set(self.servers.values())
        for server in servers:
            if server != self._server:
                self.server.ghost_rows(self.interval, server)

    def server_of(self, output: EdgeSpec) -> int:
        """Return the server that an edge leads to, its own among them."""
        return self.servers.get(output.edge, self._server)

    @override
    def payload(self, output: EdgeSpec, iteration: int, made: Payload) -> Payload:
        """Return all rows within the server, elsewhere those that are needed."""
        values = self.values(iteration)
        rows = values[self._value]
        server = self.server_of(output)
        if server != self._server:
            return self.server.ghosts(self.interval, server, rows)
        return {f"{ROWS}{self.interval}": rows}


class Ghosts(OnServer):
    """Hand on copies of the rows that came from other servers."""

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        return copy_all(inputs)


class Call(OnServer):
    """Send a lambda what it pulls: the rows, or those of its part of them."""

    @override
    def payload(self, output: EdgeSpec, iteration: int, made: Payload) -> Payload:
        if output.peer_kind not in TENSORS:
            return {}
        step = (output.peer_kind, self.layer)
        arrays = self.server.pull(step, self.interval, iteration)
        if self._brief.job_settings["stream"] == 1:
            return arrays

        count = len(arrays["ah"])
        half = (count + 1) // 2
        is_first = output.peer.endswith(".first")
        rows = slice(0, half) if is_first else slice(half, count)
        return {name: array[rows] for name, array in arrays.items()}


class Recall(Call):
    """Launch a lambda again that has not answered, and send it what it pulls."""

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        """Expect the answer of this one from now on."""
        if self.end_of(iteration) != IDLE:
            settings = self._brief.settings
            chunk = (self.interval, iteration, settings["tensor"])
            self.server.asked[chunk] = settings["attempt"]
        return {}

    @override
    def payload(self, output: EdgeSpec, iteration: int, made: Payload) -> Payload:
        if self.end_of(iteration) == IDLE:  # not launched at all
            return {}
        return super().payload(output, iteration, made)


class Answer(OnServer):
    """Take what a lambda returns, for the tasks that follow."""

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        parts = [*self.input_of(TENSORS, inputs)]
        # Of several lambdas one has answered; of the last step it answers with nothing.
        answers = [(sender, payload) for sender, payload in parts if payload]
        answers = answers or parts[:1]

        first_sender, first_payload = answers[0]
        arrays: Payload = {}
        for name in first_payload:
            pieces = [tensor(payload, name, sender) for sender, payload in answers]
            arrays[name] = np.concatenate(pieces)
        self.server.take_back(
            step=(first_sender.peer_kind, self.layer),
            interval=self.interval,
            epoch=iteration,
            answer=arrays,
        )
        return {}


class Held(Nothing):
    """Send an answer too late: another lambda has been launched."""

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        return next(iter(inputs.values()), {})


class Late(OnServer):
    """Take an answer that came too late: it is dropped by its number."""

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        self._dropped = 0

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        if self.end_of(iteration) == LATE:
            settings = self._brief.settings
            is_taken = self.server.take(
                chunk=(self.interval, iteration, settings["tensor"]),
                number=settings["attempt"],
                step=(settings["of"], self.layer),
                answer=copy_all(inputs),
            )
            self._dropped += not is_taken
        return {}

    @override
    def result(self) -> Payload:
        count = np.array([self._dropped])
        return {"dropped": count}


class _Tensor(Nothing):
    """A tensor task, in a lambda or on the server."""

    #: False where another task compares the scores of the last layer with the labels.
    compares = True

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        settings = brief.job_settings
        model = settings["model"]
        self.activation: str = model["activation"]
        last_layer = model["layers"] - 1
        self.last: bool = self.layer == last_layer
        self.count = settings["parts"] * settings["intervals"]
        if "initial" not in process:
            dataset = open_for(settings)
            process["initial"] = initial_weights(settings, dataset)
        # Of a chunk that is streamed, each part has a task of its own.
        self.part = brief.settings.get("part", 0)
        self.parts = 1
        if "part" in brief.settings:
            self.parts = settings["stream"]

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        """Return the gradient of the weights, the version used and the answer.

        A lambda that dies has read its weights and returns nothing else.
        """
        end = self.end_of(iteration)
        self._figures = {}
        if end == IDLE:
            return {}
        if end == DIES:  # the stash must hold what it has read all the same
            weights = self.weights(iteration, inputs)
            return _version_payload(weights)

        step = (self._brief.kind, self.layer)
        _, pulled_arrays = next(self.input_of(CALLS, inputs), (None, {}))
        server: GraphServer | None = None
        if not pulled_arrays:  # it runs on the server itself
            server = self._process["server"]
            pulled_arrays = server.pull(step, self.interval, iteration)

        weights, outcome = self._compute_part(iteration, inputs, pulled_arrays)
        is_whole = self.part + 1 == self.parts
        if is_whole and self.computes_loss and end != LATE:
            # So that the mean over intervals is that of the graph.
            loss = self.count * outcome.loss
            self._figures = {"loss": loss}
        if server is not None:
            server.take_back(
                step=step,
                interval=self.interval,
                epoch=iteration,
                answer=outcome.answer,
            )

        return _payload_of(weights, outcome)

    def _compute_part(
        self,
        iteration: int,
        inputs: Inputs,
        pulled: Payload,
    ) -> tuple[Weights, Computed]:
        """Return the weights used and a part's outcome, with sums of those before.

        A chunk may come in parts, each with a task of its own: what the first ones have
        made waits for the last, and all use one version of the weights.
        """
        by_key: dict[object, _Held] = self._process.setdefault("held", {})
        key = (self._brief.kind, self.layer, iteration)
        earlier_parts = by_key.pop(key, None)
        if earlier_parts is None:
            weights = self.weights(iteration, inputs)
            outcome = self.compute(pulled, weights.array)
        else:
            weights = earlier_parts.weights
            part = self.compute(pulled, weights.array)
            # Gradients and losses add up over the rows; the answer is of its own rows.
            gradient = earlier_parts.gradient
            if part.gradient is not None:
                gradient = earlier_parts.gradient + part.gradient
            outcome = Computed(
                answer=part.answer,
                gradient=gradient,
                loss=part.loss + earlier_parts.loss,
            )

        if self.part + 1 < self.parts:
            by_key[key] = _Held(
                weights=weights,
                gradient=outcome.gradient,
                loss=outcome.loss,
            )
        return weights, outcome

    @override
    def payload(self, output: EdgeSpec, iteration: int, made: Payload) -> Payload:
        """Return to each the piece that it waits for, if it is sent at all."""
        kind = output.peer_kind
        # A late answer is held back; its weights' gradient and version go all the same.
        is_late = self.end_of(iteration) == LATE
        if kind == ("held" if is_late else "answer"):
            return pick(made, "answer.")
        if kind == "stash":
            return {"version": made["version"]}
        if kind in {"gradient_sum", "weight_update"} and "gradient" in made:
            return {"gradient": made["gradient"]}
        return {}

    @property
    def computes_loss(self) -> bool:
        """True where the scores are compared with the labels here."""
        is_fused = self._brief.job_settings["fuse"]
        if self._brief.kind == "apply" and not is_fused:
            return False  # its backward pass does
        return self.last and self.compares

    def take_stash(self, inputs: Inputs) -> Weights | None:
        """Return the weights that a stash has sent, if there is one."""
        for sender, payload in self.input_of(("stash",), inputs):
            weights = tensor(payload, "weights", sender)
            # Pooled memory, which the next part of a stream cannot use.
            return Weights(weights.copy(), version=0)
        return None

    def weights(self, iteration: int, inputs: Inputs) -> Weights:
        """Return the weights that came."""
        raise NotImplementedError

    def compute(self, pulled: Payload, weights: Array) -> Computed:
        """Return the outcome for what was pulled of the server."""
        raise NotImplementedError

    def backward(self, pulled: Payload, of_z: Array, weights: Array) -> Computed:
        """Return the gradients of the gathered rows, but of features, and weights."""
        answer: Payload = {}
        if self.layer:
            answer["gradient"] = of_z @ weights.T  # (rows, inputs)
        gathered_rows = pulled["ah"]
        gradient = gathered_rows.T @ of_z  # (inputs, outputs), as the weights
        return Computed(answer, gradient=gradient)

    def backward_from_loss(self, pulled: Payload, z: Array, weights: Array) -> Computed:
        """Return the gradients of the last layer, whose z is the scores; the loss."""
        targets = pulled["targets"]
        loss = cross_entropy(z, targets)
        outcome = self.backward(pulled, loss.gradient, weights)
        return replace(outcome, loss=loss.value)


def _payload_of(weights: Weights, outcome: Computed) -> Payload:
    """Return what a tensor task may send: version, gradient, arrays of its answer."""
    payload = _version_payload(weights)
    if outcome.gradient is not None:
        payload["gradient"] = outcome.gradient
    for name, array in outcome.answer.items():
        payload[f"answer.{name}"] = array
    return payload


def _version_payload(weights: Weights) -> Payload:
    version = np.array([weights.version], np.int64)
    return {"version": version}


class Apply(_Tensor):
    """Multiply with the weights; the last layer goes straight back where it is fused.

    Its answer holds z and h, h alone where they are rematerialized, z of the last.
    """

    @override
    def weights(self, iteration: int, inputs: Inputs) -> Weights:
        # Those that a lambda before it has used, or the newest that had come.
        stash = self.take_stash(inputs)
        if stash is not None:
            return stash
        for sender, payload in self.input_of(("weight_update",), inputs):
            in_step = iteration - sender.lag
            version = self._reads.get(sender.edge, in_step)
            weights = tensor(payload, "weights", sender)
            return Weights(weights.copy(), version)
        first = self._process["initial"][self.layer]
        return Weights(first, version=self._brief.first - 1)

    def restore(self, state: Mapping[str, Payload]) -> None:
        """Begin with the weights that its layer's update had."""
        (weights,) = state.values()
        initial = self._process["initial"]
        shape = initial[self.layer].shape
        initial[self.layer] = weights["parameters"].reshape(shape)

    @override
    def compute(self, pulled: Payload, weights: Array) -> Computed:
        z = pulled["ah"] @ weights  # (rows, outputs)
        if self.computes_loss:
            return self.backward_from_loss(pulled, z, weights)
        if self.last:
            return Computed({"z": z})

        h = activate(self.activation, z)
        answer = {"h": h}
        if not self._brief.job_settings["rematerialize"]:
            answer["z"] = z
        return Computed(answer)


class ApplyBack(_Tensor):
    """Backward pass of a layer with the weights of its forward pass, stashed.

    Layer 0 needs none, unless it computes z.
    """

    @override
    def weights(self, iteration: int, inputs: Inputs) -> Weights:
        stash = self.take_stash(inputs)
        if stash is not None:
            return stash
        first = self._process["initial"][self.layer]
        no_rows = first[:0]
        return Weights(no_rows, version=-1)

    @override
    def compute(self, pulled: Payload, weights: Array) -> Computed:
        z = pulled["z"] if "z" in pulled else pulled["ah"] @ weights
        if self.last:
            return self.backward_from_loss(pulled, z, weights)

        slope = activation_slope(self.activation, z)
        of_z = pulled["gradient"] * slope
        return self.backward(pulled, of_z, weights)


class Stash(Nothing):
    """Send the weights that an interval's forward pass has used."""

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        """Return the weights of the version asked for.

        Raises NodeMisbehaved when they are not held any more.
        """
        if self.end_of(iteration) == IDLE:
            return {}

        sender, payload = next(self.input_of(("apply",), inputs))
        version = int(tensor(payload, "version", sender)[0])
        by_layer = versions(self._process, self._brief)
        by_version = by_layer[self.layer]
        if version not in by_version:
            raise NodeMisbehaved(
                f"{sender.peer} used version {version} of the weights, held are "
                f"{sorted(by_version)}"
            )

        weights = by_version[version]
        rows = len(weights) - attention_rows(self._brief)
        if self._brief.settings["for"] in EDGE_TENSORS:
            return {"weights": weights[rows:]}
        return {"weights": weights[:rows]}


class GradientSum(Nothing):
    """Sum the gradients of one parameter server's intervals, in their order."""

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        return {"gradient": sum_gradients(self._brief, inputs)}


class WeightUpdate(Nothing):
    """Step the weights of one layer with the sum of all gradients."""

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        by_layer = versions(process, brief)
        self._held = by_layer[self.layer]
        first_weights = self._held[-1]
        self._weights = first_weights.copy()
        # A view: the optimiser steps the matrix.
        flat = self._weights.reshape(-1)
        self._optimizer = make_optimizer(brief.job_settings, flat)
        self._most = brief.job_settings["staleness"] + 2

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        """Return the new weights; older versions than are in use are dropped."""
        gradient = sum_gradients(self._brief, inputs)
        flat = gradient.reshape(-1)
        self._optimizer.step(flat)
        weights = self._weights.copy()
        self._held[iteration] = weights

        in_order = sorted(self._held)
        old_versions = in_order[: -self._most]
        for version in old_versions:
            del self._held[version]

        rows = len(weights) - attention_rows(self._brief)
        return {"weights": weights[:rows]}

    def state(self, _iteration: int) -> Payload:
        """Return the weights, and what the optimiser has of the past.

        Every interval enters an epoch when all have ended the one before, so that only
        the newest version is in use between two epochs.
        """
        return self._optimizer.state()

    def restore(self, state: Mapping[str, Payload]) -> None:
        """Go on from it, which the parameter servers hold alike."""
        (arrays,) = state.values()
        self._optimizer.restore(arrays)
        self._held.clear()
        newest = self._brief.first - 1
        weights = self._weights.copy()
        self._held[newest] = weights

    @override
    def result(self) -> Payload:
        return {"weights": self._weights}
