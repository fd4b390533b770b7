"""Slots that tasks share: golden vectors aside, what goes wrong and what is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emu.errors import PlacementError, ScenarioError, SchedulingError
from emu.prediction.analysis.bounds import bounds, optimality
from emu.prediction.analysis.critical_path import Cause, critical_path
from emu.prediction.analysis.explanation import explain
from emu.prediction.simulation import makespan, simulate
from emu.problem import Schedule
from emu.scenario import load, prepare
from emu.scenario.scenario_file import find_errors
from emu.trust.audit import audit
from tests.golden.cases import cases, problem_of, with_gates
from tests.integration.scenarios import custom, emu, flow, read, written


def thread_pool() -> Schedule:
    (case,) = [case for case in cases("executors") if case.name == "thread_pool"]
    problem, realization = problem_of(case)
    return simulate(problem, realization, record_rates=True)


def test_audit_finds_a_slot_given_twice() -> None:
    schedule = thread_pool()
    assert audit(schedule).passed
    late = schedule.problem.job.index("t4")
    schedule.task_start[late, 0] = 0.5  # two of two slots are taken then

    assert [v.constraint for v in audit(schedule).violations] == ["slots"]
    (found,) = audit(schedule).violations
    assert found.sentence == "pool threads of m of 2 slots is overdrawn at 0.5 s"


def test_audit_finds_who_was_overtaken() -> None:
    """All come to wait at 6 s for their second iteration; t3 gets a slot at 8 s."""
    schedule = thread_pool()
    job = schedule.problem.job
    late, edge = job.index("t1"), job.edge_positions["end->t1"]
    assert schedule.task_start[job.index("t3"), 1] == 8.0
    schedule.flow_end[edge, 0] = schedule.task_start[late, 1] = 6.9

    sentences = [violation.sentence for violation in audit(schedule).violations]
    assert "t1[1] got a slot of threads before a task that came earlier" in sentences


def test_the_chain_names_who_held_the_slot() -> None:
    schedule = thread_pool()
    chain = critical_path(schedule)
    assert chain.seconds == pytest.approx(11.0)
    waited = [link for link in chain.links if link.cause is Cause.SLOT]
    names = [schedule.problem.job.tasks[link.task].name for link in waited]
    assert names
    assert {*names} <= {"t0", "t1", "t2", "t3", "t4"}
    assert {link.pool for link in waited} == {"threads"}
    assert sum(link.seconds for link in waited) > 3


def test_explain_offers_more_slots() -> None:
    (case,) = [case for case in cases("executors") if case.name == "thread_pool"]
    problem, realization = problem_of(case)
    (machine,) = [m for m in problem.cluster.machines if "threads" in m.slots]
    wider = dict(machine.slots, threads=4)
    machines = tuple(
        replace(one, slots=wider) if one is machine else one
        for one in problem.cluster.machines
    )
    cluster = replace(problem.cluster, machines=machines)
    after = makespan(replace(problem, cluster=cluster), realization)

    found = explain(thread_pool(), realization, "oes", emulated=False)
    (more,) = [one for one in found.improvements if one.change.kind == "slots"]
    assert more.change.what == "threads twice as many"
    assert more.makespan == after < found.schedule.makespan
    rows = [row for row in found.to_json()["causes"] if row["pool"]]
    assert {(row["cause"], row["pool"]) for row in rows} == {("slot", "threads of m")}


def test_a_pool_is_a_bound_and_no_theorem_is_claimed() -> None:
    (case,) = [case for case in cases("executors") if case.name == "thread_pool"]
    problem, realization = problem_of(case)
    found = bounds(problem, realization)
    assert found.combined == pytest.approx(21 / 2)  # 21 s of work in two threads
    assert found.binding == "threads of m"
    theorem = optimality(simulate(problem, realization), realization, "oes")
    assert theorem["theorem1"]["kept"] is False


def scenario(*tasks: dict[str, Any], slots: Any = 1) -> dict[str, Any]:
    at = {task["name"]: "m" for task in tasks}
    machine = {"slots": {"gpu": slots}}
    return custom([*tasks], [flow("b", "a2", "0 B")], at, machine=machine)


A2 = {"name": "a2", "frees": "gpu"}


def test_everybody_waits_for_a_slot() -> None:
    """A holds the slot until a2, which waits for b, which waits for the slot."""
    stated = scenario(
        {"name": "a", "takes": "gpu", "frees": "none"}, {"name": "b", "slot": "gpu"}, A2
    )
    experiment = prepare(read(stated))
    with pytest.raises(SchedulingError) as caught:
        simulate(experiment.problem, experiment.realization)

    assert "b wait for a slot of gpu on m, held by a (iteration 0)" in str(caught.value)


@pytest.mark.parametrize(
    ("tasks", "slots", "key", "story"),
    [
        ([{"name": "b", "slot": "gpu"}, {"name": "a2"}], 0,
         "cluster.machines[0].slots.gpu", "found 0, write 1 or more"),
        ([{"name": "b", "slot": "cpu"}, {"name": "a2"}], 1,
         "job.tasks[0].slot", "no machine has slots of 'cpu'"),
        ([{"name": "b"}, A2], 1,
         "job.tasks[1].frees", "no task takes a slot of 'gpu'"),
        ([{"name": "b", "slot": "gpu", "takes": "gpu"}, {"name": "a2"}], 1,
         "job.tasks[0].slot", "slot says both"),
    ],
)  # fmt: skip
def test_slots_that_cannot_be(
    tasks: list[dict[str, Any]], slots: int, key: str, story: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        read(scenario(*tasks, slots=slots))

    assert caught.value.key == key
    assert caught.value.problem.startswith(story)


def test_slots_do_not_multiply(tmp_path: Path) -> None:
    stated = scenario({"name": "a", "slot": "gpu"}, {"name": "b"}, A2)
    ran = emu("simulate", written(stated, tmp_path), cwd=tmp_path)

    assert ran.returncode == 4
    assert "pool gpu of machine m gets 2 slots back from a, a2" in ran.stderr


@pytest.mark.parametrize("policy", ["ifs", "round_robin", "random", "best"])
def test_validation_says_so_too(policy: str, tmp_path: Path) -> None:
    stated = scenario({"name": "a", "slot": "gpu"}, {"name": "b"}, A2)
    stated["placement"] = {"policy": policy}
    file = written(stated, tmp_path)
    (found,) = find_errors(file)
    with pytest.raises(PlacementError) as caught:
        prepare(load(file))

    assert str(caught.value).rpartition(": ")[2] in str(found)
    assert "gets 2 slots back from a, a2" in str(found) or policy == "best"


@pytest.mark.emulation
@pytest.mark.parametrize("name", ["thread_pool", "remote_functions"])
def test_slots_over_sockets(name: str, tmp_path: Path) -> None:
    from emu.emulation.coordinator import RunSettings, emulate
    from tests.emulation.coordinator.emulated import emulable

    (case,) = [case for case in cases("executors") if case.name == name]
    problem, realization = problem_of(case)
    problem = emulable(with_gates(problem, realization), realization)
    settings = RunSettings(time_scale=0.1, byte_scale=20_000.0, deadline=60.0)
    run = emulate(problem, "oes", settings, realization, log=tmp_path / "agent.log")
    assert not {*run.statistics} & {"end"}  # a gate has no process

    simulated = simulate(problem, realization)
    assert run.schedule.makespan == pytest.approx(simulated.makespan, rel=0.02)
    assert audit(run.schedule, tolerance=0.1, relative=0.05).passed
