"""Programs of DGCL: layers, stages of gathers, and gradients of one device.

A stage sends rows by the plan's tables to a task at the receiver, which keeps them; the
stage that follows takes them in. Tasks of a device share its process and its `Device`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from emu_nodes.dgcl.carrier import Host
from emu_nodes.dgcl.device import Device
from emu_nodes.program import sends, tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emu_nodes.dgcl.carrier import Carrier
    from emu_nodes.program import Payload, TaskSpec


class _CarrierTask:
    """State and methods that the tasks of a device, or of a host, share."""

    def __init__(self, brief: TaskSpec, process: dict[str, Any]) -> None:
        if "dgcl" not in process:
            host = brief.settings["rank"] == brief.job_settings["parts"]
            process["dgcl"] = Host(brief) if host else Device(brief, process)
        self._carrier: Carrier = process["dgcl"]
        self._brief = brief
        self._layer: int = brief.settings["layer"] - 1  # the job counts from 1
        self._figures: dict[str, float] = {}

    def run(self, iteration: int, inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        """Return nothing for the tasks of this device: they share its memory."""
        self._work(iteration, inputs)
        return {out.edge: {} for out in self._brief.outputs if sends(out, iteration)}

    def _work(self, iteration: int, inputs: Mapping[int, Payload]) -> None:
        raise NotImplementedError

    def report(self) -> dict[str, float]:
        """Return figures of the last iteration."""
        return self._figures

    def result(self) -> Payload:
        """Return nothing."""
        return {}


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
    def _work(self, iteration: int, inputs: Mapping[int, Payload]) -> None:
        self._figures = self._device.forward(self._layer, iteration)

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
    def _work(self, iteration: int, inputs: Mapping[int, Payload]) -> None:
        self._device.backward(self._layer, iteration)


class _Stage(_CarrierTask):
    """Takes in what the stage before brought, and sends the rows of its own."""

    #: True where gradients go back along the plan.
    backward = False

    @override
    def run(self, iteration: int, inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        """Return the rows of each receiver, whose task is called ``...FROMtoRANK``."""
        stage: int = self._brief.settings["stage"]
        of = self._layer, self.backward, iteration
        self._carrier.enter(of, stage)
        sent: dict[int, Payload] = {}
        for out in self._brief.outputs:
            if sends(out, iteration):
                receiver = _receiver(out.peer)
                sent[out.edge] = (
                    {}
                    if receiver is None
                    else {"rows": self._carrier.send(of, stage, receiver)}
                )
        return sent


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
    def _work(self, iteration: int, inputs: Mapping[int, Payload]) -> None:
        place = self._brief.settings
        (source,) = self._brief.inputs
        rows = tensor(inputs[source.edge], "rows", source)
        of = self._layer, self.backward, iteration
        self._carrier.receive(of, place["stage"], place["sender"], rows)


class Scattered(Gathered):
    """The same of gradients."""

    backward = True


def _receiver(peer: str) -> int | None:
    """Return the rank in ``f0.2to1`` or ``f0.2to1@3``; None of this device's tasks."""
    found = re.fullmatch(r"[fb]\d+\.\d+to(\d+)(@\d+)?", peer)
    return int(found[1]) if found else None
