"""Figures of runs beside those that were measured elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from rich.table import Table

from emu.array_types import Floats
from emu.errors import DataError
from emu.interchange.measurement import Measurement, TimeUnit
from emu.prediction.analysis.throughput import pace, pipeline_depth
from emu.problem import Schedule
from emu.problem.fields.suggestion import nearest
from emu.report.many_runs import schedules_of
from emu.report.terminal import plain_table
from emu.runs.intervals import interval
from emu.runs.recorded_run import RecordedRun
from emu.runs.repeats import Agreement, iteration_lengths
from emu.runs.result import Result, port_rows, relative_error
from emu.runs.two_series import compare_lengths
from emu.units import format_duration, format_number, format_ratio, format_size

#: Share by which a run may be off that agrees, where it states none.
_THRESHOLD = 0.03
#: A file of milliseconds has values about 1000 times a run's: within this factor.
_NEAR = 3.0
_DIGITS = 5


def measurement_rows(
    measurement: Measurement, runs: Sequence[RecordedRun]
) -> Iterator[Result]:
    """Yield every figure measured elsewhere beside that of every schedule of the runs.

    ``error`` is of the schedule against the measurement, None where that is 0. Of
    iterations there are also the figures of `emu.runs.two_series.Likeness`.
    Raises DataError when a run has no such link, or several jobs, or the times of the
    file are about 1000 times those of the run, or 1000 times that, and nobody has
    stated their unit.
    """
    for run in runs:
        for kind, schedule in schedules_of(run).items():
            # A measurement holds names of links, or one series of iteration times.
            figures = _figures_of(schedule, run, measurement)
            for name, values in measurement.values.items():
                spread = interval(values)
                mean = spread.mean
                figure = figures[name]
                error = relative_error(figure, mean) if mean else None
                row: Result = {
                    "run": run.name,
                    "schedule": "virtual" if run.steps else kind,
                    "what": name,
                    "measured": mean,
                    "half": spread.half,
                    "here": figure,
                    "error": error,
                }
                if measurement.unit == "seconds":
                    row |= _likeness_row(measurement, run, schedule)
                yield row


def _figures_of(
    schedule: Schedule, run: RecordedRun, measurement: Measurement
) -> dict[str, float]:
    """Return what a schedule of a run has of what was measured."""
    name = run.name
    if measurement.unit == "seconds":
        if run.steps:
            mean_step = float(np.mean(run.steps))
            return {"iteration": mean_step}
        if "virtual" in run.result:
            problem = f"{name} told no steps: emu virtual --mark names their line"
            raise DataError(problem, path=measurement.path)
        seconds = pace(schedule, None).iteration_seconds
        if seconds is None:
            problem = f"{name} has several jobs, and no iteration of all"
            raise DataError(problem, path=measurement.path)
        return {"iteration": seconds}

    sizes = {row["port"]: row["bytes"] for row in port_rows(schedule)}
    for link in measurement.values:
        if link not in sizes:
            problem = f"{name} has no link {link!r}, {nearest(link, sizes)}"
            raise DataError(problem, path=measurement.path)
    return sizes


def full_iterations(schedule: Schedule) -> Floats:
    """Return the seconds from end to end of the iterations of which `pace` is the mean.

    The first also has the start of the job, and those that fill or drain a pipeline
    are not whole; where no other is left, it is the one time of `pace`.
    """
    depth = pipeline_depth(schedule.problem.job)
    lengths = iteration_lengths(schedule)
    end = len(lengths) - depth
    full = lengths[depth + 1 : end]
    if full.size:
        return full
    return np.array([pace(schedule, None).iteration_seconds])


def _likeness_row(
    measurement: Measurement, run: RecordedRun, schedule: Schedule
) -> Result:
    """Return how alike the iterations are, with the outcome and its reasons."""
    measured = measurement.values["iteration"]
    lengths = full_iterations(schedule)
    if run.steps:
        lengths = np.array(run.steps)
    median = float(np.median(lengths))
    _check_unit(measurement, median, run.name)

    likeness = compare_lengths(measured, lengths.tolist())
    prediction = run.result.get("prediction") or {}
    threshold = float(prediction.get("threshold", _THRESHOLD))
    drift = likeness.drift
    iterations = len(run.steps) or schedule.problem.job.iterations
    own_numbers = (iterations, lengths.size)
    return {
        "rows": len(measured),
        "skipped": measurement.skipped,
        "iterations": iterations,
        "same_number": len(measured) in own_numbers,
        "measured_quartiles": likeness.measured_quartiles,
        "here_quartiles": likeness.quartiles,
        "median_error": likeness.median_error,
        "apart": likeness.apart,
        "apart_by_chance": likeness.chance,
        "largest_gap": likeness.largest_gap,
        "drift": drift.mean if drift else None,
        "drift_half": drift.half if drift else None,
        "outcome": str(likeness.outcome(threshold)),
        "threshold": threshold,
        "reasons": likeness.differences(threshold),
    }


def _check_unit(measurement: Measurement, here: float, name: str) -> None:
    """Raise DataError where times seem to be of a smaller unit, and nobody said so."""
    if measurement.unit_stated or here <= 0:
        return

    times = np.array(measurement.values["iteration"])
    for unit in (TimeUnit.MS, TimeUnit.US):
        ratios = times * unit.seconds / here
        is_near = (ratios > 1 / _NEAR) & (ratios < _NEAR)
        if is_near.all():
            middle = float(np.median(times))
            factor = middle / here
            problem = (
                f"has times about {factor:,.0f} times those of {name} "
                f"({middle:.4g} s, {here:.4g} s): write --unit {unit} or --unit s"
            )
            raise DataError(problem, path=measurement.path)


def measurement_tables(
    measurement: Measurement, runs: Sequence[RecordedRun]
) -> list[Table]:
    """Return a table of links, or one of iterations for each run."""
    title = f"Measured elsewhere: {measurement.path.name}"
    if measurement.unit == "seconds":
        tables = []
        for run in runs:
            title_of_run = f"{title}, beside {run.name}"
            table = _iterations_table(title_of_run, measurement, run)
            tables.append(table)
        return tables

    table = plain_table(
        title, "run", "schedule", "what", ">measured", ">here", ">error"
    )
    for row in measurement_rows(measurement, runs):
        table.add_row(
            row["run"],
            row["schedule"],
            row["what"],
            format_size(row["measured"]),
            format_size(row["here"]),
            _write_share(row["error"]),
        )
    return [table]


def _iterations_table(
    title: str,
    measurement: Measurement,
    run: RecordedRun,
) -> Table:
    """Return a column of what was measured, and one per schedule of a run."""
    rows = list(measurement_rows(measurement, [run]))
    schedules = [f">{row['schedule']}" for row in rows]
    table = plain_table(title, "", ">measured", *schedules)
    first = rows[0]
    counts = [str(row["iterations"]) for row in rows]
    table.add_row("iterations", str(first["rows"]), *counts)
    means = [_write_time(row["here"]) for row in rows]
    table.add_row("mean", _write_mean(first), *means)
    quartiles = ("first quartile", "median", "third quartile")
    for place, name in enumerate(quartiles):
        times = [_write_time(row["here_quartiles"][place]) for row in rows]
        measured = first["measured_quartiles"][place]
        table.add_row(name, _write_time(measured), *times)

    names = {
        "error": "error of the mean",
        "median_error": "error of the median",
    }
    for key, name in names.items():
        shares = [_write_share(row[key]) for row in rows]
        table.add_row(name, "", *shares)
    distances = map(_write_distance, rows)
    table.add_row("apart on average", "", *distances)
    gaps = [f"{row['largest_gap']:.3f}" for row in rows]
    table.add_row("largest distance of distributions", "", *gaps)
    drifts = map(_write_drift, rows)
    table.add_row("drift from beginning to end", "", *drifts)
    outcomes = [row["outcome"] for row in rows]
    table.add_row("outcome", "", *outcomes)
    notes = _iteration_notes(rows)
    table.caption = "\n".join(notes)
    return table


def _iteration_notes(rows: Sequence[Result]) -> Iterator[str]:
    """Yield why schedules differ, and that the numbers of iterations do."""
    for row in rows:
        for reason in row["reasons"]:
            schedule = row["schedule"] or "run"
            yield f"{schedule}: {reason}"
        if row["outcome"] == Agreement.UNDECIDED:
            yield "which may be chance: more iterations decide"
    row = rows[0]
    if not row["same_number"]:
        yield (
            f"the file has {row['rows']} iterations, {row['skipped']} skipped, the run "
            f"{row['iterations']}: drift is along those that both have"
        )


def _write_time(seconds: float) -> str:
    return format_duration(seconds, _DIGITS)


def _write_mean(row: Result) -> str:
    mean = _write_time(row["measured"])
    if not row["half"]:
        return mean
    half = format_duration(row["half"])
    return f"{mean} ± {half}"


def _write_share(share: float | None) -> str:
    if share is None:
        return ""
    return format_ratio(share)


def _write_distance(row: Result) -> str:
    if row["apart"] is None:
        return ""
    percent = 100 * row["apart"]
    percent_by_chance = 100 * row["apart_by_chance"]
    return f"{percent:.3g} %, {percent_by_chance:.2f} % by chance"


def _write_drift(row: Result) -> str:
    if row["drift"] is None:
        return ""
    drift = format_ratio(row["drift"])
    half = format_number(100 * row["drift_half"], 2)
    return f"{drift} ± {half} %"
