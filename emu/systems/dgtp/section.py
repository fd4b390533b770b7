"""Section ``job`` of ``system: dgtp``, and its translation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field
from typing_extensions import override

from emu.graph_data import (
    BatchPlan,
    Dataset,
    count_job,
    count_samples,
    open_for,
)
from emu.problem import Cluster, Job, Realization
from emu.problem.fields.cluster_section import ClusterSection
from emu.problem.fields.quantities import Few, Name
from emu.problem.fields.section import Resources, Section
from emu.problem.workloads import (
    SampleCounts,
    shard_sizes,
)
from emu.problem.workloads.all_reduce import (
    all_reduce_edge_count,
    build_named_job,
)
from emu.problem.workloads.operations import Operations, count_layers
from emu.systems import (
    Edit,
    Floats,
    Keys,
    Names,
    PerDevice,
    Problems,
    Settings,
    Times,
    translation,
)
from emu.systems.device_memory import (
    ROWS,
    Parts,
    batch_bytes,
    most_of_batches,
    weight_bytes,
)
from emu.systems.dgtp.job import dgtp_edges, dgtp_tasks
from emu.systems.dgtp.volumes import count_servers, realize_volumes
from emu.systems.gpu_turns import GpuTurnsSection
from emu.systems.job_section import BuildContext
from emu.systems.stores_section import StoresSection
from emu.systems.training_section import (
    count_parameters,
    feature_bytes,
    number_bytes,
    repeat_times,
)
from emu.systems.translation import CommonJob, Translation


class PullingSection(GpuTurnsSection, StoresSection):
    """Jobs of stores, samplers and workers: their operations, times and bytes."""

    @override
    def count_operations(
        self,
        job: Job,
        context: BuildContext,
        volumes: Floats,
    ) -> Operations:
        """Return the operations of stores, samplers and workers.

        Stores collect the rows that they send, samplers those that their caches have in
        memory of the host. Who draws an edge is a sampler that has all structure, else
        the store that answers.
        """
        itemsize = number_bytes(job.settings)
        operations = Operations(job)
        operations.add_bytes(job, volumes, "graph_store")
        operations.add_gradients(job, volumes, itemsize, "parameter_server")
        _count_batches(job, operations)
        _count_steps(job, operations)
        bringing = [n for n, task in enumerate(job.tasks) if self.brings_rows(task)]
        _count_rows(job, operations, bringing)
        return operations

    @override
    def device_memory(
        self,
        job: Job,
        context: BuildContext,
    ) -> Mapping[str, Parts]:
        """Return that of workers, as much as the fullest of them, and of stores.

        A worker has one mini-batch at a time there; the next wait in memory of the
        host.
        """
        settings = job.settings
        dataset = open_for(settings)
        row = feature_bytes(settings) * dataset.feature_length
        parameters = count_parameters(settings, dataset)
        # Moments of the optimizer lie where the step is taken.
        servers = count_servers(job)
        worker_parts = {
            "weights": weight_bytes(settings, parameters, steps=not servers),
            "a mini-batch": _fullest_batch(job, dataset),
        }
        # Stores keep the rows of all vertices that they own.
        counts = np.bincount(dataset.owner, minlength=dataset.parts)

        parts: dict[str, Parts] = {}
        for task in job.tasks:
            if task.kind == "worker":
                parts[task.name] = worker_parts
            elif task.kind == "graph_store" and task.takes == "gpu":
                store = task.settings["store"]
                parts[task.name] = {ROWS: float(counts[store]) * row}
        return parts

    @override
    def realize_sampled(
        self,
        job: Job,
        times: Times,
        context: BuildContext,
        cluster: Cluster,
    ) -> Realization:
        dataset = open_for(job.settings)
        if self.has_stores_apart:
            self.check_parts(job.settings["parts"], dataset.vertices)
        return Realization(
            times=repeat_times(job, times),
            volumes=realize_volumes(job, dataset),
        )

    @override
    def stated_seconds(self, job: Job) -> Floats | None:
        return self.seconds_by_kind(job)


def _count_batches(job: Job, operations: Operations) -> None:
    """Add what follows from mini-batches: drawn edges, collected rows, layers."""
    settings = job.settings
    dataset = open_for(settings)
    counts = count_job(settings, dataset, job.iterations)
    length = dataset.feature_length
    row = feature_bytes(settings) * length
    samplers_per_worker = settings["samplers_per_worker"]

    for position, task in enumerate(job.tasks):
        place = task.settings
        if task.kind == "sampler":
            batches = counts[place["sampler"]]
            # Rows of a cache are collected like those of a store, from the same memory.
            hits = [row * sum(batch.hits) for batch in batches]
            operations.add(position, {"collect": hits})
            # Asked hop by hop, the stores draw the edges, and samplers none.
            if settings["sampling"] == "oneshot":
                edges = [batch.edges for batch in batches]
                operations.add(position, {"sample": edges})
        elif task.kind == "sampler_fetch":
            batches = counts[place["sampler"]]
            edges = [batch.edges for batch in batches]
            operations.add(position, {"sample": edges})
        elif task.kind == "graph_store_hop":
            edges = _count_answers(counts, place["store"], place["hop"] - 1)
            operations.add(position, {"sample": edges})
        elif task.kind == "worker":
            first = place["worker"] * samplers_per_worker
            end = first + samplers_per_worker
            for batches in counts[first:end]:
                layers = count_layers(
                    settings["model"],
                    length,
                    dataset.classes,
                    batches,
                )
                for number, layer in enumerate(layers):
                    operations.add(position, layer.forward)
                    # Features need no gradient: the first layer goes back faster.
                    backward = layer.backward(first=number == 0)
                    operations.add(position, backward)


def _count_answers(
    counts: Sequence[Sequence[SampleCounts]],
    store: int,
    hop: int,
) -> list[int]:
    """Return the edges that a store draws for a hop, of all samplers, by mini-batch."""
    totals = []
    for batches in zip(*counts, strict=True):
        edges = [batch.answered[hop][store] for batch in batches]
        totals.append(sum(edges))
    return totals


def _count_rows(
    job: Job,
    operations: Operations,
    workers: Sequence[int],
) -> None:
    """Add the bytes of rows that workers bring from memory of the host."""
    settings = job.settings
    dataset = open_for(settings)
    counts = count_job(settings, dataset, job.iterations)
    row = feature_bytes(settings) * dataset.feature_length
    samplers = settings["samplers_per_worker"]
    for position in workers:
        worker = job.tasks[position].settings["worker"]
        first = worker * samplers
        for batches in counts[first : first + samplers]:
            rows = [row * batch.inputs for batch in batches]
            operations.add(position, {"collect": rows})


def _count_steps(job: Job, operations: Operations) -> None:
    """Add the steps of parameter servers, each of its shard, or of workers."""
    dataset = open_for(job.settings)
    parameters = count_parameters(job.settings, dataset)
    servers = count_servers(job)
    shards = shard_sizes(parameters, servers) if servers else ()
    for position, task in enumerate(job.tasks):
        if task.kind == "parameter_server":
            server = task.settings["server"]
            operations.add(position, {"step": shards[server]})
        elif task.kind == "worker":
            stepped = 0 if servers else parameters
            operations.add(position, {"step": stepped})


def _fullest_batch(job: Job, dataset: Dataset) -> float:
    """Return the most bytes that a worker's mini-batch and its layers take."""
    settings = job.settings
    number = number_bytes(settings)
    row = feature_bytes(settings) * dataset.feature_length

    def size_of(batch: SampleCounts) -> float:
        return batch_bytes(batch, settings["model"], dataset.classes, row, number)

    plan = BatchPlan.from_settings(settings)
    # Called as for volumes, whose counts are kept by their arguments.
    counts = count_samples(dataset, plan, job.iterations, None)
    sizes = [list(map(size_of, batches)) for batches in counts]
    samplers = settings["samplers_per_worker"]
    # Samplers of a worker deliver one mini-batch together: their sizes add up.
    firsts = range(0, len(sizes), samplers)
    return max(most_of_batches(sizes[first : first + samplers]) for first in firsts)


