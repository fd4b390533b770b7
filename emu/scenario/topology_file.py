"""Files of machines, links and routes, of our own keys or in formats of others.

`emu.scenario.topologies` imports this where a scenario names such a file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from emu.errors import DataError
from emu.host.confinement import confine
from emu.host.input_file import one_error, read_json, read_packed_text
from emu.interchange.cluster_keys import cluster_keys
from emu.interchange.formats import is_mapping, read_topology, recognise_topology
from emu.interchange.recognise import read_sample
from emu.interchange.topology import Answers
from emu.scenario.document import MOST_YAML, Data, read_document
from emu.units import format_count

#: Reader of a topology -> what its files leave open.
_OPEN = {"gpu_matrix": ("boxes", "nic"), "slurm": ("nic", "uplink")}
#: Text without a value: blank, or comments alone.
_NOTHING = re.compile(r"\s*(#.*\s*)*")


@confine
def read_keys(path: Path, answers: Data) -> tuple[Data, list[str]]:
    """Return keys of a cluster, and what was assumed or left out."""
    row = recognise_topology(path)
    # No format of others: a file of our own keys.
    if row is None:
        if _NOTHING.fullmatch(read_sample(path).text):
            problem = "is empty: a topology has machines, links, routes or racks"
            raise DataError(problem)
        _check_answers("", answers)
        return read_document(path).data, []
    _check_answers(row.reader, answers)
    content = read_mapping(path) if is_mapping(row) else None
    topology = read_topology(
        path=path,
        row=row,
        answers=Answers(**answers),
        content=content,
    )
    keys = cluster_keys(topology)  # which adds notes
    notes = list(topology.notes)
    for words, count in topology.left_out.items():
        if count:
            notes.append(f"left out: {words}, {format_count(count, 'time')}")
    return keys, notes


def _check_answers(reader: str, answers: Data) -> None:
    """Raise DataError where a file leaves nothing open of what an answer says."""
    open_keys = _OPEN.get(reader, ())
    for key in answers:
        if key not in open_keys:
            raise DataError(f"takes no {key} here: state it in the file")
    # Within one box nothing goes over a NIC. Who states one compares it with several.
    if reader == "gpu_matrix" and "nic" in answers and "boxes" not in answers:
        raise DataError("is of one box, which nic joins to others: write boxes: 2")


def read_mapping(path: Path) -> Any:
    """Return what a YAML or JSON file of others has, nulls and long texts included.

    Raises DataError when it is neither, or too long.
    """
    name = path.name.removesuffix(".gz")
    if name.endswith(".json"):
        return read_json(path)
    with one_error(path):
        # Aliases are read as one object each, however often they stand somewhere.
        text = read_packed_text(path, MOST_YAML)
        parser = YAML(typ="safe")
        return parser.load(text)
