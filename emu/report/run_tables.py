"""Tables of an emulated run for a terminal, of at most 100 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from emu.analysis.optimality_gap import optimality_line
from emu.report.explanation_tables import difference
from emu.report.flows import flow_table, payload_line, port_table
from emu.report.job_tables import model_rows, pace_rows, placing_line, unclaimed_line
from emu.report.scale_tables import chosen_row
from emu.report.terminal import figures_table, plain_table
from emu.units import format_duration, format_ratio, format_size

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


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
    table = figures_table()
    title = (
        f"{result['iterations']} iterations, credit window "
        f"{result.get('credit_window', 'unknown')}, {result['processes']} processes, "
        f"rates by {result['policy']}"
    )
    table.add_row("scenario", result["scenario"], title)
    if "placing" in result:
        table.add_row("placement", result["placement"], placing_line(result["placing"]))
        if line := unclaimed_line(result["placing"]):
            table.add_row("", "", line)
    if result.get("network") == "kernel":
        table.add_row("network", "kernel", network_note(result["sharing"]))
        table.add_row("TCP", *tcp_note(result["transport"]))
    error_rows(table, result)
    if line := optimality_line(result):
        table.add_row("lower bound", format_duration(result["bound"]), line)
    for row in pace_rows(result.get("pace", {})) + model_rows(result.get("models", [])):
        table.add_row(*row)
    if "verdict" in result:
        verdict_rows(table, result["verdict"])
    if "early_wall_seconds" in result.get("transport", {}):
        arrivals_row(table, result["transport"])
    training_rows(table, result)
    startup = result["startup"]
    memory = format_size(startup["memory"]) if startup["memory"] else "unknown"
    table.add_row(
        "this computer",
        format_duration(result["wall_seconds"]),
        f"wall time, after {format_duration(startup['seconds'], 2)} to start; "
        f"processes hold {memory}",
    )
    if "auto_scale" in result:
        chosen_row(table, result["auto_scale"])
    return table


def error_rows(table: Table, result: dict[str, Any]) -> None:
    """Add the makespan, and how far it is from both simulations."""
    table.add_row(
        "emulated makespan", format_duration(result["makespan"]), flow_ends_note(result)
    )
    predicted = format_duration(result["predicted_makespan"])
    table.add_row(
        "makespan error",
        format_ratio(result["makespan_error"]),
        f"of {predicted} predicted before the run; {times_note(result)}",
    )
    replayed = format_duration(result["replayed_makespan"])
    table.add_row(
        "replay error",
        format_ratio(result["replay_error"]),
        f"of {replayed} simulated with the times and volumes that the run had",
    )


def network_note(sharing: str) -> str:
    """Return a sentence on the sharing of the kernel's NICs."""
    return {
        "fair": "TCP shared NICs that the kernel limits, each with a queue per "
        "connection; no rate was assigned",
        "tcp": "TCP shared NICs that the kernel limits, each with one queue; no rate "
        "was assigned",
        "assigned": "the kernel held every connection to the rate of the schedule, and "
        "every NIC to its own",
    }[sharing]


def tcp_note(transport: dict[str, Any]) -> tuple[str, str]:
    """Return the segments that TCP sent again, and the number of its timeouts."""
    return (
        f"{transport['retransmitted']} again",
        f"of {transport['segments']} segments; {transport['timeouts']} timeouts",
    )


def flow_ends_note(result: dict[str, Any]) -> str:
    """Return the event that ended the flows of a run."""
    if result.get("flow_ends", "fluid") == "arrival":
        return "a flow ends when its last byte is in the receiver's memory"
    return "a flow ends with its rates; bytes may be ahead of them (flow_ends: fluid)"


def times_note(result: dict[str, Any]) -> str:
    """Return where the times of the prediction came from, and those of the run."""
    if result.get("times") == "measured":
        return "times were not stated, the run measured them (compute: real)"
    return f"times were {result.get('times', 'stated')}"


def arrivals_row(table: Table, transport: dict[str, Any]) -> None:
    """Add when last bytes came against their rates, and how many came late."""
    early, late = transport["early_wall_seconds"], transport.get("late_flows", 0)
    table.add_row(
        "last bytes",
        f"{format_duration(abs(early), 3)} {'after' if early < 0 else 'ahead'}",
        f"{'' if early < 0 else 'of '}what their rates had carried (wall time, "
        f"median); {late} of {transport['flows']} late",
    )


def training_rows(table: Table, result: dict[str, Any]) -> None:
    """Add what was learned, if anything was."""
    if result["training"]:
        first, last = result["training"][0], result["training"][-1]
        table.add_row(
            "training loss", f"{last['loss']:.4f}", f"from {first['loss']:.4f} at first"
        )
    for split, accuracy in result.get("accuracy", {}).items():
        table.add_row(f"{split} accuracy", f"{accuracy:.4f}", "")
    for job in result.get("jobs", ()):
        alone = f"{job['slowdown']:.3f} times {format_duration(job['alone'], 4)} alone"
        table.add_row(f"job {job['job']}", format_duration(job["seconds"], 4), alone)


def host_error(verdict: dict[str, Any]) -> str:
    """Return the shift of the end by this computer's lateness, and its limit."""
    moved = format_ratio(verdict["error"])
    return f"the host moved the end by {moved}, {100 * verdict['max_error']:g} % may be"


def verdict_rows(table: Table, verdict: dict[str, Any]) -> None:
    """Add whether the run can be believed, why not, and what would help."""
    colour = {"trusted": "green", "degraded": "yellow"}.get(verdict["trust"], "red")
    table.add_row(
        "verdict",
        Text(str(verdict["trust"]), style=colour),
        host_error(verdict),
    )
    for name in ("reasons", "remedies"):
        for place, text in enumerate(verdict[name]):
            table.add_row("" if place else name, "", text)


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
