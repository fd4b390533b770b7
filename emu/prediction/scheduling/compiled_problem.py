"""A job on a cluster as flat arrays: what does not change while a schedule runs.

`JobArrays` is made once per job and cluster, `Layout` once per placement; the second by
the core, because a placement search makes ten thousands of them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar

import numpy as np

from emu.array_types import Array, Floats, Ints
from emu.prediction.core import ffi, lib, new_room, pointer, room_in, structure, view
from emu.prediction.rate_policies import RATE_POLICIES, Policy
from emu.prediction.scheduling.policies import OwnRates
from emu.problem import Cluster, Job, Problem
from emu.problem.links import IN
from emu.problem.placement import slots_on, slowness

Made = TypeVar("Made")


def plain(values: Floats) -> Floats:
    """Return ``values`` as the core takes them: contiguous float64."""
    return np.ascontiguousarray(values, np.float64)


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, np.int64)


class JobArrays(SimpleNamespace):
    """Job and cluster, any placement: fields as in core.h, with shapes for sizes.

    Empty are ``owner`` unless the policy divides ports among jobs, ``channel`` and
    ``latest`` where no edge has one, ``latency`` where no link has one, and
    ``slowness`` where all factors are 1; ``own`` answers for a rule of one's own.
    ``core`` is the structure.

    Raises ValueError when an array has not the size, or an entry is not a number, that
    it must be.
    """

    def __init__(self, *, own: OwnRates | None, **fields: Any) -> None:
        super().__init__(own=own, **fields)
        _check(self)
        machines, pool_names = self.slots.shape
        last_owner = int(self.owner.max(initial=-1))
        zones = len(self.routes["route_of"])
        route_lengths = np.diff(self.routes["route_start"])
        quota_rows, tuner_count = self.tuners["path"].shape

        fields |= {
            "tasks": len(self.rounds),
            "edges": len(self.source),
            "machines": machines,
            "ports": len(self.capacity),
            "names": pool_names,
            "jobs": last_owner + 1,
            "change_count": len(self.changes),
            "coflows": len(self.coflow_start) - 1,
            "routes": {
                **self.routes,
                "zones": zones,
                "longest": int(route_lengths.max()),
            },
            "tuners": {
                **self.tuners,
                "rows": quota_rows,
                "count": tuner_count,
            },
            "speeds": {
                **self.speeds,
                "count": len(self.speeds["time"]),
            },
        }

        if own is not None:
            # `structure` keeps the handle alive: else the core's would dangle.
            fields["own"] = ffi.new_handle(own)
            fields["ask"] = lib.ask_rule
        self.core = structure("JobArrays", **fields)

    def check(self) -> None:
        """Raise what a rule of one's own raised while the core ran, if anything."""
        if self.own is not None:
            self.own.check()


@dataclass(frozen=True)
class _KeptThing(Generic[Made]):
    """Something that was made, until one of its sources goes."""

    made: Made
    references: list[weakref.ref[Any]]
    """Weak ones of the sources: they tell when a source goes."""


class Kept(Generic[Made]):
    """Memory of what was made of some objects while these live, the newest few.

    Objects are the same if they are one: to compare two jobs takes as long as to make
    their arrays.
    """

    def __init__(self) -> None:
        self._things: dict[tuple[int, ...], _KeptThing[Made]] = {}

    def get(
        self, sources: Sequence[object], code: int, make: Callable[[], Made]
    ) -> Made:
        """Return what ``make`` made of ``sources`` and ``code``, now or before."""
        addresses = map(id, sources)
        key = (*addresses, code)
        if key in self._things:
            return self._things[key].made
        made = make()

        def forget(_: object) -> None:
            # Another object may get this address.
            self._things.pop(key, None)

        references = [weakref.ref(source, forget) for source in sources]
        if len(self._things) >= _MOST_KEPT:
            oldest = next(iter(self._things))
            self._things.pop(oldest, None)
        self._things[key] = _KeptThing(made, references)
        return made


