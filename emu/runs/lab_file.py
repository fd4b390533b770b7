"""Files of a lab: lab.json when it has ended, and its machines while it runs."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypeAlias

from pydantic import Field
from typing_extensions import TypedDict

from emu.errors import DataError
from emu.host.input_file import check_shape, open_input, read_json
from emu.runs.problem_json import MOST
from emu.runs.run_directory import RunDirectory

FILE = "lab.json"
#: Its content, or a part of it; `_Lab` below has the form.
LabResult: TypeAlias = dict[str, Any]
_Number = Annotated[float, Field(gt=-MOST, lt=MOST, allow_inf_nan=False)]
_FILE = "machines.json"


class _Program(TypedDict):
    program: str
    machine: str
    start: _Number
    end: _Number | None
    code: int | None
    stopped: bool


class _Failed(TypedDict):
    program: str
    machine: str
    code: int


class _Change(TypedDict):
    time: _Number
    machine: str
    nic_out: _Number
    nic_in: _Number


class _Capture(TypedDict):
    lost: int


class _Traffic(TypedDict):
    out_bytes: int
    out_packets: int
    in_bytes: int
    in_packets: int


_Ways = TypedDict("_Ways", {"out": float, "in": _Number})
_Dropped = TypedDict("_Dropped", {"out": int, "in": int})


class _Measured(TypedDict):
    seconds: _Number
    shares: dict[str, _Ways]


class _Prediction(TypedDict):
    outcome: str
    error: _Number | None
    threshold: _Number
    since: _Number | None
    links: list[str]
    reasons: list[str]


class _Tcp(TypedDict):
    segments: int
    retransmitted: int
    timeouts: int


class _Crossed(TypedDict):
    packets: int
    messages: int
    shared_queues: int
    bytes: dict[str, dict[str, int]]


class _Lab(TypedDict):
    wall_seconds: _Number
    startup_seconds: _Number
    computed_seconds: _Number
    waited_seconds: _Number
    waited_share: _Number
    early_seconds: NotRequired[_Number]
    early_share: NotRequired[_Number]
    time_scale: NotRequired[Annotated[float, Field(ge=1, lt=MOST)]]
    cpu: NotRequired[dict[str, Annotated[float, Field(gt=0, lt=MOST)]]]
    sharing: str
    trust: str
    nics: dict[str, _Ways]
    programs: list[_Program]
    failed: _Failed | None
    dropped: dict[str, _Dropped]
    prediction: NotRequired[_Prediction]
    measured: NotRequired[_Measured]
    events: list[_Change]
    traffic: dict[str, _Traffic]
    tcp: dict[str, _Tcp]
    capture: NotRequired[_Capture | None]
    crossed: NotRequired[_Crossed]


def log_name(program: str, machine: str) -> str:
    """Return the name of the file with the output of a program on a machine."""
    return f"{program}-{machine}.log"


def duration_of(lab: dict[str, Any]) -> float:
    """Return how long the programs of lab.json ran, in their own time."""
    seconds: float = lab["wall_seconds"] / lab.get("time_scale", 1.0)
    return seconds


def read_lab(run: Path) -> dict[str, Any]:
    """Return the content of lab.json.

    Raises
    ------
    DataError
        When it is missing or damaged, or its parts speak of different machines.
    """
    path = run / FILE
    lab: dict[str, Any] = read_json(path)
    check_shape(lab, _Lab, path)
    machines = lab["nics"].keys()
    named = {
        "programs": {one["machine"] for one in lab["programs"]},
        "events": {one["machine"] for one in lab["events"]},
        "dropped": lab["dropped"].keys(),
        "traffic": lab["traffic"].keys(),
        "tcp": lab["tcp"].keys(),
        "measured": lab.get("measured", {}).get("shares", {}).keys(),
        "cpu": lab.get("cpu", {}).keys(),
        "crossed.bytes": lab.get("crossed", {}).get("bytes", {}).keys(),
    }
    for key, names in named.items():
        if unknown := sorted(names - machines):
            problem = f"{key}: names {unknown[0]!r}, which nics lacks"
            raise DataError(problem, path=str(path))
    for key in ("tcp", "dropped"):
        if missing := sorted(lab["traffic"].keys() - lab[key].keys()):
            raise DataError(f"{key}: lacks {missing[0]!r}", path=str(path))
    times = [lab["wall_seconds"], *(one["start"] for one in lab["programs"])]
    rates = [rate for ways in lab["nics"].values() for rate in ways.values()]
    if min(times) < 0 or min(rates, default=1.0) <= 0:
        problem = "holds a time before 0, or a NIC without a rate"
        raise DataError(problem, path=str(path))
    return lab


@contextlib.contextmanager
def running_lab(run: Path, holders: Mapping[str, int]) -> Iterator[None]:
    """Say for the time of the block which process holds each machine.

    Raises
    ------
    DataError
        When the disk refuses.
    """
    RunDirectory(run).write_json(_FILE, holders)
    path = run / _FILE
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            path.unlink()


def holder_of(run: Path, machine: str) -> int:
    """Return the process that holds a machine of a lab that runs.

    Raises
    ------
    DataError
        When no lab runs in this directory, or it has no such machine.
    """
    if not run.is_dir():
        raise DataError("there is no such run directory", path=str(run))
    is_locked = False
    try:
        with open_input(run / _FILE) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        is_locked = True
    except OSError:
        pass  # it is not there, or another user's
    if not is_locked:
        raise DataError(
            "no lab runs here: it has ended, or none began; `emu lab` prints where "
            "its own goes",
            path=str(run),
        )
    holders: dict[str, int] = read_json(run / _FILE)
    check_shape(holders, dict[str, int], run / _FILE)
    if machine not in holders:
        raise DataError(
            f"{machine} is no machine of this lab; there are {', '.join(holders)}",
            path=str(run),
        )
    return holders[machine]
