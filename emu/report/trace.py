"""trace.json: schedules in the Trace Event Format, for ui.perfetto.dev and Chrome.

Machines are processes, in two groups: ``emulated`` and ``simulated``. Every task has a
lane, and every direction of a NIC has as many as flows overlap there; a flow is drawn
where it leaves and where it arrives. Arrows lead from a task to the flows that it sends
and from a flow to the task that it lets start. Counters show per port the assigned rate
or, where that is not known, the mean rates of what moves; and per machine the bytes
produced there but not delivered yet. Emulated seconds are seconds of the trace.

References
----------
"Trace Event Format", Google, 2016: X slices, s/f flow arrows, C counters, M names.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.analysis.link_rates import assigned_rates, mean_rates
from emu.errors import DataError
from emu.report.lane_packing import pack_lanes
from emu.runs.recorded_run import load_run, with_simulated_rates
from emu.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from emu.problem import Schedule

    Event = dict[str, Any]

#: Process numbers of the second group begin here; a group has fewer machines.
GROUP = 100_000
#: Lanes of one machine: tasks from 1, then out, then in.
_OUT, _IN = 100_000, 200_000


def trace(groups: dict[str, Schedule]) -> dict[str, Any]:
    """Return the content of trace.json.

    Parameters
    ----------
    groups
        Name of the group, such as ``emulated``, to its schedule.
    """
    arrow = count(1)
    events: list[Event] = []
    for position, (name, schedule) in enumerate(groups.items()):
        group = _Group(name, schedule, position * GROUP, arrow)
        events += group.events()
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def write_trace(run: Path, out: Path | None = None) -> Path:
    """Write the trace of a run directory, ``trace.json`` in it by default.

    Parameters
    ----------
    out
        Another place for the file.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    DataError
        When neither schedule can be read, or the file cannot be written.
    """
    recorded = load_run(run)
    groups: dict[str, Schedule] = {}
    if recorded.emulated is not None:
        groups["emulated"] = recorded.emulated
    if recorded.simulated is not None:
        groups["simulated"] = with_simulated_rates(recorded)
    if not groups:
        raise DataError("; ".join(recorded.missing), path=str(run))
    path = run / "trace.json" if out is None else out
    content = json.dumps(trace(groups), separators=(",", ":"))
    RunDirectory(path.parent).write_lines(path.name, [content])
    return path


@dataclass(frozen=True)
class _Slice:
    """Where a bar is drawn, and when."""

    pid: int
    tid: int
    start: float
    end: float


class _Group:
    """The events of one schedule."""

    def __init__(
        self, name: str, schedule: Schedule, first: int, arrow: count[int]
    ) -> None:
        self._name, self._schedule, self._arrow = name, schedule, arrow
        self._problem, self._job = schedule.problem, schedule.problem.job
        self._first = first
        self._machine_of = self._problem.placement.machine_of
        self._flows = schedule.flows()

    def events(self) -> Iterator[Event]:
        """Yield all events."""
        yield from self._machine_names()
        yield from self._task_bars()
        leaving, arriving = self._flow_lanes(0), self._flow_lanes(1)
        yield from self._lane_names(leaving, _OUT, "out")
        yield from self._lane_names(arriving, _IN, "in")
        yield from self._flow_bars(leaving, arriving)
        yield from self._handoffs()
        yield from self._rates()
        yield from self._undelivered()

    def _pid(self, machine: int) -> int:
        return self._first + machine + 1

    def _machine_names(self) -> Iterator[Event]:
        for m, machine in enumerate(self._problem.cluster.machines):
            pid = self._pid(m)
            yield _meta("process_name", pid, name=f"{self._name}: {machine.name}")
            yield _meta("process_sort_index", pid, sort_index=pid)

    def _task_bar(self, task: int, iteration: int) -> _Slice:
        at = task, iteration
        return _Slice(
            self._pid(self._machine_of[task]),
            task + 1,
            float(self._schedule.task_start[at]),
            float(self._schedule.task_end[at]),
        )

    def _task_bars(self) -> Iterator[Event]:
        for j, task in enumerate(self._job.tasks):
            pid = self._pid(self._machine_of[j])
            yield _meta("thread_name", pid, j + 1, name=f"{task.name} ({task.kind})")
            yield _meta("thread_sort_index", pid, j + 1, sort_index=j + 1)
            for n in range(self._job.iterations):
                args = {"task": task.name, "iteration": n}
                bar = self._task_bar(j, n)
                yield _bar(f"{task.name} {n}", task.kind, bar, args)

    def _flow_lanes(self, end: int) -> list[tuple[int, int]]:
        """Return (machine, lane) of every flow at its source (0) or destination (1)."""
        ends = [(edge.source, edge.destination)[end] for edge in self._job.edges]
        machine = np.array([self._machine_of[task] for task in ends], dtype=np.int64)
        place = machine[self._flows[:, 0]]
        lane = np.zeros(len(place), dtype=np.int64)
        at = tuple(self._flows.T)
        start, over = self._schedule.flow_start[at], self._schedule.flow_end[at]
        for m in np.unique(place):
            here = place == m
            lane[here], _ = pack_lanes(start[here], over[here])
        return list(zip(place.tolist(), lane.tolist(), strict=True))

    def _lane_names(
        self, places: list[tuple[int, int]], offset: int, direction: str
    ) -> Iterator[Event]:
        for machine, lane in sorted(set(places)):
            pid, tid = self._pid(machine), offset + lane
            yield _meta("thread_name", pid, tid, name=f"NIC {direction} {lane + 1}")
            yield _meta("thread_sort_index", pid, tid, sort_index=tid)

    def _flow_bars(
        self, leaving: list[tuple[int, int]], arriving: list[tuple[int, int]]
    ) -> Iterator[Event]:
        made, job = self._schedule, self._job
        for (e, n), out, into in zip(
            self._flows.tolist(), leaving, arriving, strict=True
        ):
            edge = job.edges[e]
            start, end = float(made.flow_start[e, n]), float(made.flow_end[e, n])
            size = float(made.flow_bytes[e, n])
            args = {
                "flow": job.edge_names[e],
                "iteration": n,
                "bytes": size,
                "waited_s": start - float(made.flow_ready[e, n]),
                "mean_bytes_per_s": size / (end - start) if end > start else 0.0,
            }
            kind = f"{job.tasks[edge.source].kind} flow"
            sent = _Slice(self._pid(out[0]), _OUT + out[1], start, end)
            taken = _Slice(self._pid(into[0]), _IN + into[1], start, end)
            name = f"{job.edge_names[e]} {n}"
            yield _bar(name, kind, sent, args)
            yield _bar(name, kind, taken, {})  # the same flow, told once
            yield from self._arrow_between(self._task_bar(edge.source, n), sent)
            needed = self._task_bar(edge.destination, n + edge.lag)
            yield from self._arrow_between(taken, needed)

    def _handoffs(self) -> Iterator[Event]:
        """Yield the arrows of what never crosses a NIC, credits included."""
        for edge, hops in zip(self._job.edges, self._problem.hops, strict=True):
            for n in range(0 if hops else self._job.iterations - edge.lag):
                yield from self._arrow_between(
                    self._task_bar(edge.source, n),
                    self._task_bar(edge.destination, n + edge.lag),
                    "credit" if edge.credit else "dependency",
                )

    def _arrow_between(
        self, source: _Slice, target: _Slice, category: str = "dependency"
    ) -> Iterator[Event]:
        number = next(self._arrow)
        # Readers bind an arrow to the bar around its time: leave from inside the bar.
        inside = source.end - min(1e-6, (source.end - source.start) / 2)
        for phase, bar, time in (("s", source, inside), ("f", target, target.start)):
            event = {
                "ph": phase,
                "id": number,
                "name": category,
                "cat": category,
                "pid": bar.pid,
                "tid": bar.tid,
                "ts": _microseconds(time),
            }
            yield {**event, "bp": "e"} if phase == "f" else event

    def _rates(self) -> Iterator[Event]:
        assigned = assigned_rates(self._schedule)
        word = "mean" if assigned is None else "assigned"
        for port, (times, rates) in enumerate(assigned or mean_rates(self._schedule)):
            name = f"NIC {'in' if port % 2 else 'out'}, {word} rate (MB/s)"
            pid = self._pid(port // 2)
            for time, rate in zip(times.tolist(), rates.tolist(), strict=True):
                yield _level(name, pid, time, rate / 1e6)

    def _undelivered(self) -> Iterator[Event]:
        """Yield per machine the megabytes that stand or move between ready and end."""
        at = tuple(self._flows.T)
        made = self._schedule
        source = np.array([edge.source for edge in self._job.edges], dtype=np.int64)
        machine = np.array(self._machine_of, dtype=np.int64)[source[self._flows[:, 0]]]
        for m in range(len(self._problem.cluster.machines)):
            here = machine == m
            times = np.concatenate([made.flow_ready[at][here], made.flow_end[at][here]])
            size = made.flow_bytes[at][here]
            order = np.argsort(times, kind="stable")
            level = np.cumsum(np.concatenate([size, -size])[order])
            for time, value in zip(times[order].tolist(), level.tolist(), strict=True):
                megabytes = max(value, 0.0) / 1e6
                yield _level("not delivered (MB)", self._pid(m), time, megabytes)


def _microseconds(seconds: float) -> float:
    """Return microseconds to the nanosecond, which is what viewers resolve.

    Starts and ends are rounded alike, so that bars that touch still do.
    """
    return round(seconds * 1e6, 3)


def _meta(kind: str, pid: int, tid: int = 0, **args: Any) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args}


def _bar(name: str, category: str, bar: _Slice, args: dict[str, Any]) -> Event:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": bar.pid,
        "tid": bar.tid,
        "ts": _microseconds(bar.start),
        "dur": round(_microseconds(bar.end) - _microseconds(bar.start), 3),
        **({"args": args} if args else {}),
    }


def _level(name: str, pid: int, time: float, value: float) -> Event:
    return {
        "ph": "C",
        "name": name,
        "pid": pid,
        "tid": 0,
        "ts": _microseconds(time),
        "args": {"value": value},
    }
