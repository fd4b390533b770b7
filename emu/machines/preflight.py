"""A lab's needs of this computer, each with its own sentence and remedy."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from emu.errors import RunError
from emu.machines.lab import Lab
from emu.machines.machine import LabMachine


def missing_needs() -> list[str]:
    """Return the obstacles to a lab here: one sentence each, with a remedy.

    Tries it: two machines are started and ended, in 0.2 s.
    """
    if platform.system() != "Linux":
        return ["machines are Linux namespaces; run it on Linux"]
    try:
        with Lab([LabMachine("a", 1e7, 1e7), LabMachine("b", 1e7, 1e7)]):
            return []
    except RunError as error:
        return [f"{error}; {_remedy(str(error))}"]


def _remedy(problem: str) -> str:
    restricted = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
    if os.geteuid() and "user namespace" in problem:
        if restricted.exists() and restricted.read_text().strip() == "1":
            return "Ubuntu's AppArmor forbids user namespaces: run it as root"
        return "run it as root, or allow user namespaces (Docker: another seccomp)"
    if "No such file" in problem:
        return "the kernel lacks HTB, bfifo, cls_bpf, veth or bridge: load the module"
    return "run it as root"