#: Groups of flows per port from which max-min counts by clocks of ports, port_clocks.c:
#: all pairs of 49 machines. With fewer, clocks of groups are exact to the last bit.
PORT_CLOCKS_FROM = 48
#: More than there are rate policies, all of which one question may ask about.
_MOST_KEPT = 32
_jobs: Kept[JobArrays] = Kept()
_layouts: Kept[Layout] = Kept()


def rule_of(job: Job, policy: Policy) -> Policy:
    """Return the rule; of one by job, where there is one job, the one among flows.

    Rates are the same, but by job everything is counted at each event: that took an
    eighth of `emu explain`.
    """
    if policy.by_job and len(job.job_names) == 1:
        return RATE_POLICIES[policy.name.removesuffix("_by_job")]
    return policy


def job_arrays(job: Job, cluster: Cluster, policy: Policy) -> JobArrays:
    """Return the arrays of ``job`` on ``cluster``, those of last time if they live."""
    policy = rule_of(job, policy)

    def make() -> JobArrays:
        return _new_job_arrays(job, cluster, policy)

    if policy.rates is not None:  # a rule of one's own remembers what it was asked
        return make()
    sources = (job, cluster)
    return _jobs.get(sources, policy.code, make)


def placed_layout(
    problem: Problem,
    policy: Policy,
) -> Layout:
    """Return the layout of ``problem``, that of last time if it lives.

    Raises ValueError as `Layout`.
    """

    def make() -> Layout:
        arrays = job_arrays(problem.job, problem.cluster, policy)
        machine_of = np.array(problem.placement.machine_of, np.int64)
        return Layout(arrays, machine_of)

    if policy.rates is not None:
        return make()
    sources = (problem,)
    return _layouts.get(sources, policy.code, make)


def _new_job_arrays(job: Job, cluster: Cluster, policy: Policy) -> JobArrays:
    links = cluster.links
    routes = {
        "nic": links.nic,
        "zone": links.zone,
        "route_of": links.route_of,
        "route_start": links.route_start,
        "route_port": links.route_port,
    }
    own = None
    if policy.rates is not None:
        own = OwnRates(job, cluster, policy.rates)

    return JobArrays(
        iterations=job.iterations,
        policy=policy.code,
        port_clocks_from=PORT_CLOCKS_FROM,
        by_flow=policy.by_flow,
        rounds=_ints(job.rounds),
        order=_ints(job.order),
        **_edges(job, by_job=policy.by_job),
        routes=routes,
        capacity=links.capacities,
        latency=links.latencies,
        changes=links.steps.rows,
        **_pools(job, cluster),
        speeds=_speeds(job, cluster),
        slowness=slowness(job, cluster),
        own=own,
    )


def _numbered(names: Iterable[str], first: int = 0) -> dict[str, int]:
    return {name: number for number, name in enumerate(names, first)}


def _edges(job: Job, *, by_job: bool) -> dict[str, Array]:
    columns = job.columns
    tasks = len(job.tasks)
    source = columns.source
    destination = columns.destination
    rank = _ints(job.edge_ranks)

    # Flows to one task are a coflow, unless they name another.
    named_coflows = _numbered(job.coflows, first=tasks)
    coflow = destination
    if named_coflows:
        coflow = _ints(named_coflows.get(e.coflow, e.destination) for e in job.edges)
    coflows = tasks + len(named_coflows)
    return {
        "source": source,
        "destination": destination,
        "sent": _ints(job.flow_counts),
        "lag": columns.lag,
        "rank": rank,
        "control": np.array(job.control, dtype=np.bool_),
        "coflow": coflow,
        **_marks_of_edges(job, by_job=by_job),
        **_edges_by("out", source, tasks, source),
        **_edges_by("in", destination, tasks, destination),
        # By rank, since the flows of a coflow break ties so; the others keep the job's
        # order.
        **_edges_by("coflow", coflow, coflows, rank),
    }


