"""An emulated run from the first process to the last result."""

from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.emulation.coordinator.cuts import CutKeeper
from emu.emulation.coordinator.deadlines import Deadlines
from emu.emulation.coordinator.membership import Membership
from emu.emulation.coordinator.observers import Observer
from emu.emulation.coordinator.outcome import Answers, EmulatedRun, Recorder
from emu.emulation.coordinator.process_specs import (
    check_hosts,
    check_ports,
    host_of_machines,
    process_specs,
)
from emu.emulation.coordinator.scheduler_driver import SchedulerDriver
from emu.emulation.coordinator.settings import RunSettings
from emu.emulation.launch.signals import run_until_signalled
from emu.emulation.network.clock import PauseAwareClock, RunClock
from emu.emulation.wire.messages import (
    Begin,
    Finish,
    FlowEnded,
    GraphPiece,
    Graphs,
    GraphsKept,
    GraphWanted,
    Launch,
    Listening,
    Message,
    Peers,
    RateUpdate,
    Ready,
    RunTask,
    StatePart,
    TaskEnded,
    WakeSender,
)
from emu.errors import DeadlineExceeded, NodeMisbehaved, RunError
from emu.graph_data.copied_graphs import list_graphs
from emu.host.this_host import this_host, version_of_emu
from emu.names import printable
from emu.prediction.core import lib
from emu.prediction.scheduling import Decisions, RateSegments, Scheduler
from emu.problem import Due, Problem, Profile, Realization, next_kills
from emu.problem.workloads import copies_of
from emu.trust.guards.traffic import LOST_RATES
from emu.trust.lateness import late_times

__all__ = ["Coordinator", "EmulatedRun", "emulate"]

#: Wall seconds between the barrier and run time 0: all have received it by then.
_LEAD = 0.1
_RUNNING = "running"
#: Bytes per wall second below which the copy of a graph to a host is given up.
_SLOWEST_COPY = 1e6
#: Wall seconds between two looks at the deadlines while nothing happens.
_LOOK = 0.25
#: What is not safe before its time is settled so many wall seconds after it: what ended
#: before it has mostly been reported by then. At 0, 0.3 and 1 ms the errors of four
#: drawn scenarios, and their flows' finishes, were the same within their spread.
_REPORTED = 0.0003
#: What is safe is settled and published so many wall seconds before its time at most,
#: and half of it at the least, so that one message brings several things.
_AHEAD = 0.05


# Without wake-ups senders would have to look every 0.1 ms for a flow that gets its rate
# at once, while under rules that serve one flow at a time most wait for long. With 462
# flows in 6 s under ``fifo`` the error fell from 1.03-1.53 to 0.92-1.07 % (three runs
# each), and from 1.50-2.03 % where only those were notified that had to wait.
class SenderWakeups:
    """Follows what senders know of the rates of their flows."""

    def __init__(self, problem: Problem) -> None:
        job = problem.job
        self._process = [job.tasks[edge.source].process_name for edge in job.edges]
        self._iteration = np.full(len(job.edges), -1, dtype=np.int64)
        #: Lowest rate of the flow since its sender was notified: it knows none lower.
        self._known = np.zeros(len(job.edges))

    def due(self, segments: RateSegments) -> dict[str, WakeSender]:
        """Return wake-ups by process, for rates `RISE` (core.h) times those known."""
        edges = segments.edge
        rates = segments.rate
        new = self._iteration[edges] != segments.iteration
        before = np.where(new, 0.0, self._known[edges])
        wake = (rates > 0) & (rates >= lib.RISE * before)
        self._iteration[edges] = segments.iteration
        self._known[edges] = np.where(wake, rates, np.minimum(before, rates))
        wakeups: dict[str, tuple[list[int], list[float]]] = {}
        woken = zip(edges[wake].tolist(), segments.since[wake].tolist(), strict=True)
        for edge, since in woken:
            mine = wakeups.setdefault(self._process[edge], ([], []))
            mine[0].append(edge)
            mine[1].append(since)
        return {process: WakeSender(*mine) for process, mine in wakeups.items()}


