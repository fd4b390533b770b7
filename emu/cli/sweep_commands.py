"""``emu sweep``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import TextColumn, TimeRemainingColumn

from emu.cli.app import app, option
from emu.cli.options import Jobs, Overrides, ScenarioFile, judge_simulated
from emu.cli.progress import progress_bar
from emu.cli.signs_of_life import note_stage
from emu.errors import DataError, EmulatorError, ExpectationMissed, ScenarioError
from emu.experiment import expectations
from emu.experiment.auto_scale import with_scales
from emu.experiment.dry_run import check_ready
from emu.experiment.premises import Premises, premise_line
from emu.experiment.question import ask
from emu.experiment.run_experiment import carry_out, emulation_settings
from emu.experiment.spread import spread, spread_over_ray
from emu.report.comparison import sweep_figure_tables, sweep_table
from emu.report.terminal import terminal
from emu.runs.run_directory import RunDirectory
from emu.runs.sweep_record import SweepRecord
from emu.scenario import load
from emu.scenario.run_sections import ExpectSection
from emu.scenario.variations import Point, variations
from emu.scenario.virtual_training import seeds_seen

if TYPE_CHECKING:
    Figures = dict[str, Any]

#: Figures that a run over sockets alone has.
_ERRORS = ("makespan_error", "replay_error")


@app.command()
def sweep(
    file: ScenarioFile,
    vary: list[str] = option(
        "KEY=A,B,...", "Values of a key; every combination is tried.", ...
    ),
    overrides: Overrides = None,
    seeds: int = option("N", "Seeds of every combination.", 1, min=1),
    out: Path | None = option("DIR", "Directory; default: sweeps/NAME."),
    *,
    emulate: bool = option(
        "--emulate/--simulate", "Over sockets, or simulated.", False
    ),
    jobs: Jobs = 0,
    ray: str = option("ADDRESS", "Ray cluster that simulates the points.", ""),
) -> None:
    """Carry out many variations of a scenario.

    Writes points.jsonl (a line per finished point), points.csv and points.svg. The same
    command goes on after whatever ended it: what is finished is not done again. Points
    that train on other numbers of seeds are ranked by seeds per second.
    """
    changes = overrides or []
    _check_spread(jobs, ray, emulate=emulate)
    points = variations(file, changes, vary, seeds)
    directory = out or Path("sweeps") / points[0].scenario.name
    # Points are written one by one, so that an interrupted sweep goes on.
    record = SweepRecord(directory)
    console = terminal(sys.stderr)
    mode = "simulate"
    carry: Callable[[Point], Figures] = _simulate_point
    if emulate:
        mode = "emulate"
        carry = partial(_emulate_point, runs=directory / "runs")
    failures = run_points(
        points,
        record=record,
        mode=mode,
        carry=carry,
        console=console,
        jobs=1 if emulate else jobs,
        ray=ray,
    )

    expect = _load_expect(file, changes, points[0])
    misses = _find_misses(points, record, mode, expect)
    if misses:
        console.print(*misses, sep="\n")
    keys = [point.key(mode) for point in points]
    table = record.write_table(keys)
    # A record may hold points of another sweep, too, which are not shown.
    if rows := [record.rows[key] for key in keys if key in record.rows]:
        has_target = all(point.scenario.until is not None for point in points)
        _show(points, rows, by_makespan=has_target)
        figure = _draw(points, rows, directory, console, by_makespan=has_target)
        console.print(f"written to {table}{figure}")

    if not emulate:
        judge_simulated(expectations.list_unchecked(expect), [])
    if failures:  # the others are written
        problem = f"{len(failures)} of {len(points)} points failed"
        raise ExpectationMissed(problem)
    if misses:
        problem = f"{len(misses)} of {len(points)} points missed what is expected"
        raise ExpectationMissed(problem)


def _load_expect(file: Path, changes: Sequence[str], point: Point) -> ExpectSection:
    """Return what a file expects; with a point's values where it is wrong without."""
    try:
        return load(file, changes).expect
    except ScenarioError:
        overrides = [f"{key}={value}" for key, value in point.values.items()]
        return load(file, [*changes, *overrides]).expect


