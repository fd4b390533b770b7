"""The programs of a lab while they run: started, waited for, told to end, sampled."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import RunError
from emu.lab.result import NicChange, ProgramRun
from emu.lab.setup import COMMAND, event_nic
from emu.machines.port_owners import PortOwners
from emu.machines.run_delay import CoreWaits
from emu.runs.traffic_file import SAMPLED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from emu.machines import Lab, Program
    from emu.machines.programs import Started
    from emu.scenario.lab_section import LabFile


#: Wall seconds between two samples: one of four idle machines took 2 ms of CPU.
PERIOD = 0.5


class Samples:
    """Samples of a lab that is up, from its making to `close`."""

    def __init__(self, lab: Lab) -> None:
        self._counters = lab.counters
        self._waits, self._owners = CoreWaits(lab.process), PortOwners(lab.process)
        self._began = time.monotonic()
        self._rows: dict[str, list[Any]] = {key: [] for key in SAMPLED}
        self.take()

    @property
    def seconds(self) -> float:
        """Wall seconds since the programs began."""
        return time.monotonic() - self._began

    @property
    def owners(self) -> dict[tuple[str, int], str]:
        """Name of the program by machine and port."""
        return self._owners.found

    def take_when_due(self) -> None:
        """Take a sample if the last one is long ago."""
        if self.seconds >= self._rows["time"][-1] + PERIOD:
            self.take()

    def take(self) -> None:
        """Take a sample now."""
        self._waits.sample()
        self._owners.sample()
        dropped, queued = self._counters.queues()
        tcp = self._counters.tcp().values()
        now = (
            self.seconds,
            *self._waits.seconds(),
            [counts["retransmitted"] for counts in tcp],
            [counts["timeouts"] for counts in tcp],
            dropped,
            queued,
        )
        for key, value in zip(SAMPLED, now, strict=True):
            self._rows[key].append(value)

    def close(self) -> dict[str, NDArray[Any]]:
        """Take the last sample; return all as `emu.runs.traffic_file.write_samples`."""
        self.take()
        return {key: np.array(values) for key, values in self._rows.items()}


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
