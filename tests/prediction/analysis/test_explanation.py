"""An explanation adds up, and its improvements are what simulating says."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pytest

import emu
from emu.prediction.analysis.critical_path import (
    ELSEWHERE,
    Cause,
    ChainLink,
    Drift,
    critical_path,
)
from emu.prediction.analysis.explanation import (
    Explanation,
    apart_rows,
    cause_rows,
    explain,
)
from emu.prediction.analysis.link_load import LinkContention
from emu.prediction.simulation import makespan, simulate
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Outages,
    Placement,
    Problem,
    Realization,
    Task,
)
from emu.report.explanation_tables import explanation_tables
from emu.report.terminal import terminal
from emu.runs.recorded_run import realization_of
from emu.testing import reference, two_machine_example
from tests.prediction.analysis.chains import cases, distorted
from tests.report.recorded import schedules


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    emulated, _ = schedules()
    return explain(emulated, realization_of(emulated), "oes", emulated=True)


@pytest.mark.parametrize("case", cases())
def test_causes_and_parts_close(case: tuple[Problem, Realization]) -> None:
    emulated = distorted(simulate(*case))
    measured = realization_of(emulated)
    found = explain(emulated, measured, "oes", emulated=True, helpful=False).to_json()
    small = 1e-3 * found["makespan"] + 1e-12

    causes = sum(row["seconds"] for row in found["causes"])
    parts = sum(row["seconds"] for row in found["apart"]["parts"])
    assert causes == pytest.approx(found["makespan"], abs=small)
    assert parts == pytest.approx(
        found["makespan"] - found["replayed_makespan"], abs=small
    )


def test_a_run_is_explained_beside_its_replay_and_what_deaths_added() -> None:
    """Task a takes 2 s for 1 in the simulation, the flow 4 s, and b 3 s."""
    machines = Machine("m0", 80.0, 10.0), Machine("m1", 70.0, 60.0)
    job = Job((Task("a", "x"), Task("b", "y")), (Edge(0, 1),), 1)
    problem = Problem(Cluster(machines), job, Placement((0, 1)))
    sizes = np.array([[40.0]])
    run = Realization(np.array([[1.0], [3.0]]), sizes)
    died = Outages(7.0, 2.0)
    schedule = simulate(problem, Realization(np.array([[2.0], [3.0]]), sizes))
    replay = replace(simulate(problem, run), outages=died)

    found = explain(schedule, run, "oes", emulated=True, helpful=False, outages=died)
    assert found.simulated is not None
    assert found.simulated.outages == died
    content = found.to_json()
    names = [(row["what"], row["port"]) for row in content["chain"]]
    assert names == [("a", ""), ("a->b", "m0 out"), ("b", "")]
    causes = {row["what"]: row["seconds"] for row in content["causes"]}
    assert causes == {"x": 2.0, "x -> y": 4.0, "y": 3.0}
    assert content["ports"] == [{"port": "m0 out", "seconds": 4.0}]
    assert content["apart"]["seconds"] == 1.0
    assert (found.improvements, found.moves.steps) == ((), ())

    again = explain(
        schedule,
        run,
        "oes",
        emulated=True,
        helpful=False,
        outages=died,
        replayed=replay,
    )
    assert again.simulated is replay


def test_json_is_the_chain(explanation: Explanation) -> None:
    content = json.loads(json.dumps(explanation.to_json(), allow_nan=False))

    assert content["version"] == 1
    assert content["chain"][0]["start"] == 0.0
    assert content["chain"][-1]["end"] == content["makespan"]
    by_port = {row["port"]: row["seconds"] for row in content["ports"]}
    held = [row for row in content["causes"] if row["port"]]
    assert sum(by_port.values()) == pytest.approx(sum(row["seconds"] for row in held))


def test_every_improvement_is_confirmed(explanation: Explanation) -> None:
    """The compiled simulator for all, the slow one for those it can resolve."""
    kinds = set()
    for one in explanation.improvements:
        change = one.change
        kinds.add(change.kind)
        again = makespan(change.problem, change.realization, change.policy)
        assert again == one.makespan
        if not change.what.endswith("endless"):
            out = reference.run(change.problem, change.realization, change.policy)
            slow = max(out.task_end.values())
            assert slow == pytest.approx(one.makespan, rel=1e-9), change.what
        assert one.gain == pytest.approx(explanation.replayed_makespan - again)
    assert kinds == {
        "network",
        "compute",
        "bytes",
        "policy",
        "window",
    }


@pytest.mark.parametrize(
    ("emulated", "again", "rest"),
    [
        (True, None, {"attempts that ended": 5.0}),
        (False, None, {"done again, and what follows": 5.0}),
        (False, 3.0, {"done again": 3.0, "what follows takes longer": 2.0}),
        (False, 5.0 + 1e-14, {"done again": 5.0 + 1e-14}),
        (False, 5.5, {"done again": 5.5, "what follows goes faster": -0.5}),
    ],
)
def test_what_deaths_add_is_recovery_and_a_rest(
    *, emulated: bool, again: float | None, rest: dict[str, float]
) -> None:
    """A run's schedule is its last attempt, a simulated one the job without deaths."""
    problem, run = two_machine_example(2)
    died = replace(simulate(problem, run), outages=Outages(7.0, 2.0))
    explanation = explain(
        died, run, "oes", emulated=emulated, helpful=False, again=again
    )

    causes = explanation.to_json()["causes"]
    rows = [row for row in causes if row["cause"] == "deaths"]
    seconds = {row["what"]: row["seconds"] for row in rows}
    assert seconds == {"recovery": 2.0, **rest}