def _show(
    points: Sequence[Point], rows: Sequence[Figures], *, by_makespan: bool
) -> None:
    """Print the premises of all points, and their table."""
    windows = {str(point.scenario.job.credit_window) for point in points}
    policies = set()
    premises = []
    for row in rows:
        figures = row["figures"]
        policies.add(str(figures.get("placed_by")))
        # Points that ran over sockets note no premises.
        if "walk" in figures:
            seed = row["values"]["seed"]
            premises_of_point = Premises.from_figures(figures, seed)
            premises.append(premises_of_point)
    console = terminal()
    if premises:
        console.print(premise_line(premises))

    policies.discard("None")
    words_of_windows = ", ".join(sorted(windows))
    words_of_policies = ", ".join(sorted(policies)) or "unknown"
    pins = {name for point in points for name in point.scenario.pins}
    words_of_pins = ""
    # A placement that was stated binds every other policy: all came out alike.
    if pins:
        words_of_pins = f", placement.tasks pins {len(pins)} tasks"
    console.print(
        f"credit window {words_of_windows}, placed by {words_of_policies}"
        f"{words_of_pins}"
    )
    keys = list(points[0].values)
    table = sweep_table(rows, keys, by_makespan=by_makespan)
    console.print(table)
    for figure_table in sweep_figure_tables(rows, keys, by_makespan=by_makespan):
        console.print(figure_table)


def _draw(
    points: Sequence[Point],
    rows: Sequence[Figures],
    directory: Path,
    console: Console,
    *,
    by_makespan: bool,
) -> str:
    """Draw the points; return where, or nothing without matplotlib."""
    try:
        from emu.report.plot_curves import sweep_figure  # noqa: PLC0415
        from emu.report.plot_style import save, style  # noqa: PLC0415
    except (DataError, ImportError) as error:
        console.print(f"points.svg is left out: {error}")
        return ""
    path = directory / "points.svg"
    keys = list(points[0].values)
    with style(dark=False):
        figure = sweep_figure(rows, keys, by_makespan=by_makespan)
        save(figure, path)
    return f" and {path}"


def _check_spread(jobs: int, ray: str, *, emulate: bool) -> None:
    """Raise ScenarioError where an option of where points are computed is idle."""
    if emulate and (jobs > 1 or ray):
        raise ScenarioError("points run one by one, on this host", file="--emulate")
    if ray and jobs:
        problem = "is of this host, and Ray spreads the points: leave one out"
        raise ScenarioError(problem, file="--jobs")


def run_points(
    points: Sequence[Point],
    record: SweepRecord,
    mode: str,
    carry: Callable[[Point], Figures],
    console: Console,
    *,
    jobs: int = 1,
    ray: str = "",
) -> list[EmulatorError]:
    """Carry out the points that ``record`` lacks; return the errors of those that fail.

    ``mode``: ``simulate`` or ``emulate``: part of a point's key. ``jobs``: processes
    that points are spread over, 0 for one per core; ``ray``: the cluster instead.
    """
    missing = [
        point
        for point in points
        if not record.take(point.key(mode), _values(point, mode))
    ]
    total = len(missing)
    if ray:
        results = spread_over_ray(carry, missing, ray)
    else:
        # Forked processes have the points already: a number names the one to do.
        results = spread(lambda index: carry(missing[index]), total, jobs)

    failures: list[EmulatorError] = []
    column = TextColumn("left")
    remaining = TimeRemainingColumn(elapsed_when_finished=False)
    # Closed: processes that compute further points end with this one.
    with closing(results), progress_bar(console, column, remaining) as progress:
        bar = progress.add_task("points", total=total)
        note_stage(f"point 1 of {total}")
        for count, (index, figures) in enumerate(results, start=1):
            point = missing[index]
            if isinstance(figures, EmulatorError):
                failures.append(figures)
                console.print(f"{_name(point)}: {figures}")
            else:
                record.add(point.key(mode), _values(point, mode), figures)
            note_stage(f"point {min(count + 1, total)} of {total}")
            progress.advance(bar)
    return failures


