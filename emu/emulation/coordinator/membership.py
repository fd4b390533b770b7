"""Agents and node processes of a run: who has joined, what they say, how they end.

A thin shell: it knows connections, and of the schedule only words for messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from emu.emulation.coordinator.deadlines import Deadlines
from emu.emulation.coordinator.peers import (
    Barrier,
    JoinedAgent,
    Mailbox,
    Process,
    Report,
    RunLog,
    Severity,
    Standstill,
    agent_name,
    cause,
)
from emu.emulation.coordinator.settings import RunSettings
from emu.emulation.launch.fork import describe_end
from emu.emulation.launch.launcher import LocalLauncher
from emu.emulation.network.authentication import Identity, format_address
from emu.emulation.network.clock import SilenceWatch
from emu.emulation.network.control import ControlConnection, ControlServer
from emu.emulation.network.rate_board import RateBoard
from emu.emulation.network.rings import Rings, join_rings
from emu.emulation.network.tls import is_loopback
from emu.emulation.wire.frame_layout import Fields
from emu.emulation.wire.messages import (
    Again,
    AgentHello,
    Beat,
    Begin,
    BoardReady,
    Failed,
    Kill,
    Message,
    Orders,
    Outcome,
    ProcessDied,
    ProcessHello,
    Stop,
    pack,
    unpack,
)
from emu.errors import EmulatorError, NodeLost, NodeMisbehaved, RunError, WireError
from emu.host.this_host import this_host
from emu.names import printable

_INTRODUCTION = 10.0  # wall seconds that who has proved itself has to say what it is
_CAUSE_SHOWS = 0.5  # wall seconds in which the cause of a failure is reported, too
_LEAVE = 2.0  # wall seconds that agents have to end their processes and leave


def ignore(_name: str) -> None:
    """Do nothing."""


class Membership:
    """Everybody who takes part in a run; an asynchronous context manager.

    Leaving it ends every process that the run started, whatever happened; but where a
    company keeps them, and the run has ended well.
    """

    def __init__(self, settings: RunSettings, log: Path, deadlines: Deadlines) -> None:
        self._settings = settings
        self._log = RunLog(log)
        self._doing = deadlines.doing
        self._story = deadlines.story
        self.agents: list[JoinedAgent] = []
        self.processes: dict[str, Process] = {}
        self._mail: Mailbox[tuple[str, Message] | Report] = Mailbox()
        self._left = asyncio.Event()
        self.barrier = Barrier(self.events, settings.deadline, log)
        self._standstill = Standstill(settings.heartbeat_timeout)
        self.on_rings_closed: Callable[[str], None] = ignore
        """Called with a process before its rings are closed."""

        self.token = settings.token or secrets.token_hex(16)
        self.address = ("", 0)
        # A listening socket that was handed over is in a network of our own.
        beyond = settings.listening is None and not is_loopback(settings.listen)
        self._server = ControlServer(
            token=self.token,
            on_connection=self._take_in,
            encrypted=beyond or settings.tls == "all",
            notify=self._log.note,
        )
        self.launcher = settings.launcher or LocalLauncher()
        self._watching: asyncio.Task[None] | None = None
        self.stays = False
        """True where its members have served a run, and wait for a further one."""

    @property
    def is_whole(self) -> bool:
        """True where all of them wait for a further run."""
        members: list[Process | JoinedAgent] = [*self.processes.values(), *self.agents]
        return self.stays and not any(member.gone for member in members)

    def serve_next(self, log: Path, deadlines: Deadlines) -> None:
        """Serve a further run of the same job, with its own log, words and counts."""
        self._log = self._log.of_next_run(log)
        self._doing = deadlines.doing
        self._story = deadlines.story
        self.barrier = Barrier(self.events, self._settings.deadline, log)
        for process in self.processes.values():
            process.done = False  # else nobody would say that it died
        for agent in self.agents:
            agent.clock.readings = 0

    async def __aenter__(self) -> Self:
        if self.stays:
            return self
        settings = self._settings
        if settings.company is not None:
            await settings.company.dismiss_former()
        try:
            self.address = await self._server.start(
                settings.listen,
                settings.port,
                settings.ports,
                settings.listening,
            )
        except OSError as error:
            raise RunError(f"cannot listen on {self._refusal(error)}") from error

        try:
            await self.launcher.start(
                self.address,
                self.token,
                self._log.path,
                settings.allow,
            )
            self._watching = asyncio.create_task(self._await_end())
        except BaseException as error:
            await self.launcher.aclose(0.0)
            await self._server.aclose()
            if isinstance(error, OSError):
                raise RunError(f"cannot start an agent: {error}") from error
            raise
        return self

    def _refusal(self, error: OSError) -> str:
        """Return where this command cannot listen, and why."""
        settings = self._settings
        if settings.ports is not None and not settings.port:  # all of a range
            return f"{settings.listen}: {error.strerror}"
        number = error.errno or 0  # negative where a name does not resolve
        reason = os.strerror(number) if number > 0 else error.strerror or str(error)
        return f"{format_address(settings.listen, settings.port)}: {reason}"

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stays = error is None and self._settings.company is not None
        if self.stays:
            self._log.settle()
        else:
            await self.dismiss(error)

    async def dismiss(self, error: BaseException | None = None) -> None:
        """End all members, because of an error where there is one."""
        self.stays = False

        async def leave() -> None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LEAVE):
                    while not all(agent.gone for agent in self.agents):
                        self._left.clear()
                        await self._left.wait()

        reason = "the run is over" if error is None else str(error) or "interrupted"
        if self._watching is not None:
            self._watching.cancel()
        # First told, then ended: a process that ends by itself cleans up behind it.
        order = pack(Stop(reason, failed=error is not None))
        members: list[Process | JoinedAgent] = [*self.processes.values(), *self.agents]
        for member in members:
            with contextlib.suppress(EmulatorError):
                member.connection.send(order)

        leaving = asyncio.create_task(leave())
        try:
            # Not gathered: a signal that comes now would end that as soon as `leave`
            # is cancelled, before the launcher has killed and reaped its children.
            await self.launcher.aclose(_LEAVE)
            await leaving
        finally:
            leaving.cancel()
            for agent in self.agents:
                if agent.board is not None:
                    agent.board.close()
            await self._server.aclose()
            self._mail.close()
            self._log.settle()

    def memory(self) -> int:
        """Return the proportional set size of the node processes, 0 when unknown."""
        if not self.launcher.embedded:
            return 0  # their process ids are those of other hosts
        pids = {process.pid for process in self.processes.values()}
        try:
            return sum(psutil.Process(pid).memory_full_info().pss for pid in pids)
        except (psutil.Error, AttributeError):
            return 0  # a system without it

    def send_to_processes(self, message: Message) -> None:
        """Send ``message`` to every process."""
        for process in self.processes:
            self.send(process, message)

    def send(self, process: str, message: Message) -> None:
        """Send ``message`` to one process."""
        # Whoever reads from a lost connection reports the loss; to whom the message
        # was does not say why.
        with contextlib.suppress(NodeLost):
            self.processes[process].connection.send(pack(message))

    def begin(self, start: float) -> None:
        """Let the run begin at a reading of this host's clock.

        Raises NodeMisbehaved where a process has reported ends of no run.
        """
        for name, process in self.processes.items():
            rings = process.rings
            if rings is not None and rings.read():
                raise NodeMisbehaved(f"process {name} reported ends after its run")
            has_rings = rings is not None
            self.send(name, Begin(start, has_rings))

    @property
    def rings(self) -> dict[str, Rings]:
        """Rings of processes, by their names."""
        return {
            name: process.rings
            for name, process in self.processes.items()
            if process.rings is not None
        }

    def wake(self) -> None:
        """Have `events` return, whatever has come."""
        self._mail.wake()

    def order(self, process: str, notes: bytes) -> None:
        """Pass packed orders to a process, for it and those whom it speaks for."""
        rings = self.processes[process].rings
        if rings is None:
            self.send(process, Orders(notes))
            return
        try:
            rings.write(notes)
        except NodeMisbehaved as error:
            self.refuse_rings(process, error)

    def lead_of(self, process: str) -> str:
        """Return the process over whose connection one reports, and is ordered.

        Raises NodeMisbehaved when it named one that speaks for nobody.
        """
        lead = self.processes[process].lead
        if lead not in self.processes or self.processes[lead].lead != lead:
            raise NodeMisbehaved(f"{printable(lead)} cannot speak for {process}")
        return lead

    def send_to_agent(self, agent: JoinedAgent, message: Message) -> None:
        """Send ``message`` to one agent."""
        with contextlib.suppress(NodeLost):
            agent.connection.send(pack(message))

    def kill(self, processes: Sequence[str]) -> None:
        """Have processes killed, wherever they are."""
        self._log.note(f"the scenario kills {', '.join(processes)}")
        for agent in self.agents:
            self.send_to_agent(agent, Kill([*processes]))

    async def events(self, wake: float) -> list[tuple[str, Message]]:
        """Return the messages received, waiting until a wall time at most.

        Raises NodeLost or NodeMisbehaved or RunError when a process or agent died,
        broke the protocol or gave up: the cause, if several report consequences of it.
        """
        mail = await self._mail.everything(wake)
        messages = [event for event in mail if not isinstance(event, Report)]
        if len(messages) == len(mail):
            return messages

        reports = [report for report in mail if isinstance(report, Report)]
        # The cause may be reported a moment after what follows from it.
        deadline = this_host.monotonic() + _CAUSE_SHOWS
        while this_host.monotonic() < deadline:
            if any(report.severity is Severity.KILLED for report in reports):
                break
            mail = await self._mail.everything(deadline)
            reports += [report for report in mail if isinstance(report, Report)]

        pause = self._standstill.story()
        if pause:
            raise RunError(f"{pause} ({self._story()})")
        raise cause(reports)

    async def gather_agents(self) -> None:
        """Wait until the agent of every host has joined; raises DeadlineExceeded."""
        hosts = list(map(agent_name, self.launcher.hosts))
        count = self.launcher.count

        def missing() -> list[str]:
            names = [agent.name for agent in self.agents]
            if hosts:
                return [name for name in hosts if name not in names]
            unknown = count - len(names)
            return [f"{unknown} of {count} agents"] if unknown else []

        await self.barrier.until(
            missing,
            "join",
            lambda *_: None,
            patience=self.launcher.patience,
            deadline=self.launcher.deadline,
        )
        # Whoever joined first: hosts of machines must not depend on it.
        self.agents.sort(key=lambda agent: agent.name)

    async def begin_again(self) -> None:
        """Have all begin a further run, once no board shows a rate of the last one."""
        for agent in self.agents:
            self.send_to_agent(agent, Again())
        names = [agent.name for agent in self.agents]
        await self.barrier.messages(names, "clear its rate board", BoardReady)
        self.send_to_processes(Again())

    async def open_boards(self) -> None:
        """Wait for every agent's rate board; open those in reach directly.

        Boards of other hosts are reached by messages through their agents. Machines
        with kernel NICs are of this host: by messages their agents, all awake at once
        for every rate, took the cores from the senders.

        Raises RunError when a board in reach has gone with its agent.
        """
        names = [agent.name for agent in self.agents]
        boards = await self.barrier.messages(names, "open a rate board", BoardReady)
        nics = self._settings.kernel_nics
        if not self.launcher.embedded and nics is None:
            return
        for agent in self.agents:
            path = boards[agent.name].path
            if nics is not None:
                path = nics.path_in(agent.host_name, path)
            try:
                agent.board = RateBoard.open(path, writable=True)
            except OSError as error:
                failure = RunError(f"cannot open the rate board: {error}")
                self._report(Severity.GONE, failure)

    async def _take_in(self, connection: ControlConnection, identity: Identity) -> None:
        """Take in a connection that has proved who it is, until it ends."""
        try:
            hello = unpack(await connection.receive(_INTRODUCTION))
        except EmulatorError:
            return  # not one of ours after all; who is missing will be noticed

        name = identity.name
        if isinstance(hello, ProcessHello) and identity.role == "process":
            lead = hello.lead or name
            rings = self._join_rings(name, hello)
            process = Process(name, hello.pid, lead, connection, rings)
            await self._follow_process(process)
        elif isinstance(hello, AgentHello) and identity.role == "agent":
            await self._admit(connection, name, hello)

    async def _admit(
        self,
        connection: ControlConnection,
        name: str,
        hello: AgentHello,
    ) -> None:
        """Follow an agent that the run waits for; refuse any other."""
        address = connection.peer_address
        refusal = self._objection_to(name)
        if refusal:
            connection.send(pack(Failed("NotWanted", refusal, "")))
            self._log.note(f"refused an agent from {address}: {refusal}")
            return

        limit = self._settings.heartbeat_timeout
        agent = JoinedAgent(
            host_name=name,
            address=address,
            connection=connection,
            host={**hello.host, "host": name},
            watch=SilenceWatch(limit, this_host.monotonic()),
        )
        self.agents.append(agent)
        self._mail.put((agent.name, hello))
        await self._follow_agent(agent)

    def _objection_to(self, name: str) -> str:
        """Return why the agent of a host has no place in this run, if it has none."""
        hosts = self.launcher.hosts
        present = {agent.host_name for agent in self.agents}
        if len(present) == self.launcher.count:
            return "every agent of this run has joined already"
        if name in present:
            return f"agent {name} has joined already: give each a --name"
        if hosts and name not in hosts:
            return f"no host of this run is called {printable(name)}"
        return ""

    async def _follow_agent(self, agent: JoinedAgent) -> None:
        connection = agent.connection

        def beat() -> None:
            connection.send(pack(Beat()))
            self._standstill.look()
            pause = agent.watch.stood_still()
            if pause:
                self._log.note(f"this process stood still for {pause:.1f} s")

        def lose(silence: str) -> None:
            agent.gone = True
            loss = NodeLost(f"{agent} {silence} ({self._story()})")
            self._report(Severity.KILLED, loss, ago=agent.watch.limit)

        def hear(fields: Fields) -> bool:
            self._hear(agent, unpack(fields))
            return True

        try:
            async with agent.watch.heartbeats(beat, lose):
                await connection.follow(hear)
        except (WireError, RunError) as error:
            loss = f"{agent} is gone: {error} ({self._story()})"
            self._report(Severity.FAILED, NodeLost(loss))
        finally:
            agent.gone = True
            self._left.set()

    def _hear(self, agent: JoinedAgent, message: Message) -> None:
        # Whatever it says is a sign of life.
        agent.watch.on_message(this_host.monotonic())

        if isinstance(message, ProcessDied):
            # One that had finished, or has said why it fails, ends as it should.
            process = self.processes.get(message.process)
            if process is None or not (process.done or process.failed):
                severity = Severity.KILLED if message.code < 0 else Severity.FAILED
                loss = self._lose(message.process, describe_end(message.code))
                self._report(severity, loss)
        elif isinstance(message, Failed):
            text = f"{agent}: {message.text} ({self._story()})"
            self._report(Severity.KILLED, NodeLost(text))
        elif isinstance(message, Beat):
            agent.clock.note(message.clock)
            if message.stood_still:
                self._log.note(f"{agent} stood still for {message.stood_still:.1f} s")
        else:
            self._mail.put((agent.name, message))

    async def _follow_process(self, process: Process) -> None:
        name = process.name
        if name in self.processes:
            error = NodeMisbehaved(f"process {name} joins twice")
            self._report(Severity.FAILED, error)
            if process.rings is not None:
                process.rings.close()
            return

        def hear(fields: Fields) -> bool:
            message = unpack(fields)
            if isinstance(message, Failed):
                process.failed = True
                self._report_failure(name, message)
            else:
                process.done = process.done or isinstance(message, Outcome)
                self._mail.put((name, message))
            return True

        # Before it says anything: what it says is judged by who has joined.
        self.processes[name] = process
        try:
            await process.connection.follow(hear)
        except WireError as error:
            text = f"process {name}: {error} ({self._doing(name)})"
            self._report(Severity.FAILED, NodeMisbehaved(text))
        except RunError:
            # After its last word it may go; its agent says more of why it went early.
            if not (process.done or process.failed):
                self._report(Severity.GONE, self._lose(name, "closed its connection"))
        finally:
            process.gone = True
            self._close_rings(process)

    def _join_rings(self, name: str, hello: ProcessHello) -> Rings | None:
        """Return the rings of a process of this host, if it has any that are sound."""
        is_here = self.launcher.embedded and self._settings.kernel_nics is None
        if not (hello.rings and is_here):
            return None
        try:
            return join_rings(hello.pid, hello.rings)
        except (OSError, NodeMisbehaved) as error:
            self._log.note(f"{name} is ordered over its connection: {error}")
            return None

    def refuse_rings(self, name: str, error: NodeMisbehaved) -> None:
        """Report that the rings of a process are not as they can be."""
        text = f"process {name}: {error} ({self._doing(name)})"
        self._report(Severity.FAILED, NodeMisbehaved(text))

    def _close_rings(self, process: Process) -> None:
        rings = process.rings
        if rings is None:
            return
        self.on_rings_closed(process.name)
        process.rings = None
        rings.close()

    def _report_failure(self, process: str, failure: Failed) -> None:
        doing = failure.doing or self._doing(process)
        text = f"process {process} ({doing}): {failure.error}: {failure.text}"
        severity = Severity.of(failure.error)
        # Of who misses another one: that one is lost, whoever it is.
        error = NodeLost if severity is Severity.CONSEQUENCE else RunError
        self._report(severity, error(text))

    def _lose(self, process: str, end: str) -> NodeLost:
        loss = NodeLost(f"process {process} {end} ({self._doing(process)})")
        joined = self.processes.get(process)
        lead = joined.lead if joined is not None else process
        # What shares a process dies with it.
        members = [each.name for each in self.processes.values() if each.lead == lead]
        loss.processes = tuple(members) or (process,)
        return loss

    def _report(
        self,
        severity: Severity,
        error: EmulatorError,
        ago: float = 0.0,
    ) -> None:
        """Report an error whose first sign was so many wall seconds ago."""
        self._mail.put(Report(severity, error, this_host.monotonic() - ago))

    async def _await_end(self) -> None:
        """Report the end of an agent that its launcher has seen, maybe alone."""
        end = await self.launcher.wait_for_end()
        story = self._story() if self.agents else "before it had joined"
        text = f"{end} ({story}); {self._log.last_words()}"
        self._report(Severity.KILLED, NodeLost(text))
