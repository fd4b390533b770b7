"""``tools/hostile trials``: what it prints of trials, and of one."""

from __future__ import annotations

import re
import sys

import pytest

from emu.testing.trials import Trial, Trials
from tools.attacks import trials


def test_outcomes_are_counted_and_one_seed_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["trials", "--count", "5", "--seed", "100"])
    assert trials.main() == 0
    said = capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["trials", "--count", "1", "--seed", "102"])
    assert trials.main() == 0
    alone = capsys.readouterr().out

    assert re.fullmatch(r"5 trials, 0 bad, \d+ per CPU-s: \{.*\}\n", said)
    assert alone.startswith("seed 102: Faults(seed=102, ")


def test_a_bad_seed_is_told_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def complaining(self: Trials, seed: int) -> Trial:
        trial = original(self, seed)
        trial.complaints += ["too blue"] if seed == 1 else []
        return trial

    original = Trials.run
    monkeypatch.setattr(Trials, "run", complaining)
    monkeypatch.setattr(sys, "argv", ["trials", "--count", "3"])

    assert trials.main() == 1
    said = capsys.readouterr().out
    assert "seed 1: Faults(" in said
    assert "  ! too blue" in said
    assert "3 trials, 1 bad" in said
