"""A lab from file to run directory: programs started, watched, ended, written down.

The programs know nothing of `emu`. No time is dilated: they compute as fast as this
host does, and their waits for a core are measured and shown.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.analysis.traffic import (
    CONNECTION,
    OWNER,
    Traffic,
    meetings,
    messages,
    named_matrix,
    nic_use,
    sent_matrix,
)
from emu.errors import RunError, ScenarioError
from emu.machines import Lab, LabMachine, Sharing, leaf_of
from emu.machines.owners import PortOwners
from emu.machines.programs import LabProgram, Started, starts
from emu.machines.waiting import CoreWaits
from emu.runs.traffic_file import write_traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from emu.machines import Program
    from emu.runs.run_directory import RunDirectory
    from emu.scenario.lab_section import LabFile

#: Wall seconds that programs have to end after they were asked to.
GRACE = 2.0
#: Wall seconds between two samples of waits for a core.
_SAMPLE = 0.5
#: Share of their computing that programs may wait for a core in a ``trusted`` lab.
MOST_WAITS = 0.05
COMMAND = "command"
#: Parts of the time of a lab for which lab.json says how much of a NIC was used.
BINS = 60


def open_lab(file: LabFile) -> Lab:
    """Return the lab that a file describes, not started yet.

    Raises
    ------
    ScenarioError
        When a NIC is one that no kernel here carries, or a name is no host name.
    """
    section = file.lab
    machines = [
        LabMachine(m.name, m.bandwidth_out, m.bandwidth_in)
        for m in file.to_cluster().machines
    ]
    for machine in machines:
        if not all(c.isascii() and (c.isalnum() or c in "-.") for c in machine.name):
            raise ScenarioError(
                f"{machine.name!r} is no host name: letters, digits, - and . make one",
                key="cluster.machines.name",
            )
    try:
        return Lab(
            machines,
            sharing=Sharing(section.sharing),
            mtu=section.mtu,
            queue=section.queue,
            congestion_control=section.congestion_control,
        )
    except ValueError as error:
        raise ScenarioError(str(error), key="cluster.machines") from error


def programs_of(file: LabFile, command: Sequence[str]) -> list[LabProgram]:
    """Return the programs of a file; one command on every machine takes their place.

    Raises
    ------
    ScenarioError
        When there are none.
    """
    names = tuple(name for name, _ in file.cluster.named())
    if command:
        return [LabProgram(COMMAND, names, 'exec "$@"')]
    if not file.lab.programs:
        raise ScenarioError(
            "states nothing to run: give lab.programs, or a command after --",
            key="lab.programs",
        )
    return [
        LabProgram(p.name, names if p.on == "all" else p.on, p.run, p.env)
        for p in file.lab.programs
    ]


def run_lab(
    file: LabFile,
    directory: RunDirectory,
    command: Sequence[str] = (),
    *,
    watch: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Run the programs of a lab to their end; return what ``lab.json`` says.

    Parameters
    ----------
    directory
        Takes the output of every program in a file of its own, and ``lab.json``.
    command
        Runs on every machine in place of the file's programs.
    watch
        Gets a line when something has started or ended.

    Raises
    ------
    ScenarioError
        When the file describes no lab that can be had here.
    RunError
        When the lab cannot be started, or a machine dies.
    """
    programs = programs_of(file, command)
    with open_lab(file) as lab:
        addresses = {m.name: lab.address(m.name) for m in lab.machines}
        hosts = directory.path / "hosts.txt"
        hosts.write_text("".join(f"{at}\n" for at in addresses.values()))
        try:
            todo = starts(programs, addresses, str(hosts.resolve()))
        except ValueError as error:
            raise ScenarioError(str(error), key="lab.programs") from error
        watch(f"{len(lab.machines)} machines in {lab.startup_seconds:.2f} s")
        began = time.monotonic()
        capture = lab.capture() if file.lab.capture else None
        waits, owners = CoreWaits(lab.process), PortOwners(lab.process)
        running: dict[int, Started] = {}
        try:
            for one in todo:
                program = _start(lab, one, directory.path, command)
                running[program.number] = one
            ended = _until_end(
                lab, running, file.lab.until, (waits.sample, owners.sample), watch
            )
        finally:
            seconds = time.monotonic() - began
            waits.sample()
            packets = None if capture is None else capture.close()
        counted = {"traffic": lab.traffic(), "tcp": lab.tcp()}
    result = _summary(ended, running, waits, lab.startup_seconds, seconds) | counted
    if capture is not None and packets is not None:
        result["capture"] = {"lost": capture.lost, "cpu_seconds": capture.cpu_seconds}
        fair = file.lab.sharing == "fair"
        traffic = _traffic(lab.machines, packets, owners.found)
        result["crossed"] = what_crossed(traffic, seconds, fair=fair)
        write_traffic(directory.path, traffic)
    directory.write_json("lab.json", result)
    return result


