"""Programs of Dorylus: graph tasks, lambdas and parameter servers.

Tasks of one server hand rows over in its memory; only what crosses an edge between
processes is a payload of the volumes in `emu.systems.dorylus.volumes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.errors import NodeMisbehaved
from emu.graph_data import open_for
from emu.problem.workloads import PARTS
from emu.systems.dorylus.deaths import ANSWERS, DIES, IDLE, LATE
from emu.systems.dorylus.steps import CALLS, EDGE_TENSORS, TENSORS
from emu.training.interval_layers import (
    activate,
    activation_slope,
    cross_entropy,
    initial_weights,
)
from emu.training.optimizers import make_optimizer
from emu_nodes.dorylus.graph_server import ROWS, AttentionServer, GraphServer, Z
from emu_nodes.program import (
    EdgeSpec,
    Inputs,
    Payload,
    Shared,
    TaskProgram,
    TaskSpec,
    pick,
    sends,
    tensor,
)

#: The answer, the gradient of the weights and the loss.
Computed: TypeAlias = tuple[Payload, NDArray[Any] | None, float]
#: Weights and their version, -1 for the first ones.
Weights: TypeAlias = tuple[NDArray[Any], int]


class Nothing(TaskProgram):
    """A task that takes its time and hands nothing on."""

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        self.interval: int = brief.settings.get("interval", -1)
        self.layer: int = brief.settings.get("layer", -1)

    @override
    def run(self, iteration: int, inputs: Inputs) -> dict[int, Payload]:
        content = self.work(iteration, inputs)
        is_apply = self._brief.kind == "apply"
        # A stash is asked, by nothing; its version comes from who used the weights.
        return {
            one.edge: self.payload(one, iteration, content)
            if one.peer_kind != "stash" or is_apply
            else {}
            for one in self._brief.outputs
            if sends(one, iteration)
        }

    def end_of(self, epoch: int) -> str:
        """Return what becomes of this task's lambda in an epoch."""
        ends: list[str] | None = self._brief.settings.get("ends")
        return ANSWERS if ends is None else ends[epoch]

    def input_of(
        self, kinds: tuple[str, ...], inputs: Inputs
    ) -> Iterator[tuple[EdgeSpec, Payload]]:
        """Yield the inputs that came from some kinds of task, in their order."""
        for edge in self._brief.inputs:
            if edge.peer_kind in kinds and edge.edge in inputs:
                yield edge, inputs[edge.edge]

    def rows(self, inputs: Inputs) -> list[Payload]:
        """Return what came for a gather, its own interval's rows of this epoch last.

        A server's one receiver shows older ones of all intervals.
        """
        both = ("ghosts",), ("scatter", "scatter_back", "begin")
        return [one for kinds in both for _, one in self.input_of(kinds, inputs)]


def copy_all(inputs: Inputs) -> Payload:
    """Return copies of the arrays that came: their memory is overwritten."""
    return {k: a.copy() for payload in inputs.values() for k, a in payload.items()}


def attention_rows(brief: TaskSpec) -> int:
    """Return how many rows of attention stand below the weights of a layer."""
    kind: str = brief.job_settings["model"]["kind"]
    return len(PARTS[kind]) - 1


class OnServer(Nothing):
    """A task of a graph server."""

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        if "server" not in process:
            kind = AttentionServer if attention_rows(brief) else GraphServer
            process["server"] = kind(brief.job_settings, brief.settings["server"])
        self.server: GraphServer = process["server"]


class Begin(OnServer):
    """Read what the gather after it sums, when its lambda is launched."""

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        return {k: a for payload in self.rows(inputs) for k, a in payload.items()}

    @override
    def payload(self, output: EdgeSpec, iteration: int, made: Payload) -> Payload:
        return made if output.peer_kind.startswith("gather") else {}


class Gather(OnServer):
    """Sum the neighbours of an interval, A H, or their gradients by A transposed."""

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        backward = brief.kind == "gather_back"
        self._name = "gathered" if backward else f"ah{self.layer}"
        self._sums = self.server.sums(self.interval, backward=backward)
        self._constant: NDArray[Any] | None = None
        if self.layer == 0:  # of features, which never change
            self._constant = self._sums(self.server.features)

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        """Keep the sums for the lambda; return nothing."""
        sums = self._constant
        if sums is None:
            sums = self._sums(self.server.assemble(self.rows(inputs)))
        self.server.keep(self.interval, iteration, **{self._name: sums})
        return {}


