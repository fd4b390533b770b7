"""trace.json: schedules in the Trace Event Format, for ui.perfetto.dev and Chrome.

Machines are processes, in two groups: ``emulated`` and ``simulated``. Every task has a
lane, and every direction of a NIC has as many as flows overlap there; links that are no
NIC stand in a process of their own. A flow is drawn at every link that it crosses.
Arrows lead from a task to the flows that it sends and from a flow to the task that it
lets start. Counters show per link the assigned rate or, where that is not known, the
mean rates of what moves; and per machine the bytes produced there but not delivered
yet. Emulated seconds are seconds of the trace. Attempts that deaths ended are bars of a
process of their own.

References
----------
"Trace Event Format", Google, 2016: X slices, s/f flow arrows, C counters, M names,
i marks: where a capacity changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from emu.errors import DataError
from emu.prediction.analysis.flow_counts import FlowCounts
from emu.prediction.analysis.link_load import mean_rates, sum_rates
from emu.problem import Schedule
from emu.report.death_bands import DeathBand, death_bands
from emu.report.lanes import crossings
from emu.runs.recorded_run import load_run, with_simulated_rates
from emu.runs.run_directory import RunDirectory
from emu.units import format_rate

if TYPE_CHECKING:
    Event = dict[str, Any]


#: Name of the group of the run.
EMULATED = "emulated"
#: Process numbers of the second group begin here; a group has fewer machines.
GROUP = 100_000
#: Lanes of one process: tasks from 1, then so many for every link.
_LANES = 100_000


def trace_events(
    groups: dict[str, Schedule],
    deaths: Sequence[DeathBand] = (),
    counts: FlowCounts | None = None,
) -> Iterator[Event]:
    """Yield the events of trace.json.

    Its time 0 is where the first attempt began: viewers drop what is before it.
    Schedules are by the name of their group, such as ``emulated``; ``deaths`` are bars
    of a process of their own in their groups. ``counts`` of kernels, wall seconds, are
    shown with the flows of ``emulated``.
    """
    arrow_numbers = count(1)
    begins = [band.since for band in deaths]
    first_attempt = min(begins, default=0.0)
    shift = -_microseconds(first_attempt)

    for position, (name, schedule) in enumerate(groups.items()):
        first_process = position * GROUP
        group_counts = counts if name == EMULATED else None
        group = _Group(
            name=name,
            schedule=schedule,
            first_process=first_process,
            arrows=arrow_numbers,
            counts=group_counts,
        )
        bands = [band for band in deaths if band.run == name]
        attempts = _list_attempts(bands, first_process)
        for event in chain(group.events(), attempts):
            if shift and "ts" in event:
                # Both have whole nanoseconds: rounding drops what the sum adds.
                event["ts"] = round(event["ts"] + shift, 3)
            yield event


def _list_attempts(bands: Sequence[DeathBand], first_process: int) -> Iterator[Event]:
    """Yield what attempts before the last did, above the machines of their group."""
    # The last number of the group, which no machine has; by its sort index, which is
    # below those of all machines, it is shown first.
    pid = first_process + GROUP - 1
    if bands:
        run = bands[0].run
        yield _meta("process_name", pid, name=f"{run}: attempts")
        yield _meta("process_sort_index", pid, sort_index=first_process)
        yield _meta("thread_name", pid, 1, name="attempts")

    for band in bands:
        args = {"note": band.note} if band.note else {}
        place = _Slice(
            pid=pid,
            tid=1,
            start=band.since,
            end=band.until,
        )
        yield _bar(band.what, category="death", place=place, args=args)


def write_trace(run: Path, out: Path | None = None) -> Path:
    """Write ``trace.json`` of a run directory, or ``out``, and return its path.

    Raises DataError when neither schedule can be read, or the file cannot be written.
    """
    record = load_run(run)
    groups = {}
    if record.emulated is not None:
        groups[EMULATED] = record.emulated
    if record.simulated is not None:
        # No file of a run holds the rates of its simulation: it is simulated again.
        groups["simulated"] = with_simulated_rates(record)
    if not groups:
        problem = "; ".join(record.missing)
        raise DataError(problem, path=run)

    path = out or run / "trace.json"
    bands = death_bands(record.result)
    events = trace_events(groups, bands, record.counts)
    lines = _list_lines(events)
    directory = RunDirectory(path.parent)
    directory.write_lines(path.name, lines)
    return path


def _list_lines(events: Iterator[Event]) -> Iterator[str]:
    """Yield a line per event: all events of a long run together took 8 GB."""
    separator = '{"displayTimeUnit":"ms","traceEvents":['
    for event in events:
        text = json.dumps(event, separators=(",", ":"))
        yield separator + text
        separator = ","
    yield "]}"


class _Slice(NamedTuple):
    """Place and time of a bar."""

    pid: int
    tid: int
    start: float
    end: float


class _Group:
    """The events of one schedule."""

    def __init__(
        self,
        name: str,
        schedule: Schedule,
        first_process: int,
        arrows: count[int],
        counts: FlowCounts | None,
    ) -> None:
        self._name = name
        self._counts = counts
        self._schedule = schedule
        self._arrow_numbers = arrows

        self._problem = schedule.problem
        self._job = schedule.problem.job
        self._links = schedule.problem.links
        self._machine_of = schedule.problem.placement.machine_of
        self._first_process = first_process
        self._bars = schedule.bars()
        self._flows = schedule.flows()
        self._crossings = crossings(schedule)
        ports = range(len(self._links))
        self._tracks = [self._track_of(port) for port in ports]

    def _track_of(self, port: int) -> tuple[int, int]:
        """Return the process of a link, and the thread of its first lane."""
        link = self._links[port]
        if not link.direction:
            # Shared links stand in the process behind the machines.
            machines = len(self._problem.cluster.machines)
            position = self._links.shared.index(port)
            first_lane = _LANES * (1 + position)
            return self._pid(machines), first_lane
        first_lane = _LANES
        if link.direction == "in":
            first_lane = 2 * _LANES
        return self._pid(link.machine), first_lane

    def _pid(self, machine: int) -> int:
        return self._first_process + machine + 1

    def events(self) -> Iterator[Event]:
        """Yield all events."""
        yield from self._list_processes()
        yield from self._list_tasks()
        yield from self._list_lanes()
        yield from self._list_flows()
        yield from self._list_handoffs()
        yield from self._list_rates()
        yield from self._list_undelivered()
        yield from self._list_changes()

    def _list_processes(self) -> Iterator[Event]:
        names = [*self._problem.cluster.names]
        if self._links.shared:
            names.append("links")
        for position, name in enumerate(names):
            pid = self._pid(position)
            yield _meta("process_name", pid, name=f"{self._name}: {name}")
            yield _meta("process_sort_index", pid, sort_index=pid)

    def _list_tasks(self) -> Iterator[Event]:
        """Yield the lane of every task that is shown, and its bars."""
        for position, task in enumerate(self._job.tasks):
            shown = np.flatnonzero(self._bars[position])
            iterations = shown.tolist()
            if not iterations:
                continue
            if self._job.lanes[position] == position:
                machine = self._machine_of[position]
                lane_name = self._job.lane_name(position)
                yield from _name_lane(
                    pid=self._pid(machine),
                    # Thread 0 is that of counters and marks.
                    tid=position + 1,
                    name=f"{lane_name} ({task.kind})",
                )

            for iteration in iterations:
                bar = self._task_bar(position, iteration)
                args = {"task": task.name, "iteration": iteration}
                yield _bar(
                    f"{task.name} {iteration}",
                    category=task.kind,
                    place=bar,
                    args=args,
                )

    def _list_lanes(self) -> Iterator[Event]:
        """Yield the names of the lanes of every link."""
        for port, lane_count in enumerate(self._crossings.lanes):
            pid, first_tid = self._tracks[port]
            port_name = self._name_port(port)
            for lane in range(lane_count):
                name = f"{port_name} {lane + 1}"
                yield from _name_lane(pid=pid, tid=first_tid + lane, name=name)

    def _task_bar(self, task: int, iteration: int) -> _Slice:
        machine = self._machine_of[task]
        return _Slice(
            pid=self._pid(machine),
            tid=self._job.lanes[task] + 1,
            start=float(self._schedule.task_start[task, iteration]),
            end=float(self._schedule.task_end[task, iteration]),
        )

    def _name_port(self, port: int) -> str:
        link = self._links[port]
        if not link.direction:
            return link.name
        return f"NIC {link.direction}"

    def _list_flows(self) -> Iterator[Event]:
        """Yield every flow at each link of its route, and its arrows."""
        lanes_by_flow: list[list[tuple[int, int]]] = [[] for _ in self._flows]
        hops = self._crossings
        columns = np.column_stack([hops.flow, hops.port, hops.lane])
        for flow, port, lane in columns.tolist():
            pid, first_tid = self._tracks[port]
            lane_place = (pid, first_tid + lane)
            lanes_by_flow[flow].append(lane_place)

        flows = self._flows.tolist()
        for (position, iteration), lanes in zip(flows, lanes_by_flow, strict=True):
            edge = self._job.edges[position]
            place = (position, iteration)
            start = float(self._schedule.flow_start[place])
            end = float(self._schedule.flow_end[place])
            # The fluid model has a flow on all of its links at once.
            bars = [
                _Slice(
                    pid=pid,
                    tid=tid,
                    start=start,
                    end=end,
                )
                for pid, tid in lanes
            ]
            sending_task = self._job.tasks[edge.source]
            sender_kind = sending_task.kind
            kind = f"{sender_kind} flow"
            edge_name = self._job.edge_names[position]
            name = f"{edge_name} {iteration}"
            # The same flow, with its figures once.
            args = self._describe_flow(position, iteration)
            for bar in bars:
                yield _bar(name, category=kind, place=bar, args=args)
                args = {}

            target = iteration + edge.lag
            sender = self._task_bar(edge.source, iteration)
            receiver = self._task_bar(edge.destination, target)
            # Into the first link and out of the last: in between it is one flow.
            yield from self._draw_arrow(sender, bars[0])
            yield from self._draw_arrow(bars[-1], receiver)

    def _describe_flow(self, edge: int, iteration: int) -> Event:
        """Return the figures that a viewer shows of a flow."""
        schedule = self._schedule
        flow = (edge, iteration)
        size = float(schedule.flow_bytes[flow])
        start = float(schedule.flow_start[flow])
        ready = float(schedule.flow_ready[flow])
        seconds = float(schedule.flow_end[flow]) - start
        mean_rate = 0.0
        if seconds > 0:
            mean_rate = size / seconds

        args = {
            "flow": self._job.edge_names[edge],
            "iteration": iteration,
            "bytes": size,
            "waited_s": start - ready,
            "mean_bytes_per_s": mean_rate,
        }
        latency = float(self._problem.latencies[edge])
        if latency:
            args["latency_s"] = latency  # until its arrow may end
        if self._counts is not None:
            args["kernel"] = self._counts.of_flow(edge, iteration)
        return args

    def _list_handoffs(self) -> Iterator[Event]:
        """Yield the arrows of what never crosses a NIC, credits included."""
        job = self._job
        edges = zip(job.edges, self._problem.hops, job.flow_counts, strict=True)
        for edge, route, iterations in edges:
            if route:
                continue

            kind = "credit" if edge.credit else "dependency"
            for iteration in range(iterations):
                target = iteration + edge.lag
                # Gates of no time have no bar that an arrow could begin or end at.
                has_source = self._bars[edge.source, iteration]
                has_target = self._bars[edge.destination, target]
                if has_source and has_target:
                    source = self._task_bar(edge.source, iteration)
                    destination = self._task_bar(edge.destination, target)
                    yield from self._draw_arrow(source, destination, kind)

    def _draw_arrow(
        self,
        source: _Slice,
        target: _Slice,
        category: str = "dependency",
    ) -> Iterator[Event]:
        arrow = {
            "id": next(self._arrow_numbers),
            "name": category,
            "cat": category,
        }
        # Readers bind an arrow to the bar around its time: leave from inside the bar.
        half = (source.end - source.start) / 2

        departure = source.end - min(1e-6, half)
        yield {
            "ph": "s",
            **arrow,
            **_at(source.pid, source.tid, departure),
        }
        yield {
            "ph": "f",
            **arrow,
            **_at(target.pid, target.tid, target.start),
            # Bound to the bar around it: readers would take the next one of the lane.
            "bp": "e",
        }

    def _list_rates(self) -> Iterator[Event]:
        """Yield the rate through every link, assigned where that is known."""
        steps_by_port = sum_rates(self._schedule)
        word = "assigned"
        if not steps_by_port:
            word = "mean"
            steps_by_port = mean_rates(self._schedule)
        for port, (times, rates) in enumerate(steps_by_port):
            title = f"{self._name_port(port)}, {word} rate (MB/s)"
            pid, _ = self._tracks[port]
            points = np.column_stack([times, rates])
            for time, rate in points.tolist():
                megabytes = rate / 1e6
                yield _level(title, pid=pid, time=time, value=megabytes)

    def _list_undelivered(self) -> Iterator[Event]:
        """Yield per machine the megabytes that stand or move between ready and end."""
        schedule = self._schedule
        flows = tuple(self._flows.T)
        ready = schedule.flow_ready[flows]
        end = schedule.flow_end[flows]
        size = schedule.flow_bytes[flows]
        sources = [self._machine_of[edge.source] for edge in self._job.edges]
        sender_of_edge = np.array(sources, dtype=np.int64)
        sender = sender_of_edge[self._flows[:, 0]]

        machines = range(len(self._problem.cluster.machines))
        for machine in machines:
            is_sent = sender == machine  # shape (flows,)
            sizes = size[is_sent]
            ready_times = ready[is_sent]
            end_times = end[is_sent]
            times = np.concatenate([ready_times, end_times])
            changes = np.concatenate([sizes, -sizes])
            # Stable: at one instant what becomes ready counts before what has arrived.
            order = np.argsort(times, kind="stable")
            levels = np.cumsum(changes[order])
            pid = self._pid(machine)
            times_in_order = times[order]
            steps = np.column_stack([times_in_order, levels])
            for time, level in steps.tolist():
                # A sum of floats may end a little below nothing.
                megabytes = max(level, 0.0) / 1e6
                yield _level(
                    "not delivered (MB)",
                    pid=pid,
                    time=time,
                    value=megabytes,
                )

    def _list_changes(self) -> Iterator[Event]:
        """Yield a mark where a capacity or a machine's speed becomes another one."""
        cluster = self._problem.cluster
        for change in cluster.speed_changes:
            line = f"{change.machine} has {change.share:.3g} of its speed"
            machine = cluster.index(change.machine)
            pid = self._pid(machine)
            yield _mark(line, pid, change.time)

        rows = self._links.steps.rows.tolist()
        for time, position, capacity in rows:
            port = int(position)
            name = self._links[port].name
            rate = format_rate(capacity)
            pid, _ = self._tracks[port]
            yield _mark(f"{name} has {rate}", pid, time)


