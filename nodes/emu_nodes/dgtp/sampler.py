"""Samplers: draw seeds, assemble blocks and features into mini-batches.

In ``multiround`` sampling a sampler process runs L + 2 tasks: one per hop, one that
asks for features, one that assembles. They hand the growing batch on in the process;
the credit window may let several iterations be under way at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import NodeMisbehaved
from emu.graph_data import GrowingBatch, SampledBatch
from emu.training import MiniBatch, make_blocks
from emu_nodes.job_data import JobData
from emu_nodes.program import tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from emu_nodes.program import EdgeSpec, Payload, TaskSpec

#: Rows of every message of a store that are compared with the data set. They are drawn
#: by entropy of the receiver's own, which no sender knows: a fault in a share q of the
#: rows is found in n messages with probability 1 - (1 - q)^(8 n), q = 1/2 in the first
#: with 0.996. Rows at fixed places let a fault in every other row pass.
_LOOKED_AT = 8


def add_replies(
    batch: GrowingBatch, brief: TaskSpec, inputs: Mapping[int, Payload]
) -> None:
    """Add what the stores sent a task to a batch.

    Raises
    ------
    NodeMisbehaved
        When an edge leads to a vertex that was not asked for.
    """
    sources, destinations = (
        np.concatenate([tensor(inputs[one.edge], name, one) for one in brief.inputs])
        for name in ("source", "destination")
    )
    try:
        batch.grow(sources, destinations)
    except ValueError as error:
        raise NodeMisbehaved(f"reply to {brief.name}: {error}") from error


class _SamplerTask:
    """State and methods that the tasks of one sampler process share."""

    def __init__(self, brief: TaskSpec, process: dict[str, Any]) -> None:
        self._brief = brief
        self._data = JobData(brief, process)
        self._dataset = self._data.dataset
        self._index: int = brief.settings["sampler"]
        self._growing: dict[int, GrowingBatch] = process.setdefault("growing", {})
        self._figures: dict[str, float] = {}
        self._own = np.random.default_rng()
        self._rehearse()

    def _rehearse(self) -> None:
        """Open every array and load every library before the start barrier."""
        batch = self._data.batch(self._index, 0)
        self._by_owner(batch.vertices, "vertices")
        make_blocks(batch.sizes, batch.edges)
        self._dataset.look_at(batch.vertices[:1])
        _ = self._dataset.labels

    def _grow(self, iteration: int, inputs: Mapping[int, Payload]) -> GrowingBatch:
        """Add the stores' replies to the last hop."""
        batch = self._growing[iteration]
        add_replies(batch, self._brief, inputs)
        return batch

    def _by_owner(self, vertices: NDArray[np.int64], name: str) -> dict[int, Payload]:
        """Ask every store for the vertices that it owns."""
        owners = self._dataset.owner[vertices]
        return {
            output.edge: {name: vertices[owners == store]}
            for store, output in enumerate(self._brief.outputs)
        }

    def report(self) -> dict[str, float]:
        """Return the size of the last batch: only the assembling task has one."""
        return self._figures

    def result(self) -> Payload:
        """Return nothing."""
        return {}


class SamplerHop(_SamplerTask):
    """One hop: merges the replies to the last one, sends out the new frontier.

    Raises
    ------
    DataError
        When the data set cannot be used.
    """

    def __init__(self, brief: TaskSpec, process: dict[str, Any]) -> None:
        super().__init__(brief, process)
        self._hop: int = brief.settings["hop"]

    def run(self, iteration: int, inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        """Return ``frontier`` for every store: the ids that it owns, int64."""
        if self._hop == 1:
            seeds = self._data.plan.seeds(self._dataset.train, self._index, iteration)
            self._growing[iteration] = GrowingBatch(seeds)
        else:
            self._grow(iteration, inputs)
        return self._by_owner(self._growing[iteration].frontier, "frontier")


class SamplerFetch(_SamplerTask):
    """Merges the last hop and asks every store for the features it owns of S_0."""

    def run(self, iteration: int, inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        """Return ``vertices`` for every store: the ids that it owns, int64."""
        return self._by_owner(self._grow(iteration, inputs).frontier, "vertices")


class Sampler(_SamplerTask):
    """Assembles the stores' rows and the sampled blocks into a mini-batch."""

    def __init__(self, brief: TaskSpec, process: dict[str, Any]) -> None:
        super().__init__(brief, process)
        self._oneshot = brief.job_settings["sampling"] == "oneshot"

    def run(self, iteration: int, inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        """Return the tensors of a `MiniBatch` for the worker."""
        batch = self._batch(iteration)
        make_blocks(batch.sizes, batch.edges)  # refuses edges that leave the sets
        mini_batch = MiniBatch.of(
            batch,
            self._merged(batch.vertices, inputs),
            self._dataset.labels[batch.seeds],
        )
        self._figures = {
            "input_vertices": float(batch.sizes[0]),
            "edges": float(sum(len(source) for source, _ in batch.edges)),
        }
        return {output.edge: mini_batch.tensors() for output in self._brief.outputs}

    def _batch(self, iteration: int) -> SampledBatch:
        if not self._oneshot:
            return self._growing.pop(iteration).finished()
        return self._data.batch(self._index, iteration)

    def _merged(
        self, vertices: NDArray[np.int64], inputs: Mapping[int, Payload]
    ) -> NDArray[Any]:
        """Put every store's rows at the places of S_0 that it owns."""
        length = self._dataset.feature_length
        features = np.empty((len(vertices), length), self._data.precision)
        owners = self._dataset.owner[vertices]
        for store, sender in enumerate(self._brief.inputs):
            mine = owners == store
            rows = tensor(inputs[sender.edge], "features", sender)
            expected = int(mine.sum()), length
            if rows.shape != expected or rows.dtype != features.dtype:
                raise NodeMisbehaved(
                    f"{sender.peer} sent {self._brief.name} features of {rows.shape} "
                    f"{rows.dtype}, not {expected} {features.dtype}"
                )
            self._compare(sender, vertices[mine], rows)
            features[mine] = rows
        return features

    def _compare(
        self, sender: EdgeSpec, vertices: NDArray[np.int64], rows: NDArray[Any]
    ) -> None:
        """Hold some rows of a store against the data set, read past that store."""
        if not len(rows):
            return
        some = self._own.integers(len(rows), size=_LOOKED_AT)
        stated = self._dataset.look_at(vertices[some]).astype(rows.dtype, copy=False)
        if not np.array_equal(rows[some], stated):
            raise NodeMisbehaved(
                f"{sender.peer} sent {self._brief.name} other features than the data "
                "set has of its vertices"
            )
