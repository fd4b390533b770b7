"""Two records of one thing, made by two processes or twice, that are moved apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emu.prediction.simulation import simulate
from emu.testing import two_machine_example
from emu.trust.guards import examine
from emu.trust.guards.traffic import clocks
from tests.trust.guards.reported import TIME_SCALE, frames, reported

LAG = 0.01


def logged(schedule: Any, delay: float) -> np.ndarray[Any, Any]:
    """Return rows of a log of what was sent, each so many wall seconds later."""
    rows = []
    for edge, iteration in schedule.flows().tolist():
        last = schedule.flow_end[edge, iteration] + delay / TIME_SCALE
        rows.append([edge, iteration, last, 0.0, 0.0, 0.0])
    return np.array(rows).ravel()


@pytest.mark.parametrize(
    ("delay", "asked", "words"),
    [
        (0.004, 0.03, ""),
        (2 * LAG, -0.115, ""),
        (0.446, 0.0, "by its sender's log"),
        (-0.05, 0.0, "by its sender's log"),
        (0.0, 0.25, "the coordinator asked 0.25 s"),
        (0.0, -0.25, "the coordinator asked 0.25 s"),
    ],
)
def test_a_run_whose_times_were_moved_is_noticed(
    delay: float, asked: float, words: str
) -> None:
    problem, realization = two_machine_example(3)
    schedule = simulate(problem, realization, "oes")
    question = TIME_SCALE * schedule.length + asked
    figures: dict[str, Any] = {"answered": [question, question + 9.0]}
    figures["host_metrics"] = {"loop_lag_max": LAG}
    # Whoever is asked last is asked when the others have answered.
    later = {"answered": [question + 0.6, question + 9.0]}
    evidence = reported(
        schedule,
        statistics={"w0": figures, "g0": later},
        sends=logged(schedule, delay),
    )
    findings = [str(finding) for finding in examine(evidence)]
    found = [text for text in findings if "log" in text or "asked" in text]
    assert bool(found) == bool(words)
    assert words in " ".join(found)


@pytest.mark.parametrize(("delay", "fires"), [(-0.1, False), (0.0, True)])
def test_a_log_is_held_against_what_its_sender_noted(
    delay: float, *, fires: bool
) -> None:
    """Last bytes left 0.1 s of wall time before they came: so says a right log."""
    schedule = simulate(*two_machine_example(3), "oes")
    sent = frames(schedule)
    sent["last"] -= 0.1 / TIME_SCALE
    evidence = reported(schedule, sent=sent, sends=logged(schedule, delay))

    findings = [str(finding) for finding in examine(evidence)]
    assert any("by its sender's log" in text for text in findings) == fires


def test_processes_that_noted_one_of_two_clocks_are_not_compared() -> None:
    """Runs of an earlier emu: nothing is known of the other."""
    schedule = simulate(*two_machine_example(3), "oes")
    for figures in ({"clock": [0.0, 9.0]}, {"answered": [0.0, 9.0]}):
        evidence = reported(schedule, statistics={"w0": figures})
        assert [*clocks(evidence)] == []
