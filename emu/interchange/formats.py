"""Which format a file of others has, and the workload or topology that it states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from emu.errors import DataError
from emu.host.input_file import open_input
from emu.interchange.chakra import read_chakra
from emu.interchange.coflow_trace import is_trace, read_trace
from emu.interchange.goal import is_schedule, read_schedule
from emu.interchange.gpu_matrix import read_matrix
from emu.interchange.infragraph import read_infrastructure
from emu.interchange.simgrid import read_platform
from emu.interchange.topology import Topology
from emu.interchange.wfcommons import read_workflow
from emu.interchange.workload import Workload


def read_workload(path: Path, *, copies: int = 0, large: bool = False) -> Workload:
    """Return the workload of a file, whichever of the known formats it has.

    ``copies`` are ranks that have one Chakra trace. Raises DataError when it is none of
    these, or cannot be.
    """
    try:
        with open_input(path) as file:
            head = file.read(4096)
    except OSError as error:
        raise DataError(error.strerror or "cannot be read", path=path) from error
    text = head.decode("utf-8", "replace")
    if b'"schemaVersion"' in head or b'"workflow"' in head:
        kind, read = "WfCommons", read_workflow
    elif is_trace(text):
        kind, read = "coflow-benchmark", read_trace
    elif is_schedule(text):
        kind, read = "GOAL", read_schedule
    elif path.suffix in (".et", ".json") or b"schema" in head:
        return read_chakra(path, copies=copies, large=large)
    else:
        problem = "is no trace of coflow-benchmark or GOAL (both text), Chakra (.et, "
        raise DataError(problem + ".json) or WfCommons (.json)", path=path)
    if copies:
        raise DataError(f"is of {kind}: --copies is for one Chakra trace", path=path)
    return read(path)


def read_topology(path: Path, head: str, content: Any = None) -> Topology | None:
    """Return the topology of a file of others, None of one that is none of these.

    ``head`` is how its text begins, ``content`` its mapping where it is YAML or JSON.
    Raises DataError when it is damaged or cannot be.
    """
    if "<platform" in head:
        return read_platform(path)
    if isinstance(content, dict) and {"devices", "instances"} <= content.keys():
        return read_infrastructure(content, str(path))
    words = head.replace("\x1b[4m", " ").split()
    if words[:1] == ["GPU0"]:
        return read_matrix(path)
    return None
