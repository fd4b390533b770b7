"""What is not known of the clocks of hosts, along the critical path."""

from __future__ import annotations

import pytest

from emu.analysis.critical_path import critical_path
from emu.simulation import simulate
from emu.testing import two_machine_example
from emu.trust.lateness import clock_uncertainty

ONE, OTHER = 3e-5, 2e-4


def host(machine: str, uncertainty: float) -> dict[str, object]:
    return {"machines": [machine], "clock": {"uncertainty": uncertainty}}


def test_every_crossing_of_the_chain_counts_and_nothing_within_a_host() -> None:
    problem, realization = two_machine_example(3)
    schedule = simulate(problem, realization)
    chain = critical_path(schedule)
    first, second = (machine.name for machine in problem.cluster.machines)
    machine_of, edges = problem.placement.machine_of, problem.job.edges
    crossings = sum(
        machine_of[edges[link.edge].source] != machine_of[edges[link.edge].destination]
        for link in chain.links
        if link.edge >= 0
    )
    last = (ONE, OTHER)[machine_of[chain.links[-1].task]]
    apart = [host(first, ONE), host(second, OTHER)]
    together = [{**host(first, OTHER), "machines": [first, second]}]

    assert crossings > 1
    assert clock_uncertainty(chain, problem, apart) == pytest.approx(
        last + crossings * (ONE + OTHER)
    )
    assert clock_uncertainty(chain, problem, together) == pytest.approx(OTHER)
    assert clock_uncertainty(chain, problem, [{"machines": [first, second]}]) == 0
