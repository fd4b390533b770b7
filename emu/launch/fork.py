"""Node processes forked from a server that has torch and dgl imported."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from emu.launch.programs import RUNTIME
from emu.launch.signals import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.context import ForkServerProcess

_TETHER = "emu.launch.tether"
_PR_SET_NAME = 15
# One compute thread per process: they share two or four cores with dozens of others,
# and an OpenMP pool cannot be forked. Read by the libraries when they are imported.
_ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


def fork_processes(
    descriptions: list[dict[str, Any]], preload: list[str]
) -> list[ForkServerProcess]:
    """Fork one process per description and return them, started.

    Blocks until the fork server has imported the modules of ``preload``: 0.3 s for a
    job of timed tasks, 1.5-4 s where torch and dgl are needed.

    Raises
    ------
    OSError, EOFError
        When the fork server has died.
    """
    for variable in _ONE_THREAD:
        os.environ[variable] = "1"
    os.environ.setdefault("DGLBACKEND", "pytorch")  # or dgl prints that it chose it
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_TETHER, *preload])
    processes = []
    with _scratch():
        for description in descriptions:
            process = context.Process(
                target=_enter, args=(description,), name=description["process"]
            )
            process.start()
            processes.append(process)
    return processes


def scratch_of(agent: int) -> Path:
    """Return the directory of the fork server's socket while an agent (pid) forks."""
    return Path(tempfile.gettempdir()) / f"emu-agent-{agent}"


@contextlib.contextmanager
def _scratch() -> Iterator[None]:
    """Have multiprocessing put its socket where it goes once everybody is forked.

    By itself it removes it when this process exits in good order, so that a killed
    agent would leave it behind. There is no public way to choose the place.
    """
    path = scratch_of(os.getpid())
    path.mkdir(mode=0o700, exist_ok=True)
    config: dict[str, Any] = getattr(multiprocessing.current_process(), "_config", {})
    config["tempdir"] = str(path)
    try:
        yield
    finally:
        shutil.rmtree(path, ignore_errors=True)


def fork_server_end(process: ForkServerProcess) -> str:
    """Return how the fork server of a dead process ended, empty if it has not.

    With its fork server a process loses the one who would have told its exit status.
    """
    if process.exitcode != 255:
        return ""
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error, ChildProcessError):
            if child.status() == psutil.STATUS_ZOMBIE:
                code = os.waitstatus_to_exitcode(os.waitpid(child.pid, os.WNOHANG)[1])
                return f"the fork server {describe_end(code)}"
    return ""


def describe_end(code: int) -> str:
    """Return in words how a process ended: by a signal (negative), or by itself."""
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def kill_descendants() -> None:
    """Kill whatever this process has started, and what that has, by process id."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()


def _enter(description: dict[str, Any]) -> None:
    """Run the description's runtime in the forked process."""
    # What the fork server imported is never garbage. To look through it takes 100 ms
    # where torch is, at any moment of the run, and copies every page.
    gc.freeze()
    die_with_parent()  # the fork server, which in turn dies with its agent
    _name_process(f"emu:{description['process']}")
    # Ctrl-C is for the coordinator, which then ends its processes one by one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        module, function = RUNTIME.split(":")
        code = getattr(importlib.import_module(module), function)(description)
    except Exception:  # noqa: BLE001 -- whatever it is, its trace goes to the log
        traceback.print_exc()
        code = 1
    if code:
        # Not sys.exit, which would wait for a program that still computes.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _name_process(name: str) -> None:
    """Show ``name`` in ps and top (Linux cuts it at 15 characters)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)
