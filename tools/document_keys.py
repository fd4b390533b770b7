"""Writes what docs/scenarios.md, commands.md and formats.md take from the code.

``python tools/document_keys.py`` after a change to a section of `emu.scenario` or to a
command; a test compares the files with what this would write.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import typer

from emu.cli import app
from emu.cli.app import GROUPS
from emu.interchange.known_formats import COMMON_FORMATS, FORMATS
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
)
from emu.scenario.schema import json_schema

DOCS = Path(__file__).resolve().parent.parent / "docs"
MARK = "<!-- What follows is written by tools/document_keys.py. -->\n"
#: From so many on, keys that an earlier section has just so are named alone.
_SHARED = 3
#: Sections without a table: a run writes the first, the key `at` shows the second.
_NOTED = {"FiguresSection", "ProgressSection"}
#: Heading -> section of the schema, in the order of a file.
SECTIONS = {
    "The file": "",
    "`cluster`": "ClusterSection",
    "`cluster.machines[]`": "MachineSection",
    "`cluster.machines[].nic`": "Nic",
    "`cluster.links[]`": "LinkSection",
    "`cluster.routes[]`": "RouteSection",
    "`cluster.racks[]`": "RackSection",
    "`cluster.topology` that is a file": "TopologySection",
    "`job` of `system: dgtp`": "DgtpJobSection",
    "`job.dataset`": "DatasetSection",
    "`job.model`": "ModelSection",
    "`job.model` that is a program": "ModelProgramSection",
    "`job.demands`": "DemandsSection",
    "An amount of resources": "Resources",
    "`job.times`": "TimesSection",
    "`job.optimizer`": "OptimizerSection",
    "`job` of `system: p3`": "P3JobSection",
    "`job` of `system: data_parallel`": "DataParallelJobSection",
    "`job.demands` of both": "ReplicaDemandsSection",
    "`job.times` of both": "ReplicaTimesSection",
    "`job` of `system: custom`": "CustomJobSection",
    "`job.tasks[]`": "CustomTaskSection",
    "`job.flows[]`": "FlowSection",
    "`job.collectives[]`": "CollectiveSection",
    "`job.collectives[].allreduce`": "AllReduceSection",
    "`jobs[]`": "JobsItemSection",
    "`placement`": "PlacementSection",
    "`schedule`": "ScheduleSection",
    "`emulation`": "EmulationSection",
    "`events[]`": "EventSection",
    "`expect`": "ExpectSection",
    "A lab file, for `emu lab`": "LabFile",
    "`lab`": "LabSection",
    "`lab.programs[]`": "ProgramSection",
}


def keys() -> str:
    """Return a list of keys for every section of the schema."""
    schema = json_schema()
    known = {"": schema, **schema["$defs"]}
    named = {*SECTIONS.values(), *_NOTED}
    further = {_heading(name): name for name in known if name not in named}
    parts, first = [], dict[str, str]()
    for heading, name in {**SECTIONS, **further}.items():
        lines = _lines(known.get(name, {}))
        shared = defaultdict(list)
        for key, line in lines.items():
            shared[first.setdefault(line, heading)].append(key)
        for other, found in shared.items():
            if other != heading and len(found) >= _SHARED:
                there = ", ".join(f"`{key}`" for key in found)
                where = other if other[0] == "`" else other[0].lower() + other[1:]
                lines[found[0]] = f"- as in {where}: {there}"
                lines = {k: v for k, v in lines.items() if k not in found[1:]}
        if lines:
            parts.append(f"### {heading}\n\n" + "\n".join(lines.values()) + "\n")
    return "\n".join(parts)


def _heading(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.removesuffix("Section")).lower()


def _lines(section: dict[str, Any]) -> dict[str, str]:
    """Return the line of every key of a section; what is required is bold."""
    found = {}
    for key, value in section.get("properties", {}).items():
        if "const" in value:  # the heading says which it is
            continue
        bold = "**" * (key in section.get("required", []))
        meaning = ": ".join(("", _meaning(value))).rstrip(": ")
        found[key] = f"- {bold}`{key}`{bold}{_default(value.get('default'))}{meaning}"
    return found


def _default(value: Any) -> str:
    if value in (None, [], {}) or isinstance(value, dict):
        return ""
    return f" (`{value if isinstance(value, str) else json.dumps(value)}`)"


def _meaning(value: dict[str, Any]) -> str:
    meaning = " ".join(str(value.get("description", "")).split())
    words = [
        str(word)
        for option in (value, *value.get("anyOf", ()))
        for word in option.get("enum", [option["const"]] if "const" in option else ())
    ]
    if missing := [f"`{word}`" for word in words if f"`{word}`" not in meaning]:
        which = "One of" if len(missing) == len(words) else "Also"
        meaning = f"{meaning} {which} {', '.join(missing)}.".strip()
    return meaning.replace("``", "`")


def commands() -> str:
    """Return a line for every command: its arguments and its summary."""
    group = typer.main.get_command(app)
    return "\n".join(
        f"### {title}\n\n"
        + "".join(
            _command(group, name, listed.summary) for name, listed in part.items()
        )
        for title, part in GROUPS.items()
    )


def _command(group: Any, name: str, summary: str) -> str:
    """Return the line of a command."""
    command = group.get_command(typer.Context(group), name)
    pieces = [
        piece.replace("[list|clear]", "list|clear")
        for piece in command.collect_usage_pieces(typer.Context(command))
        if piece != "[OPTIONS]"
    ]
    return f"- `{' '.join(['emu', name, *pieces])}`: {summary}\n"


def formats() -> str:
    """Return a line for every format of files, below the command that takes it."""
    rows = defaultdict[str, dict[str, Format]](dict)
    for row in (*FORMATS, *COMMON_FORMATS):
        for command in row.commands or ("Converted first",):
            rows[command].setdefault(row.name, row)
    titles = dict.fromkeys([*_TITLES, *rows])
    return "\n".join(
        f"### {_TITLES.get(command, command)}\n\n"
        + "".join(_format(row) for row in rows[command].values())
        for command in titles
        if command in rows
    )


def _format(row: Format) -> str:
    words = row.name[:1].upper() + row.name[1:]
    left_out = f" Left out: {row.left_out}." if row.left_out else ""
    way = f" `{row.conversion}`." if row.conversion else ""
    return f"- {words}.{left_out}{way}\n"


#: Heading of each command in formats.md.
_TITLES = {
    IMPORT: "Graphs: `emu import FILE -o NAME`",
    WORKLOAD: "Workloads: `emu import-workload FILE -o NAME.json`",
    TOPOLOGY: "Topologies: `cluster: {topology: FILE}`",
    PROFILE: "Traces of times: `emu profile SCENARIO OUT --from FILE`",
    COMPARE: "Measurements: `emu compare RUN FILE`",
    SCENARIO: "Scenarios: `emu simulate FILE`",
    RUN: "Runs: `emu explain FOLDER`, of the folder of a file",
    FIT: "Labs: `emu fit FOLDER`",
    AUDIT: "Simulations: `emu audit FILE`",
}
#: File in docs/ -> what writes the part below its mark.
WRITTEN = {"scenarios.md": keys, "commands.md": commands, "formats.md": formats}


def document(name: str) -> str:
    """Return a document with what follows its mark written anew."""
    above = (DOCS / name).read_text(encoding="utf-8").split(MARK, maxsplit=1)[0]
    return f"{above}{MARK}\n{WRITTEN[name]()}"


def main() -> None:
    """Write the documents."""
    for name in WRITTEN:
        (DOCS / name).write_text(document(name), encoding="utf-8")


if __name__ == "__main__":
    main()