class Scatter(OnServer):
    """Send the rows of an interval, or their gradients, to who gathers them."""

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        self._own: int = brief.settings["server"]
        rows = f"{Z}{self.layer}" if attention_rows(brief) else "h"
        self._value = "gradient" if brief.kind == "scatter_back" else rows
        #: Server that an edge leads to, where that is another task's.
        self.servers = {
            one.edge: int(one.peer.rpartition("_")[2])
            for one in brief.outputs
            if one.peer_kind == "ghosts"
        }
        for server in {*self.servers.values()} - {self._own}:
            self.server.ghost_rows(self.interval, server)

    @override
    def payload(self, output: EdgeSpec, iteration: int, made: Payload) -> Payload:
        """Return all rows within the server, elsewhere those that are needed."""
        rows = self.server.recall(self.interval, iteration, self._value)
        server = self.servers.get(output.edge, self._own)
        if server != self._own:
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
        step = output.peer_kind, self.layer
        arrays = self.server.pull(step, self.interval, iteration)
        if self._brief.job_settings["stream"] == 1:
            return arrays
        half = (len(arrays["ah"]) + 1) // 2
        first = output.peer.endswith(".first")
        return {k: a[:half] if first else a[half:] for k, a in arrays.items()}


class Recall(Call):
    """Launch a lambda again that has not answered, and send it what it pulls."""

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        """Expect the answer of this one from now on."""
        if self.end_of(iteration) != IDLE:
            chunk = self.interval, iteration, self._brief.settings["tensor"]
            self.server.asked[chunk] = self._brief.settings["attempt"]
        return {}

    @override
    def payload(self, output: EdgeSpec, iteration: int, made: Payload) -> Payload:
        is_idle = self.end_of(iteration) == IDLE  # not launched at all
        return {} if is_idle else super().payload(output, iteration, made)


class Answer(OnServer):
    """Take what a lambda returns, for the tasks that follow."""

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        parts = [*self.input_of(TENSORS, inputs)]
        # Of several lambdas one has answered; of the last step it answers with nothing.
        parts = [part for part in parts if part[1]] or parts[:1]
        whole = {
            name: np.concatenate([tensor(part, name, sender) for sender, part in parts])
            for name in parts[0][1]
        }
        step = parts[0][0].peer_kind, self.layer
        self.server.take_back(step, self.interval, iteration, whole)
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
        own = self._brief.settings
        if self.end_of(iteration) == LATE:
            chunk = self.interval, iteration, own["tensor"]
            answer = copy_all(inputs)
            step = (own["of"], self.layer)
            self._dropped += not self.server.take(chunk, own["attempt"], step, answer)
        return {}

    @override
    def result(self) -> Payload:
        return {"dropped": np.array([self._dropped])}


