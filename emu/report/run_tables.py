"""Tables of a run, of its scales and of its flows, of at most 100 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from emu.report.explanation_tables import difference
from emu.report.facts import run_facts
from emu.report.terminal import facts_table, plain_table
from emu.units import format_duration, format_rate, format_ratio, format_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType
    from rich.table import Table


def flow_table(rows: Sequence[Mapping[str, Any]], payloads: str = "") -> Table:
    """Return one row per pair of task kinds: flows between machines, bytes, times.

    Parameters
    ----------
    rows
        ``edges`` of result.json; of a run beside its simulation.
    payloads
        What the bytes were, see `payload_line`.
    """
    beside = any("simulated_mean_seconds" in row for row in rows)
    table = plain_table(
        "Flows between machines",
        *("from", "to", ">flows", ">bytes", ">waiting", ">moving"),
        *((">simulated", ">apart") if beside else ()),
    )
    table.caption = payloads or None
    for row in rows:
        moving, waiting = row["mean_seconds"], row.get("mean_waiting_seconds")
        cells = [
            row["from"],
            row["to"],
            f"{row['flows']:,}",
            format_size(row["bytes"]),
            "" if waiting is None else format_duration(waiting),
            format_duration(moving),
        ]
        if beside:
            simulated = row["simulated_mean_seconds"]
            apart = moving / simulated - 1 if simulated else 0.0
            cells += [format_duration(simulated), format_ratio(apart)]
        table.add_row(*cells)
    return table


def payload_line(payloads: Mapping[str, float]) -> str:
    """Return the bytes between machines by kind of payload; empty for nothing."""
    said = (f"{kind} {format_size(count)}" for kind, count in payloads.items())
    return ", ".join(said)


def port_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the use of every direction of every NIC, and of every other link.

    Parameters
    ----------
    rows
        ``ports`` of result.json.
    """
    table = plain_table("NICs and links", "port", ">capacity", ">bytes", ">used", "")
    for row in rows:
        table.add_row(
            row["port"],
            format_rate(row["bytes_per_second"]),
            format_size(row["bytes"]),
            f"{row['used']:.0%}",
            Text("█" * round(30 * min(row["used"], 1.0)), style="blue"),
        )
    return table


def dry_run_table(known: Mapping[str, Any], name: str) -> Table:
    """Return `emu.experiment.dry_run.DryRun.to_json` as a table, a row per figure."""
    chosen = known["time_scale"] is None
    table = plain_table(f"{name}: nothing was started", "", ">")
    for label, text in (
        ("time scale", "chosen by trials" if chosen else f"{known['time_scale']:g}"),
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
    if tcp := known["tcp"]:
        table.add_row("flows that begin where TCP fills a queue", f"{tcp['at_risk']:,}")
    return table


def trial_line(trial: Mapping[str, Any]) -> str:
    """Return one line on a trial that has just ended."""
    return (
        f"trial at time scale {trial['time_scale']:g}: "
        f"{trial['late_flows']} of {trial['flows']} flows late, "
        f"makespan moved by {format_ratio(trial['error'])} "
        f"({format_duration(trial['cost'], 2)} of wall time)"
    )


def choice_line(chosen: Mapping[str, Any], budget: float) -> str:
    """Return one line on a time scale that no trial says enough of; empty else.

    Parameters
    ----------
    chosen
        `emu.experiment.scale_search.ScaleChoice.to_json`.
    budget
        Seconds that trials had.
    """
    if known := chosen.get("kernel"):
        return (
            f"time scale {chosen['time_scale']:g}, by what kernel NICs cost: "
            f"{format_ratio(known['delay'])} before the first bytes of "
            f"{known['hops']:,} flows, cores {known['cpu_busy']:.0%} busy"
        )
    if chosen["held"]:
        return ""
    return (
        f"no trial met max_error and max_late_flows; time scale "
        f"{chosen['time_scale']:g} is untried (emulation.trial_budget is {budget:g} s)"
    )


def run_tables(result: dict[str, Any]) -> RenderableType:
    """Return the headline and the tables per kind of task, of edge, and per port.

    Parameters
    ----------
    result
        Content of result.json.
    """
    tables = [
        headline(result),
        kinds_table(result),
        flow_table(result["edges"], payload_line(result.get("payloads", {}))),
        port_table(result["ports"]),
    ]
    if any(result.get("error_budget", {}).values()):
        tables.insert(1, budget_table(result))
    return Group(*(part for table in tables for part in (table, "")))


def headline(result: dict[str, Any]) -> Table:
    """Return the numbers that the run was for."""
    return facts_table(run_facts(result))


def budget_table(result: dict[str, Any]) -> Table:
    """Return the difference between emulation and simulation, by cause."""
    title = "Error budget, on the critical path"
    table = plain_table(title, "cause", ">time", ">of the makespan")
    makespan = result["replayed_makespan"] or 1.0
    for cause, seconds in result["error_budget"].items():
        if seconds:
            table.add_row(cause, *difference(float(seconds), makespan))
    if share := result.get("verdict", {}).get("clock_uncertainty"):
        length = f"± {format_duration(share * makespan, 3)}"
        table.add_row("clocks of hosts, at most", length, f"± {100 * share:.3g} %")
    return table


def kinds_table(result: dict[str, Any]) -> Table:
    """Return the figures of the tasks, per kind."""
    columns = (">tasks", ">mean time", ">longest", ">late", ">latest by")
    table = plain_table("Tasks", "kind", *columns)
    for kind, row in result["kinds"].items():
        late = row["late_iterations"]
        table.add_row(
            kind,
            str(row["tasks"]),
            format_duration(row["mean_seconds"]),
            format_duration(row["max_seconds"]),
            str(late) if late else "",
            format_duration(row["max_late_seconds"]) if late else "",
        )
    return table
