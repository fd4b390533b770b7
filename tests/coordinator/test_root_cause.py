"""The cause of a failure is told from what follows from it."""

from __future__ import annotations

import itertools

import pytest

from emu.coordinator.peers import Report, Severity, cause, severity_of
from emu.errors import NodeLost, RunError

KILLED = Report(Severity.KILLED, NodeLost("s1 was killed"))
FAILED = Report(Severity.FAILED, RunError("w0 raised"))
GONE = Report(Severity.GONE, NodeLost("s1 closed its connection"))
MISSED = Report(Severity.CONSEQUENCE, NodeLost("w0 misses s1"))


@pytest.mark.parametrize("order", list(itertools.permutations([KILLED, GONE, MISSED])))
def test_death_explains_all(order: tuple[Report, ...]) -> None:
    assert cause(order) is KILLED.error


@pytest.mark.parametrize("order", list(itertools.permutations([FAILED, GONE, MISSED])))
def test_failure_explains_lost_connections(order: tuple[Report, ...]) -> None:
    assert cause(order) is FAILED.error


def test_first_of_equals() -> None:
    second = Report(Severity.FAILED, RunError("w1 raised, too"))

    assert cause([FAILED, second]) is FAILED.error


@pytest.mark.parametrize(
    ("error", "severity"),
    [
        ("NodeLost", Severity.CONSEQUENCE),
        ("TruncatedFrame", Severity.CONSEQUENCE),
        ("MalformedFrame", Severity.FAILED),
        ("ZeroDivisionError", Severity.FAILED),
    ],
)
def test_what_a_process_says_of_itself(error: str, severity: Severity) -> None:
    assert severity_of(error) is severity
