"""A second witness of a prediction: the job over packets, TCP and queues, by ns-3.

Run a job over ns-3: a program of ours, compiled once, that its lines are sent to.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import os
import shutil
import subprocess
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from emu.errors import DataError, ScenarioError, SchedulingError
from emu.host.files import cache_home
from emu.problem import Problem, Realization, Schedule

PROGRAM = Path(__file__).with_name("dag.cc")
#: Parts of ns-3 that the program stands on.
_PARTS = ("core", "network", "internet", "point-to-point", "traffic-control")
#: Payload bytes of a packet, as in `PROGRAM`.
SEGMENT = 1448
#: Edges at most: each has a port of its own.
_MOST_EDGES = 60_000
#: Seconds that a packet travels from a machine to the switch.
DELAY = 20e-6
#: Seconds of its rate that a queue of a switch holds, as those of kernel NICs.
QUEUE = 0.02


class Control(StrEnum):
    """Congestion control.

    Without ``bbr``: that of ns-3 3.37 took 18 times as long as max-min rates say, in
    the median of 20 drawn jobs of short flows.
    """

    CUBIC = "cubic"
    RENO = "reno"


_CONTROLS = {"cubic": "TcpCubic", "reno": "TcpLinuxReno"}


class Shares(StrEnum):
    """Queues of the switch, and of a machine's own NIC."""

    FAIR = "fair"
    """Flows take turns, and none is dropped."""
    TCP = "tcp"
    """One drop-tail queue of 20 ms per machine in the switch; in a machine's own NIC
    flows take turns, as Linux has it (small queues)."""


class PacketRun(NamedTuple):
    """A job as packets carried it."""

    schedule: Schedule
    version: str
    """Version of ns-3."""
    dropped: int
    """Packets that queues dropped."""


class _Library(NamedTuple):
    """An ns-3 that is installed."""

    version: str
    flags: tuple[str, ...]


def _libraries() -> Iterator[_Library]:
    """Yield the wheel, then what the system's packages installed."""
    spec = importlib.util.find_spec("ns3")
    for folder in map(Path, (spec and spec.submodule_search_locations) or ()):
        libraries = [*folder.glob("lib*/libns3.*-core.so")]
        if libraries and (folder / "include" / "ns3").is_dir():
            version = libraries[0].name.removeprefix("libns3.").split("-")[0]
            where = libraries[0].parent
            libs = [f"-lns3.{version}-{p}" for p in _PARTS]
            paths = f"-I{folder / 'include'}", f"-L{where}", f"-Wl,-rpath,{where}"
            yield _Library(f"3.{version}", ("-std=c++20", *paths, *libs))
    for path in Path("/usr/lib").glob("*/libns3-core.so.*"):
        if Path("/usr/include/ns3/core-module.h").exists():
            version = path.name.removeprefix("libns3-core.so.").split(".")[0]
            # Its headers do not compile as C++20.
            libs = [f"-lns3-{part}" for part in _PARTS]
            yield _Library(f"3.{version}", ("-std=c++17", *libs))


def missing_ns3() -> str:
    """Return what packets need and this machine lacks, in words; "" for nothing."""
    if next(_libraries(), None) is None:
        return "ns-3 is not installed: pip install ns3, or apt-get install libns3-dev"
    if _compiler() is None:
        return "a C++ compiler is not installed: apt-get install g++"
    return ""


def _compiler() -> str | None:
    return shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")


def _program() -> tuple[Path, str]:
    """Return the compiled program and the version of ns-3, compiling it at first use.

    Raises DataError when something is missing, or it does not compile.
    """
    library = next(_libraries(), None)
    compiler = _compiler()
    if library is None or compiler is None:
        raise DataError(missing_ns3(), path="ns3")
    content = PROGRAM.read_bytes() + repr((library, compiler)).encode()
    path = cache_home() / f"packets-{hashlib.sha256(content).hexdigest()[:16]}"
    if path.exists():
        return path, library.version
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        outcome = subprocess.run(  # noqa: S603 - our own program
            [compiler, "-O2", str(PROGRAM), "-o", str(partial), *library.flags],
            capture_output=True,
            text=True,
            check=False,
        )
        if outcome.returncode:
            lines = outcome.stderr.splitlines()
            first = next((line for line in lines if "error" in line), outcome.stderr)
            text = (
                f"does not compile with ns-3 {library.version}: {first.strip()[:200]}"
            )
            raise DataError(text, path=str(PROGRAM))
        partial.replace(path)
    except OSError as error:
        raise DataError(
            f"cannot be written: {error.strerror}", path=str(path)
        ) from error
    finally:
        partial.unlink(missing_ok=True)
    return path, library.version


