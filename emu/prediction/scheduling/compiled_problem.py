"""A job on a cluster as flat arrays: what does not change while a schedule runs.

`JobArrays` is made once per job and cluster, `Layout` once per placement; the second by
the core, because a placement search makes ten thousands of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.prediction.core import ffi, lib, new_room, pointer, room_in, structure, view
from emu.prediction.scheduling.policies import OwnRates, Policy
from emu.problem import Cluster, Job
from emu.problem.links import IN
from emu.problem.placement import slots_on, slowness

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def list_by_owner(
    owner: Ints, owners: int, rank: Ints | None = None
) -> tuple[Ints, Ints]:
    """Return ``start, entry`` of the positions in ``owner``, listed by owner, rank."""
    start = np.zeros(owners + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner, minlength=owners), out=start[1:])
    keys = (owner,) if rank is None else (rank, owner)
    return start, np.lexsort(keys).astype(np.int64)


def pools_by_name(job: Job, cluster: Cluster) -> tuple[Ints, Ints, Ints, Tuners]:
    """Return ``taken, freed, slots, tuners`` of `JobArrays`."""
    tuner_pools = [name for t in cluster.tuners for name in (t.pool, t.watched)]
    pools = {name for t in job.tasks for name in (t.takes, t.gives_back) if name}
    names = {name: i for i, name in enumerate(sorted(pools | {*tuner_pools}))}
    takes = [names.get(task.takes, -1) for task in job.tasks]
    frees = [names.get(task.gives_back, -1) for task in job.tasks]
    slots = np.full((len(cluster.machines), len(names)), -1, dtype=np.int64)
    for m, machine in enumerate(cluster.machines):
        for name, number in slots_on(machine, job).items():
            if name in names:
                slots[m, names[name]] = number
    path = np.zeros(
        (max((len(t.path) for t in cluster.tuners), default=0), len(cluster.tuners)),
        int,
    )
    for column, tuner in enumerate(cluster.tuners):
        path[: len(tuner.path), column] = tuner.path
    tuned, watched = (
        [t.machine * len(names) + names[getattr(t, name)] for t in cluster.tuners]
        for name in ("pool", "watched")
    )
    tuners = Tuners(
        np.array(tuned, np.int64),
        np.array(watched, np.int64),
        np.array([tuner.most for tuner in cluster.tuners], np.int64),
        np.array([tuner.period for tuner in cluster.tuners], np.float64),
        path.astype(np.int64),
    )
    return np.array(takes, np.int64), np.array(frees, np.int64), slots, tuners


def channels_of(job: Job) -> Ints:
    """Return the channel of every edge, -1 for none; empty without channels."""
    numbers = {name: i for i, name in enumerate(job.channels)}
    channel = [numbers.get(edge.channel, -1) for edge in job.edges if numbers]
    return np.array(channel, dtype=np.int64)


def coflows_of(job: Job, destination: Ints) -> tuple[Ints, int]:
    """Return the coflow of every edge, by task or by name, and how many there are."""
    numbers = {name: len(job.tasks) + i for i, name in enumerate(job.coflows)}
    coflow = destination.copy() if numbers else destination
    for position, edge in enumerate(job.edges if numbers else ()):
        coflow[position] = numbers.get(edge.coflow, edge.destination)
    return coflow, len(job.tasks) + len(numbers)


def owners_of(job: Job) -> Ints:
    """Return the job of every edge, by its place in `Job.job_names`."""
    places = {name: place for place, name in enumerate(job.job_names)}
    sources = (job.tasks[edge.source] for edge in job.edges)
    return np.array([places[task.job_name] for task in sources], dtype=np.int64)


class Tuners(NamedTuple):
    """The tuners of a cluster, as in `emu.problem.Tuner`; fields as in core.h."""

    tuned: Ints
    watched: Ints
    most: Ints
    period: Floats
    path: Ints


class Speeds(NamedTuple):
    """Shares of their speed that machines have over time, as in `SpeedSteps.flat`.

    Fields as in core.h; empty where no machine is ever slower.
    """

    start: Ints
    time: Floats
    share: Floats
    slowed: NDArray[np.bool_]


def _speeds(job: Job, cluster: Cluster) -> Speeds:
    if not cluster.speed_changes:
        none = np.empty(0)
        return Speeds(none.astype(np.int64), none, none, none.astype(np.bool_))
    # Gates take their time on a slow machine, too.
    with_speed = np.array([not task.gate for task in job.tasks], dtype=np.bool_)
    return Speeds(*cluster.speed_steps.flat, with_speed)


class Routes(NamedTuple):
    """The route between every two machines, as in `emu.problem.Links`."""

    nic: Ints
    zone: Ints
    route_of: Ints
    route_start: Ints
    route_port: Ints


def plain(values: Floats) -> Floats:
    """Return ``values`` as the core takes them: contiguous float64."""
    return np.ascontiguousarray(values, np.float64)


def own(values: Floats) -> Floats:
    """Return a copy, contiguous and writeable."""
    return np.array(values, np.float64, order="C")


class JobArrays(NamedTuple):
    """Job and cluster, any placement: fields as in core.h, with shapes for sizes.

    Empty are ``owner`` unless the policy divides ports among jobs, ``channel`` and
    ``latest`` where no edge has one, ``latency`` where no link has one, and
    ``slowness`` where all factors are 1; ``own`` answers for a rule of one's own.
    """

    iterations: int
    policy: int
    by_flow: bool
    rounds: Ints
    sent: Ints
    source: Ints
    destination: Ints
    lag: Ints
    owner: Ints
    rank: Ints
    control: NDArray[np.bool_]
    channel: Ints
    coflow: Ints
    latest: NDArray[np.bool_]
    out_start: Ints
    out_edge: Ints
    in_start: Ints
    in_edge: Ints
    coflow_start: Ints
    coflow_edge: Ints
    order: Ints
    routes: Routes
    capacity: Floats
    latency: Floats
    changes: Floats
    taken: Ints
    freed: Ints
    slots: Ints
    tuners: Tuners
    speeds: Speeds
    slowness: Floats
    own: OwnRates | None = None

    def check(self) -> None:
        """Raise what a rule of one's own raised while the core ran, if anything."""
        if self.own is not None:
            self.own.check()


