"""The time scale of kernel NICs: by a rule, held against a scan of all scales."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.errors import ScenarioError
from emu.experiment.auto_scale import (
    CORES,
    HOP,
    MARGIN,
    KernelCosts,
    kernel_time_scale,
    with_scales,
)
from emu.experiment.scale_search import SHORTEST, ScaleChoice
from emu.lab.machines.nic import FASTEST, SLOWEST, Sharing, plan_nic
from emu.prediction.simulation import simulate
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Realization,
    Schedule,
    Task,
)
from emu.report.facts import run_facts
from emu.scenario import load
from emu.testing.strategies import random_problem

KERNEL = ("emulation.network=kernel", "schedule.policy=maxmin", "expect=null")
AUTO = (*KERNEL, "emulation.time_scale=auto", "emulation.byte_scale=100000")


def drawn(seed: int) -> Schedule:
    """Return the schedule of a drawn job that takes time, some with equal NICs."""
    draw = np.random.default_rng([34, seed])
    while True:
        problem, realization = random_problem(draw, ties=seed % 2 == 0, own=True)
        schedule = simulate(problem, realization, "maxmin")
        if schedule.makespan > 0:
            return schedule


def scanned(costs: KernelCosts, nics: list[float], max_error: float) -> float | None:
    """Return the first of all scales of two digits at which each rule holds."""
    for power in range(-6, 6):
        for digits in range(10, 100):
            scale = float(f"{digits}e{power - 1}")
            length = costs.makespan * scale
            if (
                length * (1 + 1e-9) >= SHORTEST
                and costs.hops * HOP <= MARGIN * max_error * length * (1 + 1e-9)
                and max(nics) <= FASTEST * scale * (1 + 1e-9)
                and min(nics) >= SLOWEST * scale
                and costs.holds(scale)
            ):
                return scale
    return None


@pytest.mark.parametrize("seed", range(60))
def test_it_is_the_least_of_two_digits_that_every_rule_allows(seed: int) -> None:
    schedule = drawn(seed)
    draw = np.random.default_rng([35, seed])
    byte_scale = float(10 ** draw.uniform(2, 9))
    max_error = float(10 ** draw.uniform(-3, -1))
    costs = KernelCosts(
        schedule,
        byte_scale=byte_scale,
        cores=int(draw.integers(1, 9)),
        sharing=list(Sharing)[seed % 3],
    )
    nics = [byte_scale * rate for rate in schedule.problem.capacities]
    wanted = scanned(costs, nics, max_error)

    if wanted is None:
        with pytest.raises(ScenarioError, match="times as large"):
            kernel_time_scale(costs, max_error)
        return
    scale = kernel_time_scale(costs, max_error)
    assert scale == pytest.approx(wanted)
    forecast = costs.forecast(scale)
    assert forecast.delay <= MARGIN * max_error * (1 + 1e-9)
    assert forecast.cpu_busy <= CORES


@pytest.mark.parametrize(("cores", "least"), [(1, 2.0), (2, 1.0)])
def test_at_full_speed_the_fastest_nic_may_take_half_of_the_cores(
    cores: int, least: float
) -> None:
    """1 GB/s are 0.8 cores at scale 1, which is over half of one; they hardly send."""
    machines = Machine("a", 1e9, 1e9), Machine("b", 1e9, 1e9)
    job = Job((Task("s", "task"), Task("t", "task")), (Edge(0, 1),), 1)
    problem = Problem(Cluster(machines), job, Placement((0, 1)))
    spent = Realization(np.array([[100.0], [100.0]]), np.array([[1e6]]))
    schedule = simulate(problem, spent, "maxmin")
    costs = KernelCosts(schedule, byte_scale=1.0, cores=cores, sharing=Sharing.FAIR)

    assert costs.busy(least / 2) < 0.01
    assert costs.holds(least)
    assert not costs.holds(least / 2)


def test_every_flow_of_a_ring_is_a_hop_and_more_of_them_take_longer() -> None:
    found = []
    for rounds in (10, 20):
        machines = Machine("a", 1e6, 1e6), Machine("b", 1e6, 1e6)
        ring = Edge(0, 1), Edge(1, 0, 1)
        job = Job((Task("s", "task"), Task("t", "task")), ring, rounds)
        problem = Problem(Cluster(machines), job, Placement((0, 1)))
        times = np.full((2, rounds), 1e-3)
        spent = Realization(times, np.full((2, rounds), 1e4))
        schedule = simulate(problem, spent, "maxmin")
        costs = KernelCosts(schedule, byte_scale=1.0, cores=8, sharing=Sharing.FAIR)
        assert costs.hops == 2 * rounds - 1  # nothing follows the last one
        scale = kernel_time_scale(costs, 0.01)
        found.append(scale * schedule.makespan)
    assert found[0] == pytest.approx(19 * HOP / (MARGIN * 0.01), rel=0.1)
    assert found[1] == pytest.approx(39 * HOP / (MARGIN * 0.01), rel=0.1)


def test_a_scenario_gets_it_and_says_so_beforehand() -> None:
    experiment, choice = with_scales(load("golden", AUTO))

    assert choice is not None
    assert choice.kernel is not None
    assert experiment.scenario.emulation.time_scale == choice.time_scale
    assert ScaleChoice.from_json(choice.to_json()) == choice
    said = choice.sentence(30.0)
    assert f"first bytes of {choice.kernel.hops} flows" in said
    sets = [word for change in AUTO for word in ("--set", change)]
    done = CliRunner().invoke(app, ["run", "golden", "--dry-run", *sets])
    assert done.exit_code == 0, done.output
    assert f" {choice.time_scale:g}\n" in done.output
    assert "wall time" in done.output


@pytest.mark.parametrize(("delay", "slow"), [(0.004, False), (0.02, True)])
def test_a_host_that_is_too_slow_is_named(*, delay: float, slow: bool) -> None:
    _, choice = with_scales(load("golden", AUTO))
    assert choice is not None
    actual = {"wall_seconds": 4.0, "cpu_busy": 0.4, "delay": delay}
    chosen = choice.to_json() | choice.beside(4.0, actual)
    assert chosen["predicted"]["delay"] <= 0.005
    result = {
        "auto_scale": chosen,
        "wall_seconds": 4.0,
        "startup": {"seconds": 1.0, "memory": 0},
    }
    (fact,) = [fact for fact in run_facts(result) if fact.label == "time scale"]
    assert ("too slow" in fact.note) == slow


def test_cores_are_busy_with_ends_and_segments_of_the_narrowest_nics() -> None:
    """Two flows over a NIC of 1 MB/s and one over 4 MB/s, of 3, 5 and 8 MB.

    At scale 2 they carry half, in segments of that rate; three iterations are the same.
    """
    a, b, c = Machine("a", 4e6, 1e6), Machine("b", 4e6, 4e6), Machine("c", 9e6, 9e6)
    edges = Edge(0, 1), Edge(0, 2), Edge(1, 2)
    tasks = Task("s", "task"), Task("t", "task"), Task("u", "task")
    job = Job(tasks, edges, 3)
    problem = Problem(Cluster((a, b, c)), job, Placement((0, 1, 2)))
    volumes = np.repeat([[3e6], [5e6], [8e6]], 3, axis=1)
    spent = Realization(np.full((3, 3), 0.5), volumes)
    schedule = simulate(problem, spent, "maxmin")
    costs = KernelCosts(schedule, byte_scale=2.0, cores=3, sharing=Sharing.FAIR)

    slow = plan_nic(1e6, Sharing.FAIR).segment
    quick = plan_nic(4e6, Sharing.FAIR).segment
    assert slow != quick
    segments = 3 * (2.0 * 8e6 / slow + 2.0 * 8e6 / quick)
    ends = 9 + 9
    work = ends * 1e-3 + segments * 5.4e-5
    busy = work / (schedule.makespan * 2.0 * 3)
    assert costs.busy(2.0) == pytest.approx(busy)
    forecast = costs.forecast(2.0)
    assert forecast.cpu_busy == pytest.approx(busy)
    assert forecast.hops == costs.hops > 0
    delay = costs.hops * 2.5e-3 / (2.0 * schedule.makespan)
    assert forecast.delay == pytest.approx(delay)
    assert costs.most == pytest.approx(2e6 / SLOWEST)
