"""``emu explain``."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import Annotated

import typer

from emu.analysis.explanation import Explanation
from emu.analysis.explanation import explain as explained
from emu.cli.app import app
from emu.cli.options import JsonTarget, Overrides, emit
from emu.report import terminal
from emu.report.explanation_tables import SHOWN, explanation_tables
from emu.runs.recorded_run import load_run
from emu.scenario import load, prepare


@app.command()
def explain(
    what: Annotated[
        Path, typer.Argument(metavar="RUN|FILE", help="Run directory, or scenario.")
    ],
    overrides: Overrides = None,
    json_target: JsonTarget = None,
    top: Annotated[int, typer.Option(min=0, help="Improvements to show.")] = SHOWN,
    *,
    helpful: Annotated[
        bool,
        typer.Option("--improvements/--no-improvements", help="Say what would help."),
    ] = True,
) -> None:
    """Explain why a run took so long, and what would make it faster.

    A scenario is simulated. For a run directory it also says where emulation and
    simulation parted.
    """
    if what.is_dir():
        explanation = _of_run(what, helpful=helpful)
    else:
        experiment = prepare(load(what, overrides or []))
        explanation = explained(
            experiment.simulate(),
            experiment.realization,
            experiment.policy,
            emulated=False,
            helpful=helpful,
        )
    if emit(json_target, explanation.to_json()):
        terminal().print(explanation_tables(explanation, top))


def _of_run(path: Path, *, helpful: bool) -> Explanation:
    run = load_run(path)
    notes = run.missing
    if run.measured is None and helpful:
        notes += (
            "bytes of handoffs within a machine are not known: those of like flows",
        )
    schedule = run.best
    return explained(
        schedule,
        run.realization,
        run.policy,
        emulated=run.emulated is not None,
        helpful=helpful,
        notes=notes,
    )
