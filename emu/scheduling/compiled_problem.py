"""A job on a cluster as flat arrays: what does not change while a schedule runs.

`JobArrays` is made once per job and cluster, `Layout` once per placement; the second
is compiled, because a placement search makes ten thousands of them.

Flows that must share one rate form a *group*. Under ``oes`` and max-min these are all
flows over the same hops (one ordered pair of machines), under a policy that rates
flows one by one every edge is a group of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.problem.links import IN, OUT
from emu.problem.slots import slot_names, slots_on
from emu.problem.slowness import slowness
from emu.scheduling.compiled import compiled, inlined

if TYPE_CHECKING:
    from emu.problem import Cluster, Job
    from emu.scheduling.policies import Policy

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# A job as lists of numbers, where it takes more than to look a value up.


def listed_by_owner(owner: Ints, owners: int) -> tuple[Ints, Ints]:
    """Return ``start, entry`` of the positions in ``owner``, listed by owner."""
    start = np.zeros(owners + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner, minlength=owners), out=start[1:])
    return start, np.argsort(owner, kind="stable").astype(np.int64)


def topological(job: Job) -> Ints:
    """Return the tasks, each behind the sources of its in-edges without lag."""
    waiting = np.zeros(len(job.tasks), dtype=np.int64)
    followers: list[list[int]] = [[] for _ in job.tasks]
    for edge in job.edges:
        if edge.lag == 0:
            waiting[edge.destination] += 1
            followers[edge.source].append(edge.destination)
    order = [task for task, count in enumerate(waiting) if count == 0]
    for task in order:  # grows while it is walked
        for follower in followers[task]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                order.append(follower)
    return np.array(order, dtype=np.int64)


def pools_by_name(job: Job, cluster: Cluster) -> tuple[Ints, Ints, Ints]:
    """Return ``taken, freed, slots`` of `JobArrays`."""
    names = {name: i for i, name in enumerate(slot_names(job))}
    taken = [names.get(task.takes, -1) for task in job.tasks]
    freed = [names.get(task.gives_back, -1) for task in job.tasks]
    slots = np.full((len(cluster.machines), len(names)), -1, dtype=np.int64)
    for m, machine in enumerate(cluster.machines):
        for name, number in slots_on(machine, job).items():
            if name in names:
                slots[m, names[name]] = number
    return np.array(taken, np.int64), np.array(freed, np.int64), slots


def channels_of(job: Job) -> Ints:
    """Return the channel of every edge, -1 for none; empty without channels."""
    known = {name: i for i, name in enumerate(job.channels)}
    channel = [known.get(edge.channel, -1) for edge in job.edges if known]
    return np.array(channel, dtype=np.int64)


def owners_of(job: Job) -> Ints:
    """Return the job of every edge, by its place in `Job.job_names`."""
    places = {name: place for place, name in enumerate(job.job_names)}
    sources = (job.tasks[edge.source] for edge in job.edges)
    return np.array([places[task.job_name] for task in sources], dtype=np.int64)


# Routes as flat arrays: the ports that flows between two machines cross.


class Routes(NamedTuple):
    """The route between every two machines, as in `emu.problem.Links`."""

    nic: Ints
    zone: Ints
    route_of: Ints
    route_start: Ints
    route_port: Ints


@inlined
def route_between(routes: Routes, source: int, destination: int) -> tuple[int, int]:
    """Return where the route between two machines begins and ends in ``route_port``.

    Nowhere within a machine.
    """
    if source == destination:
        return 0, 0
    route = routes.route_of[routes.zone[source], routes.zone[destination]]
    return routes.route_start[route], routes.route_start[route + 1]


@inlined
def port_at(routes: Routes, place: int, source: int, destination: int) -> int:
    """Return the port at ``place`` of ``route_port`` between two machines."""
    port: int = routes.route_port[place]
    if port == OUT:
        port = routes.nic[source, 0]
    elif port == IN:
        port = routes.nic[destination, 1]
    return port


def plain(values: Floats) -> Floats:
    """Return ``values`` contiguous and read-only.

    Compiled functions are compiled anew for every kind of array they meet.
    """
    array = np.ascontiguousarray(values).view()
    array.flags.writeable = False
    return array


def own(values: Floats) -> Floats:
    """Return a copy, contiguous and writeable: as compiled functions make their own."""
    return np.array(values, order="C")


class JobArrays(NamedTuple):
    """Job and cluster, any placement.

    Lists of lists are stored flat: the entries of x are ``entry[start[x]:start[x+1]]``.
    A compiled call that allocates counts references to every array that it is given.
    So what a search calls often is given what it reads, and not all of this.

    Parameters
    ----------
    iterations
        N of the paper: the most of any task.
    rounds, sent
        Iterations of every task, and of its source that every edge sends.
    policy
        `Policy.code`.
    by_flow
        True where the policy may rate flows over the same hops differently.
    source, destination, lag
        Tasks at its ends, and lag, of every edge.
    owner
        Job of every edge, among several, where the policy divides ports among
        them (`Policy.by_job`); else empty.
    rank
        Place of every edge in the order that breaks ties, see `Job.edge_ranks`.
    control
        True where the edge carries no bytes, see `Job.control`.
    channel
        Channel of every edge, -1 for none; empty where there is no channel.
    latest
        True where its destination reads the newest, see `Edge.latest`; empty where no
        edge is so.
    out_start, out_edge, in_start, in_edge
        Edges out of and into every task.
    order
        The tasks, each after those that it needs in the same iteration.
    routes
        Links that flows between every two machines cross.
    capacity
        Bytes per second of every port at time 0.
    changes
        Time, port and new capacity of every change, in the order of their times, shape
        (changes, 3).
    taken, freed, slots
        Names of pools as numbers: the one that every task takes a slot of, and gives
        one back to, -1 for none; and the slots of every machine, -1 for unlimited,
        shape (machines, names).
    slowness
        Factors on reference times, shape (tasks, machines); no rows where all are 1.
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
    latest: NDArray[np.bool_]
    out_start: Ints
    out_edge: Ints
    in_start: Ints
    in_edge: Ints
    order: Ints
    routes: Routes
    capacity: Floats
    changes: Floats
    taken: Ints
    freed: Ints
    slots: Ints
    slowness: Floats


