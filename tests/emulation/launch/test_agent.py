"""The agent alone, with a coordinator that the test plays."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from emu.emulation.launch.__main__ import main
from emu.emulation.launch.agent import Agent, publish_segments
from emu.emulation.launch.fork import describe_end
from emu.emulation.launch.host_report import own_host_name
from emu.emulation.launch.launcher import LocalLauncher
from emu.emulation.launch.signals import run_until_signalled
from emu.emulation.network.authentication import Identity
from emu.emulation.network.control import ControlConnection, ControlServer
from emu.emulation.network.rate_board import RateBoard
from emu.emulation.shaping import ComputeMode, RateSegment, Tls
from emu.emulation.wire.messages import (
    AgentHello,
    Failed,
    Kill,
    Launch,
    Message,
    RateUpdate,
    Stop,
    expect,
    pack,
    unpack,
)
from emu.emulation.wire.process_spec import ProcessSpec
from emu.errors import MalformedFrame, NodeLost, NodeMisbehaved, RunError
from emu.host.this_host import this_host
from tests.emulation.launch.specs import process_spec, process_task
from tests.emulation.network.strangers import messages, rogue, said

pytestmark = pytest.mark.cold

TOKEN = "of-this-run"  # noqa: S105
TIMED = "emu_nodes.timed:Timed"


async def served(
    agent: Agent | None,
    heard: list[AgentHello],
    say: Callable[[str], None] = lambda _: None,
) -> tuple[str, int]:
    """Run an agent against a coordinator that stops it at once."""

    async def greet(connection: ControlConnection, _who: Identity) -> None:
        heard.append(expect(unpack(await connection.receive(5.0)), AgentHello))
        connection.send(pack(Stop("that was all")))
        async for _ in messages(connection):
            pass

    server = ControlServer(token=TOKEN, on_connection=greet)
    address = await server.start("127.0.0.1")
    try:
        await (agent or Agent(address, TOKEN, say=say)).run()
    finally:
        await server.aclose()
    return address


def test_agent_introduces_its_host_and_leaves_when_stopped() -> None:
    heard: list[AgentHello] = []
    said: list[str] = []
    asyncio.run(served(None, heard, said.append))

    assert [hello.host["pid"] for hello in heard] == [os.getpid()]
    assert heard[0].host["cpus"] >= 1
    assert heard[0].host["memory"] > 1 << 20
    assert heard[0].host["loopback"] > 1 << 20  # bytes per second, measured
    assert heard[0].host["nic"].startswith("lo")  # the coordinator is on this host
    assert said[0].startswith("joined the run at 127.0.0.1:")
    assert said[1:] == ["the run ended: that was all"]


def test_an_agent_that_is_interrupted_says_so_before_it_leaves() -> None:
    """Else its run only knew of a connection that had closed."""
    heard: list[Failed] = []

    async def interrupt() -> None:
        async def greet(connection: ControlConnection, _who: Identity) -> None:
            expect(unpack(await connection.receive(5.0)), AgentHello)
            serving.cancel("SIGTERM")
            async for fields in messages(connection):
                message = unpack(fields)
                if isinstance(message, Failed):
                    heard.append(message)

        server = ControlServer(token=TOKEN, on_connection=greet)
        address = await server.start("127.0.0.1")
        serving = asyncio.create_task(Agent(address, TOKEN).run())
        with pytest.raises(asyncio.CancelledError):
            await serving
        await server.aclose()

    asyncio.run(interrupt())
    assert heard == [Failed("Interrupted", "was interrupted by SIGTERM", "")]


def test_wrong_token_is_refused_at_once() -> None:
    async def join() -> None:
        server = ControlServer(token=TOKEN, on_connection=lambda *_: asyncio.sleep(0))
        address = await server.start("127.0.0.1")
        try:
            await Agent(address, "another", patience=60.0).run()
        finally:
            await server.aclose()

    with pytest.raises(NodeMisbehaved, match=r"does not trust .*token"):
        asyncio.run(asyncio.wait_for(join(), 10))


ORDERED = asdict(process_spec("w0", process_task("logging.config:dictConfig")))


def test_rogue_coordinator_starts_nothing_and_learns_nothing() -> None:
    """The hole of old: who had the address had any function called, token and all."""

    async def join() -> list[bytes]:
        orders = said(accepted=True) + said(**pack(Launch(1, [ORDERED], 5.0)))
        async with rogue(orders) as (address, got):
            with pytest.raises(NodeMisbehaved, match=r".* does not trust"):
                await Agent(address, TOKEN).run()
            return got

    heard = asyncio.run(asyncio.wait_for(join(), 20))

    assert TOKEN.encode() not in b"".join(heard)
    assert heard[1:] in ([], [b""])
    assert not psutil.Process().children()


def test_rates_that_came_by_message_are_on_the_board() -> None:
    board = RateBoard.create(2)
    edge, iteration = (np.array([n], "<i8").tobytes() for n in (1, 5))
    served, rate, since = (np.array([x], "<f8").tobytes() for x in (3.0, 2.0, 7.0))

    publish_segments(board, RateUpdate(edge, iteration, served, rate, since, edge))

    assert board.read(1) == RateSegment(5, 3.0, 2.0, 7.0)
    board.close()


def test_agent_too_many_is_told_so() -> None:
    async def refuse(connection: ControlConnection, _who: Identity) -> None:
        connection.send(pack(Failed("NotWanted", "all have joined already", "")))
        async for _ in messages(connection):
            pass

    async def join() -> None:
        server = ControlServer(token=TOKEN, on_connection=refuse)
        address = await server.start("127.0.0.1")
        try:
            await Agent(address, TOKEN).run()
        finally:
            await server.aclose()

    with pytest.raises(NodeMisbehaved, match="not wanted: all have joined already"):
        asyncio.run(asyncio.wait_for(join(), 20))


def test_coordinator_with_the_token_starts_only_what_the_owner_allows() -> None:
    said_by_agent: list[Message] = []
    left = asyncio.Event()

    async def order(connection: ControlConnection, _who: Identity) -> None:
        connection.send(pack(Launch(1, [ORDERED], 5.0)))
        said_by_agent.extend([unpack(fields) async for fields in messages(connection)])
        left.set()

    async def join() -> None:
        server = ControlServer(token=TOKEN, on_connection=order)
        address = await server.start("127.0.0.1")
        try:
            await Agent(address, TOKEN, allow=["mine:Program"]).run()
        finally:
            await asyncio.wait_for(left.wait(), 10)
            await server.aclose()

    with pytest.raises(
        NodeMisbehaved, match=r"logging\.config:dictConfig is not allow"
    ):
        asyncio.run(asyncio.wait_for(join(), 20))

    refused = [m for m in said_by_agent if isinstance(m, Failed)]
    assert [m.error for m in refused] == ["ProgramRefused"]
    assert not psutil.Process().children()


class NotedForks:
    """A fork server that forks nothing and notes what it was asked for."""

    def __init__(self, *_: object) -> None:
        self.asked = asyncio.Event()
        self.specs: Sequence[ProcessSpec] = ()
        self.preload: Sequence[str] = ()
        self.killed: list[str] = []

    async def start(self) -> None:
        """Do without a process."""

    async def fork(
        self, specs: Sequence[ProcessSpec], preload: Sequence[str], _: object
    ) -> None:
        """Note the specifications, and what is to be imported."""
        self.specs = specs
        self.preload = preload
        self.asked.set()

    def kill(self, process: str) -> None:
        """Note whom to kill."""
        self.killed.append(process)

    async def aclose(self, _: float) -> None:
        """Do without."""


async def launched(specs: Sequence[ProcessSpec], **options: Any) -> NotedForks:
    """Return what an agent asks of its fork server before its run is stopped."""
    forks = NotedForks()

    async def order(connection: ControlConnection, _who: Identity) -> None:
        clock = this_host.name_of_clock()
        connection.send(pack(Launch(1, list(map(asdict, specs)), 5.0, clock)))
        await forks.asked.wait()
        connection.send(pack(Kill(["w0", "p0"])))
        connection.send(pack(Stop("that was all")))
        async for _ in messages(connection):
            pass

    server = ControlServer(token=TOKEN, on_connection=order)
    address = await server.start("127.0.0.1")
    try:
        agent = Agent(address, TOKEN, forks=lambda *_: forks, **options)
        await asyncio.wait_for(agent.run(), 20)
    finally:
        await server.aclose()
    return forks


async def no_host(_: str) -> dict[str, Any]:
    return {}


@pytest.mark.parametrize("tls", ["control", "all"])
def test_processes_get_a_certificate_where_data_is_encrypted(tls: Tls) -> None:
    spec = process_spec("w0", process_task(TIMED))
    settings = replace(spec.settings, tls=tls)
    forks = asyncio.run(launched([replace(spec, settings=settings)], describe=no_host))

    (found,) = forks.specs
    assert found.here.bind == "127.0.0.1"
    assert bool(found.here.certificate) == (tls == "all")
    assert forks.killed == ["w0", "p0"]


def test_a_host_binds_its_processes_to_the_address_that_it_was_given() -> None:
    spec = process_spec("w0", process_task(TIMED))
    forks = asyncio.run(launched([spec], describe=no_host, bind="127.0.0.9"))

    (found,) = forks.specs
    assert found.here.bind == "127.0.0.9"


@pytest.mark.parametrize("compute", ["timed", "real"])
def test_what_computes_has_its_libraries_before_the_fork(compute: ComputeMode) -> None:
    spec = process_spec("w0", process_task("emu_nodes.dgtp.programs:Worker"))
    settings = replace(spec.settings, compute=compute)
    forks = asyncio.run(launched([replace(spec, settings=settings)], describe=no_host))

    assert ("torch" in forks.preload) == (compute == "real")


def test_a_host_that_gets_no_process_asks_for_none() -> None:
    forks = asyncio.run(launched([], describe=no_host))

    assert [*forks.specs] == []


def test_an_agent_has_the_name_of_its_host_or_another() -> None:
    address = ("127.0.0.1", 1)

    assert Agent(address, TOKEN)._name == own_host_name()
    assert Agent(address, TOKEN, name="other")._name == "other"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        ORDERED | {"runtime": "logging.config:dictConfig"},
        {key: ORDERED[key] for key in ORDERED if key != "settings"},
        ORDERED | {"settings": {"time_scale": 0.0}},
        ORDERED | {"tasks": [{}]},
        ORDERED | {"tasks": 3},
        ORDERED | {"host": {"coordinator": 1}},
    ],
)
def test_what_specifies_no_process_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(MalformedFrame, match="no specification of a process"):
        ProcessSpec.from_map(fields)


def test_specification_crosses_the_wire_whole() -> None:
    assert asdict(ProcessSpec.from_map(ORDERED)) == ORDERED


def test_nobody_answers(unused_tcp_port: int) -> None:
    agent = Agent(("127.0.0.1", unused_tcp_port), TOKEN, patience=0.0)
    with pytest.raises(NodeLost, match=f"no coordinator answers .*{unused_tcp_port}"):
        asyncio.run(agent.run())


def test_command_ends_with_the_exit_code_of_its_error(
    unused_tcp_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"127.0.0.1:{unused_tcp_port}"

    assert main([address, "--patience", "0"]) == NodeLost.exit_code
    assert capsys.readouterr().err.startswith("emu agent: no coordinator answers")


def test_command_wants_an_address(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["nowhere"])
    assert "'nowhere' is not HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ("--patience=nan", "--patience: found 'nan', write seconds, 0 or more"),
        ("--patience=inf", "--patience: found 'inf', write seconds, 0 or more"),
        ("--patience=-1", "--patience: found '-1', write seconds, 0 or more"),
        ("--allow=/net.py:Net", "/net.py:Net is neither module:Class nor net.py:Net"),
        ("--name=a\tb", r"--name: 'a\\tb' holds what cannot be printed"),
    ],
)
def test_arguments_of_the_command_are_refused_in_words(
    argument: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An agent with a patience of nan waited for ever."""
    with pytest.raises(SystemExit, match="2"):
        main(["127.0.0.1:1", argument])
    assert problem in capsys.readouterr().err