class Layout:
    """A placed job, ready to be scheduled.

    Attributes
    ----------
    c
        The structure, which says what its fields are (core.h).
    rounds, capacity
        As in `JobArrays`.
    group
        Group of every edge, -1 where it delivers at once (one machine, or control).

    Raises
    ------
    ValueError
        When ``machine_of`` does not fit the job, or a flow has no port to go over.
    """

    def __init__(self, job: BoundJob, machine_of: Ints) -> None:
        of = job.arrays
        check_machines(machine_of, len(of.rounds), of.slowness.shape[1])
        memory = new_room(lib.room_of_layout(job.c))
        self.job, self.c = job, ffi.new("Layout *")
        self.memory = memory  # of all that the structure points to
        lib.lay_out(job.c, pointer(machine_of), room_in(memory), self.c)
        self.rounds, self.capacity = of.rounds, of.capacity
        self.group: Ints = view(memory, self.c.group, len(of.source), np.int64)
        if (view(memory, self.c.hop, self.c.hops, np.int64) < 0).any():
            raise ValueError("a flow crosses the NIC of a machine that has none")


def job_arrays(job: Job, cluster: Cluster, policy: Policy) -> JobArrays:
    """Return the arrays of ``job`` on ``cluster``."""
    source = np.array([edge.source for edge in job.edges], dtype=np.int64)
    destination = np.array([edge.destination for edge in job.edges], dtype=np.int64)
    links = cluster.links
    latest = np.array([edge.latest for edge in job.edges], dtype=np.bool_)
    takes, frees, slots, tuners = pools_by_name(job, cluster)
    coflow, coflows = coflows_of(job, destination)
    rank = np.array(job.edge_ranks, dtype=np.int64)
    return JobArrays(
        job.iterations,
        policy.code,
        policy.by_flow,
        np.array(job.rounds, dtype=np.int64),
        np.array(job.flow_counts, dtype=np.int64),
        source,
        destination,
        np.array([edge.lag for edge in job.edges], dtype=np.int64),
        owners_of(job) if policy.by_job else source[:0],
        rank,
        np.array(job.control, dtype=np.bool_),
        channels_of(job),
        coflow,
        latest if latest.any() else latest[:0],
        *list_by_owner(source, len(job.tasks)),
        *list_by_owner(destination, len(job.tasks)),
        *list_by_owner(coflow, coflows, rank),
        np.array(job.order, dtype=np.int64),
        Routes(*(getattr(links, name) for name in Routes._fields)),
        links.capacities,
        links.latencies,
        links.steps.rows,
        takes,
        frees,
        slots,
        tuners,
        _speeds(job, cluster),
        slowness(job, cluster),
        None if policy.rates is None else OwnRates(job, cluster, policy.rates),
    )


