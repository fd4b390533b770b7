"""``emu audit``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated

import typer

import emu
import emu.api
from emu.cli.app import app
from emu.cli.options import JsonTarget, emit
from emu.errors import DataError, ExpectationMissed, ScenarioError
from emu.report import audit_table, terminal
from emu.runs.result_file import read_result
from emu.units import DURATION, RATIO, format_duration

if TYPE_CHECKING:
    from emu.problem import Schedule
    from emu.runs.recorded_run import RecordedRun


@app.command()
def audit(
    result: Annotated[
        Path, typer.Argument(metavar="RUN", help="Run directory or result file.")
    ],
    tolerance: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How far times may be off, e.g. 5 ms; default is 1 us in a simulation "
            "and 10 ms of wall time in a run.",
        ),
    ] = None,
    relative: Annotated[
        str, typer.Option(metavar="SHARE", help="How far bytes and rates may be off.")
    ] = "0.0001 %",
    json_target: JsonTarget = None,
) -> None:
    """Check a schedule against the paper's constraints.

    They are (5) to (14) of the DGTP paper. The schedule may be simulated or emulated.
    """
    try:
        stated = None if tolerance is None else DURATION.parse(tolerance)
        share = RATIO.parse(relative)
    except ValueError as error:
        raise ScenarioError(str(error), file="--tolerance or --relative") from error
    name, made = _read(result)
    allowed = emu.api.usual_tolerance(made) if stated is None else stated
    report = emu.audit(made, tolerance=allowed, relative=share)
    content = {
        "tolerance": allowed,
        "relative": share,
        "checked": report.checked,
        "violations": [asdict(violation) for violation in report.violations],
    }
    if emit(json_target, content):
        console = terminal()
        console.print(audit_table(report))
        verdict = "keeps" if report.passed else "breaks"
        console.print(
            f"\n{name}: {verdict} (5)-(14) to within "
            f"{format_duration(allowed)} and {share:.2g}"
        )
    if not report.passed:
        raise ExpectationMissed(
            f"{len(report.violations)} violations, first: {report.violations[0]}"
        )


def _read(path: Path) -> tuple[str, Schedule | RecordedRun]:
    """Return the name of a run or result, and what holds its schedule.

    Raises
    ------
    DataError
        When it cannot be read, or is a run without an emulated schedule.
    """
    directory = path if path.is_dir() else path.parent
    whole = path.is_dir() or path.name == "result.json"
    if not (whole and (directory / "problem.json").exists()):
        scenario, schedule = read_result(path)
        return scenario.name, schedule
    run = emu.load_run(directory)
    if run.emulated is None:
        raise DataError("; ".join(run.missing), path=str(directory))
    return run.name, run
