"""Neighbours that keep a host from serving a run, and a process that stands still."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from numpy.random import Generator
from typing_extensions import override

from emu.emulation.coordinator import Observer

_PROGRAM = Path(__file__).with_name("hog_process.py")
#: Seconds that a hog has to end once its input has.
_PATIENCE = 10.0


@dataclass(frozen=True)
class Condition:
    """One way of keeping a host from serving a run.

    Parameters
    ----------
    hogs
        Kinds that `tests.fidelity.hog_process` knows, one process each.
    nice
        Of the hogs; below 0 takes root.
    stops
        Whether a process of the run is stopped for a while.
    """

    hogs: tuple[str, ...] = ()
    nice: int = 0
    stops: bool = False


CONDITIONS = {
    "calm": Condition(),
    "busy-1": Condition(("busy",)),
    "busy-2": Condition(("busy",) * 2),
    "busy-4": Condition(("busy",) * 4),
    "bursts": Condition(("bursts",) * 2),
    "preferred": Condition(("busy",), nice=-10),
    "faults": Condition(("faults",)),
    "paging": Condition(("paging",)),
    "stopped": Condition(stops=True),
}


def possible() -> dict[str, Condition]:
    """Return the conditions that this user can bring about."""
    root = os.geteuid() == 0
    return {name: c for name, c in CONDITIONS.items() if c.nice >= 0 or root}


@contextlib.contextmanager
def hogging(condition: Condition, scratch: Path) -> Iterator[list[psutil.Process]]:
    """Keep the hogs of a condition at work; they die with this process, too.

    ``scratch``: directory for what a hog pages out to.
    """
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(_hog(kind, condition.nice, scratch / f"page-{number}"))
            for number, kind in enumerate(condition.hogs)
        ]


@contextlib.contextmanager
def _hog(kind: str, nice: int, page: Path) -> Iterator[psutil.Process]:
    hog = subprocess.Popen(
        [sys.executable, _PROGRAM, kind, page],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with hog:
        try:
            if hog.stdout is None or hog.stdout.readline() != b"ready\n":
                raise RuntimeError(f"no hog of the kind {kind} began")
            process = psutil.Process(hog.pid)
            if nice:
                process.nice(nice)
            yield process
        finally:
            if hog.stdin is not None:
                hog.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                hog.wait(_PATIENCE)
            hog.kill()


class Stopper(Observer):
    """Stops one node process of the run that it observes, once, and continues it.

    Parameters
    ----------
    rng
        Draws the process, the moment within the run, and 0.1 to 0.5 wall seconds.
    wall
        Seconds that the run takes.
    """

    def __init__(self, rng: Generator, wall: float) -> None:
        self._rng = rng
        self._begin = float(rng.uniform(0.1, 0.7)) * wall
        self._length = float(rng.uniform(0.1, 0.5))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._act, daemon=True)
        self._process: psutil.Process | None = None
        self.story = ""

    @override
    def on_join(self, processes: int) -> None:
        # Only what this process has started, and of that only what nodes run in.
        found = [
            child
            for child in psutil.Process().children(recursive=True)
            if child.name().startswith("emu:")
        ]
        found.sort(key=lambda child: child.name())
        self._process = found[int(self._rng.integers(len(found)))]
        self._name = self._process.name()

    @override
    def began(self, seconds: float) -> None:
        self._thread.start()

    def _act(self) -> None:
        if self._process is None or self._over.wait(self._begin):
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            self._process.send_signal(signal.SIGSTOP)
            self.story = f"{self._name} {self._length:.3f} s at {self._begin:.3f} s"
            self._over.wait(self._length)
            self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Continue the process that it stopped, and wait until that is done."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
