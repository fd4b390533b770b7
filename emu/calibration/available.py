"""Operations that this host permits; each is probed by doing it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys

from emu.network import tune_socket

_PATIENCE = 5.0
YES = "yes"


def usable_cores() -> int:
    """Return the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available() -> dict[str, str]:
    """Return name -> "yes", or why not."""
    return {
        "root": YES if hasattr(os, "geteuid") and os.geteuid() == 0 else "no",
        "user namespaces": _tried("unshare", "--user", "--map-root-user", "true"),
        "htb (kernel shaping)": _tried(
            "unshare", "--user", "--map-root-user", "--net",
            "tc", "qdisc", "add", "dev", "lo", "root", "handle", "1:", "htb",
        ),
        "shared memory": YES if hasattr(os, "memfd_create") else "temporary files",
        "timerfd": YES if sys.platform == "linux" else "no: loop timers, 1 ms",
        "congestion control": _congestion_control(),
    }  # fmt: skip


def _tried(*command: str) -> str:
    """Return ``YES`` where a command succeeds here, else the start of its stderr."""
    for program in (command[0], *(word for word in command[1:] if word == "tc")):
        if shutil.which(program) is None:
            return f"unknown: there is no {program}"
    try:
        done = subprocess.run(  # noqa: S603 -- our own words
            command, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no: {error}"
    lines = done.stderr.strip().splitlines()
    return YES if done.returncode == 0 else f"no: {(lines or ['refused'])[0]:.60}"


def _congestion_control() -> str:
    with socket.socket() as sock:
        return tune_socket(sock).get("tcp_congestion", "default")