def _marks_of_edges(job: Job, *, by_job: bool) -> dict[str, Array]:
    """Return what edges of few jobs have; empty where those of this job have none.

    An array that is empty is NULL to the core, which then looks nothing up.
    """
    owner = _ints(())
    # Only rules by job ask for owners: others find no array, and divide no port.
    if by_job:
        jobs = _numbered(job.job_names)
        sources = [job.tasks[edge.source] for edge in job.edges]
        owner = _ints(jobs[task.job_name] for task in sources)

    channel = _ints(())
    if job.channels:
        channels = _numbered(job.channels)
        channel = _ints(channels.get(edge.channel, -1) for edge in job.edges)

    latest = job.columns.latest
    if not latest.any():
        latest = latest[:0]
    return {
        "owner": owner,
        "channel": channel,
        "latest": latest,
    }


def _edges_by(name: str, owner: Ints, count: int, ranks: Ints) -> dict[str, Ints]:
    """Return the edges of every owner, one owner behind the other, and their starts."""
    edge_counts = np.bincount(owner, minlength=count)
    ends = np.cumsum(edge_counts)
    edges = np.lexsort((ranks, owner))
    return {
        f"{name}_start": np.append(0, ends),
        f"{name}_edge": edges.astype(np.int64),
    }


class _Pools(TypedDict):
    """Slots that tasks take on machines, and those who tune how many there are."""

    taken: Ints
    freed: Ints
    slots: Ints
    tuners: dict[str, Array]


def _pools(job: Job, cluster: Cluster) -> _Pools:
    names = set[str]()
    for tuner in cluster.tuners:
        names |= {tuner.pool, tuner.watched}
    for task in job.tasks:
        names |= {task.takes, task.gives_back}
    names.discard("")
    # Sorted: a set of names has another order in every process.
    numbers = _numbered(sorted(names))

    # -1 stands where a machine does not limit a pool.
    shape = (len(cluster.machines), len(numbers))
    slots = np.full(shape, -1, dtype=np.int64)
    for row, machine in zip(slots, cluster.machines, strict=True):
        limits = slots_on(machine, job)
        for name, count in limits.items():
            # A machine may limit pools that no task of this job uses.
            if name in numbers:
                row[numbers[name]] = count
    return {
        "taken": _ints(numbers.get(task.takes, -1) for task in job.tasks),
        "freed": _ints(numbers.get(task.gives_back, -1) for task in job.tasks),
        "slots": slots,
        "tuners": _tuners(cluster, numbers),
    }


def _tuners(cluster: Cluster, numbers: dict[str, int]) -> dict[str, Array]:
    tuners = cluster.tuners
    lengths = [len(tuner.path) for tuner in tuners]
    longest = max(lengths, default=0)
    # Quotas are 1 or more: a 0 ends the path of a tuner that has a shorter one.
    path = np.zeros((longest, len(tuners)), np.int64)
    for column, tuner in enumerate(tuners):
        path[: lengths[column], column] = tuner.path

    tuned = []
    watched = []
    for tuner in tuners:
        # The core numbers pools machine by machine, as the entries of `slots`.
        first_pool = tuner.machine * len(numbers)
        tuned.append(first_pool + numbers[tuner.pool])
        watched.append(first_pool + numbers[tuner.watched])
    periods = [tuner.period for tuner in tuners]
    return {
        "tuned": _ints(tuned),
        "watched": _ints(watched),
        "most": _ints(tuner.most for tuner in tuners),
        "period": np.array(periods, np.float64),
        "path": path,
    }


def _speeds(job: Job, cluster: Cluster) -> dict[str, Array]:
    """Return the shares of their speed that machines have; empty where it is all."""
    # Empty arrays are NULL to the core: a job on steady machines pays nothing for
    # these.
    if not cluster.speed_changes:
        return {
            "start": np.empty(0, np.int64),
            "time": np.empty(0),
            "share": np.empty(0),
            "slowed": np.empty(0, np.bool_),
        }

    start, time, share = cluster.speed_steps.flat
    # Gates take their time on a slow machine, too.
    is_slowed = [not task.gate for task in job.tasks]
    return {
        "start": start,
        "time": time,
        "share": share,
        "slowed": np.array(is_slowed, dtype=np.bool_),
    }


