"""A lab from file to run directory: programs started, watched, ended, written down.

The programs know nothing of `emu`. They compute as fast as this host does, or as the
quotas of their machines let them; how far they had to wait for others is measured and
shown. All times are emulated ones: with ``lab.time_scale``, wall time over that.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from emu.array_types import Array, Records
from emu.errors import DataError, RunError
from emu.lab.machines.call_notes import CallNotes
from emu.lab.machines.capture import Capture
from emu.lab.machines.lab import Lab, LabMachine
from emu.lab.machines.nic import leaf_of, leaves_among
from emu.lab.machines.nic_check import NicCheck
from emu.lab.machines.programs import PLACES, TIME_SCALE, LabProgram, starts
from emu.lab.machines.ssh import SshServer
from emu.lab.output_lines import OutputLines, marks_of
from emu.lab.prediction import fit_note, forecast, judge_lab, predict_lab, unknown
from emu.lab.samples import PERIOD, Samples
from emu.lab.setup import COMMAND, cores_here, idle_keys, open_lab, programs_of
from emu.prediction.analysis import traffic as analysis
from emu.prediction.analysis.traffic import CALL, CONNECTION, OWNER, WAIT, Traffic
from emu.problem import Schedule
from emu.runs.array_files import SAMPLES, write_lines, write_traffic
from emu.runs.lab_file import log_name, running_lab
from emu.runs.run_directory import RunDirectory
from emu.scenario.events_section import idle_events
from emu.scenario.run_sections import LabFile

#: Share of their computing that programs may wait for a core in a ``trusted`` lab, and
#: of its length that machines may have gained by what their pauses left of quotas.
MOST_WAITS = 0.05
#: Remedy where programs wait for cores.
MORE_CORES = "state cpu: N of every machine and lab.time_scale: auto"
#: Parts of the time of a lab for which lab.json says how much of a NIC was used.
BINS = 60


#: Seconds at which a NIC changes, and the machine with its new one.
_Change: TypeAlias = tuple[float, LabMachine]


@dataclass
class ProgramRun:
    """A program on a machine: seconds of its start and end, and how it ended."""

    program: str
    machine: str
    start: float
    end: float | None = None
    code: int | None = None
    """Exit code, negative for a signal; None while it runs."""
    stopped: bool = False
    """True where the lab ended it, at the lab's own end."""


def summary(
    machines: Sequence[LabMachine],
    programs: Sequence[ProgramRun],
    samples: Mapping[str, Array],
    early: Sequence[float] = (0.0,),
) -> dict[str, Any]:
    """Return ends of programs, their waits for this computer, and drops of queues.

    ``early``: seconds that each machine computed in less than its quota says.
    """
    ran = float(samples["ran"][-1])
    wait = float(samples["waited"][-1])
    seconds = float(samples["time"][-1])
    ready = ran + wait
    share = wait / ready if ready > 0 else 0.0
    length = max(seconds, 1e-9)
    # The mean over machines, as with waits; the worst alone decides nothing.
    gain = sum(early) / len(early) / length
    is_trusted = max(share, gain) <= MOST_WAITS

    dropped = {}
    dropped_out, dropped_in = samples["dropped"][-1]
    for number, machine in enumerate(machines):
        dropped[machine.name] = {
            "out": int(dropped_out[number]),
            "in": int(dropped_in[number]),
        }
    return {
        "programs": [vars(run) for run in programs],
        "failed": _describe_failure(programs),
        "computed_seconds": ran,
        "waited_seconds": wait,
        "waited_share": share,
        "early_seconds": max(early),
        "early_share": gain,
        "trust": "trusted" if is_trusted else "degraded",
        "dropped": dropped,
    }


def _describe_failure(programs: Sequence[ProgramRun]) -> dict[str, Any] | None:
    """Return the program that failed first; None where all did well."""
    # What the lab ended itself has a signal for its code, and did not fail.
    failures = [run for run in programs if run.code and not run.stopped]
    if not failures:
        return None
    first = min(failures, key=lambda run: run.end or 0.0)
    return {
        "program": first.program,
        "machine": first.machine,
        "code": first.code,
    }


#: Emulated seconds that programs have to end after they were asked to.
GRACE = 2.0


