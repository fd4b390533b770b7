"""Views of a run while it goes: the progress line, a table, the live page."""

from __future__ import annotations

import math
import os
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from typing_extensions import override

from emu.cli.signs_of_life import note_stage
from emu.emulation.coordinator import (
    Observer,
    Observers,
    RunProgress,
    RunSettings,
)
from emu.emulation.network import format_address, is_loopback, parse_address
from emu.errors import EmulatorError, ScenarioError
from emu.host.this_host import loopback_address
from emu.problem import Job
from emu.report.dashboard import LiveRun, draw_live
from emu.runs.result import Result
from emu.scenario import Experiment
from emu.units import format_count, format_rate

if TYPE_CHECKING:
    from emu.report.dashboard.server import Dashboard


def address(text: str, option: str, *, port: int | None = None) -> tuple[str, int]:
    """Return the host and port that an option states.

    Raises ScenarioError when it is no address.
    """
    try:
        return parse_address(text, port=port)
    except ValueError as error:
        raise ScenarioError(str(error), file=option) from error


class ProgressLine(Observer):
    """Shows iteration, run time, loss and the sum of assigned rates; a context manager.

    On a ``console`` that is no terminal nothing is drawn. ``agents``: number of agents
    on other hosts that the run waits for.
    """

    def __init__(self, job: Job, console: Console, *, agents: int = 0) -> None:
        self._agents = agents
        self._job = job
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:9}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[figures]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        count = format_count(len(job.processes), "process")
        self._bar: TaskID = self._progress.add_task(
            "starting", total=sum(job.rounds), figures=count
        )
        self._ended = 0  # before this attempt

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @override
    def listening(self, host: str, port: int, token: str) -> None:
        if self._agents:
            # One that was given is known there; logs of CI would keep it.
            from_user = token == os.environ.get("EMU_TOKEN")
            secret = "$EMU_TOKEN" if from_user else token
            # What others would reach there is themselves.
            place = "on each host run"
            if is_loopback(host):
                place = "on this host run (for others: --listen HOST:PORT)"
            agents = format_count(self._agents, "agent")
            self.on_notice(
                f"waiting for {agents}, {place}:\n"
                f"    EMU_TOKEN={secret} emu agent {format_address(host, port)}"
            )

    @override
    def on_join(self, processes: int) -> None:
        count = format_count(processes, "process")
        self._progress.update(self._bar, figures=f"{count} up")

    @override
    def on_notice(self, line: str) -> None:
        self._progress.console.print(line, soft_wrap=True)

    @override
    def restarting(self, error: str, first: int) -> None:
        self.on_notice(f"{error}: goes on at iteration {first}")
        # What came before is kept; the attempt counts its own time from 0.
        self._ended = first * len(self._job.tasks)
        self._progress.update(self._bar, description="starting")

    @override
    def began(self, seconds: float) -> None:
        self._progress.update(self._bar, description="running")

    @override
    def progressed(self, progress: RunProgress) -> None:
        ended = self._ended + progress.ended
        iteration = ended // len(self._job.tasks)
        figures = [
            f"iteration {iteration}/{self._job.iterations}",
            f"{progress.time:.2f} s",
            f"{format_rate(progress.rate)} assigned",
        ]
        if not math.isnan(progress.loss):
            figures.insert(2, f"loss {progress.loss:.3f}")

        note_stage(", ".join(figures[:2]))
        text = ", ".join(figures)
        self._progress.update(self._bar, completed=ended, figures=text)


class LiveViews:
    """One observer, while entered, for the dashboard and the terminal.

    ``page``: ``[host:]port`` of the dashboard, empty for none. ``table``: whether
    the terminal shows machines and rates in place of the progress line.
    """

    def __init__(
        self,
        experiment: Experiment,
        settings: RunSettings,
        directory: Path,
        console: Console,
        *,
        page: str = "",
        table: bool = False,
    ) -> None:
        self._console = console
        self._table = table
        launcher = settings.launcher
        # Only agents that others start are waited for in public: those of ssh and Ray,
        # whose hosts are known, come by themselves.
        self._agents = launcher.count if launcher and not launcher.hosts else 0
        self._job = experiment.problem.job
        self._live = LiveRun(
            experiment.problem,
            experiment.scenario.name,
            experiment.policy,
            settings.time_scale,
        )
        self._open = ExitStack()
        self._drawing = ExitStack()
        self._dashboard: Dashboard | None = None
        if page:
            from emu.report.dashboard.server import Dashboard  # noqa: PLC0415 - aiohttp

            if ":" in page:
                host, port = address(page, "EMU_DASHBOARD")
            else:
                _, port = address(f"127.0.0.1:{page}", "EMU_DASHBOARD")
                # A port alone leaves the host to us: loopback may have IPv6 and no
                # IPv4.
                host = loopback_address()
            token = os.environ.get("EMU_DASHBOARD_TOKEN", "")
            self._dashboard = Dashboard(
                self._live, directory, host=host, port=port, token=token
            )

    def __enter__(self) -> Observer:
        if self._dashboard is not None:
            self._open.enter_context(self._dashboard)
            self._console.print(f"dashboard at {self._dashboard.url}", soft_wrap=True)
        line = ProgressLine(self._job, self._console, agents=self._agents)
        if self._table:
            self._drawing.enter_context(draw_live(self._live, self._console))
        else:
            self._drawing.enter_context(line)
        # The tape costs 0.2 us per event, which only its viewers are worth.
        if self._dashboard is None and not self._table:
            return line
        return Observers([line, self._live.tape])

    def __exit__(self, _: object, error: object, trace: object) -> None:
        self._drawing.close()
        # Ctrl-C is no failure: the page ends with the run.
        if isinstance(error, EmulatorError):
            self._live.on_failure(str(error))
            self.linger(f"the run failed: {error}")
        self._open.close()

    def on_end(self, result: Result) -> None:
        """Show what the run came to."""
        self._live.on_end(result)
        self._drawing.close()

    def linger(self, reason: str = "") -> None:
        """Keep the dashboard up until Ctrl-C where the console is a terminal."""
        # Without a terminal nobody could press Ctrl-C, and a script would stand for
        # ever.
        if self._dashboard is None or not self._console.is_terminal:
            return
        if reason:
            self._console.print(reason)
        self._console.print(f"the dashboard stays at {self._dashboard.url} (Ctrl-C)")
        try:
            # Nobody sets it: Ctrl-C alone ends the wait.
            threading.Event().wait()
        except KeyboardInterrupt:
            self._console.print("the dashboard is closed")
