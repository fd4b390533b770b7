"""The moves table against plain simulation."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

import emu
from emu.prediction.analysis.explanation import Explanation
from emu.prediction.analysis.task_moves import (
    TaskMoves,
    task_moves,
    write_placement,
)
from emu.prediction.analysis.what_if import Change
from emu.prediction.simulation import simulate
from emu.problem import (
    CapacityChange,
    Cluster,
    Edge,
    Job,
    Link,
    Machine,
    Placement,
    Problem,
    Realization,
    Route,
    Task,
)
from emu.report.explanation_tables import explanation_tables, placement_text
from emu.report.terminal import terminal
from emu.scenario import Experiment
from emu.scenario.scenario_file import loads

TESTBED = Path(__file__).parents[3] / "scenarios" / "testbed_products.yaml"


@pytest.fixture(scope="module")
def placed() -> Experiment:
    return emu.place(emu.load(TESTBED, ["placement.policy=distdgl"]))


@pytest.fixture(scope="module")
def explanation(placed: Experiment) -> Explanation:
    return emu.explain(placed)


@pytest.fixture(scope="module")
def moves(explanation: Explanation) -> TaskMoves:
    return explanation.moves


def test_the_moves_lead_from_one_placement_to_the_best(
    placed: Experiment, moves: TaskMoves
) -> None:
    job, cluster = placed.problem.job, placed.problem.cluster
    at = dict(placed.problem.machine_of_task)
    before = moves.before

    assert before == placed.simulate().makespan
    assert moves.steps
    for step in moves.steps:
        for move in step.near.moves:
            for task in job.units[move.process]:
                assert at[job.tasks[task].name] == move.source
                at[job.tasks[task].name] = move.destination
        assert step.problem.machine_of_task == at
        named = [(keys["from"], keys["to"]) for keys in step.to_json()["moves"]]
        assert named == [(move.source, move.destination) for move in step.near.moves]
        assert step.near.placement.violations(job, cluster) == []
        again = simulate(step.problem, placed.realization, placed.policy).makespan
        assert again == step.makespan
        assert step.gain == before - again
        before = again
    assert moves.makespan < 0.95 * moves.before


def test_no_move_can_be_left_out(placed: Experiment, moves: TaskMoves) -> None:
    """Whoever stays where he was makes the run longer, or the placement impossible."""
    job, cluster = placed.problem.job, placed.problem.cluster
    last = moves.steps[-1].problem.placement
    moved = [move.process for step in moves.steps for move in step.near.moves]

    for process in moved:
        machine_of = list(last.machine_of)
        for task in job.units[process]:
            machine_of[task] = placed.problem.placement.machine_of[task]
        without = Placement(tuple(machine_of))
        if not without.violations(job, cluster):
            problem = Problem(cluster, job, without)
            length = simulate(problem, placed.realization, placed.policy).makespan
            assert length > moves.makespan


def test_the_placement_can_be_pasted(moves: TaskMoves) -> None:
    best = moves.steps[-1]
    text = placement_text(best)
    section = YAML(typ="safe").load(text)["placement"]
    again = emu.place(emu.load(TESTBED, {"placement": section}))

    assert section == write_placement(best.problem)
    assert again.problem.placement == best.problem.placement
    assert again.simulate().makespan == best.makespan


SEVERAL = """
cluster: {machines: [{name: m, count: 2, nic: 80 Mbit/s}]}
jobs:
  - name: early
    job: &job
      system: custom
      iterations: 1
      tasks: [{name: s, time: 1 s}, {name: d, time: 2 s}]
      flows: [{from: s, to: d, volume: 40 MB}]
  - name: late
    release: 1 s
    job: *job
