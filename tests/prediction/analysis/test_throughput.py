"""Speed and cost of a job, by hand and by the paper of Dorylus."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import ScenarioError
from emu.prediction.analysis.throughput import (
    Cost,
    Prices,
    job_times,
    machine_cost,
    pace,
    pipeline_depth,
    schedule_cost,
    seeds_per_iteration,
    speed_of,
)
from emu.prediction.simulation import simulate
from emu.problem import (
    Cluster,
    Edge,
    Epoch,
    Job,
    Machine,
    Outages,
    Placement,
    Problem,
    Realization,
    Task,
)
from emu.problem.workloads import RELEASE
from emu.report.figure_rows import pace_line
from emu.scenario import load, prepare
from emu.scenario.experiment import cost_of
from emu.scenario.scenario_file import loads
from emu.testing import two_machine_example
from emu.testing.strategies import problems
from emu.units import MONEY, PRICE, Quantity


def test_the_golden_example() -> None:
    """38 s for three iterations; its one worker takes 3 s in each."""
    problem, realization = two_machine_example(3)
    job = replace(problem.job, settings={"batch_size": 50, "workers": 1})
    schedule = simulate(replace(problem, job=job), realization)
    found = pace(schedule, Epoch(1, 50))
    ends = schedule.task_end.max(axis=0)

    seconds = found.iteration_seconds
    assert seconds == pytest.approx((38 - ends[0]) / 2)
    assert seconds is not None
    assert found.samples_per_second == 50 / seconds
    assert found.busy == pytest.approx(9 / 38)
    assert next(iter(found.critical_path)) == "transfer"


@pytest.mark.parametrize(("behind", "seconds"), [(1, 6.0), (2, 12.0)])
def test_a_pipeline_without_two_full_cycles_counts_its_mini_batches(
    behind: int, seconds: float
) -> None:
    """Three cycles of a pipeline that is one behind are two mini-batches.

    Two behind, as what P3 has left after a death near its end, no cycle is full.
    """
    tasks = (Task("w", "worker"), Task("ps", "server", behind=behind))
    job = Job(tasks, (), 3)
    ends = np.array([[1.0, 2.0, 9.0], [0.0, 4.0, 12.0]])

    speed = speed_of(job, ends, 12.0, Epoch(2, 100))
    assert speed.iteration_seconds == seconds
    assert speed.samples_per_second == pytest.approx(50 / seconds)


def test_an_iteration_ends_with_the_latest_task_of_any() -> None:
    """The second of v ends behind the third and fourth of w."""
    job = Job((Task("v", "x", iterations=2), Task("w", "x")), (), 4)
    ends = np.array([[2.0, 9.0, np.nan, np.nan], [1.0, 3.0, 5.0, 7.0]])

    speed = speed_of(job, ends, 9.0, Epoch(2, 30))

    assert speed.iteration_seconds == (9 - 2) / 3
    # One epoch of two steps: the fourth iteration is of another.
    assert speed.samples_per_second == pytest.approx(30 / (9 - 2))


def test_processes_are_busy_on_average_whatever_tasks_each_has() -> None:
    """In 8 s p trains for 3 s and 4 s, q for 2 s; r, for 8 s, samples."""
    tasks = (
        Task("a", "x", process="p", phase="training"),
        Task("b", "x", process="p", phase="training"),
        Task("c", "x", process="q", phase="training"),
        Task("d", "x", process="r", phase="sampling"),
    )
    problem = Problem(
        Cluster((Machine("m", 1.0, 1.0),)), Job(tasks, (), 1), Placement((0,) * 4)
    )
    times = np.array([[3.0], [4.0], [2.0], [8.0]])
    schedule = simulate(problem, Realization(times, np.empty((0, 1))))

    assert pace(schedule, None).busy == (7 + 2) / 2 / 8


def test_a_path_is_divided_by_what_goes_on() -> None:
    """In 42 s: a samples, b trains, c does neither; 16 B go in 4 s, 12 B in 3 s."""
    machines = (
        Machine("m0", 9.0, 4.0, latency_out=1.0, latency_in=2.0),
        Machine("m1", 8.0, 6.0, latency_out=5.0, latency_in=8.0),
    )
    tasks = (
        Task("a", "x", phase="sampling"),
        Task("b", "x", phase="training"),
        Task("c", "x"),
    )
    job = Job(tasks, (Edge(0, 1), Edge(1, 2)), 1)
    problem = Problem(Cluster(machines), job, Placement((0, 1, 0)))
    times = np.array([[3.0], [10.0], [6.0]])
    schedule = simulate(problem, Realization(times, np.array([[16.0], [18.0]])))

    found = pace(schedule, None)

    assert schedule.makespan == 42.0
    assert found.busy == 10 / 42
    assert found.critical_path == pytest.approx(
        {"compute": 16 / 42, "latency": 16 / 42, "transfer": 7 / 42, "sampling": 3 / 42}
    )


def test_times_of_several_jobs_count_from_their_releases() -> None:
    """a/w, 2 s and 3 s, has m0 alone; b, there from 4 s on, sends 20 B to m1, 5 B/s.

    Beside it c sends as much to m1, which halves the rate of both.
    """
    tasks = (
        Task("a/w", "worker"),
        Task("b/release", RELEASE, iterations=1),
        Task("b/s", "store", iterations=1),
        Task("b/w", "worker", iterations=1),
        Task("c/s", "store", iterations=1),
        Task("c/w", "worker", iterations=1),
        Task("d/w", "worker", iterations=1),
    )
    edges = (Edge(1, 2, credit=True), Edge(2, 3), Edge(4, 5))
    parts = {
        name: {"seeds": seeds}
        for name, seeds in zip("abcd", (10, 60, 7, 1), strict=True)
    }
    job = Job(tasks, edges, 2, settings={"jobs": parts})
    machines = (Machine("m0", 50.0, 50.0), Machine("m1", 5.0, 50.0))
    problem = Problem(Cluster(machines), job, Placement((0, 0, 0, 1, 0, 1, 1)))
    times = np.array([[2.0, 3.0], [4.0, 0.0], *[[0.0, 0.0]] * 5])
    times[3, 0], times[4, 0], times[5, 0] = 1.0, 4.0, 0.5
    run = Realization(times, np.array([[0.0, 0.0], [20.0, 0.0], [20.0, 0.0]]))
    schedule = simulate(problem, run)

    found = job_times(schedule, run, "oes", lambda part: Epoch(1, part["seeds"]))

    rows = [
        (time.job, time.release, time.end, time.seconds, time.alone, time.slowdown)
        for time in found
    ]
    assert rows == [
        ("a", 0.0, 5.0, 5.0, 5.0, 1.0),
        ("b", 4.0, 13.0, 9.0, 5.0, 1.8),
        ("c", 0.0, 12.5, 12.5, 8.5, 12.5 / 8.5),
        # What takes no time is slowed down by nothing.
        ("d", 0.0, 0.0, 0.0, 0.0, 1.0),
    ]
    rates = [time.samples_per_second for time in found]
    assert rates == pytest.approx([10 / 3, 60 / 9, 7 / 12.5, None])


def test_a_job_of_several_has_the_iterations_of_its_longest_task() -> None:
    """a/v, first of its job, runs once, a/w three times; beside it b runs five."""
    tasks = (
        Task("a/v", "x", iterations=1),
        Task("a/w", "x", iterations=3),
        Task("b/w", "x"),
    )
    job = Job(tasks, (), 5, settings={"jobs": {"a": {}, "b": {}}})
    machines = (Machine("m", 1.0, 1.0),)
    problem = Problem(Cluster(machines), job, Placement((0, 0, 0)))
    times = np.array([[0.5] * 5, [2.0] * 5, [4.0] * 5])
    run = Realization(times, np.empty((0, 5)))

    found, other = job_times(simulate(problem, run), run, "oes", lambda _: Epoch(1, 10))

    assert (found.end, found.alone, found.slowdown) == (6.0, 6.0, 1.0)
    assert (other.end, other.alone) == (20.0, 20.0)
    assert (found.samples_per_second, other.samples_per_second) == (10 / 2, 10 / 4)


def test_jobs_are_alone_under_the_rule_that_they_share_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rules: list[str] = []

    def alone(_: Problem, _run: Realization, policy: str) -> float:
        rules.append(policy)
        return 2.0

    monkeypatch.setattr("emu.prediction.analysis.throughput.makespan", alone)
    tasks = Task("a/w", "x"), Task("b/w", "x", behind=2)
    job = Job(tasks, (), 5, settings={"jobs": {"a": {}, "b": {}}})
    problem = Problem(Cluster((Machine("m", 1.0, 1.0),)), job, Placement((0, 0)))
    run = Realization(np.ones((2, 5)), np.empty((0, 5)))
    job_times(simulate(problem, run), run, "fifo", lambda _: None)

    assert rules == ["fifo", "fifo"]
    # Of several jobs each has its own pipeline: together they have none.
    assert pipeline_depth(job) == 0
    assert pipeline_depth(replace(job, tasks=(Task("w", "x", behind=2),))) == 2


def test_a_job_without_batches_has_no_samples() -> None:
    assert pace(simulate(*two_machine_example(1)), None).samples_per_second is None
    assert seeds_per_iteration({"jobs": {"a": {"batch_size": 50}}}) is None
    settings = {"batch_size": 50, "workers": 3, "samplers_per_worker": 2}
    assert seeds_per_iteration(settings) == 150


def test_several_jobs_have_no_iteration_time() -> None:
    """Their n-th ones have nothing in common."""
    tasks = [{"name": "t", "time": "1 s"}]
    job = {"system": "custom", "tasks": tasks}
    jobs = [
        {"name": "a", "job": {**job, "iterations": 3}},
        {"name": "b", "release": "2 s", "job": {**job, "iterations": 2}},
    ]
    machines = {"machines": [{"nic": "1 Gbit/s"}]}
    schedule = prepare(
        loads(json.dumps({"cluster": machines, "jobs": jobs}))
    ).simulate()

    assert pace(schedule, None).iteration_seconds is None
    assert "iteration time" not in pace_line(pace(schedule, None).to_json())


@given(problems())
def test_the_parts_of_the_critical_path_sum_to_it(
    drawn: tuple[Problem, Realization],
) -> None:
    schedule = simulate(*drawn)
    found = pace(schedule, None)

    if schedule.makespan:
        assert np.isclose(sum(found.critical_path.values()), 1.0)
    assert found.busy is None or 0 <= found.busy <= 4  # tasks of a process overlap


#: Instance -> dollars per hour, the base prices of the paper (7.2) times the size.
HOURLY = {"c5.2": 0.34, "c5n.2": 0.432, "c5n.4": 0.864, "p3.2": 3.06}
#: Model and graph, CPU cluster (Table 3), then (seconds, dollars) of Table 4 of
#: Dorylus, CPU only, GPU only; GPU clusters have as many machines. Then the value of
#: Dorylus over CPU only and over GPU only, from these.
TABLE_4 = [
    ("GCN Reddit-small", "c5.2", 2,
     (860.6, 0.20), (1005.4, 0.19), (162.9, 0.28),
     1.11, 0.27),
    ("GCN Reddit-large", "c5n.2", 12,
     (1020.1, 1.69), (1290.5, 1.85), (324.9, 3.31),
     1.38, 0.62),
    ("GCN Amazon", "c5n.2", 8,
     (512.7, 0.79), (710.2, 0.68), (385.3, 2.62),
     1.19, 2.49),
    ("GCN Friendster", "c5n.4", 32,
     (1133.3, 13.8), (1990.8, 15.3), (1490.4, 40.5),
     1.95, 3.86),
    ("GAT Reddit-small", "c5.2", 10,
     (496.3, 1.15), (1270.4, 1.20), (130.9, 1.11),
     2.67, 0.25),
    ("GAT Amazon", "c5n.2", 12,
     (853.4, 2.67), (2092.7, 3.01), (1039.2, 10.60),
     2.76, 4.83),
]  # fmt: skip


def _value(seconds: float, dollars: float) -> float:
    return Cost(dollars, 0.0, 0.0, seconds).value


@pytest.mark.parametrize("row", TABLE_4, ids=lambda row: row[0])
def test_table_4(row: tuple[Any, ...]) -> None:
    _, instance, machines, dorylus, cpu, gpu, over_cpu, over_gpu = row
    for hourly, (seconds, dollars) in (
        (HOURLY[instance], cpu),
        (HOURLY["p3.2"], gpu),
    ):
        assert machine_cost(machines * hourly, seconds) == pytest.approx(
            dollars, abs=0.04
        )
    assert _value(*dorylus) / _value(*cpu) == pytest.approx(over_cpu, abs=0.006)
    assert _value(*dorylus) / _value(*gpu) == pytest.approx(over_gpu, abs=0.006)


def test_what_servers_do_not_explain_of_table_4() -> None:
    """Lambdas and parameter servers are 13 to 59 % of the cost of Dorylus."""
    beyond = [
        1 - machine_cost(n * HOURLY[instance], dorylus[0]) / dorylus[1]
        for _, instance, n, dorylus, *_ in TABLE_4
    ]
    assert min(beyond) == pytest.approx(0.13, abs=0.01)
    assert max(beyond) == pytest.approx(0.59, abs=0.01)


def test_table_5_on_amazon() -> None:
    dorylus = _value(415.23, 0.654)
    assert dorylus / _value(842.49, 5.728) == pytest.approx(17.8, abs=0.05)
    assert dorylus / _value(1560.66, 1.498) == pytest.approx(8.6, abs=0.05)


def test_functions_are_billed_by_the_100_ms_that_they_begin() -> None:
    prices = Prices()
    assert prices == Prices(2e-7, function_hour=0.01125, granularity=0.1)
    hour = 0.01125 / 3600
    assert prices.functions(np.array([0.1])) == pytest.approx(2e-7 + 0.1 * hour)
    assert prices.functions(np.array([0.101])) == pytest.approx(2e-7 + 0.2 * hour)
    # 0.1 three times is a hair more than 0.3: no fourth one has begun.
    assert prices.functions(np.array([0.1 + 0.1 + 0.1])) == pytest.approx(
        2e-7 + 0.3 * hour
    )
    many = np.full(1_000_000, 0.05)
    assert prices.functions(many) == pytest.approx(0.20 + 1e5 * hour)


@given(st.lists(st.floats(0, 1e3), max_size=20), st.floats(1e-3, 10))
def test_rounding_up_costs_at_most_a_granule_each(
    times: list[float], granularity: float
) -> None:
    seconds = np.array(times)
    exact = seconds.sum() * 0.01125 / 3600 + 2e-7 * seconds.size
    found = Prices(granularity=granularity).functions(seconds)
    most = seconds.size * granularity * 0.01125 / 3600
    assert exact * (1 - 1e-6) <= found + 1e-12
    assert found <= exact + most * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize(
    ("quantity", "text", "value"),
    [
        (PRICE, "0.34 $/h", 0.34),
        (PRICE, "0.001 $/s", 3.6),
        (PRICE, "0.34 USD/h", 0.34),
        (MONEY, "2e-07 $", 2e-7),
    ],
)
def test_money_is_written_as_it_is_read(
    quantity: Quantity, text: str, value: float
) -> None:
    assert quantity.parse(text) == pytest.approx(value)
    assert quantity.parse(quantity.exact(value)) == value


FILE = """\
cluster:
  machines:
    - {name: g, count: 2, nic: 1 Gbit/s, price: 0.34 $/h}
    - {name: ps, nic: 1 Gbit/s, price: 0.17 $/h}
