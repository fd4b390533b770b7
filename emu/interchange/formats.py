"""Which format a topology of others has, and what it states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from emu.interchange.astra_network import read_network
from emu.interchange.gpu_matrix import read_matrix
from emu.interchange.infragraph import read_infrastructure
from emu.interchange.known_formats import FORMATS, check_command
from emu.interchange.recognise import TOPOLOGY, Format, recognise
from emu.interchange.simgrid import read_platform
from emu.interchange.slurm_switches import read_switches
from emu.interchange.topology import Answers, Topology

#: Readers of topologies that are text, and no YAML or JSON.
_TEXTS = ("simgrid", "gpu_matrix", "slurm")


def recognise_topology(path: Path) -> Format | None:
    """Return the format of a topology of others, None of a file of no known format.

    Raises DataError when the file has a format that is no topology, with the way.
    """
    # First, so that a trace or graph is named with its way.
    check_command(path, TOPOLOGY)
    return recognise(path, FORMATS)


def is_mapping(row: Format) -> bool:
    """Return True where a topology is YAML or JSON."""
    return row.reader not in _TEXTS


def read_topology(
    path: Path,
    row: Format,
    answers: Answers,
    content: Any = None,
) -> Topology:
    """Return the topology of a file of others.

    ``content`` is its mapping, where it is YAML or JSON. Raises DataError when it is
    damaged, has something that is not read, or leaves open what has no answer.
    """
    if row.reader == "simgrid":
        return read_platform(path)
    if row.reader == "gpu_matrix":
        return read_matrix(path, answers)
    if row.reader == "slurm":
        return read_switches(path, answers)
    if row.reader == "astra":
        return read_network(content, str(path))
    return read_infrastructure(content, str(path))
