"""traffic.npz of a lab: packets as they were delivered, and whose they were.

And samples.npz: what was counted while it ran.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emu.analysis.traffic import OWNER, PACKET, Traffic, messages
from emu.errors import DataError
from emu.input_file import one_error, read_arrays
from emu.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

FILE, SAMPLES = "traffic.npz", "samples.npz"
_TRAFFIC = ("packets", "machines", "nics", "programs", "owners")
#: Arrays of samples.npz, by sample: seconds since the programs began; seconds of CPU
#: that they had, and that they waited for a core; by machine TCP segments that were
#: sent again, and timeouts; by way (out, in) and machine packets that queues dropped,
#: and bytes that waited in them. All but the last are counts since the beginning.
SAMPLED = ("time", "ran", "waited", "retransmitted", "timeouts", "dropped", "queued")
_SAMPLED_AXES = dict(zip(SAMPLED, (1, 1, 1, 2, 2, 3, 3), strict=True))


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
    """Return the samples of a lab, arrays by the names of `SAMPLED`.

    Raises
    ------
    DataError
        When the file is missing or cannot be read.
    """
    path = run / SAMPLES
    arrays = read_arrays(path, SAMPLED, inflation=1)
    samples = len(arrays["time"]) if arrays["time"].ndim else 0
    for name, array in arrays.items():
        fits = array.shape[:1] == (samples,) and array.ndim == _SAMPLED_AXES[name]
        if not samples or not fits or array.dtype.kind not in "iuf":
            problem = f"{name} has shape {array.shape} for {samples} samples"
            raise DataError(problem, path=str(path))
        if not np.isfinite(array).all():
            raise DataError(f"{name} holds what is no number", path=str(path))
    return arrays


def read_traffic(run: Path) -> Traffic:
    """Return the traffic of a lab.

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
    with one_error(path):
        arrays = read_arrays(path, _TRAFFIC, inflation=1)
        traffic = Traffic(
            arrays["packets"].astype(PACKET),
            tuple(map(str, arrays["machines"].tolist())),
            arrays["nics"].astype(np.float64),
            tuple(map(str, arrays["programs"].tolist())),
            arrays["owners"].astype(OWNER),
        )
        _check(traffic)
    return traffic


def _check(traffic: Traffic) -> None:
    packets, owners, machines = traffic.packets, traffic.owners, len(traffic.machines)
    if len(set(traffic.machines)) != machines or traffic.nics.shape != (2, machines):
        raise ValueError(f"it holds NICs of shape {traffic.nics.shape}")
    if not (np.isfinite(traffic.nics) & (traffic.nics > 0)).all():
        raise ValueError("a NIC has no rate")
    if packets.ndim != 1 or owners.ndim != 1:
        raise ValueError("its packets are no rows")
    if not (np.isfinite(packets["time"]) & (packets["time"] >= 0)).all():
        raise ValueError("a packet has no time")
    numbers = [*(packets[end] for end in ("source", "destination")), owners["machine"]]
    if any((row >= machines).any() for row in numbers):
        raise ValueError(f"it names a machine beyond the {machines} that it lists")
    if (owners["program"] >= len(traffic.programs)).any():
        raise ValueError("it names a program that it does not list")
