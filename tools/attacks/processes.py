"""The processes of one run, found by a mark in their environment."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil

import emu

MARK = "EMU_CHAOS"
#: Where Linux keeps named shared memory.
_SHARED = Path("/dev/shm")  # noqa: S108


def family(mark: str) -> list[psutil.Process]:
    """Return every process that carries the mark, zombies apart, oldest first."""
    found = []
    line = f"{MARK}={mark}".encode()
    for process in psutil.process_iter():
        try:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes()
            dead = process.status() == psutil.STATUS_ZOMBIE
            if line in environment.split(b"\0") and not dead:
                found.append(process)
        except (OSError, psutil.Error):
            continue
    return sorted(found, key=lambda process: (process.create_time(), process.pid))


def roles(mark: str) -> dict[str, psutil.Process]:
    """Return the processes of a run: command, agent, fork server, and every task."""
    found: dict[str, psutil.Process] = {}
    for process in family(mark):
        try:
            name, command = process.name(), " ".join(process.cmdline())
        except psutil.Error:
            continue
        if name.startswith("emu:"):
            role = name.removeprefix("emu:")
        elif "emu.launch.fork_server" in command:
            role = "fork server"
        else:
            role = "agent" if "-m emu.launch" in command else "command"
        found.setdefault(role, process)
    return found


def gone(mark: str, spared: set[int], within: float) -> list[psutil.Process]:
    """Wait until no other process of the family is left; return those that are."""
    deadline = time.monotonic() + within
    while left := [each for each in family(mark) if each.pid not in spared]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return left


def shared_memory() -> set[str]:
    """Return the names of shared memory segments."""
    return {*os.listdir(_SHARED)} if _SHARED.is_dir() else set()  # noqa: PTH208


def settings(
    scenario: str, changes: list[str], time_scale: float, wall: float
) -> list[str]:
    """Return ``--set`` of changes and of iterations that take ``wall`` seconds."""
    changes = [f"emulation.time_scale={time_scale}", "expect=null", *changes]
    few, more = (
        emu.simulate(emu.load(scenario, [*changes, f"job.iterations={n}"])).makespan
        for n in (20, 40)
    )
    count = round(wall / time_scale / ((more - few) / 20))
    changes.append(f"job.iterations={count}")
    return [part for each in changes for part in ("--set", each)]
