"""Answers with figures that a test states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from emu.experiment.draw import Draw
from emu.experiment.question import Answer, Question, ask
from emu.experiment.variants import Candidate
from emu.prediction.analysis.throughput import Speed
from emu.scenario import load


@cache
def _golden() -> Answer:
    return ask(load("golden"))


def answer_of(
    makespans: Mapping[int, float],
    row: str = "",
    rate: float | None = None,
    **figures: Any,
) -> Answer:
    """Return an answer of such makespans and seeds per second; more figures by name."""
    golden = _golden()
    draws = {
        seed: Draw(golden.scenario, seconds, Speed(1.0, rate), None, ())
        for seed, seconds in makespans.items()
    }
    question = Question(golden.question.scenario, row)
    found = replace(golden, question=question, draws=draws)
    vars(found).update({"rounding": 0.0, **figures})
    return found


def candidate_of(
    placement: str, policy: str, makespans: Mapping[int, float], **figures: Any
) -> Candidate:
    """Return a row of a comparison with such makespans, and figures as `answer_of`."""
    return Candidate(placement, policy, answer_of(makespans, **figures))
