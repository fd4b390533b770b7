"""Workers: forward and backward on the mini-batches of their samplers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import NodeMisbehaved
from emu.training import (
    GraphModel,
    MiniBatch,
    OwnModel,
    build_model,
    initial_parameters,
    make_optimizer,
)
from emu.workloads import shard_bounds
from emu_nodes.all_reduce import share_vector
from emu_nodes.job_data import JobData
from emu_nodes.program import sends, tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from emu_nodes.program import EdgeSpec, Payload, TaskSpec


def version_name(version: int) -> str:
    """Return the tensor name of parameters after step ``version``.

    The version travels in the name: a flow's bytes are exactly its parameters.
    """
    return f"parameters.{version}"


class _Trainer:
    """Trainer that computes gradients on the mini-batches of the samplers.

    With ``compute: timed`` nothing is learnt, torch is not even loaded: gradients are
    zeros of the right size, and no loss is reported.
    """

    def __init__(self, brief: TaskSpec, process: dict[str, Any]) -> None:
        self._brief = brief
        settings = brief.job_settings
        dataset = JobData(brief, process).dataset
        self._samplers = [i for i in brief.inputs if i.peer_kind == "sampler"]
        self._layers: int = settings["model"]["layers"]
        self._parameters = initial_parameters(settings, dataset)
        self._figures: dict[str, float] = {}
        self._worker: int = brief.settings["worker"]
        self._model: GraphModel | OwnModel | None = None
        if settings["compute"] != "timed":
            self._model = build_model(settings, dataset)
            self._model.warm_up_scheduler()

    def _gradient(self, iteration: int, inputs: Mapping[int, Payload]) -> NDArray[Any]:
        """Return the gradient of the mean loss over all mini-batches."""
        batches = [self._mini_batch(inputs, sampler) for sampler in self._samplers]
        if self._model is None:
            return np.zeros_like(self._parameters)
        self._model.load(self._parameters)
        gradient, loss, accuracy = self._model.gradient(
            batches, self._worker, iteration
        )
        self._figures = {"loss": loss, "accuracy": accuracy}
        return gradient

    def _mini_batch(
        self, inputs: Mapping[int, Payload], sampler: EdgeSpec
    ) -> MiniBatch:
        try:
            return MiniBatch.from_tensors(inputs[sampler.edge], self._layers)
        except ValueError as error:
            raise NodeMisbehaved(f"{sampler.peer}: {error}") from error

    @property
    def parameters(self) -> NDArray[Any]:
        """The parameters of the last iteration, flat."""
        return self._parameters

    def report(self) -> dict[str, float]:
        """Return loss and accuracy on the last iteration's seeds; timed: nothing."""
        return self._figures


class Worker(_Trainer):
    """One replica of the model; its parameters always come from the servers."""

    def __init__(self, brief: TaskSpec, process: dict[str, Any]) -> None:
        super().__init__(brief, process)
        self._servers = [o for o in brief.outputs if o.peer_kind == "parameter_server"]
        self._sources = [i for i in brief.inputs if i.peer_kind == "parameter_server"]
        self._bounds = shard_bounds(len(self._parameters), len(self._servers))

    def run(self, iteration: int, inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        """Return each server's shard of the ``gradient`` of the mean loss."""
        # The first parameters follow from the seed, or from a cut.
        if iteration > self._brief.first:
            self._take_parameters(iteration - 1, inputs)
        gradient = self._gradient(iteration, inputs)
        shards = zip(self._servers, self._bounds, strict=True)
        return {
            server.edge: {"gradient": gradient[first:last]}
            for server, (first, last) in shards
            if sends(server, iteration)
        }

    def restore(self, state: Mapping[str, Payload]) -> None:
        """Begin with the parameters that the servers had."""
        for server, (first, last) in zip(self._servers, self._bounds, strict=True):
            self._parameters[first:last] = state[server.peer]["parameters"]

    def _take_parameters(self, version: int, inputs: Mapping[int, Payload]) -> None:
        for server, (first, last) in zip(self._sources, self._bounds, strict=True):
            shard = tensor(inputs[server.edge], version_name(version), server)
            if shard.shape != (last - first,):
                raise NodeMisbehaved(
                    f"{server.peer} sent {self._brief.name} parameters of "
                    f"{shard.shape}, not {(last - first,)}"
                )
            self._parameters[first:last] = shard

    def result(self) -> Payload:
        """Return nothing: the servers hold the parameters."""
        return {}


class Replica(_Trainer):
    """A worker that holds and steps the parameters itself.

    The steps of an all-reduce in its process sum the gradients of all workers in place
    (`emu_nodes.all_reduce`). It steps with their mean before it goes on.
    """

    def __init__(self, brief: TaskSpec, process: dict[str, Any]) -> None:
        super().__init__(brief, process)
        self._optimizer = make_optimizer(brief.job_settings, self._parameters)
        self._sum = np.zeros_like(self._parameters)
        self._workers: int = brief.job_settings["workers"]
        self._summed = False
        self._process = process

    def run(self, iteration: int, inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        """Leave the gradient to the all-reduce, which needs no byte."""
        self._step()
        self._sum[:] = self._gradient(iteration, inputs)
        if self._workers > 1:
            share_vector(self._process, self._brief.name, self._sum, iteration)
        self._summed = self._model is not None
        return {out.edge: {} for out in self._brief.outputs if sends(out, iteration)}

    def _step(self) -> None:
        if self._summed:
            self._optimizer.step(self._sum / self._workers)
            self._summed = False

    def state(self, _iteration: int) -> Payload:
        """Return the parameters, and what the optimiser has of the past."""
        self._step()
        return self._optimizer.state()

    def restore(self, state: Mapping[str, Payload]) -> None:
        """Go on from the state of a replica, which all hold alike."""
        (one,) = state.values()
        self._optimizer.restore(one)

    def result(self) -> Payload:
        """Return the ``parameters``, which all replicas hold alike."""
        self._step()
        return {"parameters": self._parameters}