class Layout(NamedTuple):
    """A placed job, ready to be scheduled; the first fields are those of `JobArrays`.

    Parameters
    ----------
    jobs, owner
        Number of jobs that ports are divided among, and the job of every group; 0 and
        empty where they are not.
    group
        Group of every edge, -1 where it delivers at once (one machine, or control).
    slot
        First place of every group in the heap arrays of the state.
    block_bits
        Groups per entry of `State.soonest`, as a power of 2.
    hop_start, hop
        Ports that the flows of a group cross, one or more.
    port_start, port_group
        Groups that cross a port.
    takes, frees
        Pool that every task takes a slot of, and gives one back to, -1 for none.
    pool_slots
        Slots of every pool; empty where nothing is limited.
    last
        True per task that starts when nothing else happens at an instant any more: it
        takes a slot or reads the newest. Empty where none does.
    """

    iterations: int
    policy: int
    by_flow: bool
    rounds: Ints
    sent: Ints
    source: Ints
    destination: Ints
    lag: Ints
    rank: Ints
    channel: Ints
    latest: NDArray[np.bool_]
    out_start: Ints
    out_edge: Ints
    in_start: Ints
    in_edge: Ints
    order: Ints
    capacity: Floats
    changes: Floats
    jobs: int
    owner: Ints
    group: Ints
    slot: Ints
    block_bits: int
    hop_start: Ints
    hop: Ints
    port_start: Ints
    port_group: Ints
    takes: Ints
    frees: Ints
    pool_slots: Ints
    last: NDArray[np.bool_]


def job_arrays(job: Job, cluster: Cluster, policy: Policy) -> JobArrays:
    """Return the arrays of ``job`` on ``cluster``."""
    source = np.array([edge.source for edge in job.edges], dtype=np.int64)
    destination = np.array([edge.destination for edge in job.edges], dtype=np.int64)
    links = cluster.links
    latest = np.array([edge.latest for edge in job.edges], dtype=np.bool_)
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
        np.array(job.edge_ranks, dtype=np.int64),
        np.array(job.control, dtype=np.bool_),
        channels_of(job),
        latest if latest.any() else latest[:0],
        *listed_by_owner(source, len(job.tasks)),
        *listed_by_owner(destination, len(job.tasks)),
        topological(job),
        Routes(
            links.nic,
            links.zone,
            links.route_of,
            links.route_start,
            links.route_port,
        ),
        links.capacities,
        links.steps.rows,
        *pools_by_name(job, cluster),
        slowness(job, cluster),
    )


