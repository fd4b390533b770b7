"""Files of a lab: lab.json when it has ended, and its machines while it runs."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from emu.errors import DataError
from emu.host.input_file import check_shape, open_input, read_json
from emu.runs.problem_json import MOST, NUMBER, by_name, list_of, shape
from emu.runs.run_directory import RunDirectory

FILE = "lab.json"
#: Its content, or a part of it.
LabResult: TypeAlias = dict[str, Any]
_FILE = "machines.json"


@cache
def _lab_shape() -> Any:
    """Return the type of lab.json."""
    number: Any = NUMBER
    scale = Annotated[float, Field(ge=1, lt=MOST)]
    share = Annotated[float, Field(gt=0, lt=MOST)]
    ways = shape("Ways", out=float, **{"in": number})
    drops = shape("Dropped", out=int, **{"in": int})
    of = {"program": str, "machine": str}
    program = {**of, "start": number, "end": number | None, "stopped": bool}
    counts = ("out_bytes", "out_packets", "in_bytes", "in_packets")
    tcp = ("segments", "retransmitted", "timeouts")
    prediction: dict[str, Any] = {"outcome": str, "threshold": number}
    prediction |= dict.fromkeys(("error", "since"), number | None)
    prediction |= dict.fromkeys(("links", "reasons"), list[str])
    seconds = ("wall", "startup", "computed", "waited")
    crossed = dict.fromkeys(("packets", "messages", "shared_queues"), int)
    change = {"machine": str, **dict.fromkeys(("time", "nic_out", "nic_in"), number)}
    may_lack = {
        "early_seconds": number,
        "early_share": number,
        "time_scale": scale,
        "cpu": by_name(share),
        "prediction": shape("Prediction", **prediction),
        "measured": shape("Measured", seconds=number, shares=by_name(ways)),
        "capture": shape("Capture", lost=int) | None,
        "crossed": shape("Crossed", **crossed, bytes=dict[str, dict[str, int]]),
    }
    return shape(
        "Lab",
        may_lack,
        **{f"{what}_seconds": number for what in seconds},
        waited_share=number,
        sharing=str,
        trust=str,
        nics=by_name(ways),
        programs=list_of(shape("Program", **program, code=int | None)),
        failed=shape("Failed", **of, code=int) | None,
        dropped=by_name(drops),
        events=list_of(shape("Change", **change)),
        traffic=by_name(shape("Traffic", **dict.fromkeys(counts, int))),
        tcp=by_name(shape("Tcp", **dict.fromkeys(tcp, int))),
    )


def log_name(program: str, machine: str) -> str:
    """Return the name of the file with the output of a program on a machine."""
    return f"{program}-{machine}.log"


def duration_of(lab: LabResult) -> float:
    """Return how long the programs of lab.json ran, in their own time."""
    return float(lab["wall_seconds"] / lab.get("time_scale", 1.0))


def read_lab(run: Path) -> LabResult:
    """Return the content of lab.json."""
    path = run / FILE
    lab: LabResult = read_json(path)
    check_shape(lab, _lab_shape(), path)
    machines = lab["nics"].keys()
    rows = ("programs", "events")
    places = {key: {one["machine"] for one in lab[key]} for key in rows} | {
        **{key: lab[key].keys() for key in ("dropped", "traffic", "tcp")},
        "measured": lab.get("measured", {}).get("shares", {}).keys(),
        "cpu": lab.get("cpu", {}).keys(),
        "crossed.bytes": lab.get("crossed", {}).get("bytes", {}).keys(),
    }
    for key, names in places.items():
        if unknown := sorted(names - machines):
            raise DataError(f"{key}: names {unknown[0]!r}, which nics lacks", path=path)
    for key in ("tcp", "dropped"):
        if missing := sorted(lab["traffic"].keys() - lab[key].keys()):
            raise DataError(f"{key}: lacks {missing[0]!r}", path=path)
    times = [lab["wall_seconds"], *(one["start"] for one in lab["programs"])]
    rates = [rate for ways in lab["nics"].values() for rate in ways.values()]
    if min(times) < 0 or min(rates, default=1.0) <= 0:
        raise DataError("holds a time before 0, or a NIC without a rate", path=path)
    return lab


@contextlib.contextmanager
def running_lab(run: Path, holders: Mapping[str, int]) -> Iterator[None]:
    """Say for the time of the block which process holds each machine."""
    RunDirectory(run).write_json(_FILE, holders)
    path = run / _FILE
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            path.unlink()


def holder_of(run: Path, machine: str) -> int:
    """Return the process that holds a machine of a lab that runs."""
    if not run.is_dir():
        raise DataError("there is no such run directory", path=run)
    is_locked = False
    try:
        with open_input(run / _FILE) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        is_locked = True
    except OSError:
        pass  # it is not there, or another user's
    if not is_locked:
        problem = "no lab runs here: it has ended, or none began; `emu lab` prints "
        raise DataError(problem + "where its own goes", path=run)
    holders: dict[str, int] = read_json(run / _FILE)
    check_shape(holders, dict[str, int], run / _FILE)
    if machine not in holders:
        problem = f"{machine} is no machine of this lab; there are "
        raise DataError(problem + ", ".join(holders), path=run)
    return holders[machine]
