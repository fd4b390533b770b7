"""Arguments and options that several commands share, and their output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from emu.cli.app import argument, option
from emu.errors import ExpectationMissed, ScenarioError
from emu.host.files import check_writable, write_atomic
from emu.units import DURATION, Quantity


def _target(context: typer.Context, target: str | None) -> str | None:
    """Return the target of ``--json``; ``-`` for what standard output goes to."""
    try:
        # /dev/stdout, say, is standard output too: written as a file it would be
        # replaced.
        status = os.stat(target or "")  # noqa: PTH116
        if os.path.samestat(status, os.fstat(sys.stdout.fileno())):
            return "-"
    except (OSError, ValueError):  # a file that is not there yet
        pass
    # What takes minutes would be lost at the end for a folder that is not there.
    if target not in (None, "", "-"):
        # Both are eager where a command makes their folder: known here in any order.
        made = context.params.get("write") or context.params.get("runs")
        check_writable(Path(target), made)
    return target


def _once(overrides: list[str] | None) -> list[str] | None:
    """Return the overrides of ``--set``; one key has one value."""
    if not overrides:
        return overrides
    # Here: commands that read no scenario answer in 0.1 s.
    from emu.scenario.overrides import split_override  # noqa: PLC0415

    keys = [split_override(text)[0] for text in overrides]
    for key in keys:
        # The second value would win without a word.
        if key and keys.count(key) > 1:
            problem = "has two values: write it once"
            raise ScenarioError(problem, file=f"--set {key}")
    return overrides


ScenarioFile: TypeAlias = Annotated[
    Path,
    argument("FILE", "Scenario (YAML), workload (JSON), or NAME of a shipped one."),
]
Overrides: TypeAlias = Annotated[
    list[str] | None,
    option(
        "--set KEY=VALUE",
        "Override a key, e.g. job.iterations=5.",
        ...,
        callback=_once,
    ),
]
JsonTarget: TypeAlias = Annotated[
    str | None,
    option(
        "--json OUT",
        "Write the result to a file; - prints it instead.",
        ...,
        callback=_target,
    ),
]
Jobs: TypeAlias = Annotated[
    int, option("N", "Processes at a time; 0 is one for each core.", ..., min=0)
]
RunCode: TypeAlias = Annotated[
    bool, option("--run-code", "Run rules and models of others that a run names.", ...)
]
Bound: TypeAlias = Annotated[
    bool,
    option("--bound", "Look for what other placements leave to gain at most.", ...),
]
BoundTime: TypeAlias = Annotated[
    str, option("TIME", "The same, for so long at most; else 10 s.", ...)
]


def seconds(text: str, option: str, quantity: Quantity = DURATION) -> float:
    """Return the time that an option states, seconds; or another quantity.

    Raises ScenarioError when it is none.
    """
    try:
        return quantity.parse(text)
    except ValueError as error:
        raise ScenarioError(str(error), file=option) from error


def bound_seconds(text: str, *, bound: bool) -> float | None:
    """Return for how long ``--bound`` looks at most; None where it is not asked for.

    Raises ScenarioError when ``--bound-time`` is no time.
    """
    if not (text or bound):
        return None
    return seconds(text or "10 s", "--bound-time")


def stated_options(context: typer.Context) -> list[str]:
    """Return the options that the command line has, as ``--seeds``, in their order."""
    names = []
    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        if source is not None and source.name == "COMMANDLINE":
            names.append(parameter.opts[0])
    return names


def split_words(words: str) -> list[str]:
    """Return the words between the commas of an option."""
    return [word.strip() for word in words.split(",") if word.strip()]


def emit(target: str | None, content: object) -> bool:
    """Write ``content`` as JSON to the target of ``--json``.

    Returns whether tables may still be printed: not beside JSON on standard output.

    Raises DataError when the file cannot be written.
    """
    if target is None:
        return True
    # Without an indent C writes it; with one Python does, many times as slowly. NaN is
    # no JSON, and other readers refuse it.
    text = json.dumps(content, indent=None, allow_nan=False)
    if target == "-":
        typer.echo(text)
        return False
    write_atomic(target, text + "\n")
    return True


def judge_simulated(unchecked: str, missed: Sequence[str]) -> None:
    """Print what only a run can check, ``unchecked`` of `emu.experiment.expectations`.

    Raises ExpectationMissed with what a simulation ``missed``.
    """
    if unchecked:
        typer.echo(unchecked, err=True)
    if missed:
        raise ExpectationMissed("; ".join(missed))
