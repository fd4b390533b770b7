"""Jobs written as Chakra traces are read back to the same end."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

import emu
from emu.interchange.chakra_out import write_traces
from emu.interchange.workload_formats import read_workload
from emu.prediction.simulation import simulate
from emu.problem import Problem, Realization
from emu.testing.strategies import problems

pytestmark = pytest.mark.usefixtures("read_here")


@settings(max_examples=50)
@given(problems())
def test_a_drawn_job_ends_when_it_did(drawn: tuple[Problem, Realization]) -> None:
    """Latencies of NICs, order alone, channels and ends of short tasks with it."""
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
    before = simulate(problem, realization, policy="maxmin")
    with tempfile.TemporaryDirectory() as folder:
        write_traces(problem, realization, Path(folder))
        workload = read_workload(Path(folder) / "task.0.et")
    content = workload.scenario("again", "1 Gbit/s")
    content["schedule"] = {"policy": "maxmin"}
    after = emu.simulate(emu.loads(json.dumps(content)))

    assert after.makespan == pytest.approx(before.makespan, rel=1e-9)
