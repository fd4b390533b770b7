"""Programs of DGTP's jobs: graph stores, samplers, workers and parameter servers.

Each store returns the feature rows that it owns of every sampled batch. Samplers draw
seeds, and assemble blocks and features into mini-batches; they are numbered by their
position among a store's edges, which the workload lists in the samplers' order. In
``multiround`` sampling a sampler process runs L + 2 tasks: one per hop, one that asks
for features, one that assembles. They hand the growing batch on in the process; the
credit window may let several iterations be under way at once. Several servers share the
flat vector evenly, average gradients in rank order and step: numpy only, no torch in
their process.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from typing_extensions import override

from emu.array_types import Mask
from emu.errors import NodeMisbehaved
from emu.graph_data import (
    GrowingBatch,
    SampledBatch,
    SamplerCache,
    sample_neighbours,
)
from emu.graph_data.sampling import Ids
from emu.problem.workloads import shard_bounds
from emu.training import (
    MiniBatch,
    initial_parameters,
    make_blocks,
    make_optimizer,
    mean_gradient,
)
from emu_nodes.all_reduce import share_vector
from emu_nodes.dgtp.job_data import JobData, add_replies, edges_to, version_name
from emu_nodes.dgtp.trainer import LOOKED_AT, Trainer
from emu_nodes.program import (
    Array,
    EdgeSpec,
    Inputs,
    Payload,
    Payloads,
    Shared,
    TaskProgram,
    TaskSpec,
    tensor,
)


class GraphStore(TaskProgram):
    """Feature rows of one partition, mapped from the prepared data set.

    In ``oneshot`` sampling no one asks: the store derives each sampler's S_0 by itself.
    In ``multiround`` it returns the rows of the ids that it is sent. Raises DataError
    when the data set cannot be used.
    """

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        self._data = JobData(brief, process)
        self._dataset = self._data.dataset
        self._index: int = brief.settings["store"]
        self._features = self._dataset.features(self._index)

        # A rehearsal: it opens arrays and compiles before the start barrier.
        batch = self._data.batch(0, 0)
        owned = self._select_owned(batch.vertices)
        self._collect_features(owned)

        sampling = brief.job_settings["sampling"]
        self._oneshot = sampling == "oneshot"
        self._caches: list[SamplerCache | None] = []
        if self._oneshot:
            for sampler in range(len(brief.outputs)):
                cache = self._data.cache(sampler, brief)
                self._caches.append(cache)

    @override
    def run(self, iteration: int, inputs: Inputs) -> Payloads:
        """Return ``features`` for every sampler, rows in the order of its S_0."""
        payloads: Payloads = {}
        count = 0
        for sampler, output in enumerate(self._brief.outputs):
            if self._oneshot:
                ids = self._derive_ids(sampler, iteration)
            else:
                sender = self._brief.inputs[sampler]
                ids = self._read_ids(sender, inputs, "vertices")
            features = self._collect_features(ids)
            payloads[output.edge] = {"features": features}
            count += len(ids)
        self._figures = {"rows": float(count)}
        return payloads

    def _derive_ids(self, sampler: int, iteration: int) -> Ids:
        """Return the vertices that a sampler needs of this store and does not have."""
        batch = self._data.batch(sampler, iteration)
        vertices = batch.vertices
        cache = self._caches[sampler]
        if cache is not None:
            hits = cache.look(vertices)
            vertices = vertices[~hits]
        return self._select_owned(vertices)

    def _read_ids(self, sender: EdgeSpec, inputs: Inputs, name: str) -> Ids:
        payload = inputs[sender.edge]
        ids = tensor(payload, name, sender)
        owner = self._dataset.owner
        count = self._dataset.vertices
        # Beyond the vertices an index of owners raises; below 0 it counts from the end.
        is_vertex = (ids >= 0) & (ids < count)
        if not is_vertex.all() or (owner[ids] != self._index).any():
            raise NodeMisbehaved(
                f"{sender.peer} asked {self._brief.name} for vertices of other stores"
            )
        return ids

    def _select_owned(self, vertices: Ids) -> Ids:
        owners = self._dataset.owner[vertices]
        is_owner = owners == self._index
        owned: Ids = vertices[is_owner]
        return owned

    def _collect_features(self, owned: Ids) -> Array:
        places = self._dataset.local[owned]
        rows = self._features[places]
        feature_type = self._data.feature_type
        return rows.astype(feature_type, copy=False)


class GraphStoreHop(TaskProgram):
    """One hop of ``multiround`` sampling: neighbours of the vertices that it owns.

    Raises DataError when the data set cannot be used.
    """

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        data = JobData(brief, process)
        data.batch(0, 0)  # a rehearsal
        self._structure = data.dataset.structure
        self._plan = data.plan
        self._hop: int = brief.settings["hop"]

    @override
    def run(self, iteration: int, inputs: Inputs) -> Payloads:
        """Return ``source`` and ``destination`` ids of the sampled edges, int64."""
        payloads: Payloads = {}
        count = 0
        brief = self._brief
        ends = zip(brief.inputs, brief.outputs, strict=True)

        fanout = self._plan.hop_fanout(self._hop)
        for sampler, (sender, output) in enumerate(ends):
            payload = inputs[sender.edge]
            frontier = tensor(payload, "frontier", sender)
            stream = self._plan.stream(sampler, iteration)
            try:
                source, destination = sample_neighbours(
                    self._structure,
                    frontier,
                    fanout=fanout,
                    stream=stream,
                    hop=self._hop,
                )
            except ValueError as error:
                raise NodeMisbehaved(f"{sender.peer}: {error}") from error

            payloads[output.edge] = {
                "source": source,
                "destination": destination,
            }
            count += len(source)
        self._figures = {"edges": float(count)}
        return payloads


class _SamplerTask(TaskProgram):
    """State and methods that the tasks of one sampler process share."""

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        self._data = JobData(brief, process)
        self._dataset = self._data.dataset
        self._index: int = brief.settings["sampler"]
        self._growing: dict[int, GrowingBatch] = process.setdefault("growing", {})
        self._entropy = np.random.default_rng()

        # Before the start barrier every array is opened and every library loaded.
        batch = self._data.batch(self._index, 0)
        vertices = batch.vertices
        self._by_owner(vertices, "vertices")
        make_blocks(batch.sizes, batch.edges)
        self._dataset.look_at(vertices[:1])
        _ = self._dataset.labels

    def _by_owner(self, vertices: Ids, name: str) -> Payloads:
        """Ask every store for the vertices that it owns."""
        owners = self._dataset.owner[vertices]
        payloads: Payloads = {}
        for store, output in enumerate(self._brief.outputs):
            is_owner = owners == store
            owned_vertices = vertices[is_owner]
            payloads[output.edge] = {name: owned_vertices}
        return payloads


class SamplerHop(_SamplerTask):
    """One hop: merges the replies to the last one, sends out the new frontier.

    Raises DataError when the data set cannot be used.
    """

    @override
    def run(self, iteration: int, inputs: Inputs) -> Payloads:
        """Return ``frontier`` for every store: the ids that it owns, int64."""
        if self._brief.settings["hop"] == 1:
            seeds = self._data.seeds(self._index, iteration)
            batch = GrowingBatch(seeds)
            self._growing[iteration] = batch
        else:  # the stores' replies to the last hop
            batch = self._growing[iteration]
            add_replies(batch, self._brief, inputs)
        return self._by_owner(batch.frontier, "frontier")


class SamplerFetch(_SamplerTask):
    """Merges the last hop and asks every store for the features it owns of S_0.

    It does not ask for those that a cache has.
    """

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        self._cache = self._data.cache(self._index, brief)

    @override
    def run(self, iteration: int, inputs: Inputs) -> Payloads:
        """Return ``vertices`` for every store: the ids that it owns, int64."""
        batch = self._growing[iteration]
        add_replies(batch, self._brief, inputs)
        return self._ask(batch.frontier)

    def _ask(self, vertices: Ids) -> Payloads:
        if self._cache is not None:
            hits = self._cache.look(vertices)
            vertices = vertices[~hits]
        return self._by_owner(vertices, "vertices")


class Sampler(_SamplerTask):
    """Assembles the stores' rows and the sampled blocks into a mini-batch.

    Rows that a cache is to hold come from the batches that bring them; those that it
    begins with, from the data set, before the start.
    """

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        self._stores = [source for source in brief.inputs if not source.lag]
        self._grows = brief.job_settings["sampling"] == "multiround"
        self._cache = self._data.cache(self._index, brief)
        self._held = np.empty(0, np.int64)
        """Vertices whose rows it has, ascending."""
        if self._cache is not None:
            self._held = self._cache.held
        rows = self._dataset.gather(self._held)
        self._rows = rows.astype(self._data.feature_type, copy=False)

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        """Return the tensors of a `MiniBatch` for the worker."""
        if self._grows:
            growing_batch = self._growing.pop(iteration)
            batch = growing_batch.finish()
        else:
            batch = self._data.batch(self._index, iteration)
        make_blocks(batch.sizes, batch.edges)  # refuses edges that leave the sets

        vertices = batch.vertices
        shape = (len(vertices), self._dataset.feature_length)
        features = np.empty(shape, self._data.feature_type)
        # A row comes from the cache or its store; only then is the cache renewed.
        hits = self._take_cached(vertices, features)
        self._take_sent(
            vertices=vertices,
            features=features,
            missing=~hits,
            inputs=inputs,
        )
        self._renew_cache(vertices, features)

        self._note_figures(batch, hits)
        labels = self._dataset.labels[batch.seeds]
        mini_batch = MiniBatch.of(batch, features, labels)
        return mini_batch.tensors()

    def _note_figures(self, batch: SampledBatch, hits: Mask) -> None:
        input_vertices, *_ = batch.sizes
        edges = sum(len(source) for source, _ in batch.edges)
        self._figures = {
            "input_vertices": float(input_vertices),
            "edges": float(edges),
        }
        if self._cache is not None:
            count = hits.sum()
            self._figures["hits"] = float(count)

    def _take_cached(self, vertices: Ids, features: Array) -> Mask:
        """Fill in the rows that the cache has; return which they are."""
        if self._cache is None:
            return np.zeros(len(vertices), np.bool_)
        hits = self._cache.look(vertices)
        cached_vertices = vertices[hits]
        self._data.check_hits(
            name=self._brief.name,
            hits=cached_vertices,
            held=self._held,
        )
        places = np.searchsorted(self._held, cached_vertices)
        features[hits] = self._rows[places]
        return hits

    def _take_sent(
        self,
        vertices: Ids,
        features: Array,
        missing: Mask,
        inputs: Inputs,
    ) -> None:
        """Fill in the missing rows, of which every store has sent its own."""
        owners = self._dataset.owner[vertices]
        _, length = features.shape
        for store, sender in enumerate(self._stores):
            payload = inputs[sender.edge]
            rows = tensor(payload, "features", sender)

            is_owner = owners == store
            is_sent = is_owner & missing
            count = int(is_sent.sum())
            shape = (count, length)
            if rows.shape != shape or rows.dtype != features.dtype:
                raise NodeMisbehaved(
                    f"{sender.peer} sent {self._brief.name} features of {rows.shape} "
                    f"{rows.dtype}, not {shape} {features.dtype}"
                )

            sent_vertices = vertices[is_sent]
            self._compare(sender, sent_vertices, rows)
            features[is_sent] = rows

    def _compare(self, sender: EdgeSpec, vertices: Ids, rows: Array) -> None:
        """Hold some rows of a store against the data set, read past that store."""
        count = len(rows)
        if count == 0:
            return
        sample = self._entropy.integers(count, size=LOOKED_AT)
        sampled_vertices = vertices[sample]
        features = self._dataset.look_at(sampled_vertices)
        features = features.astype(rows.dtype, copy=False)
        sampled_rows = rows[sample]
        if not np.array_equal(sampled_rows, features):
            raise NodeMisbehaved(
                f"{sender.peer} sent {self._brief.name} other features than the data "
                "set has of its vertices"
            )

    def _renew_cache(self, vertices: Ids, features: Array) -> None:
        """Hold the rows of what the cache has now, from before this batch or of it."""
        if self._cache is None:
            return
        cached_vertices = self._cache.held
        if cached_vertices is self._held:  # it makes a new array where it changes
            return
        _, length = features.shape
        shape = (len(cached_vertices), length)
        rows = np.empty(shape, features.dtype)

        is_kept = np.isin(cached_vertices, self._held, assume_unique=True)
        kept_vertices = cached_vertices[is_kept]
        old_places = np.searchsorted(self._held, kept_vertices)
        rows[is_kept] = self._rows[old_places]

        # The batch's vertices stand in the order of its first edges.
        is_new = ~is_kept
        new_vertices = cached_vertices[is_new]
        order = np.argsort(vertices)
        places_in_order = np.searchsorted(vertices, new_vertices, sorter=order)
        places = order[places_in_order]
        rows[is_new] = features[places]
        self._held = cached_vertices
        self._rows = rows


class Worker(Trainer):
    """One replica of the model; its parameters always come from the servers."""

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        self._servers = edges_to("parameter_server", brief.outputs)
        self._sources = edges_to("parameter_server", brief.inputs)
        count = len(self._servers)
        self._bounds = shard_bounds(len(self._parameters), count)
        self._shards: dict[int, tuple[int, int]] = {}
        for server, bounds in zip(self._servers, self._bounds, strict=True):
            self._shards[server.edge] = bounds

    @override
    def work(self, iteration: int, inputs: Inputs) -> Array:
        # The first parameters follow from the seed, or from a cut.
        if iteration > self._brief.first:
            name = version_name(iteration - 1)
            shards = zip(self._sources, self._bounds, strict=True)
            for source, bounds in shards:
                first, last = bounds
                shard = tensor(
                    payload=inputs[source.edge],
                    name=name,
                    sender=source,
                    shape=(last - first,),
                )
                self._parameters[first:last] = shard
        return self.gradient(iteration, inputs)

    @override
    def payload(self, output: EdgeSpec, iteration: int, made: Array) -> Payload:
        first, last = self._shards[output.edge]
        return {"gradient": made[first:last]}

    def restore(self, state: Mapping[str, Payload]) -> None:
        """Begin with the parameters that the servers had."""
        shards = zip(self._servers, self._bounds, strict=True)
        for server, (first, last) in shards:
            arrays = state[server.peer]
            self._parameters[first:last] = arrays["parameters"]


class Replica(Trainer):
    """A worker that holds and steps the parameters itself.

    The steps of an all-reduce in its process sum the gradients of all workers in place
    (`emu_nodes.all_reduce`). It steps with their mean before it goes on.
    """

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        self._optimizer = make_optimizer(brief.job_settings, self._parameters)
        self._sum = np.zeros_like(self._parameters)
        self._workers: int = brief.job_settings["workers"]
        self._summed = False

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        self._step()  # the sum of the iteration before is there by now
        # In place: the steps of the all-reduce sum up in this very array.
        self._sum[:] = self.gradient(iteration, inputs)
        if self._workers > 1:
            share_vector(
                process=self._process,
                task=self._brief.name,
                vector=self._sum,
                iteration=iteration,
            )
        self._summed = self._model is not None
        return {}

    def _step(self) -> None:
        if self._summed:
            mean = self._sum / self._workers
            self._optimizer.step(mean)
            self._summed = False

    def state(self, _iteration: int) -> Payload:
        """Return the parameters, and what the optimiser has of the past."""
        self._step()
        return self._optimizer.state()

    def restore(self, state: Mapping[str, Payload]) -> None:
        """Go on from the state of a replica, which all hold alike."""
        (arrays,) = state.values()
        self._optimizer.restore(arrays)

    @override
    def result(self) -> Payload:
        self._step()
        return {"parameters": self._parameters}


class ParameterServer(TaskProgram):
    """One shard of the parameters and its optimiser.

    Workers are summed in the order of the edges, which is their rank: floating-point
    sums depend on the order, and the weights must not depend on who came first. Raises
    DataError when the data set cannot be used.
    """

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        settings = brief.job_settings
        data = JobData(brief, process)
        flat = initial_parameters(settings, data.dataset)
        servers: int = settings["parameter_servers"]
        bounds = shard_bounds(len(flat), servers)
        server: int = brief.settings["server"]
        first, last = bounds[server]
        shard = flat[first:last]
        self._parameters = shard.copy()
        self._optimizer = make_optimizer(settings, self._parameters)

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        """Return the stepped ``parameters.<iteration>`` for every worker."""
        shape = self._parameters.shape
        gradients = []
        for worker in self._brief.inputs:
            gradient = tensor(
                payload=inputs[worker.edge],
                name="gradient",
                sender=worker,
                shape=shape,
            )
            gradients.append(gradient)

        mean = mean_gradient(gradients)
        self._optimizer.step(mean)  # in place, of this shard
        # One copy for all workers: the next step changes the shard in place while
        # slow connections may still be sending this version.
        name = version_name(iteration)
        return {name: self._parameters.copy()}

    def state(self, _iteration: int) -> Payload:
        """Return this server's parameters, and what its optimiser has of the past."""
        return self._optimizer.state()

    def restore(self, state: Mapping[str, Payload]) -> None:
        """Go on from its own state."""
        arrays = state[self._brief.name]
        self._optimizer.restore(arrays)

    @override
    def result(self) -> Payload:
        """Return this server's ``parameters``."""
        return {"parameters": self._parameters}