class DemandsSection(Section):
    """Resources that one process of each kind needs."""

    graph_store: Resources = Resources()
    """Needs of a graph store."""
    sampler: Resources = Resources()
    """Needs of a sampler."""
    worker: Resources = Resources()
    """Needs of a worker; one ``gpu`` where machines have any, ``gpu: 0`` for none."""
    parameter_server: Resources = Resources()
    """Needs of a parameter server."""


class DgtpJobSection(PullingSection):
    """DGTP: stores -> samplers -> workers -> parameter servers -> workers."""

    system: Literal["dgtp"]
    """Kind of job."""
    partitioner: Literal["metis", "metis-dgl", "hash", "imported"] = "metis"
    """Ownership of vertices. ``metis``: few edges between parts of equal size;
    ``metis-dgl``: as dgl does (Python 3.11 only); ``imported``: as the graph came
    (DistDGL)."""
    workers: Few = 1
    """Workers of the job."""
    sync: Literal["parameter_server", "ring", "halving_doubling"] = "parameter_server"
    """Sum of gradients, by parameter servers or an all-reduce of the workers
    (``halving_doubling``: 2, 4, 8, ... of them)."""
    machines: tuple[Name, ...] | None = Field(default=None, min_length=1)
    """Machines that take part: a graph store on each, or on ``stores`` among them, and
    all other tasks. By default all, of which ``placement: best`` may leave some out."""
    ring: Literal["rank", "placed"] = "rank"
    """Order of the workers in ``sync: ring``, by number or ``placed``: with the fewest
    neighbours across a NIC or slow link. Searches judge by number."""
    parameter_servers: Few = 1
    """Parameters are sharded over them; not counted where workers sum."""
    demands: DemandsSection = DemandsSection()
    """Resources per process of each kind."""
    sampling: Literal["oneshot", "multiround"] = "oneshot"
    """``oneshot``: stores have all structure; ``multiround``: a request per hop."""

    traced: ClassVar[bool] = True
    grows_with: ClassVar[Names] = (
        "workers",
        "samplers_per_worker",
        "parameter_servers",
    )

    def settings(self, context: BuildContext) -> Settings:
        """Return the settings that every node program of the job gets."""
        stores = len(self.owners(context.machines))
        samplers = self.workers * self.samplers_per_worker
        return {
            **self.training_settings(context),
            **self.cache_settings(stores, samplers),
            "partitioner": self.partitioner,
            "sampler_batch_size": self.sampler_batch,
            "parts": stores,
            "workers": self.workers,
            "samplers_per_worker": self.samplers_per_worker,
            "parameter_servers": self.parameter_servers,
            "sampling": self.sampling,
        }

    @override
    def least_edges(self, machines: Sequence[str]) -> int:
        samplers = self.workers * self.samplers_per_worker
        # A question and an answer per hop, and the same for features.
        rounds = 1
        if self.sampling != "oneshot":
            rounds = 2 * (self.hops + 1)
        stores = len(self.owners(machines))
        fetches = (stores * rounds + 1) * samplers
        if self.sync == "parameter_server":
            return fetches + 2 * self.workers * self.parameter_servers
        return fetches + all_reduce_edge_count(self.workers, self.sync)

    @property
    @override
    def movable_on(self) -> Names | None:
        return self.machines

    @override
    def on_machines(self, names: Sequence[str], count: int) -> Self | None:
        """Return the job on these machines alone, which trains the same.

        Workers, samplers, servers and their times are the user's. Ownership of vertices
        is spread over fewer stores, so each needs more memory than the file states of
        one of ``count``. An imported ownership has as many parts as it came with.
        """
        if self.partitioner == "imported" and self.chosen_count is None:
            return None
        # With `stores` stated only these are chosen; other tasks may go anywhere.
        if self.stores is not None:
            return super().on_machines(names, count)
        if self.machines is not None:
            return None
        # All other tasks are confined to the machines of the stores as well.
        memory = self.memory_of_each(names, count)
        fewer = self.with_stores(names, memory)
        keys = {"machines": fewer.stores, "stores": None}
        return fewer.model_copy(update=keys)

    @override
    def machine_keys(self) -> Edit:
        keys = super().machine_keys()
        if self.machines is None:
            return keys
        return {"job.machines": [*self.machines], **self.memory_key, **keys}

    @property
    @override
    def rings_follow_placement(self) -> bool:
        return self.ring == "placed"

    @property
    @override
    def asks_for_gpus(self) -> str:
        if self.demands.worker.gpu is not None:
            return ""
        return "demands.worker.gpu"

    @override
    def on_gpus(self) -> Self:
        worker = self.demands.worker
        # `gpu: 0` is stated, too: whoever writes it wants none.
        if worker.gpu is None:
            worker = worker.model_copy(update={"gpu": 1.0})
        demands = self.demands.model_copy(update={"worker": worker})
        return self.model_copy(update={"demands": demands})

    @override
    def samplers(self, machines: Sequence[str]) -> int:
        return self.workers * self.samplers_per_worker

    @override
    def problems(self, cluster: ClusterSection) -> Problems:
        yield from super().problems(cluster)
        yield from self.rank_problems(cluster)
        for position, name in enumerate(self.owners(cluster.names)):
            takes_part = self.machines is None or name in self.machines
            if not takes_part:
                names = ", ".join(self.machines or ())
                problem = f"{name!r} takes no part, job.machines: {names}"
                yield ("job", "stores", position), problem

        # Its partner is at a distance of a power of 2 in every step.
        is_power_of_two = not self.workers & (self.workers - 1)
        if self.sync == "halving_doubling" and not is_power_of_two:
            problem = (
                f"halving and doubling needs 2, 4, 8, ... workers, found "
                f"{self.workers}: write ring"
            )
            yield ("job", "sync"), problem
        if self.ring == "placed" and self.sync != "ring":
            problem = f"sync is {self.sync}, which has no ring: write sync: ring"
            yield ("job", "ring"), problem

    @override
    def build(self, context: BuildContext) -> Job:
        owners = self.owners(context.machines)
        return build_named_job(
            tasks=dgtp_tasks(self, owners),
            edges=dgtp_edges(self, len(owners)),
            iterations=self.count_batches(context),
            settings=self.settings(context),
            window=context.window,
        )


