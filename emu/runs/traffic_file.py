"""traffic.npz of a lab: packets as they were delivered, and the messages they make."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.analysis.traffic import MESSAGE, PACKET, messages
from emu.errors import DataError
from emu.input_file import read_arrays
from emu.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

NAME = "traffic.npz"


def write_traffic(
    run: Path, packets: NDArray[np.void], machines: Sequence[str]
) -> None:
    """Write traffic.npz: ``packets``, ``messages``, and names of ``machines``.

    Raises
    ------
    DataError
        When the disk refuses.
    """
    RunDirectory(run).write_arrays(
        NAME,
        packets=packets,
        messages=messages(packets),
        machines=np.array(machines, dtype=np.str_),
    )


def read_traffic(
    run: Path,
) -> tuple[NDArray[np.void], NDArray[np.void], list[str]]:
    """Return packets, messages and names of machines of a lab's run directory.

    Raises
    ------
    DataError
        When the file is missing, cut short or of another form.
    """
    path = run / NAME
    found = read_arrays(path, ("packets", "messages", "machines"))
    for name, form in (("packets", PACKET), ("messages", MESSAGE)):
        if found[name].dtype != form:
            raise DataError(f"{name} are not of this form of emu", path=str(path))
    return found["packets"], found["messages"], found["machines"].tolist()
