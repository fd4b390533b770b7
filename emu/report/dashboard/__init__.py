"""A run while it goes on: a page in the browser, metrics, a table in the terminal.

The coordinator's thread only appends what it receives to a tape (0.2 us each); folding
that into figures, and serving them, happens in a thread of its own, four times a
second. Must not know: how a schedule is made; it only looks on.

`emu.report.dashboard.server` is imported where a page is asked for: aiohttp takes 0.2
s.
"""

from emu.report.dashboard.live_run import LiveRun
from emu.report.dashboard.live_table import draw_live

__all__ = ["LiveRun", "draw_live"]