def _read(job: DgtpJobSection, cluster: ClusterSection) -> Keys:
    """Return the values particular to dgtp: servers step, samplers are processes."""
    demands = {kind: amounts.amounts() for kind, amounts in job.demands}
    owners = job.owners(cluster.names)
    times = job.times.by_kind()
    ranks = job.ranks(cluster.names)
    # Where stores are on machines of their own, workers stand on the others.
    if job.has_stores_apart:
        # Where stores are on all machines, workers stand beside them.
        apart = tuple(name for name in ranks if name not in owners)
        ranks = apart or ranks
    worker = demands["worker"]
    sampler = demands["sampler"]
    # A replica is one process: a worker and its samplers, with what all of them need.
    samplers = job.samplers_per_worker
    replica = {}
    for name in worker | sampler:
        of_samplers = samplers * sampler.get(name, 0.0)
        replica[name] = worker.get(name, 0.0) + of_samplers

    machines = translation.roomy_machines(job, cluster, replica, job.workers, ranks)
    step: PerDevice = 0.0
    if job.sync == "parameter_server" and "parameter_server" in times:
        # Each server steps its shard, a replica the whole model.
        whole_step = times["parameter_server"]
        step = translation.scale_time(whole_step, job.parameter_servers)
    return {
        "workers": job.workers,
        "machines": machines,
        "stores": len(owners),
        "owners": job.store_keys,
        "by_hops": job.sampling == "multiround",
        "cache": job.cache_keys,
        "demands": {**demands, "replica": replica},
        "step": step,
    }


