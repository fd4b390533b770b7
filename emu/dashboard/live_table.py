"""The same figures in the terminal: a compact table, redrawn four times a second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from rich import box
from rich.live import Live
from rich.table import Table

from emu.dashboard.live_run import SAMPLE
from emu.units import format_duration, format_rate, format_size

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console

    from emu.dashboard.live_run import LiveRun
    from emu.dashboard.status import Port, Status

_BAR = 12


class LiveTable:
    """Draws a live run while it is entered; a context manager."""

    def __init__(self, live: LiveRun, console: Console) -> None:
        self._drawn = Live(
            console=console,
            get_renderable=lambda: live_table(live.status()),
            refresh_per_second=1 / SAMPLE,
        )

    def __enter__(self) -> Self:
        self._drawn.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._drawn.stop()


def live_table(status: Status) -> Table:
    """Return one row per machine and shared link, under a line with the figures."""
    figures = ", ".join(f"{name} {value:.4g}" for name, value in status.figures.items())
    title = (
        f"{status.scenario}: {status.phase}, iteration {status.iterations_ended}/"
        f"{status.iterations}, {status.run_time:.2f} s, {status.active_flows} flows"
        f"{', ' + figures if figures else ''}"
    )
    delays = (
        f"{status.late_steps} late steps, events heard "
        f"{format_duration(status.delay, 2)} after the fastest "
        f"(worst {format_duration(status.max_delay, 2)} wall)"
    )
    table = Table(
        title=title, caption=delays, box=box.SIMPLE_HEAD, title_justify="left"
    )
    table.add_column("machine")
    for direction in ("out", "in"):
        table.add_column(direction)
        table.add_column("rate", justify="right")
        table.add_column("moved", justify="right")
    rows: dict[str, list[Port]] = {}
    for port in status.ports:
        rows.setdefault(port.machine or port.port, []).append(port)
    for name, ports in rows.items():
        table.add_row(name, *(cell for port in ports for cell in _cells(port)))
    return table


def _cells(port: Port) -> tuple[str, str, str]:
    filled = round(_BAR * min(port.rate / port.capacity, 1.0))
    bar = "█" * filled + "░" * (_BAR - filled)
    return bar, format_rate(port.rate), format_size(port.bytes)
