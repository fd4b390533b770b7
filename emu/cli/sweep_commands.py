"""``emu sweep``."""

from __future__ import annotations

import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from emu.cli.app import app
from emu.cli.options import Overrides, ScenarioFile  # noqa: TC001 - typer reads them
from emu.errors import EmulatorError, ExpectationMissed
from emu.experiment.auto_scale import with_scales
from emu.experiment.run_experiment import carry_out, emulation_settings
from emu.report import terminal
from emu.report.comparison import sweep_table
from emu.runs.run_directory import RunDirectory
from emu.runs.sweep_record import SweepRecord
from emu.scenario import load, prepare
from emu.scenario.variations import Point, variations

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    Figures = dict[str, Any]


@app.command()
def sweep(
    file: ScenarioFile,
    vary: Annotated[
        list[str],
        typer.Option(
            metavar="KEY=A,B,...", help="Values of a key; every combination is tried."
        ),
    ],
    overrides: Overrides = None,
    seeds: Annotated[
        int, typer.Option(metavar="N", min=1, help="Seeds of every combination.")
    ] = 1,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Directory; default: sweeps/NAME."),
    ] = None,
    *,
    emulate: Annotated[
        bool, typer.Option("--emulate/--simulate", help="Over sockets, or simulated.")
    ] = False,
) -> None:
    """Carry out many variations of a scenario.

    Writes points.jsonl (a line per finished point), points.csv and points.svg. The same
    command goes on after whatever ended it: what is finished is not done again.
    """
    signal.signal(signal.SIGTERM, _interrupted)
    stated = overrides or []
    points = variations(file, stated, vary, seeds)
    directory = out or Path("sweeps") / load(file, [*stated, "expect=null"]).name
    mode = "emulate" if emulate else "simulate"
    record = SweepRecord(directory)
    carry = partial(_emulated, runs=directory / "runs") if emulate else _simulated
    console = terminal(sys.stderr)
    failures = run_points(points, record, mode, carry, console)
    keys = [point.key(mode) for point in points]
    rows = [record.rows[key] for key in keys if key in record.rows]
    table = record.write_table(keys)
    if rows:
        varied = list(points[0].values)
        windows = {str(point.scenario.job.credit_window) for point in points}
        placed = {str(row["figures"].get("placed_by")) for row in rows} - {"None"}
        terminal().print(
            f"credit window {', '.join(sorted(windows))}, "
            f"placed by {', '.join(sorted(placed)) or 'unknown'}"
        )
        terminal().print(sweep_table(rows, varied))
        _draw(rows, varied, directory / "points.svg")
        console.print(f"written to {table} and {directory / 'points.svg'}")
    if failures:
        raise ExpectationMissed(f"{len(failures)} of {len(points)} points failed")


def run_points(
    points: Sequence[Point],
    record: SweepRecord,
    mode: str,
    carry: Callable[[Point], Figures],
    console: Console,
) -> list[EmulatorError]:
    """Carry out the points that ``record`` lacks; return the errors of those that fail.

    Parameters
    ----------
    mode
        ``simulate`` or ``emulate``: part of a point's key.
    console
        Where progress is drawn. On what is no terminal nothing is drawn.
    """
    failures: list[EmulatorError] = []
    left = [p for p in points if not record.row(p.key(mode), _values(p, mode))]
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        bar = progress.add_task("points", total=len(left))
        for point in left:
            try:
                record.add(point.key(mode), _values(point, mode), carry(point))
            except EmulatorError as error:
                failures.append(error)
                console.print(f"{_name(point)}: {error}")
            progress.advance(bar)
    return failures


def _values(point: Point, mode: str) -> dict[str, Any]:
    return {**point.values, "seed": point.seed, "mode": mode}


def _name(point: Point) -> str:
    parts = [f"{key}={value}" for key, value in point.values.items()]
    return ", ".join([*parts, f"seed={point.seed}"])


def _simulated(point: Point) -> Figures:
    experiment = prepare(point.scenario)
    schedule = experiment.simulate()
    return {
        "makespan": schedule.makespan,
        "flows": len(schedule.flows()),
        "placed_by": point.scenario.placed_by,
    }


def _emulated(point: Point, runs: Path) -> Figures:
    experiment, choice = with_scales(point.scenario)
    directory = RunDirectory.create(point.scenario.name, runs)
    settings = emulation_settings(experiment.scenario)
    result = carry_out(experiment, settings, directory, choice=choice).result
    kept = (
        "makespan",
        "replayed_makespan",
        "predicted_makespan",
        "makespan_error",
        "replay_error",
    )
    figures = {name: result[name] for name in kept}
    figures["placed_by"] = point.scenario.placed_by
    if result["training"]:
        figures["loss"] = result["training"][-1]["loss"]
    figures |= {f"{k}_accuracy": v for k, v in result.get("accuracy", {}).items()}
    return {**figures, "run": str(directory.path)}


def _draw(rows: list[dict[str, Any]], varied: list[str], path: Path) -> None:
    # matplotlib takes half a second to import
    from emu.report.plot_compare import sweep_figure  # noqa: PLC0415
    from emu.report.plot_style import save, style  # noqa: PLC0415

    with style(dark=False):
        save(sweep_figure(rows, varied), path)


def _interrupted(*_: Any) -> None:
    raise KeyboardInterrupt
