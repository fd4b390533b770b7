"""Jobs written as Chakra traces are read back to the same end."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import emu
from emu.cli.app import app
from emu.interchange.chakra_out import write_traces
from emu.interchange.workload_formats import read_workload
from emu.prediction.simulation import simulate
from emu.problem import Problem, Realization
from emu.testing.strategies import problems

pytestmark = pytest.mark.usefixtures("read_here")

UNEQUAL = """
cluster:
  machines:
    - {name: a, nic: {in: 40 Mbit/s, out: 80 Mbit/s, latency: {in: 1 ms, out: 3 ms}}}
    - {name: b, nic: 80 Mbit/s}
    - {name: c, nic: {in: 24 Mbit/s, out: 16 Mbit/s}}
job:
  system: custom
  iterations: 3
  tasks:
    - {name: x, time: [0.1 s, 0.3 s, 0.2 s], pin: a}
    - {name: y, time: 0.2 s, pin: b}
    - {name: z, time: 0.15 s, pin: c}
    - {name: w, time: 0.05 s, pin: c}
  flows:
    - {from: x, to: y, volume: [3 MB, 1 MB, 2 MB]}
    - {from: x, to: z, volume: 1 MB}
    - {from: y, to: z, volume: 500 kB}
    - {from: y, to: w, volume: 2 MB}
    - {from: z, to: x, volume: 700 kB, lag: 1}
"""


ONE_EDGE = """
cluster:
  machines: [{name: a, nic: 8 Mbit/s}, {name: b, nic: 8 Mbit/s}]
job:
  system: custom
  iterations: 4
  tasks: [{name: x, time: 1 s, pin: a}, {name: y, time: 0.1 s, pin: b}]
  flows: [{from: x, to: y, volume: 1 MB}]
"""


TIES = "flow that ties go by the iteration of"


def test_flows_of_one_channel_may_go_in_another_order(tmp_path: Path) -> None:
    """In a job the lower iteration goes first, in its traces the lower rank."""
    shared = "channel: both"
    job = UNEQUAL.replace("lag: 1", f"lag: 1, {shared}")
    alone = emu.place(emu.loads(job))
    assert not write_traces(alone.problem, alone.realization, tmp_path)

    job = job.replace("volume: 500 kB", f"volume: 500 kB, {shared}")
    placed = emu.place(emu.loads(job))
    left_out = write_traces(placed.problem, placed.realization, tmp_path)
    assert left_out == {TIES: 2}
    once = emu.place(emu.loads(job, {"job.iterations": 1, "job.tasks.x.time": "1 s"}))
    assert not write_traces(once.problem, once.realization, tmp_path)


@pytest.mark.parametrize("rule", ["fifo", "mrtf"])
def test_the_flows_of_one_edge_alone_do_not_tie(tmp_path: Path, rule: str) -> None:
    placed = emu.place(emu.loads(ONE_EDGE, {"schedule.policy": rule}))
    left_out = write_traces(placed.problem, placed.realization, tmp_path, rule)
    assert not left_out


@settings(max_examples=50)
@given(problems(), st.sampled_from(["oes", "maxmin", "none"]))
def test_a_drawn_job_ends_when_it_did(
    drawn: tuple[Problem, Realization],
    rule: str,
) -> None:
    """Latencies of NICs, order alone, channels, the rule, ends of short tasks."""
    problem, realization = drawn
    job = problem.job
    tasks = tuple(replace(t, takes="", frees=None, demands={}) for t in job.tasks)
    # A name that no scenario could have. Flows of several edges on one channel that get
    # ready at once may go in another order.
    edges = tuple(
        replace(edge, latest=False, channel=f"{number}->" * (number % 2))
        for number, edge in enumerate(job.edges)
    )
    machines = (
        replace(m, latency_out=0.25 * n) for n, m in enumerate(problem.cluster.machines)
    )
    cluster = replace(problem.cluster, machines=tuple(machines), changes=())
    problem = replace(
        problem, job=replace(job, tasks=tasks, edges=edges), cluster=cluster
    )
    before = simulate(problem, realization, policy=rule)
    with tempfile.TemporaryDirectory() as folder:
        write_traces(problem, realization, Path(folder), rule)
        workload = read_workload(Path(folder) / "task.0.et")
    content = workload.scenario("again", "1 Gbit/s")
    after = emu.simulate(emu.loads(json.dumps(content)))

    assert after.makespan == pytest.approx(before.makespan, rel=1e-9)


@pytest.mark.parametrize("rule", ["mrtf", "fifo", "sebf_madd"])
def test_the_rule_comes_back_or_what_it_goes_by_is_named(
    rule: str,
    tmp_path: Path,
) -> None:
    """Under equal shares the same job takes 4.79 s."""
    placed = emu.place(emu.loads(UNEQUAL, {"schedule.policy": rule}))
    left_out = write_traces(placed.problem, placed.realization, tmp_path, rule)
    workload = read_workload(tmp_path / "task.0.et")
    content = workload.scenario("again", "1 Gbit/s")
    after = emu.simulate(emu.loads(json.dumps(content)))

    assert workload.states_nics
    assert content["schedule"] == {"policy": rule}
    if rule == "sebf_madd":  # coflows are of one iteration, and there is one alone
        assert list(left_out) == ["coflow, job or expected time that sebf_madd goes by"]
    else:
        assert list(left_out) == [TIES]
        assert after.makespan == placed.simulate().makespan
        assert after.makespan != emu.simulate(emu.loads(UNEQUAL)).makespan


@pytest.mark.parametrize("rule", ["evil.py:Rule", "a_rule_to_come"])
def test_a_trace_names_no_code_and_no_unknown_word_as_its_rule(
    rule: str,
    tmp_path: Path,
) -> None:
    placed = emu.place(emu.loads(UNEQUAL))
    write_traces(placed.problem, placed.realization, tmp_path, rule)
    workload = read_workload(tmp_path / "task.0.et")
    content = workload.scenario("again", "1 Gbit/s")
    assert "schedule" not in content
    assert workload.left_out[f"metadata rule {rule}"] == len(placed.problem.job.tasks)
    emu.simulate(emu.loads(json.dumps(content)))


@pytest.mark.parametrize(
    "given", [("--nic", "10 Gbit/s"), ("--latency", "1 ms")], ids=" ".join
)
def test_nics_that_a_trace_states_are_not_stated_again(
    given: tuple[str, str],
    tmp_path: Path,
) -> None:
    """Both were ignored without a word."""
    placed = emu.place(emu.loads(UNEQUAL))
    write_traces(placed.problem, placed.realization, tmp_path, "oes")
    target = tmp_path / "again.json"
    command = ["import-workload", str(tmp_path / "task.0.et"), "-o", str(target)]

    refused = CliRunner().invoke(app, [*command, *given])
    assert refused.exit_code == 2
    assert f"{given[0]}: " in refused.output
    assert f"leave {given[0]} out" in refused.output
    assert not target.exists()
    taken = CliRunner().invoke(app, command)
    assert taken.exit_code == 0
    assert "NICs" not in taken.stdout
