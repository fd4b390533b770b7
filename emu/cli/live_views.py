"""Who looks on while a scenario runs: progress line or table, and the dashboard."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from emu.cli.options import address
from emu.cli.progress_bar import ProgressLine
from emu.coordinator import Observer, Observers
from emu.dashboard import LiveRun, LiveTable
from emu.errors import EmulatorError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from rich.console import Console

    from emu.coordinator import EmulationSettings
    from emu.dashboard.server import Dashboard
    from emu.scenario import Experiment


class Onlookers:
    """Gives, while entered, one observer for everybody who looks on.

    Parameters
    ----------
    page
        ``[host:]port`` of the dashboard, empty for none.
    table
        Whether the terminal shows machines and rates in place of the progress line.
    """

    def __init__(
        self,
        experiment: Experiment,
        settings: EmulationSettings,
        directory: Path,
        console: Console,
        *,
        page: str = "",
        table: bool = False,
    ) -> None:
        self._console, self._table = console, table
        launcher = settings.launcher
        self._agents = launcher.count if launcher and not launcher.hosts else 0
        self._job = experiment.problem.job
        self._live = LiveRun(
            experiment.problem,
            experiment.scenario.name,
            experiment.policy,
            settings.time_scale,
        )
        self._dashboard = self._served(page, directory) if page else None
        self._open = ExitStack()
        self._drawing = ExitStack()

    def _served(self, page: str, directory: Path) -> Dashboard:
        from emu.dashboard.server import Dashboard  # noqa: PLC0415 - aiohttp

        at = page if ":" in page else f"127.0.0.1:{page}"
        host, port = address(at, "--dashboard-at")
        token = os.environ.get("EMU_DASHBOARD_TOKEN", "")
        return Dashboard(self._live, directory, host=host, port=port, token=token)

    def __enter__(self) -> Observer:
        if self._dashboard is not None:
            self._open.enter_context(self._dashboard)
            self._console.print(f"dashboard at {self._dashboard.url}", soft_wrap=True)
        line = ProgressLine(self._job, self._console, agents=self._agents)
        if self._table:
            self._drawing.enter_context(LiveTable(self._live, self._console))
        else:
            self._drawing.enter_context(line)
        if self._dashboard is None and not self._table:
            return line
        return Observers([line, self._live.tape])

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._drawing.close()
        if isinstance(error, EmulatorError):
            self._live.failed(str(error))
            self.linger(f"the run failed: {error}")
        self._open.close()

    def ended(self, result: dict[str, Any]) -> None:
        """Show what the run came to; ``result`` is the content of result.json."""
        self._live.ended(result)
        self._drawing.close()

    def linger(self, why: str = "") -> None:
        """Keep the dashboard up until Ctrl-C where somebody watches the terminal."""
        if self._dashboard is None or not self._console.is_terminal:
            return
        if why:
            self._console.print(why, markup=False)
        self._console.print(f"the dashboard stays at {self._dashboard.url} (Ctrl-C)")
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            self._console.print("the dashboard is closed")
