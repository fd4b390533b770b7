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
from emu.runs.array_files import LINES
from emu.runs.problem_json import MOST, NUMBER, by_name, list_of, shape
from emu.runs.run_directory import RunDirectory

#: Written when a lab has ended, and not before.
FILE = "lab.json"
#: Its content, or a part of it.
LabResult: TypeAlias = dict[str, Any]
#: There while a lab runs: the process that holds each machine.
_FILE = "machines.json"
_NOT_ENDED = "is of a lab that has not ended"


def refuse_lab(run: Path) -> None:
    """Raise DataError where a run directory is that of a lab: it holds no schedule."""
    result = run / FILE
    machines = run / _FILE
    lines = run / LINES

    problem = ""
    if result.exists():
        problem = "is of a lab: its report.html shows it, `emu fit` takes what crossed"
    elif machines.exists():
        # It runs, or was killed: it has no report.
        problem = _NOT_ENDED
    elif lines.exists():
        # It was interrupted.
        problem = _NOT_ENDED

    if problem:
        raise DataError(problem, path=run)


@cache
def _lab_shape() -> Any:
    """Return the type of lab.json."""
    number: Any = NUMBER
    scale = Annotated[float, Field(ge=1, lt=MOST)]
    share = Annotated[float, Field(gt=0, lt=MOST)]
    # `in` is a keyword of Python, and cannot be written as an argument.
    ways = by_name(shape("Ways", out=float, **{"in": number}))
    program = shape(
        "Program",
        **_each(str, "program machine"),
        start=number,
        end=number | None,
        stopped=bool,
        code=int | None,
    )
    change = shape("Change", machine=str, **_each(number, "time nic_out nic_in"))
    traffic = _each(int, "out_bytes out_packets in_bytes in_packets")
    tcp = _each(int, "segments retransmitted timeouts")
    may_lack = {
        "early_seconds": number,
        "early_share": number,
        "time_scale": scale,
        "cpu": by_name(share),
        "prediction": _prediction_shape(),
        "measured": shape("Measured", seconds=number, shares=ways),
        "capture": shape("Capture", lost=int) | None,
        "crossed": _crossed_shape(),
    }

    return shape(
        "Lab",
        may_lack,
        **_each(number, "wall_seconds startup_seconds computed_seconds waited_seconds"),
        waited_share=number,
        sharing=str,
        trust=str,
        nics=ways,
        programs=list_of(program),
        failed=shape("Failed", **_each(str, "program machine"), code=int) | None,
        dropped=by_name(shape("Dropped", **_each(int, "out in"))),
        events=list_of(change),
        traffic=by_name(shape("Traffic", **traffic)),
        tcp=by_name(shape("Tcp", **tcp)),
    )


def _each(kind: object, names: str) -> dict[str, object]:
    """Return one type for every name of a line."""
    return dict.fromkeys(names.split(), kind)


def _prediction_shape() -> Any:
    number: Any = NUMBER
    return shape(
        "Prediction",
        outcome=str,
        threshold=number,
        **_each(number | None, "error since"),
        **_each(list[str], "links reasons"),
    )


def _crossed_shape() -> Any:
    return shape(
        "Crossed",
        **_each(int, "packets messages shared_queues"),
        bytes=dict[str, dict[str, int]],
    )


def log_name(program: str, machine: str) -> str:
    """Return the name of the file with the output of a program on a machine."""
    return f"{program}-{machine}.log"


def duration_of(lab: LabResult) -> float:
    """Return how long the programs of lab.json ran, in their own time."""
    scale = lab.get("time_scale", 1.0)
    return float(lab["wall_seconds"] / scale)


def read_lab(run: Path) -> LabResult:
    """Return the content of lab.json."""
    path = run / FILE
    lab: LabResult = read_json(path)
    check_shape(lab, _lab_shape(), path)
    machines = lab["nics"].keys()
    for key, names in _list_places(lab).items():
        unknown = sorted(names - machines)
        if unknown:
            problem = f"{key}: names {unknown[0]!r}, which nics lacks"
            raise DataError(problem, path=path)
    # A machine whose packets were counted has counts of its queues, too.
    for key in ("tcp", "dropped"):
        missing = sorted(lab["traffic"].keys() - lab[key].keys())
        if missing:
            raise DataError(f"{key}: lacks {missing[0]!r}", path=path)

    times = [lab["wall_seconds"]]
    times += [program["start"] for program in lab["programs"]]
    rates = [1.0]
    for ways in lab["nics"].values():
        rates += ways.values()
    if min(times) < 0 or min(rates) <= 0:
        raise DataError("holds a time before 0, or a NIC without a rate", path=path)
    return lab


def _list_places(lab: LabResult) -> dict[str, set[str]]:
    """Return the machines that each part of lab.json names."""
    measurements = lab.get("measured", {})
    crossings = lab.get("crossed", {})
    return {
        "programs": {row["machine"] for row in lab["programs"]},
        "events": {row["machine"] for row in lab["events"]},
        "dropped": {*lab["dropped"]},
        "traffic": {*lab["traffic"]},
        "tcp": {*lab["tcp"]},
        "measured": {*measurements.get("shares", ())},
        "cpu": {*lab.get("cpu", ())},
        "crossed.bytes": {*crossings.get("bytes", ())},
    }


@contextlib.contextmanager
def running_lab(run: Path, holders: Mapping[str, int]) -> Iterator[None]:
    """Say for the time of the block which process holds each machine."""
    RunDirectory(run).write_json(_FILE, holders)
    path = run / _FILE
    with path.open() as file:
        # The kernel drops the lock with the process: a file that a killed lab
        # has left is told from one that counts.
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            path.unlink()


def holder_of(run: Path, machine: str) -> int:
    """Return the process that holds a machine of a lab that runs."""
    if not run.is_dir():
        raise DataError("there is no such run directory", path=run)
    path = run / _FILE
    is_locked = False
    try:
        with open_input(path) as file:
            # Refused at once while the lab has its lock; other readers are let in.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        is_locked = True
    except OSError:
        pass  # it is not there, or another user's
    if not is_locked:
        problem = (
            "no lab runs here: it has ended, or none began; `emu lab` prints "
            "where its own goes"
        )
        raise DataError(problem, path=run)

    holders: dict[str, int] = read_json(path)
    check_shape(holders, dict[str, int], path)
    if machine not in holders:
        names = ", ".join(holders)
        problem = f"{machine} is no machine of this lab; there are {names}"
        raise DataError(problem, path=run)
    return holders[machine]