class NextKills:
    """Kills of the scenario that come next in an attempt, by ends that are known."""

    def __init__(self, problem: Problem, settings: RunSettings) -> None:
        job = problem.job
        self._settings = settings
        self._awaited = {kill.ended for kill in settings.kills}
        self._ends: dict[tuple[int, int], float] = {}
        self._process = [task.process_name for task in job.tasks]
        self._source = {
            e: self._process[edge.source]
            for e, edge in enumerate(job.edges)
            if problem.hops[e] and not job.control[e]
        }
        #: Ends to come of every process, of its flows once their bytes are known, and
        #: the last one; copies are never over.
        self._left = {
            p: sum(job.rounds[t] for t in own) for p, own in job.processes.items()
        }
        for copy in copies_of(job).values():
            self._left[self._process[copy]] += 1
        self._over = dict.fromkeys(self._left, 0.0)
        self.due = Due()
        self._find()

    def note(self, end: TaskEnded | FlowEnded) -> None:
        """Take in an end of a task, past or to come, or of a flow."""
        if isinstance(end, TaskEnded):
            process = self._process[end.task]
            at = end.end
            volumes = zip(end.edges, end.volumes, strict=True)
            self._left[process] += sum(e in self._source and v > 0 for e, v in volumes)
            count = end.iteration + self._settings.first + 1
            if is_awaited := (end.task, count) in self._awaited:
                self._ends[end.task, end.iteration] = end.end
        else:
            process = self._source[end.edge]
            at = end.time
            is_awaited = False
        self._left[process] -= 1
        self._over[process] = max(self._over[process], at)
        if is_awaited or not self._left[process]:
            self._find()

    def _find(self) -> None:
        own = self._settings
        ends = self._ends
        self.due = next_kills(
            own.kills,
            own.first,
            own.began,
            lambda *end: ends.get(end, math.inf),
            lambda process: math.inf if self._left[process] else self._over[process],
        )