class Layout:
    """A placed job, ready to be scheduled: task j on machine ``machine_of[j]``.

    Raises ValueError when ``machine_of`` does not fit the job, or a flow has no port to
    go over.

    Attributes
    ----------
    c
        The structure, which says what its fields are (core.h).
    group
        Group of every edge, -1 where it delivers at once (one machine, or control).
    """

    def __init__(self, job: JobArrays, machine_of: Ints) -> None:
        _, machines = job.slowness.shape
        check_machines(machine_of, len(job.rounds), machines)
        self.job = job
        self.c = ffi.new("Layout *")
        #: Holds all that the structure points to.
        size = lib.room_of_layout(job.core)
        self.memory = new_room(size)
        room = room_in(self.memory)
        lib.lay_out(job.core, pointer(machine_of), room, self.c)

        #: Bytes of room that a state of it takes.
        self.state_room: int = lib.room_of_state(self.c)
        edges = len(job.source)
        self.group: Ints = view(self.memory, self.c.group, edges, np.int64)
        hops = view(self.memory, self.c.hop, self.c.hops, np.int64)
        # The core writes the -1 of a missing NIC into the route, since C raises
        # nothing.
        if (hops < 0).any():
            raise ValueError("a flow crosses the NIC of a machine that has none")


def check_machines(machine_of: Ints, tasks: int, machines: int) -> None:
    """Raise ValueError unless ``machine_of`` has a machine for every task."""
    if machine_of.dtype != np.int64 or machine_of.shape != (tasks,):
        raise ValueError(
            f"machine_of must be int64 of shape ({tasks},), "
            f"not {machine_of.dtype} of {machine_of.shape}"
        )
    is_known = (machine_of >= 0) & (machine_of < machines)
    if not is_known.all():
        raise ValueError(f"machine_of names a machine beyond {machines - 1}")


class _Range(NamedTuple):
    """Entries that an array may have."""

    rows: str
    """Things of which each has an entry; empty where others decide the number."""
    least: int
    end: str
    """Things that an entry is one of."""


def _read_ranges(table: str) -> dict[str, _Range]:
    ranges = {}
    for line in table.splitlines():
        name, rows, least, end = line.split()
        ranges[name] = _Range(
            rows=rows.strip("-"),
            least=int(least),
            end=end,
        )
    return ranges


#: By array: the things that it has an entry for, the least and the end of entries.
_RANGES = _read_ranges(
    f"""\
rounds       tasks         0 counts
order        tasks         0 tasks
taken        tasks        -1 names
freed        tasks        -1 names
sent         edges         0 counts
source       edges         0 tasks
destination  edges         0 tasks
lag          edges         0 any
rank         edges         0 any
control      edges         0 any
owner        edges         0 tasks
channel      edges        -1 edges
coflow       edges         0 coflows
coflow_edge  edges         0 edges
latest       edges         0 any
out_edge     edges         0 edges
in_edge      edges         0 edges
zone         machines      0 zones
nic          -            -1 ports
route_of     -             0 routes
route_port   -         {IN:5} ports
tuned        tuners        0 slots
watched      tuners        0 slots
most         tuners        0 any
period       tuners        0 any
"""
)
_OPTIONAL = frozenset({"owner", "channel", "latest"})


def _check(job: JobArrays) -> None:
    """Raise ValueError unless every index in ``job`` is within what it is one of.

    C looks nothing up a second time: an index beyond an array would go unnoticed.
    """
    sizes = _count_things(job)
    arrays = {**vars(job), **job.routes, **job.tuners}
    for name, ranges in _RANGES.items():
        entries = arrays[name]
        is_left_out = name in _OPTIONAL and not entries.size
        if ranges.rows and not is_left_out:
            count = sizes[ranges.rows]
            if entries.shape != (count,):
                raise ValueError(f"{name} must have {count} entries")
        _check_range(name, entries, ranges.least, sizes[ranges.end])
    # The last flow of an edge serves iteration sent - 1 + lag, which must be there.
    is_sent = job.sent > 0
    turn_counts = job.sent[is_sent] + job.lag[is_sent]
    _check_range("sent with lag", turn_counts, 0, sizes["counts"])

    _check_lists(job, sizes)
    _check_numbers(job, sizes["machines"])
    answers = job.own is not None and job.by_flow
    if (job.policy == lib.OWN) != answers:
        raise ValueError("a rule of one's own rates flows one by one, and answers")


