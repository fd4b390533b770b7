"""The figures of a run that goes on, folded from the coordinator's events."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import cast

import numpy as np
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from typing_extensions import override

from emu.emulation.coordinator import Observer
from emu.emulation.wire.messages import FlowEnded, RunTask, TaskEnded
from emu.prediction.scheduling import Decisions
from emu.problem import Problem, Schedule
from emu.report.dashboard import status as form
from emu.runs.result import Result
from emu.units import format_duration, format_rate, format_size


class Tape(Observer):
    """An observer that appends every event, with the wall time of its arrival.

    Appending to a deque is atomic, so one thread may write while another one reads.
    The clock gives wall seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._notices: deque[tuple[float, object]] = deque()

    def drain(self) -> Iterator[tuple[float, object]]:
        """Yield the events since the last time, the oldest first."""
        for _ in range(len(self._notices)):
            yield self._notices.popleft()

    def _note(self, message: object) -> None:
        self._notices.append((self._clock(), message))

    @override
    def on_join(self, processes: int) -> None:
        self._note(("joined", processes))

    @override
    def began(self, seconds: float) -> None:
        self._note(("began",))

    @override
    def restarting(self, error: str, first: int) -> None:
        self._note(("restarting", error, first))

    task_started = task_ended = flow_ended = _note

    @override
    def on_prediction(self, schedule: Schedule) -> None:
        self._note(schedule)

    @override
    def on_decisions(self, decisions: Decisions) -> None:
        self._note(decisions)


_SHOWN_FLOWS = 40
#: Wall seconds per sample of the history.
SAMPLE = 0.25


