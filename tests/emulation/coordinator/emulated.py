"""Problems that can be emulated, and an observer that acts at a chosen moment."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
from typing_extensions import override

from emu.emulation.coordinator import EmulatedRun, Observer, RunSettings, emulate
from emu.emulation.wire.messages import RunTask, TaskEnded
from emu.prediction.scheduling import Decisions
from emu.problem import Job, Problem, Realization
from emu.testing import two_machine_example

BYTE_SCALE = 20_000.0
FAST: dict[str, Any] = {"time_scale": 0.02, "byte_scale": BYTE_SCALE, "deadline": 30.0}


def emulable(
    problem: Problem,
    realization: Realization,
    *,
    byte_scale: float = BYTE_SCALE,
    programs: Mapping[str, str] | None = None,
) -> Problem:
    """Return the problem with every task told what to send."""
    job = problem.job
    tasks = []
    for position, task in enumerate(job.tasks):
        rows = [
            [round(volume * byte_scale) for volume in realization.volumes[e]]
            for e in job.out_edges(position)
            if not job.control[e]
        ]
        change: dict[str, Any] = {"settings": {"payload_bytes": rows}}
        if task.name in (programs or {}):
            change["program"] = (programs or {})[task.name]
        tasks.append(dataclasses.replace(task, **change))
    changed = Job(tuple(tasks), job.edges, job.iterations, settings={"seed": 1})
    return Problem(problem.cluster, changed, problem.placement)


def golden(
    iterations: int = 3, *, programs: Mapping[str, str] | None = None, **options: Any
) -> tuple[Problem, Realization]:
    """Return the two-machine example, to be emulated."""
    problem, realization = two_machine_example(iterations, **options)
    return emulable(problem, realization, programs=programs), realization


class Acts(Observer):
    """Does something once, when a run has come to a moment.

    Moments: ``listening``, ``joined``, ``began``, ``flow NAME``, ``start TASK N``,
    ``task NAME N`` when it ended.
    """

    def __init__(
        self, moment: str, action: Callable[[], object], problem: Problem
    ) -> None:
        self.moment, self.action, self.job = moment, action, problem.job
        self.at = 0.0
        self.port = 0

    def _reach(self, moment: str) -> None:
        if moment == self.moment and not self.at:
            self.at = time.monotonic()
            self.action()

    @override
    def listening(self, host: str, port: int, token: str) -> None:
        self.port = port
        self._reach("listening")

    @override
    def on_join(self, processes: int) -> None:
        self._reach("joined")

    @override
    def began(self, seconds: float) -> None:
        self._reach("began")

    @override
    def task_started(self, message: RunTask) -> None:
        self._reach(f"start {self.job.tasks[message.task].name} {message.iteration}")

    @override
    def task_ended(self, message: TaskEnded) -> None:
        self._reach(f"task {self.job.tasks[message.task].name} {message.iteration}")

    @override
    def on_decisions(self, decisions: Decisions) -> None:
        for edge, _ in decisions.flows:
            self._reach(f"flow {self.job.edge_names[edge]}")


def named(found: list[psutil.Process], name: str) -> psutil.Process:
    """Return the node process, agent or fork server of a name among processes."""
    for process in found:
        command = " ".join(process.cmdline())
        if process.name() == f"emu:{name}":
            return process
        if name == "agent" and "emu.emulation.launch " in command:
            return process
        forked = process.name().startswith("emu:")
        if (
            name == "fork server"
            and "emu.emulation.launch.fork_server" in command
            and not forked
        ):
            return process
    raise LookupError(f"no {name} among {[p.name() for p in found]}")


def run(
    problem: Problem,
    realization: Realization,
    tmp_path: Path,
    observer: Acts | None = None,
    policy: str = "oes",
    **settings: Any,
) -> EmulatedRun:
    """Emulate a problem on this host."""
    return emulate(
        problem,
        policy,
        RunSettings(**{**FAST, **settings}),
        realization,
        log=tmp_path / "agent.log",
        observer=observer,
    )