class LabPrograms:
    """Runs programs in a lab that is up; their time begins when this is made.

    The folder takes the output of every program in a file of its own. ``watch`` gets a
    line when something has ended, or a NIC has changed.
    """

    def __init__(
        self,
        lab: Lab,
        file: LabFile,
        folder: Path,
        watch: Callable[[str], None],
    ) -> None:
        self._lab = lab
        self._file = file
        self._folder = folder
        self._watch = watch
        self.samples = Samples(lab)
        self._output = OutputLines(lambda: self.samples.seconds)
        self._calls = CallNotes() if file.lab.calls else None
        preload = {}
        if self._calls is not None:
            preload = self._calls.environment
        self._ssh = SshServer(lab, preload)
        self._settings = {
            TIME_SCALE: f"{lab.time_scale:g}",
            "PATH": self._ssh.path,
            **preload,
        }
        self.runs: dict[int, ProgramRun] = {}
        self.changes: list[_Change] = []
        self._events: list[_Change] = []
        by_time = sorted(file.events, key=attrgetter("time"))
        for event in by_time:
            name = event.machine
            nic = event.nic
            if name is not None and nic is not None:  # else refused
                machine = LabMachine(name, nic.outward, nic.inward)
                change = (event.time, machine)
                self._events.append(change)

    def start(
        self,
        programs: Sequence[LabProgram],
        command: Sequence[str],
    ) -> None:
        """Start programs in order; the command takes the place of theirs.

        Raises ValueError when a place is none, which `open_lab` refuses.
        """
        addresses = {}
        for machine in self._lab.machines:
            addresses[machine.name] = self._lab.address(machine.name)
        lines = [f"{address}\n" for address in addresses.values()]
        hosts = self._folder / "hosts.txt"
        hosts.write_text("".join(lines), "utf-8")
        paths = (
            str(hosts.resolve()),
            str(self._file.folder),
            sys.executable,
        )
        places = dict(zip(PLACES, paths, strict=True))
        due = starts(programs, addresses, places)

        cores = cores_here()
        has_quotas = bool(self._file.cores)
        if len(due) > cores and not has_quotas:
            self._watch(
                f"{len(due)} programs, and this computer has {cores:g} cores: waits "
                f"for them would look like computing; {MORE_CORES}"
            )

        arguments = [COMMAND, *command] if command else []
        for start in due:
            log = self._folder / log_name(start.program, start.machine)
            output = self._output.add(log)
            environment = {
                **os.environ,
                **self._settings,
                **start.environment,
            }
            try:
                program = self._lab.start(
                    start.machine,
                    [*start.command, *arguments],
                    environment=environment,
                    output=output,
                )
            finally:
                # The program has a descriptor of its own by now.
                os.close(output)
            run = ProgramRun(start.program, start.machine, self.samples.seconds)
            self.runs[program.number] = run

    def close(self) -> dict[str, Array]:
        """Write lines.npz; return the samples."""
        self._ssh.close()
        times = self._output.close()
        write_lines(self._folder, times)
        return self.samples.close()

    def packets(self, capture: Capture | None) -> Records | None:
        """Close a capture; return its packets by the time of the programs."""
        if capture is None:
            return None
        return capture.close(self.samples.began, self._lab.time_scale)

    def traffic(self, packets: Records) -> Traffic:
        """Return the captured packets and the noted calls, with names as numbers."""
        machines = self._lab.machines
        names = tuple(machine.name for machine in machines)
        calls, callers = self._read_calls()
        owners = set(self.samples.owners)
        # A connection that was closed between two samples is known by its calls.
        is_on_connection = calls["kind"] != WAIT
        ends = calls[is_on_connection][["machine", "port", "program"]]
        for machine, port, caller in np.unique(ends).tolist():
            owner = (names[machine], port, callers[caller])
            owners.add(owner)

        different_programs = {program for _, _, program in owners}
        different_programs.update(callers)
        programs = tuple(sorted(different_programs))
        if len(calls):
            places = [programs.index(name) for name in callers]
            numbers = np.array(places, np.uint16)
            calls["program"] = numbers[calls["program"]]
        rows = []
        for machine_name, port, program in sorted(owners):
            machine = names.index(machine_name)
            place = programs.index(program)
            row = (machine, port, place)
            rows.append(row)

        nics_out = [machine.nic_out for machine in machines]
        nics_in = [machine.nic_in for machine in machines]
        return Traffic(
            packets=packets,
            machines=names,
            nics=np.array([nics_out, nics_in]),
            programs=programs,
            owners=np.array(rows, OWNER),
            calls=calls,
        )

    def _read_calls(self) -> tuple[Records, list[str]]:
        """Return the calls of the programs, and the names that these have there."""
        if self._calls is None:
            return np.empty(0, CALL), []

        calls, callers = self._calls.read(self.samples.began)
        for name in ("begin", "end"):
            calls[name] /= self._lab.time_scale
        programs = {run.program for run in self.runs.values()}
        problem = self._calls.problem(programs)
        if problem:
            self._watch(problem)
        return calls, callers

    def describe(self, seconds: float) -> dict[str, Any]:
        """Return what lab.json says of the machines, and of so many seconds."""
        nics = {}
        cores = {}
        for machine in self._lab.machines:
            name = machine.name
            nics[name] = {
                "out": machine.nic_out,
                "in": machine.nic_in,
            }
            if machine.cpu is not None:
                cores[name] = machine.cpu

        events = []
        for instant, machine in self.changes:
            event = {
                "time": instant,
                "machine": machine.name,
                "nic_out": machine.nic_out,
                "nic_in": machine.nic_in,
            }
            events.append(event)
        return {
            "wall_seconds": seconds * self._lab.time_scale,
            "time_scale": self._lab.time_scale,
            "startup_seconds": self._lab.startup_seconds,
            "nics": nics,
            "cpu": cores,
            "events": events,
            "sharing": self._file.lab.sharing,
        }

    def sum_traffic(
        self,
        traffic: Traffic,
        seconds: float,
    ) -> dict[str, Any]:
        """Return the key ``crossed`` of lab.json: payload by pair, NICs over time."""
        packets = traffic.packets
        names = traffic.machines
        rates = []
        for instant, machine in self.changes:
            number = names.index(machine.name)
            rate = (instant, number, machine.nic_out, machine.nic_in)
            rates.append(rate)
        nics = analysis.nic_rates(
            traffic.nics,
            rates,
            seconds=seconds,
            bins=BINS,
        )
        use = analysis.nic_use(packets, nics, seconds)
        sizes = analysis.count_bytes(packets, len(names))

        # Where connections are to have queues of their own, some may share one.
        shared_queues = 0
        if self._file.lab.sharing == "fair":
            leaves = leaves_among(len(names))
            leaf = partial(leaf_of, leaves=leaves)
            meetings = analysis.meetings(packets, leaf)
            shared_queues = len(meetings)

        use_by_name = {}
        use_out, use_in = use.tolist()
        for number, name in enumerate(names):
            use_by_name[name] = {
                "out": use_out[number],
                "in": use_in[number],
            }
        connections = np.unique(packets[CONNECTION])
        messages = analysis.messages(packets)
        return {
            "packets": len(packets),
            "connections": len(connections),
            "messages": len(messages),
            "shared_queues": shared_queues,
            "bytes": analysis.name_matrix(sizes, names),
            "bin_seconds": seconds / BINS,
            "nic_use": use_by_name,
        }

    def judge(
        self,
        traffic: Traffic,
        predicted: Schedule | None,
        tcp: Mapping[str, Mapping[str, int]],
        nics: Mapping[str, Mapping[str, float]],
    ) -> dict[str, Any]:
        """Return ``prediction`` of lab.json, by the marks that the file names."""
        section = self._file.lab.prediction
        if predicted is None or section is None:
            return {}

        marks = None
        if section.mark:
            runs = self.runs.values()
            programs = [(run.program, run.machine) for run in runs]
            try:
                marks = marks_of(self._folder, section.mark, programs, traffic)
            # What was measured counts even where no line says when iterations began.
            except DataError as why:
                return {"prediction": unknown(section.max_difference, why)}

        shares_by_link = {}
        for machine, shares in nics.items():
            for direction, share in shares.items():
                shares_by_link[f"{machine} {direction}"] = share
        verdict = judge_lab(
            traffic,
            predicted,
            threshold=section.max_difference,
            skip=section.skip,
            marks=marks,
            timeouts=sum(counts["timeouts"] for counts in tcp.values()),
            time_scale=self._lab.time_scale,
            nics=shares_by_link,
        )
        return {"prediction": verdict}

    def until_end(self) -> None:
        """Wait for the programs that decide; then ask the others to end, and end them.

        The first failure decides: others would wait for it.
        """
        decisive = self._file.lab.until
        waits = set()
        for number, run in self.runs.items():
            if decisive is None or run.program == decisive:
                waits.add(number)
        while waits:
            for number in self._collect_ends():
                run = self.runs[number]
                end = _end_of(run)
                self._watch(f"{run.program} on {run.machine} ended: {end}")
                waits.discard(number)
                if run.code:
                    waits.clear()
            self._change_nics()
        self._tell_idle_events()

        for run in self.runs.values():
            run.stopped = run.end is None
        # Asked first, so that programs can write what they have; then killed.
        for number in (signal.SIGTERM, signal.SIGKILL):
            if number == signal.SIGKILL:
                self._name_survivors()
            # A machine that has gone has no program left to signal.
            with contextlib.suppress(RunError):
                self._lab.signal_all(number)
            deadline = time.monotonic() + GRACE * self._lab.time_scale
            while self._survivors() and time.monotonic() <= deadline:
                self._collect_ends(0.1)

    def _survivors(self) -> list[ProgramRun]:
        return [run for run in self.runs.values() if run.end is None]

    def _name_survivors(self) -> None:
        for run in self._survivors():
            self._watch(
                f"{run.program} on {run.machine} ran on for {GRACE:g} s after "
                "SIGTERM: it is killed"
            )

    def _change_nics(self) -> None:
        """Carry out the events whose time has come."""
        while self._events:
            due, machine = self._events[0]
            if due > self.samples.seconds:
                break
            del self._events[0]
            # As it came about, which is a little later than the file says.
            change = (self.samples.seconds, machine)
            self._lab.change_nic(machine)
            self.changes.append(change)
            self._watch(f"the NIC of {machine.name} has changed")

    def _tell_idle_events(self) -> None:
        for sentence in idle_events(self._file.events, self.samples.seconds):
            self._watch(sentence)

    def _collect_ends(self, patience: float = PERIOD) -> list[int]:
        """Return programs that have ended; take a sample when it is time for one."""
        timeout = patience
        if self._events:
            # Nobody else would wake this up when a NIC is to change.
            instant, _ = self._events[0]
            seconds = instant - self.samples.seconds
            due = seconds * self._lab.time_scale
            timeout = max(0.0, min(due, patience))

        numbers = []
        ssh = self._ssh
        ended = self._lab.wait(timeout, ssh.sockets, ssh.take)
        for program in ended:
            # Who called it by ssh gets its code; it is no program of the file.
            is_of_ssh = ssh.tell(program)
            number = program.number
            if not is_of_ssh and number in self.runs:
                run = self.runs[number]
                run.end = self.samples.seconds
                run.code = program.code
                numbers.append(number)
        self.samples.take(when_due=True)
        return numbers


