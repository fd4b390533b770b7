"""The progress line of an emulated run."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from typing_extensions import override

from emu.coordinator import Observer
from emu.network import format_address, is_loopback
from emu.units import format_rate

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console

    from emu.problem import Job
    from emu.scheduling import Decisions
    from emu.wire.messages import FlowEnded, TaskEnded


class ProgressLine(Observer):
    """Shows iteration, run time, loss and the sum of assigned rates; a context manager.

    Parameters
    ----------
    console
        Where to draw. On what is no terminal nothing is drawn.
    agents
        Number of agents on other hosts that the run waits for.
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
        steps = sum(job.rounds)
        self._bar: TaskID = self._progress.add_task(
            "starting", total=steps, figures=f"{len(job.processes)} processes"
        )
        self._ended, self._time, self._loss = 0, 0.0, math.nan
        self._rates: dict[int, float] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    @override
    def listening(self, host: str, port: int, token: str) -> None:
        if self._agents:
            # One that was given is known there; logs of CI would keep it.
            given = token == os.environ.get("EMU_TOKEN")
            secret = "EMU_TOKEN=$EMU_TOKEN" if given else f"EMU_TOKEN={token}"
            # What others would reach there is themselves.
            where = "on each host run"
            if is_loopback(host):
                where = "on this host run (for others: --listen HOST:PORT)"
            self._progress.console.print(
                f"waiting for {self._agents} agents, {where}:\n"
                f"    {secret} emu agent {format_address(host, port)}",
                soft_wrap=True,
                markup=False,
            )

    @override
    def joined(self, processes: int) -> None:
        self._progress.update(self._bar, figures=f"{processes} processes are up")

    @override
    def began(self, seconds: float) -> None:
        self._progress.update(self._bar, description="running")

    @override
    def task_ended(self, message: TaskEnded) -> None:
        self._ended += 1
        self._time = max(self._time, message.end)
        self._loss = message.report.get("loss", self._loss)
        self._draw()

    @override
    def flow_ended(self, message: FlowEnded) -> None:
        self._rates.pop(message.edge, None)

    @override
    def decided(self, decisions: Decisions) -> None:
        for edge, rate in zip(
            decisions.lines.edge.tolist(), decisions.lines.rate.tolist(), strict=True
        ):
            self._rates[edge] = rate

    def _draw(self) -> None:
        iteration = self._ended // len(self._job.tasks)
        figures = [
            f"iteration {iteration}/{self._job.iterations}",
            f"{self._time:.2f} s",
            f"{format_rate(sum(self._rates.values()))} assigned",
        ]
        if not math.isnan(self._loss):
            figures.insert(2, f"loss {self._loss:.3f}")
        self._progress.update(
            self._bar, completed=self._ended, figures=", ".join(figures)
        )