def test_token_is_in_no_argument(tmp_path: Path) -> None:
    async def start() -> str:
        agent = LocalLauncher()
        await agent.start(("127.0.0.1", 9), TOKEN, tmp_path / "log", [])
        (child,) = psutil.Process().children()
        # It has none while it becomes another program.
        while not (words := child.cmdline()):  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.01)
        await agent.aclose(grace=0.0)
        return " ".join(words)

    arguments = asyncio.run(start())

    assert "emu.emulation.launch" in arguments
    assert TOKEN not in arguments


def test_local_agent_that_is_closed_is_killed(tmp_path: Path) -> None:
    async def start() -> str:
        agent = LocalLauncher()
        await agent.start(("127.0.0.1", 9), TOKEN, tmp_path / "log", [])
        await agent.aclose(grace=0.0)
        return await agent.wait_for_end()

    assert asyncio.run(start()) == "the agent of this host was killed by SIGKILL"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, "ended with status 0"),
        (3, "ended with status 3"),
        (-9, "was killed by SIGKILL"),
        (-99, "was killed by signal 99"),
    ],
)
def test_end_in_words(code: int, text: str) -> None:
    assert describe_end(code) == text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_a_coroutine_in_good_order(number: signal.Signals) -> None:
    before, cleaned = signal.getsignal(number), []

    async def work() -> None:
        try:
            signal.raise_signal(number)
            await asyncio.sleep(60)
        finally:
            signal.raise_signal(number)  # impatience changes nothing
            await asyncio.sleep(0.05)
            cleaned.append(True)

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt, match=f"{number.name} while at work"):
        run_until_signalled(work(), lambda: "at work")

    assert cleaned == [True]
    assert time.monotonic() - begun < 30
    assert signal.getsignal(number) is before


def test_files_that_may_be_open_are_as_many_as_the_kernel_lets() -> None:
    """With a soft limit of 26 the golden job ended: g0 had too many open files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def most() -> tuple[int, int]:
        return resource.getrlimit(resource.RLIMIT_NOFILE)

    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] - 1, before[1]))
        assert run_until_signalled(most(), str) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_result_and_error_pass_through() -> None:
    async def answer() -> int:
        return 42

    async def fail() -> int:
        raise NodeLost("gone")

    assert run_until_signalled(answer(), str) == 42
    with pytest.raises(NodeLost, match="gone"):
        run_until_signalled(fail(), str)


def test_an_agent_fails_where_its_run_failed() -> None:
    said: list[str] = []
    agent = Agent(("127.0.0.1", 1), "token", name="h", say=said.append)
    agent._stop(Stop("the run is over"))
    assert said == ["the run ended: the run is over"]
    with pytest.raises(RunError, match="the run failed: w0 died") as failed:
        agent._stop(Stop("w0 died", failed=True))
    assert failed.value.exit_code == 5
