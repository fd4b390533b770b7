"""Tables of the figures known before a run, and of trials of time scales."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emu.report.terminal import plain_table
from emu.units import format_duration, format_rate, format_ratio, format_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table


def dry_run_table(known: Mapping[str, Any], name: str) -> Table:
    """Return `emu.experiment.dry_run.DryRun.to_json` as a table, a row per figure."""
    chosen = known["time_scale"] is None
    table = plain_table(f"{name}: nothing was started", "", ">")
    open_ = "chosen by trials (--trials)"
    for label, text in (
        ("time scale", open_ if chosen else f"{known['time_scale']:g}"),
        ("byte scale", f"{known['byte_scale']:g}"),
        ("simulated makespan", format_duration(known["makespan"], 4)),
        ("processes", str(known["processes"])),
        ("flows between machines", str(known["flows"])),
        ("real payload", format_size(known["payload"])),
        ("of it in memory at a time, at most", format_size(known["waiting"])),
        ("memory with all processes, at most", format_size(known["memory"])),
        ("makespan moved by the slightest delays", format_ratio(known["sensitivity"])),
    ):
        table.add_row(label, text)
    if not chosen:
        table.add_row("wall time", format_duration(known["wall_seconds"], 3))
        table.add_row("real traffic at its peak", format_rate(known["peak_traffic"]))
    return table


def trials_table(trials: Sequence[Mapping[str, Any]]) -> Table:
    """Return one row per `emu.experiment.scale_search.ScaleTrial.to_json`."""
    table = plain_table(
        "Trials",
        *(">time scale", ">iterations", ">wall", ">cores busy"),
        *(">moved by lateness", ">late flows"),
    )
    for trial in trials:
        table.add_row(
            f"{trial['time_scale']:g}",
            str(trial["iterations"]),
            format_duration(trial["cost"], 2),
            f"{trial['cpu_busy']:.0%}",
            format_ratio(trial["error"]),
            f"{trial['late_flows']} of {trial['flows']}",
        )
    return table


def chosen_row(table: Table, chosen: Mapping[str, Any]) -> None:
    """Add how the time scale was chosen, and what its trial predicted, to a table."""
    predicted, actual = chosen["predicted"], chosen["actual"]
    text = f"chosen by {len(chosen['trials'])} trials; late flows {_late(actual)}"
    if chosen["held"]:
        text += f", {_late(predicted)} in the trial"
    else:
        text += "; untried, as no trial met the aims"
    table.add_row("time scale", f"{chosen['time_scale']:g}", text)


def _late(figures: Mapping[str, float]) -> str:
    return f"{100 * figures['late_flows']:.2g} %"


def trial_line(trial: Mapping[str, Any]) -> str:
    """Return one line on a trial that has just ended."""
    return (
        f"trial at time scale {trial['time_scale']:g}: "
        f"{trial['late_flows']} of {trial['flows']} flows late, "
        f"makespan moved by {format_ratio(trial['error'])} "
        f"({format_duration(trial['cost'], 2)} of wall time)"
    )
