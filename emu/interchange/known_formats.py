"""All formats of files that are known, in the order in which they are tried.

They stand in ``formats.toml``, a row each.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from emu.interchange.recognise import (
    AUDIT,
    COMPARE,
    FIT,
    IMPORT,
    PROFILE,
    RUN,
    SCENARIO,
    TOPOLOGY,
    WORKLOAD,
    Format,
    fill_in,
    recognise,
    refuse_other_formats,
)

#: Commands as the table calls them.
_COMMANDS = {
    "import": IMPORT,
    "workload": WORKLOAD,
    "topology": TOPOLOGY,
    "profile": PROFILE,
    "compare": COMPARE,
    "scenario": SCENARIO,
    "run": RUN,
    "fit": FIT,
    "audit": AUDIT,
}
_TABLE = tomllib.loads(files("emu.interchange").joinpath("formats.toml").read_text())


def _formats(kind: str) -> tuple[Format, ...]:
    return tuple(_format(row) for row in _TABLE[kind])


def _format(row: Mapping[str, Any]) -> Format:
    fields = {**row}
    commands = [_COMMANDS[word] for word in row.get("commands", ())]
    fields["commands"] = tuple(commands)
    # TOML has no bytes: a letter of Latin-1 stands for each.
    fields["magic"] = row.get("magic", "").encode("latin-1")
    for key in ("keys", "inner", "suffixes"):
        fields[key] = tuple(row.get(key, ()))
    return Format(**fields)


WORKLOAD_FORMATS = _formats("workload")
#: Of JSON some graphs stand before workloads, which know less of their beginnings.
FORMATS = (
    *_formats("own"),
    *_formats("topology"),
    *_formats("json_graph"),
    *WORKLOAD_FORMATS,
    *_formats("graph"),
)
#: Known by little more than their names: nothing is refused for having one of these.
COMMON_FORMATS = _formats("common")
#: What no table is, known by little more than its first letter.
OTHER_FORMATS = _formats("other")


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


class Description(TypedDict):
    """Description of a file, as JSON: its format, and what takes it."""

    file: str
    format: str
    """With its article; empty of what is of no known format."""
    commands: list[str]
    """Those that take it, with its name."""
    way: str
    """Commands for it, or what converts it; empty likewise."""
    left_out: str
    """Parts of it that no command uses."""


def describe(path: Path) -> Description:
    """Return what a file is, JSON values: file, format, commands, way, left_out.

    Format and way are empty of what is of no known format. Raises DataError when the
    file cannot be read.
    """
    row = recognise(path, (*FORMATS, *COMMON_FORMATS, *OTHER_FORMATS)) or Format("")
    return {
        "file": str(path),
        "format": row.name,
        "commands": [fill_in(command, path) for command in row.commands],
        "way": row.way_of(path),
        "left_out": row.left_out,
    }