class _Tensor(Nothing):
    """A tensor task, in a lambda or on the server."""

    #: False where another task compares the scores of the last layer with the labels.
    compares = True

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        settings = brief.job_settings
        self.activation: str = settings["model"]["activation"]
        self.last: bool = self.layer == settings["model"]["layers"] - 1
        self.count = settings["parts"] * settings["intervals"]
        if "initial" not in process:
            process["initial"] = initial_weights(settings, open_for(settings))
        self.part = brief.settings.get("part", 0)
        self.parts = settings["stream"] if "part" in brief.settings else 1

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        """Return the gradient of the weights, the version used and the answer.

        A lambda that dies has read its weights and returns nothing else.
        """
        end = self.end_of(iteration)
        self._figures = {}
        if end == IDLE:
            return {}
        if end == DIES:
            version = self.weights(iteration, inputs)[1]
            return {"version": np.array([version], np.int64)}
        step = self._brief.kind, self.layer
        arrays = dict(next(self.input_of(CALLS, inputs), (None, {}))[1])
        server: GraphServer | None = None
        if not arrays:
            server = self._process["server"]
            arrays = server.pull(step, self.interval, iteration)
        # A chunk may come in parts, each with a task of its own: what the first ones
        # have made waits for the last, and all use one version of the weights.
        versions_here = self._process.setdefault("held", {})
        key = self._brief.kind, self.layer, iteration
        before = versions_here.pop(key, None)
        weights, version = before[0] if before else self.weights(iteration, inputs)
        answer, gradient, loss = self.compute(arrays, weights)
        if before:
            gradient = before[1] if gradient is None else before[1] + gradient
            loss += before[2]
        if self.part + 1 < self.parts:
            versions_here[key] = (weights, version), gradient, loss
        elif self.computes_loss and end != LATE:
            # So that the mean over intervals is that of the graph.
            self._figures = {"loss": self.count * loss}
        if server is not None:
            server.take_back(step, self.interval, iteration, answer)
        payload = {"version": np.array([version], np.int64)}
        if gradient is not None:
            payload["gradient"] = gradient
        return payload | {f"answer.{name}": array for name, array in answer.items()}

    @override
    def payload(self, output: EdgeSpec, iteration: int, made: Payload) -> Payload:
        """Return to each the piece that it waits for, if it is sent at all."""
        late = self.end_of(iteration) == LATE
        if output.peer_kind == ("held" if late else "answer"):
            return pick(made, "answer.")
        if output.peer_kind == "stash":
            return {"version": made["version"]}
        if output.peer_kind in {"gradient_sum", "weight_update"} and "gradient" in made:
            return {"gradient": made["gradient"]}
        return {}

    @property
    def computes_loss(self) -> bool:
        """True where the scores are compared with the labels here."""
        if self._brief.kind == "apply" and not self._brief.job_settings["fuse"]:
            return False  # its backward pass does
        return self.last and self.compares

    def weights(self, iteration: int, inputs: Inputs) -> Weights:
        """Return the weights that came, and their version, -1 for the first ones."""
        raise NotImplementedError

    def compute(self, pulled: Payload, weights: NDArray[Any]) -> Computed:
        """Return the answer, the gradient of the weights and the loss."""
        raise NotImplementedError


def backward(
    pulled: Payload, of_z: NDArray[Any], weights: NDArray[Any] | None
) -> tuple[Payload, NDArray[Any]]:
    """Return the gradient of the gathered rows, if asked for, and of the weights."""
    gradient = pulled["ah"].T @ of_z
    return ({} if weights is None else {"gradient": of_z @ weights.T}), gradient


class Apply(_Tensor):
    """Multiply with the weights; the last layer goes straight back where it is fused.

    Its answer holds z and h, h alone where they are rematerialized, z of the last.
    """

    @override
    def weights(self, iteration: int, inputs: Inputs) -> Weights:
        # The newest that had come, or those of a lambda before.
        for sender, payload in self.input_of(("stash",), inputs):
            # Pooled memory, which the next part of a stream cannot use.
            return tensor(payload, "weights", sender).copy(), 0
        for sender, payload in self.input_of(("weight_update",), inputs):
            version = self._reads.get(sender.edge, iteration - sender.lag)
            return tensor(payload, "weights", sender).copy(), version
        return self._process["initial"][self.layer], self._brief.first - 1

    def restore(self, state: Mapping[str, Payload]) -> None:
        """Begin with the weights that its layer's update had."""
        (weights,) = state.values()
        initial = self._process["initial"]
        initial[self.layer] = weights["parameters"].reshape(initial[self.layer].shape)

    @override
    def compute(self, pulled: Payload, weights: NDArray[Any]) -> Computed:
        z = pulled["ah"] @ weights
        if self.computes_loss:
            loss = cross_entropy(z, pulled["targets"])
            needs = weights if self.layer else None
            answer, gradient = backward(pulled, loss.gradient, needs)
            return answer, gradient, loss.value
        if self.last:
            return {"z": z}, None, 0.0
        answer = {"h": activate(self.activation, z)}
        if not self._brief.job_settings["rematerialize"]:
            answer["z"] = z
        return answer, None, 0.0


