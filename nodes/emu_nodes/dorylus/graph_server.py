"""A graph server's part: rows of its intervals, gathers, and what lambdas pull.

Of a GAT it holds, per interval and epoch: z of a layer (``z0``, ..), the rows that its
AE has read (``read0``, ..), the attention of its edges (``attention0``, ..), what its
GA has summed (``out0``, ..), and the gradient of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.errors import NodeMisbehaved
from emu.graph_data import open_parts
from emu.graph_data.intervals import cut_intervals
from emu.training.interval_layers import InEdges, RowSums, training_targets
from emu_nodes.program import Payload

#: Name of the rows of interval i, and of their vertices where these are not all.
ROWS = "rows"
IDS = "ids"
#: Interval, epoch, and number of a tensor task within an interval.
Chunk = tuple[int, int, int]
#: What every interval's tasks keep on their server, of a layer.
Z = "z"
READ = "read"
ATTENTION = "attention"
OUT = "out"


class GraphServer:
    """One part of the graph and the values of its intervals, by epoch.

    Epochs of an interval may overlap: values stay until the last task of their epoch.
    """

    def __init__(self, settings: Mapping[str, Any], server: int) -> None:
        self._settings = settings
        self._server = server
        self._dtype = np.dtype(settings["precision"])
        self._dataset, self._graph = open_parts(settings)
        self._part = self._graph.part(server)
        dataset = self._dataset
        parts = dataset.structure, dataset.owner, dataset.parts
        how = settings["intervals"], settings["interval_cut"]
        self._interval = cut_intervals(*parts, *how)
        # Made once: all of these follow from the graph.
        self.sums = cache(self._make_sums)
        self.ghost_rows = cache(self._find_ghosts)
        self.targets = cache(
            lambda interval: training_targets(
                dataset, self._part.local[self.rows_of(interval)], self._dtype
            )
        )
        self.asked: dict[Chunk, int] = {}
        """Number of the lambda that was launched last for a chunk, if not the first."""
        self._values: dict[tuple[int, int], dict[str, NDArray[Any]]] = {}

    @cached_property
    def features(self) -> NDArray[Any]:
        """Features of local and remote vertices, which never change."""
        rows = self._dataset.gather(self._part.vertices)
        return rows.astype(self._dtype, copy=False)

    def rows_of(self, interval: int) -> NDArray[np.int64]:
        """Return the positions of an interval's vertices in this part."""
        return np.flatnonzero(self._interval[self._part.local] == interval)

    def _make_sums(self, interval: int, *, backward: bool) -> RowSums:
        """Return the rows of A, or of A transposed, of an interval."""
        adjacency = self._part.backward if backward else self._part.forward
        return RowSums(adjacency, self.rows_of(interval), self._dtype)

    def _find_ghosts(
        self, interval: int, server: int
    ) -> tuple[NDArray[np.int32], NDArray[np.intp]]:
        """Return the vertices of an interval that a server needs, and their rows."""
        ghosts = self._graph.ghosts_of(self._server, server)
        ghosts = ghosts[self._interval[ghosts] == interval]
        mine = self._part.local[self.rows_of(interval)]
        return ghosts.astype(np.int32), np.searchsorted(mine, ghosts)  # both ascend

    def ghosts(self, interval: int, server: int, rows: NDArray[Any]) -> Payload:
        """Return what a server needs of the rows of an interval."""
        ids, places = self.ghost_rows(interval, server)
        return {f"{IDS}{interval}": ids, f"{ROWS}{interval}": rows[places]}

    def assemble(self, payloads: Iterable[Payload]) -> NDArray[Any]:
        """Return the vectors of local and remote vertices from what came of them.

        Zeros where nothing has come yet.

        Raises NodeMisbehaved when vertices came that are not of this part.
        """
        pieces = [
            (int(name.removeprefix(ROWS)), rows, payload)
            for payload in payloads
            for name, rows in payload.items()
            if name.startswith(ROWS)
        ]
        width = pieces[0][1].shape[1]
        vectors = np.zeros((len(self._part.vertices), width), self._dtype)
        for interval, rows, payload in pieces:
            ids = payload.get(f"{IDS}{interval}")
            if ids is None:  # from this server: all rows of the interval, in order
                places = self.rows_of(interval)
            else:
                try:
                    places = self._part.positions(ids.astype(np.int64))
                except ValueError as error:
                    raise NodeMisbehaved(f"ghosts of {interval}: {error}") from error
            vectors[places] = rows
        return vectors

    def keep(self, interval: int, epoch: int, **values: NDArray[Any]) -> None:
        """Hold values of an interval until its epoch ends."""
        self._values.setdefault((interval, epoch), {}).update(values)

    def recall(self, interval: int, epoch: int, name: str) -> NDArray[Any]:
        """Return a value that `keep` holds."""
        return self._values[interval, epoch][name]

    def pull(self, step: tuple[str, int], interval: int, epoch: int) -> Payload:
        """Return what a tensor task, of a kind and layer, needs of the server."""
        kind, layer = step
        last = layer == self._settings["model"]["layers"] - 1
        arrays = {"ah": self.recall(interval, epoch, f"ah{layer}")}
        if kind == "apply":
            if last and self._settings["fuse"]:
                arrays["targets"] = self.targets(interval)
            return arrays
        if not self._settings["rematerialize"]:
            arrays["z"] = self.recall(interval, epoch, f"z{layer}")
        if last:
            arrays["targets"] = self.targets(interval)
        else:
            arrays["gradient"] = self.recall(interval, epoch, "gathered")
        return arrays

    def take(
        self, chunk: Chunk, number: int, step: tuple[str, int], answer: Payload
    ) -> bool:
        """Take what a lambda has returned; return False where it was dropped.

        Of the lambdas of a chunk the last counts; this one is the ``number``-th.
        """
        if number < self.asked.get(chunk, 1):
            return False
        self.take_back(step, *chunk[:2], answer)
        return True

    def take_back(
        self, step: tuple[str, int], interval: int, epoch: int, answer: Payload
    ) -> None:
        """Take what a tensor task has returned."""
        kind, layer = step
        names = {"z": f"z{layer}"} if kind == "apply" else {}
        self.keep(interval, epoch, **{names.get(k, k): a for k, a in answer.items()})
        if kind == "apply_back" and layer == 0:  # the epoch of the interval ends
            self._values.pop((interval, epoch), None)