class BoundJob:
    """A job's arrays, checked, as the core has them.

    Attributes
    ----------
    c
        The structure `JobArrays` of core.h.

    Raises
    ------
    ValueError
        When an array has not the size, or an entry is not a number, that it must be.
    """

    def __init__(self, arrays: JobArrays) -> None:
        _check(arrays)
        routes = arrays.routes._asdict()
        counts = {
            "tasks": len(arrays.rounds),
            "edges": len(arrays.source),
            "machines": arrays.slots.shape[0],
            "ports": len(arrays.capacity),
            "names": arrays.slots.shape[1],
            "jobs": int(arrays.owner.max(initial=-1)) + 1,
            "change_count": len(arrays.changes),
            "coflows": len(arrays.coflow_start) - 1,
        }
        routes["zones"] = len(arrays.routes.route_of)
        routes["longest"] = int(np.diff(arrays.routes.route_start).max())
        tuners = arrays.tuners._asdict()
        tuners["rows"], tuners["count"] = arrays.tuners.path.shape
        speeds = {**arrays.speeds._asdict(), "count": len(arrays.speeds.time)}
        self.arrays = arrays
        parts: dict[str, Any] = {"routes": routes, "tuners": tuners, "speeds": speeds}
        parts["own"] = ffi.NULL
        if arrays.own is not None:
            parts |= {"own": ffi.new_handle(arrays.own), "ask": lib.ask_rule}
        self.c = structure("JobArrays", **{**arrays._asdict(), **parts}, **counts)


def lay_out(job: JobArrays, machine_of: Ints) -> Layout:
    """Return the layout of ``job`` with task j on machine ``machine_of[j]``.

    Raises ValueError as `BoundJob` and `Layout`.
    """
    return Layout(BoundJob(job), machine_of)


def check_machines(machine_of: Ints, tasks: int, machines: int) -> None:
    """Raise ValueError unless ``machine_of`` has a machine for every task."""
    if machine_of.dtype != np.int64 or machine_of.shape != (tasks,):
        raise ValueError(
            f"machine_of must be int64 of shape ({tasks},), "
            f"not {machine_of.dtype} of {machine_of.shape}"
        )
    if not ((machine_of >= 0) & (machine_of < machines)).all():
        raise ValueError(f"machine_of names a machine beyond {machines - 1}")


#: Of what every array has an entry, and what its entries are at least, and below.
_RANGES = {
    "rounds": ("tasks", 0, "counts"),
    "order": ("tasks", 0, "tasks"),
    "taken": ("tasks", -1, "names"),
    "freed": ("tasks", -1, "names"),
    "sent": ("edges", 0, "counts"),
    "source": ("edges", 0, "tasks"),
    "destination": ("edges", 0, "tasks"),
    "lag": ("edges", 0, "any"),
    "rank": ("edges", 0, "any"),
    "control": ("edges", 0, "any"),
    "owner": ("edges", 0, "tasks"),
    "channel": ("edges", -1, "edges"),
    "coflow": ("edges", 0, "coflows"),
    "coflow_edge": ("edges", 0, "edges"),
    "latest": ("edges", 0, "any"),
    "out_edge": ("edges", 0, "edges"),
    "in_edge": ("edges", 0, "edges"),
}
_OPTIONAL = frozenset({"owner", "channel", "latest"})


