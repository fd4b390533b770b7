"""Key ``cache`` of systems whose samplers pull features, and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypedDict

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer
from typing_extensions import override

from emu.errors import InfeasiblePlacement, ScenarioError
from emu.problem import Cluster, Job, Machine, Schedule, Task
from emu.problem.fields.cluster_section import ClusterSection
from emu.problem.fields.quantities import Count, Multiple, Size
from emu.problem.fields.section import Section
from emu.systems import JobSettings, Keys, Problems, Settings
from emu.systems.setup import Transfer, ghost_features
from emu.systems.training_section import TrainingSection, feature_bytes, lacking_memory
from emu.units import SIZE

if TYPE_CHECKING:
    from emu.graph_data import CachePlan, Dataset

#: `emu.graph_data.caches.HOT`, which takes 60 ms to import.
HOT = "hot"
#: Bytes of a vertex's number beside its row.
_ID_BYTES = 8
#: Cause of a `Transfer`, a plural.
CACHED = "cached rows"


class CacheSection(Section):
    """Rows of features that a machine keeps, of those that others own."""

    policy: Literal["degree", "vip", "lru", "window", "hot"]
    """``degree``: of the vertices with the most neighbours; ``vip``: of those that its
    samplers are likely to meet; both are sent before time 0. ``lru``: those used last;
    ``window``: those that the next batches need, nearest first, then the newest;
    ``hot``: those that a window of batches needs most often, sent a window ahead; these
    by sampler, which share the size evenly."""
    size: Size | None = None
    """Memory of each machine for rows; 8 bytes per row come on top. This, or
    ``share``."""
    share: Annotated[Multiple, Field(gt=0)] | None = None
    """Rows of each machine, as a share of what a store owns on average: 50 %, or
    0.5, of 1,000 vertices on 4 machines are 125."""
    window: Count | None = None
    """Batches that ``window`` looks ahead, or that ``hot`` has equal rows for."""


class CachedSection(TrainingSection):
    """A job whose samplers pull the features of their batches from stores."""

    asks: ClassVar[bool] = False
    """True where samplers ask the owners of rows for those that they lack. Otherwise
    stores know by themselves what a sampler has drawn."""

    cache: CacheSection | None = None
    """Rows that every machine keeps of those that others own, which they do not send
    again; whose rows are others' is decided by where a sampler stands. Searches for a
    placement take sampler s for one beside store s * stores // samplers."""

    @model_serializer(mode="wrap")
    def _leave_default_out(self, dump: SerializerFunctionWrapHandler) -> Keys:
        """Return the keys, without a cache that is only the system's default.

        Read again it would count as stated, also for other systems and one machine.
        """
        keys: Keys = dump(self)
        is_stated = "cache" in self.model_fields_set
        if self.cache is not None and not is_stated:
            keys.pop("cache", None)
        return keys

    @property
    def cache_keys(self) -> Keys:
        """The key as a file states it, none where it does not."""
        # A system's own default is no wish of the user: other systems do without.
        if "cache" not in self.model_fields_set:
            return {}
        return self.model_dump(
            mode="json",
            exclude_none=True,
            include={"cache"},
        )

    @override
    def precomputed(self, settings: JobSettings, iterations: int) -> dict[str, float]:
        return count_precomputed(settings, iterations)

    @property
    @override
    def unprofiled(self) -> str:
        if self.cache is None:
            return ""
        return "a profile knows no job.cache, write job.times instead"

    def cache_of(self, stores: int) -> CacheSection | None:
        """Return the cache beside so many stores; of one store only a stated one.

        Where a system has a cache by default, one machine still does without.
        """
        is_stated = "cache" in self.model_fields_set
        if is_stated or stores > 1:
            return self.cache
        return None

    def cache_settings(self, stores: int, samplers: int) -> Settings:
        """Return the settings of node programs that follow from ``cache``, if any."""
        cache = self.cache_of(stores)
        if cache is None:
            return {}

        # Before placement: samplers are spread over the stores in their order.
        homes = [sampler * stores // samplers for sampler in range(samplers)]
        return {
            "cache": {
                "policy": cache.policy,
                "size": cache.size or 0.0,
                "share": cache.share or 0.0,
                "window": cache.window or 0,
                "homes": homes,
                # As `settle_caches` has it: settings that it leaves as they are need no
                # second count of what is sent.
                "first": 0,
            }
        }

    @override
    def problems(self, cluster: ClusterSection) -> Problems:
        yield from super().problems(cluster)
        if self.cache is None:
            return

        policy = self.cache.policy
        window = self.cache.window
        owners = {*self.owners(cluster.names)}
        stores = len(owners)
        # All but one's own; a machine that owns none has rows of all. On one machine
        # alone a cache has nothing to keep, by share as by size.
        other_owners = stores
        if stores > 1 and owners.issuperset(self.ranks(cluster.names)):
            other_owners = stores - 1
        problem = ""
        if self.cache_of(stores) is not None:
            problem = _size_problem(self.cache, other_owners)
        if problem:
            yield ("job", "cache"), problem
        if policy == HOT and not self.asks:
            problem = "hot rows are asked for, as in rapid_gnn: write another policy"
            yield ("job", "cache", "policy"), problem
        looks_ahead = policy in ("window", HOT)
        if looks_ahead and window is None:
            problem = f"{policy} looks ahead: write for example window: 16"
            yield ("job", "cache", "window"), problem
        elif window is not None and not looks_ahead:
            problem = f"found a window for {policy}, which looks at none: remove it"
            yield ("job", "cache", "window"), problem
        # Of epochs the length is known only with the data set: `reserve` looks then.
        elif policy != HOT and (problem := _beyond(window, self.iterations)):
            yield ("job", "cache", "window"), problem

    def reserve(self, job: Job, cluster: Cluster) -> Job:
        """Return the job with the memory of caches among what graph stores demand.

        On machines without a store `leave_room` keeps it free. Raises ScenarioError
        where a cache holds no row or more than a machine, or looks beyond the job;
        DataError where the data set is missing or damaged.
        """
        if self.cache is None or "cache" not in job.settings:
            return job
        from emu.graph_data import CachePlan, open_for  # noqa: PLC0415 - 60 ms

        problem = _beyond(self.cache.window, job.iterations)
        if self.cache.policy != HOT and problem:
            raise ScenarioError(problem, key="job.cache.window")
        dataset = open_for(job.settings)
        row = feature_bytes(job.settings) * dataset.feature_length
        plan = CachePlan.from_settings(job.settings, dataset)
        assert plan is not None  # noqa: S101 - for mypy
        least = _least_rows(plan)
        size = cache_bytes(job.settings, dataset)
        key = "job.cache.share" if self.cache.share else "job.cache.size"
        if plan.rows < least:
            needs = SIZE.format(least * row)
            if self.cache.share:
                share = least * dataset.parts / dataset.vertices
                needs = f"{share:.2g}"
            problem = f"holds {plan.rows} rows for {least} samplers, write {needs}"
            raise ScenarioError(f"{problem} or more", key=key)

        def check_room(machine: str, needs: float) -> None:
            lacking = lacking_memory(cluster, machine, needs)
            if lacking > 0:
                problem = (
                    f"{plan.rows:,} rows with their numbers are {SIZE.format(size)}, "
                    f"{SIZE.format(lacking)} more than {machine} has room for"
                )
                raise ScenarioError(problem, key=key)

        def reserve(task: Task) -> Task:
            if task.kind != "graph_store" or task.pinned is None:
                return task
            needs = size + task.demands.get("memory", 0.0)
            check_room(task.pinned, needs)
            demands = {**task.demands, "memory": needs}
            return replace(task, demands=demands)

        # Placement keeps that free (`leave_room`): here it is only whether it can.
        for machine in _without_store(job.tasks, cluster):
            check_room(machine, size)
        tasks = map(reserve, job.tasks)
        return replace(job, tasks=tuple(tasks))


def _least_rows(plan: CachePlan) -> int:
    """Return how many rows a cache has to hold at least."""
    from emu.graph_data.caches import FIXED  # noqa: PLC0415 - 60 ms

    # Fixed rows are a machine's; others are by sampler, and each needs one row.
    if plan.policy in FIXED:
        return 1
    return max(plan.homes.count(home) for home in plan.homes)


def _size_problem(cache: CacheSection, other_owners: int) -> str:
    """Return what is wrong with the size of caches of rows of so many, if any."""
    if cache.size is None and cache.share is None:
        return "found neither of size and share, write one of them"
    if cache.size is not None and cache.share is not None:
        return "found both of size and share, write one of them"
    if cache.share is None:
        return ""
    if cache.share > other_owners:
        problem = f"found share {cache.share:g}, machines beside one's own have "
        return f"{problem}{other_owners}: write at most that, or cache: null"
    return ""


def _beyond(window: int | None, iterations: int | None) -> str:
    """Return what is wrong with a window of a job of so many iterations, if any."""
    if window is None or iterations is None:
        return ""
    if window <= iterations:
        return ""
    return f"found {window} for a job of {iterations} batches: write {iterations}"


def _without_store(tasks: Sequence[Task], cluster: Cluster) -> list[str]:
    """Return the machines on which samplers of a job may stand, and no store does."""
    stores = {task.pinned for task in tasks if task.kind == "graph_store"}
    pins = {task.pinned for task in tasks if task.kind == "sampler"}
    # A sampler that can move may come to any machine, so each is counted.
    may_move = None in pins
    machines = []
    for machine in cluster.machines:
        name = machine.name
        may_come = may_move or name in pins
        if may_come and name not in stores:
            machines.append(name)
    return machines


def leave_room(
    job: Job,
    cluster: Cluster,
    places: Mapping[str, str] | None = None,
) -> Cluster:
    """Return the cluster without the memory of caches on machines that own no part.

    Where a store is, its demands have it (`CachedSection.reserve`). ``places``: machine
    of every task; without it samplers may stand on any. Raises InfeasiblePlacement
    where that is more than there is; DataError where the data set is missing, damaged.
    """
    from emu.graph_data import open_for  # noqa: PLC0415 - 60 ms

    cache_sizes = dict[str, float]()
    for name in job.job_names:
        settings = job.settings_of(name)
        if not isinstance(settings.get("cache"), Mapping):
            continue
        dataset = open_for(settings)
        size = cache_bytes(settings, dataset)
        tasks = [task for task in job.tasks if task.job_name == name]
        # Placed, every task stands somewhere, as if it were pinned there.
        if places is not None:
            tasks = [replace(task, pinned=places[task.name]) for task in tasks]
        for machine in _without_store(tasks, cluster):
            # Jobs have caches of their own: on one machine they add up.
            size_before = cache_sizes.get(machine, 0.0)
            cache_sizes[machine] = size_before + size
    if not cache_sizes:
        return cluster

    def keep_free(machine: Machine) -> Machine:
        resources = dict(machine.resources)
        # A machine that states no memory has no bound.
        size = cache_sizes.get(machine.name)
        if size is not None and "memory" in resources:
            resources["memory"] -= size
            lacking = -resources["memory"]
            if lacking > 0:
                problem = (
                    f"caches of jobs need {SIZE.format(lacking)} more memory than "
                    f"machine {machine.name} has left"
                )
                raise InfeasiblePlacement(
                    problem,
                    resource="memory",
                    shortfall=lacking,
                )
        return replace(machine, resources=resources)

    machines = map(keep_free, cluster.machines)
    return replace(cluster, machines=tuple(machines))


def cache_bytes(
    settings: JobSettings,
    dataset: Dataset,
    remote_rows: float = math.inf,
) -> float:
    """Return the bytes of the cache of a machine, with the numbers of its rows.

    ``remote_rows``: those that other machines own; it takes in no more.
    """
    from emu.graph_data import CachePlan  # noqa: PLC0415 - 60 ms

    plan = CachePlan.from_settings(settings, dataset)
    assert plan is not None  # noqa: S101 - for mypy
    row_bytes = feature_bytes(settings) * dataset.feature_length
    if plan.rows > remote_rows:
        return (row_bytes + _ID_BYTES) * remote_rows
    size: float = settings["cache"]["size"] or row_bytes * plan.rows
    return size + _ID_BYTES * plan.rows


def keeps_rows(job: Job) -> bool:
    """Return True where a job, or one of several, has caches of rows of others."""
    caches = [job.settings_of(name).get("cache") for name in job.job_names]
    # Of p3 it is the list of the machines that share a copy of all features.
    return any(isinstance(cache, Mapping) for cache in caches)


def settle_caches(
    job: Job,
    machine_of: Mapping[str, str],
    first: int = 0,
) -> Job:
    """Return a job whose caches are of the machines on which its samplers stand.

    ``machine_of``: task -> machine; ``first``: iterations that are done, of the whole
    job that this ends. Several jobs are settled each by itself.
    """
    if not keeps_rows(job):
        return job
    by_name = {}
    for name in job.job_names:
        settings = job.settings_of(name)
        if isinstance(settings.get("cache"), Mapping):
            tasks = [task for task in job.tasks if task.job_name == name]
            homes = _homes(tasks, machine_of)
            cache = {**settings["cache"], "homes": homes, "first": first}
            settings = {**settings, "cache": cache}
        by_name[name] = settings

    # Of several jobs each has its settings below this key.
    if "jobs" in job.settings:
        return replace(job, settings={**job.settings, "jobs": by_name})
    (settings,) = by_name.values()
    return replace(job, settings=settings)


def _homes(tasks: Sequence[Task], machine_of: Mapping[str, str]) -> list[int]:
    """Return per sampler the number of the store on its machine.

    Machines without one have numbers behind those of all stores.
    """
    places: dict[str, int] = {}
    for task in tasks:
        if task.kind == "graph_store":
            machine = machine_of[task.name]
            places[machine] = len(places)
    samplers = [task.name for task in tasks if task.kind == "sampler"]
    machines = [machine_of[sampler] for sampler in samplers]
    for machine in machines:
        # Samplers of one machine share its cache.
        places.setdefault(machine, len(places))
    return [places[machine] for machine in machines]


def count_precomputed(settings: JobSettings, iterations: int) -> dict[str, float]:
    """Return operation -> count of what a cache has to know before time 0.

    Policy ``hot`` draws the batches of its first window, ``vip`` goes over all edges
    once per hop. Degrees are there, and the others begin empty.
    """
    from emu.graph_data import BatchPlan, CachePlan, count_samples, open_for  # noqa: PLC0415

    dataset = open_for(settings)
    cache = CachePlan.from_settings(settings, dataset)
    if cache is None:
        return {}

    plan = BatchPlan.from_settings(settings)
    if cache.policy == "vip":
        edges = len(plan.fanouts) * dataset.edges
        return {"aggregate": float(edges)}
    if cache.policy != HOT:
        return {}

    window = min(settings["cache"]["window"], iterations)
    counts = count_samples(dataset, plan, window, None)
    drawn_edges = [sum(batch.edges for batch in batches) for batches in counts]
    most_edges = max(drawn_edges)
    return {"sample": float(most_edges)}


def list_fills(job: Job) -> Iterator[Transfer]:
    """Yield the rows that caches hold at time 0, from their owners."""
    from emu.graph_data import BatchPlan, CachePlan, choose_rows, open_for  # noqa: PLC0415
    from emu.graph_data.caches import FIXED, kept_batches, open_cache  # noqa: PLC0415

    dataset = open_for(job.settings)
    settings = job.settings
    cache = CachePlan.from_settings(settings, dataset)
    # Other policies begin empty, and fill by what samplers fetch.
    if cache is None or cache.policy not in (*FIXED, HOT):
        return
    plan = BatchPlan.from_settings(settings)
    row = dataset.feature_length * feature_bytes(settings)
    stores = [task.name for task in job.tasks if task.kind == "graph_store"]
    samplers = [task.name for task in job.tasks if task.kind == "sampler"]
    if cache.policy == HOT:
        owner = np.asarray(dataset.owner)
        # Of the whole job, where this is what is left of it after a restart.
        batches = settings["cache"]["first"] + job.iterations
        for number, sampler in enumerate(samplers):
            opened = open_cache(
                dataset,
                plan,
                cache,
                sampler=number,
                first=0,
                batches=batches,
                draw=kept_batches(dataset, plan, number),
            )
            held = opened.held
            owners = owner[held]
            counts = np.bincount(owners, minlength=len(stores))
            for store, count in zip(stores, counts.tolist(), strict=True):
                yield Transfer(CACHED, store, sampler, size=row * count)
        return

    readers = stores
    for sampler, home in zip(samplers, cache.homes, strict=True):
        # The first on a machine without a store reads for all of it.
        if home == len(readers):
            readers.append(sampler)

    reads = []
    for home in range(len(readers)):
        rows = choose_rows(dataset, plan, cache, home)
        reads.append(rows)
    yield from ghost_features(readers, reads, dataset.owner, row, cause=CACHED)


class CacheFigures(TypedDict):
    """``cache`` of result.json: rows of others in real bytes."""

    policy: str
    rows: int
    """Rows that a cache holds."""
    hits: int
    misses: int
    hit_rate: float
    bytes_saved: int
    empty_messages: int
    """Messages of stores that had no row to send."""


def cache_figures(schedule: Schedule) -> dict[str, CacheFigures]:
    """Return ``cache`` of result.json: hits and misses of others' rows, real bytes."""
    job = schedule.problem.job
    if "cache" not in job.settings:
        return {}
    from emu.graph_data import CachePlan, count_job, open_for  # noqa: PLC0415 - 60 ms

    dataset = open_for(job.settings)
    cache = CachePlan.from_settings(job.settings, dataset)
    assert cache is not None  # noqa: S101 - for mypy
    first = job.settings["cache"]["first"]
    counts = count_job(job.settings, dataset, first + job.iterations)
    hits = 0
    misses = 0
    empty = 0
    for home, batches in zip(cache.homes, counts, strict=True):
        # Batches before a cut are counted to know what the cache held, not as hits.
        for batch in batches[first:]:
            hits += sum(batch.hits)
            for store in range(dataset.parts):
                # What a store sends on its own machine crosses no link: it is no miss.
                if store == home:
                    continue
                rows = batch.sent(store) + batch.sent_ahead(store)
                misses += rows
                if not rows:
                    empty += 1

    row = dataset.feature_length * feature_bytes(job.settings)
    looks = max(hits + misses, 1)
    return {
        "cache": {
            "policy": cache.policy,
            "rows": cache.rows,
            "hits": hits,
            "misses": misses,
            "hit_rate": hits / looks,
            "bytes_saved": hits * row,
            "empty_messages": empty,
        }
    }


def cache_lines(schedules: Mapping[str, Schedule], _policy: str) -> Iterator[str]:
    """Yield a line on the hits of caches, which are those of every schedule."""
    first = next(iter(schedules.values()))
    for figures in cache_figures(first).values():
        yield cache_line(figures)


def cache_line(figures: Mapping[str, Any]) -> str:
    """Return ``cache`` of result.json in a line."""
    size = SIZE.format(figures["bytes_saved"])
    return (
        f"caches of {figures['rows']:,} rows ({figures['policy']}): "
        f"{figures['hits']:,} hits, {figures['misses']:,} misses of rows that others "
        f"own ({figures['hit_rate']:.1%}), {size} saved, "
        f"{figures['empty_messages']:,} messages without a row"
    )
