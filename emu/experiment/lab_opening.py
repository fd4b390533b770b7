"""From a lab file to machines that can be started, and programs for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.errors import ScenarioError
from emu.machines import Lab, LabMachine, Sharing
from emu.machines.programs import LabProgram

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emu.scenario.events_section import EventSection
    from emu.scenario.lab_section import LabFile

#: What a command of the command line is called.
COMMAND = "command"


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
        lab = Lab(
            machines,
            sharing=Sharing(section.sharing),
            mtu=section.mtu,
            queue=section.queue,
            congestion_control=section.congestion_control,
        )
    except ValueError as error:
        raise ScenarioError(str(error), key="cluster.machines") from error
    for number, event in enumerate(file.events):
        if event.nic is None:
            raise ScenarioError(
                "a lab has NICs and no further links: state machine and nic",
                key=f"events[{number}].link",
            )
        try:
            lab.plans(event_nic(event))
        except ValueError as error:
            raise ScenarioError(str(error), key=f"events[{number}].nic") from error
    return lab


def event_nic(event: EventSection) -> LabMachine:
    """Return the machine of an event as it is from then on.

    Raises
    ------
    ValueError
        When the event changes no NIC.
    """
    if event.nic is None or event.machine is None:
        raise ValueError(f"an event at {event.at} s that changes no NIC")
    return LabMachine(event.machine, event.nic.outward, event.nic.inward)


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
