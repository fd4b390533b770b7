"""Programs of samplers that have the whole structure, and ask for the rows they lack.

Where a cache is for windows of batches (policy ``hot``), the first batch of a window
asks for the rows of the next one as well. They travel over edges of their own, whose
lag is a window.
"""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from emu.graph_data.sampling import Ids
from emu_nodes.dgtp.programs import GraphStore, Sampler, SamplerFetch
from emu_nodes.program import Inputs, Payload, Payloads, tensor


class SamplerAsk(SamplerFetch):
    """Draws a mini-batch, and asks every store for the features it owns of S_0.

    It does not ask for those that a cache has.
    """

    @override
    def run(self, iteration: int, _inputs: Inputs) -> Payloads:
        """Return ``vertices`` and ``ahead`` for every store, and perhaps ``count``."""
        batch = self._data.batch(self._index, iteration)
        early = np.empty(0, np.int64)
        cache = self._cache
        if cache is not None:
            # For later batches, before this one is looked up.
            early = cache.look_ahead()

        early_questions = self._by_owner(early, "ahead")
        payloads = self._ask(batch.vertices)
        for edge, payload in payloads.items():
            early_question = early_questions[edge]
            payload.update(early_question)
            if self._brief.settings["counts"]:
                count = len(payload["vertices"])
                payload["count"] = np.array([count], np.int32)
        return payloads


class AskedStore(GraphStore):
    """Returns the rows that it is asked for, those of the next window apart."""

    @override
    def run(self, iteration: int, inputs: Inputs) -> Payloads:
        """Return ``features`` for every sampler, in the order of its question."""
        samplers = self._brief.inputs
        payloads: Payloads = {}
        count = 0
        for number, output in enumerate(self._brief.outputs):
            # Edges of a lag stand behind all others, in the samplers' order as well.
            sampler = number % len(samplers)
            sender = samplers[sampler]
            name = "ahead" if output.lag else "vertices"
            ids = self._read_ids(sender, inputs, name)
            features = self._collect_features(ids)
            payloads[output.edge] = {"features": features}
            count += len(ids)

        self._figures = {"rows": float(count)}
        return payloads


class AskingSampler(Sampler):
    """Assembles mini-batches, with the rows of a window from the one before."""

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        """Return the tensors of a `MiniBatch` for the worker."""
        cache = self._cache
        if cache is not None:
            cache.begin()
            if cache.held is not self._held:
                self._hold(cache.held, inputs)
        return super().work(iteration, inputs)

    def _hold(self, vertices: Ids, inputs: Inputs) -> None:
        """Hold the rows of a cache's vertices, which have come ahead."""
        # A restart begins as the start does: what came before it is fetched anew.
        rows = self._dataset.gather(vertices)
        rows = rows.astype(self._data.feature_type)
        owners = self._dataset.owner[vertices]
        sources = [source for source in self._brief.inputs if source.lag]
        for store, source in enumerate(sources):
            if source.edge not in inputs:
                continue
            is_sent = owners == store
            sent_rows = tensor(
                payload=inputs[source.edge],
                name="features",
                sender=source,
                shape=rows[is_sent].shape,
            )
            sent_vertices = vertices[is_sent]
            self._compare(source, sent_vertices, sent_rows)
            rows[is_sent] = sent_rows

        self._held = vertices
        self._rows = rows
