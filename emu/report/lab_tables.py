"""What a lab run looks like in a terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table

from emu.report.terminal import plain_table
from emu.units import format_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

#: From nothing to a full NIC.
_LEVELS = " ▁▂▃▄▅▆▇█"


def lab_tables(result: dict[str, Any]) -> Group:
    """Return the tables of ``lab.json``: how it went, what crossed every NIC."""
    return Group(*_tables(result))


def _tables(result: dict[str, Any]) -> Iterator[Table]:
    head = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    head.add_column(style="dim")
    head.add_column(justify="right", style="bold")
    head.add_column()
    seconds = format_duration(result["wall_seconds"])
    head.add_row("wall time", seconds, "real time: nothing is dilated")
    if shared := result.get("crossed", {}).get("shared_queues"):
        said = "of connections met in one queue of a NIC: less than their fair share"
        head.add_row("shared queues", f"{shared} pairs", said)
    head.add_row(
        "verdict",
        result["trust"],
        f"processes computed {format_duration(result['computed_seconds'])} and waited "
        f"{format_duration(result['waited_seconds'])} for a core",
    )
    yield head
    table = Table(title="what crossed", title_justify="left", box=None)
    table.add_column("machine")
    for title in ("out", "in"):
        table.add_column(title, justify="right")
        table.add_column("packets", justify="right")
    for machine, counts in result["traffic"].items():
        cells = [machine]
        for way in ("out", "in"):
            cells += [
                format_size(counts[f"{way}_bytes"]),
                f"{counts[f'{way}_packets']:,}",
            ]
        table.add_row(*cells)
    yield table
    if "crossed" in result:
        yield _matrix(result["crossed"])
        yield _nics(result["crossed"])


def _matrix(crossed: dict[str, Any]) -> Table:
    """Return who sent how much to whom."""
    table = plain_table(
        f"payload from row to column: {crossed['connections']} directions of "
        f"connections, {crossed['messages']} messages",
        "",
        *(f">{name}" for name in crossed["bytes"]),
    )
    for source, row in crossed["bytes"].items():
        table.add_row(
            source, *(format_size(size) if size else "" for size in row.values())
        )
    return table


def _nics(crossed: dict[str, Any]) -> Table:
    """Return how full every NIC was over time."""
    length = format_duration(crossed["bin_seconds"], 2)
    table = plain_table("NICs in use", "NIC", ">mean", f"over time, {length} a sign")
    for machine, ways in crossed["nic_use"].items():
        for way, shares in ways.items():
            mean = sum(shares) / len(shares)
            table.add_row(f"{machine} {way}", f"{100 * mean:.0f} %", _signs(shares))
    return table


def _signs(shares: list[float]) -> str:
    most = len(_LEVELS) - 1
    return "".join(_LEVELS[math.ceil(most * min(share, 1.0))] for share in shares)
