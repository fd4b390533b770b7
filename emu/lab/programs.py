"""The programs of a lab while they run: started, waited for, told to end, sampled."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

from emu.errors import RunError
from emu.lab.result import NicChange, ProgramRun
from emu.lab.samples import PERIOD, Samples
from emu.lab.setup import COMMAND, event_nic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from emu.machines import Lab, Program
    from emu.machines.programs import Started
    from emu.scenario.lab_section import LabFile

#: Wall seconds that programs have to end after they were asked to.
GRACE = 2.0


class LabPrograms:
    """Runs programs in a lab that is up; their time begins when this is made.

    Parameters
    ----------
    folder
        Takes the output of every program in a file of its own.
    watch
        Gets a line when something has ended, or a NIC has changed.
    """

    def __init__(
        self, lab: Lab, file: LabFile, folder: Path, watch: Callable[[str], None]
    ) -> None:
        self._lab, self._section, self._folder = lab, file.lab, folder
        self._watch = watch
        self.samples = Samples(lab)
        self.runs: dict[int, ProgramRun] = {}
        self.changes: list[NicChange] = []
        self._events = sorted(file.events, key=lambda event: event.at)

    def start(self, todo: Sequence[Started], command: Sequence[str]) -> None:
        """Start programs in order; the command takes the place of theirs."""
        for one in todo:
            given = [*one.command, COMMAND, *command] if command else list(one.command)
            log = self._folder / f"{one.program}-{one.machine}.log"
            with log.open("wb") as output:
                program = self._lab.start(
                    one.machine,
                    given,
                    environment={**os.environ, **one.environment},
                    output=output.fileno(),
                )
            self.runs[program.number] = ProgramRun(
                one.program, one.machine, self.samples.seconds
            )

    def until_end(self) -> None:
        """Wait for the programs that decide; then tell the others to end, and end them.

        The first failure decides: others would wait for it.
        """
        until = self._section.until
        awaited = {n for n, run in self.runs.items() if until in {None, run.program}}
        while awaited:
            for number in self._ended():
                run = self.runs[number]
                self._watch(f"{run.program} on {run.machine} ended: {_how(run.code)}")
                awaited = set() if run.code else awaited - {number}
            self._change_nics()
        for run in self.runs.values():
            run.told = run.end is None
        for number in (signal.SIGTERM, signal.SIGKILL):
            if number == signal.SIGKILL:
                self._say_who_stayed()
            with contextlib.suppress(RunError):
                self._lab.signal_all(number)
            limit = time.monotonic() + GRACE
            while any(run.end is None for run in self.runs.values()):
                if time.monotonic() > limit:
                    break
                self._ended(0.1)

    def _say_who_stayed(self) -> None:
        for run in self.runs.values():
            if run.end is None:
                self._watch(
                    f"{run.program} on {run.machine} ran on for {GRACE:g} s after "
                    "SIGTERM: it is killed"
                )

    def _ended(self, patience: float = PERIOD) -> list[int]:
        """Return programs that have ended; take a sample when it is time for one."""
        due = self._events[0].at - self.samples.seconds if self._events else patience
        found: list[Program] = self._lab.wait(max(0.0, min(due, patience)))
        for program in found:
            run = self.runs[program.number]
            run.end, run.code = self.samples.seconds, program.code
        self.samples.take_when_due()
        return [program.number for program in found]

    def _change_nics(self) -> None:
        """Make NICs what events say that have come due."""
        while self._events and self._events[0].at <= self.samples.seconds:
            new = event_nic(self._events.pop(0))
            self._lab.change_nic(new)
            self.changes.append(
                NicChange(self.samples.seconds, new.name, new.nic_out, new.nic_in)
            )
            self._watch(f"the NIC of {new.name} has changed")


def _how(code: int | None) -> str:
    if code is None:
        return "it runs"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return "well" if code == 0 else f"exit code {code}"
