"""What a schedule may not depend on: units, and the order of things in the file."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.prediction.scheduling import RATE_POLICIES
from emu.prediction.simulation import makespan, simulate
from emu.problem import Cluster, Placement, Problem, Realization
from emu.testing.strategies import problems, random_problem
from emu.trust.audit import audit
from tests import draws

RULES = [name for name in RATE_POLICIES if name != "portfolio"]
Drawn = tuple[Problem, Realization]


def scaled(drawn: Drawn, times: float, volumes: float, rates: float) -> Drawn:
    problem, realization = drawn
    machines = tuple(
        replace(
            m,
            bandwidth_in=rates * m.bandwidth_in,
            bandwidth_out=rates * m.bandwidth_out,
        )
        for m in problem.cluster.machines
    )
    return (
        replace(problem, cluster=Cluster(machines)),
        Realization(times * realization.times, volumes * realization.volumes),
    )


def shuffled(drawn: Drawn, seed: int, *, machines_too: bool) -> Drawn:
    """Write tasks and edges down in another order, maybe machines as well."""
    (problem, realization), rng = drawn, np.random.default_rng(seed)
    job = problem.job
    tasks, edges, machines = (
        rng.permutation(len(things)).tolist()
        for things in (job.tasks, job.edges, problem.cluster.machines)
    )
    place = np.argsort(tasks).tolist()
    if not machines_too:
        machines.sort()
    return (
        Problem(
            Cluster(tuple(problem.cluster.machines[m] for m in machines)),
            replace(
                job,
                tasks=tuple(job.tasks[j] for j in tasks),
                edges=tuple(
                    replace(
                        job.edges[e],
                        source=place[job.edges[e].source],
                        destination=place[job.edges[e].destination],
                    )
                    for e in edges
                ),
            ),
            Placement(
                tuple(machines.index(problem.placement.machine_of[j]) for j in tasks)
            ),
        ),
        Realization(realization.times[tasks], realization.volumes[edges]),
    )


# Multiplying by powers of 2 rounds nothing: what is homogeneous is so to the last bit.
FACTORS = st.integers(-40, 40).map(lambda power: 2.0**power)


@pytest.mark.parametrize("policy", RULES)
@settings.get_profile("each_rule")
@given(drawn=problems(), factor=FACTORS)
def test_makespans_are_homogeneous_in_time(
    policy: str, drawn: Drawn, factor: float
) -> None:
    expected = factor * makespan(*drawn, policy)

    assert makespan(*scaled(drawn, factor, 1.0, 1 / factor), policy) == expected
    if policy != "aalo":  # whose queues end at 10 MB times a power of 10
        assert makespan(*scaled(drawn, factor, factor, 1.0), policy) == expected


@pytest.mark.parametrize("policy", [rule for rule in RULES if rule != "aalo"])  # 10 MB
@settings.get_profile("each_rule")
@given(drawn=problems(), factor=FACTORS)
def test_bytes_and_bandwidths_scale_together(
    policy: str, drawn: Drawn, factor: float
) -> None:
    assert makespan(*scaled(drawn, 1.0, factor, factor), policy) == makespan(
        *drawn, policy
    )


@pytest.mark.parametrize("policy", RULES)
@given(drawn=problems(), seed=st.integers(0, 2**32 - 1))
def test_the_order_in_the_file_changes_nothing(
    policy: str, drawn: Drawn, seed: int
) -> None:
    """But that of machines under sincronia: the first of equally full ports counts."""
    another = shuffled(drawn, seed, machines_too=policy != "sincronia")

    assert makespan(*another, policy) == pytest.approx(
        makespan(*drawn, policy), rel=1e-9, abs=1e-9
    )


def extreme(seed: int) -> Drawn:
    """Return a problem whose volumes and bandwidths span many orders of magnitude."""
    problem, realization = random_problem(np.random.default_rng(seed), ties=False)
    rng = np.random.default_rng(seed)
    machines = tuple(
        replace(
            m,
            bandwidth_in=10 ** rng.uniform(0, 5),
            bandwidth_out=10 ** rng.uniform(0, 5),
        )
        for m in problem.cluster.machines
    )
    return (
        replace(problem, cluster=Cluster(machines)),
        Realization(
            realization.times, 10 ** rng.uniform(-3, 6, realization.volumes.shape)
        ),
    )


@pytest.mark.parametrize("policy", RULES)
def test_no_port_is_exceeded_whatever_the_weights(policy: str) -> None:
    for seed in (
        218,
        494,
        820,
        1185,
        *draws.some(range(85)),
    ):  # sums of weights once lost the first
        problem, realization = extreme(seed)
        schedule = simulate(problem, realization, policy, record_rates=True)

        found = audit(schedule, volumes=realization.volumes).violations
        assert not [v for v in found if v.constraint in {"(13)", "(14)"}], seed
