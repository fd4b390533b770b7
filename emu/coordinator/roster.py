"""Agents and node processes of a run: who has joined, what they say, how they end.

A thin shell: it knows connections and nothing of schedules.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from typing import TYPE_CHECKING, Any, Self

from emu.errors import (
    DeadlineExceeded,
    EmulatorError,
    NodeLost,
    NodeMisbehaved,
    RunError,
    WireError,
)
from emu.launch import LocalAgent
from emu.network import ControlConnection, ControlServer, RateBoard
from emu.wire.messages import (
    AgentHello,
    Beat,
    BoardReady,
    Failed,
    Message,
    ProcessDied,
    ProcessHello,
    Stop,
    pack,
    unpack,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path
    from types import TracebackType

    from emu.coordinator.settings import EmulationSettings

_BEAT = 1.0  # wall seconds between two signs of life
_AGENT_SAYS_WHY = 0.3  # wall seconds that an agent has to name the cause of a death
_SILENCE = 5.0  # wall seconds without one after which an agent counts as cut off


class Agent:
    """An agent that has joined, with the rate board of its host."""

    def __init__(self, connection: ControlConnection, host: dict[str, Any]) -> None:
        self.connection, self.host = connection, host
        self.address = connection.peer_address
        self.board: RateBoard | None = None
        self.last_heard = time.monotonic()
        self.done = False


class Process:
    """A node process that has joined."""

    def __init__(self, name: str, pid: int, connection: ControlConnection) -> None:
        self.name, self.pid, self.connection = name, pid, connection
        self.done = False


class Roster:
    """Everybody who takes part in a run; an asynchronous context manager.

    Leaving it ends every process that the run started, whatever happened.

    Parameters
    ----------
    log
        File for what the local agent and its processes print.
    """

    def __init__(self, settings: EmulationSettings, log: Path) -> None:
        self._settings, self._log = settings, log
        self.token = settings.token or secrets.token_hex(16)
        self.agents: list[Agent] = []
        self.processes: dict[str, Process] = {}
        self.doing: Callable[[str], str] = lambda _process: "starting"
        self._inbox: asyncio.Queue[tuple[str, Message | EmulatorError]] = (
            asyncio.Queue()
        )
        self._server: ControlServer | None = None
        self._local: LocalAgent | None = None
        self._address = ("", 0)

    async def __aenter__(self) -> Self:
        self._server = ControlServer(token=self.token, on_connection=self._joined)
        self._address = await self._server.start(
            self._settings.listen, self._settings.port
        )
        try:
            if not self._settings.agents:
                self._local = await LocalAgent.start(
                    self._address, self.token, self._log
                )
        except BaseException:
            await self._server.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        reason = "the run is over" if error is None else str(error) or repr(error)
        self.tell_all(Stop(reason))
        if self._local is not None:
            await self._local.aclose()
        for agent in self.agents:
            if agent.board is not None:
                agent.board.close()
        if self._server is not None:
            await self._server.aclose()

    def tell_all(self, message: Message) -> None:
        """Send ``message`` to every process and agent that can still be reached."""
        for member in (*self.processes.values(), *self.agents):
            with contextlib.suppress(EmulatorError, OSError):
                member.connection.send(pack(message))

    def tell_processes(self, message: Message) -> None:
        """Send ``message`` to every process."""
        for process in self.processes:
            self.tell(process, message)

    def expect_end(self) -> None:
        """From here on, a process or agent that ends has done its part."""
        for member in (*self.processes.values(), *self.agents):
            member.done = True

    def tell(self, process: str, message: Message) -> None:
        """Send ``message`` to one process."""
        self.processes[process].connection.send(pack(message))

    async def events(self, patience: float) -> list[tuple[str, Message]]:
        """Return what has been said, waiting up to ``patience`` wall seconds.

        Raises
        ------
        NodeLost, NodeMisbehaved, RunError
            When a process or agent died, broke the protocol or gave up.
        """
        try:
            said = [await asyncio.wait_for(self._inbox.get(), patience)]
        except TimeoutError:
            self._check_agents()
            return []
        while not self._inbox.empty():
            said.append(self._inbox.get_nowait())
        events = []
        for name, message in said:
            if isinstance(message, EmulatorError):
                raise message
            events.append((name, message))
        return events

    async def gather(
        self, missing: Collection[str], what: str, kind: type[Message]
    ) -> dict[str, Any]:
        """Wait until each of ``missing`` has said a message of ``kind``.

        Raises
        ------
        DeadlineExceeded
            When one has not within the deadline; names the first few.
        """
        deadline = time.monotonic() + self._settings.deadline
        left, said = set(missing), {}
        while left:
            if time.monotonic() > deadline:
                names = sorted(left)
                more = f" and {len(names) - 5} more" if len(names) > 5 else ""
                raise DeadlineExceeded(
                    f"{', '.join(names[:5])}{more} did not {what} within "
                    f"{self._settings.deadline:g} s of wall time; iteration 0 cannot "
                    f"start (their output is in {self._log})"
                )
            for name, message in await self.events(0.2):
                if isinstance(message, kind) and name in left:
                    left.discard(name)
                    said[name] = message
        return said

    async def _joined(self, connection: ControlConnection, _who: Any) -> None:
        """Take in a connection that has presented the token, until it ends."""
        try:
            member = self._introduce(unpack(await connection.receive(_SILENCE)))
        except EmulatorError:
            return  # not one of ours after all; who is missing will be noticed
        if isinstance(member, AgentHello):
            await self._follow_agent(Agent(connection, member.host))
        else:
            process = Process(member.process, member.pid, connection)
            await self._follow_process(process)

    @staticmethod
    def _introduce(hello: Message) -> AgentHello | ProcessHello:
        if isinstance(hello, AgentHello | ProcessHello):
            return hello
        raise NodeMisbehaved(f"{type(hello).__name__} came before any introduction")

    async def _follow_agent(self, agent: Agent) -> None:
        name = f"agent {len(self.agents)}"
        self.agents.append(agent)
        self._inbox.put_nowait((name, AgentHello(agent.host)))
        beat = asyncio.create_task(self._beat(agent))
        try:
            while True:
                message = unpack(await agent.connection.receive())
                agent.last_heard = time.monotonic()
                if isinstance(message, ProcessDied):
                    self._process_died(message)
                elif not isinstance(message, Beat):
                    self._inbox.put_nowait((name, self._judged(name, message)))
        except (WireError, RunError) as error:
            if not agent.done:
                self._inbox.put_nowait(
                    (name, NodeLost(f"{name} at {agent.address} is gone: {error}"))
                )
        finally:
            beat.cancel()

    async def _beat(self, agent: Agent) -> None:
        with contextlib.suppress(EmulatorError, OSError):
            while True:
                agent.connection.send(pack(Beat()))
                await asyncio.sleep(_BEAT)

    async def _follow_process(self, process: Process) -> None:
        name = process.name
        if name in self.processes:
            self._inbox.put_nowait(
                (name, NodeMisbehaved(f"process {name} joins twice"))
            )
            return
        self.processes[name] = process
        try:
            while True:
                message = unpack(await process.connection.receive())
                self._inbox.put_nowait((name, self._judged(name, message)))
        except WireError as error:
            self._inbox.put_nowait((name, NodeMisbehaved(f"process {name}: {error}")))
        except RunError:
            # The agent knows how it died, and says so a moment later.
            await asyncio.sleep(_AGENT_SAYS_WHY)
            if not process.done:
                self._inbox.put_nowait((name, self._lost(name)))

    def _judged(self, name: str, message: Message) -> Message | EmulatorError:
        if isinstance(message, Failed):
            at = f" ({message.doing})" if message.doing else ""
            return RunError(f"{name}{at}: {message.error}: {message.text}")
        return message

    def _process_died(self, message: ProcessDied) -> None:
        process = self.processes.get(message.process)
        if process is None or not process.done:
            how = (
                f"was killed by signal {-message.code}"
                if message.code < 0
                else f"ended with status {message.code}"
            )
            self._inbox.put_nowait((message.process, self._lost(message.process, how)))

    def _lost(self, process: str, how: str = "closed its connection") -> NodeLost:
        return NodeLost(f"process {process} {how} ({self.doing(process)})")

    def _check_agents(self) -> None:
        now = time.monotonic()
        for number, agent in enumerate(self.agents):
            if not agent.done and now - agent.last_heard > _SILENCE:
                raise NodeLost(
                    f"agent {number} at {agent.address} has been silent "
                    f"for {now - agent.last_heard:.0f} s of wall time"
                )

    async def open_boards(self) -> None:
        """Wait for every agent's rate board; open the local one directly.

        Boards of other hosts are reached by messages through their agents.
        """
        names = [f"agent {number}" for number in range(len(self.agents))]
        boards = await self.gather(names, "open a rate board", BoardReady)
        if self._local is not None:
            self.agents[0].board = RateBoard.open(boards["agent 0"].path, writable=True)
