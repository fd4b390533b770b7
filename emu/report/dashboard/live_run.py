"""The figures of a run that goes on, folded from the coordinator's events."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
from typing_extensions import override

from emu.emulation.coordinator import Observer
from emu.emulation.wire.messages import FlowEnded, RunTask, TaskEnded
from emu.prediction.scheduling import Decisions
from emu.problem import Problem, Schedule
from emu.report.dashboard import status as form
from emu.runs.result import Result


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
        # As many as there are now: a busy run would keep its reader in here.
        for _ in range(len(self._notices)):
            yield self._notices.popleft()

    def _note(self, message: object) -> None:
        moment = self._clock()
        self._notices.append((moment, message))

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


#: Flows that a status lists, the largest of those that move.
_SHOWN_FLOWS = 40
#: Wall seconds per sample of the history.
SAMPLE = 0.25


@dataclass
class _Delays:
    """Fields of a `Status` on what came late."""

    delay: float = 0.0
    max_delay: float = 0.0
    late_steps: int = 0
    max_late: float = 0.0


class _Flows:
    """The flows that move, and what crosses every port by their rates."""

    def __init__(self, problem: Problem) -> None:
        self._job = problem.job
        edges = len(problem.job.edges)
        ports = len(problem.capacities)
        self.active: dict[int, int] = {}
        """Iteration of the flow that moves by edge."""
        self.volumes: dict[tuple[int, int], float] = {}
        """Bytes by edge and iteration, of flows that have not ended."""
        self._over = np.full(edges, -1, dtype=np.int64)
        """Last iteration of every edge whose flow has ended."""
        self._served = np.zeros(edges)
        self._rate = np.zeros(edges)
        self._since = np.zeros(edges)
        # Multiplied by the rates of all edges it gives those of all ports at once.
        shape = (ports, edges)
        self._crossing = np.zeros(shape)
        for edge, hops in enumerate(problem.hops):
            self._crossing[list(hops), edge] = 1.0

        self.port_rate = np.zeros(ports)
        self.moved = np.zeros(ports)
        """Bytes since the last sample, by the rates."""
        self.arrived = np.zeros(ports)
        """Bytes of the flows that have ended."""

    def decide(self, decided: Decisions, now: float) -> None:
        """Take the rates that hold from now on."""
        for edge, iteration in decided.flows:
            if iteration > self._over[edge]:
                self.active[edge] = iteration

        # The coordinator reports all events that came together before it decides on the
        # first of them, so a line may be of a flow that is known to be over.
        segments = decided.lines
        last_iterations = self._over[segments.edge]
        is_alive = segments.iteration > last_iterations
        edges = segments.edge[is_alive]
        self._served[edges] = segments.served[is_alive]
        self._since[edges] = now
        self._rate[edges] = segments.rate[is_alive]
        self.port_rate = self._crossing @ self._rate

    def end(self, message: FlowEnded) -> None:
        """Take a flow that has arrived."""
        edge = message.edge
        crossing = self._crossing[:, edge]
        self._over[edge] = message.iteration
        self.active.pop(edge, None)
        flow = (edge, message.iteration)
        self.volumes.pop(flow, None)
        # The next decision sets all rates anew; until then only this flow is gone.
        self.port_rate -= crossing * self._rate[edge]
        self._rate[edge] = 0.0
        self.arrived += crossing * message.volume

    def advance(self, seconds: float) -> None:
        """Move bytes at the rates that hold."""
        self.moved += self.port_rate * seconds

    def clear(self) -> None:
        """Forget what is under way: a new attempt begins."""
        self.active.clear()
        self.volumes.clear()
        self._over[:] = -1
        figures = (self._served, self._rate, self._since, self.port_rate)
        for values in figures:
            values[:] = 0.0

    def list_largest(self, now: float) -> list[form.ActiveFlow]:
        """Return the largest flows that move, with what their rates amount to."""
        flows = []
        for position, iteration in self.active.items():
            edge = self._job.edges[position]
            flow_key = (position, iteration)
            volume = self.volumes.get(flow_key, 0.0)
            rate = self._rate[position]

            # Rates hold until the next decision, so bytes grow evenly since the last.
            seconds = now - self._since[position]
            size_since = rate * seconds
            size = float(self._served[position] + size_since)
            source, destination = self._job.ends(edge)
            # Rates run on until the end is reported: never more than the volume.
            sent = min(max(size, 0.0), volume)
            flow = form.ActiveFlow(
                edge=self._job.edge_names[position],
                source=source.name,
                destination=destination.name,
                iteration=iteration,
                bytes=volume,
                sent=sent,
                rate=float(rate),
            )
            flows.append(flow)

        flows.sort(key=lambda flow: -flow.bytes)
        return flows[:_SHOWN_FLOWS]


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
        self._rounds = np.asarray(problem.job.rounds)
        self._done = np.zeros(tasks, dtype=np.int64)
        #: Iteration and start by task.
        self._running: dict[int, tuple[int, float]] = {}

        self._flows = _Flows(problem)
        #: Last report of every task.
        self._figures: dict[int, dict[str, float]] = {}
        self._delays = _Delays()

        #: Wall time of run time 0.
        self._zero = math.inf
        #: Iterations and run time before iteration 0 and time 0 of this attempt.
        self._first = 0
        self._base = 0.0
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
            self._leave("ended")
            names = form.Summary.model_fields
            figures = {key: float(result[key]) for key in names}
            self._outcome = form.Summary(**figures)
            verdict = result.get("verdict")
            if verdict is not None:
                self._verdict = str(verdict["trust"])
            end = max(self._time, self._outcome.makespan)
            self._advance(end)
            self._sample()

    def on_failure(self, error: str) -> None:
        """Note that the run could not be finished, and why."""
        with self._lock:
            self._fold()
            self._leave("failed")
            self._error = error
            self._sample()

    def _leave(self, phase: form.Phase) -> None:
        """Be in a phase in which no process is up."""
        self._phase = phase
        self._processes = 0

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

        # Without the lock: a prediction that is there never changes.
        is_finite = np.isfinite(end)
        task, iteration = np.nonzero(is_finite)
        starts = start[task, iteration]
        ends = end[task, iteration]
        columns = [task, iteration, starts, ends]
        spans = np.stack(columns, axis=1)
        order = np.argsort(starts, kind="stable")
        first_spans = spans[order[: form.SPANS]]
        return cast("list[list[float]]", first_spans.tolist())

    def news(self, seen: form.Seen) -> tuple[Result, form.Seen]:
        """Return the history that a viewer has not seen; see `History.since`."""
        with self._lock:
            self._fold()
            return self.history.since(seen)

    def _now(self) -> float:
        """Return the run time: from the wall clock while the run goes on."""
        if self._phase != "running" or math.isinf(self._zero):
            return self._time
        wall_seconds = self._clock() - self._zero
        seconds = wall_seconds / self._scale
        # Run time never goes back, though each faster event moves time 0 of the clock.
        return max(self._time, seconds)

    def _fold(self) -> None:
        for moment, notice in self.tape.drain():
            self._take(moment, notice)
        if self._phase != "running":
            return

        # With the last task: simulations and the verdict follow, and are not the run.
        has_ended = self._done >= self._rounds
        if has_ended.all():
            self._leave("ended")
            self._sample()
            return
        self._advance(self._now())
        since_sample = self._clock() - self._sampled_at
        if since_sample >= SAMPLE:
            self._sample()

    def _take(self, received: float, notice: object) -> None:
        match notice:
            case TaskEnded():
                end = self._base + notice.end
                self._measure_delay(received, end)
                self._task_ended(notice)
            case FlowEnded():
                end = self._base + notice.time
                self._measure_delay(received, end)
                self._flows.end(notice)
            case Decisions():
                now = self._base + notice.time
                self._advance(now)
                self._flows.decide(notice, now)
            case RunTask():
                iteration = notice.iteration + self._first
                start = self._base + notice.start
                self._running[notice.task] = (iteration, start)
            case ("began",):
                self._phase = "running"
                # Time 0 is 0.1 s ahead here; this bound is what the first event lowers.
                self._zero = received + 1.0
            case "restarting", str(error), int(first):
                self._restart(error, first)
            case Schedule() if self._predicted is None:  # of the first attempt
                self._predicted = notice
                ends = notice.task_end
                finite_ends = ends[np.isfinite(ends)]
                sorted_ends = np.sort(finite_ends)
                self._ends = sorted_ends.tolist()
            case "joined", int(processes):
                self._processes = processes
            case _:  # the prediction of a further attempt
                pass

    def _restart(self, error: str, first: int) -> None:
        """Go on at the run time so far, with nothing under way."""
        self._sample()

        note = f"{error}: goes on at iteration {first}"
        death = (self._time, note)
        self.history.deaths.append(death)
        self._leave("starting")
        self._first = first
        self._base = self._time
        self._zero = math.inf

        # What iterations before ``first`` computed is kept; all else begins anew.
        kept = np.minimum(first, self._rounds)
        self._done[:] = kept
        self._running.clear()
        self._flows.clear()

    def _measure_delay(self, received: float, happened: float) -> None:
        """Advance to an event; the fastest one so far fixes run time 0."""
        zero = received - happened * self._scale
        self._zero = min(self._zero, zero)
        delays = self._delays
        delays.delay = zero - self._zero
        delays.max_delay = max(delays.max_delay, delays.delay)
        self._advance(happened)

    def _advance(self, time: float) -> None:
        # Events come out of order: what happened earlier moves nothing back.
        if time > self._time:
            self._flows.advance(time - self._time)
            self._time = time

    def _task_ended(self, message: TaskEnded) -> None:
        task = message.task
        self._running.pop(task, None)
        self._done[task] += 1
        start = self._base + message.start
        end = self._base + message.end
        self.history.ran(
            task,
            iteration=message.iteration + self._first,
            start=start,
            end=end,
        )
        volumes = zip(message.edges, message.volumes, strict=True)
        for edge, volume in volumes:
            # Within a machine no flow would end, and its entry would stay for ever.
            if self.problem.hops[edge]:
                self._flows.volumes[edge, message.iteration] = volume
        if message.late > 0:
            delays = self._delays
            delays.late_steps += 1
            delays.max_late = max(delays.max_late, message.late)

        figures = {}
        for figure, value in message.report.items():
            is_shown = figure == "loss" or "accuracy" in figure
            if is_shown and math.isfinite(value):
                figures[figure] = value
                self.history.report(end, figure, value)
        if figures:
            self._figures[task] = figures

    def _sample(self) -> None:
        span = self._time - self._sampled
        if span > 0:
            rates = self._flows.moved / span
            count = len(self._flows.active)
            self.history.add(
                self._sampled,
                end=self._time,
                rates=rates.tolist(),
                flows=count,
            )

        self._flows.moved[:] = 0.0
        self._sampled = self._time
        # By the wall clock: samples are for the eyes, at any time scale.
        self._sampled_at = self._clock()

    def _status(self) -> form.Status:
        job = self.problem.job
        now = self._now()
        share, rest = self._progress(now)

        # Iterations that every task has ended: as many as the slowest one.
        done = self._done.tolist()
        rounds_of_tasks = zip(done, job.rounds, strict=True)
        counts = [count for count, most in rounds_of_tasks if count < most]
        running = []
        for task, (iteration, start) in self._running.items():
            running_task = form.RunningTask(
                task=job.tasks[task].name,
                iteration=iteration,
                since=start,
            )
            running.append(running_task)

        return form.Status(
            scenario=self._scenario,
            policy=self._policy,
            phase=self._phase,
            processes=self._processes,
            run_time=now,
            iterations=job.iterations,
            iterations_ended=min(counts, default=job.iterations),
            steps=sum(job.rounds),
            steps_ended=int(self._done.sum()),
            left=rest,
            share=share,
            running=running,
            active_flows=len(self._flows.active),
            flows=self._flows.list_largest(now),
            ports=self._ports(),
            figures=self._mean_figures(),
            **vars(self._delays),
            verdict=self._verdict,
            outcome=self._outcome,
            error=self._error,
        )

    def _mean_figures(self) -> dict[str, float]:
        """Return the mean over the tasks of what they reported last."""
        values = defaultdict[str, list[float]](list)
        for figures in self._figures.values():
            for figure, value in figures.items():
                values[figure].append(value)
        means = {}
        for figure, series in values.items():
            mean = np.mean(series)
            means[figure] = float(mean)
        return means

    def _progress(self, now: float) -> tuple[float, float | None]:
        """Return the share that has passed, and the wall seconds left.

        The share is by time, between two predicted ends; what is left is that of the
        prediction, at the pace so far.
        """
        count = int(self._done.sum())
        ends = self._ends
        steps = sum(self.problem.job.rounds)
        # When as many steps had ended in the prediction as have ended by now.
        last_end = 0.0
        if count and ends:
            place = min(count, len(ends)) - 1
            last_end = ends[place]
        rest = None
        if self._phase == "running" and last_end:
            rest_of_prediction = ends[-1] / last_end - 1
            rest = now * self._scale * rest_of_prediction

        # Beyond the prediction, or without one, every step counts alike.
        predicted_steps = min(steps, len(ends))
        if count >= predicted_steps or not ends[-1]:
            share = count / steps if steps else 1.0
            return share, rest
        earliest = max(now, last_end)
        moment = min(earliest, ends[count])
        return float(moment / ends[-1]), rest

    def _ports(self) -> list[form.Port]:
        machines = self.problem.cluster.machines
        is_running = self._phase == "running"

        moment = self._now()
        now = np.array([moment])
        rates = self._flows.port_rate
        steps = self.problem.links.steps
        ports = []
        for number, link in enumerate(self.problem.links):
            machine = ""
            if link.direction:
                machine = machines[link.machine].name
            (capacity,) = steps.at(number, now)
            rate = 0.0
            if is_running:
                decided_rate = float(rates[number])
                # Differences of rates may leave less than nothing.
                rate = max(decided_rate, 0.0)
            port = form.Port(
                port=link.name,
                machine=machine,
                direction=link.direction,
                capacity=float(capacity),
                rate=rate,
                bytes=float(self._flows.arrived[number]),
            )
            ports.append(port)
        return ports
