"""The bound and the gap of a run, as numbers and in words."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given

from emu.analysis.bounds import optimality, optimality_line
from emu.problem import Cluster, Job, Machine, Placement, Problem, Realization, Task
from emu.report.facts import headline
from emu.report.terminal import terminal
from emu.simulation import simulate
from emu.testing import two_machine_example
from emu.testing.strategies import problems
from tests.report.drawn_run import write_run

if TYPE_CHECKING:
    from pathlib import Path

ONE_TASK = Problem(
    Cluster((Machine("m", 1.0, 1.0),)), Job((Task("t", "t"),), (), 2), Placement((0,))
)


def example(iterations: int, policy: str = "oes") -> dict[str, Any]:
    problem, realization = two_machine_example(iterations)
    schedule = simulate(problem, realization, policy)
    return optimality(schedule, realization, policy)


def test_the_example_is_as_short_as_can_be() -> None:
    found = example(10)
    assert found["bound"] == pytest.approx(115.0)
    assert found["gap"] == pytest.approx(0.0)
    assert found["theorem1"]["delta"] == 3
    assert found["theorem1"]["delta_seen"] == 3
    assert found["theorem1"]["kept"] is True
    bound, theorem = optimality_line(found | {"gap": 0.123}).splitlines()
    assert bound == "at least 115 s whatever the schedule (m0 in): within 12 %"
    assert theorem == (
        "at most 213 s by Theorem 1 (Delta 3), "
        "213 s by the 3 flows that shared a link at a time"
    )


def test_a_policy_that_may_starve_a_flow_promises_nothing() -> None:
    found = example(10, "fifo")
    assert found["theorem1"]["kept"] is False
    assert "Theorem 1" not in optimality_line(found)


@given(drawn=problems(links=True))
def test_both_certificates_hold(drawn: tuple[Problem, Realization]) -> None:
    """Theorem 1 with the flows of one iteration, and with those that really met."""
    for policy in ("oes", "maxmin"):
        schedule = simulate(*drawn, policy)
        theorem = optimality(schedule, drawn[1], policy)["theorem1"]
        allowed = schedule.makespan * (1 - 1e-9)
        assert theorem["certificate"] >= allowed
        assert theorem["certificate_seen"] >= allowed


def test_without_flows_the_critical_path_is_the_bound() -> None:
    realization = Realization(np.ones((1, 2)), np.zeros((0, 2)))
    schedule = simulate(ONE_TASK, realization)
    schedule.task_end[0, 1] = 2.5
    found = optimality(schedule, realization, "oes")
    assert found["gap"] == 0.25
    assert "(critical path): within 25 %" in optimality_line(found)


def test_a_run_of_no_length_has_no_gap() -> None:
    nothing = Realization(np.zeros((1, 2)), np.zeros((0, 2)))
    found = optimality(simulate(ONE_TASK, nothing), nothing, "oes")
    assert found["bound"] == 0.0
    assert found["gap"] is None
    assert optimality_line(found) == ""


def test_the_headline_of_a_run_has_the_line(tmp_path: Path) -> None:
    _, result = write_run(tmp_path)
    result |= {"training": [], "startup": {"memory": 0, "seconds": 1.0}}
    result["verdict"]["remedies"] = []
    found = example(4)
    text = StringIO()
    terminal(text).print(headline(result | found))
    shown = " ".join(text.getvalue().split())
    assert " ".join(optimality_line(found).split()) in shown