"""
#: All ways to place several jobs badly.
BADLY: dict[str, dict[str, Any]] = {
    "one by one": {
        "jobs[0].placement": {"policy": "explicit", "tasks": {"s": "m0", "d": "m1"}},
        "jobs[1].placement": {"policy": "explicit", "tasks": {"s": "m1", "d": "m0"}},
    },
    "together": {
        "place_jobs": "joint",
        "joint_cost": "weighted",
        "jobs[1].weight": 3,
        "placement": {
            "policy": "explicit",
            "tasks": {"early/s": "m0", "early/d": "m1", "late/s": "m1", "late/d": "m0"},
        },
    },
}
BADLY["for the later end"] = {
    key: value
    for key, value in BADLY["together"].items()
    if key not in {"joint_cost", "jobs[1].weight"}
}


@pytest.mark.parametrize("together", BADLY)
def test_each_of_several_jobs_states_where_it_stands(together: str) -> None:
    """A `placement` of all was refused where jobs are placed one by one."""
    scenario = loads(SEVERAL, BADLY[together])
    stated = emu.place(scenario)
    best = emu.explain(stated).moves.steps[-1]
    assert best.problem.placement != stated.problem.placement

    edit = best.to_json()["edit"]
    assert edit is not None
    again = emu.place(emu.load(scenario, edit))
    assert again.problem.placement == best.problem.placement
    assert again.simulate().makespan == best.makespan


@pytest.mark.parametrize("together", BADLY)
def test_the_placement_of_several_jobs_can_be_pasted(together: str) -> None:
    """Keys of jobs that are placed together were left beside it, and refused."""
    stated = loads(SEVERAL, BADLY[together])
    best = emu.explain(stated).moves.steps[-1]

    file = stated.model_dump(mode="json", by_alias=True, exclude_unset=True)
    del file["job"]  # the stand-in for all of them
    pasted = YAML(typ="safe").load(placement_text(best))
    for item, lines in zip(file["jobs"], pasted.pop("jobs"), strict=True):
        assert item["name"] == lines["name"]
        item.update(lines)
    again = emu.place(loads(json.dumps(file | pasted)))
    assert again.problem.placement == best.problem.placement
    assert again.simulate().makespan == best.makespan


def step_of(edit: Any, *names: str) -> Any:
    """Return as much of a step as its text takes: its edit, and names of jobs."""
    job = SimpleNamespace(job_names=names)
    return SimpleNamespace(edit=edit, problem=SimpleNamespace(job=job))


def test_places_fill_lines_of_74_characters() -> None:
    """Sections come in the order of the edit, tasks in that of the job."""
    tasks = {f"task-{number}": "machine-1" for number in (9, 1, 5, 7, 3)}
    edit = {
        "job.machines": ["machine-1", "machine-0"],
        "placement": {"policy": "explicit", "tasks": tasks},
    }
    assert placement_text(step_of(edit, "")).splitlines() == [
        "job:",
        "  machines: [machine-1, machine-0]",
        "placement:",
        "  policy: explicit",
        "  tasks: {task-9: machine-1, task-1: machine-1, task-5: machine-1, task-7: ",
        "      machine-1, task-3: machine-1}",
    ]


def test_each_job_has_its_lines_below_its_name() -> None:
    place = {"policy": "explicit", "tasks": {"s": "m1"}}
    edit = {
        "place_jobs": "sequential",
        "placement": None,
        "jobs[1].weight": None,
        "jobs[0].placement": place,
        "jobs[1].placement": place,
    }
    assert placement_text(step_of(edit, "early", "late")).splitlines() == [
        "jobs:",
        "- name: early",
        "  placement:",
        "    policy: explicit",
        "    tasks: {s: m1}",
        "- name: late",
        "  weight: null",
        "  placement:",
        "    policy: explicit",
        "    tasks: {s: m1}",
        "place_jobs: sequential",
        "placement: null",
    ]
    assert placement_text(step_of(None, "early", "late")) == ""


def test_names_that_yaml_takes_for_values_are_pasted_in_quotes() -> None:
    """A task called 1 was pasted as a number, which no task is called."""
    scenario = loads("""
cluster: {machines: [{name: m, count: 2, nic: 80 Mbit/s}]}
job:
  system: custom
  iterations: 1
  tasks: [{name: "1", time: 1 s}, {name: "null", time: 2 s}]
  flows: [{from: "1", to: "null", volume: 40 MB}]
