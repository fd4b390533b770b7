"""Times of attempts that hold each other: planted faults are named."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from emu.experiment.attempt_checks import _is_near, _own_faults, check_attempts
from emu.experiment.attempts import Ended
from emu.problem import Kill

SCALE = 2.0
FIRST = Ended(
    first_iteration=0,
    next_iteration=2,
    ran=6.5,
    again=1.0,
    detection=0.25,
    recovery=3.0,
    error="w0 was killed",
    killed=True,
    clock=(100.0, 113.0, 113.25),
)
SECOND = replace(
    FIRST,
    first_iteration=2,
    next_iteration=3,
    ran=4.0,
    began=9.5,
    killed=False,
    clock=(120.0, 128.0, 128.25),
)


def said(*ended: Ended, began: float = 16.5) -> list[str]:
    emulation = SimpleNamespace(stated_time_scale=SCALE)
    scenario = SimpleNamespace(emulation=emulation)
    job = SimpleNamespace(kills=(Kill(6.4, "w0", ("w0",)),), scenario=scenario)
    last = SimpleNamespace(began=began)
    checks = check_attempts([*ended], cast("Any", job), cast("Any", last))
    count, violations = checks["attempts"]
    assert count == len(ended)
    return [violation.sentence for violation in violations]


def test_sound_attempts_pass() -> None:
    assert said(FIRST, SECOND) == []
    assert check_attempts([], cast("Any", None), cast("Any", None)) == {}


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        # 3 % shorter, by a code that is wrong alike in all that follows.
        ({"ran": 6.305}, {"began": 9.305}, "6.5 by the clock of its host"),
        # An edit that moved the clock as well: before the kill that ended it.
        (
            {"ran": 6.305, "clock": (100.39, 113.0, 113.25)},
            {"began": 9.305},
            "was killed after 6.4",
        ),
        ({"ran": 6.305}, {}, "attempt 1 did not begin at 9.305 s"),
        ({"detection": 0.2}, {}, "was noticed after 0.2 s"),
        ({"recovery": 2.9}, {}, "attempt 1 did not begin at 9.4 s"),
        ({}, {"ran": 3.88}, "attempt 1 ran for 3.88 s, 4 by the clock"),
    ],
)
def test_a_time_that_was_moved_is_named(
    first: dict[str, Any], second: dict[str, Any], words: str
) -> None:
    moved = replace(SECOND, **second)
    began = moved.began + moved.ran + moved.recovery
    found = said(replace(FIRST, **first), moved, began=began)
    assert any(words in sentence for sentence in found), found


def test_an_attempt_ends_with_the_first_kill_that_comes_in_it() -> None:
    """Kills come 2, 9 and 12 s into the job, of which 2 s came before it began."""
    attempt = replace(FIRST, began=4.0, ran=5.0, clock=())
    kills = [Kill(time, "w0", ("w0",)) for time in (12.0, 2.0, 9.0)]
    assert [*_own_faults(attempt, kills, SCALE)] == []
    early = replace(attempt, ran=4.9)
    (fault,) = _own_faults(early, kills, SCALE)
    assert fault == "ran for 4.9 s, and was killed after 5"
    # Rounding is no fault, and who was not killed may end at any time.
    assert [*_own_faults(replace(attempt, ran=5.0 - 4e-9), kills, SCALE)] == []
    assert [*_own_faults(replace(early, killed=False), kills, SCALE)] == []
    # Where an iteration says when, nobody knows; nor where none is left.
    at_iteration = Kill(math.inf, "w1", ("w1",))
    assert [*_own_faults(early, [*kills, at_iteration], SCALE)] == []
    assert [*_own_faults(early, kills[1:2], SCALE)] == []
    # What died as it began has no time of its own.
    at_once = Kill(4.0, "w0", ("w0",))
    assert [*_own_faults(early, [at_once], SCALE)] == []


@pytest.mark.parametrize(
    ("found", "expected", "is_near"),
    [
        (1e6 + 9e-4, 1e6, True),
        (1e6 + 2e-3, 1e6, False),
        (1e-3 + 9e-10, 1e-3, True),
        (1e-3 - 2e-9, 1e-3, False),
        (-1e6, 1e6, False),
    ],
)
def test_rounding_is_a_share_of_a_time_and_a_nanosecond_at_least(
    found: float,
    expected: float,
    is_near: bool,  # noqa: FBT001
) -> None:
    assert _is_near(found, expected) == is_near


def test_a_sign_before_run_time_0_is_none_of_the_time_that_it_ran() -> None:
    attempt = replace(SECOND, ran=0.0, clock=(130.0, 129.0, 131.5), detection=2.5)
    assert [*_own_faults(attempt, [], SCALE)] == []
    (fault,) = _own_faults(replace(attempt, detection=2.4), [], SCALE)
    assert fault == "was noticed after 2.4 s, not by that clock"
