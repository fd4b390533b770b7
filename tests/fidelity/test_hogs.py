"""Hogs die with whoever started them, and end with their condition."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests import draws
from tests.fidelity.neighbours import CONDITIONS, Condition, Stopper, hogging
from tools.trials.trial import Trial

ROOT = Path(__file__).parents[2]
KINDS = ("busy", "bursts", "faults", "paging")
#: Starts a hog as the tool does, says its process id, and waits.
TOOL = """
import sys
from argparse import Namespace
from pathlib import Path
from tests.fidelity.neighbours import Condition, hogging
with hogging(Condition(({kind!r},)), Path({scratch!r})) as hogs:
    print(hogs[0].pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.emulation
@pytest.mark.untimed
@pytest.mark.parametrize("kind", draws.rarely_but(2, KINDS))
def test_a_hog_dies_with_a_tool_that_was_killed(kind: str, tmp_path: Path) -> None:
    code = TOOL.format(kind=kind, scratch=str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as tool:
        assert tool.stdout is not None
        hog = psutil.Process(int(tool.stdout.readline()))
        assert hog.is_running()
        tool.send_signal(signal.SIGKILL)

    _, alive = psutil.wait_procs([hog], timeout=20)
    for each in alive:
        each.kill()
    assert alive == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.emulation
@pytest.mark.untimed
def test_hogs_end_with_their_condition(tmp_path: Path) -> None:
    with hogging(Condition(("busy", "busy")), tmp_path) as hogs:
        assert all(hog.is_running() for hog in hogs)

    assert not any(hog.is_running() for hog in hogs)


@pytest.mark.emulation
@pytest.mark.untimed
def test_a_hog_that_does_not_begin_is_an_error(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="unheard"),
        hogging(Condition(("unheard",)), tmp_path),
    ):
        pass


def test_conditions_name_kinds_of_hogs() -> None:
    assert {kind for c in CONDITIONS.values() for kind in c.hogs} == set(KINDS)


class Stoppable:
    """Hears signals."""

    def __init__(self, heard: list[int]) -> None:
        self.send_signal = heard.append


def test_a_stopped_process_is_continued_when_the_run_ends_first() -> None:
    heard: list[int] = []
    stopper = Stopper(np.random.default_rng(0), wall=0.0)
    stopper._process, stopper._name = Stoppable(heard), "emu:w0"  # type: ignore[assignment]
    stopper.began(0.0)
    while not stopper.story:
        pass
    stopper.end()

    assert heard == [signal.SIGSTOP, signal.SIGCONT]
    assert stopper.story.startswith("emu:w0 0.")


def test_a_run_that_never_began_stops_nobody() -> None:
    stopper = Stopper(np.random.default_rng(0), wall=1.0)
    stopper.end()

    assert stopper.story == ""


def _row(
    replay_error: float, trust: str = "trusted", bound: float = 0.02, **more: Any
) -> Trial:
    name = more.pop("condition", "calm")
    stated: dict[str, Any] = {
        "makespan_error": replay_error,
        "trust": trust,
        "bound": bound,
    } | more
    case = f"drawn-{len(stated)}{replay_error}@{name}/0"
    return Trial(case, "oes", 8, 2, 1.0, 1.0, replay_error=replay_error, **stated)


ROWS = [
    _row(0.001),
    _row(-0.005, "degraded"),
    _row(0.0, makespan_error=0.05, trust="untrusted", bound=0.06),
    _row(0.04, condition="busy-1"),
    _row(float("nan"), "failed", condition="busy-1"),
]


def test_a_run_is_off_by_the_worse_of_its_two_errors() -> None:
    assert [row.worst_error for row in ROWS[:3]] == [0.001, 0.005, 0.05]
