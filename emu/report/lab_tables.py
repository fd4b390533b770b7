"""What a lab run looks like in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table

from emu.units import format_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Iterator


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