def _microseconds(seconds: float) -> float:
    """Return microseconds to the nanosecond, which is what viewers resolve.

    Starts and ends are rounded alike, so that bars that touch still do.
    """
    return round(seconds * 1e6, 3)


def _meta(kind: str, pid: int, tid: int = 0, **args: Any) -> Event:
    return {
        "ph": "M",
        "name": kind,
        "pid": pid,
        "tid": tid,
        "args": args,
    }


def _name_lane(pid: int, tid: int, name: str) -> Iterator[Event]:
    yield _meta("thread_name", pid, tid, name=name)
    yield _meta("thread_sort_index", pid, tid, sort_index=tid)


def _at(pid: int, tid: int, time: float) -> Event:
    return {
        "pid": pid,
        "tid": tid,
        "ts": _microseconds(time),
    }


def _bar(
    name: str,
    category: str,
    place: _Slice,
    args: Event,
) -> Event:
    event = {
        "ph": "X",
        "name": name,
        "cat": category,
        **_at(place.pid, place.tid, place.start),
    }
    end = _microseconds(place.end)
    # By the rounded end: a rounded length could reach into the bar that follows.
    event["dur"] = round(end - event["ts"], 3)
    if args:
        event["args"] = args
    return event


def _level(
    name: str,
    pid: int,
    time: float,
    value: float,
) -> Event:
    return {
        "ph": "C",
        "name": name,
        **_at(pid, 0, time),
        "args": {"value": value},
    }


def _mark(name: str, pid: int, time: float) -> Event:
    """Return a mark as high as its process, which is what the scope ``p`` says."""
    return {
        "ph": "i",
        "s": "p",
        "name": name,
        **_at(pid, 0, time),
    }
