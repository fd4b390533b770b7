"""``emu audit``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import Annotated

import typer

from emu.cli.app import app
from emu.cli.options import JsonTarget, emit
from emu.errors import ExpectationMissed, ScenarioError
from emu.report import audit_table, terminal
from emu.scenario import read_result
from emu.schedule import audit as audit_schedule
from emu.units import DURATION, RATIO, format_duration


@app.command()
def audit(
    result: Annotated[
        Path, typer.Argument(metavar="RUN", help="Run directory or result file.")
    ],
    tolerance: Annotated[
        str, typer.Option(help="How far times may be off, e.g. 5 ms.")
    ] = "1 us",
    relative: Annotated[
        str, typer.Option(help="How far bytes and rates may be off, e.g. 2 %.")
    ] = "0.0001 %",
    json_target: JsonTarget = None,
) -> None:
    """Check a schedule, simulated or emulated, against the paper's (5)-(14)."""
    try:
        allowed, share = DURATION.parse(tolerance), RATIO.parse(relative)
    except ValueError as error:
        raise ScenarioError(str(error), file="--tolerance or --relative") from error
    scenario, schedule = read_result(result)
    report = audit_schedule(schedule, tolerance=allowed, relative=share)
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
            f"\n{scenario.name}: {verdict} (5)-(14) to within "
            f"{format_duration(allowed)} and {share:.2g}"
        )
    if not report.passed:
        raise ExpectationMissed(
            f"{len(report.violations)} violations, first: {report.violations[0]}"
        )
