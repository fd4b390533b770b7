"""Output of the programs of a lab: written to files, with the time of every line.

`emu fit --mark` takes lines for the starts of iterations, and says later which ones.
"""

from __future__ import annotations

import math
import os
import re
import selectors
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from emu.array_types import Floats
from emu.errors import DataError
from emu.host.input_file import open_input
from emu.lab.fitting.steps import ALL, Marks
from emu.prediction.analysis.traffic import Traffic
from emu.runs.array_files import read_lines
from emu.runs.lab_file import log_name

#: Lines of a program whose times are noted.
MOST_LINES = 1_000_000
#: Bytes of a log that are looked through for marks.
MOST_LOG = 1 << 28
_CHUNK = 1 << 16
#: First line of the frame that torchrun draws where a rank has failed.
_FRAME_OF_TORCHRUN = re.compile(
    r"^.*failed \(exitcode: -?\d+\) local_rank: .*", re.MULTILINE
)
#: Wall seconds after which a thread that waits for output looks if it is to end.
_LOOK = 0.2
#: Wall seconds in which what ended programs printed is copied: others may go on.
_PATIENCE = 5.0
#: Seconds within which half of the marks must not come: a program kept them back.
_AT_ONCE = 1e-3


class OutputLines:
    """Copies output of programs to files, in a thread; ``seconds`` says the time."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._closing = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._files: list[BinaryIO] = []
        self._times: list[array[float]] = []
        self._refused: DataError | None = None
        self._until = math.inf
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def add(self, path: Path) -> int:
        """Return the descriptor that a program prints to, to be closed once it has."""
        read, write = os.pipe2(os.O_CLOEXEC)
        number = len(self._files)
        file = path.open("wb", buffering=0)
        self._files.append(file)
        self._times.append(array("d"))
        self._selector.register(read, selectors.EVENT_READ, number)
        return write

    def _copy(self) -> None:
        while True:
            ready = self._selector.select(_LOOK)
            late = time.monotonic() > self._until
            # A program that lives on may print for ever.
            if self._closing.is_set() and (late or not ready):
                return
            for key, _ in ready:
                file = self._files[key.data]
                times = self._times[key.data]
                chunk = os.read(key.fd, _CHUNK)
                room = MOST_LINES - len(times)
                count = min(chunk.count(b"\n"), room)
                now = self._seconds()
                times.extend([now] * count)

                try:
                    file.write(chunk)
                except OSError as error:
                    problem = f"cannot be written: {error.strerror}"
                    self._refused = DataError(problem, path=file.name)
                    chunk = b""
                if not chunk:
                    self._selector.unregister(key.fd)
                    os.close(key.fd)

    def close(self) -> list[Floats]:
        """Copy what is left; return by program the seconds at which lines ended.

        Raises DataError when the disk refused some.
        """
        self._until = time.monotonic() + _PATIENCE
        self._closing.set()
        self._thread.join()
        for key in self._selector.get_map().values():
            os.close(key.fd)
        self._selector.close()
        for file in self._files:
            file.close()
        if self._refused:
            raise self._refused
        return [np.array(times) for times in self._times]


def marks_of(
    run: Path,
    text: str,
    programs: Sequence[tuple[str, str]],
    traffic: Traffic,
) -> Marks:
    """Return the seconds at which lines with this text were printed, by process.

    Of those that printed any; where none of these sent anything, of the first. Programs
    have names of program and machine, in the order of lab.json. Raises DataError when
    none did, or they all came at once.
    """
    times = read_lines(run)
    sought = text.encode()
    count = 0
    by_program: dict[tuple[str, str], Floats] = {}
    for number, (program, machine) in enumerate(programs):
        path = run / log_name(program, machine)
        is_of_program = times["program"] == number
        line_times = times["time"][is_of_program]
        with open_input(path, MOST_LOG) as file:
            lines = [line for line, _ in zip(file, line_times, strict=False)]
        count += len(lines)
        places = [place for place, line in enumerate(lines) if sought in line]
        marks = line_times[places]
        found = len(marks)
        if not found:
            continue
        if found > 2 and np.median(np.diff(marks)) < _AT_ONCE:
            raise DataError(
                f"its {found} lines with {text!r} came at once: the program kept "
                "them back; flush after each (Python: env PYTHONUNBUFFERED: '1')",
                path=path,
            )
        by_program[program, machine] = marks
    if not by_program:
        raise DataError(
            f"no program printed a line with {text!r}, which --mark looks for, among "
            f"{count:,} lines of {len(programs)} programs",
            path=run,
        )

    by_process = {}
    for (program, machine), marks in by_program.items():
        if program in traffic.programs and machine in traffic.machines:
            machine_number = traffic.machines.index(machine)
            program_number = traffic.programs.index(program)
            by_process[machine_number, program_number] = marks
    if by_process:
        return by_process
    first = next(iter(by_program.values()))
    return {ALL: first}


def last_words(text: str) -> str:
    """Return the last line of a program's output; empty where it has none.

    Under torchrun that is what the program of a rank said, and not the frame below it.
    """
    frames = [*_FRAME_OF_TORCHRUN.finditer(text)]
    if frames:
        first_line = frames[-1]
        text = text[: first_line.start()].strip() or first_line[0]
    lines = [line for line in text.split("\n") if line.strip()]
    return lines[-1] if lines else ""