class Coordinator:
    """Runs one problem on the agents of a membership.

    The rate policy is a name that `emu.prediction.scheduling` knows. Tasks hold the
    expected times (but where compute is ``real``), and policies which look ahead count
    with the expected volumes. What the local agent and its processes print goes into
    the log.
    """

    def __init__(
        self,
        problem: Problem,
        policy: str,
        settings: RunSettings,
        expected: Realization,
        *,
        log: Path,
        observer: Observer | None = None,
    ) -> None:
        self._problem = problem
        self._settings = settings
        self._expected = expected
        self._observer = observer or Observer()
        times = expected.times
        profile = Profile(expected.times, expected.volumes)
        least = None if settings.compute == "real" else times
        scheduler = Scheduler(problem, policy, profile, least, times)
        self._recorder = Recorder(problem, scheduler, settings.first)
        patience = settings.deadline
        first = settings.first
        self._deadlines = Deadlines(problem, scheduler, patience, first)
        self._membership = Membership(settings, log, self._deadlines)
        machines = [machine.name for machine in problem.cluster.machines]
        launcher = self._membership.launcher
        check_hosts(machines, launcher.hosts, launcher.count, settings.host_of)
        self._driver = SchedulerDriver(scheduler, self._recorder, self._deadlines, self)
        self._sender_wakeups = SenderWakeups(problem)
        of = problem.machine_of_task
        at = [of[problem.job.tasks[edge.source].name] for edge in problem.job.edges]
        self._sender_machine = np.array(at, dtype=np.str_)
        self._cuts = CutKeeper(problem.job, settings.cuts)
        self._kills = NextKills(problem, settings)
        processes = problem.job.processes
        self._owner = {t: p for p, members in processes.items() for t in members}
        self._tuning: dict[str, Any] = {}
        self.phase = "starting processes, before iteration 0"

    def story(self) -> str:
        """Return the phase and all that is under way, for a message."""
        under_way = f": {self._deadlines.story()}" if self.phase == _RUNNING else ""
        return f"{self.phase}{under_way}"

    async def run(self) -> EmulatedRun:
        """Run to the end; raises RunError as `emulate`."""
        began = this_host.monotonic()
        # What is there already the garbage collector takes 0.1 s to see. Where it is
        # off, as in virtual time, nothing is frozen: what is thawed again is old, and
        # only a full collection finds it.
        if freezes := gc.isenabled():
            gc.freeze()
        try:
            async with self._membership:
                try:
                    return await self._take_part(began)
                except RunError as error:  # before its processes end, 2 s maybe
                    error.noticed = this_host.monotonic()
                    if math.isnan(error.seen):
                        error.seen = error.noticed
                    raise
        finally:
            if freezes:
                gc.unfreeze()
            await self._cuts.aclose()

    async def _take_part(self, began: float) -> EmulatedRun:
        self._observer.listening(*self._membership.address, self._membership.token)
        await self._assemble()
        seconds = this_host.monotonic() - began
        memory = float(await asyncio.to_thread(self._membership.memory))
        for agent in self._membership.agents:
            agent.clock.begin()
        self.phase = _RUNNING
        start = this_host.monotonic() + _LEAD
        clock = RunClock(start, self._settings.time_scale)
        self._membership.send_to_processes(Begin(start))
        self._observer.on_zero(start)
        self._observer.began(seconds)
        if self._settings.kernel_nics is not None:
            self._settings.kernel_nics.begin(clock)
        await self._drive(clock)
        wall = this_host.monotonic() - start
        self.phase = "collecting results, after the last iteration"
        answers = await self._collect(start)
        recorder = self._recorder
        await self._cuts.finish()
        out_rows, in_rows = answers.frames()
        schedule = recorder.schedule()
        realization = recorder.realization()
        agents = self._membership.agents
        return EmulatedRun(
            schedule=schedule,
            realization=realization,
            perturbed=Realization(late_times(schedule), realization.volumes),
            arrivals=recorder.arrivals,
            reports=recorder.reports,
            results=answers.results(),
            statistics=answers.statistics,
            sent=out_rows,
            received=in_rows,
            late=recorder.late,
            cpu=recorder.cpu,
            began=recorder.began,
            hosts=[{**each.host, "clock": asdict(each.clock)} for each in agents],
            tuning=self._tuning,
            startup={"seconds": seconds, "memory": memory},
            wall=wall,
        )

    def _launch(self, hosts: Sequence[str]) -> None:
        """Order every agent to start the processes of its machines."""
        settings = self._settings
        is_embedded = self._membership.launcher.embedded
        specs = process_specs(self._problem, settings, self._expected)
        at = [hosts[spec.machine] for spec in specs]
        check_ports(settings.ports, at, beside=is_embedded and not settings.port)
        edges = len(self._problem.job.edges)
        clock = this_host.name_of_clock()
        machines = [*zip(self._problem.cluster.machines, hosts, strict=True)]
        for agent in self._membership.agents:
            name = agent.host_name
            agent.host["machines"] = [m.name for m, host in machines if host == name]
            mine = [s for s, host in zip(specs, at, strict=True) if host == name]
            order = Launch(edges, mine, settings.heartbeat_timeout, clock)
            self._membership.send_to_agent(agent, order)

    async def _assemble(self) -> None:
        """Gather agents, start processes, have them connect: up to the barrier."""
        membership = self._membership
        await membership.gather_agents()
        own = version_of_emu()
        for agent in membership.agents:
            theirs = printable(str(agent.host.get("emu", "of an older kind")))
            problem = f"emu on host {agent.host_name} is {theirs}, and {own} here"
            if theirs != own and not self._settings.any_version:
                raise RunError(f"{problem}: install the same, or state --any-version")
            if theirs != own:
                self._observer.on_notice(f"warning: {problem}")
        cores = {agent.host_name: agent.cores for agent in membership.agents}
        if not membership.launcher.embedded and self._settings.kernel_nics is None:
            await self._bring_graphs()
        host_of = self._settings.host_of
        volumes = self._expected.volumes
        self._launch(host_of_machines(self._problem, volumes, cores, host_of))
        await membership.open_boards()
        job = self._problem.job
        barrier = membership.barrier
        cuts = self._settings.cuts
        what = "come up, before iteration 0"
        listening = await barrier.messages(job.processes, what, Listening)
        self._observer.on_join(len(job.processes))
        addresses = {name: [at.host, at.port] for name, at in listening.items()}
        membership.send_to_processes(Peers(addresses))
        if cuts is not None:
            for process, members in job.processes.items():
                for part in cuts.parts_for([job.tasks[task].name for task in members]):
                    membership.send(process, part)
        what = "load its data and connect to its peers, before iteration 0"
        waits: list[Any] = [barrier.messages(job.processes, what, Ready)]
        if (meanwhile := self._settings.meanwhile) is not None:
            waits.append(asyncio.to_thread(meanwhile))
        ready, *_ = await asyncio.gather(*waits)
        self._tuning = dict(next(iter(ready.values())).tuning)

    async def _bring_graphs(self) -> None:
        """Have every host get the graphs of the job that it lacks.

        Raises RunError when a host has another graph of that name, or cannot keep it;
        DataError when it is not here.
        """
        job = self._problem.job
        membership = self._membership
        settings = [job.settings_of(name) for name in job.job_names]
        datasets = [of_job["dataset"] for of_job in settings if "dataset" in of_job]
        found = await asyncio.to_thread(lambda: [*list_graphs(datasets)])
        graphs = {graph.dataset["name"]: graph for graph in found}
        if not graphs:
            return

        order = Graphs([[{**g.dataset}, g.fingerprint] for g in graphs.values()])
        agents = {agent.name: agent for agent in membership.agents}
        for agent in agents.values():
            membership.send_to_agent(agent, order)

        waiting = {*agents}

        def answer(name: str, message: Message) -> None:
            if isinstance(message, GraphsKept):
                waiting.discard(name)
            elif isinstance(message, GraphWanted) and message.name in graphs:
                graph = graphs[message.name]
                file, data, is_last = graph.piece(message.position)
                piece = GraphPiece(message.name, file, data, is_last)
                membership.send_to_agent(agents[name], piece)

        size = sum(graph.size for graph in graphs.values())
        await membership.barrier.until(
            lambda: waiting,
            "get the graphs of the job",
            answer,
            patience=size * len(agents) / _SLOWEST_COPY,
        )

    async def _drive(self, clock: RunClock) -> None:
        """Let the scheduler decide on every end until the last task has ended."""
        driver = self._driver
        last_look = this_host.monotonic()
        awake = PauseAwareClock(2 * _LOOK, last_look)
        kills = self._kills
        driver.begin()
        while not driver.finished:
            rest = clock.to_wall(driver.next_end) - this_host.monotonic()
            # Before its time, if it is safe by then; then, whatever was reported.
            wait = rest - _AHEAD / 2 if rest > _AHEAD / 2 else rest + _REPORTED
            kill = clock.to_wall(kills.due.time) - this_host.monotonic()
            mail = await self._membership.events(max(min(wait, kill, _LOOK), 0.0))
            now = this_host.monotonic()
            ends = [
                self._end(name, message)
                for name, message in mail
                if not isinstance(message, StatePart)
            ]
            driver.report(ends, clock.to_emulated(now))
            for end in ends:
                if isinstance(end, TaskEnded):
                    kills.note(end)
            if now >= clock.to_wall(kills.due.time):
                self._observer.killing(kills.due)
                names = (name for kill in kills.due.now for name in kill.processes)
                self._membership.kill([*dict.fromkeys(names)])
                while True:  # until it is noticed: nothing begins any more
                    self._take_states(await self._membership.events(_LOOK))
                    self._look(clock, awake)
            # Reports of one instant come one after the other: what is not safe waits
            # for them a moment, lest something is decided without the last of them.
            ahead = min(clock.to_emulated(now + _AHEAD), kills.due.time)
            driver.settle(clock.to_emulated(now - _REPORTED), ahead)
            self._take_states(mail)
            if now - last_look > _LOOK:
                last_look = now
                self._look(clock, awake)

    def _look(self, clock: RunClock, awake: PauseAwareClock) -> None:
        """Raise what has gone wrong where cuts are kept, and what is overdue."""
        self._cuts.check()
        try:
            self._deadlines.check(clock.now(), awake.read(this_host.monotonic()))
        except DeadlineExceeded as error:
            if (missing := self._missing_rates()).any():
                edge = self._problem.job.edge_names[int(missing.argmax())]
                loss = LOST_RATES.format(int(missing.sum()), edge)
                raise DeadlineExceeded(f"{loss}; {error}") from error
            raise

    def _missing_rates(self) -> NDArray[np.int64]:
        """Return per edge how many segments never came to the boards of this host."""
        missing = np.zeros_like(self._driver.published)
        if self._settings.kernel_nics is None:  # else each gets those of its machine
            for agent in self._membership.agents:
                if agent.board is not None:  # it is of another host
                    came = agent.board.counts.astype(np.int64)
                    np.maximum(missing, self._driver.published - came, out=missing)
        return missing

    def _take_states(self, said: Sequence[tuple[str, Message]]) -> None:
        """Take in what was said of states: nothing waits for it."""
        for name, message in said:
            if isinstance(message, StatePart):
                self._cuts.add(name, message)

    def _end(self, process: str, message: Message) -> TaskEnded | FlowEnded:
        """Return an end that a process reports; raises NodeMisbehaved if it may not."""
        edges = self._problem.job.edges
        task = -1
        what = "flow"
        if isinstance(message, TaskEnded):
            task = message.task
            what = "task"
        elif not isinstance(message, FlowEnded):
            kind = type(message).__name__
            raise NodeMisbehaved(f"{process} sent {kind} during the run")
        elif 0 <= message.edge < len(edges):
            task = edges[message.edge].destination
        if self._owner.get(task) != process:
            raise NodeMisbehaved(f"{process} ended a {what} that is not its own")
        return message

    def task_ended(self, message: TaskEnded) -> None:
        """Notify the observer."""
        self._observer.task_ended(message)

    def flow_ended(self, message: FlowEnded) -> None:
        """Note it for the kills to come, and notify the observer."""
        self._kills.note(message)
        self._observer.flow_ended(message)

    def run_task(self, message: RunTask) -> None:
        """Order the process of a task to start it."""
        self._observer.task_started(message)
        self._membership.send(self._owner[message.task], message)

    def on_decisions(self, decisions: Decisions) -> None:
        """Notify the kernel's NICs, where there are any, and the observer."""
        if self._settings.kernel_nics is not None:
            self._settings.kernel_nics.on_decisions(decisions.news)
        self._observer.on_decisions(decisions)

    def publish(self, segments: RateSegments) -> None:
        """Put changed segments on the boards of all hosts."""
        nics = self._settings.kernel_nics
        message = None
        if nics is not None:
            segments = nics.for_senders(segments)
        columns = (
            segments.edge,
            segments.iteration,
            segments.served,
            segments.rate,
            segments.since,
            self._driver.published[segments.edge],
        )
        for agent in self._membership.agents:
            if agent.board is None:
                message = message or RateUpdate(*(each.tobytes() for each in columns))
                self._membership.send_to_agent(agent, message)
            elif nics is None:
                agent.board.publish(*columns)
            else:  # of each machine's own senders alone: all boards are near
                mine = self._sender_machine[segments.edge] == agent.host_name
                agent.board.publish(*(each[mine] for each in columns))
        for process, look in self._sender_wakeups.due(segments).items():
            self._membership.send(process, look)

    async def _collect(self, start: float) -> Answers:
        """Ask every process for its results, statistics and frames."""
        seconds = this_host.monotonic() - start
        job = self._problem.job
        self._membership.send_to_processes(Finish())
        answers = Answers(job)

        def take(process: str, message: Message) -> None:
            if isinstance(message, StatePart):
                self._cuts.add(process, message)
            else:
                window = [seconds, this_host.monotonic() - start]
                answers.take(process, message, window)

        await self._membership.barrier.until(
            lambda: job.processes.keys() - answers.statistics.keys(),
            "hand over its results, after the last iteration",
            take,
        )
        missing = self._missing_rates()  # the last one of an edge, too
        for figures in answers.statistics.values():
            for row in figures["sent"]:
                row["missed"] = max(row["missed"], int(missing[row["edge"]]))
        return answers


def emulate(
    problem: Problem,
    policy: str,
    settings: RunSettings,
    expected: Realization,
    *,
    log: Path,
    observer: Observer | None = None,
) -> EmulatedRun:
    """Run a problem over real sockets; the parameters are those of `Coordinator`.

    Raises RunError when a process died or misbehaved, or nothing happened for too long,
    and KeyboardInterrupt, whose text says what was under way, on Ctrl-C, SIGTERM or
    SIGHUP. Every process has been ended then.
    """
    coordinator = Coordinator(
        problem, policy, settings, expected, log=log, observer=observer
    )
    return run_until_signalled(coordinator.run(), coordinator.story)