class AttentionServer(GraphServer):
    """A graph server of a GAT."""

    def __init__(self, settings: Mapping[str, Any], server: int) -> None:
        super().__init__(settings, server)
        into = self._part.forward
        self._sources = cache(self._find_sources)
        self.edges = cache(lambda interval: InEdges(into, self.rows_of(interval)))

    def _find_sources(self, interval: int, server: int) -> NDArray[np.int64]:
        """Return the places of a server's vertices with edges into an interval."""
        places = np.unique(self.edges(interval).columns).astype(np.int64)
        count = len(self._part.local)
        sources: NDArray[np.int64] = places[places < count]
        if server != self._server:
            remote = places[places >= count]
            sources = remote[self._part.owners[remote - count] == server]
        return sources

    def push(self, interval: int, epoch: int) -> None:
        """Sum what the edges of an interval give each vertex here or elsewhere."""
        of_sources, of_own = (
            self.recall(interval, epoch, f"of_{end}") for end in ("sources", "own")
        )
        count = len(self._part.vertices)
        sums = self.edges(interval).push_back(of_sources, of_own, count)
        self.keep(interval, epoch, pushed=sums)

    def push_gradients(self, interval: int, epoch: int, server: int) -> Payload:
        """Return the gradients that a server's vertices get of an interval."""
        places = self._sources(interval, server)
        rows = self.recall(interval, epoch, "pushed")[places]
        ids = self._part.vertices[places].astype(np.int32)
        return {f"{IDS}{interval}": ids, f"{ROWS}{interval}": rows}

    def sum_gradients(self, interval: int, payloads: Iterable[Payload]) -> NDArray[Any]:
        """Return the sum of an interval's gradients of all edges that came."""
        pieces = {
            name: array for payload in payloads for name, array in payload.items()
        }
        total = np.zeros(0)
        for name, rows in pieces.items():
            if name.startswith(ROWS):
                ids = pieces[name.replace(ROWS, IDS)]
                one = self.assemble([{f"{IDS}0": ids, f"{ROWS}0": rows}])
                total = total + one if len(total) else one
        found: NDArray[Any] = total[self.rows_of(interval)]
        return found

    @override
    def pull(self, step: tuple[str, int], interval: int, epoch: int) -> Payload:
        kind, layer = step
        if kind in {"apply", "apply_back"}:
            if layer:
                arrays = {"rows": self.recall(interval, epoch, f"{OUT}{layer - 1}")}
            else:
                arrays = {"rows": self.features[self.rows_of(interval)]}
            if kind == "apply_back":
                arrays["gradient"] = self.recall(interval, epoch, "gathered")
            return arrays
        read = self.recall(interval, epoch, f"{READ}{layer}")
        arrays = dict(self.edges(interval).both(read))
        if kind == "edge_apply":
            return arrays
        if layer == self._settings["model"]["layers"] - 1:
            arrays["scores"] = self.recall(interval, epoch, f"{OUT}{layer}")
            arrays["targets"] = self.targets(interval)
        else:
            arrays["gradient"] = self.recall(interval, epoch, "gradient")
        return arrays

    @override
    def take_back(
        self, step: tuple[str, int], interval: int, epoch: int, answer: Payload
    ) -> None:
        """Take what a tensor task has returned, z and attention by their layer."""
        of_layer = {name: f"{name}{step[1]}" for name in (Z, ATTENTION)}
        arrays = {of_layer.get(name, name): array for name, array in answer.items()}
        super().take_back(step, interval, epoch, arrays)
