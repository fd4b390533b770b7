"""traffic.npz of a lab: packets as they were delivered, and the messages they make."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.analysis.traffic import messages
from emu.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray


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
        "traffic.npz",
        packets=packets,
        messages=messages(packets),
        machines=np.array(machines, dtype=np.str_),
    )
