"""``emu trials``: what it prints of trials, and of one; and what it refuses."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner, Result

from emu.cli import app
from emu.testing.trials import Trial, Trials

#: Small payloads at a wall time of their own: neither changes what is tried.
QUICK = ["emulation.time_scale=0.02", "emulation.byte_scale=100"]


def call(*words: str) -> Result:
    edits = [word for edit in QUICK for word in ("--set", edit)]
    return CliRunner().invoke(app, ["trials", "golden", *edits, *words])


def test_outcomes_are_counted_and_one_seed_is_told() -> None:
    several, one = call("--count", "5", "--seed", "100"), call("--count", "1")

    assert (several.exit_code, one.exit_code) == (0, 0)
    assert re.fullmatch(r"5 trials from seed 100: \d .*; 0 bad\n", several.output)
    assert one.output.startswith("seed 0: Faults(seed=0, ")
    assert "ended with: " in one.output


def test_programs_get_the_same() -> None:
    content = json.loads(call("--count", "3", "--json", "-").output)

    assert sum(content["outcomes"].values()) == content["trials"] == 3
    assert content["complaints"] == {}


def test_a_bad_seed_is_told_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def complain(self: Trials, seed: int) -> Trial:
        trial = original(self, seed)
        trial.complaints += ["too blue"] if seed == 1 else []
        return trial

    original = Trials.run
    monkeypatch.setattr(Trials, "run", complain)
    done = call("--count", "3")

    assert done.exit_code == 5
    assert "seed 1: Faults(" in done.output
    assert "  ! too blue" in done.output
    assert "emu: 1 of 3 trials are bad: emu trials golden --set" in done.output
    assert "--seed 1 --count 1 shows its log" in done.output


def test_a_job_that_fails_without_faults_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("emu.testing.trials.trial.EXACT", -1.0)
    done = call("--count", "1")

    assert done.exit_code == 5
    assert done.output.startswith("emu: without any fault: its makespan is ")


def test_a_seed_is_no_negative_number() -> None:
    wrong = call("--seed", "-1")

    assert wrong.exit_code == 2
    assert "greater than or equal to 0" in wrong.output