placement: {policy: explicit, tasks: {"1": m0, "null": m1}}
""")
    best = emu.explain(scenario).moves.steps[-1]
    pasted = YAML(typ="safe").load(placement_text(best))

    assert pasted == {"placement": write_placement(best.problem)}
    assert set(pasted["placement"]["tasks"]) == {"1", "null"}


def _shown(explanation: Explanation, tmp_path: Path) -> str:
    with (tmp_path / "shown.txt").open("w+") as shown:
        terminal(shown).print(explanation_tables(explanation))
        shown.seek(0)
        return shown.read()


def test_explain_begins_with_the_moves(
    explanation: Explanation, tmp_path: Path
) -> None:
    text = _shown(explanation, tmp_path)
    moves = explanation.moves
    share = 100 * (1 - moves.makespan / moves.before)

    first = f"These {moves.count} moves: {share:.2g} % shorter, "
    assert text.startswith(first)
    assert text.index("Which tasks should move?") < text.index("Why this long")
    assert text.index("Why this long") < text.index("What would help after these moves")
    assert any(move["why"] for move in explanation.to_json()["moves"])


def test_the_best_placement_is_what_simulate_finds(
    placed: Experiment, explanation: Explanation
) -> None:
    found = explanation.moves.makespan
    searched = emu.simulate(emu.place(placed.scenario, "best")).makespan

    assert found == pytest.approx(searched, rel=1e-5), (
        "moves that add nothing are left out"
    )


def test_where_no_move_helps_one_line_says_so(tmp_path: Path) -> None:
    best = {"placement": {"policy": "best"}, "expect": None}
    explanation = emu.explain(emu.load("golden", best))

    assert _shown(explanation, tmp_path).startswith("No better placement was found")
    assert not explanation.improvements_then


def test_the_relieved_link_is_named_by_what_it_can_carry_in_the_whole_run() -> None:
    slower = CapacityChange(1.0, "b in", 1.0)  # as fast as "a out" until then
    cluster = Cluster(
        (Machine("a", 8.0, 8.0), Machine("b", 8.0, 8.0)), (), (), (slower,)
    )
    job = Job((Task("s", "x"), Task("t", "x")), (Edge(0, 1),), 1)
    run = Realization(np.zeros((2, 1)), np.full((1, 1), 20.0))
    base = Change("", "", Problem(cluster, job, Placement((0, 1))), run, "oes")

    (best,) = task_moves(base).steps

    assert best.gain == pytest.approx(13.0)
    assert best.why == "b's NIC no longer receives the bytes of x -> x"


def test_the_relieved_link_is_told_by_the_kind_of_which_it_has_less() -> None:
    """Small bytes leave a, which still sends the big ones; b in has most of others."""
    machines = (
        Machine("a", 9.0, 8.0),
        Machine("b", 120.0, 130.0),
        Machine("c", 900.0, 1000.0),
    )
    tasks = (
        Task("big", "big"),
        Task("sink", "sink"),
        Task("small", "small"),
        Task("end", "end"),
        Task("other", "other"),
    )
    edges = (Edge(0, 1), Edge(2, 3), Edge(4, 1))
    job = Job(tasks, edges, 1)
    volumes = np.array([[100.0], [60.0], [2000.0]])
    run = Realization(np.zeros((5, 1)), volumes)
    problem = Problem(Cluster(machines), job, Placement((0, 1, 0, 1, 2)))
    base = Change("", "", problem, run, "oes")

    (step,) = task_moves(base, stated((0, 1, 0, 0, 2))).steps

    assert step.why == "a's NIC no longer sends the small to end"


def test_a_relieved_link_between_machines_carries_less() -> None:
    """The link of 2 B/s is the narrowest; NICs of 8 B/s are spared as many bytes."""
    machines = (Machine("a", 8.0, 8.0), Machine("b", 8.0, 8.0))
    cluster = Cluster(machines, (Link("wan", 2.0),), (Route((0,), (1,), ("wan",)),))
    job = Job((Task("s", "x"), Task("t", "y")), (Edge(0, 1),), 1)
    run = Realization(np.zeros((2, 1)), np.full((1, 1), 20.0))
    base = Change("", "", Problem(cluster, job, Placement((0, 1))), run, "oes")

    (step,) = task_moves(base, stated((0, 0))).steps

    assert step.gain == 10.0
    assert step.why == "link wan no longer carries the x to y"


def pairs(second: float) -> Change:
    """Return two pairs that send 80 B and so many over links of their own of 8 B/s."""
    machines = tuple(Machine(name, 8.0, 8.0) for name in "abcd")
    tasks = tuple(Task(name, "x") for name in ("s", "t", "u", "v"))
    job = Job(tasks, (Edge(0, 1), Edge(2, 3)), 1)
    run = Realization(np.zeros((4, 1)), np.array([[80.0], [second]]))
    problem = Problem(Cluster(machines), job, Placement((0, 1, 2, 3)))
    return Change("", "", problem, run, "oes")


def test_what_gains_alone_moves_first() -> None:
    """The longer pair from 10 to 5 s, then the other; either is no gain before it."""
    steps = task_moves(pairs(40.0)).steps

    assert [step.gain for step in steps] == [5.0, 5.0]
    moved = [{move.process for move in step.near.moves} for step in steps]
    assert moved[0] <= {"s", "t"}
    assert moved[1] <= {"u", "v"}


def test_what_gains_only_together_moves_at_once() -> None:
    (step,) = task_moves(pairs(80.0)).steps
    assert step.gain == 10.0
    assert len(step.near.moves) > 1


@pytest.mark.parametrize(("faster", "steps"), [(1 + 1e-6, 0), (1 + 1e-4, 1)])
def test_what_is_shorter_by_rounding_is_no_advice(
    faster: float, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machine c is so much faster than a; where it is best is found by others."""
    nics = {"a": 8.0, "b": 80.0, "c": 8.0 * faster}
    machines = tuple(Machine(name, speed, speed) for name, speed in nics.items())
    job = Job((Task("s", "x"), Task("t", "x")), (Edge(0, 1),), 1)
    run = Realization(np.zeros((2, 1)), np.full((1, 1), 80.0))
    problem = Problem(Cluster(machines), job, Placement((0, 1)))
    found = SimpleNamespace(placement=Placement((2, 1)))
    module = importlib.import_module("emu.prediction.analysis.task_moves")
    monkeypatch.setattr(module, "best_placement", lambda *_, **__: found)

    assert len(task_moves(Change("", "", problem, run, "oes")).steps) == steps


