"""Program of one part of a tensor parallel training on the whole graph."""

from __future__ import annotations

import re
from collections.abc import Mapping

from typing_extensions import override

from emu.errors import NodeMisbehaved
from emu.training.decoupled import TensorPart
from emu_nodes.partition.programs import Part
from emu_nodes.program import (
    EdgeSpec,
    Inputs,
    Payload,
    Shared,
    TaskProgram,
    TaskSpec,
    tensor,
)


class Stage(TaskProgram):
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

    def _peer(self, edge: EdgeSpec) -> int | None:
        """Return the rank of the other part of an edge, None within this one."""
        match = re.fullmatch(r"d(\d+)\..*", edge.peer)
        rank = None if match is None else int(match[1])
        return None if rank == self._shared.rank else rank

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        if self._stage == "dense":
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
            scored = self._part.scored
            # Shares of the graph's: their mean over parts is that of the graph.
            self._figures = {
                "loss": scored.loss * self._part.ranks,
                "accuracy": scored.accuracy * self._part.ranks,
            }
        elif self._stage == "dense_gradient":
            self._shared.share_gradient(iteration)
        return {}

    @override
    def payload(self, output: EdgeSpec, _iteration: int, _made: Payload) -> Payload:
        peer = self._peer(output)
        if peer is None:
            return {}
        return {"piece": self._part.piece(self._stage, peer)}

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
        if self._stage != "dense":
            return {}
        self._shared.step(self._brief.iterations)
        return {"parameters": self._shared.parameters}
