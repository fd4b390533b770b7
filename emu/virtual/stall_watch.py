"""Ranks that have a core and use none of it, as the kernel shows them."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from emu.errors import EmulatorError, RunError

#: Seconds after which ranks that all sleep, outside of any call, end the run.
PATIENCE = 60.0


class StallWatch:
    """Sees ranks that have a core and do not use it: they wait outside of any call.

    On a file, a socket of their own, or a process that they started.
    """

    def __init__(self, pids: Mapping[int, int]) -> None:
        self._pids = pids
        self._seen: dict[int, tuple[str, ...]] = {}
        self._all_since = 0.0

    def look(self, running: Collection[int]) -> set[int]:
        """Return those of the ranks that run which used no core since the last look.

        Raises RunError when none of them did for long.
        """
        stalled = set()
        for rank in running:
            pid = self._pids[rank]
            use = _cpu_use(pid)
            if use == self._seen.get(rank):
                stalled.add(rank)
            self._seen[rank] = use

        now = time.monotonic()
        if len(stalled) < len(running) or not self._all_since:
            self._all_since = now
        if now - self._all_since > PATIENCE:
            names = ", ".join(map(str, sorted(stalled)))
            raise RunError(
                f"rank {names} waited {PATIENCE:g} s for something outside of "
                "torch.distributed, such as a socket of its own: emu lab runs that"
            )
        return stalled


def _cpu_use(pid: int) -> tuple[str, ...]:
    """Return state and CPU ticks of a process and its children that have ended."""
    file = Path(f"/proc/{pid}/stat")
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        reason = os.strerror(3)
        raise EmulatorError(f"process {pid} has gone: {reason}") from error

    _, _, behind_name = text.rpartition(")")
    state, *fields = behind_name.split()
    if state == "S":
        return state, *fields[10:14]
    # It runs: no two looks are alike.
    now = time.monotonic()
    return (str(now),)
