"""Gates: tasks without a process, in the scheduler, in a file, over sockets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emu.errors import ScenarioError
from emu.prediction.scheduling import Scheduler
from emu.prediction.simulation import simulate
from emu.report.trace import trace_events
from emu.scenario import prepare
from emu.trust.audit import audit
from tests.emulation.coordinator.virtual import drive
from tests.golden.cases import cases, problem_of, with_gates
from tests.integration.scenarios import custom, flow, read

#: b waits 2 s longer for a than it took; c releases the next iteration of a.
STATED = custom(
    [
        {"name": "a"},
        {"name": "wait", "time": "2 s", "gate": True},
        {"name": "b"},
        {"name": "release", "time": "0 s", "gate": True},
    ],
    [
        flow("a", "wait", "0 B"),
        flow("wait", "b", "0 B"),
        flow("b", "release", "0 B"),
        flow("release", "a", "0 B", lag=1),
    ],
    dict.fromkeys(("a", "wait", "b", "release"), "m"),
    iterations=3,
)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("executors", "thread_pool"),
        ("p3", "unpipelined_equal"),
        ("p3", "pipelined_equal"),
    ],
)
def test_golden_jobs_with_gates_driven_by_events(file: str, name: str) -> None:
    (case,) = [case for case in cases(file) if case.name == name]
    problem, realization = problem_of(case)
    gated = with_gates(problem, realization)
    gates = {task.name for task in gated.job.tasks if task.gate}
    assert gates
    assert not gates & {*gated.job.processes}

    schedule = drive(gated, realization, "oes")[0].schedule()

    expected = simulate(problem, realization, "oes")
    assert schedule.makespan == float(case.results["oes"]["makespan"])
    np.testing.assert_allclose(schedule.task_start, expected.task_start, rtol=1e-12)
    np.testing.assert_allclose(schedule.task_end, expected.task_end, rtol=1e-12)
    shown = {
        e["args"]["name"]
        for e in trace_events({"": schedule})
        if e["name"] == "thread_name"
    }
    assert not any(f"{gate} (task)" in shown for gate in gates)


def test_times_of_gates_must_be_known() -> None:
    problem = prepare(read(STATED)).problem
    with pytest.raises(ValueError, match="the job has gates"):
        Scheduler(problem, "oes")


def test_nothing_is_brought_to_a_gate() -> None:
    flows = [{**STATED["job"]["flows"][0], "volume": ["0 B", "0 B", "1 B"]}]
    stated = {**STATED, "job": {**STATED["job"], "flows": flows}}
    with pytest.raises(ScenarioError) as caught:
        read(stated)

    assert caught.value.key == "job.flows[0].volume"
    assert caught.value.problem.startswith("no bytes come to or leave the gate 'wait'")


def test_nothing_is_read_by_a_gate() -> None:
    flows = [{**STATED["job"]["flows"][0], "reads": "latest"}]
    stated = {**STATED, "job": {**STATED["job"], "flows": flows}}
    with pytest.raises(ScenarioError, match="no process runs the gate 'wait'") as found:
        read(stated)

    assert found.value.key == "job.flows[0].reads"


def test_gates_alone_are_no_job() -> None:
    tasks = [{"name": "a", "time": "0 s", "gate": True}]
    stated = {**STATED, "job": {**STATED["job"], "tasks": tasks, "flows": []}}
    with pytest.raises(ScenarioError, match="at least one task that is no gate"):
        read(stated)


@pytest.mark.emulation
def test_gates_over_sockets(tmp_path: Path) -> None:
    from emu.emulation.coordinator import RunSettings, emulate

    experiment = prepare(read(STATED))
    problem, realization = experiment.problem, experiment.realization
    settings = RunSettings(time_scale=0.1, deadline=60.0)
    run = emulate(problem, "oes", settings, realization, log=tmp_path / "agent.log")

    assert {*run.statistics} == {"a", "b"}
    assert simulate(problem, realization).makespan == 12.0
    assert run.schedule.makespan == pytest.approx(12.0, rel=0.01)
    assert audit(run.schedule, tolerance=0.1).passed
