"""The table of a run that goes on, in the terminal."""

from __future__ import annotations

from collections import defaultdict

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from emu.report.dashboard import status as form
from emu.report.dashboard.live_run import SAMPLE, LiveRun
from emu.units import format_count, format_duration, format_rate, format_size

#: Signs of the bar of a rate.
_BAR = 12


def draw_live(live: LiveRun, console: Console) -> Live:
    """Return a context manager that draws a live run while it is entered."""
    return Live(
        console=console,
        get_renderable=lambda: live_table(live.status()),
        refresh_per_second=1 / SAMPLE,
    )


def live_table(status: form.Status) -> Table:
    """Return one row per machine and shared link, under a line with the figures."""
    flows = format_count(status.active_flows, "flow")
    title = (
        f"{status.scenario}: {status.phase}, iteration {status.iterations_ended}/"
        f"{status.iterations}, {status.run_time:.2f} s, {flows}"
    )
    for name, value in status.figures.items():
        title += f", {name} {value:.4g}"
    table = Table("machine", title=title, box=box.SIMPLE_HEAD, title_justify="left")
    delay = format_duration(status.delay, 2)
    longest_delay = format_duration(status.max_delay, 2)
    table.caption = (
        f"{status.late_steps} late steps, events received "
        f"{delay} after the fastest "
        f"(worst {longest_delay} wall)"
    )
    for direction in ("out", "in"):
        table.add_column(direction)
        table.add_column("rate", justify="right")
        table.add_column("moved", justify="right")

    rows = defaultdict[str, list[form.Port]](list)
    for port in status.ports:
        name = port.machine or port.port
        rows[name].append(port)
    for name, ports in rows.items():
        cells = [name]
        for port in ports:
            cells.append(_draw_bar(port))
            cells.append(format_rate(port.rate))
            cells.append(format_size(port.bytes))
        table.add_row(*cells)
    return table


def _draw_bar(port: form.Port) -> str:
    # A link that is cut carries nothing, of nothing.
    share = 0.0
    if port.capacity:
        share = port.rate / port.capacity
    full = round(_BAR * min(share, 1.0))
    rest = _BAR - full
    return "█" * full + "░" * rest