def _end_of(run: ProgramRun) -> str:
    code = run.code or 0
    if code < 0:
        number = signal.Signals(-code)
        return f"killed by {number.name}"
    return f"exit code {code}" if code else "well"


PCAP = "traffic.pcap"


def _foretell(
    file: LabFile,
    prediction: Schedule | None,
    time_scale: float,
) -> Iterator[str]:
    """Yield what is known of a lab and its prediction before it runs."""
    idle = idle_keys(file)
    if idle:
        yield f"changes nothing in a lab: {', '.join(idle)} of machines"
    if prediction is None:
        return
    note = fit_note(file)
    yield f"prediction: {note}"
    # `forecast` knows the queues of labs that state none, and how TCP shares them.
    section = file.lab
    if section.sharing == "tcp" and section.queue is None:
        queues = forecast(prediction, time_scale)
        yield queues.sentence()


def _check_nics(file: LabFile, lab: Lab) -> NicCheck:
    """Measure the NICs; ScenarioError where one is off by more than may be."""
    check = lab.check_nics(file.lab.max_nic_error)
    refusal = check.refusal("lab.max_nic_error")
    if refusal:
        raise file.origin.error(("cluster", "machines"), refusal)
    return check


def run_lab(
    file: LabFile,
    directory: RunDirectory,
    command: Sequence[str] = (),
    *,
    pcap: bool = False,
    watch: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Run the programs of a lab to their end; return what ``lab.json`` says.

    The directory takes that, and the output of every program. ``command`` runs on every
    machine in place of the file's programs; ``pcap`` writes the headers of all packets
    for Wireshark; ``watch`` gets a line when something has started or ended. Raises
    ScenarioError when the file describes no lab that can be had here, RunError when the
    lab cannot be started, or a machine dies.
    """
    programs = programs_of(file, command)
    # Before the lab runs: what is judged then was known beforehand.
    prediction = predict_lab(file)
    with open_lab(file) as lab:
        for sentence in _foretell(file, prediction, lab.time_scale):
            watch(sentence)
        watch(f"{len(lab.machines)} machines in {lab.startup_seconds:.2f} s")
        check = _check_nics(file, lab)
        watch(f"NICs measured in {check.seconds:.2f} s")

        headers = directory.path / PCAP if pcap else None
        captures = file.lab.capture or pcap
        capture = lab.capture(headers) if captures else None
        running = LabPrograms(lab, file, directory.path, watch)
        try:
            running.start(programs, command)
            with running_lab(directory.path, lab.holders):
                running.until_end()
        finally:
            # Before anything is closed, which takes its own time.
            seconds = running.samples.seconds
            samples = running.close()
            packets = running.packets(capture)
        # While the machines are there: the kernel's counters go with them.
        counts = {"traffic": lab.counters.traffic(), "tcp": lab.counters.tcp()}

    runs = list(running.runs.values())
    result = {
        **running.describe(seconds),
        **summary(lab.machines, runs, samples, running.samples.early),
        "measured": check.to_json(),
        **counts,
    }
    if capture is not None and packets is not None:
        result["capture"] = {
            "lost": capture.lost,
            "cpu_seconds": capture.cpu_seconds,
        }
        traffic = running.traffic(packets)
        result["crossed"] = running.sum_traffic(traffic, seconds)
        result |= running.judge(traffic, prediction, counts["tcp"], check.shares)
        write_traffic(directory.path, traffic)
    directory.write_arrays(SAMPLES, **samples)
    directory.write_json("lab.json", result)
    return result
