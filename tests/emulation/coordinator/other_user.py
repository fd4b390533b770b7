"""A program: what another user of this host can do.

It gives up root first, and then tries everything on a run that stands on standard input
as JSON: ``control`` and ``data``, the ports, ``pids`` and ``folders``. Its standard
output says what came of it; it is a program of its own, so that the kernel decides.
"""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures.thread  # noqa: F401 -- out of reach afterwards
import contextlib
import ctypes
import encodings.idna  # noqa: F401 -- for getaddrinfo: out of reach afterwards
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from emu.emulation.launch.agent import Agent
from emu.emulation.network.authentication import Identity, derive_key
from emu.emulation.network.connect import open_edge
from emu.emulation.network.control import connect_control
from emu.emulation.network.pacer import Pacer
from emu.errors import EmulatorError

NOBODY = 65534
_PIDFD_GETFD = 438  # system call; Python has no function for it
_LONG = 1 << 22  # of a file, so much is looked at


def entries(folder: Path) -> Iterator[Path]:
    """Yield every file below a folder that this user may list."""
    for place, _, files in os.walk(folder):
        yield from (Path(place) / name for name in files)


def readable(told: dict[str, Any]) -> dict[str, str]:
    """Return what this user reads of the run: path -> content in base64."""
    files = [Path("/proc/net/unix"), Path("/proc/net/tcp")]
    for folder in told["folders"]:
        files.extend(entries(Path(folder)))
    of_process = "cmdline", "comm", "environ", "maps", "mem", "stat", "status", "stack"
    for pid in told["pids"]:
        files.extend(Path(f"/proc/{pid}/{name}") for name in of_process)
        files.extend(Path(f"/proc/{pid}/fd/{number}") for number in range(64))
    found = {}
    for path in files:
        with contextlib.suppress(OSError), path.open("rb") as file:
            found[str(path)] = base64.b64encode(file.read(_LONG)).decode()
    return found


def reached(pids: list[int]) -> list[str]:
    """Return the doors into processes that stood open: descriptors, signals."""
    found, libc = [], ctypes.CDLL(None, use_errno=True)
    for pid in pids:
        for name in ("fd", "cwd", "root", "exe", "map_files"):
            with contextlib.suppress(OSError):
                list(Path(f"/proc/{pid}/{name}").iterdir())
                found.append(f"{name} of {pid}")
        with contextlib.suppress(OSError):
            os.kill(pid, 0)
            found.append(f"signals to {pid}")
        handle = os.pidfd_open(pid)
        for number in range(64):
            taken = libc.syscall(_PIDFD_GETFD, handle, number, 0)
            if taken >= 0:
                os.close(taken)
                found.append(f"descriptor {number} of {pid}")
        os.close(handle)
    return found


async def answers(told: dict[str, Any]) -> dict[str, str]:
    """Return what each attempt to take part was answered."""
    attempts: dict[str, Any] = {}
    for token in ("", "wrong", "0" * 32):
        attempts[f"agent {token}"] = Agent(
            ("127.0.0.1", told["control"]), token, name="localhost", patience=0.0
        ).run()
        attempts[f"process {token}"] = connect_control(
            ("127.0.0.1", told["control"]), identity=Identity.of(token, "process", "g0")
        )
        for port in told["data"]:
            attempts[f"edge at {port} {token}"] = open_edge(
                ("127.0.0.1", port),
                0,
                key=derive_key(token, "edge", 0),
                pacer=cast("Pacer", None),  # it gets no further
            )
    said = {}
    for name, attempt in attempts.items():
        try:
            await attempt
            said[name] = "ACCEPTED"
        except EmulatorError as error:
            said[name] = f"{type(error).__name__}: {error}"
    return said


def main() -> None:
    """Become another user, read what to try, try it, say what came of it."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    told = json.loads(sys.stdin.readline())
    said = {
        "reached": reached(told["pids"]),
        "readable": readable(told),
        "answers": asyncio.run(answers(told)),
    }
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    main()
