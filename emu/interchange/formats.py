"""Which format a file of others has, and the topology that it states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from emu.interchange.gpu_matrix import read_matrix
from emu.interchange.infragraph import read_infrastructure
from emu.interchange.simgrid import read_platform
from emu.interchange.topology import Topology


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
