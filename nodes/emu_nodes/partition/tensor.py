"""Program of one part of a tensor parallel training on the whole graph."""

from __future__ import annotations

from typing_extensions import override

from emu.errors import NodeMisbehaved
from emu.training.decoupled import TensorPart
from emu_nodes.partition.programs import Part, StatefulTask
from emu_nodes.program import (
    EdgeSpec,
    Inputs,
    Payload,
    Shared,
    TaskSpec,
    tensor,
)


class Stage(StatefulTask):
    """One stage of an epoch: joins pieces, computes, and hands pieces out."""

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        if "part" not in process:
            part = TensorPart(brief.job_settings, brief.settings["rank"])
            process["tensor"] = part
            process["part"] = Part(brief, process, part)
        super().__init__(brief, process)
        self._shared: Part = process["part"]
        self._part: TensorPart = process["tensor"]
        self._stage = brief.kind
        self._is_first = self._stage == "dense"

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        if self._is_first:
            self._shared.step(iteration)
        pieces = {}
        for source in self._brief.inputs:
            peer = self._peer(source)
            if peer is not None:
                pieces[peer] = tensor(inputs[source.edge], "piece", source)
        try:
            self._part.run(self._stage, pieces)
        except (KeyError, ValueError) as error:
            raise NodeMisbehaved(f"pieces of {self._brief.name}: {error}") from error

        if self._stage == "score":
            self._figures = self._shared.figures()
        elif self._stage == "dense_gradient":
            self._shared.share_gradient(iteration)
        return {}

    @override
    def payload(self, output: EdgeSpec, _iteration: int, _made: Payload) -> Payload:
        peer = self._peer(output)
        if peer is None:
            return {}
        piece = self._part.piece(self._stage, peer)
        return {"piece": piece}
