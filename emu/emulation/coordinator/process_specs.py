"""Specifications of all node processes, cut out of the problem.

Pure: descriptions are msgpack-able maps, decided before anything is started.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from emu.array_types import Array, Floats
from emu.emulation.coordinator.cuts import CutPlan
from emu.emulation.coordinator.settings import RunSettings
from emu.emulation.wire.encoding import encode_message
from emu.emulation.wire.frame_layout import Kind
from emu.emulation.wire.process_spec import EdgeEnd, ProcessSpec, ProcessTask
from emu.errors import EmulatorError, ScenarioError
from emu.problem import Problem, Realization
from emu.problem.job import TIMED, Job

#: Where NICs limit what crosses, edge e is sent from this port plus e: so every edge
#: has a leaf of its own in every NIC.
FIRST_PORT = 8192
#: Bytes that all processes together touch ahead of the run, at most.
_RESERVED = 3e9


def edge_end(problem: Problem, edge: int, *, incoming: bool) -> EdgeEnd:
    """Return one edge as the process at its destination or source sees it."""
    job = problem.job
    definition = job.edges[edge]
    peer = job.tasks[definition.source if incoming else definition.destination]
    # The most that events ever give a link: it bounds bursts at all times.
    most = problem.cluster.links.steps.most
    capacities = [float(most[hop]) for hop in problem.hops[edge]]
    return EdgeEnd(
        edge=edge,
        name=job.edge_names[edge],
        peer=peer.name,
        peer_kind=peer.kind,
        peer_process=peer.process_name,
        lag=definition.lag,
        latest=definition.latest,
        sent=job.flow_counts[edge],
        shaped=bool(problem.hops[edge]),
        capacity=min(capacities, default=0.0),
        latency=float(problem.latencies[edge]),
    )


def process_task(
    problem: Problem,
    task: int,
    times: Array | None,
    cuts: CutPlan | None = None,
) -> ProcessTask:
    """Return one task as its process runs it."""
    job = problem.job
    subject = job.tasks[task]
    machine = problem.placement.machine_of[task]
    speed_times, speed_shares = problem.cluster.speed_steps.of(machine)

    def ends(edges: Iterable[int], *, incoming: bool) -> tuple[EdgeEnd, ...]:
        return tuple(
            edge_end(problem, edge, incoming=incoming)
            for edge in edges
            if not job.control[edge]
        )

    return ProcessTask(
        task=task,
        name=subject.name,
        kind=subject.kind,
        program=subject.program,
        settings=dict(subject.settings),
        iterations=job.rounds[task],
        speed=float(problem.speeds[task]),
        times=None if times is None else times[task].tolist(),
        speed_times=speed_times,
        speed_shares=speed_shares,
        inputs=ends(job.in_edges(task), incoming=True),
        outputs=ends(job.out_edges(task), incoming=False),
        every=cuts.every if cuts and subject.name in cuts.owners else 0,
        restores=() if cuts is None else cuts.restores(subject.name),
    )


def receive_sizes(
    problem: Problem,
    members: Sequence[int],
    volumes: Floats,
    settings: RunSettings,
) -> list[int]:
    """Return the buffers that a process takes before the run, real bytes each.

    Those that its first two iterations bring, as far as its share of `_RESERVED` goes:
    memory touched for the first time during the run stalls the loop for 1 ms per 4 MB.
    Timed tasks keep none of their inputs.
    """
    job = problem.job
    room = min(_RESERVED / len(job.processes), settings.memory_limit / 2)
    in_edges = chain.from_iterable(map(job.in_edges, members))
    edges = [
        edge
        for edge in in_edges
        if not job.control[edge]
        and job.edges[edge].source not in members
        and job.tasks[job.edges[edge].destination].program != TIMED
    ]

    # Of all edges the first iteration comes before the second of any.
    by_iteration = np.ceil(volumes[edges, :2] * settings.byte_scale).T
    sizes = by_iteration[by_iteration > 0]
    fits = np.cumsum(sizes) < room
    return [int(size) for size in sizes[fits]]


def process_specs(
    problem: Problem,
    settings: RunSettings,
    expected: Realization,
) -> list[ProcessSpec]:
    """Return the specification of every node process, in the order of the tasks.

    The agent completes each with what only its host knows (`HostSide`, keys of edges).

    Raises EmulatorError where settings of a system's package cannot be sent.
    """
    # Real work takes what it takes.
    times = None if settings.compute == "real" else expected.times
    job = problem.job
    _check_settings(job)
    of_processes = settings.of_processes
    specs = []
    for process, members in job.processes.items():
        first_task = members[0]  # all of a process are of one job and machine
        job_settings = {
            **job.settings_of(job.tasks[first_task].job_name),
            "compute": settings.compute,
            "byte_scale": settings.byte_scale,
        }
        tasks = [process_task(problem, task, times, settings.cuts) for task in members]
        spec = ProcessSpec(
            process=process,
            machine=problem.placement.machine_of[first_task],
            job_settings=job_settings,
            settings=of_processes,
            source_port=None if settings.kernel_nics is None else FIRST_PORT,
            reserved=receive_sizes(problem, members, expected.volumes, settings),
            tasks=tuple(tasks),
            first=settings.first,
        )
        specs.append(spec)
    return specs


def _check_settings(job: Job) -> None:
    """Raise EmulatorError where a system's package states what no process can get."""
    members = chain.from_iterable(job.processes.values())
    tasks = [job.tasks[position] for position in members]
    job_names = dict.fromkeys(task.job_name for task in tasks)
    # Those of a job once, however many processes get them.
    for job_name in job_names:
        settings = job.settings_of(job_name)
        _check_each(settings, "the job", settings.get("system"))
    for task in tasks:
        system = job.settings_of(task.job_name).get("system")
        _check_each(task.settings, f"task {task.name}", system)