def simulate_packets(
    problem: Problem,
    realization: Realization,
    *,
    sharing: Shares = Shares.FAIR,
    control: Control = Control.CUBIC,
    byte_scale: float = 1.0,
    time_scale: float = 1.0,
) -> PacketRun:
    """Return the job as ns-3 carries it: NICs, a switch, and TCP between its tasks.

    Rates are what TCP and the queues make of them, ``schedule.policy`` has no part in
    them. NICs carry their rates as payload; headers come on top, as with NICs that the
    kernel limits.

    Parameters
    ----------
    realization
        Times and volumes of the run; bytes are rounded up to whole ones.
    sharing, control
        Queues, and TCP.
    byte_scale
        Bytes of packets per byte of the job, of flows and of NICs alike: as
        ``emulation.byte_scale``, which keeps large jobs short, and flows of a few bytes
        longer than their headers.
    time_scale
        Seconds of packets per second of the job: NICs are as much slower and tasks as
        much longer, while timeouts of TCP last as long as ever; as of kernel NICs.

    Raises
    ------
    ScenarioError
        When the job or its cluster has what packets cannot carry yet.
    DataError
        When ns-3 or a compiler is missing, or the program does not compile.
    SchedulingError
        When the program fails, or tasks are left that nothing would ever start.
    """
    check_carried(problem)
    program, version = _program()
    scales = byte_scale, time_scale
    lines = "\n".join(_lines(problem, realization, sharing, control, scales))
    ran = subprocess.run(  # noqa: S603 - likewise
        [program], input=lines, capture_output=True, text=True, check=False
    )
    words = [line.split() for line in ran.stdout.splitlines()]
    if ran.returncode or words[-1:] != [["end"]]:
        cause = (ran.stderr.strip().splitlines() or ["tasks are left"])[-1]
        raise SchedulingError(f"ns-3 {version} did not end the job: {cause[:300]}")
    drops = next(int(row[1]) for row in words if row[0] == "dropped")
    job = problem.job
    tasks, flows = ((len(some), job.iterations) for some in (job.tasks, job.edges))
    starts, ends = np.full((2, *tasks), np.nan)
    ready, began, arrivals = np.full((3, *flows), np.nan)
    columns = {"task": (starts, ends), "flow": (ready, began, arrivals)}
    for kind, *numbers in words:
        for column, time in zip(columns.get(kind, ()), numbers[2:], strict=True):
            column[int(numbers[0]), int(numbers[1])] = float(time) / time_scale
    volumes = np.where(np.isnan(ready), np.nan, realization.volumes)
    # A flow of a schedule ends when it has been served, before it lands.
    ends_served = np.fmax(arrivals - problem.latencies[:, None], began)
    schedule = Schedule(problem, starts, ends, ready, began, ends_served, volumes)
    return PacketRun(schedule, version, drops)


def check_packets(problem: Problem) -> str:
    """Return the version of ns-3 that is ready to carry a job, its program compiled.

    Raises ScenarioError or DataError as `simulate_packets`.
    """
    check_carried(problem)
    return _program()[1]


def packets_of(problem: Problem, realization: Realization, byte_scale: float) -> int:
    """Return the number of packets that carry all flows between machines."""
    remote = np.array([bool(hops) for hops in problem.hops])
    volumes = byte_scale * np.nan_to_num(realization.volumes[remote])
    return int(np.ceil(volumes / SEGMENT).sum())


def check_carried(problem: Problem) -> None:
    """Raise ScenarioError, naming the first key in the way, unless packets carry it."""
    cluster = problem.cluster
    job = problem.job
    for value, key, what in (
        (cluster.shared_links, "cluster", "links beside NICs"),
        (cluster.changes, "events", "capacities that change"),
        (
            [m for m in cluster.machines if m.latency_in != m.latency_out],
            "cluster.machines",
            "latencies that differ by direction",
        ),
        (cluster.speed_changes, "events", "machines that are slow or paused"),
        (cluster.tuners, "job", "tuned slots"),
        (job.edges[_MOST_EDGES:], "job", f"more than {_MOST_EDGES:,} edges"),
        (job.channels, "job", "channels"),
        ([e for e in job.edges if e.latest], "job", "edges that read the newest"),
    ):
        if value:
            problem_text = f"ns3 carries no {what} yet: leave it out"
            raise ScenarioError(problem_text, key=key)


def _lines(
    problem: Problem,
    realization: Realization,
    sharing: Shares,
    control: Control,
    scales: tuple[float, float],
) -> Iterator[str]:
    """Yield the input of the program, see its head."""
    job = problem.job
    machines = problem.cluster.machines
    (scale, slower) = scales
    rate = scale / slower
    yield f"{sharing} ns3::{_CONTROLS[control]} {DELAY!r} {QUEUE!r}"
    yield str(len(machines))
    for machine in machines:
        numbers = rate * machine.bandwidth_out, rate * machine.bandwidth_in
        yield f"{numbers[0]!r} {numbers[1]!r} {slower * machine.latency_out!r}"
    yield " ".join(map(str, (len(problem.pools), *(p.slots for p in problem.pools))))
    takes = {t: p for p, pool in enumerate(problem.pools) for t in pool.takers}
    frees = {t: p for p, pool in enumerate(problem.pools) for t in pool.freers}
    yield str(len(job.tasks))
    for t, count in enumerate(job.rounds):
        times = " ".join(map(repr, (slower * realization.times[t, :count]).tolist()))
        where = problem.placement.machine_of[t]
        yield f"{where} {takes.get(t, -1)} {frees.get(t, -1)} {count} {times}"
    yield str(len(job.edges))
    for e, edge in enumerate(job.edges):
        count = job.flow_counts[e]
        # Credits and handoffs cross no link: no packet is theirs.
        factor = scale if problem.hops[e] else 0.0
        volumes = factor * realization.volumes[e, :count]
        whole = " ".join(str(math.ceil(volume)) for volume in volumes.tolist())
        latency = slower * float(problem.latencies[e])
        yield f"{edge.source} {edge.destination} {edge.lag} {latency!r} {count} {whole}"
