"""The table of several runs of one scenario."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from emu.report.repeats_table import repeats_table
from emu.runs.repeats import Repeats, RunFigures


def shown(*runs: tuple[float, str]) -> str:
    """Return the table of runs of these makespans and verdicts as text."""
    figures = [
        RunFigures(f"runs/{number}", makespan, None, trust)
        for number, (makespan, trust) in enumerate(runs)
    ]
    console = Console(file=StringIO(), width=200)
    console.print(repeats_table(Repeats(tuple(figures), threshold=0.03)))
    file = console.file
    assert isinstance(file, StringIO)
    return " ".join(file.getvalue().split())


def test_trusted_runs_are_counted_and_groups_have_their_own_ends() -> None:
    runs = [(2.0, "trusted"), (2.1, "degraded"), (5.0, "trusted"), (5.3, "untrusted")]
    text = shown(*runs)
    assert "3.55 s median of 4 runs, 2 of them trusted" in text
    assert "2 from 2 s to 2.1 s, 2 from 5 s to 5.3 s" in text


def test_no_further_run_takes_less_than_nothing() -> None:
    text = shown((1.0, "trusted"), (9.0, "trusted"))
    assert "takes 0 us to 93.03 s" in text