class ApplyBack(_Tensor):
    """Backward pass of a layer with the weights of its forward pass, stashed.

    Layer 0 needs none, unless it computes z.
    """

    @override
    def weights(self, iteration: int, inputs: Inputs) -> Weights:
        for sender, payload in self.input_of(("stash",), inputs):
            return tensor(payload, "weights", sender).copy(), 0
        return self._process["initial"][self.layer][:0], -1

    @override
    def compute(self, pulled: Payload, weights: NDArray[Any]) -> Computed:
        z = pulled["z"] if "z" in pulled else pulled["ah"] @ weights
        needs = weights if self.layer else None
        if self.last:
            loss = cross_entropy(z, pulled["targets"])
            return (*backward(pulled, loss.gradient, needs), loss.value)
        of_z = pulled["gradient"] * activation_slope(self.activation, z)
        return (*backward(pulled, of_z, needs), 0.0)


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
        by_version = versions(self._process, self._brief)[self.layer]
        if version not in by_version:
            raise NodeMisbehaved(
                f"{sender.peer} used version {version} of the weights, held are "
                f"{sorted(by_version)}"
            )
        weights = by_version[version]
        rows = len(weights) - attention_rows(self._brief)
        of_edges = self._brief.settings["for"] in EDGE_TENSORS
        return {"weights": weights[rows:] if of_edges else weights[:rows]}


class GradientSum(Nothing):
    """Sum the gradients of one parameter server's intervals, in their order."""

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        return {"gradient": sum_gradients(self._brief, inputs)}


class WeightUpdate(Nothing):
    """Step the weights of one layer with the sum of all gradients."""

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        self._held = versions(process, brief)[self.layer]
        self._weights = self._held[-1].copy()
        flat = self._weights.reshape(-1)
        self._optimizer = make_optimizer(brief.job_settings, flat)
        self._most = brief.job_settings["staleness"] + 2

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        """Return the new weights; older versions than are in use are dropped."""
        self._optimizer.step(sum_gradients(self._brief, inputs).reshape(-1))
        self._held[iteration] = self._weights.copy()
        for version in sorted(self._held)[: -self._most]:
            del self._held[version]
        rows = len(self._weights) - attention_rows(self._brief)
        return {"weights": self._held[iteration][:rows]}

    def state(self, _iteration: int) -> Payload:
        """Return the weights, and what the optimiser has of the past.

        Every interval enters an epoch when all have ended the one before, so that only
        the newest version is in use between two epochs.
        """
        return self._optimizer.state()

    def restore(self, state: Mapping[str, Payload]) -> None:
        """Go on from it, which the parameter servers hold alike."""
        (one,) = state.values()
        self._optimizer.restore(one)
        self._held.clear()
        self._held[self._brief.first - 1] = self._weights.copy()

    @override
    def result(self) -> Payload:
        return {"weights": self._weights}


def versions(process: Shared, brief: TaskSpec) -> list[dict[int, NDArray[Any]]]:
    """Return the versions of every layer's weights that a parameter server holds."""
    if "versions" not in process:
        settings = brief.job_settings
        first = initial_weights(settings, open_for(settings))
        process["versions"] = [{-1: one} for one in first]
    by_layer: list[dict[int, NDArray[Any]]] = process["versions"]
    return by_layer


def sum_gradients(brief: TaskSpec, inputs: Inputs) -> NDArray[Any]:
    """Return the sum of the gradients that came, in the order of the in-edges.

    Those of attention stand below those of the weights. Of several lambdas of one task
    the first that came counts, the others are dropped.
    """
    totals: dict[bool, NDArray[Any]] = {}
    senders = set()
    for sender in brief.inputs:
        chunk = sender.peer.partition(".")[0]
        payload = inputs.get(sender.edge, {})
        if chunk not in senders and "gradient" in payload:
            senders.add(chunk)
            gradient = payload["gradient"]
            of_edges = sender.peer_kind in EDGE_TENSORS
            total = totals.get(of_edges)
            total = gradient.copy() if total is None else total + gradient
            totals[of_edges] = total
    if not totals:
        raise NodeMisbehaved(f"{brief.name} has no gradient to sum")
    return np.concatenate([totals[key] for key in sorted(totals)])
