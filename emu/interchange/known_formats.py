"""All formats of files that are known, in the order in which they are tried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from emu.interchange.graph_formats import (
    COMMON_FORMATS,
    GRAPH_FORMATS,
    JSON_GRAPHS,
    OTHER_FORMATS,
)
from emu.interchange.recognise import SCENARIO, Format, recognise, refuse_other_formats
from emu.interchange.topology_formats import TOPOLOGY_FORMATS
from emu.interchange.workload_formats import WORKLOAD_FORMATS

FORMATS: tuple[Format, ...] = (
    *TOPOLOGY_FORMATS,
    *JSON_GRAPHS,
    *WORKLOAD_FORMATS,
    *GRAPH_FORMATS,
)


def check_command(path: Path, command: str) -> None:
    """Raise DataError where a file is of a format that the command does not take."""
    refuse_other_formats(path, command, FORMATS)


def check_scenario(path: Path) -> None:
    """Raise DataError where a file that is no scenario is of a known format.

    Tables count, too, which are known by little more than their names. A file that is
    not there is let be.
    """
    if path.is_file():
        refuse_other_formats(path, SCENARIO, (*FORMATS, *COMMON_FORMATS))


def describe(path: Path) -> dict[str, Any]:
    """Return what a file is, JSON values: file, format, commands, way, left_out.

    Format and way are empty of what is of no known format. Raises DataError when the
    file cannot be read.
    """
    row = recognise(path, (*FORMATS, *COMMON_FORMATS, *OTHER_FORMATS)) or Format("")
    name = str(path)
    return {
        "file": name,
        "format": row.name,
        "commands": [command.replace("FILE", name) for command in row.commands],
        "way": row.way.replace("FILE", name),
        "left_out": row.left_out,
    }
