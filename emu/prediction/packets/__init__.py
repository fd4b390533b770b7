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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from emu.array_types import Floats
from emu.errors import DataError, ScenarioError, SchedulingError
from emu.host.files import cache_home
from emu.names import printable
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
    locations = None if spec is None else spec.submodule_search_locations
    for folder in map(Path, locations or ()):
        headers = folder / "include"
        libraries = [*folder.glob("lib*/libns3.*-core.so")]
        if libraries and (headers / "ns3").is_dir():
            core = libraries[0]
            numbers = core.name.removeprefix("libns3.")
            version, _, _ = numbers.partition("-")
            parts = [f"-lns3.{version}-{part}" for part in _PARTS]
            flags = (
                "-std=c++20",
                f"-I{headers}",
                f"-L{core.parent}",
                # The wheel's folder is none that the loader of programs looks into.
                f"-Wl,-rpath,{core.parent}",
                *parts,
            )
            yield _Library(f"3.{version}", flags)

    for path in Path("/usr/lib").glob("*/libns3-core.so.*"):
        if Path("/usr/include/ns3/core-module.h").exists():
            numbers = path.name.removeprefix("libns3-core.so.")
            version, _, _ = numbers.partition(".")
            parts = [f"-lns3-{part}" for part in _PARTS]
            # Its headers do not compile as C++20.
            flags = ("-std=c++17", *parts)
            yield _Library(f"3.{version}", flags)


def missing_ns3() -> str:
    """Return what packets need and this machine lacks, in words; "" for nothing."""
    if next(_libraries(), None) is None:
        return "ns-3 is not installed: pip install ns3, or apt-get install libns3-dev"
    if _compiler() is None:
        return "a C++ compiler is not installed: apt-get install g++"
    return ""


def _compiler() -> str | None:
    preferred = os.environ.get("CXX", "c++")
    return shutil.which(preferred) or shutil.which("g++")


def _program() -> tuple[Path, str]:
    """Return the compiled program and the version of ns-3, compiling it at first use.

    Raises DataError when something is missing, or it does not compile.
    """
    library = next(_libraries(), None)
    compiler = _compiler()
    if library is None or compiler is None:
        raise DataError(missing_ns3(), path="ns3")
    # Named by all that it is made of: another ns-3 or compiler makes another program.
    tools = repr((library, compiler))
    content = PROGRAM.read_bytes() + tools.encode()
    digest = hashlib.sha256(content).hexdigest()
    path = cache_home() / f"packets-{digest[:16]}"
    if path.exists():
        return path, library.version

    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _compile(compiler, library, partial)
        # Two commands at once may compile it: neither must run half a program.
        partial.replace(path)
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        raise DataError(problem, path=path) from error
    finally:
        partial.unlink(missing_ok=True)
    return path, library.version


def _compile(compiler: str, library: _Library, path: Path) -> None:
    command = [compiler, "-O2", str(PROGRAM), "-o", str(path), *library.flags]
    outcome = subprocess.run(  # noqa: S603 - our own program
        command,
        capture_output=True,
        text=True,
        check=False,
    )
    if outcome.returncode:
        lines = outcome.stderr.splitlines()
        first = next((line for line in lines if "error" in line), outcome.stderr)
        cause = first.strip()[:200]
        text = f"does not compile with ns-3 {library.version}: {cause}"
        raise DataError(text, path=PROGRAM)


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

    scaled = Realization(
        times=time_scale * realization.times,
        volumes=byte_scale * realization.volumes,
    )
    lines = _lines(
        problem,
        scaled,
        sharing,
        control,
        byte_scale=byte_scale,
        time_scale=time_scale,
    )
    outcome = subprocess.run(  # noqa: S603 - likewise
        [program],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=False,
    )

    words = [line.split() for line in outcome.stdout.splitlines()]
    # A job that hangs runs out of events and ends well: only the last line says it is
    # done.
    has_ended = words[-1:] == [["end"]]
    if outcome.returncode or not has_ended:
        errors = outcome.stderr.strip().splitlines() or ["tasks are left"]
        last_error = errors[-1][:300]
        raise SchedulingError(f"ns-3 {version} did not end the job: {last_error}")

    schedule = _read_schedule(problem, realization, words, time_scale)
    return PacketRun(schedule, version, _read_drops(words))


def _read_schedule(
    problem: Problem,
    realization: Realization,
    words: Iterable[list[str]],
    time_scale: float,
) -> Schedule:
    """Return the schedule that the program's lines tell: kind, position, times.

    Raises SchedulingError with the first line that the program does not write.
    """
    job = problem.job
    of_tasks = (2, len(job.tasks), job.iterations)
    of_edges = (3, len(job.edges), job.iterations)
    tables = {
        "task": np.full(of_tasks, np.nan),
        "flow": np.full(of_edges, np.nan),
    }
    for row in words:
        try:
            _read_row(row, tables, time_scale)
        except (ValueError, IndexError, KeyError) as error:
            line = printable(" ".join(row), limit=60)
            raise SchedulingError(f"ns-3 wrote {line!r}, no time of the job") from error

    starts, ends = tables["task"]
    ready, began, arrivals = tables["flow"]
    return Schedule(
        problem=problem,
        task_start=starts,
        task_end=ends,
        flow_ready=ready,
        flow_start=began,
        # A flow of a schedule ends when it has been served, before it lands.
        flow_end=np.fmax(arrivals - problem.latencies[:, None], began),
        flow_bytes=np.where(np.isnan(ready), np.nan, realization.volumes),
    )