def _write(common: CommonJob) -> Keys:
    machines = common.stated or common.everywhere
    stores = common.stores_on(machines)
    common = common.spread(common.workers, stores)
    # Times that other systems do not have, as of a server's step, begin at nothing.
    times: dict[str, PerDevice] = {"graph_store": 0.0, "parameter_server": 0.0}
    times |= common.times_of("graph_store", "sampler", "worker", "parameter_server")
    # P3 asks by hops as well, but fetches no rows: its times lack that one.
    if common.by_hops:
        times["sampler_fetch"] = 0.0
        times |= common.times_of(*translation.HOPS, "sampler_fetch")

    return {
        "workers": common.workers,
        **_take_part(common),
        **common.owners,
        **common.cache,
        "partitioner": common.partitioner,
        "sampling": "multiround" if common.by_hops else "oneshot",
        **translation.write_common(common, times, "worker", "graph_store"),
    }


def _take_part(common: CommonJob) -> Keys:
    """Return the machines that the file states, with those of stores beside them."""
    owners = common.owners.get("stores", [])
    if common.stated is None or not isinstance(owners, list):
        return {}  # others than these may be chosen for stores
    names = {*common.stated, *owners}
    return {"machines": [name for name in common.everywhere if name in names]}


TRANSLATION = Translation(_read, _write)
