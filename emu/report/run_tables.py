"""Tables of a run: its headline, flows, links, tasks and the error budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from emu.report import explanation_tables as words
from emu.report.facts import run_facts
from emu.report.terminal import facts_table, plain_table
from emu.runs.result import Result, Row
from emu.units import format_duration, format_rate, format_ratio, format_size


def flow_table(rows: Sequence[Row], payloads: str = "") -> Table:
    """Return one row per pair of task kinds: flows between machines, bytes, times.

    ``rows`` are ``edges`` of result.json; ``payloads`` see `payload_line`.
    """
    columns = ["from", "to", ">flows", ">bytes", ">waiting", ">moving"]
    has_simulation = any("simulated_mean_seconds" in row for row in rows)
    if has_simulation:
        columns += [">simulated", ">apart"]
    table = plain_table("Flows between machines", *columns)

    table.caption = payloads or None
    for row in rows:
        moving = row["mean_seconds"]
        waiting = row.get("mean_waiting_seconds")
        waiting_text = ""
        if waiting is not None:
            waiting_text = format_duration(waiting)
        cells = [
            row["from"],
            row["to"],
            f"{row['flows']:,}",
            format_size(row["bytes"]),
            waiting_text,
            format_duration(moving),
        ]
        if has_simulation:
            simulation = row["simulated_mean_seconds"]
            # Flows that took no time in the simulation have no share to be off by.
            error = moving / simulation - 1 if simulation else 0.0
            simulated_time = format_duration(simulation)
            cells += [simulated_time, format_ratio(error)]
        table.add_row(*cells)
    return table


def payload_line(payloads: Mapping[str, float]) -> str:
    """Return the bytes between machines by kind of payload; empty for nothing."""
    parts = [f"{kind} {format_size(size)}" for kind, size in payloads.items()]
    return ", ".join(parts)


#: More links are shown by the busiest of them.
_MOST_PORTS = 64
#: Links that are shown then.
_BUSIEST = 20


def port_table(rows: Sequence[Row]) -> Table:
    """Return the use of the links in ``ports`` of result.json, NICs by direction.

    Of very many the busiest are shown: a trace of 150 machines has 300.
    """
    title = "NICs and links"
    if len(rows) > _MOST_PORTS:
        title = f"The {_BUSIEST} busiest of {len(rows)} NICs and links"
        busiest_first = sorted(rows, key=lambda row: -row["used"])
        rows = busiest_first[:_BUSIEST]

    table = plain_table(title, "port", ">capacity", ">bytes", ">used", "")
    for row in rows:
        share = min(row["used"], 1.0)
        signs = round(30 * share)
        table.add_row(
            row["port"],
            format_rate(row["bytes_per_second"]),
            format_size(row["bytes"]),
            f"{row['used']:.0%}",
            Text("█" * signs, style="blue"),
        )
    return table


def run_tables(result: Result) -> RenderableType:
    """Return the headline and the tables per kind of task, of edge, and per port."""
    tables = [headline(result)]
    error_budget = result.get("error_budget", {})
    if any(error_budget.values()):
        tables.append(budget_table(result))
    payloads = payload_line(result.get("payloads", {}))
    tables += [kinds_table(result), flow_table(result["edges"], payloads)]
    tables.append(port_table(result["ports"]))

    parts: list[RenderableType] = []
    for table in tables:
        parts += [table, ""]
    return Group(*parts)


def headline(result: Result) -> Table:
    """Return the numbers that the run was for."""
    return facts_table(run_facts(result))


def budget_table(result: Result) -> Table:
    """Return the difference between emulation and simulation, by cause."""
    title = "Error budget, on the critical path"
    table = plain_table(title, "cause", ">time", ">of the makespan")
    makespan = result["replayed_makespan"] or 1.0
    for cause, seconds in result["error_budget"].items():
        if format_duration(seconds) != format_duration(0.0):  # by rounding alone
            difference = words.difference(float(seconds), makespan)
            table.add_row(cause, *difference)

    # Rows of hosts are parts of the causes above, by where they arose; no further sum.
    for host in result.get("hosts", ()):
        seconds = float(host["seconds"])
        difference = words.difference(seconds, makespan)
        table.add_row(f"of it on {host['host']}", *difference)
    verdict = result.get("verdict", {})
    share = verdict.get("clock_uncertainty")
    if share:
        length = format_duration(share * makespan, 3)
        percent = 100 * share
        table.add_row("clocks of hosts, at most", f"± {length}", f"± {percent:.3g} %")
    return table


def kinds_table(result: Result) -> Table:
    """Return the figures of the tasks, per kind."""
    table = plain_table(
        "Tasks", "kind", ">tasks", ">mean time", ">longest", ">late", ">latest by"
    )
    for kind, row in result["kinds"].items():
        cells = [
            kind,
            str(row["tasks"]),
            format_duration(row["mean_seconds"]),
            format_duration(row["max_seconds"]),
        ]
        late = row["late_iterations"]
        if late:
            latest = format_duration(row["max_late_seconds"])
            cells += [str(late), latest]
        table.add_row(*cells)

    return table
