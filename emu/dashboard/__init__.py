"""A run while it goes on: a page in the browser, metrics, a table in the terminal.

The coordinator's thread only appends what it hears to a tape (0.2 us each); folding
that into figures, and serving them, happens in a thread of its own, four times a
second. Must not know: how a schedule is made; it only looks on.
"""

from emu.dashboard.live_run import LiveRun
from emu.dashboard.live_table import LiveTable
from emu.dashboard.server import Dashboard

__all__ = ["Dashboard", "LiveRun", "LiveTable"]