job:
  system: dorylus
  dataset: {name: products-like, scale: 0.0008}
  model: {hidden: 8}
  parameter_servers: [ps]
  intervals: 3
  epochs: 2
  times: {gather: 8 ms, apply: 130 ms, scatter: 2 ms}
"""


def test_cost_of_a_job_is_split() -> None:
    found = prepare(loads(FILE))
    schedule = found.simulate()
    cost = cost_of(found.scenario, schedule)
    assert cost is not None
    span = schedule.makespan
    assert cost.servers == pytest.approx(2 * 0.34 * span / 3600)
    assert cost.parameter_servers == pytest.approx(0.17 * span / 3600)
    # 6 intervals, 3 lambdas each per epoch, 130 ms and a few of transfer: 200 ms.
    assert cost.lambdas == pytest.approx(36 * (2e-7 + 0.2 * 0.01125 / 3600))
    assert cost.value == pytest.approx(1 / (span * cost.total))
    assert load(found.scenario) == found.scenario


def test_a_machine_that_does_more_than_serve_parameters_is_a_server() -> None:
    """g0 gathers and serves, ps serves alone, idle does nothing and costs nothing."""
    text = FILE.replace("[ps]", "[ps, g0]\n  machines: [g0, g1]").replace(
        "    - {name: ps,",
        "    - {name: idle, nic: 1 Gbit/s, price: 1 $/h}\n    - {name: ps,",
    )
    found = prepare(loads(text))
    schedule = found.simulate()
    cost = cost_of(found.scenario, schedule)
    assert cost is not None
    hours = schedule.makespan / 3600
    assert cost.servers == pytest.approx(2 * 0.34 * hours)
    assert cost.parameter_servers == pytest.approx(0.17 * hours)


def test_machines_are_paid_for_all_attempts_and_of_gates_as_servers() -> None:
    """Task w takes 3 s on m0, behind 5 s of an attempt that died; m1 has a gate."""
    tasks = (Task("w", "server"), Task("g", "gate", gate=True))
    machines = (Machine("m0", 1.0, 1.0), Machine("m1", 1.0, 1.0))
    problem = Problem(Cluster(machines), Job(tasks, (), 1), Placement((0, 1)))
    run = Realization(np.array([[3.0], [0.0]]), np.empty((0, 1)))
    schedule = replace(simulate(problem, run), outages=Outages(5.0, 2.0))

    cost = schedule_cost(
        schedule,
        {"m0": 3600.0, "m1": 36.0},
        Prices(),
        functions=np.array([0.05, 0.25]),
        lost=np.array([0.15]),
        parameter_kinds={"server"},
    )

    assert cost.seconds == 8.0
    assert (cost.servers, cost.parameter_servers) == pytest.approx((0.08, 8.0))
    # Those without an answer are paid for, too: 0.1 and 0.3 s, and 0.2 s in vain.
    assert cost.lost == pytest.approx(2e-7 + 0.2 * 0.01125 / 3600)
    assert cost.lambdas == pytest.approx(3 * 2e-7 + 0.6 * 0.01125 / 3600)
    assert cost.total == pytest.approx(8.08 + cost.lambdas)


def test_a_launch_is_not_paid() -> None:
    found = prepare(loads(FILE, ["job.launch={cold: 900 ms, warm: 10 ms}"]))
    cost = cost_of(found.scenario, found.simulate())
    assert cost is not None
    assert cost.lambdas == pytest.approx(36 * (2e-7 + 0.2 * 0.01125 / 3600))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("cluster.machines[1].price=null", "has no price, other machines have one"),
        ("cluster.machines[1].price=-1 $/h", "cannot be negative"),
        ("cluster.machines[1].price=0.34", "does not say its unit"),
        ("prices.granularity=0 s", "found zero"),
        ("prices.request=1 s", "not a unit of an amount of money"),
    ],
)
def test_wrong_prices(change: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        loads(FILE, [change])
