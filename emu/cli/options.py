"""Arguments and options that several commands share, and their output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from emu.errors import ExpectationMissed, ScenarioError
from emu.files import write_atomic
from emu.units import DURATION

if TYPE_CHECKING:
    from collections.abc import Sequence

ScenarioFile: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Scenario (YAML), workload (JSON), or NAME of a shipped one.",
    ),
]
Overrides: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a key, e.g. job.iterations=5."
    ),
]
JsonTarget: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--json", metavar="OUT", help="Write the result to a file; - prints it instead."
    ),
]


def address(text: str, option: str, *, port: int | None = None) -> tuple[str, int]:
    """Return the host and port that an option states.

    Raises
    ------
    ScenarioError
        When it is no address.
    """
    from emu.network import parse_address  # noqa: PLC0415 - asyncio, uvloop

    try:
        return parse_address(text, port=port)
    except ValueError as error:
        raise ScenarioError(str(error), file=option) from error


def seconds(text: str, option: str) -> float:
    """Return the time that an option states, seconds.

    Raises
    ------
    ScenarioError
        When it is no time.
    """
    try:
        return DURATION.parse(text)
    except ValueError as error:
        raise ScenarioError(str(error), file=option) from error


def listed(words: str) -> list[str]:
    """Return the words between the commas of an option."""
    return [word.strip() for word in words.split(",") if word.strip()]


def emit(target: str | None, content: object) -> bool:
    """Write ``content`` as JSON to the target of ``--json``.

    Returns
    -------
    bool
        Whether tables may still be printed: not beside JSON on standard output.

    Raises
    ------
    DataError
        When the file cannot be written.
    """
    if target is None:
        return True
    text = json.dumps(content, indent=None, allow_nan=False)
    if target == "-":
        typer.echo(text)
        return False
    write_atomic(target, text + "\n")
    return True


def judge_simulated(unchecked: str, missed: Sequence[str]) -> None:
    """Print what only a run can check; raise where a simulation missed an ``expect:``.

    Parameters
    ----------
    unchecked, missed
        Of `emu.experiment.expectations`.

    Raises
    ------
    ExpectationMissed
        With ``missed``.
    """
    if unchecked:
        typer.echo(unchecked, err=True)
    if missed:
        raise ExpectationMissed("; ".join(missed))
