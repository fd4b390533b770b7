"""The computer that this process runs on: its clock, its sockets, what it draws.

The one way by which the online run reaches them. `emu.testing.trials` puts another
computer in their place, so that the same code runs in virtual time.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

import psutil


def name_of_clock() -> str:
    """Return a name of this host's CLOCK_MONOTONIC; empty where none is to be had.

    Processes that give the same name read one clock: their offset is 0, and to measure
    it would bring in half a round trip, milliseconds beside foreign load.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/time').readlink()}"
    except OSError:
        return ""


@cache
def version_of_emu() -> str:
    """Return emu's version; with its commit, where it runs from a git tree."""
    tree = Path(__file__).parents[2]  # which holds the package
    # By name: rooms of the lowest floor import nothing of the package above.
    emu = import_module("emu")
    version = str(emu.__version__)
    if not (tree / ".git").exists():
        return version
    command = ["git", "-C", str(tree), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        outcome = subprocess.run(  # noqa: S603 - our own words
            command,
            capture_output=True,
            text=True,
            check=True,
            timeout=10.0,
        )
    except (OSError, subprocess.SubprocessError):
        return version
    return f"{version}+{outcome.stdout.strip()}"


def module_command(module: str, *arguments: str) -> list[str]:
    """Return a command that runs a module of emu with this interpreter.

    ``-P``: a numpy.py in the working directory is not what emu imports there.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


class _NoTimes(NamedTuple):
    """CPU times where /proc does not say."""

    user: float = 0.0
    idle: float = 0.0


def host_cpu() -> dict[str, float]:
    """Return CPU seconds of this host since its start: busy, idle, steal.

    All are 0 without /proc.
    """
    try:
        times: Any = psutil.cpu_times()
    except OSError:
        times = _NoTimes()

    def seconds(use: str) -> float:
        return getattr(times, use, 0.0)  # not every system counts all of them

    # A core that waits for a disk has nothing to do.
    idle = times.idle + seconds("iowait")
    steal = seconds("steal")
    guest = seconds("guest") + seconds("guest_nice")
    busy = sum(times) - idle - steal - guest  # guests are counted as busy, too
    return {"busy": busy, "idle": idle, "steal": steal}


def seconds_without_core() -> float:
    """Return seconds that the main thread was ready without a core; 0: not counted."""
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def memory(kind: Literal["total", "available"]) -> float | None:
    """Return bytes of memory of this host; None without /proc."""
    try:
        return float(getattr(psutil.virtual_memory(), kind))
    except OSError:
        return None


def loopback_address() -> str:
    """Return the address by which this host reaches itself, ::1 where IPv6 is alone."""
    try:
        with socket.create_server(("127.0.0.1", 0)):
            return "127.0.0.1"
    except OSError:
        return "::1"


def create_memory() -> tuple[int, str]:
    """Return a descriptor of new shared memory, and its path: a file without memfd."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").exists():
        fd = os.memfd_create("emu-rates", os.MFD_CLOEXEC)
        return fd, f"/proc/{os.getpid()}/fd/{fd}"
    return tempfile.mkstemp(prefix="emu-rates-")


@dataclass
class Host:
    """The clock, sockets and chance of a computer; each field is a function."""

    monotonic: Callable[[], float] = time.monotonic
    """Wall seconds."""
    thread_time: Callable[[], float] = time.thread_time
    """Seconds of CPU time of the calling thread."""
    name_of_clock: Callable[[], str] = name_of_clock
    process_id: Callable[[], int] = os.getpid
    draw: Callable[[int], bytes] = secrets.token_bytes
    """Random bytes that cannot be guessed."""
    open_socket: Callable[..., socket.socket] = socket.socket
    listen: Callable[..., socket.socket] = socket.create_server
    create_memory: Callable[[], tuple[int, str]] = create_memory
    open_memory: Callable[[str, int], int] = os.open
    precise_timers: Callable[[], bool] = lambda: True
    """True where there may be timers that are kept more precisely than the loop's."""

    @contextlib.contextmanager
    def replace(self, other: Host) -> Iterator[None]:
        """Do everything on another host for a while."""
        fields = dict(vars(self))
        vars(self).update(vars(other))
        try:
            yield
        finally:
            vars(self).update(fields)


#: The computer that everything asks; trials put another one in its place.
this_host = Host()
