"""traffic.npz of a lab: packets as they were delivered, and whose they were.

And samples.npz: what was counted while it ran.
"""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.analysis.traffic import OWNER, PACKET, Traffic, messages
from emu.errors import DataError
from emu.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

FILE, SAMPLES = "traffic.npz", "samples.npz"
_DAMAGED = (OSError, ValueError, TypeError, KeyError, zipfile.BadZipFile)
#: Arrays of samples.npz, by sample: seconds since the programs began; seconds of CPU
#: that they had, and that they waited for a core; by machine TCP segments that were
#: sent again, and timeouts; by way (out, in) and machine packets that queues dropped,
#: and bytes that waited in them. All but the last are counts since the beginning.
SAMPLED = ("time", "ran", "waited", "retransmitted", "timeouts", "dropped", "queued")


def write_traffic(run: Path, traffic: Traffic) -> None:
    """Write traffic.npz: the fields of `Traffic`, and the ``messages`` in it.

    Raises
    ------
    DataError
        When the disk refuses.
    """
    RunDirectory(run).write_arrays(
        FILE,
        packets=traffic.packets,
        messages=messages(traffic.packets),
        machines=np.array(traffic.machines, dtype=np.str_),
        nics=traffic.nics,
        programs=np.array(traffic.programs, dtype=np.str_),
        owners=traffic.owners,
    )


def write_samples(run: Path, samples: Mapping[str, NDArray[Any]]) -> None:
    """Write samples.npz: arrays by the names of `SAMPLED`.

    Raises
    ------
    DataError
        When the disk refuses.
    """
    RunDirectory(run).write_arrays(SAMPLES, **samples)


def read_samples(run: Path) -> dict[str, NDArray[Any]]:
    """Return what was sampled in a lab.

    Raises
    ------
    DataError
        When the file is missing or cannot be read.
    """
    path = run / SAMPLES
    try:
        with np.load(path) as file:
            return {name: file[name] for name in SAMPLED}
    except FileNotFoundError as error:
        raise DataError("is missing", path=str(path)) from error
    except _DAMAGED as error:
        raise DataError(f"cannot be read: {error}", path=str(path)) from error


def read_traffic(run: Path) -> Traffic:
    """Return what crossed in a lab.

    Raises
    ------
    DataError
        When the directory is of no lab, its traffic was not noted, or the file cannot
        be read.
    """
    path = run / FILE
    if not path.exists():
        if not run.is_dir():
            raise DataError("there is no such run directory", path=str(run))
        if (run / "lab.json").exists():
            raise DataError(
                f"has no {FILE}: the lab ran with capture: false", path=str(run)
            )
        raise DataError("is no run of a lab: `emu lab FILE` writes one", path=str(run))
    try:
        with np.load(path) as file:
            return Traffic(
                file["packets"].astype(PACKET),
                tuple(file["machines"].tolist()),
                file["nics"],
                tuple(file["programs"].tolist()),
                file["owners"].astype(OWNER),
            )
    except KeyError as error:
        raise DataError(
            f"has no {error.args[0].split()[0]}: it is of an older emu, run the lab "
            "again",
            path=str(path),
        ) from error
    except _DAMAGED as error:
        raise DataError(f"cannot be read: {error}", path=str(path)) from error
