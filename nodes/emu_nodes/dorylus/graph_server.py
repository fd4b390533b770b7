"""A graph server's part: rows of its intervals, gathers, and what lambdas pull.

Of a GAT it holds, per interval and epoch: z of a layer (``z0``, ..), the rows that its
AE has read (``read0``, ..), the attention of its edges (``attention0``, ..), what its
GA has summed (``out0``, ..), and the gradient of that.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, cached_property
from typing import TypeAlias

import numpy as np
from typing_extensions import override

from emu.errors import NodeMisbehaved
from emu.graph_data import open_parts
from emu.graph_data.intervals import cut_intervals
from emu.graph_data.sampling import Ids
from emu.training.interval_layers import InEdges, RowSums, training_targets
from emu_nodes.program import (
    Array,
    Payload,
    Settings,
)

#: Name of the rows of interval i, and of their vertices where these are not all.
ROWS = "rows"
IDS = "ids"
#: Interval, epoch, and number of a tensor task within an interval.
Chunk = tuple[int, int, int]
#: Kind of a tensor task, and its layer.
Step: TypeAlias = tuple[str, int]
#: What every interval's tasks keep on their server, of a layer.
Z = "z"
READ = "read"
ATTENTION = "attention"
OUT = "out"


class GraphServer:
    """One part of the graph and the values of its intervals, by epoch.

    Epochs of an interval may overlap: values stay until the last task of their epoch.
    """

    def __init__(self, settings: Settings, server: int) -> None:
        self._settings = settings
        self._server = server
        self._dtype = np.dtype(settings["precision"])
        layers: int = settings["model"]["layers"]
        self._last = layers - 1
        self._dataset, self._graph = open_parts(settings)
        self._part = self._graph.part(server)
        self._interval = cut_intervals(
            structure=self._dataset.structure,
            owner=self._dataset.owner,
            parts=self._dataset.parts,
            each=settings["intervals"],
            how=settings["interval_cut"],
        )

        # Made once: all of these follow from the graph.
        self.sums = cache(self._make_sums)
        self.ghost_rows = cache(self._find_ghosts)
        self.targets = cache(self._find_targets)
        self.asked: dict[Chunk, int] = {}
        """Number of the lambda that was launched last for a chunk, if not the first."""
        self._values: dict[tuple[int, int], Payload] = {}

    @cached_property
    def features(self) -> Array:
        """Features of local and remote vertices, which never change."""
        vertices = self._part.vertices
        rows = self._dataset.gather(vertices)  # (local + remote, width)
        return rows.astype(self._dtype, copy=False)

    def rows_of(self, interval: int) -> Ids:
        """Return the positions of an interval's vertices in this part."""
        intervals = self._interval[self._part.local]
        return np.flatnonzero(intervals == interval)

    def _vertices_of(self, interval: int) -> Ids:
        rows = self.rows_of(interval)
        return self._part.local[rows]

    def _make_sums(self, interval: int, *, backward: bool) -> RowSums:
        """Return the rows of A, or of A transposed, of an interval."""
        part = self._part
        return RowSums(
            adjacency=part.backward if backward else part.forward,
            rows=self.rows_of(interval),
            dtype=self._dtype,
        )

    def _find_targets(self, interval: int) -> Array:
        vertices = self._vertices_of(interval)
        return training_targets(self._dataset, vertices, self._dtype)

    def _find_ghosts(self, interval: int, server: int) -> tuple[Array, Array]:
        """Return the vertices of an interval that a server needs, and their rows."""
        ghosts = self._graph.ghosts_of(self._server, server)
        is_inside = self._interval[ghosts] == interval
        ghosts = ghosts[is_inside]
        vertices = self._vertices_of(interval)
        rows = np.searchsorted(vertices, ghosts)  # both ascend
        ids = ghosts.astype(np.int32)
        return ids, rows

    def ghosts(self, interval: int, server: int, rows: Array) -> Payload:
        """Return what a server needs of the rows of an interval."""
        ids, places = self.ghost_rows(interval, server)
        ghosts = rows[places]
        return _rows_payload(interval, ids, ghosts)

    def assemble(self, payloads: Iterable[Payload]) -> Array:
        """Return the vectors of local and remote vertices from what came of them.

        Zeros where nothing has come yet.

        Raises NodeMisbehaved when vertices came that are not of this part.
        """
        pieces: list[tuple[Ids, Array]] = []
        width = 0
        for payload in payloads:
            for name, rows in payload.items():
                if not name.startswith(ROWS):
                    continue
                number = name.removeprefix(ROWS)
                interval = int(number)
                ids = payload.get(f"{IDS}{interval}")
                places = self._places(interval, ids)
                pieces.append((places, rows))
                _, width = rows.shape

        count = len(self._part.vertices)
        shape = (count, width)
        vectors = np.zeros(shape, self._dtype)
        for places, rows in pieces:  # later ones replace those of earlier epochs
            vectors[places] = rows
        return vectors

    def _places(self, interval: int, ids: Array | None) -> Ids:
        if ids is None:  # from this server: all rows of the interval, in order
            return self.rows_of(interval)
        vertices = ids.astype(np.int64)
        try:
            return self._part.positions(vertices)
        except ValueError as error:
            raise NodeMisbehaved(f"ghosts of {interval}: {error}") from error

    def values(self, interval: int, epoch: int) -> Payload:
        """Return what an interval's tasks keep for each other until its epoch ends."""
        key = (interval, epoch)
        return self._values.setdefault(key, {})

    def pull(self, step: Step, interval: int, epoch: int) -> Payload:
        """Return what a tensor task, of a kind and layer, needs of the server."""
        kind, layer = step
        is_last = layer == self._last
        values = self.values(interval, epoch)
        gathered_rows = values[f"ah{layer}"]
        arrays = {"ah": gathered_rows}

        if kind == "apply":
            if is_last and self._settings["fuse"]:
                arrays["targets"] = self.targets(interval)
            return arrays

        if not self._settings["rematerialize"]:  # else the lambda computes it anew
            arrays["z"] = values[f"{Z}{layer}"]
        if is_last:
            arrays["targets"] = self.targets(interval)
        else:
            arrays["gradient"] = values["gathered"]
        return arrays

    def take(
        self,
        chunk: Chunk,
        number: int,
        step: Step,
        answer: Payload,
    ) -> bool:
        """Take what a lambda has returned; return False where it was dropped.

        Of the lambdas of a chunk the last counts; this one is the ``number``-th.
        """
        if number < self.asked.get(chunk, 1):
            return False
        interval, epoch, _ = chunk
        self.take_back(
            step=step,
            interval=interval,
            epoch=epoch,
            answer=answer,
        )
        return True

    def take_back(
        self,
        step: Step,
        interval: int,
        epoch: int,
        answer: Payload,
    ) -> None:
        """Take what a tensor task has returned."""
        kind, layer = step
        # z is needed again on the way back; h is scattered before the next layer's.
        if kind == "apply":
            answer = _name_by_layer(answer, Z, layer)
        values = self.values(interval, epoch)
        values.update(answer)
        # The last task of an interval in an epoch.
        if kind == "apply_back" and layer == 0:
            self._values.pop((interval, epoch), None)


