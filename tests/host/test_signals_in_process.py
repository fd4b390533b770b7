"""Handlers of a command, called in turn by a process that takes no signal itself."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from emu.host import first_moments, interruption
from emu.host.interruption import (
    Interrupted,
    die_with_parent,
    one_line_at_a_signal,
)


class Signals:
    """Handlers and timers that a command asks of the system."""

    SIG_IGN = signal.SIG_IGN
    SIG_DFL = signal.SIG_DFL
    SIGALRM = signal.SIGALRM
    SIGKILL = signal.SIGKILL
    ITIMER_REAL = signal.ITIMER_REAL
    Signals = signal.Signals

    def __init__(self) -> None:
        self.handlers: dict[int, Any] = {signal.SIGHUP: signal.SIG_IGN}
        self.timers: list[float] = []

    def getsignal(self, number: int) -> Any:
        """Return the handler of a signal."""
        return self.handlers.get(number, signal.SIG_DFL)

    def signal(self, number: int, handler: Any) -> None:
        """Set the handler of a signal."""
        self.handlers[number] = handler

    def setitimer(self, which: int, seconds: float) -> None:
        """Note a timer."""
        assert which == signal.ITIMER_REAL
        self.timers.append(seconds)


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> Signals:
    """Give a command the signals of this test; what it hooks is undone."""
    asked = Signals()
    monkeypatch.setattr(interruption, "signal", asked)
    monkeypatch.setattr("sys.unraisablehook", sys.unraisablehook)
    monkeypatch.setattr("atexit.register", lambda *_: None)
    return asked


def ended(command: Callable[[], None]) -> object:
    """Return what a command ends the process with."""
    with pytest.raises(SystemExit) as caught:
        one_line_at_a_signal(command)
    return caught.value.code


def test_the_first_signal_ends_a_command_whatever_is_raised_after_it(
    signals: Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> None:
        assert signals.handlers[signal.SIGHUP] == signal.SIG_IGN
        with pytest.raises(Interrupted, match="interrupted by SIGTERM"):
            signals.handlers[signal.SIGTERM](signal.SIGTERM, None)
        signals.handlers[signal.SIGINT](signal.SIGINT, None)
        raise KeyError("a consequence")

    assert ended(command) == 130
    assert capsys.readouterr().err == "emu: interrupted by SIGTERM\n"
    assert signals.timers == [5.0]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        assert signals.handlers[number] == signal.SIG_IGN


def test_a_signal_that_python_dropped_is_raised_again(
    signals: Signals,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundredth of a second later; what else is dropped then is its consequence."""
    printed: list[object] = []
    monkeypatch.setattr("sys.__unraisablehook__", printed.append)
    before: Any = SimpleNamespace(exc_value=KeyError())

    def command() -> None:
        sys.unraisablehook(before)
        assert printed == [before]
        try:
            signals.handlers[signal.SIGINT](signal.SIGINT, None)
        except Interrupted as interruption_of_it:
            dropped: Any = SimpleNamespace(exc_value=interruption_of_it)
            sys.unraisablehook(dropped)
        sys.unraisablehook(before)
        assert signals.timers == [5.0, 0.01]
        signals.handlers[signal.SIGALRM](signal.SIGALRM, None)

    assert ended(command) == 130
    assert signals.timers == [5.0, 0.01, 5.0]
    assert printed == [before]
    assert capsys.readouterr().err == "emu: interrupted by SIGINT\n"


def test_a_command_that_goes_on_regardless_is_ended(
    signals: Signals,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def leave(status: int) -> None:
        raise SystemExit(status + 1000)

    monkeypatch.setattr("os._exit", leave)
    discarded: list[bool] = []
    monkeypatch.setattr(
        interruption, "discard_begun_files", lambda: discarded.append(True)
    )

    def command() -> None:
        with pytest.raises(Interrupted):
            signals.handlers[signal.SIGINT](signal.SIGINT, None)
        with pytest.raises(SystemExit, match="1130"):
            signals.handlers[signal.SIGALRM](signal.SIGALRM, None)

    one_line_at_a_signal(command)
    assert discarded == [True]
    assert capsys.readouterr().err == "emu: interrupted by SIGINT\n"


def test_without_a_signal_a_command_ends_by_itself(
    signals: Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise KeyError("a cause")

    def interrupt() -> None:
        raise KeyboardInterrupt

    one_line_at_a_signal(lambda: None)
    with pytest.raises(KeyError, match="a cause"):
        one_line_at_a_signal(fail)
    assert ended(interrupt) == 130
    assert capsys.readouterr().err == "emu: interrupted\n"
    assert signals.timers == []


def test_a_process_whose_parent_has_died_meanwhile_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed: list[tuple[int, int]] = []
    asked: list[tuple[int, int]] = []
    library = SimpleNamespace(prctl=lambda *it: asked.append(it))
    monkeypatch.setattr("os.kill", lambda *it: killed.append(it))
    monkeypatch.setattr("ctypes.CDLL", lambda _: library)
    for parents, expected in (([7, 7], []), ([7, 1], [(os.getpid(), signal.SIGKILL)])):
        rest = iter(parents)
        monkeypatch.setattr("os.getppid", lambda rest=rest: next(rest))
        die_with_parent()
        assert killed == expected
    assert asked == [(1, signal.SIGKILL)] * 2


def test_closed_streams_lead_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of them becomes the first descriptor that is free by itself."""
    done: list[tuple[Any, ...]] = []
    free = iter([5, 2])

    def look(number: int) -> None:
        if number:
            raise OSError(9, "Bad file descriptor")

    fake = SimpleNamespace(
        fstat=look,
        open=lambda *_: next(free),
        devnull="/dev/null",
        O_RDWR=os.O_RDWR,
        dup2=lambda *it: done.append(("dup2", *it)),
        close=lambda it: done.append(("close", it)),
        set_inheritable=lambda *it: done.append(("inherit", *it)),
    )
    monkeypatch.setattr(first_moments, "os", fake)
    monkeypatch.setattr(first_moments, "signal", SimpleNamespace(
        getsignal=lambda _: None, signal=lambda *_: None, SIG_IGN=signal.SIG_IGN,
        SIG_UNBLOCK=0, pthread_sigmask=lambda *_: None,
    ))  # fmt: skip
    monkeypatch.setattr("sys.stdout", SimpleNamespace())
    monkeypatch.setattr("sys.stderr", SimpleNamespace())
    first_moments.begin()

    assert done == [
        *(("dup2", 5, 1), ("close", 5), ("inherit", 1, True)),
        ("inherit", 2, True),
    ]
