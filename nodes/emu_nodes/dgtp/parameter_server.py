"""Parameter servers: average gradients in rank order, step, send parameters.

Several servers share the flat vector evenly. numpy only: no torch in this process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emu.errors import NodeMisbehaved
from emu.training import initial_parameters, make_optimizer, mean_gradient
from emu.workloads import shard_bounds
from emu_nodes.dgtp.worker import version_name
from emu_nodes.job_data import JobData
from emu_nodes.program import sends, tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emu_nodes.program import Payload, TaskSpec


class ParameterServer:
    """One shard of the parameters and its optimiser.

    Workers are summed in the order of the edges, which is their rank: floating-point
    sums depend on the order, and the weights must not depend on who came first.

    Raises
    ------
    DataError
        When the data set cannot be used.
    """

    def __init__(self, brief: TaskSpec, process: dict[str, Any]) -> None:
        self._brief = brief
        settings = brief.job_settings
        flat = initial_parameters(settings, JobData(brief, process).dataset)
        bounds = shard_bounds(len(flat), settings["parameter_servers"])
        first, last = bounds[brief.settings["server"]]
        self._parameters = flat[first:last].copy()
        self._optimizer = make_optimizer(settings, self._parameters)

    def run(self, iteration: int, inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        """Return the stepped ``parameters.<iteration>`` for every worker."""
        # In the order of the job's edges, not of arrival: floating-point sums depend on
        # it, and weights must not depend on the host.
        gradients = []
        for worker in self._brief.inputs:
            gradient = tensor(inputs[worker.edge], "gradient", worker)
            if gradient.shape != self._parameters.shape:
                raise NodeMisbehaved(
                    f"{worker.peer} sent {self._brief.name} a gradient of "
                    f"{gradient.shape}, not {self._parameters.shape}"
                )
            gradients.append(gradient)
        self._optimizer.step(mean_gradient(gradients))
        # One copy for all workers: the next step changes the shard in place while
        # slow connections may still be sending this version.
        payload = {version_name(iteration): self._parameters.copy()}
        return {
            worker.edge: payload
            for worker in self._brief.outputs
            if sends(worker, iteration)
        }

    def state(self, _iteration: int) -> Payload:
        """Return this server's parameters, and what its optimiser has of the past."""
        return self._optimizer.state()

    def restore(self, state: Mapping[str, Payload]) -> None:
        """Go on from its own state."""
        self._optimizer.restore(state[self._brief.name])

    def report(self) -> dict[str, float]:
        """Return nothing: workers report the loss."""
        return {}

    def result(self) -> Payload:
        """Return this server's ``parameters``."""
        return {"parameters": self._parameters}
