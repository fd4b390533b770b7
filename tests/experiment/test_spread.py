"""Work over forked processes: equal results, errors as results, and a clean end."""

from __future__ import annotations

import os
import signal
from contextlib import closing

import pytest

from emu.errors import DataError, EmulatorError, RunError
from emu.experiment.spread import spread


def _square(n: int) -> int:
    if n == 3:
        raise DataError("has no 3", path="squares")
    return n * n


@pytest.mark.parametrize("jobs", [1, 3])
def test_every_piece_is_done_once_whatever_the_processes(jobs: int) -> None:
    results = dict(spread(_square, 7, jobs))
    error = results.pop(3)
    assert isinstance(error, EmulatorError)
    assert str(error) == "squares: has no 3"
    assert results == {n: n * n for n in range(7) if n != 3}


def test_pieces_are_spread_and_their_processes_end_with_who_reads() -> None:
    seen = []
    with closing(spread(lambda _: os.getpid(), 9, 2)) as results:
        for _, pid in results:
            assert isinstance(pid, int)
            seen.append(pid)
            if len({*seen}) == 2:
                break
    assert os.getpid() not in seen
    for pid in {*seen}:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_group_is_for_who_reads(number: signal.Signals) -> None:
    """A worker that took SIGTERM printed its trace above the line of the command."""

    def outlive(piece: int) -> int:
        os.kill(os.getpid(), number)
        return piece

    assert dict(spread(outlive, 3, 2)) == {0: 0, 1: 1, 2: 2}


def test_a_killed_process_and_a_mistake_end_all() -> None:
    with pytest.raises(RunError, match=r"piece \d was killed"):
        [*spread(lambda _: os.kill(os.getpid(), signal.SIGKILL), 2, 2)]
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        [*spread(lambda n: n / 0, 2, 2)]
