"""The arrays of a run directory: rates.npz, realization.npz and frames.npz."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.errors import DataError
from emu.input_file import read_arrays
from emu.problem import RateHistory, Realization
from emu.runs.run_directory import RunDirectory
from emu.wire.frame_rows import FRAME_ROWS

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from emu.problem import Job


def write_realization(run: Path, realization: Realization) -> None:
    """Write realization.npz: measured times and volumes, handoffs included.

    The schedule files hold no bytes of what stayed within a machine; placing the job
    anew needs them.

    Raises
    ------
    DataError
        When the disk refuses.
    """
    RunDirectory(run).write_arrays(
        "realization.npz", times=realization.times, volumes=realization.volumes
    )


def read_realization(job: Job, path: Path) -> Realization:
    """Return the content of realization.npz.

    Raises
    ------
    DataError
        When it is missing, cut short, or not of ``job``.
    """
    arrays = read_arrays(path, ("times", "volumes"))
    try:
        realization = Realization(arrays["times"], arrays["volumes"])
        realization.check_shapes(job)
    except ValueError as error:
        raise DataError(f"cannot be used: {error}", path=str(path)) from error
    return realization


def read_frames(
    path: Path,
) -> tuple[NDArray[np.void], NDArray[np.void], NDArray[np.float64] | None]:
    """Return the rows of `emu.wire.frame_rows` by senders and by receivers.

    The third are the arrivals of (edge, iteration) as reported to the coordinator,
    None in runs of an earlier emu.

    Raises
    ------
    DataError
        When the file is missing, cut short, or holds other rows.
    """
    arrays = read_arrays(path, ("sent", "received"))
    if any(array.dtype != FRAME_ROWS for array in arrays.values()):
        raise DataError("holds no rows of frames", path=str(path))
    told = read_arrays(path, ("told",), optional=True).get("told")
    return arrays["sent"], arrays["received"], told


def read_rates(job: Job, path: Path) -> RateHistory:
    """Return the content of rates.npz.

    Raises
    ------
    DataError
        When it is missing, cut short, or names flows that ``job`` does not have.
    """
    arrays = read_arrays(path, ("time", "edge", "iteration", "rate"))
    try:
        rates = RateHistory(
            time=arrays["time"].astype(np.float64),
            edge=arrays["edge"].astype(np.int64),
            iteration=arrays["iteration"].astype(np.int64),
            rate=arrays["rate"].astype(np.float64),
        )
    except ValueError as error:
        raise DataError(f"holds no numbers: {error}", path=str(path)) from error
    if len({array.shape for array in arrays.values()}) != 1:
        raise DataError("holds arrays of different lengths", path=str(path))
    known = (rates.edge >= 0) & (rates.edge < len(job.edges))
    known &= (rates.iteration >= 0) & (rates.iteration < job.iterations)
    if not known.all():
        raise DataError("names flows that the job does not have", path=str(path))
    return rates
