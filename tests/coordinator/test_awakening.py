"""Who is woken: senders of flows that waited, and nobody else."""

from __future__ import annotations

import numpy as np

from emu.coordinator.awakening import Awakening
from emu.scheduling import Decisions
from emu.scheduling.scheduler import Lines
from emu.testing import two_machine_example

PROBLEM, _ = two_machine_example(3)
JOB = PROBLEM.job
#: An edge, the task at its source, and that task's process.
EDGE = 0
SOURCE = JOB.edges[EDGE].source
PROCESS = JOB.tasks[SOURCE].process_name


def decided(iteration: int, rate: float) -> Decisions:
    """Return one new line of `EDGE`."""
    return Decisions(
        tasks=[],
        flows=[],
        lines=Lines(
            np.array([EDGE]),
            np.array([iteration]),
            np.array([0.0]),
            np.array([rate]),
        ),
    )


def test_a_flow_that_starts_with_its_task_end_wakes_nobody() -> None:
    awakening = Awakening(PROBLEM)
    awakening.task_ended(SOURCE, 3.0)

    assert awakening.due(decided(0, 5.0), 3.0) == {}


def test_a_flow_that_waited_wakes_its_sender_once() -> None:
    awakening = Awakening(PROBLEM)
    awakening.task_ended(SOURCE, 3.0)

    assert awakening.due(decided(0, 5.0), 4.0) == {PROCESS: [EDGE]}
    assert awakening.due(decided(0, 7.0), 5.0) == {}
    assert awakening.due(decided(1, 7.0), 6.0) == {PROCESS: [EDGE]}


def test_a_flow_that_was_stopped_wakes_its_sender_when_it_goes_on() -> None:
    awakening = Awakening(PROBLEM)
    awakening.task_ended(SOURCE, 3.0)

    assert awakening.due(decided(0, 5.0), 3.0) == {}
    assert awakening.due(decided(0, 0.0), 4.0) == {}
    assert awakening.due(decided(0, 5.0), 5.0) == {PROCESS: [EDGE]}