def _check(job: JobArrays) -> None:
    """Raise ValueError unless every index in ``job`` is within what it is one of.

    C looks nothing up a second time: an index beyond an array would go unnoticed.
    """
    machines, names = job.slots.shape
    sizes = {
        "tasks": len(job.rounds),
        "edges": len(job.source),
        "names": names,
        "coflows": len(job.coflow_start) - 1,
        "counts": job.iterations + 1,
        "any": np.iinfo(np.int64).max,
    }
    for name, (rows, least, end) in _RANGES.items():
        entries = getattr(job, name)
        if entries.shape != (sizes[rows],) and (entries.size or name not in _OPTIONAL):
            raise ValueError(f"{name} must have {sizes[rows]} entries")
        _within(name, entries, least, sizes[end])
    late = job.sent + job.lag
    _within("sent with lag", late[job.sent > 0], 0, job.iterations + 1)
    _starts("out_start", job.out_start, sizes["tasks"], job.out_edge)
    _starts("in_start", job.in_start, sizes["tasks"], job.in_edge)
    _starts("coflow_start", job.coflow_start, sizes["coflows"], job.coflow_edge)
    _check_routes(job.routes, machines, len(job.capacity))
    _check_numbers(job, machines)
    if (job.policy == lib.OWN) != (job.own is not None and job.by_flow):
        raise ValueError("a rule of one's own rates flows one by one, and answers")
    if job.tuners.path.shape[-1]:
        tuners, slots = job.tuners, job.slots
        if {len(column) for column in tuners[:-1]} != {tuners.path.shape[-1]}:
            raise ValueError("tuners must have a pool to tune and one to watch each")
        _within("tuned pool", tuners.tuned, 0, slots.size)
        _within("watched pool", tuners.watched, 0, slots.size)
        if (slots.ravel()[tuners.tuned] < 1).any() or not (tuners.period > 0).all():
            raise ValueError("a tuned pool must have slots, and a tuner a period")
    if job.speeds.time.size:
        _check_speeds(job.speeds, machines, sizes["tasks"])


def _check_speeds(speeds: Speeds, machines: int, tasks: int) -> None:
    _starts("start of speeds", speeds.start, machines, speeds.time)
    if speeds.share.shape != speeds.time.shape or len(speeds.slowed) != tasks:
        raise ValueError("speeds must have a share per step, and a mark per task")
    begins = speeds.time[speeds.start[:-1]]
    if (begins != 0).any() or (np.diff(speeds.start) < 1).any():
        raise ValueError("the first speed of a machine must be at 0")


def _check_routes(routes: Routes, machines: int, ports: int) -> None:
    if routes.zone.shape != (machines,) or routes.nic.shape != (machines, 2):
        raise ValueError(f"there are routes of other machines than the {machines}")
    count = len(routes.route_start) - 1
    _within("zone", routes.zone, 0, len(routes.route_of))
    _within("nic", routes.nic, -1, ports)
    _within("route_of", routes.route_of, 0, count)
    _within("route_port", routes.route_port, IN, ports)
    _starts("route_start", routes.route_start, count, routes.route_port)


def _check_numbers(job: JobArrays, machines: int) -> None:
    if job.changes.ndim != 2 or job.changes.shape[1] != 3:
        raise ValueError("a change is a time, a port and a capacity")
    if not (np.isfinite(job.changes).all() and (job.capacity > 0).all()):
        raise ValueError("capacities must be positive numbers")
    latency = job.latency
    if latency.shape not in {(0,), job.capacity.shape} or not (latency >= 0).all():
        raise ValueError("latencies must be of every port, and 0 or more")
    if (job.changes[:, 2] < 0).any():
        raise ValueError("a capacity that changes must not be negative")
    _within("port that changes", job.changes[:, 1], 0, len(job.capacity))
    if job.slowness.shape not in {(0, machines), (len(job.rounds), machines)}:
        raise ValueError(f"slowness must be of every task on {machines} machines")


def _within(name: str, entries: NDArray[Any], least: int, end: int) -> None:
    if entries.size and (entries.min() < least or entries.max() >= end):
        raise ValueError(f"{name} must be from {least} to {end - 1}")


def _starts(name: str, start: Ints, owners: int, entry: NDArray[Any]) -> None:
    if start.shape != (owners + 1,) or start[0] != 0 or start[-1] != len(entry):
        raise ValueError(f"{name} must begin at 0 and end with its entries")
    if (start[1:] < start[:-1]).any():
        raise ValueError(f"{name} must not decrease")