def _check_each(settings: Mapping[str, Any], owner: str, system: object) -> None:
    """Raise EmulatorError where a setting cannot be packed into a message."""
    for key, value in settings.items():
        try:
            encode_message(Kind.CONTROL, {key: value})
        except (TypeError, ValueError, OverflowError) as error:
            kind = type(value).__name__
            raise EmulatorError(
                f"system {system}: setting {key} of {owner} is {value!r:.40} "
                f"({kind}), which no process can be sent: write plain numbers, "
                "texts, and lists or mappings of them"
            ) from error


def host_of_machines(
    problem: Problem,
    volumes: Floats,
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
    machines = problem.cluster.names
    check_hosts(machines, cores, len(cores), stated)
    hosts = sorted(cores)
    weights = _machine_weights(problem, volumes)
    # As weights and loads: a column of payload, one of processes.
    fair = np.array([[1.0, cores[host]] for host in hosts])
    fair /= fair.sum(axis=0)

    host_of: dict[str, str] = dict(stated)
    loads = np.zeros_like(fair)
    for name, host in stated.items():
        row = hosts.index(host)
        machine = machines.index(name)
        loads[row] += weights[machine]

    largest = weights.max(axis=1)
    largest_first = np.argsort(-largest, kind="stable")
    for machine in largest_first.tolist():
        name = machines[machine]
        if name in host_of:
            continue
        loads_with_it = loads + weights[machine]
        ratios = loads_with_it / fair
        least = int(np.argmin(ratios.max(axis=1)))
        loads[least] += weights[machine]
        host_of[name] = hosts[least]
    return [host_of[name] for name in machines]


def _machine_weights(problem: Problem, volumes: Floats) -> Floats:
    """Return of every machine its share of the payload, and of the processes."""
    job = problem.job
    machine_of = problem.placement.machine_of
    weights = np.zeros((len(problem.cluster.machines), 2))
    for position, edge in enumerate(job.edges):
        if problem.hops[position]:
            volume = volumes[position].sum()
            for task in (edge.source, edge.destination):
                machine = machine_of[task]
                weights[machine, 0] += volume
    for members in job.processes.values():
        machine = machine_of[members[0]]
        weights[machine, 1] += 1

    totals = weights.sum(axis=0)
    weights /= np.maximum(totals, 1e-300)  # a job may send nothing
    return weights


def check_ports(
    ports: Sequence[int] | None,
    hosts: Collection[str],
    *,
    extra: int,
) -> None:
    """Refuse a range of ports that the processes of a host do not fit into.

    Raises ScenarioError, which says how many there must be.
    """
    if ports is None or not hosts:
        return
    first, last = ports
    host, most = Counter(hosts).most_common(1)[0]
    needs = most + extra
    if last - first + 1 < needs:
        command = " and one for this command" if extra else ""
        raise ScenarioError(
            f"{first}-{last} is too small: {host} needs {needs} ports, one for each "
            f"of its processes{command}",
            key="emulation.ports",
        )


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
        present = ", ".join(sorted(hosts))
        problem = f"names {', '.join(absent)}, and the hosts of this run are {present}"
    elif len(names) > count:
        problem = f"names {len(names)} hosts ({', '.join(names)}), this run has {count}"
    elif count > len(machines):
        problem = (
            f"there are {count} hosts for {len(machines)} machines, and no machine is "
            f"over two hosts: start at most {len(machines)} agents"
        )
    if problem:
        raise ScenarioError(problem, key="emulation.hosts")
