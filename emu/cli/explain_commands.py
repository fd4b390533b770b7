"""``emu explain``."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import Annotated

import typer

import emu
from emu.analysis.optimality_gap import placement_gap, placement_line
from emu.cli.app import app
from emu.cli.options import JsonTarget, Overrides, emit, seconds
from emu.report import terminal
from emu.report.explanation_tables import SHOWN, explanation_tables
from emu.report.job_tables import print_placing


@app.command()
def explain(
    what: Annotated[
        Path, typer.Argument(metavar="RUN|FILE", help="Run directory, or scenario.")
    ],
    overrides: Overrides = None,
    json_target: JsonTarget = None,
    top: Annotated[
        int, typer.Option(metavar="N", min=0, help="Improvements to show.")
    ] = SHOWN,
    bound_time: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="How long to look for a lower bound over all placements at most.",
        ),
    ] = "5 s",
    *,
    helpful: Annotated[
        bool,
        typer.Option("--improvements/--no-improvements", help="Say what would help."),
    ] = True,
) -> None:
    """Explain why a run takes so long, and what would help.

    A scenario is simulated. For a run directory it also says where emulation and
    simulation parted.
    """
    limit = seconds(bound_time, "--bound-time")
    known = emu.load_run(what) if what.is_dir() else emu.load(what, overrides or [])
    if isinstance(known, emu.Scenario):
        window: object = known.job.credit_window
        pins = known.pins
        placed = emu.place(known)
        placing = placed.placing
        explanation = emu.explain(placed, helpful=helpful)
    else:
        window, pins = known.result.get("credit_window"), {}
        placing = known.result.get("placing", {})
        explanation = emu.explain(known, helpful=helpful)
    console = terminal(quiet=json_target == "-")
    console.print(explanation_tables(explanation, top, window, pins))
    if placing:
        console.print()
        print_placing(placing, console)
    content, schedule = explanation.to_json(), explanation.schedule
    content["placing"] = placing
    if helpful:
        gap = placement_gap(
            schedule.problem,
            explanation.realization,
            explanation.replayed_makespan,
            seconds=limit,
        )
        console.print(f"\n{placement_line(gap)}")
        content |= gap
    emit(json_target, content)
