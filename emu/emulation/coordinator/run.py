"""An emulated run from the first process to the last result."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from emu.array_types import Floats
from emu.emulation.coordinator.company import members_of, runner_of
from emu.emulation.coordinator.cuts import CutKeeper
from emu.emulation.coordinator.deadlines import Deadlines
from emu.emulation.coordinator.desk import Desk
from emu.emulation.coordinator.graph_copies import bring_graphs
from emu.emulation.coordinator.next_kills import NextKills
from emu.emulation.coordinator.observers import Observer
from emu.emulation.coordinator.outcome import (
    Answers,
    EmulatedRun,
    Recorder,
    processes_by_task,
)
from emu.emulation.coordinator.process_specs import (
    check_hosts,
    check_ports,
    host_of_machines,
    process_specs,
)
from emu.emulation.coordinator.ring_turns import RingTurns
from emu.emulation.coordinator.run_boards import RunBoards
from emu.emulation.coordinator.scheduler_driver import SchedulerDriver
from emu.emulation.coordinator.settings import RunSettings
from emu.emulation.coordinator.turns import TurnLog
from emu.emulation.network.clock import PauseAwareClock, RunClock
from emu.emulation.network.tuning import short_slice
from emu.emulation.wire.messages import (
    Ends,
    Finish,
    FlowEnded,
    Launch,
    Listening,
    Message,
    Peers,
    Ready,
    RunTask,
    StatePart,
    TaskEnded,
)
from emu.emulation.wire.notes import unpack_ends
from emu.emulation.wire.process_spec import ProcessSpec
from emu.errors import DeadlineExceeded, NodeMisbehaved, RunError
from emu.host.this_host import this_host, version_of_emu
from emu.names import printable
from emu.prediction.core import lib
from emu.prediction.scheduling import Decisions, RateSegments, Scheduler
from emu.problem import Problem, Profile, Realization
from emu.trust.guards.traffic import LOST_RATES
from emu.trust.lateness import late_times

__all__ = ["Coordinator", "EmulatedRun", "emulate"]

#: Wall seconds between the barrier and run time 0: all have received it by then.
_LEAD = 0.1
_RUNNING = "running"
#: Wall seconds between two looks at the deadlines while nothing happens.
_LOOK = 0.25
#: What is not safe before its time is settled so many wall seconds after it: what ended
#: before it has mostly been reported by then. At 0, 0.3 and 1 ms the errors of four
#: drawn scenarios, and their flows' finishes, were the same within their spread.
_REPORTED = 0.0003
#: What is safe is settled and published so many wall seconds before its time at most,
#: and half of it at the least, so that one message brings several things.
_AHEAD = 0.05


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
        self.watches = self._observer.watches or bool(settings.kills)
        times = expected.times
        profile = Profile(times, expected.volumes)
        holds = None if settings.compute == "real" else times
        scheduler = Scheduler(problem, policy, profile, holds=holds, times=times)
        desk = self._desk = Desk(problem, scheduler)
        recorder = Recorder(problem, scheduler, desk, settings.first)
        self._recorder = recorder
        self._deadlines = Deadlines(
            problem,
            scheduler,
            desk,
            patience=settings.deadline,
            first=settings.first,
        )
        self._membership = members_of(settings, log, self._deadlines, self._specs)
        launcher = self._membership.launcher
        check_hosts(
            machines=problem.cluster.names,
            hosts=launcher.hosts,
            count=launcher.count,
            stated=settings.host_of,
        )

        job = problem.job
        self._driver = SchedulerDriver(scheduler, desk, recorder, self)
        self._boards = RunBoards(problem, self._membership, settings, desk, recorder)
        self._cuts = CutKeeper(job, settings.cuts)
        self._kills = NextKills(problem, settings)
        self._owner = processes_by_task(job)
        self._tuning: dict[str, Any] = {}
        self._turns = TurnLog()
        self.phase = "starting processes, before iteration 0"

    @cached_property
    def _specs(self) -> list[ProcessSpec]:
        return process_specs(self._problem, self._settings, self._expected)

    def story(self) -> str:
        """Return the phase and all that is under way, for a message."""
        if self.phase != _RUNNING:
            return self.phase
        return f"{self.phase}: {self._deadlines.story()}"

    async def run(self) -> EmulatedRun:
        """Run to the end; raises RunError as `emulate`."""
        began = this_host.monotonic()
        # What is there already the garbage collector takes 0.1 s to see. Where it is
        # off, as in virtual time, nothing is frozen: what is thawed again is old, and
        # only a full collection finds it.
        freezes = gc.isenabled()
        if freezes:
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
        membership = self._membership
        host, port = membership.address
        self._observer.listening(host, port, membership.token)
        await self._assemble()
        seconds = this_host.monotonic() - began
        memory = float(await asyncio.to_thread(membership.memory))
        for agent in membership.agents:
            agent.clock.begin()

        self.phase = _RUNNING
        start = this_host.monotonic() + _LEAD
        clock = RunClock(start, self._settings.time_scale)
        membership.begin(start)
        self._observer.on_zero(start)
        self._observer.began(seconds)
        if self._settings.kernel_nics is not None:
            self._settings.kernel_nics.begin(clock)
        with contextlib.closing(self._turns), short_slice():
            await self._drive(clock)
        wall = this_host.monotonic() - start

        self.phase = "collecting results, after the last iteration"
        answers = await self._collect(start)
        await self._cuts.finish()
        startup = {"seconds": seconds, "memory": memory}
        turns = self._turns.rows(clock)
        return self._outcome(answers, startup, wall, turns)

    def _outcome(
        self,
        answers: Answers,
        startup: dict[str, float],
        wall: float,
        turns: Floats,
    ) -> EmulatedRun:
        recorder = self._recorder
        schedule = recorder.schedule()
        realization = recorder.realization()
        # Ends are settled ahead of their times, the last of the run as well.
        seconds = schedule.length * self._settings.time_scale
        wall = max(wall, seconds)
        hosts = [
            {**agent.host, "clock": asdict(agent.clock)}
            for agent in self._membership.agents
        ]
        return EmulatedRun(
            schedule=schedule,
            realization=realization,
            perturbed=Realization(late_times(schedule), realization.volumes),
            arrivals=recorder.arrivals,
            reports=recorder.reports,
            results=answers.results(),
            statistics=answers.statistics,
            **answers.frames(),
            late=recorder.late,
            cpu=recorder.cpu,
            began=recorder.began,
            board=recorder.board.rows(),
            turns=turns,
            hosts=hosts,
            tuning=self._tuning,
            startup=startup,
            wall=wall,
        )

    def _launch(self, hosts: Sequence[str]) -> None:
        """Order every agent to start the processes of its machines."""
        settings = self._settings
        membership = self._membership
        specs = self._specs
        host_of_spec = [hosts[spec.machine] for spec in specs]
        listens_here = membership.launcher.embedded and not settings.port
        check_ports(settings.ports, host_of_spec, extra=listens_here)

        edges = len(self._problem.job.edges)
        clock = this_host.name_of_clock()
        machines = self._problem.cluster.machines
        for agent in membership.agents:
            agent.host["machines"] = [
                machine.name
                for machine, host in zip(machines, hosts, strict=True)
                if host == agent.host_name
            ]
            processes = [
                spec
                for spec, host in zip(specs, host_of_spec, strict=True)
                if host == agent.host_name
            ]
            order = Launch(
                edges=edges,
                processes=processes,
                heartbeat_timeout=settings.heartbeat_timeout,
                clock=clock,
            )
            membership.send_to_agent(agent, order)

    async def _assemble(self) -> None:
        """Have all members ready, and connected to each other: up to the barrier."""
        membership = self._membership
        settings = self._settings
        if membership.stays:
            await membership.begin_again()
        else:
            await self._start_processes()

        job = self._problem.job
        barrier = membership.barrier
        purpose = "come up, before iteration 0"
        listening = await barrier.messages(job.processes, purpose, Listening)
        self._observer.on_join(len(job.processes))
        addresses = {name: [peer.host, peer.port] for name, peer in listening.items()}
        membership.send_to_processes(Peers(addresses))
        self._send_states()

        purpose = "load its data and connect to its peers, before iteration 0"
        waits: list[Any] = [barrier.messages(job.processes, purpose, Ready)]
        if settings.meanwhile is not None:
            waits.append(asyncio.to_thread(settings.meanwhile))
        ready, *_ = await asyncio.gather(*waits)
        first_ready = next(iter(ready.values()))
        self._tuning = dict(first_ready.tuning)

    async def _start_processes(self) -> None:
        """Gather agents, bring them what their hosts lack, have them start all."""
        membership = self._membership
        settings = self._settings
        await membership.gather_agents()
        self._compare_versions()
        # Else all hosts are this one, where the graphs are.
        if not membership.launcher.embedded and settings.kernel_nics is None:
            await bring_graphs(membership, self._problem.job)
        hosts = host_of_machines(
            self._problem,
            volumes=self._expected.volumes,
            cores={agent.host_name: agent.cores for agent in membership.agents},
            stated=settings.host_of,
        )
        self._launch(hosts)
        await membership.open_boards()

    def _compare_versions(self) -> None:
        """Refuse hosts that have another version, or warn of them."""
        local = version_of_emu()
        for agent in self._membership.agents:
            remote = printable(str(agent.host.get("emu", "of an older kind")))
            if remote == local:
                continue
            problem = f"emu on host {agent.host_name} is {remote}, and {local} here"
            if not self._settings.any_version:
                raise RunError(f"{problem}: install the same, or state --any-version")
            self._observer.on_notice(f"warning: {problem}")

    def _send_states(self) -> None:
        """Send processes what their tasks begin with, where that is a cut."""
        cuts = self._settings.cuts
        if cuts is None:
            return
        job = self._problem.job
        for process, tasks in job.processes.items():
            names = [job.tasks[task].name for task in tasks]
            for part in cuts.parts_for(names):
                self._membership.send(process, part)

    async def _drive(self, clock: RunClock) -> None:
        """Let the scheduler decide on every end until the last task has ended."""
        driver = self._driver
        turns = self._turns
        kills = self._kills
        last_look = this_host.monotonic()
        awake = PauseAwareClock(2 * _LOOK, last_look)
        speaker_of = self._membership.lead_of
        speakers = {task: speaker_of(name) for task, name in self._owner.items()}
        driver.begin(speakers, self._boards.near())
        turns.start()
        ahead = _AHEAD / clock.time_scale
        with self._turns_by_rings(clock) as rings:
            while not driver.finished:
                wake = self._wake_time(clock, last_look)
                mail = await self._membership.events(wake)
                now = this_host.monotonic()
                turns.begin(now)
                run_time = clock.to_emulated(now)
                # Before the mail: the core goes by places of ends that more would move.
                if rings is not None:
                    self._take_left(rings, now, run_time)
                states = self._take_mail(mail, run_time)
                kill_time = kills.due.time
                if run_time >= kill_time:
                    self._keep(states)
                    await self._kill(clock, awake)

                # Reports of one instant come one after the other: what is not safe
                # waits for them a moment, lest something is decided without the last.
                due = clock.to_emulated(now - _REPORTED)
                driver.settle(due, min(run_time + ahead, kill_time))
                if rings is not None:
                    rings.go_on(now, is_watched=driver.is_watched)
                self._keep(states)  # nothing waits for them
                if now - last_look >= _LOOK:
                    last_look = now
                    self._look(clock, awake)
                turns.end()
                turns.keep_room()

    @contextlib.contextmanager
    def _turns_by_rings(self, clock: RunClock) -> Iterator[RingTurns | None]:
        """Yield what takes turns where processes speak by rings; None: none does."""
        membership = self._membership
        if not membership.rings:
            yield None
            return

        kills = bool(self._settings.kills)
        turns = RingTurns(
            self._driver.turn,
            self._desk.names,
            membership,
            self._turns,
            clock=clock,
            reported=_REPORTED,
            ahead=_AHEAD,
            leaves_turns=self._driver.settles_alone or kills,
            leaves_notes=kills,
        )
        turns.go_on(this_host.monotonic(), is_watched=self._driver.is_watched)
        with contextlib.closing(turns):
            yield turns

    def _take_left(self, rings: RingTurns, now: float, run_time: float) -> None:
        """Do what a turn of the core has left, before anything else is settled."""
        driver = self._driver
        if rings.left >= lib.INSTANTS_LEFT:
            driver.finish_turn(rings.left, rings.core.outcome)

        for speaker, notes in rings.notes(now):
            if rings.core.leaves_notes:
                self._take_ends(speaker, Ends(notes), run_time)
            else:
                driver.file(speaker, notes, rings.core.fault)

    def _wake_time(self, clock: RunClock, last_look: float) -> float:
        """Return the wall time until which there is nothing to do but to wait.

        Where processes speak by rings the core wakes for what is due (ring_turns.c).
        """
        now = this_host.monotonic()
        wake = math.inf
        if not self._membership.rings:
            due = clock.to_wall(self._driver.next_end)
            # Before its time, if it is safe by then; then, whatever was reported.
            early = due - _AHEAD / 2
            wake = early if early > now else due + _REPORTED

        # Infinite where no kill is due, as is then the wall time.
        kill_wall = clock.to_wall(self._kills.due.time)
        return min(wake, kill_wall, last_look + _LOOK)

    async def _kill(self, clock: RunClock, awake: PauseAwareClock) -> NoReturn:
        """Kill what is due, and wait until it is noticed: nothing begins any more."""
        due = self._kills.due
        self._observer.killing(due)
        names: dict[str, None] = {}
        for kill in due.now:
            names.update(dict.fromkeys(kill.processes))
        self._membership.kill([*names])

        while True:
            now = this_host.monotonic()
            mail = await self._membership.events(now + _LOOK)
            for name, message in mail:
                if isinstance(message, StatePart):
                    self._cuts.add(name, message)
            self._look(clock, awake)

    def _keep(self, states: Sequence[tuple[str, StatePart]]) -> None:
        for name, state in states:
            self._cuts.add(name, state)

    def _look(self, clock: RunClock, awake: PauseAwareClock) -> None:
        """Raise what has gone wrong where cuts are kept, and what is overdue."""
        self._observer.progressed(self._driver.progress(clock.now()))
        self._cuts.check()
        try:
            self._deadlines.check(clock.now(), awake.read(this_host.monotonic()))
        except DeadlineExceeded as error:
            missing = self._boards.missing_rates()
            if not missing.any():
                raise
            edge = self._problem.job.edge_names[int(missing.argmax())]
            loss = LOST_RATES.format(int(missing.sum()), edge)
            raise DeadlineExceeded(f"{loss}; {error}") from error

    def _take_mail(
        self,
        mail: Sequence[tuple[str, Message]],
        now: float,
    ) -> list[tuple[str, StatePart]]:
        """Take the ends that processes report; return the states that they sent.

        Raises NodeMisbehaved of one that may not say what it says.
        """
        states = []
        for speaker, message in mail:
            if isinstance(message, Ends):
                self._take_ends(speaker, message, now)
            elif isinstance(message, StatePart):
                states.append((speaker, message))
            else:
                kind = type(message).__name__
                raise NodeMisbehaved(f"{speaker} sent {kind} during the run")

        return states

    def _take_ends(self, speaker: str, message: Ends, now: float) -> None:
        """Take the ends that a process reports; raises NodeMisbehaved if it may not."""
        self._driver.report(speaker, message.notes, now)
        if self._settings.kills:
            for end in unpack_ends(message.notes):
                if isinstance(end, TaskEnded):
                    self._kills.note(end)

    @property
    def limits(self) -> bool:
        """True where kernel's NICs keep to the rates."""
        return self._settings.kernel_nics is not None

    def task_ended(self, message: TaskEnded) -> None:
        """Notify the observer."""
        self._observer.task_ended(message)

    def flow_ended(self, message: FlowEnded) -> None:
        """Note it for the kills to come, and notify the observer."""
        if self._settings.kills:
            self._kills.note(message)
        self._observer.flow_ended(message)

    def order(self, speaker: str, notes: bytes) -> None:
        """Send orders to a process, and to those that it speaks for."""
        self._membership.order(speaker, notes)

    def task_started(self, message: RunTask) -> None:
        """Notify the observer."""
        self._observer.task_started(message)

    def on_decisions(self, decisions: Decisions) -> None:
        """Notify the observer."""
        self._observer.on_decisions(decisions)

    def limit(self, segments: RateSegments) -> None:
        """Have the kernel's NICs, where there are any, keep to segments."""
        if self._settings.kernel_nics is not None:
            self._settings.kernel_nics.on_decisions(segments)

    def publish(self, desk: Desk) -> None:
        """Put changed segments on the boards of all hosts."""
        self._boards.publish(desk)

    async def _collect(self, start: float) -> Answers:
        """Ask every process for its results, statistics and frames."""
        job = self._problem.job
        answers = Answers(job)
        seconds = this_host.monotonic() - start
        self._membership.send_to_processes(Finish())

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

        answers.note_missing(self._boards.missing_rates())
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
    run = runner_of(settings)
    coordinator = Coordinator(
        problem,
        policy,
        settings,
        expected,
        log=log,
        observer=observer,
    )
    outcome: EmulatedRun = run(coordinator.run(), coordinator.story)
    return outcome
