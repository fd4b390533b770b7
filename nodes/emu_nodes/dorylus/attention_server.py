"""A graph server's part of a GAT: edges of its intervals, and what lambdas pull.

It holds, per interval and epoch: z of a layer (``z0``, ..), the rows that its AE has
read (``read0``, ..), the attention of its edges (``attention0``, ..), what its GA has
summed (``out0``, ..), and the gradient of that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from emu.training.interval_layers import InEdges
from emu_nodes.dorylus.graph_server import IDS, ROWS, GraphServer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from emu_nodes.program import Payload

#: What every interval's tasks keep on their server, of a layer.
Z, READ, ATTENTION, OUT = "z", "read", "attention", "out"


class AttentionServer(GraphServer):
    """A graph server of a GAT."""

    def __init__(self, settings: Mapping[str, Any], server: int) -> None:
        super().__init__(settings, server)
        self._edges: dict[int, InEdges] = {}
        self._sources: dict[tuple[int, int], NDArray[np.int64]] = {}

    def edges(self, interval: int) -> InEdges:
        """Return the edges into an interval."""
        if interval not in self._edges:
            rows = self.rows_of(interval)
            self._edges[interval] = InEdges(self._part.forward, rows)
        return self._edges[interval]

    def push(self, interval: int, epoch: int) -> None:
        """Sum what the edges of an interval give each vertex here or elsewhere."""
        of_sources, of_own = (
            self.kept(interval, epoch, f"of_{end}") for end in ("sources", "own")
        )
        count = len(self._part.vertices)
        pushed = self.edges(interval).pushed(of_sources, of_own, count)
        self.keep(interval, epoch, pushed=pushed)

    def pushed(self, interval: int, epoch: int, server: int) -> Payload:
        """Return the gradients that a server's vertices get of an interval."""
        key = interval, server
        if key not in self._sources:
            places = np.unique(self.edges(interval).columns).astype(np.int64)
            count = len(self._part.local)
            if server == self._server:
                self._sources[key] = places[places < count]
            else:
                remote = places[places >= count]
                theirs = self._part.owners[remote - count] == server
                self._sources[key] = remote[theirs]
        places = self._sources[key]
        rows = self.kept(interval, epoch, "pushed")[places]
        ids = self._part.vertices[places].astype(np.int32)
        return {f"{IDS}{interval}": ids, f"{ROWS}{interval}": rows}

    def gathered(self, interval: int, payloads: Iterable[Payload]) -> NDArray[Any]:
        """Return the sum of an interval's gradients of all edges that came."""
        pieces = {name: array for came in payloads for name, array in came.items()}
        total = np.zeros(0)
        for name, rows in pieces.items():
            if name.startswith(ROWS):
                ids = pieces[name.replace(ROWS, IDS)]
                one = self.assembled([{f"{IDS}0": ids, f"{ROWS}0": rows}])
                total = total + one if len(total) else one
        found: NDArray[Any] = total[self.rows_of(interval)]
        return found

    @override
    def pulled(self, step: tuple[str, int], interval: int, epoch: int) -> Payload:
        """Return what a tensor task needs of the server."""
        kind, layer = step
        if kind in {"apply", "apply_back"}:
            found = {"rows": self._before(layer, interval, epoch)}
            if kind == "apply_back":
                found["gradient"] = self.kept(interval, epoch, "gathered")
            return found
        read = self.kept(interval, epoch, f"{READ}{layer}")
        found = dict(self.edges(interval).both(read))
        if kind == "edge_apply":
            return found
        if layer == self._settings["model"]["layers"] - 1:
            found["scores"] = self.kept(interval, epoch, f"{OUT}{layer}")
            found["targets"] = self.targets(interval)
        else:
            found["gradient"] = self.kept(interval, epoch, "gradient")
        return found

    def _before(self, layer: int, interval: int, epoch: int) -> NDArray[Any]:
        if layer:
            return self.kept(interval, epoch, f"{OUT}{layer - 1}")
        return self.features[self.rows_of(interval)]

    @override
    def returned(
        self, step: tuple[str, int], interval: int, epoch: int, answer: Payload
    ) -> None:
        """Take what a tensor task has returned, z and attention by their layer."""
        of_layer = {name: f"{name}{step[1]}" for name in (Z, ATTENTION)}
        named = {of_layer.get(name, name): array for name, array in answer.items()}
        super().returned(step, interval, epoch, named)
