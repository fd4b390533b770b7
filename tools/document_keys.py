"""Writes the tables of keys in docs/scenarios.md from the JSON Schema.

``python tools/document_keys.py`` after a change to a section of `emu.scenario`; a test
compares the file with what this would write.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from emu.scenario import json_schema

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "scenarios.md"
MARK = "<!-- The tables below are written by tools/document_keys.py. -->\n"

#: Heading -> section of the schema, in the order of a file.
SECTIONS = {
    "The file": "",
    "`cluster`": "ClusterSection",
    "An item of `cluster.machines`": "MachineSection",
    "`nic` of a machine": "Nic",
    "`job` of `system: dgtp`": "DgtpJobSection",
    "`job.dataset`": "DatasetSection",
    "`job.model`": "ModelSection",
    "`job.model` that is a program": "ProgramSection",
    "`measured` of a program": "FiguresSection",
    "`job.demands`": "DemandsSection",
    "An amount of resources": "Resources",
    "`job.times`": "TimesSection",
    "`job.optimizer`": "OptimizerSection",
    "`job` of `system: p3`": "P3JobSection",
    "`job` of `system: data_parallel`": "DataParallelJobSection",
    "`job.demands` of both": "ReplicaDemandsSection",
    "`job.times` of both": "ReplicaTimesSection",
    "`job` of `system: custom`": "CustomJobSection",
    "An item of `job.tasks`": "CustomTaskSection",
    "An item of `job.flows`": "FlowSection",
    "An item of `job.collectives`": "CollectiveSection",
    "`allreduce` of an item of `job.collectives`": "AllReduceSection",
    "An item of `jobs`": "JobsItemSection",
    "`placement`": "PlacementSection",
    "`schedule`": "ScheduleSection",
    "`emulation`": "EmulationSection",
    "An item of `events`": "EventSection",
    "`expect`": "ExpectSection",
    "A lab file, for `emu lab`": "LabFile",
    "`lab`": "LabSection",
    "An item of `lab.programs`": "ProgramSection",
}


def tables() -> str:
    """Return a table of keys for every section of the schema."""
    schema = json_schema()
    known = {"": schema, **schema["$defs"]}
    named = set(SECTIONS.values())
    further = {_heading(name): name for name in known if name not in named}
    return "\n".join(
        f"### {heading}\n\n{_table(known[name])}"
        for heading, name in {**SECTIONS, **further}.items()
        if known.get(name, {}).get("properties")
    )


def _heading(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.removesuffix("Section")).lower()


def _table(section: dict[str, Any]) -> str:
    rows = ["| key | default | meaning |", "|---|---|---|"]
    for key, value in section["properties"].items():
        rows.append(f"| `{key}` | {_default(section, key)} | {_meaning(value)} |")
    return "\n".join(rows) + "\n"


def _default(section: dict[str, Any], key: str) -> str:
    if key in section.get("required", []):
        return "required"
    default = section["properties"][key].get("default")
    if default in (None, [], {}) or isinstance(default, dict):
        return ""
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _meaning(value: dict[str, Any]) -> str:
    told = " ".join(str(value.get("description", "")).split())
    words = [
        str(word)
        for option in (value, *value.get("anyOf", ()))
        for word in option.get("enum", [option["const"]] if "const" in option else ())
    ]
    if words and not all(word in told for word in words):
        told = f"{told} One of {', '.join(f'`{word}`' for word in words)}.".strip()
    return told.replace("``", "`").replace("|", "\\|")


def document(text: str) -> str:
    """Return ``text`` with its tables written anew."""
    return text.split(MARK, maxsplit=1)[0] + MARK + "\n" + tables()


def main() -> None:
    """Write the document."""
    DOCUMENT.write_text(document(DOCUMENT.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