def _traffic(
    machines: Sequence[LabMachine],
    packets: NDArray[np.void],
    owners: Mapping[tuple[str, int], str],
) -> Traffic:
    """Return what crossed, with names as numbers."""
    names = tuple(machine.name for machine in machines)
    programs = tuple(sorted(set(owners.values())))
    rows = [
        (names.index(machine), port, programs.index(program))
        for (machine, port), program in owners.items()
    ]
    return Traffic(
        packets,
        names,
        np.array([[m.nic_out for m in machines], [m.nic_in for m in machines]]),
        programs,
        np.array(rows, OWNER),
    )


def what_crossed(traffic: Traffic, seconds: float, *, fair: bool) -> dict[str, Any]:
    """Return the key ``crossed`` of lab.json: payload by pair, NICs over time.

    Parameters
    ----------
    fair
        Whether connections are to have queues of their own: those that shared one are
        counted.
    """
    packets, names = traffic.packets, traffic.machines
    used = nic_use(packets, traffic.nics, seconds, BINS)
    return {
        "packets": len(packets),
        "connections": len(np.unique(packets[CONNECTION])),
        "messages": len(messages(packets)),
        "shared_queues": len(meetings(packets, leaf_of)) if fair else 0,
        "bytes": named_matrix(sent_matrix(packets, len(names)), names),
        "bin_seconds": seconds / BINS,
        "nic_use": {
            name: {"out": used[0, number].tolist(), "in": used[1, number].tolist()}
            for number, name in enumerate(names)
        },
    }


def _start(lab: Lab, one: Started, folder: Path, command: Sequence[str]) -> Program:
    given = [*one.command, COMMAND, *command] if command else list(one.command)
    with (folder / f"{one.program}-{one.machine}.log").open("wb") as output:
        return lab.start(
            one.machine,
            given,
            environment={**os.environ, **one.environment},
            output=output.fileno(),
        )


def _until_end(
    lab: Lab,
    running: dict[int, Started],
    until: str | None,
    samples: Sequence[Callable[[], None]],
    watch: Callable[[str], None],
) -> list[Program]:
    """Wait for the programs that decide; then ask the others to end, and end them."""
    ended: list[Program] = []
    awaited = {n for n, one in running.items() if until in {None, one.program}}
    while awaited - {program.number for program in ended}:
        for program in lab.wait(_SAMPLE):
            one = running[program.number]
            ended.append(program)
            watch(f"{one.program} on {one.machine} ended: {_how(program.code)}")
            if program.code:  # the first failure decides: others would wait for it
                awaited = {program.number}
        for sample in samples:
            sample()
    still = set(running) - {program.number for program in ended}
    for number in (signal.SIGTERM, signal.SIGKILL):
        if still:
            with contextlib.suppress(RunError):
                lab.signal_all(number)
        limit = time.monotonic() + GRACE
        while still and time.monotonic() < limit:
            for program in lab.wait(0.1):
                still.discard(program.number)
    return ended


def _how(code: int | None) -> str:
    if code is None:
        return "it runs"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return "well" if code == 0 else f"exit code {code}"


def _summary(
    ended: Sequence[Program],
    running: dict[int, Started],
    waits: CoreWaits,
    startup: float,
    seconds: float,
) -> dict[str, Any]:
    ran, waited = waits.seconds()
    share = waited / (ran + waited) if ran + waited > 0 else 0.0
    first = next((program for program in ended if program.code), None)
    failed = None
    if first is not None:
        one = running[first.number]
        failed = {"program": one.program, "machine": one.machine, "code": first.code}
    return {
        "wall_seconds": seconds,
        "startup_seconds": startup,
        "programs": [
            {
                "program": running[program.number].program,
                "machine": program.machine,
                "code": program.code,
            }
            for program in ended
        ],
        "failed": failed,
        "computed_seconds": ran,
        "waited_seconds": waited,
        "waited_share": share,
        "trust": "trusted" if share <= MOST_WAITS else "degraded",
    }
