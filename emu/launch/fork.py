"""Node processes forked from a server that has torch and dgl imported."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import multiprocessing
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess

_PRELOAD = "emu.launch.preload"
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
# One compute thread per process: they share two or four cores with dozens of others,
# and an OpenMP pool cannot be forked. Read by the libraries when they are imported.
_ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


def fork_processes(descriptions: list[dict[str, Any]]) -> list[ForkServerProcess]:
    """Fork one process per description and return them, started.

    Blocks until the fork server has imported its libraries (1.5-4 s the first time).
    """
    for variable in _ONE_THREAD:
        os.environ[variable] = "1"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_PRELOAD])
    processes = []
    for description in descriptions:
        process = context.Process(
            target=_enter, args=(description,), name=description["process"]
        )
        process.start()
        processes.append(process)
    return processes


def _enter(description: dict[str, Any]) -> None:
    """Run the description's runtime in the forked process."""
    _die_with_parent()
    _name_process(f"emu:{description['process']}")
    # Ctrl-C is for the coordinator, which then ends its processes one by one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    module, function = description["runtime"].split(":")
    code = getattr(importlib.import_module(module), function)(description)
    sys.exit(code)


def _die_with_parent() -> None:
    """Ask the kernel to kill this process when the fork server dies, however it dies.

    The fork server in turn ends when its agent does (it holds a pipe of it), so no
    process outlives its agent.
    """
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the request was in place
        os.kill(os.getpid(), signal.SIGKILL)


def _name_process(name: str) -> None:
    """Show ``name`` in ps and top (Linux cuts it at 15 characters)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)
