"""A lab from file to run directory: programs started, watched, ended, written down.

The programs know nothing of `emu`. No time is dilated: they compute as fast as this
host does, and their waits for a core are measured and shown.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from emu.lab.programs import LabPrograms
from emu.lab.result import summary, traffic_of, what_crossed
from emu.lab.setup import open_lab, programs_of
from emu.machines.programs import PLACES, starts
from emu.runs.running_lab import running_lab
from emu.runs.traffic_file import write_samples, write_traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from emu.machines import Lab
    from emu.machines.programs import LabProgram, Started
    from emu.runs.run_directory import RunDirectory
    from emu.scenario.lab_section import LabFile

PCAP = "traffic.pcap"


def run_lab(
    file: LabFile,
    directory: RunDirectory,
    command: Sequence[str] = (),
    *,
    pcap: bool = False,
    watch: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Run the programs of a lab to their end; return what ``lab.json`` says.

    Parameters
    ----------
    directory
        Takes the output of every program in a file of its own, and ``lab.json``.
    command
        Runs on every machine in place of the file's programs.
    pcap
        Whether the headers of all packets are written for Wireshark.
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
        todo = _started(lab, file, programs, directory.path)
        watch(f"{len(lab.machines)} machines in {lab.startup_seconds:.2f} s")
        headers = directory.path / PCAP if pcap else None
        noted = file.lab.capture or pcap
        capture = lab.capture(headers) if noted else None
        running = LabPrograms(lab, file, directory.path, watch)
        try:
            running.start(todo, command)
            with running_lab(directory.path, lab.holders):
                running.until_end()
        finally:
            seconds, samples = running.samples.seconds, running.samples.close()
            packets = None if capture is None else capture.close()
        counted = {"traffic": lab.counters.traffic(), "tcp": lab.counters.tcp()}
    result = {
        "wall_seconds": seconds,
        "startup_seconds": lab.startup_seconds,
        "sharing": file.lab.sharing,
        "nics": {m.name: {"out": m.nic_out, "in": m.nic_in} for m in lab.machines},
        **summary(lab.machines, [*running.runs.values()], samples),
        "events": [vars(change) for change in running.changes],
        **counted,
    }
    if capture is not None and packets is not None:
        result["capture"] = {"lost": capture.lost, "cpu_seconds": capture.cpu_seconds}
        fair = file.lab.sharing == "fair"
        traffic = traffic_of(lab.machines, packets, running.samples.owners)
        result["crossed"] = what_crossed(traffic, seconds, running.changes, fair=fair)
        write_traffic(directory.path, traffic)
    write_samples(directory.path, samples)
    directory.write_json("lab.json", result)
    return result


def _started(
    lab: Lab, file: LabFile, programs: Sequence[LabProgram], folder: Path
) -> list[Started]:
    """Return the programs to start, and write their hosts file.

    Raises
    ------
    ValueError
        When a program names a place that there is none of; `open_lab` refuses that.
    """
    addresses = {m.name: lab.address(m.name) for m in lab.machines}
    hosts = folder / "hosts.txt"
    hosts.write_text("".join(f"{at}\n" for at in addresses.values()))
    paths = (str(hosts.resolve()), str(file.folder), sys.executable)
    return starts(programs, addresses, dict(zip(PLACES, paths, strict=True)))