def _read_drops(words: Iterable[list[str]]) -> int:
    """Return how many packets were dropped; raises SchedulingError as `_read_schedule`.

    A program that states no number is refused: 0 would say that none was dropped.
    """
    counts = [int(numbers[0]) for kind, *numbers in words if kind == "dropped"]
    if len(counts) != 1:
        raise SchedulingError("ns-3 wrote no line 'dropped PACKETS', or several")
    return counts[0]


def _read_row(
    row: Sequence[str],
    tables: Mapping[str, Floats],
    time_scale: float,
) -> None:
    """Note the times of a line; an error of Python's where it is none of `PROGRAM`."""
    kind, *numbers = row
    if kind == "end":
        return
    if kind == "dropped":
        (count,) = numbers
        int(count)  # of packets: no time
        return

    position, iteration, *times = numbers
    for table, time in zip(tables[kind], times, strict=True):
        table[int(position), int(iteration)] = float(time) / time_scale


def check_packets(problem: Problem) -> str:
    """Return the version of ns-3 that is ready to carry a job, its program compiled.

    Raises ScenarioError or DataError as `simulate_packets`.
    """
    check_carried(problem)
    return _program()[1]


def packets_of(problem: Problem, realization: Realization, byte_scale: float) -> int:
    """Return the number of packets that carry all flows between machines."""
    remote = np.array([bool(hops) for hops in problem.hops])
    volumes = np.nan_to_num(realization.volumes[remote])
    segments = np.ceil(byte_scale * volumes / SEGMENT)
    return int(segments.sum())


def check_carried(problem: Problem) -> None:
    """Raise ScenarioError, naming the first key in the way, unless packets carry it."""
    cluster = problem.cluster
    job = problem.job
    # A cable of ns-3 has one latency for both ways.
    are_slanted = any(m.latency_in != m.latency_out for m in cluster.machines)
    reads_latest = any(edge.latest for edge in job.edges)
    are_many = len(job.edges) > _MOST_EDGES

    for is_stated, key, words in (
        (cluster.shared_links, "cluster", "links beside NICs"),
        (cluster.links.steps.rows.size, "events", "capacities that change"),
        (are_slanted, "cluster.machines", "latencies that differ by direction"),
        (cluster.speed_changes, "events", "machines that are slow or paused"),
        (cluster.tuners, "job", "tuned slots"),
        (are_many, "job", f"more than {_MOST_EDGES:,} edges"),
        (job.channels, "job", "channels"),
        (reads_latest, "job", "edges that read the newest"),
    ):
        if is_stated:
            text = f"ns3 carries no {words} yet: leave it out"
            raise ScenarioError(text, key=key)


def _lines(
    problem: Problem,
    scaled: Realization,
    sharing: Shares,
    control: Control,
    *,
    byte_scale: float,
    time_scale: float,
) -> Iterator[str]:
    """Yield the input of the program, see its head.

    ``scaled`` has the seconds and bytes of packets.
    """
    job = problem.job
    machines = problem.cluster.machines
    rate = byte_scale / time_scale
    # `!r` writes every digit: the program reads the very same number.
    yield f"{sharing} ns3::{_CONTROLS[control]} {DELAY!r} {QUEUE!r}"
    yield str(len(machines))
    for machine in machines:
        rate_out = rate * machine.bandwidth_out
        rate_in = rate * machine.bandwidth_in
        yield f"{rate_out!r} {rate_in!r} {time_scale * machine.latency_out!r}"

    slots = [pool.slots for pool in problem.pools]
    pool_line = [len(slots), *slots]
    yield " ".join(map(str, pool_line))
    takes = dict[int, int]()
    frees = dict[int, int]()
    for number, pool in enumerate(problem.pools):
        takes |= dict.fromkeys(pool.takers, number)
        frees |= dict.fromkeys(pool.freers, number)
    yield str(len(job.tasks))
    for task, count in enumerate(job.rounds):
        seconds = scaled.times[task, :count].tolist()
        times = " ".join(map(repr, seconds))
        machine_number = problem.placement.machine_of[task]
        taken = takes.get(task, -1)
        freed = frees.get(task, -1)
        yield f"{machine_number} {taken} {freed} {count} {times}"

    yield str(len(job.edges))
    for position, edge in enumerate(job.edges):
        count = job.flow_counts[position]
        volumes = [0.0] * count
        # Credits and handoffs cross no link: no packet is theirs.
        if problem.hops[position]:
            volumes = scaled.volumes[position, :count].tolist()
        sizes = " ".join(str(math.ceil(volume)) for volume in volumes)
        latency = time_scale * float(problem.latencies[position])
        ends = f"{edge.source} {edge.destination} {edge.lag}"
        yield f"{ends} {latency!r} {count} {sizes}"
