"""Which host carries which emulated machine: as stated, else where there is room.

Pure: several machines may share a host, and none is over two. What comes out depends on
names and numbers, and not on who joined first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.errors import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from emu.problem import Problem

_KEY = "emulation.hosts"


def host_of_machines(
    problem: Problem,
    volumes: NDArray[np.float64],
    cores: Mapping[str, int],
    stated: Mapping[str, str],
) -> list[str]:
    """Return the name of the host of every machine.

    Machines without a stated host go, the largest first, where the load is least
    afterwards. A host's load is the larger of two ratios: of its share of the payload
    that crosses NICs to one host's fair share of it, and of its share of the processes
    to its share of the cores.

    Parameters
    ----------
    volumes
        Bytes of (edge, iteration).
    cores
        Processor cores of every host, by its name.
    stated
        Hosts of machines, by the names of both.

    Raises
    ------
    ScenarioError
        When a stated host is not there, or there are more hosts than machines.
    """
    machines = [machine.name for machine in problem.cluster.machines]
    check_hosts(machines, cores, len(cores), stated)
    hosts = sorted(cores)
    weights = _weights(problem, volumes)
    fair = np.array([[1.0, cores[host]] for host in hosts])
    fair /= fair.sum(axis=0)
    loads = np.zeros_like(fair)
    chosen: dict[str, str] = dict(stated)
    for name, host in stated.items():
        loads[hosts.index(host)] += weights[machines.index(name)]
    largest_first = sorted(range(len(machines)), key=lambda m: -weights[m].max())
    for machine in largest_first:
        if machines[machine] not in chosen:
            after = ((loads + weights[machine]) / fair).max(axis=1)
            least = int(np.argmin(after))
            loads[least] += weights[machine]
            chosen[machines[machine]] = hosts[least]
    return [chosen[name] for name in machines]


def check_hosts(
    machines: Sequence[str],
    hosts: Collection[str],
    count: int,
    stated: Mapping[str, str],
) -> None:
    """Refuse what no hosts can meet; to be called before and after they have joined.

    Parameters
    ----------
    machines
        Names of the emulated machines.
    hosts, count
        Names of the hosts where they are known, and how many there are.
    stated
        Hosts of machines, by the names of both.

    Raises
    ------
    ScenarioError
        When a stated host is not there, or there are more hosts than machines.
    """
    wanted = sorted(set(stated.values()))
    absent = [host for host in wanted if hosts and host not in hosts]
    if absent:
        problem = (
            f"names {', '.join(absent)}, and the hosts of this run are "
            f"{', '.join(sorted(hosts))}"
        )
        raise ScenarioError(problem, key=_KEY)
    if len(wanted) > count:
        problem = (
            f"names {len(wanted)} hosts ({', '.join(wanted)}), this run has {count}"
        )
        raise ScenarioError(problem, key=_KEY)
    if count > len(machines):
        problem = (
            f"there are {count} hosts for {len(machines)} machines, and no machine is "
            f"over two hosts: start at most {len(machines)} agents"
        )
        raise ScenarioError(problem, key=_KEY)


def _weights(problem: Problem, volumes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return of every machine its share of the payload and of the processes."""
    job, machine_of = problem.job, problem.placement.machine_of
    weights = np.zeros((len(problem.cluster.machines), 2))
    for position, edge in enumerate(job.edges):
        if problem.hops[position]:
            for end in (edge.source, edge.destination):
                weights[machine_of[end], 0] += volumes[position].sum()
    for members in job.processes.values():
        weights[machine_of[members[0]], 1] += 1
    shares: NDArray[np.float64] = weights / np.maximum(weights.sum(axis=0), 1e-300)
    return shares
