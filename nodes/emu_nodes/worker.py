"""Workers: forward and backward on the mini-batches of their samplers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import NodeMisbehaved
from emu.training import GraphModel, MiniBatch, initial_parameters, shard_bounds
from emu_nodes.job_data import JobData, sends, tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from emu_nodes.program import EdgeSpec, Payload, TaskSpec


def version_name(version: int) -> str:
    """Return the tensor name of parameters after step ``version``.

    The version travels in the name: a flow's bytes are exactly its parameters.
    """
    return f"parameters.{version}"


class Worker:
    """One replica of the model; its parameters always come from the servers.

    With ``compute: timed`` nothing is learnt, torch is not even loaded: gradients are
    zeros of the right size, and no loss is reported.

    Raises
    ------
    DataError
        When the data set cannot be used.
    """

    def __init__(self, brief: TaskSpec, process: dict[str, Any]) -> None:
        self._brief = brief
        settings = brief.job_settings
        dataset = JobData(brief, process).dataset
        self._servers = [o for o in brief.outputs if o.peer_kind == "parameter_server"]
        self._sources = [i for i in brief.inputs if i.peer_kind == "parameter_server"]
        self._samplers = [i for i in brief.inputs if i.peer_kind == "sampler"]
        self._layers: int = settings["model"]["layers"]
        self._parameters = initial_parameters(settings, dataset)
        self._bounds = shard_bounds(len(self._parameters), len(self._servers))
        self._gradient = np.zeros_like(self._parameters)
        self._figures: dict[str, float] = {}
        self._model: GraphModel | None = None
        if settings["compute"] != "timed":
            self._model = GraphModel(settings, dataset)
            self._model.warm_up_scheduler()

    def run(self, iteration: int, inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        """Return each server's shard of the ``gradient`` of the mean loss."""
        if iteration > 0:  # the first parameters follow from the seed
            self._take_parameters(iteration - 1, inputs)
        batches = [self._mini_batch(inputs, sampler) for sampler in self._samplers]
        if self._model is not None:
            self._model.load(self._parameters)
            self._gradient, loss, accuracy = self._model.gradient(batches)
            self._figures = {"loss": loss, "accuracy": accuracy}
        shards = zip(self._servers, self._bounds, strict=True)
        return {
            server.edge: {"gradient": self._gradient[first:last]}
            for server, (first, last) in shards
            if sends(server, iteration)
        }

    def _take_parameters(self, version: int, inputs: Mapping[int, Payload]) -> None:
        for server, (first, last) in zip(self._sources, self._bounds, strict=True):
            shard = tensor(inputs[server.edge], version_name(version), server)
            if shard.shape != (last - first,):
                raise NodeMisbehaved(
                    f"{server.peer} sent {self._brief.name} parameters of "
                    f"{shard.shape}, not {(last - first,)}"
                )
            self._parameters[first:last] = shard

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

    def result(self) -> Payload:
        """Return nothing: the servers hold the parameters."""
        return {}
