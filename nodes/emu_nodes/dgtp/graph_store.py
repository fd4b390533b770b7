"""Graph stores: each returns the feature rows that it owns of every sampled batch.

Samplers are numbered by their position among a store's edges, which the workload lists
in the samplers' order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import NodeMisbehaved
from emu.graph_data import sample_neighbours
from emu_nodes.job_data import JobData
from emu_nodes.program import tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from emu_nodes.program import Payload, TaskSpec


class GraphStore:
    """Feature rows of one partition, mapped from the prepared data set.

    In ``oneshot`` sampling no one asks: the store derives each sampler's S_0 by itself.
    In ``multiround`` it returns the rows of the ids that it is sent.

    Raises
    ------
    DataError
        When the data set cannot be used.
    """

    def __init__(self, brief: TaskSpec, process: dict[str, Any]) -> None:
        self._brief = brief
        self._data = JobData(brief, process)
        self._dataset = self._data.dataset
        self._index: int = brief.settings["store"]
        self._features = self._dataset.features(self._index)
        self._oneshot = brief.job_settings["sampling"] == "oneshot"
        self._collected(self._derived(0, 0))  # a rehearsal
        self._rows = 0

    def run(self, iteration: int, inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        """Return ``features`` for every sampler, rows in the order of its S_0."""
        self._rows = 0
        payloads: dict[int, Payload] = {}
        for sampler, output in enumerate(self._brief.outputs):
            if self._oneshot:
                owned = self._derived(sampler, iteration)
            else:
                sender = self._brief.inputs[sampler]
                owned = tensor(inputs[sender.edge], "vertices", sender)
                self._check_owned(owned, sender.peer)
            rows = self._collected(owned)
            payloads[output.edge] = {"features": rows}
            self._rows += len(rows)
        return payloads

    def _derived(self, sampler: int, iteration: int) -> NDArray[np.int64]:
        vertices = self._data.batch(sampler, iteration).vertices
        owned: NDArray[np.int64] = vertices[
            self._dataset.owner[vertices] == self._index
        ]
        return owned

    def _collected(self, owned: NDArray[np.int64]) -> NDArray[Any]:
        rows = self._features[self._dataset.local[owned]]
        return rows.astype(self._data.precision, copy=False)

    def _check_owned(self, vertices: NDArray[np.int64], peer: str) -> None:
        count = self._dataset.vertices
        inside = bool(np.all((vertices >= 0) & (vertices < count)))
        if not inside or np.any(self._dataset.owner[vertices] != self._index):
            raise NodeMisbehaved(
                f"{peer} asked {self._brief.name} for vertices of other stores"
            )

    def report(self) -> dict[str, float]:
        """Return the number of rows that the last iteration sent."""
        return {"rows": float(self._rows)}

    def result(self) -> Payload:
        """Return nothing: a store ends as it began."""
        return {}


class GraphStoreHop:
    """One hop of ``multiround`` sampling: neighbours of the vertices that it owns.

    Raises
    ------
    DataError
        When the data set cannot be used.
    """

    def __init__(self, brief: TaskSpec, process: dict[str, Any]) -> None:
        self._brief = brief
        data = JobData(brief, process)
        data.batch(0, 0)  # a rehearsal
        self._structure, self._plan = data.dataset.structure, data.plan
        self._hop: int = brief.settings["hop"]
        self._edges = 0

    def run(self, iteration: int, inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        """Return ``source`` and ``destination`` ids of the sampled edges, int64."""
        self._edges = 0
        payloads: dict[int, Payload] = {}
        ends = zip(self._brief.inputs, self._brief.outputs, strict=True)
        for sampler, (sender, output) in enumerate(ends):
            frontier = tensor(inputs[sender.edge], "frontier", sender)
            try:
                source, destination = sample_neighbours(
                    self._structure,
                    frontier,
                    fanout=self._plan.hop_fanout(self._hop),
                    stream=self._plan.stream(sampler, iteration),
                    hop=self._hop,
                )
            except ValueError as error:
                raise NodeMisbehaved(f"{sender.peer}: {error}") from error
            payloads[output.edge] = {"source": source, "destination": destination}
            self._edges += len(source)
        return payloads

    def report(self) -> dict[str, float]:
        """Return the number of edges that the last iteration sampled."""
        return {"edges": float(self._edges)}

    def result(self) -> Payload:
        """Return nothing."""
        return {}