def _rows_payload(interval: int, ids: Array, rows: Array) -> Payload:
    return {f"{IDS}{interval}": ids, f"{ROWS}{interval}": rows}


def _name_by_layer(arrays: Payload, name: str, layer: int) -> Payload:
    """Return arrays, one of them under the name that it has for its layer."""
    payload = dict(arrays)
    if name in payload:
        payload[f"{name}{layer}"] = payload.pop(name)
    return payload


class AttentionServer(GraphServer):
    """A graph server of a GAT."""

    def __init__(self, settings: Settings, server: int) -> None:
        super().__init__(settings, server)
        self._sources = cache(self._find_sources)
        self.edges = cache(self._find_edges)

    def _find_edges(self, interval: int) -> InEdges:
        rows = self.rows_of(interval)
        return InEdges(self._part.forward, rows)

    def _find_sources(self, interval: int, server: int) -> Ids:
        """Return the places of a server's vertices with edges into an interval."""
        columns = self.edges(interval).columns
        places: Ids = np.unique(columns).astype(np.int64)
        count = len(self._part.local)  # these stand before the remote ones
        is_local = places < count
        if server == self._server:
            return places[is_local]
        remote = places[~is_local]
        owners = self._part.owners[remote - count]
        is_owned = owners == server
        sources: Ids = remote[is_owned]
        return sources

    def push(self, interval: int, epoch: int) -> None:
        """Sum what the edges of an interval give each vertex here or elsewhere."""
        values = self.values(interval, epoch)
        edges = self.edges(interval)
        count = len(self._part.vertices)
        values["pushed"] = edges.push_back(
            values["of_sources"],
            values["of_own"],
            count=count,
        )

    def push_gradients(self, interval: int, epoch: int, server: int) -> Payload:
        """Return the gradients that a server's vertices get of an interval."""
        places = self._sources(interval, server)
        values = self.values(interval, epoch)
        rows = values["pushed"][places]
        vertices = self._part.vertices[places]
        ids = vertices.astype(np.int32)  # as they travel: 4 bytes each
        return _rows_payload(interval, ids, rows)

    def sum_gradients(self, interval: int, payloads: Iterable[Payload]) -> Array:
        """Return the sum of an interval's gradients of all edges that came."""
        # Newer ones replace older ones of the same interval.
        pieces: Payload = {}
        for payload in payloads:
            pieces.update(payload)

        total = np.zeros(0)
        for name, rows in pieces.items():
            if not name.startswith(ROWS):
                continue
            name_of_ids = name.replace(ROWS, IDS)
            ids = pieces[name_of_ids]
            piece = _rows_payload(0, ids, rows)  # of whichever interval it came
            share = self.assemble([piece])
            total = total + share if len(total) else share

        rows_of_interval = self.rows_of(interval)
        gradients: Array = total[rows_of_interval]
        return gradients

    @override
    def pull(self, step: Step, interval: int, epoch: int) -> Payload:
        kind, layer = step
        if kind in {"apply", "apply_back"}:
            return self._pull_rows(step, interval, epoch)

        values = self.values(interval, epoch)
        rows = values[f"{READ}{layer}"]
        edges = self.edges(interval)
        arrays = dict(edges.both(rows))
        if kind == "edge_apply":
            return arrays

        if layer == self._last:
            arrays["scores"] = values[f"{OUT}{layer}"]
            arrays["targets"] = self.targets(interval)
        else:
            arrays["gradient"] = values["gradient"]
        return arrays

    def _pull_rows(self, step: Step, interval: int, epoch: int) -> Payload:
        """Return what a task on vertices needs: features, or what was summed."""
        kind, layer = step
        values = self.values(interval, epoch)
        if layer:
            rows = values[f"{OUT}{layer - 1}"]
        else:
            places = self.rows_of(interval)
            rows = self.features[places]
        arrays = {"rows": rows}
        if kind == "apply_back":
            arrays["gradient"] = values["gathered"]
        return arrays

    @override
    def take_back(
        self,
        step: Step,
        interval: int,
        epoch: int,
        answer: Payload,
    ) -> None:
        """Take what a tensor task has returned, z and attention by their layer."""
        _, layer = step
        arrays = _name_by_layer(answer, Z, layer)
        arrays = _name_by_layer(arrays, ATTENTION, layer)
        super().take_back(
            step=step,
            interval=interval,
            epoch=epoch,
            answer=arrays,
        )
