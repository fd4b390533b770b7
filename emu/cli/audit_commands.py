"""``emu audit``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated

import typer

from emu.analysis.audit import audit as audit_schedule
from emu.cli.app import app
from emu.cli.options import JsonTarget, emit
from emu.errors import DataError, ExpectationMissed, ScenarioError
from emu.report import audit_table, terminal
from emu.runs.recorded_run import load_run
from emu.runs.result_file import read_result
from emu.units import DURATION, RATIO, format_duration

if TYPE_CHECKING:
    from emu.problem import Schedule

#: Seconds by which a simulated time may be off: rounding.
ROUNDING = 1e-6
#: Wall seconds by which an emulated time may be off. Senders lead or lag their fluid
#: by a few ms: at most 7 ms among 387 flows of 23 processes on two busy cores.
PUNCTUALITY = 0.01


@app.command()
def audit(
    result: Annotated[
        Path, typer.Argument(metavar="RUN", help="Run directory or result file.")
    ],
    tolerance: Annotated[
        str | None,
        typer.Option(
            help="How far times may be off, e.g. 5 ms; default is 1 us in a simulation "
            "and 10 ms of wall time in a run."
        ),
    ] = None,
    relative: Annotated[
        str, typer.Option(help="How far bytes and rates may be off, e.g. 2 %.")
    ] = "0.0001 %",
    json_target: JsonTarget = None,
) -> None:
    """Check a schedule, simulated or emulated, against the paper's (5)-(14)."""
    try:
        stated = None if tolerance is None else DURATION.parse(tolerance)
        share = RATIO.parse(relative)
    except ValueError as error:
        raise ScenarioError(str(error), file="--tolerance or --relative") from error
    name, schedule, usual = _read(result)
    allowed = usual if stated is None else stated
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
            f"\n{name}: {verdict} (5)-(14) to within "
            f"{format_duration(allowed)} and {share:.2g}"
        )
    if not report.passed:
        raise ExpectationMissed(
            f"{len(report.violations)} violations, first: {report.violations[0]}"
        )


def _read(path: Path) -> tuple[str, Schedule, float]:
    """Return name and schedule of a run or result, and how far its times may be off."""
    directory = path if path.is_dir() else path.parent
    whole = path.is_dir() or path.name == "result.json"
    if not (whole and (directory / "problem.json").exists()):
        scenario, schedule = read_result(path)
        return scenario.name, schedule, ROUNDING
    run = load_run(directory)
    if run.emulated is None:
        raise DataError("; ".join(run.missing), path=str(directory))
    emulation = run.manifest.get("emulation", {})
    time_scale = float(emulation.get("time_scale", 1.0))
    return run.name, run.emulated, PUNCTUALITY / time_scale
