"""Costs of attempts that ended, as people read them."""

from __future__ import annotations

from emu.experiment.attempts import Ended, recovery_of
from emu.report.facts import run_facts
from emu.report.html.page import headline


def test_restarts_are_told_with_their_costs_and_culprits() -> None:
    ended = [Ended(0, 20, 6.0, 4.0, 0.25, 2.25, "process w0 was killed by SIGKILL")]
    content = {"makespan": 10.0, **recovery_of(ended, 10.0, 9.5)}
    told = [(fact.label, fact.value, fact.note) for fact in run_facts(content)]
    lines = [" ".join(row) for row in told]
    (whole,) = [line for line in lines if line.startswith("with restarts")]
    assert "18.25 s" in whole
    labels = [label for label, _, _ in told]
    assert labels.index("with restarts") < labels.index("emulated makespan")
    assert any("of the last attempt, from iteration 20 on" in line for line in lines)
    page = headline(content).partition("<details")
    assert "18.25 s" in page[0]
    assert "18.25 s" not in page[2]
    assert "simulated 17.75 s of the last attempt alone" in whole
    assert "lost in 1: 2.25 s recovery, 4 s again" in whole
    assert "recovery is as stated" in whole
    assert any("20: process w0 was killed by SIGKILL" in line for line in lines)
    assert not any("restart" in " ".join(map(str, f)) for f in run_facts({}))