class LiveRun:
    """A run under way: `tape` takes events, `status` and `history_json` give figures.

    All methods may be called from any thread.

    ``scenario`` and ``policy`` are names, for the headline; ``time_scale`` is in wall
    seconds per emulated second; ``clock`` gives wall seconds, monotonic.
    """

    def __init__(
        self,
        problem: Problem,
        scenario: str,
        policy: str,
        time_scale: float,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tape = Tape(clock)
        self.problem = problem
        self._clock = clock
        self._scenario = scenario
        self._policy = policy
        self._scale = time_scale
        self._lock = threading.Lock()
        self._phase: form.Phase = "starting"
        self._processes = 0
        self._outcome: form.Summary | None = None
        self._verdict: str | None = None
        self._error: str | None = None
        tasks = len(problem.job.tasks)
        edges = len(problem.job.edges)
        self._rounds = np.asarray(problem.job.rounds)
        self._done = np.zeros(tasks, dtype=np.int64)
        self._over = np.full(edges, -1, dtype=np.int64)
        self._running: dict[int, tuple[int, float]] = {}
        self._active: dict[int, int] = {}
        self._volumes: dict[tuple[int, int], float] = {}
        self._served, self._rate, self._since = (np.zeros(edges) for _ in range(3))
        self._crossing = np.zeros((len(problem.capacities), edges))
        for edge, hops in enumerate(problem.hops):
            self._crossing[list(hops), edge] = 1.0
        self._port_rate = np.zeros(len(problem.capacities))
        self._moved = self._port_rate.copy()
        self._arrived = self._port_rate.copy()
        self._figures: dict[int, dict[str, float]] = {}
        self._zero = math.inf
        #: Iterations and run time before iteration 0 and time 0 of this attempt.
        self._first = 0
        self._base = 0.0
        self._delay = self._max_delay = self._max_late = 0.0
        self._late = 0
        self._time = 0.0
        self._sampled = 0.0
        self._sampled_at = -math.inf
        self._predicted: Schedule | None = None
        self._ends: list[float] = []
        self.history = form.History()

    def on_end(self, result: Result) -> None:
        """Note what the run came to; ``result`` is the content of result.json."""
        with self._lock:
            self._fold()
            self._phase = "ended"
            self._processes = 0
            figures = {key: float(result[key]) for key in form.Summary.model_fields}
            self._outcome = form.Summary(**figures)
            verdict = result.get("verdict")
            self._verdict = None if verdict is None else str(verdict["trust"])
            self._advance(max(self._time, self._outcome.makespan))
            self._sample()

    def on_failure(self, error: str) -> None:
        """Note that the run could not be finished, and why."""
        with self._lock:
            self._fold()
            self._phase = "failed"
            self._error = error
            self._processes = 0
            self._sample()

    def status(self) -> form.Status:
        """Return the run as it is now."""
        with self._lock:
            self._fold()
            return self._status()

    def history_json(self) -> Result:
        """Return the history so far; its form is that of `History.to_json`."""
        with self._lock:
            self._fold()
            return self.history.to_json()

    def prediction_json(self) -> list[list[float]]:
        """Return [task, iteration, start, end] of the simulation, by their starts.

        The first 50,000 of them; nothing before there is a prediction.
        """
        with self._lock:
            self._fold()
            if self._predicted is None:
                return []
            start = self._predicted.task_start
            end = self._predicted.task_end
        task, iteration = np.nonzero(np.isfinite(end))
        at = task, iteration
        spans = np.stack([*at, start[at], end[at]], axis=1)
        first = np.argsort(spans[:, 2], kind="stable")[: form.SPANS]
        return cast("list[list[float]]", spans[first].tolist())

    def news(self, seen: form.Seen) -> tuple[Result, form.Seen]:
        """Return the history that a viewer has not seen; see `History.since`."""
        with self._lock:
            self._fold()
            return self.history.since(seen)

    def _now(self) -> float:
        """Return the run time: from the wall clock while the run goes on."""
        if self._phase != "running" or math.isinf(self._zero):
            return self._time
        return max(self._time, (self._clock() - self._zero) / self._scale)

    def _fold(self) -> None:
        for moment, what in self.tape.drain():
            self._take(moment, what)
        # With the last task: simulations and the verdict follow, and are not the run.
        if self._phase == "running" and (self._done >= self._rounds).all():
            self._phase = "ended"
            self._processes = 0
            self._sample()
        if self._phase == "running":
            self._advance(self._now())
            if self._clock() - self._sampled_at >= SAMPLE:
                self._sample()

    def _take(self, received: float, what: object) -> None:
        base = self._base
        match what:
            case TaskEnded():
                self._measure_delay(received, base + what.end)
                self._task_ended(what)
            case FlowEnded():
                self._measure_delay(received, base + what.time)
                edge = what.edge
                self._over[edge] = what.iteration
                self._active.pop(edge, None)
                self._volumes.pop((edge, what.iteration), None)
                self._port_rate -= self._crossing[:, edge] * self._rate[edge]
                self._rate[edge] = 0.0
                self._arrived += self._crossing[:, edge] * what.volume
            case Decisions():
                self._apply_decisions(what)
            case RunTask():
                n = what.iteration + self._first
                self._running[what.task] = n, base + what.start
            case ("began",):
                self._phase = "running"
                self._zero = received + 1.0
            case "restarting", str(error), int(first):
                self._restart(error, first)
            case Schedule() if self._predicted is None:  # of the first attempt
                self._predicted = what
                ends = what.task_end
                self._ends = np.sort(ends[np.isfinite(ends)]).tolist()
            case "joined", int(processes):
                self._processes = processes
            case _:  # the prediction of a further attempt
                pass

    def _restart(self, error: str, first: int) -> None:
        """Go on at the run time so far, with nothing under way."""
        self._sample()
        note = f"{error}: goes on at iteration {first}"
        self.history.deaths.append((self._time, note))
        self._phase = "starting"
        self._processes = 0
        self._first = first
        self._base = self._time
        self._zero = math.inf
        self._done[:], self._over[:] = np.minimum(first, self._rounds), -1
        for container in (self._running, self._active, self._volumes):
            container.clear()
        for rates in (self._served, self._rate, self._since, self._port_rate):
            rates[:] = 0.0

    def _measure_delay(self, received: float, happened: float) -> None:
        """Advance to an event; the fastest one so far fixes run time 0."""
        self._zero = min(self._zero, received - happened * self._scale)
        self._delay = received - happened * self._scale - self._zero
        self._max_delay = max(self._max_delay, self._delay)
        self._advance(happened)

    def _advance(self, to: float) -> None:
        if to > self._time:
            self._moved += self._port_rate * (to - self._time)
            self._time = to

    def _task_ended(self, message: TaskEnded) -> None:
        self._running.pop(message.task, None)
        self._done[message.task] += 1
        n = message.iteration + self._first
        base = self._base
        self.history.ran(message.task, n, base + message.start, base + message.end)
        for edge, volume in zip(message.edges, message.volumes, strict=True):
            if self.problem.hops[edge]:
                self._volumes[edge, message.iteration] = volume
        if message.late > 0:
            self._late += 1
            self._max_late = max(self._max_late, message.late)
        figures = {
            figure: value
            for figure, value in message.report.items()
            if (figure == "loss" or "accuracy" in figure) and math.isfinite(value)
        }
        if figures:
            self._figures[message.task] = figures
        for figure, value in figures.items():
            self.history.report(base + message.end, figure, value)

    def _apply_decisions(self, decided: Decisions) -> None:
        self._advance(self._base + decided.time)
        for edge, iteration in decided.flows:
            if iteration > self._over[edge]:
                self._active[edge] = iteration
        # The coordinator reports all events that came together before it decides on the
        # first of them, so a line may be of a flow that is known to be over.
        segments = decided.lines
        alive = segments.iteration > self._over[segments.edge]
        edges = segments.edge[alive]
        since = self._base + decided.time
        self._served[edges], self._since[edges] = segments.served[alive], since
        self._rate[edges] = segments.rate[alive]
        self._port_rate = self._crossing @ self._rate

    def _sample(self) -> None:
        span = self._time - self._sampled
        if span > 0:
            rates = (self._moved / span).tolist()
            self.history.add(self._sampled, self._time, rates, len(self._active))
        self._moved[:] = 0.0
        self._sampled, self._sampled_at = self._time, self._clock()

    def _status(self) -> form.Status:
        job = self.problem.job
        now = self._now()
        share, rest = self._progress(now)
        counts = zip(self._done.tolist(), job.rounds, strict=True)
        values = defaultdict[str, list[float]](list)
        for figures in self._figures.values():
            for figure, value in figures.items():
                values[figure].append(value)
        return form.Status(
            scenario=self._scenario,
            policy=self._policy,
            phase=self._phase,
            processes=self._processes,
            run_time=now,
            iterations=job.iterations,
            iterations_ended=min(
                (count for count, most in counts if count < most),
                default=job.iterations,
            ),
            steps=sum(job.rounds),
            steps_ended=int(self._done.sum()),
            left=rest,
            share=share,
            running=[
                form.RunningTask(task=job.tasks[task].name, iteration=n, since=since)
                for task, (n, since) in self._running.items()
            ],
            active_flows=len(self._active),
            flows=self._flows(now),
            ports=self._ports(),
            figures={name: float(np.mean(each)) for name, each in values.items()},
            delay=self._delay,
            max_delay=self._max_delay,
            late_steps=self._late,
            max_late=self._max_late,
            verdict=self._verdict,
            outcome=self._outcome,
            error=self._error,
        )

    def _progress(self, now: float) -> tuple[float, float | None]:
        """Return the share that has passed, and the wall seconds left.

        The share is by time, between two predicted ends; what is left is that of the
        prediction, at the pace so far.
        """
        count = int(self._done.sum())
        ends = self._ends
        steps = sum(self.problem.job.rounds)
        since = ends[min(count, len(ends)) - 1] if count and ends else 0.0
        running = self._phase == "running" and since
        rest = now * self._scale * (ends[-1] / since - 1) if running else None
        if count >= min(steps, len(ends)) or not ends[-1]:
            return count / steps if steps else 1.0, rest
        return float(min(max(now, since), ends[count]) / ends[-1]), rest

    def _ports(self) -> list[form.Port]:
        machines = [machine.name for machine in self.problem.cluster.machines]
        running = self._phase == "running"
        now = np.array([self._now()])
        steps = self.problem.links.steps
        return [
            form.Port(
                port=link.name,
                machine=machines[link.machine] if link.direction else "",
                direction=link.direction,
                capacity=float(steps.at(port, now)[0]),
                rate=max(float(self._port_rate[port]), 0.0) if running else 0.0,
                bytes=float(self._arrived[port]),
            )
            for port, link in enumerate(self.problem.links)
        ]

    def _flows(self, now: float) -> list[form.ActiveFlow]:
        job = self.problem.job
        flows = []
        for e, iteration in self._active.items():
            volume = self._volumes.get((e, iteration), 0.0)
            edge = job.edges[e]
            size = float(self._served[e] + self._rate[e] * (now - self._since[e]))
            flow = form.ActiveFlow(
                edge=job.edge_names[e],
                source=job.tasks[edge.source].name,
                destination=job.tasks[edge.destination].name,
                iteration=iteration,
                bytes=volume,
                sent=min(max(size, 0.0), volume),
                rate=float(self._rate[e]),
            )
            flows.append(flow)
        return sorted(flows, key=lambda flow: -flow.bytes)[:_SHOWN_FLOWS]


_BAR = 12


def draw_live(live: LiveRun, console: Console) -> Live:
    """Return a context manager that draws a live run while it is entered."""
    return Live(
        console=console,
        get_renderable=lambda: live_table(live.status()),
        refresh_per_second=1 / SAMPLE,
    )


def live_table(status: form.Status) -> Table:
    """Return one row per machine and shared link, under a line with the figures."""
    figures = ", ".join(f"{name} {value:.4g}" for name, value in status.figures.items())
    title = (
        f"{status.scenario}: {status.phase}, iteration {status.iterations_ended}/"
        f"{status.iterations}, {status.run_time:.2f} s, {status.active_flows} flows"
        f"{', ' + figures if figures else ''}"
    )
    table = Table("machine", title=title, box=box.SIMPLE_HEAD, title_justify="left")
    table.caption = (
        f"{status.late_steps} late steps, events received "
        f"{format_duration(status.delay, 2)} after the fastest "
        f"(worst {format_duration(status.max_delay, 2)} wall)"
    )
    for direction in ("out", "in"):
        table.add_column(direction)
        table.add_column("rate", justify="right")
        table.add_column("moved", justify="right")
    rows: dict[str, list[form.Port]] = {}
    for port in status.ports:
        rows.setdefault(port.machine or port.port, []).append(port)
    for name, ports in rows.items():
        cells = [name]
        for port in ports:
            full = round(_BAR * min(port.rate / port.capacity, 1.0))
            bar = "█" * full + "░" * (_BAR - full)
            cells += [bar, format_rate(port.rate), format_size(port.bytes)]
        table.add_row(*cells)
    return table
