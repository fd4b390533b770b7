"""Programs of a lab by machine: commands and environments, their places filled in.

Pure: the rules by which ``{rank}`` and its like become text.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_PLACE = re.compile(r"\{([a-z][a-zA-Z0-9_ .-]*)\}")
#: Port of ``MASTER_ADDR``, as torch has it.
MASTER_PORT = 29500
#: Places that are files, in every program the same.
PLACES = ("hosts file", "folder", "python")
#: Environment of every program: what it is called in the lab file, and where it runs.
PROGRAM = "EMU_PROGRAM"
MACHINE = "EMU_MACHINE"
#: And how many wall seconds an emulated one has.
TIME_SCALE = "EMU_TIME_SCALE"


@dataclass(frozen=True)
class LabProgram:
    """A program of a lab file."""

    name: str
    machines: tuple[str, ...]
    """Names of those that run it, in the order of its ranks."""
    run: str
    """Shell command with places."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Likewise."""


@dataclass(frozen=True)
class Started:
    """One program on one machine, ready to be started."""

    program: str
    machine: str
    command: tuple[str, ...]
    environment: dict[str, str]


def fill(text: str, places: Mapping[str, str]) -> str:
    """Return the text with every ``{place}`` filled in.

    Raises ValueError when it names a place that there is none of; says which there are.
    """

    def value(match: re.Match[str]) -> str:
        if match[1] not in places:
            names = ", ".join(f"{{{name}}}" for name in places)
            raise ValueError(f"{match[0]} is no place; there are {names}")
        return places[match[1]]

    return _PLACE.sub(value, text)


def starts(
    programs: Sequence[LabProgram],
    addresses: Mapping[str, str],
    files: Mapping[str, str],
) -> list[Started]:
    """Return the programs to be started, in order.

    Every program gets ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT`` as
    torch reads them, unless it states them. Places in commands are quoted as a shell
    needs it. Addresses are those of all machines, in their order; ``files`` has a path
    of each of `PLACES`, a hosts file with one address per line in the same order.
    Raises ValueError as `fill`; names the program.
    """
    todo = []
    for program in programs:
        for rank, machine in enumerate(program.machines):
            world_size = str(len(program.machines))
            places = {
                "rank": str(rank),
                "machine": machine,
                "machines": world_size,
                "world_size": world_size,
                "address": addresses[machine],
                **files,
            }
            for name, address in addresses.items():
                places[f"address of {name}"] = address
            environment = {
                "RANK": str(rank),
                "WORLD_SIZE": world_size,
                "MASTER_ADDR": addresses[program.machines[0]],
                "MASTER_PORT": str(MASTER_PORT),
                PROGRAM: program.name,
                MACHINE: machine,
            }

            quotes = {place: shlex.quote(text) for place, text in places.items()}
            try:
                for key, value in program.environment.items():
                    environment[key] = fill(value, places)
                command = ("sh", "-c", fill(program.run, quotes))
            except ValueError as error:
                raise ValueError(f"program {program.name}: {error}") from error
            todo.append(Started(program.name, machine, command, environment))
    return todo