def _values(point: Point, mode: str) -> Figures:
    return {
        **point.values,
        "seed": point.seed,
        "mode": mode,
    }


def _name(point: Point) -> str:
    parts = [f"{key}={value}" for key, value in point.values.items()]
    parts.append(f"seed={point.seed}")
    return ", ".join(parts)


def _simulate_point(point: Point) -> Figures:
    answer = ask(point.scenario)
    _, schedule = answer.first

    # Without prices there is no cost, and no column of it.
    cost = answer.cost or {}
    figures = {
        **answer.figures,
        "samples": answer.seeds_seen,
        "samples_per_second": answer.rate,
        "cost": cost.get("total"),
        "value": cost.get("value"),
    }
    return {
        **_known(figures),
        "flows": len(schedule.flows()),
        "placed_by": point.scenario.placed_by,
        **answer.premises.to_figures(),
    }


def _known(figures: Mapping[str, float | None]) -> Figures:
    return {name: value for name, value in figures.items() if value is not None}


def _find_misses(
    points: Sequence[Point],
    record: SweepRecord,
    mode: str,
    expect: ExpectSection,
) -> list[str]:
    """Return the finished points that miss what is expected, and what.

    Single values are of the scenario as stated: of the point that changes nothing, or
    of every point where that is not among them.
    """
    # A point that an earlier command has finished is judged by this one, too.
    finished_points = [point for point in points if point.key(mode) in record.rows]
    as_stated = [point for point in finished_points if point.unchanged]

    lines = []
    for point in finished_points:
        row = record.rows[point.key(mode)]
        values = _values_of(row["figures"], mode)
        exact = point in as_stated or not as_stated
        misses = expectations.list_misses(expect, values, exact=exact)
        if misses:
            name = _name(point)
            words = "; ".join(misses)
            lines.append(f"{name}: {words}")
    return lines


def _values_of(figures: Mapping[str, Any], mode: str) -> dict[str, Any]:
    """Return the values of a point by the names under which they are expected."""
    values = {key: figures.get(key) for key in ("makespan", "gap", "bytes")}
    # What is expected of a makespan is of the simulation: here the one foreseen.
    if mode == "emulate":
        values |= {key: figures.get(key) for key in (*_ERRORS, "loss")}
        values["emulated"] = values["makespan"]
        values["makespan"] = figures["predicted_makespan"]
        values["accuracy"] = figures.get("test_accuracy")
    return values


def _emulate_point(point: Point, runs: Path) -> Figures:
    check_ready(point.scenario, runs)
    experiment, choice = with_scales(point.scenario)
    directory = RunDirectory.create(point.scenario.name, runs)
    settings = emulation_settings(experiment.scenario)
    result = carry_out(experiment, settings, directory, choice=choice).content

    run_figures = expectations.run_figures(result)
    cost = result.get("cost", {})
    keys = ("makespan", "replayed_makespan", "predicted_makespan", *_ERRORS)
    figures: Figures = {name: result[name] for name in keys}
    figures |= _known(
        {
            "gap": run_figures["gap"],
            "bytes": run_figures["bytes"],
            "loss": run_figures["loss"],
            "samples": seeds_seen(experiment.problem.job),
            "samples_per_second": result["pace"]["samples_per_second"],
            "cost": cost.get("total"),
            "value": cost.get("value"),
        }
    )
    for split, share in result.get("accuracy", {}).items():
        figures[f"{split}_accuracy"] = share
    figures["placed_by"] = point.scenario.placed_by
    figures["run"] = str(directory.path)
    return figures