def on_machines(names: str, *slowness: dict[str, float]) -> tuple[Cluster, Job]:
    """Return machines of 8 B/s, and a task each that is slower on some of them."""
    machines = tuple(Machine(name, 8.0, 8.0) for name in names)
    tasks = tuple(
        Task(f"t{number}", "x", slowness=slow) for number, slow in enumerate(slowness)
    )
    return Cluster(machines), Job(tasks, (), 1)


def stated(placement: tuple[int, ...], **more: Any) -> Any:
    """Return a search that finds this placement, and orders no rings."""

    def best(_: Problem, _reference: Realization) -> Placement:
        return Placement(placement)

    known = {
        "reorder_rings": lambda problem: problem,
        "content_of": " to ".join,
        "standing": lambda problem: {"placement": problem.machine_of_task},
    }
    return SimpleNamespace(**{"best": best} | known | more)


def test_what_moves_takes_the_time_of_its_new_machine() -> None:
    """Three seconds on b are one on a; rings are put in order anew."""
    cluster, job = on_machines("ab", {"a": 1.0, "b": 3.0})
    problem = Problem(cluster, job, Placement((1,)))
    run = Realization(np.full((1, 1), 3.0), np.zeros((0, 1)))

    def reorder(moved: Problem) -> Problem:
        return replace(moved, job=replace(moved.job, settings={"ring": "anew"}))

    search = stated((0,), reorder_rings=reorder)
    (step,) = task_moves(Change("", "", problem, run, "oes"), search).steps

    assert (step.makespan, step.gain) == (1.0, 2.0)
    assert step.problem.job.settings == {"ring": "anew"}


def test_of_tasks_that_are_alike_those_stay_that_can() -> None:
    """Two on b, which are slow there, and one of them on a: only the other moves."""
    slow = {"a": 1.0, "b": 3.0, "c": 1.0}
    cluster, job = on_machines("abc", slow, slow)
    problem = Problem(cluster, job, Placement((0, 1)))
    run = Realization(np.array([[1.0], [3.0]]), np.zeros((0, 1)))

    moves = task_moves(Change("", "", problem, run, "oes"), stated((2, 0)))

    assert (moves.count, moves.makespan) == (1, 1.0)


def test_without_a_budget_all_moves_are_one_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each simulation takes of it, also that of the placement that was found."""
    module = importlib.import_module("emu.prediction.analysis.task_moves")
    monkeypatch.setattr(module, "MOST_TRIED", 1)

    (step,) = task_moves(pairs(40.0), stated((0, 0, 2, 2))).steps
    assert step.gain == 10.0


def test_what_gains_by_rounding_alone_stays() -> None:
    """The second task would be faster by a millionth, the first three times as fast."""
    cluster, job = on_machines(
        "abcd", {"a": 3.0}, {"a": 9.0, "b": 9.0, "c": 1.0 + 1e-6}
    )
    problem = Problem(cluster, job, Placement((0, 2)))
    run = Realization(np.array([[3.0], [1.0 + 1e-6]]), np.zeros((0, 1)))

    moves = task_moves(Change("", "", problem, run, "oes"), stated((1, 3)))

    assert moves.count == 1
    assert moves.makespan == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (99.5, "b's NIC no longer receives the x to y"),
        (98.0, "b's NIC receives 98 % less of the x to y"),
        (60.0, "b's NIC receives 60 % less of the x to y"),
    ],
)
def test_the_relieved_link_is_told_by_how_much_less_it_has(
    size: float, words: str
) -> None:
    """100 B come into b from a and c; those from a stay within b."""
    machines = tuple(
        Machine(name, speed, 10 * speed)
        for name, speed in zip("abc", (9.0, 8.0, 7.0), strict=True)
    )
    tasks = Task("s", "x"), Task("t", "x"), Task("r", "y")
    job = Job(tasks, (Edge(0, 2), Edge(1, 2)), 1)
    problem = Problem(Cluster(machines), job, Placement((0, 2, 1)))
    run = Realization(np.zeros((3, 1)), np.array([[size], [100.0 - size]]))

    base = Change("", "", problem, run, "oes")
    (step,) = task_moves(base, stated((1, 2, 1))).steps

    assert step.why == words
