"""A job on a cluster as flat arrays: what does not change while a schedule runs.

`JobArrays` is made once per job and cluster, `Layout` once per placement; the second
is compiled, because a placement search makes ten thousands of them.

Flows that must share one rate form a *group*. Under ``oes`` and max-min these are all
flows over the same hops (one ordered pair of machines), under a policy that tells
flows apart every edge is a group of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.problem import Edge, Job, Placement, Problem, Task
from emu.scheduling.compiled import compiled

if TYPE_CHECKING:
    from emu.problem import Cluster

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def plain(values: Floats) -> Floats:
    """Return ``values`` contiguous and read-only.

    Compiled functions are compiled anew for every kind of array they meet.
    """
    array = np.ascontiguousarray(values).view()
    array.flags.writeable = False
    return array


class JobArrays(NamedTuple):
    """Job and cluster, any placement.

    Lists of lists are stored flat: the entries of x are ``entry[start[x]:start[x+1]]``.

    Parameters
    ----------
    iterations
        N of the paper.
    policy
        `Policy.code`.
    by_flow
        Whether the policy tells flows over the same hops apart.
    source, destination, lag
        Of every edge.
    credit
        Whether the edge carries no bytes.
    out_start, out_edge, in_start, in_edge
        Edges out of and into every task.
    order
        The tasks, each after those that it needs in the same iteration.
    path_start, path_port
        Ports from machine a to b, entry ``a * machines + b``; empty within a machine.
    capacity
        Bytes per second of every port.
    """

    iterations: int
    policy: int
    by_flow: bool
    source: Ints
    destination: Ints
    lag: Ints
    credit: NDArray[np.bool_]
    out_start: Ints
    out_edge: Ints
    in_start: Ints
    in_edge: Ints
    order: Ints
    path_start: Ints
    path_port: Ints
    capacity: Floats


class Layout(NamedTuple):
    """A placed job, ready to be scheduled; the first fields are those of `JobArrays`.

    Parameters
    ----------
    group
        Group of every edge, -1 where it delivers at once (one machine, or credit).
    slot
        First place of every group in the heap arrays of the state.
    hop_start, hop
        Ports that the flows of a group cross, one or more.
    port_start, port_group
        Groups that cross a port.
    """

    iterations: int
    policy: int
    source: Ints
    destination: Ints
    lag: Ints
    out_start: Ints
    out_edge: Ints
    in_start: Ints
    in_edge: Ints
    order: Ints
    capacity: Floats
    group: Ints
    slot: Ints
    hop_start: Ints
    hop: Ints
    port_start: Ints
    port_group: Ints


def _lists(owner: Ints, owners: int) -> tuple[Ints, Ints]:
    """Return ``start, entry`` of the positions in ``owner``, listed by owner."""
    start = np.zeros(owners + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner, minlength=owners), out=start[1:])
    return start, np.argsort(owner, kind="stable").astype(np.int64)


def _topological(job: Job) -> Ints:
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


def _paths(cluster: Cluster) -> tuple[Ints, Ints]:
    """Return the ports between every two machines, as `Problem.hops` states them."""
    machines = range(len(cluster.machines))
    probe = Job(
        tasks=tuple(Task(name=str(m), kind="probe") for m in machines),
        edges=tuple(Edge(a, b, lag=1) for a in machines for b in machines),
        iterations=1,
    )
    hops = Problem(cluster, probe, Placement(tuple(machines))).hops
    start = np.cumsum([0, *map(len, hops)], dtype=np.int64)
    return start, np.array([port for path in hops for port in path], dtype=np.int64)


def job_arrays(job: Job, cluster: Cluster, policy: int, *, by_flow: bool) -> JobArrays:
    """Return the arrays of ``job`` on ``cluster``, see `Policy.code`, `by_flow`."""
    source = np.array([edge.source for edge in job.edges], dtype=np.int64)
    destination = np.array([edge.destination for edge in job.edges], dtype=np.int64)
    everywhere = Placement((0,) * len(job.tasks))
    return JobArrays(
        job.iterations,
        policy,
        by_flow,
        source,
        destination,
        np.array([edge.lag for edge in job.edges], dtype=np.int64),
        np.array([edge.credit for edge in job.edges], dtype=np.bool_),
        *_lists(source, len(job.tasks)),
        *_lists(destination, len(job.tasks)),
        _topological(job),
        *_paths(cluster),
        Problem(cluster, job, everywhere).capacities,
    )


@compiled
def _groups(job: JobArrays, machine_of: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the group of every edge, the size and the machine pair of every group."""
    edges = job.source.size
    pairs = job.path_start.size - 1
    machines = round(np.sqrt(pairs))
    group = np.full(edges, -1, np.int64)
    size = np.zeros(edges, np.int64)
    pair_of = np.empty(edges, np.int64)
    known = np.full(pairs, -1, np.int64)
    groups = 0
    for edge in range(edges):
        pair = (
            machine_of[job.source[edge]] * machines + machine_of[job.destination[edge]]
        )
        if job.credit[edge] or job.path_start[pair] == job.path_start[pair + 1]:
            continue
        if job.by_flow or known[pair] < 0:
            known[pair] = groups
            pair_of[groups] = pair
            groups += 1
        group[edge] = known[pair]
        size[known[pair]] += 1
    return group, size[:groups], pair_of[:groups]


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
def lay_out(job: JobArrays, machine_of: Ints) -> Layout:
    """Return the layout of ``job`` with task j on machine ``machine_of[j]``."""
    group, size, pair_of = _groups(job, machine_of)
    slot = np.zeros(size.size + 1, np.int64)
    hop_start = np.zeros(size.size + 1, np.int64)
    for g, pair in enumerate(pair_of):
        slot[g + 1] = slot[g] + size[g]
        path = job.path_start[pair + 1] - job.path_start[pair]
        hop_start[g + 1] = hop_start[g] + path
    hop = np.empty(hop_start[size.size], np.int64)
    for g, pair in enumerate(pair_of):
        for i in range(hop_start[g], hop_start[g + 1]):
            hop[i] = job.path_port[job.path_start[pair] + i - hop_start[g]]
    port_start, port_group = _crossings(hop_start, hop, job.capacity.size)
    return Layout(
        iterations=job.iterations,
        policy=job.policy,
        source=job.source,
        destination=job.destination,
        lag=job.lag,
        out_start=job.out_start,
        out_edge=job.out_edge,
        in_start=job.in_start,
        in_edge=job.in_edge,
        order=job.order,
        capacity=job.capacity,
        group=group,
        slot=slot,
        hop_start=hop_start,
        hop=hop,
        port_start=port_start,
        port_group=port_group,
    )
