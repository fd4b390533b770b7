"""Machines on hosts: whole, as stated, balanced, and whoever joined first."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from emu.emulation.coordinator.process_specs import check_hosts, host_of_machines
from emu.errors import ScenarioError
from emu.problem import Cluster, Edge, Job, Machine, Placement, Problem, Task
from emu.testing import two_machine_example


def chain(counts: list[int]) -> tuple[Problem, NDArray[np.float64]]:
    """Return so many lone tasks on each machine: no payload, only processes."""
    machines = [m for m, count in enumerate(counts) for _ in range(count)]
    job = Job(tuple(Task(f"t{n}", "t") for n in range(len(machines))), (), 1)
    cluster = Cluster(tuple(Machine(f"m{m}", 1.0, 1.0) for m in range(len(counts))))
    problem = Problem(cluster, job, Placement(tuple(machines)))
    return problem, np.zeros((0, 1))


def hosts(count: int) -> dict[str, int]:
    return {f"h{n}": 2 for n in range(count)}


@given(st.lists(st.integers(1, 9), min_size=3, max_size=6))
def test_processes_are_balanced_within_grahams_bound(counts: list[int]) -> None:
    """The largest load is at most 4/3 - 1/(3m) of the best, found by trying all."""
    problem, volumes = chain(counts)
    chosen = host_of_machines(problem, volumes, hosts(3), {})

    def largest(assignment: list[str]) -> int:
        return max(
            sum(n for n, at in zip(counts, assignment, strict=True) if at == host)
            for host in hosts(3)
        )

    best = min(
        largest(list(each)) for each in itertools.product(hosts(3), repeat=len(counts))
    )
    assert largest(chosen) <= (4 / 3 - 1 / 9) * best + 1e-9


@given(st.permutations(["h0", "h1", "h2"]), st.integers(0, 5), st.sampled_from("012"))
def test_mapping_is_by_name_and_keeps_what_is_stated(
    joined: list[str], machine: int, host: str
) -> None:
    problem, volumes = chain([3, 1, 4, 1, 5, 9])
    stated = {f"m{machine}": f"h{host}"}
    cores = dict.fromkeys(joined, 2)

    chosen = host_of_machines(problem, volumes, cores, stated)

    assert chosen == host_of_machines(problem, volumes, hosts(3), stated)
    assert chosen[machine] == f"h{host}"
    assert set(chosen) <= set(joined)


def test_host_with_more_cores_gets_more_processes() -> None:
    problem, volumes = chain([1] * 8)
    chosen = host_of_machines(problem, volumes, {"large": 6, "small": 2}, {})

    assert chosen.count("large") == 6


def test_payload_is_balanced_between_hosts() -> None:
    """m0 and m1 exchange nearly all: on one host its network would carry it all."""
    tasks = tuple(Task(f"t{n}", "t") for n in range(4))
    job = Job(tasks, (Edge(0, 1), Edge(2, 3)), 1)
    cluster = Cluster(tuple(Machine(f"m{m}", 1.0, 1.0) for m in range(4)))
    problem = Problem(cluster, job, Placement((0, 1, 2, 3)))

    chosen = host_of_machines(problem, np.array([[100.0], [1.0]]), hosts(2), {})

    assert chosen[0] != chosen[1]
    assert chosen[2] != chosen[3]


@pytest.mark.parametrize(
    ("known", "count", "stated", "expected"),
    [
        (["a", "b"], 2, {"m0": "c"}, "names c, and the hosts of this run are a, b"),
        ([], 1, {"m0": "a", "m1": "b"}, "names 2 hosts .a, b., this run has 1"),
        ([], 3, {}, "3 hosts for 2 machines, and no machine is over two"),
    ],
)
def test_what_no_hosts_can_meet_is_said(
    known: list[str], count: int, stated: dict[str, str], expected: str
) -> None:
    problem, _ = two_machine_example(1)
    machines = [machine.name for machine in problem.cluster.machines]
    renamed = {machines[int(key[1])]: host for key, host in stated.items()}
    with pytest.raises(ScenarioError, match=rf"emulation\.hosts: .*{expected}"):
        check_hosts(machines, known, count, renamed)
