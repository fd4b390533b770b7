"""Bytes of a schedule by kind of task, and use of the NICs.

The tables are those of a simulation and of a run: the same words, units and digits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from emu.report.terminal import plain_table
from emu.units import format_duration, format_rate, format_ratio, format_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
