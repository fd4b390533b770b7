"""trace.json: schedules in the Trace Event Format, for ui.perfetto.dev and Chrome.

Machines are processes, in two groups: ``emulated`` and ``simulated``. Every task has a
lane, and every direction of a NIC has as many as flows overlap there; links that are no
NIC stand in a process of their own. A flow is drawn at every link that it crosses.
Arrows lead from a task to the flows that it sends and from a flow to the task that it
lets start. Counters show per link the assigned rate or, where that is not known, the
mean rates of what moves; and per machine the bytes produced there but not delivered
yet. Emulated seconds are seconds of the trace. Attempts that deaths ended are bars of a
process of their own.

Lanes serve the charts and figures too: bars that overlap are drawn beside each other.

References
----------
"Trace Event Format", Google, 2016: X slices, s/f flow arrows, C counters, M names,
i marks: where a capacity changes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.errors import DataError
from emu.prediction.analysis.link_load import mean_rates, sum_rates
from emu.problem import Schedule
from emu.report.facts import DeathBand, death_bands
from emu.runs.recorded_run import load_run, with_simulated_rates
from emu.runs.run_directory import RunDirectory
from emu.units import format_rate

if TYPE_CHECKING:
    Event = dict[str, Any]
    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


def pack_lanes(start: Floats, end: Floats) -> tuple[Ints, int]:
    """Return a lane per bar such that bars of one lane do not overlap, and how many.

    A bar takes the lowest lane that is free, in the order of starts: as few lanes as
    bars ever overlap. ``start`` and ``end`` are seconds, shape (bars,).
    """
    lanes = np.zeros(len(start), dtype=np.int64)
    busy: list[tuple[float, int]] = []
    free: list[int] = []
    count = 0
    for bar in np.lexsort((end, start)).tolist():
        while busy and busy[0][0] <= start[bar]:
            heappush(free, heappop(busy)[1])
        lane = heappop(free) if free else count
        count = max(count, lane + 1)
        lanes[bar] = lane
        heappush(busy, (float(end[bar]), lane))
    return lanes, count


def pack_lanes_per_group(
    start: Floats, end: Floats, group: Ints, groups: int
) -> tuple[Ints, list[int]]:
    """Return `pack_lanes` of every group, and the number of lanes of each."""
    lanes = np.zeros(len(start), dtype=np.int64)
    counts = []
    for number in range(groups):
        members = np.flatnonzero(group == number)
        lanes[members], count = pack_lanes(start[members], end[members])
        counts.append(count)
    return lanes, counts


class Crossings(NamedTuple):
    """Every flow at every link that it crosses, and its lane there."""

    flow: Ints
    """Position in `Schedule.flows`."""
    port: Ints
    lane: Ints
    """The link, and which of its lanes."""
    lanes: list[int]
    """Number of lanes of every link."""


def crossings(schedule: Schedule) -> Crossings:
    """Return the lanes of all flows, in the order of the flows and of their routes."""
    flows = schedule.flows()
    hops = schedule.problem.hops
    at = tuple(flows.T)
    port = np.array([p for e in flows[:, 0].tolist() for p in hops[e]], dtype=np.int64)
    count = np.array([len(hops[e]) for e in flows[:, 0].tolist()], dtype=np.int64)
    flow = np.repeat(np.arange(len(flows)), count)
    start = schedule.flow_start[at][flow]
    end = schedule.flow_end[at][flow]
    lanes = pack_lanes_per_group(start, end, port, len(schedule.problem.links))
    return Crossings(flow, port, *lanes)


def pack(values: NDArray[Any] | Sequence[float], dtype: str) -> str:
    """Return numbers as base64 of little-endian ``dtype``: a third of their JSON."""
    with np.errstate(over="ignore"):  # 1e300 s of a damaged run: drawn as without end
        array = np.ascontiguousarray(values, dtype=np.dtype(dtype).newbyteorder("<"))
    return base64.b64encode(array.tobytes()).decode("ascii")


def pack_columns(**columns: NDArray[Any]) -> dict[str, str]:
    """Return columns by name as `pack` does: times as float32, positions as uint32.

    The 7 digits of float32 are less than a pixel.
    """
    kinds = {"f": "f4", "i": "u4", "u": "u4"}
    return {name: pack(one, kinds[one.dtype.kind]) for name, one in columns.items()}


#: Process numbers of the second group begin here; a group has fewer machines.
GROUP = 100_000
#: Lanes of one process: tasks from 1, then so many for every link.
_LANES = 100_000


def trace_events(
    groups: dict[str, Schedule], deaths: Sequence[DeathBand] = ()
) -> Iterator[Event]:
    """Yield the events of trace.json.

    Its time 0 is where the first attempt began: viewers drop what is before it.
    Schedules are by the name of their group, such as ``emulated``; ``deaths`` are bars
    of a process of their own in their groups.
    """
    arrow = count(1)
    before = -_microseconds(min((band.since for band in deaths), default=0.0))
    for position, (name, schedule) in enumerate(groups.items()):
        bands = [band for band in deaths if band.run == name]
        group = _Group(name, schedule, position * GROUP, arrow)
        for event in chain(group.events(), _list_attempts(bands, position * GROUP)):
            if before and "ts" in event:
                event["ts"] = round(event["ts"] + before, 3)
            yield event


def _list_attempts(bands: Sequence[DeathBand], first: int) -> Iterator[Event]:
    """Yield what attempts before the last did, above the machines of their group."""
    pid = first + GROUP - 1
    if bands:
        yield _meta("process_name", pid, name=f"{bands[0].run}: attempts")
        yield _meta("process_sort_index", pid, sort_index=first)
        yield _meta("thread_name", pid, 1, name="attempts")
    for band in bands:
        args = {"note": band.note} if band.note else {}
        yield _bar(band.what, "death", _Slice(pid, 1, band.since, band.until), args)


def write_trace(run: Path, out: Path | None = None) -> Path:
    """Write ``trace.json`` of a run directory, or ``out``, and return its path.

    Raises DataError when neither schedule can be read, or the file cannot be written.
    """
    record = load_run(run)
    groups = {} if record.emulated is None else {"emulated": record.emulated}
    if record.simulated is not None:
        groups["simulated"] = with_simulated_rates(record)
    if not groups:
        raise DataError("; ".join(record.missing), path=str(run))

    def lines() -> Iterator[str]:
        # A line per event: all events of a long run together took 8 GB.
        before = '{"displayTimeUnit":"ms","traceEvents":['
        for event in trace_events(groups, death_bands(record.result)):
            yield before + json.dumps(event, separators=(",", ":"))
            before = ","
        yield "]}"

    path = out or run / "trace.json"
    RunDirectory(path.parent).write_lines(path.name, lines())
    return path


class _Slice(NamedTuple):
    """Place and time of a bar."""

    pid: int
    tid: int
    start: float
    end: float


class _Group:
    """The events of one schedule."""

    def __init__(
        self, name: str, schedule: Schedule, first: int, arrow: count[int]
    ) -> None:
        self._name = name
        self._schedule = schedule
        self._arrow = arrow
        self._problem = schedule.problem
        self._job = schedule.problem.job
        self._first = first
        self._bars = schedule.bars()
        self._machine_of = self._problem.placement.machine_of
        self._flows = schedule.flows()
        self._crossed = crossings(schedule)
        self._links = self._problem.links
        # Shared links stand in the process behind the machines.
        self._shared = len(self._problem.cluster.machines)
        self._place = [
            (link.machine, _LANES * (1 + (link.direction == "in")))
            if link.direction
            else (self._shared, _LANES * (1 + self._links.shared.index(port)))
            for port, link in enumerate(self._links)
        ]

    def events(self) -> Iterator[Event]:
        """Yield all events."""
        names = [machine.name for machine in self._problem.cluster.machines]
        for m, name in enumerate([*names, "links"] if self._links.shared else names):
            pid = self._pid(m)
            yield _meta("process_name", pid, name=f"{self._name}: {name}")
            yield _meta("process_sort_index", pid, sort_index=pid)
        for j, task in enumerate(self._job.tasks):
            if not self._bars[j].any():
                continue
            pid = self._pid(self._machine_of[j])
            yield _meta("thread_name", pid, j + 1, name=f"{task.name} ({task.kind})")
            yield _meta("thread_sort_index", pid, j + 1, sort_index=j + 1)
            for n in np.flatnonzero(self._bars[j]).tolist():
                args = {"task": task.name, "iteration": n}
                yield _bar(f"{task.name} {n}", task.kind, self._task_bar(j, n), args)
        for port, lanes in enumerate(self._crossed.lanes):
            host, first = self._place[port]
            for lane in range(lanes):
                at = (self._pid(host), first + lane)
                name = self._name_port(port)
                yield _meta("thread_name", *at, name=f"{name} {lane + 1}")
                yield _meta("thread_sort_index", *at, sort_index=at[1])
        yield from self._flow_bars()
        yield from self._handoffs()
        assigned = sum_rates(self._schedule)
        word = "mean" if assigned is None else "assigned"
        for port, (times, rates) in enumerate(assigned or mean_rates(self._schedule)):
            title = f"{self._name_port(port)}, {word} rate (MB/s)"
            process = self._pid(self._place[port][0])
            for time, rate in zip(times.tolist(), rates.tolist(), strict=True):
                yield _level(title, process, time, rate / 1e6)
        yield from self._list_undelivered()
        yield from self._changes()

    def _pid(self, machine: int) -> int:
        return self._first + machine + 1

    def _task_bar(self, task: int, iteration: int) -> _Slice:
        start = float(self._schedule.task_start[task, iteration])
        end = float(self._schedule.task_end[task, iteration])
        return _Slice(self._pid(self._machine_of[task]), task + 1, start, end)

    def _name_port(self, port: int) -> str:
        link = self._links[port]
        return f"NIC {link.direction}" if link.direction else link.name

    def _flow_bars(self) -> Iterator[Event]:
        schedule = self._schedule
        job = self._job
        bars: list[list[tuple[int, int]]] = [[] for _ in self._flows]
        for flow, port, lane in zip(
            *(column.tolist() for column in self._crossed[:3]), strict=True
        ):
            machine, first = self._place[port]
            bars[flow].append((self._pid(machine), first + lane))
        for (e, n), places in zip(self._flows.tolist(), bars, strict=True):
            edge = job.edges[e]
            size = float(schedule.flow_bytes[e, n])
            start = float(schedule.flow_start[e, n])
            end = float(schedule.flow_end[e, n])
            args = {
                "flow": job.edge_names[e],
                "iteration": n,
                "bytes": size,
                "waited_s": start - float(schedule.flow_ready[e, n]),
                "mean_bytes_per_s": size / (end - start) if end > start else 0.0,
            }
            if latency := float(self._problem.latencies[e]):
                args["latency_s"] = latency  # until its arrow may end
            kind = f"{job.tasks[edge.source].kind} flow"
            name = f"{args['flow']} {n}"
            slices = [_Slice(*place, start, end) for place in places]
            for bar in slices:  # the same flow, with its figures once
                yield _bar(name, kind, bar, args if bar is slices[0] else {})
            yield from self._arrow_between(self._task_bar(edge.source, n), slices[0])
            target = self._task_bar(edge.destination, n + edge.lag)
            yield from self._arrow_between(slices[-1], target)

    def _handoffs(self) -> Iterator[Event]:
        """Yield the arrows of what never crosses a NIC, credits included."""
        hops = self._problem.hops
        counts = self._job.flow_counts
        for edge, path, size in zip(self._job.edges, hops, counts, strict=True):
            kind = "credit" if edge.credit else "dependency"
            for n in range(0 if path else size):
                at = (edge.source, n)
                to = (edge.destination, n + edge.lag)
                if self._bars[at] and self._bars[to]:
                    bars = self._task_bar(*at), self._task_bar(*to)
                    yield from self._arrow_between(*bars, kind)

    def _arrow_between(
        self, source: _Slice, target: _Slice, category: str = "dependency"
    ) -> Iterator[Event]:
        number = next(self._arrow)
        # Readers bind an arrow to the bar around its time: leave from inside the bar.
        inside = source.end - min(1e-6, (source.end - source.start) / 2)
        for phase, bar, time in (("s", source, inside), ("f", target, target.start)):
            head = {"ph": phase, "id": number, "name": category, "cat": category}
            event = head | _at(bar.pid, bar.tid, time)
            yield {**event, "bp": "e"} if phase == "f" else event

    def _list_undelivered(self) -> Iterator[Event]:
        """Yield per machine the megabytes that stand or move between ready and end."""
        at = tuple(self._flows.T)
        schedule = self._schedule
        machine = np.array(
            [self._machine_of[edge.source] for edge in self._job.edges], dtype=np.int64
        )[self._flows[:, 0]]
        for m in range(len(self._problem.cluster.machines)):
            here = machine == m
            both = schedule.flow_ready[at][here], schedule.flow_end[at][here]
            times = np.concatenate(both)
            size = schedule.flow_bytes[at][here]
            order = np.argsort(times, kind="stable")
            level = np.cumsum(np.concatenate([size, -size])[order])
            for time, value in zip(times[order].tolist(), level.tolist(), strict=True):
                megabytes = max(value, 0.0) / 1e6
                yield _level("not delivered (MB)", self._pid(m), time, megabytes)

    def _changes(self) -> Iterator[Event]:
        """Yield a mark where a capacity or a machine's speed becomes another one."""
        mark = {"ph": "i", "s": "p"}  # s: as high as its process
        cluster = self._problem.cluster
        for change in cluster.speed_changes:
            line = f"{change.machine} has {change.share:.3g} of its speed"
            at = _at(self._pid(cluster.index(change.machine)), 0, change.time)
            yield {**mark, "name": line, **at}
        for time, port, capacity in self._links.steps.rows.tolist():
            line = f"{self._links[int(port)].name} has {format_rate(capacity)}"
            at = _at(self._pid(self._place[int(port)][0]), 0, time)
            yield {**mark, "name": line, **at}


def _microseconds(seconds: float) -> float:
    """Return microseconds to the nanosecond, which is what viewers resolve.

    Starts and ends are rounded alike, so that bars that touch still do.
    """
    return round(seconds * 1e6, 3)


def _meta(kind: str, pid: int, tid: int = 0, **args: Any) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args}


def _at(pid: int, tid: int, time: float) -> Event:
    return {"pid": pid, "tid": tid, "ts": _microseconds(time)}


def _bar(name: str, category: str, bar: _Slice, args: Event) -> Event:
    at = _at(bar.pid, bar.tid, bar.start)
    event = {"ph": "X", "name": name, "cat": category, **at}
    event["dur"] = round(_microseconds(bar.end) - event["ts"], 3)
    return event | ({"args": args} if args else {})


def _level(name: str, pid: int, time: float, value: float) -> Event:
    return {"ph": "C", "name": name, **_at(pid, 0, time), "args": {"value": value}}
