"""What a terminal shows while something is compiled for the first time."""

from __future__ import annotations

import io
from typing import Any

import numba
from numba.core import event
from rich.console import Console

from emu.cli.compile_notice import CompileNotice

njit: Any = numba.njit  # untyped here, as in the product


def shown_while_compiling(*, silent: float, terminal: bool) -> str:
    """Return what is written while two functions are compiled."""
    written = io.StringIO()
    notice = CompileNotice(Console(file=written, force_terminal=terminal), silent)

    inner = njit(lambda value: value + 1)
    outer = njit(lambda value: inner(value) * 2)

    with event.install_listener("numba:compile", notice):
        assert outer(1) == 4
        shown = written.getvalue()
        assert outer(2) == 6  # is compiled: nothing more
    assert written.getvalue() == shown
    return shown


def test_a_terminal_is_told_what_it_waits_for() -> None:
    shown = shown_while_compiling(silent=0, terminal=True)

    assert "compiling once, up to 70 s of CPU time" in shown
    assert shown.endswith("\x1b[2K")  # the bar is taken away


def test_a_moment_of_compiling_is_not_worth_a_word() -> None:
    assert shown_while_compiling(silent=60, terminal=True) == ""


def test_a_log_that_is_closed_fails_nothing() -> None:
    written = io.StringIO()
    notice = CompileNotice(Console(file=written, force_terminal=False), silent=0)
    written.close()

    inner = njit(lambda value: value + 1)
    outer = njit(lambda value: inner(value) * 2)
    with event.install_listener("numba:compile", notice):
        assert outer(1) == 4


def test_a_log_gets_one_line() -> None:
    shown = shown_while_compiling(silent=0, terminal=False)

    assert shown.count("\n") == shown.count("emu warm does it ahead") == 1
