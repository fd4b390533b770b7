"""One scenario on kernel NICs that were shared in several ways, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emu.report.terminal import plain_table
from emu.units import format_duration, format_ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table


def sharing_table(results: Sequence[dict[str, Any]]) -> Table:
    """Return a row per run: its prediction, its makespan, and what TCP did."""
    table = plain_table(
        f"{results[0]['scenario']} on kernel NICs",
        "sharing",
        "rates by",
        ">predicted",
        ">emulated",
        ">makespan error",
        ">sent again",
        ">timeouts",
        "verdict",
    )
    for result in results:
        transport = result["transport"]
        again = transport["retransmitted"] / max(1, transport["segments"])
        table.add_row(
            result["sharing"],
            result["policy"],
            format_duration(result["predicted_makespan"], 4),
            format_duration(result["makespan"], 4),
            format_ratio(result["makespan_error"]),
            f"{100 * again:.1f} %",
            str(transport["timeouts"]),
            str(result["verdict"]["trust"]),
        )
    return table