@compiled
def _groups(
    source_task: Ints,
    destination_task: Ints,
    control: NDArray[np.bool_],
    owner_of: Ints,
    machine_of: Ints,
    machines: int,
    by_flow: bool,  # noqa: FBT001 - compiled functions have no keyword-only ones
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Return the group of every edge; size, two machines and job of every group."""
    edges = source_task.size
    group = np.full(edges, -1, np.int64)
    row = np.zeros((4, edges), np.int64)
    size, source, destination = row[0], row[1], row[2]
    owner = np.empty(edges, np.int64) if owner_of.size > 0 else owner_of
    # The groups out of every machine are chained: a table of all pairs of 3,200
    # machines would take 80 MB.
    newest, before = np.full(machines, -1, np.int64), row[3]
    groups = 0
    for edge in range(edges):
        a, b = machine_of[source_task[edge]], machine_of[destination_task[edge]]
        if control[edge] or a == b:
            continue
        known = -1 if by_flow else newest[a]
        while known >= 0 and (
            destination[known] != b
            or (owner.size > 0 and owner[known] != owner_of[edge])
        ):
            known = before[known]
        if known < 0:
            known = groups
            groups += 1
            source[known], destination[known] = a, b
            if owner.size > 0:
                owner[known] = owner_of[edge]
            before[known] = newest[a]
            newest[a] = known
        group[edge] = known
        size[known] += 1
    ends = source[:groups], destination[:groups]
    return group, size[:groups], ends[0], ends[1], owner[:groups]


@compiled
def _hops(routes: Routes, source: Ints, destination: Ints) -> tuple[Ints, Ints]:
    """Return the ports between the machines of every group, as ``start, entry``."""
    start = np.zeros(source.size + 1, np.int64)
    for g in range(source.size):
        first, end = route_between(routes, source[g], destination[g])
        start[g + 1] = start[g] + end - first
    entry = np.empty(start[source.size], np.int64)
    for g in range(source.size):
        first, _ = route_between(routes, source[g], destination[g])
        for i in range(start[g], start[g + 1]):
            place = first + i - start[g]
            entry[i] = port_at(routes, place, source[g], destination[g])
    return start, entry


@compiled
def _crossings(hop_start: Ints, hop: Ints, ports: int) -> tuple[Ints, Ints]:
    """Return the groups that cross every port, as ``start, entry``."""
    start = np.zeros(ports + 1, np.int64)
    for port in hop:
        start[port + 1] += 1
    for port in range(ports):
        start[port + 1] += start[port]
    filled = start.copy()
    entry = np.empty(hop.size, np.int64)
    for group in range(hop_start.size - 1):
        for i in range(hop_start[group], hop_start[group + 1]):
            entry[filled[hop[i]]] = group
            filled[hop[i]] += 1
    return start, entry


@compiled
def _pools(
    taken: Ints, freed: Ints, slots: Ints, machine_of: Ints
) -> tuple[Ints, Ints, Ints]:
    """Return the pool that every task takes of and gives back to, and their slots."""
    tasks, names = taken.size, slots.shape[1]
    if names == 0:
        return taken, freed, slots.ravel()
    takes = np.full(tasks, -1, np.int64)
    frees = np.full(tasks, -1, np.int64)
    limited = False
    for task in range(tasks):
        machine = machine_of[task]
        name = taken[task]
        if name >= 0 and slots[machine, name] >= 0:
            takes[task] = machine * names + name
            limited = True
        name = freed[task]
        if name >= 0 and slots[machine, name] >= 0:
            frees[task] = machine * names + name
    pools = slots.size if limited else 0
    return takes, frees, slots.ravel()[:pools].copy()


@compiled
def _starting_last(
    latest: NDArray[np.bool_], destination: Ints, takes: Ints, pools: int
) -> NDArray[np.bool_]:
    """Return `Layout.last`."""
    if pools == 0 and latest.size == 0:
        return latest
    last = takes >= 0
    for edge in range(latest.size):
        if latest[edge]:
            last[destination[edge]] = True
    return last


@inlined
def _block_bits(groups: int) -> int:
    """Return `Layout.block_bits`: as many blocks as groups in each, 32 or more."""
    bits = 5
    while 1 << (2 * bits) < groups:
        bits += 1
    return bits


@inlined
def _number_of_jobs(job: JobArrays) -> int:
    """Return `Layout.jobs`."""
    most = -1
    for edge in range(job.owner.size):
        most = max(most, job.owner[edge])
    return most + 1


@compiled
def lay_out(job: JobArrays, machine_of: Ints) -> Layout:
    """Return the layout of ``job`` with task j on machine ``machine_of[j]``."""
    group, size, source, destination, owner = _groups(
        job.source, job.destination, job.control, job.owner,
        machine_of, job.slowness.shape[1], job.by_flow,
    )  # fmt: skip
    slot = np.zeros(size.size + 1, np.int64)
    for g in range(size.size):
        slot[g + 1] = slot[g] + size[g]
    hop_start, hop = _hops(job.routes, source, destination)
    port_start, port_group = _crossings(hop_start, hop, job.capacity.size)
    takes, frees, pool_slots = _pools(job.taken, job.freed, job.slots, machine_of)
    return Layout(
        job.iterations, job.policy, job.by_flow, job.rounds, job.sent,
        source=job.source,
        destination=job.destination,
        lag=job.lag,
        rank=job.rank,
        channel=job.channel,
        latest=job.latest,
        out_start=job.out_start,
        out_edge=job.out_edge,
        in_start=job.in_start,
        in_edge=job.in_edge,
        order=job.order,
        capacity=job.capacity,
        changes=job.changes,
        jobs=_number_of_jobs(job),
        owner=owner,
        group=group,
        slot=slot,
        block_bits=_block_bits(size.size),
        hop_start=hop_start,
        hop=hop,
        port_start=port_start,
        port_group=port_group,
        takes=takes,
        frees=frees,
        pool_slots=pool_slots,
        last=_starting_last(job.latest, job.destination, takes, pool_slots.size),
    )  # fmt: skip