def test_a_death_that_outlasts_a_slow_spell_makes_what_follows_faster() -> None:
    """The job recovers for 5 s, and misses the 4 s in which its machine is slow."""
    tasks = [{"name": "w", "time": "100 ms", "pin": "m0"}]
    text = {
        "cluster": {"machines": [{"count": 1, "nic": "10 MB/s"}]},
        "job": {"system": "custom", "iterations": 10, "tasks": tasks},
        "on_failure": "restart",
        "recovery": "5 s",
        "events": [
            {"at": "0.45 s", "kill": "w"},
            {"at": "0.6 s", "slow": "m0", "by": 50, "for": "4 s"},
        ],
    }
    found = emu.explain(emu.loads(json.dumps(text)), helpful=False)

    seconds = {row["what"]: row["seconds"] for row in found.death_rows()}
    assert seconds["done again"] == pytest.approx(0.45)
    assert seconds["what follows goes faster"] < 0


def test_slots_are_named_with_their_machine() -> None:
    """Two workers share the one gpu of m1; no task waits for that of m0."""
    tasks = [
        {"name": f"w{n}", "time": "1 s", "slot": "gpu", "pin": f"m{(n + 1) // 2}"}
        for n in range(3)
    ]
    job = {"system": "custom", "iterations": 2, "tasks": tasks}
    machine = {"count": 2, "nic": "1 Gbit/s", "slots": {"gpu": 1}}
    text = {"cluster": {"machines": [machine]}, "job": job}
    schedule = emu.simulate(emu.loads(json.dumps(text)))
    rows = cause_rows(schedule.problem, critical_path(schedule))

    waited = {row["pool"]: row["seconds"] for row in rows if row["cause"] == "slot"}
    assert waited == {"gpu of m1": 3.0}


def test_a_job_that_is_pinned_is_not_placed_anew() -> None:
    pins = {"cluster.machines": [{"name": "m", "count": 2, "nic": "10 B/s"}]}
    job = {
        "system": "custom",
        "iterations": 1,
        "tasks": [{"name": f"t{i}", "time": "1 s", "pin": f"m{i}"} for i in range(2)],
        "flows": [{"from": "t0", "to": "t1", "volume": "10 B"}],
    }
    found = emu.explain(
        emu.load("golden", pins | {"job": job, "placement": None, "expect": None})
    )

    assert not found.moves.steps
    assert "machine" not in {one.change.kind for one in found.improvements}


def test_tables_fit_a_terminal(explanation: Explanation) -> None:
    out = io.StringIO()
    terminal(out).print(explanation_tables(explanation))
    text = out.getvalue()

    assert max(map(len, text.splitlines())) <= 100
    for title in (
        "Why this long",
        "Ports on the chain",
        "Emulated minus simulated",
        "What would help",
    ):
        assert title in text
    assert "sampler -> worker" in text


def test_of_many_nics_the_busiest_are_tried_and_the_others_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a NIC half as fast, m1 has to receive for twice as long."""
    for name in ("explanation", "what_if"):
        monkeypatch.setattr(f"emu.prediction.analysis.{name}.NICS", 1)
    slower = ["cluster.machines.m1.nic=5 B/s", "expect=null"]
    experiment = emu.place(emu.load("golden", slower))
    run = experiment.simulate(), experiment.realization
    found = explain(*run, "oes", emulated=False)

    whats = [one.change.what for one in found.improvements]
    tried = {what.split()[2] for what in whats if what.startswith("NIC of")}
    assert tried == {"m1"}
    assert found.notes == ("NICs of 1 machines that are less busy were not tried",)


def test_what_is_tried_is_told() -> None:
    told: list[str] = []
    found = emu.explain(emu.load("golden"), watch=told.append)

    assert told[0] == "moves of tasks"
    names = [gain.change.what for gain in found.improvements]
    # Two changes at once follow from what each has brought.
    alone = {name for name in names if " and " not in name}
    assert len(alone) > 5
    assert alone <= {*told}


def test_what_was_apart_is_named_by_its_size_of_either_sign() -> None:
    """Waits of the simulation outside of this chain are no part of it."""
    problem, _ = two_machine_example(1)
    work = ChainLink(Cause.COMPUTE, 0.0, 1.0, task=problem.job.index("w0"), iteration=0)
    drifts = (
        Drift(Cause.COMPUTE, work, 0.75),
        Drift(Cause.GAP, replace(work, cause=Cause.GAP), -3.0),
        Drift(ELSEWHERE, work, 2.0),
        Drift(Cause.COMPUTE, work, 0.25),
    )

    rows = [
        (row["cause"], row["what"], row["seconds"])
        for row in apart_rows(problem, drifts)
    ]
    assert rows == [
        ("gap", "before worker", -3.0),
        (str(ELSEWHERE), "", 2.0),
        ("compute", "worker", 1.0),
    ]


@pytest.mark.parametrize(("beside", "port"), [(0, "m0 out"), (1, "m1 in")])
def test_a_bottleneck_gives_each_of_its_flows_the_least(beside: int, port: str) -> None:
    """m0 sends at 10 B/s; m1 receives at 15 B/s, which another flow may halve."""
    machines = (
        Machine("m0", 50.0, 10.0),
        Machine("m1", 15.0, 60.0),
        Machine("m2", 40.0, 30.0),
    )
    tasks = tuple(Task(name, "x") for name in "abcd")
    job = Job(tasks, (Edge(0, 1), Edge(2, 3)), 1)
    problem = Problem(Cluster(machines), job, Placement((0, 1, 2, 1)))
    run = Realization(np.zeros((4, 1)), np.array([[30.0], [90.0 * beside]]))
    schedule = simulate(problem, run, "maxmin")

    end = float(schedule.flow_end[0, 0])
    found = LinkContention(schedule).bottleneck(0, 0.0, end)
    assert problem.links[found].name == port
