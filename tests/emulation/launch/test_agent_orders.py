"""Orders that an agent follows, and what it says of its processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest

from emu.emulation.launch import __main__ as command
from emu.emulation.launch.agent import Agent
from emu.emulation.launch.signals import run_until_signalled
from emu.emulation.network.authentication import Identity
from emu.emulation.network.control import ControlConnection, ControlServer
from emu.emulation.network.rate_board import RateBoard
from emu.emulation.shaping import EmulationSettings
from emu.emulation.wire.messages import (
    Again,
    BoardReady,
    Launch,
    Message,
    ProcessDied,
    RateUpdate,
    Stop,
    pack,
    unpack,
)
from emu.errors import RunError
from emu.host.this_host import this_host
from tests.emulation.launch.specs import process_spec, process_task
from tests.emulation.launch.test_agent import TIMED, TOKEN, NotedForks, no_host
from tests.emulation.network.strangers import messages

pytestmark = pytest.mark.cold


PLAIN = process_spec("w0", process_task(TIMED))
SEALED = replace(PLAIN, process="w1", settings=EmulationSettings(tls="all"))
RATES = RateUpdate(b"1", b"2", b"3", b"4", b"5", b"6")


class Coordinator:
    """Launches two processes of seven edges, which end, and has a further run."""

    def __init__(self) -> None:
        self.forks = NotedForks()
        self.heard: list[Message] = []
        self._on_end: Callable[[str, int], None] = lambda *_: None

    def fork(self, on_end: Callable[[str, int], None], _: object) -> NotedForks:
        """Return a fork server, which tells of ends."""
        self._on_end = on_end
        return self.forks

    async def order(self, connection: ControlConnection, _who: Identity) -> None:
        """Give all orders, and note what is said."""
        clock = this_host.name_of_clock()
        specs = [asdict(PLAIN), asdict(SEALED)]
        connection.send(pack(Launch(7, specs, 5.0, clock)))
        await self.forks.asked.wait()
        self._on_end("w0", 0)
        self._on_end("w1", -9)
        for message in (RATES, Again(), Stop("that was all")):
            connection.send(pack(message))
        async for fields in messages(connection):
            self.hear(fields)

    def hear(self, fields: dict[str, Any]) -> None:
        """Note what the agent says."""
        self.heard.append(unpack(fields))


class Boards:
    """Makes boards, and notes their edges, what is put there, and their clearing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.edges: list[int] = []
        self.cleared = 0
        self.updates: list[RateUpdate] = []
        self._create = RateBoard.create
        agent = "emu.emulation.launch.agent"
        monkeypatch.setattr(RateBoard, "create", self.make)
        monkeypatch.setattr(RateBoard, "clear", lambda _: self.clear())
        monkeypatch.setattr(f"{agent}.publish_segments", self.publish)

    def make(self, edges: int) -> RateBoard:
        """Return a board."""
        self.edges.append(edges)
        return self._create(edges)

    def clear(self) -> None:
        """Count how often one is cleared."""
        self.cleared += 1

    def publish(self, _: RateBoard, update: RateUpdate) -> None:
        """Note what is put on a board."""
        self.updates.append(update)


async def test_an_agent_follows_to_the_end_and_tells_of_its_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has a board of all edges, publishes rates and clears them for another run.

    One of its two processes encrypts data: both get the certificate.
    """
    lines: list[str] = []
    boards = Boards(monkeypatch)
    coordinator = Coordinator()
    server = ControlServer(token=TOKEN, on_connection=coordinator.order)
    address = await server.start("127.0.0.1")
    try:
        agent = Agent(
            address, TOKEN, forks=coordinator.fork, describe=no_host, say=lines.append
        )
        await asyncio.wait_for(agent.run(), 20)
    finally:
        await server.aclose()

    assert (boards.edges, boards.cleared, boards.updates) == ([7], 1, [RATES])
    assert all(spec.here.certificate for spec in coordinator.forks.specs)
    heard = coordinator.heard
    died = [message for message in heard if isinstance(message, ProcessDied)]
    assert died == [ProcessDied("w0", 0), ProcessDied("w1", -9)]
    assert sum(isinstance(message, BoardReady) for message in heard) == 2
    assert lines[1:] == [
        "starts 2 processes: w0, w1",
        "process w1 was killed by SIGKILL",
        "goes on with a further run",
        "the run ended: that was all",
    ]


def test_what_is_cancelled_without_a_signal_stays_cancelled() -> None:
    async def cancel() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run_until_signalled(cancel(), lambda: "waiting")


@pytest.mark.parametrize(
    ("error", "status"),
    [(KeyboardInterrupt("interrupted"), 130), (RunError("failed"), RunError.exit_code)],
)
def test_an_agent_ends_with_the_status_of_what_ended_it(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    status: int,
) -> None:
    def run(*_: Any) -> None:
        raise error

    made: list[dict[str, Any]] = []

    def make(*_: Any, **stated: Any) -> Any:
        made.append(stated)
        return SimpleNamespace(run=lambda: None)

    monkeypatch.setattr(command, "begin", lambda: None)
    monkeypatch.setattr(command, "Agent", make)
    monkeypatch.setattr(command, "run_until_signalled", run)
    assert command.main(["10.0.0.9:5", "--name", "h", "--patience", "0"]) == status
    assert capsys.readouterr().err == f"emu agent: {error}\n"
    assert (made[0]["patience"], made[0]["name"], made[0]["bind"]) == (0.0, "h", "")