def _check_lists(job: JobArrays, sizes: dict[str, int]) -> None:
    """Raise ValueError unless lists of entries, owner by owner, hold all of them."""
    tasks = sizes["tasks"]
    _check_starts("out_start", job.out_start, tasks, job.out_edge)
    _check_starts("in_start", job.in_start, tasks, job.in_edge)
    coflows = sizes["coflows"]
    _check_starts("coflow_start", job.coflow_start, coflows, job.coflow_edge)

    routes = sizes["routes"]
    route_start = job.routes["route_start"]
    route_port = job.routes["route_port"]
    _check_starts("route_start", route_start, routes, route_port)

    machines = sizes["machines"]
    speed_start = job.speeds["start"]
    speed_time = job.speeds["time"]
    if speed_time.size:
        _check_starts("start", speed_start, machines, speed_time)


def _count_things(job: JobArrays) -> dict[str, int]:
    """Return how many there are of what `_RANGES` names."""
    machines, names = job.slots.shape
    return {
        "tasks": len(job.rounds),
        "edges": len(job.source),
        "machines": machines,
        "names": names,
        "slots": job.slots.size,
        "coflows": len(job.coflow_start) - 1,
        "counts": job.iterations + 1,
        "ports": len(job.capacity),
        "zones": len(job.routes["route_of"]),
        "routes": len(job.routes["route_start"]) - 1,
        "tuners": job.tuners["path"].shape[-1],
        "any": np.iinfo(np.int64).max,
    }


def _check_numbers(job: JobArrays, machines: int) -> None:
    if job.changes.ndim != 2 or job.changes.shape[1] != 3:
        raise ValueError("a change is a time, a port and a capacity")
    change_port = job.changes[:, 1]
    new_capacity = job.changes[:, 2]
    _check_range("port that changes", change_port, 0, len(job.capacity))

    nic = job.routes["nic"]
    latency_shapes = {(0,), job.capacity.shape}
    tasks = len(job.rounds)
    slowness_shapes = {(0, machines), (tasks, machines)}

    tuned_slots = job.slots.ravel()[job.tuners["tuned"]]
    period = job.tuners["period"]

    speed_start = job.speeds["start"]
    speed_time = job.speeds["time"]
    share = job.speeds["share"]
    first_times = speed_time[speed_start[:-1]]
    speed_counts = np.diff(speed_start)
    slowed_marks = len(job.speeds["slowed"])
    requirements = {
        "a NIC is of a machine": nic.shape == (machines, 2),
        "changes must be numbers": np.isfinite(job.changes).all(),
        # At time 0 every link carries something; only a change may cut one.
        "capacities must be positive numbers": (job.capacity > 0).all(),
        "a capacity must not be negative": (new_capacity >= 0).all(),
        "latencies must be of every port": job.latency.shape in latency_shapes,
        "latencies must be 0 or more": (job.latency >= 0).all(),
        "slowness is of every task": job.slowness.shape in slowness_shapes,
        "a tuned pool must have slots": (tuned_slots > 0).all(),
        "a tuner must have a period": (period > 0).all(),
        "a speed is of every step": share.shape == speed_time.shape,
        "a mark of speed is of every task": slowed_marks in {0, tasks},
        "the first speed of a machine must be at 0": (first_times == 0).all(),
        "a machine must have a speed": (speed_counts > 0).all(),
    }
    for text, holds in requirements.items():
        if not holds:
            raise ValueError(text)


def _check_range(name: str, entries: Array, least: int, end: int) -> None:
    if entries.size and (entries.min() < least or entries.max() >= end):
        raise ValueError(f"{name} must be from {least} to {end - 1}")


def _check_starts(name: str, start: Ints, owners: int, entry: Array) -> None:
    is_whole = start.shape == (owners + 1,) and start[0] == 0
    if not is_whole or start[-1] != len(entry):
        raise ValueError(f"{name} must begin at 0 and end with its entries")
    decreases = start[1:] < start[:-1]
    if decreases.any():
        raise ValueError(f"{name} must not decrease")
