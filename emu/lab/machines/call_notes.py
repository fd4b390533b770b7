"""Notes of what a lab's programs called, made by a library that is loaded into them."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from emu.array_types import Records
from emu.prediction.analysis.traffic import CALL, WAIT

#: Built from ``calls.c``; there is none where glibc is not.
LIBRARY = Path(__file__).with_name("calls.so")
#: A note as ``calls.c`` writes it, behind a head of as many bytes.
NOTE = np.dtype(
    [
        ("begin", "<u8"),
        ("end", "<u8"),
        ("bytes", "<i8"),
        ("thread", "<u4"),
        ("peer", "<u4"),
        ("kind", "<u2"),
        ("port", "<u2"),
        ("peer_port", "<u2"),
        ("host", "<u2"),
    ]
)
#: Notes of a process for which its file has room.
MOST_NOTES = 1 << 20
#: Upper half of the addresses of the limited network; the lower one counts machines
#: from 1 (`Lab.address`).
_NETWORK = (10 << 8) + 77
_PRELOAD = "LD_PRELOAD"


class CallNotes:
    """Notes of the calls of programs, from the making to `read`."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="emu-calls-")
        self._programs: list[str] = []
        self._lost = 0

    @property
    def environment(self) -> dict[str, str]:
        """Variables that programs need for it; none where there is no library."""
        if not LIBRARY.exists():
            return {}
        libraries = [str(LIBRARY)]
        preloaded = os.environ.get(_PRELOAD)
        if preloaded:
            libraries.append(preloaded)
        return {
            _PRELOAD: ":".join(libraries),
            "EMU_CALLS": self._folder.name,
        }

    def read(self, began: float) -> tuple[Records, list[str]]:
        """Return rows of `CALL` by beginning, and the names of their programs.

        Seconds count from ``began``, seconds since 1970. Calls on other connections
        than those between machines are left out, and all where some found no room. The
        files are removed.
        """
        parts = [np.empty(0, CALL)]
        files = sorted(Path(self._folder.name).iterdir())
        for path in files:
            process, _, program = path.name.split(".", 2)
            notes = self._read_file(path)
            rows = _convert(notes, began)
            if rows is None:
                continue
            if program not in self._programs:
                self._programs.append(program)
            rows["program"] = self._programs.index(program)
            rows["process"] = int(process)
            parts.append(rows)
        self.close()
        if self._lost:
            # Packets behind the last note would be taken for what that one sent.
            return np.empty(0, CALL), []

        calls = np.concatenate(parts)
        order = np.argsort(calls["begin"], kind="stable")
        return calls[order], self._programs

    def problem(self, programs: set[str]) -> str:
        """Return why the notes, once read, are not of all that programs called."""
        if not LIBRARY.exists():
            return "socket calls are not noted: emu was built without the library"
        if self._lost:
            return (
                f"{self._lost:,} socket calls found no room among the notes: none of "
                "them is used"
            )

        silent = sorted(programs.difference(self._programs))
        if silent:
            return (
                f"socket calls of {', '.join(silent)} are not noted: it calls none, or "
                "takes no LD_PRELOAD, as what is linked statically"
            )
        return ""

    def _read_file(self, path: Path) -> Records:
        with path.open("rb") as file:
            head = file.read(NOTE.itemsize)
            count = int.from_bytes(head[:8], "little")
            kept = min(count, MOST_NOTES)
            self._lost += count - kept
            notes = file.read(NOTE.itemsize * kept)
        # What is cut off amid a note is none.
        whole = len(notes) // NOTE.itemsize
        return np.frombuffer(notes, NOTE, whole)

    def close(self) -> None:
        """Remove the files."""
        self._folder.cleanup()


def _convert(notes: Records, began: float) -> Records | None:
    """Return the rows of one process; None where it has no connection of the lab."""
    # What was cut off amid a note has no end.
    notes = notes[notes["end"] > 0]
    is_near = notes["peer"] >> 16 == _NETWORK
    if not is_near.any():
        return None
    is_wait = notes["kind"] == WAIT
    notes = notes[is_near | is_wait]

    rows = np.zeros(len(notes), CALL)
    for name in ("bytes", "kind", "thread", "port", "peer_port"):
        rows[name] = notes[name]
    has_peer = notes["peer"] > 0
    low_halves = notes["peer"][has_peer] & 0xFFFF
    rows["peer"][has_peer] = low_halves - 1
    # Who started a process may have given it the environment of another machine.
    host = notes["host"][has_peer][0]
    rows["machine"] = host - 1
    for name in ("begin", "end"):
        nanoseconds = notes[name].astype(np.int64)
        since_began = nanoseconds - round(1e9 * began)
        rows[name] = np.maximum(1e-9 * since_began, 0.0)
    return rows
