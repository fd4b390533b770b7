"""The bound and the gap of a run, as numbers and in words."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emu.analysis.optimality_gap import optimality, optimality_line
from emu.problem import Cluster, Job, Machine, Placement, Problem, Realization, Task
from emu.report.run_tables import headline
from emu.report.terminal import terminal
from emu.testing import two_machine_example
from tests.report.drawn_run import write_run

if TYPE_CHECKING:
    from pathlib import Path

ONE_TASK = Problem(
    Cluster((Machine("m", 1.0, 1.0),)), Job((Task("t", "t"),), (), 2), Placement((0,))
)


def test_the_example_is_as_short_as_can_be() -> None:
    found = optimality(*two_machine_example(10), "oes", 115.0)
    assert found["bound"] == pytest.approx(115.0)
    assert found["gap"] == pytest.approx(0.0)
    assert found["theorem1"]["delta"] == 3
    assert found["theorem1"]["kept"] is True
    assert optimality_line(found | {"gap": 0.123}) == (
        "at least 115 s whatever the schedule (NIC m0 in): within 12 %"
    )


def test_a_policy_that_may_starve_a_flow_promises_nothing() -> None:
    found = optimality(*two_machine_example(10), "fifo", 130.0)
    assert found["theorem1"]["kept"] is False
    assert found["gap"] == pytest.approx(130 / 115 - 1)


def test_without_flows_the_critical_path_is_the_bound() -> None:
    found = optimality(
        ONE_TASK, Realization(np.ones((1, 2)), np.zeros((0, 2))), "oes", 2.5
    )
    assert found["gap"] == 0.25
    assert "(critical path): within 25 %" in optimality_line(found)


def test_a_run_of_no_length_has_no_gap() -> None:
    nothing = Realization(np.zeros((1, 2)), np.zeros((0, 2)))
    found = optimality(ONE_TASK, nothing, "oes", 0.0)
    assert found["bound"] == 0.0
    assert found["gap"] is None
    assert optimality_line(found) == ""


def test_the_headline_of_a_run_has_the_line(tmp_path: Path) -> None:
    _, result = write_run(tmp_path)
    result |= {"training": [], "startup": {"memory": 0, "seconds": 1.0}}
    result["verdict"]["remedies"] = []
    found = optimality(*two_machine_example(4), "oes", result["makespan"])
    text = StringIO()
    terminal(text).print(headline(result | found))
    assert optimality_line(found) in " ".join(text.getvalue().split())
