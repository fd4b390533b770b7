"""Specifications of all node processes, cut out of the problem.

Pure: descriptions are msgpack-able maps, decided before anything is started.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.emulation.coordinator.cuts import CutPlan
from emu.emulation.coordinator.settings import RunSettings
from emu.emulation.wire.process_spec import EdgeEnd, ProcessSpec, ProcessTask
from emu.errors import ScenarioError
from emu.problem import Problem, Realization

#: Where NICs limit what crosses, edge e is sent from this port plus e: so every edge
#: has a leaf of its own in every NIC.
FIRST_PORT = 8192
#: Bytes that all processes together touch ahead of the run, at most.
_RESERVED = 3e9


def edge_end(problem: Problem, edge: int, *, incoming: bool) -> EdgeEnd:
    """Return one edge as the process at its destination or source sees it."""
    job = problem.job
    there = job.edges[edge]
    most = problem.cluster.links.steps.most
    peer = job.tasks[there.source if incoming else there.destination]
    return EdgeEnd(
        edge=edge,
        name=job.edge_names[edge],
        peer=peer.name,
        peer_kind=peer.kind,
        peer_process=peer.process_name,
        lag=there.lag,
        latest=there.latest,
        sent=job.flow_counts[edge],
        shaped=bool(problem.hops[edge]),
        capacity=min((float(most[hop]) for hop in problem.hops[edge]), default=0.0),
        latency=float(problem.latencies[edge]),
    )


def process_task(
    problem: Problem, task: int, times: NDArray[Any] | None, cuts: CutPlan | None = None
) -> ProcessTask:
    """Return one task as its process runs it."""
    job = problem.job
    subject = job.tasks[task]
    since, share = problem.cluster.speed_steps.of(problem.placement.machine_of[task])
    into, out_of = (
        tuple(
            edge_end(problem, e, incoming=incoming)
            for e in (job.in_edges(task) if incoming else job.out_edges(task))
            if not job.control[e]
        )
        for incoming in (True, False)
    )
    return ProcessTask(
        task=task,
        name=subject.name,
        kind=subject.kind,
        program=subject.program,
        settings=dict(subject.settings),
        iterations=job.rounds[task],
        speed=float(problem.speeds[task]),
        times=None if times is None else [float(t) for t in times[task]],
        speed_times=since,
        speed_shares=share,
        inputs=into,
        outputs=out_of,
        every=cuts.every if cuts and subject.name in cuts.owners else 0,
        restores=() if cuts is None else cuts.restores(subject.name),
    )


def receive_sizes(
    problem: Problem,
    members: Sequence[int],
    volumes: NDArray[np.float64],
    settings: RunSettings,
) -> list[int]:
    """Return the buffers that a process takes before the run, real bytes each.

    Those that its first two iterations bring, as far as its share of `_RESERVED` goes:
    memory touched for the first time during the run stalls the loop for 1 ms per 4 MB.
    """
    job = problem.job
    room = min(_RESERVED / len(job.processes), settings.memory_limit / 2)
    edges = [
        e
        for t in members
        for e in job.in_edges(t)
        if not job.control[e] and job.edges[e].source not in members
    ]
    sizes = np.ceil(volumes[edges, :2] * settings.byte_scale).T.ravel()
    sizes = sizes[sizes > 0]
    return [int(size) for size in sizes[np.cumsum(sizes) < room]]


def process_specs(
    problem: Problem, settings: RunSettings, expected: Realization
) -> list[ProcessSpec]:
    """Return the specification of every node process, in the order of the tasks.

    The agent completes each with what only its host knows (`HostSide`, keys of edges).
    """
    times = None if settings.compute == "real" else expected.times
    job = problem.job
    common = settings.of_processes
    beside = {"compute": settings.compute, "byte_scale": settings.byte_scale}
    return [
        ProcessSpec(
            process=process,
            machine=problem.placement.machine_of[members[0]],
            job_settings={**job.settings_of(job.tasks[members[0]].job_name), **beside},
            settings=common,
            source_port=None if settings.kernel_nics is None else FIRST_PORT,
            reserved=receive_sizes(problem, members, expected.volumes, settings),
            tasks=tuple(
                process_task(problem, task, times, settings.cuts) for task in members
            ),
            first=settings.first,
        )
        for process, members in job.processes.items()
    ]


def host_of_machines(
    problem: Problem,
    volumes: NDArray[np.float64],
    cores: Mapping[str, int],
    stated: Mapping[str, str],
) -> list[str]:
    """Return the host of every machine by name: as stated, else where there is room.

    Several machines may share a host, and none is over two. Those without a stated host
    go, the largest first, where the load is least afterwards, whoever joined first. A
    host's load is the larger of two ratios: of its share of the payload that crosses
    NICs, by ``volumes`` of (edge, iteration), to one host's fair share of it, and of
    its share of the processes to its share of the cores.

    Raises ScenarioError as `check_hosts`.
    """
    machines = [machine.name for machine in problem.cluster.machines]
    check_hosts(machines, cores, len(cores), stated)
    hosts = sorted(cores)
    # Of every machine its share of the payload, and of the processes.
    job = problem.job
    machine_of = problem.placement.machine_of
    weights = np.zeros((len(machines), 2))
    for position, edge in enumerate(job.edges):
        if problem.hops[position]:
            for end in (edge.source, edge.destination):
                weights[machine_of[end], 0] += volumes[position].sum()
    for members in job.processes.values():
        weights[machine_of[members[0]], 1] += 1
    weights /= np.maximum(weights.sum(axis=0), 1e-300)
    fair = np.array([[1.0, cores[host]] for host in hosts])
    fair /= fair.sum(axis=0)
    loads = np.zeros_like(fair)
    host_of: dict[str, str] = dict(stated)
    for name, host in stated.items():
        loads[hosts.index(host)] += weights[machines.index(name)]
    largest_first = sorted(range(len(machines)), key=lambda m: -weights[m].max())
    for machine in largest_first:
        if machines[machine] not in host_of:
            after = ((loads + weights[machine]) / fair).max(axis=1)
            least = int(np.argmin(after))
            loads[least] += weights[machine]
            host_of[machines[machine]] = hosts[least]
    return [host_of[name] for name in machines]


def check_ports(
    ports: Sequence[int] | None, hosts: Collection[str], *, extra: int
) -> None:
    """Refuse a range of ports that the processes of a host do not fit into.

    Raises ScenarioError, which says how many there must be.
    """
    if ports is None or not hosts:
        return
    host, most = Counter(hosts).most_common(1)[0]
    needs = most + extra
    command = " and one for this command" * extra
    if ports[1] - ports[0] + 1 < needs:
        problem = f"{ports[0]}-{ports[1]} is too small: {host} needs {needs} ports"
        each = f"one for each of its processes{command}"
        raise ScenarioError(f"{problem}, {each}", key="emulation.ports")


def check_hosts(
    machines: Sequence[str],
    hosts: Collection[str],
    count: int,
    stated: Mapping[str, str],
) -> None:
    """Refuse what no hosts can meet; to be called before and after they have joined.

    Raises ScenarioError when a stated host is not there, or there are more hosts than
    machines.
    """
    names = sorted(set(stated.values()))
    absent = [host for host in names if hosts and host not in hosts]
    problem = ""
    if absent:
        there = ", ".join(sorted(hosts))
        problem = f"names {', '.join(absent)}, and the hosts of this run are {there}"
    elif len(names) > count:
        problem = f"names {len(names)} hosts ({', '.join(names)}), this run has {count}"
    elif count > len(machines):
        problem = (
            f"there are {count} hosts for {len(machines)} machines, and no machine is "
            f"over two hosts: start at most {len(machines)} agents"
        )
    if problem:
        raise ScenarioError(problem, key="emulation.hosts")
