"""The moves table against plain simulation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from ruamel.yaml import YAML

import emu
from emu.analysis.task_moves import pasted, task_moves
from emu.analysis.what_if import Change
from emu.problem import (
    CapacityChange,
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Realization,
    Task,
)
from emu.report.explanation_tables import explanation_tables, placement_text
from emu.report.terminal import terminal
from emu.simulation import simulate

if TYPE_CHECKING:
    from emu.scenario import Experiment

TESTBED = Path(__file__).parents[2] / "scenarios" / "testbed_products.yaml"


@pytest.fixture(scope="module")
def placed() -> Experiment:
    return emu.place(emu.load(TESTBED, ["placement.policy=distdgl"]))


def _base(placed: Experiment) -> Change:
    return Change("", "", placed.problem, placed.realization, placed.policy)


def test_every_feasible_move_and_swap_of_the_testbed_is_simulated(
    placed: Experiment,
) -> None:
    moves = task_moves(_base(placed))
    best = moves.found[0]

    assert moves.feasible == len(moves.found) == 94
    assert [m.makespan for m in moves.found] == sorted(m.makespan for m in moves.found)
    for move in moves.found[::10]:
        assert (
            move.near.placement.violations(placed.problem.job, placed.problem.cluster)
            == []
        )
        again = simulate(move.problem, placed.realization, placed.policy).makespan
        assert again == move.makespan
    assert {move.process for move in best.near.moves} == {"ps0", "w1"}
    assert best.gain / placed.simulate().makespan > 0.05
    assert best.why.startswith("slow0's NIC no longer sends the mini-batches")


def test_what_is_said_of_the_relieved_link_is_true(placed: Experiment) -> None:
    best = task_moves(_base(placed)).found[0]

    def sent(problem: Problem) -> float:
        """Return the bytes that samplers on slow0 send elsewhere."""
        job, at = problem.job, problem.machine_of_task
        return sum(
            float(placed.realization.volumes[e].sum())
            for e, edge in enumerate(job.edges)
            if job.tasks[edge.source].kind == "sampler"
            and at[job.tasks[edge.source].name] == "slow0"
            and at[job.tasks[edge.destination].name] != "slow0"
        )

    assert sent(placed.problem) > 0
    assert sent(best.problem) == 0


def test_the_placement_can_be_pasted(placed: Experiment) -> None:
    best = task_moves(_base(placed)).found[0]
    text = placement_text(best.problem)
    section = YAML(typ="safe").load(text)["placement"]
    again = emu.place(emu.load(TESTBED, {"placement": section}))

    assert section == pasted(best.problem)
    assert again.problem.placement == best.problem.placement
    assert again.simulate().makespan == best.makespan


def test_explain_begins_with_the_moves(placed: Experiment, tmp_path: Path) -> None:
    explanation = emu.explain(placed)
    with (tmp_path / "shown.txt").open("w+") as shown:
        terminal(shown).print(explanation_tables(explanation))
        shown.seek(0)
        text = shown.read()

    assert text.index("Which task should move?") < text.index("Why this long")
    assert "6.2 % shorter" in text
    assert explanation.to_json()["moves"][0]["why"]


def test_where_no_move_helps_one_line_says_so(tmp_path: Path) -> None:
    best = {"placement": {"policy": "best"}, "expect": None}
    explanation = emu.explain(emu.load("golden", best))
    with (tmp_path / "shown.txt").open("w+") as shown:
        terminal(shown).print(explanation_tables(explanation))
        shown.seek(0)

        assert "moves and swaps of tasks helps" in shown.read()


def test_the_relieved_link_is_named_by_what_it_can_carry_in_the_whole_run() -> None:
    slower = CapacityChange(1.0, "b in", 1.0)  # as fast as "a out" until then
    cluster = Cluster(
        (Machine("a", 8.0, 8.0), Machine("b", 8.0, 8.0)), (), (), (slower,)
    )
    job = Job((Task("s", "x"), Task("t", "x")), (Edge(0, 1),), 1)
    run = Realization(np.zeros((2, 1)), np.full((1, 1), 20.0))
    base = Change("", "", Problem(cluster, job, Placement((0, 1))), run, "oes")

    best = task_moves(base).found[0]

    assert best.gain == pytest.approx(13.0)
    assert best.why == "b's NIC no longer receives the bytes of x -> x"
