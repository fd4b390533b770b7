"""The agent: one per host; it forks node processes and watches them, nothing more."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import numpy as np

from emu.emulation.launch.fork import ForkServer, describe_end
from emu.emulation.launch.host_report import (
    ClockComparison,
    measure_host,
    own_host_name,
)
from emu.emulation.launch.programs import (
    check_allowed,
    late_modules,
    model_programs,
    modules_to_preload,
    with_keys,
)
from emu.emulation.network.authentication import Identity, format_address
from emu.emulation.network.clock import SilenceWatch
from emu.emulation.network.control import ControlConnection, connect_control
from emu.emulation.network.rate_board import RateBoard
from emu.emulation.network.tls import draw_certificate
from emu.emulation.shaping import EmulationSettings
from emu.emulation.wire.frame_layout import WireLimits
from emu.emulation.wire.messages import (
    Again,
    AgentHello,
    Beat,
    BoardReady,
    Failed,
    GraphPiece,
    Graphs,
    GraphsKept,
    GraphWanted,
    Kill,
    Launch,
    Message,
    ProcessDied,
    RateUpdate,
    Stop,
    expect,
    pack,
    unpack,
)
from emu.emulation.wire.process_spec import HostSide, ProcessSpec
from emu.errors import (
    DataError,
    DeadlineExceeded,
    EmulatorError,
    MalformedFrame,
    NodeLost,
    NodeMisbehaved,
    RunError,
)
from emu.host.this_host import this_host
from emu.names import printable
from emu.units import format_count

#: A launch brings every process of this host the times and lengths of all iterations.
_LIMITS = WireLimits(message=1 << 28)
_GRACE = 1.0  # wall seconds that a node process has to end by itself


class Agent:
    """Joins a coordinator, runs the processes ordered, ends with the run.

    Parameters
    ----------
    coordinator
        Host and port to join; both sides prove to each other that they know the token.
    name
        Of this host in the run; by default what an engine or the host calls it.
    allow
        Programs, ``module:Class``, that it may start beside the product's own.
    bind
        Address on which this host's processes accept data; empty takes the one that
        the coordinator is reached from.
    patience
        Wall seconds to keep trying to reach the coordinator.
    say
        Called with a line on what the agent does.
    forks
        Makes what starts its processes, which has the methods of `ForkServer`.
    describe
        Describes this host, which the coordinator reaches at an address.
    """

    def __init__(
        self,
        coordinator: tuple[str, int],
        token: str,
        *,
        name: str = "",
        allow: Collection[str] = (),
        bind: str = "",
        patience: float = 10.0,
        say: Callable[[str], None] = lambda _: None,
        forks: Callable[..., Any] = ForkServer,
        describe: Callable[[str], Awaitable[dict[str, Any]]] = measure_host,
    ) -> None:
        self._coordinator = coordinator
        self._token = token
        self._name = name or own_host_name()
        self._allow = frozenset(allow)
        self._bind = bind
        self._patience = patience

        def on_end(process: str, code: int) -> None:
            self._send(ProcessDied(process, code))
            if code:
                self._say(f"process {printable(process)} {describe_end(code)}")

        def on_lost(end: str) -> None:
            self._fail("ForkServerLost", end)

        self._forks = forks(on_end, on_lost)
        self._describe = describe
        self._connection: ControlConnection | None = None
        self._clock: ClockComparison | None = None
        self._say = say
        limit = EmulationSettings.heartbeat_timeout  # until the run states its own
        self._watch = SilenceWatch(limit, this_host.monotonic())

    async def run(self) -> None:
        """Serve one run and return when it is over and its processes have ended.

        Raises NodeLost when the coordinator cannot be reached, or is lost during the
        run; NodeMisbehaved when it refuses this agent, cannot prove that it knows the
        token, or wants a program started that is not allowed; and RunError when the run
        failed, here or elsewhere.
        """
        try:
            await self._forks.start()  # it imports while this agent joins
        except OSError as error:
            self._say(f"cannot start its fork server: {error}")
        try:
            connection = await self._join()
            self._connection = connection
            self._say(f"joined the run at {format_address(*self._coordinator)}")
            self._watch.on_message(this_host.monotonic())

            def beat() -> None:
                line = [] if self._clock is None else self._clock.reading()
                connection.send(pack(Beat(self._watch.stood_still(), line)))

            def give_up(silence: str) -> None:
                address = format_address(*self._coordinator)
                loss = NodeLost(f"the coordinator at {address} {silence}")
                connection.give_up(loss)

            async with self._watch.heartbeats(beat, give_up):
                order = await self._next(connection)
                if isinstance(order, Graphs):
                    await self._keep_graphs(order, connection)
                    order = await self._next(connection)
                if isinstance(order, Stop):
                    return self._stop(order)
                if isinstance(order, Failed):
                    raise NodeMisbehaved(f"not wanted: {printable(order.text)}")
                await self._serve(expect(order, Launch), connection)
        except asyncio.CancelledError as interruption:
            # Before the connection ends, which would not say why.
            self._fail("Interrupted", f"was interrupted by {interruption}")
            raise
        finally:
            await self._forks.aclose(_GRACE)
            if self._connection is not None:
                await self._connection.aclose()

    async def _keep_graphs(self, order: Graphs, connection: ControlConnection) -> None:
        """Have every graph of the job here, from the coordinator where it is not.

        Raises DataError, also to the coordinator, when one cannot be had.
        """
        # Most jobs have no graph, and these modules take a sixth of an agent's start.
        from emu.graph_data.copied_graphs import is_here  # noqa: PLC0415

        try:
            for dataset, fingerprint in order.graphs:
                # A file of GB is read for its fingerprint, and signs of life go on.
                if not await asyncio.to_thread(is_here, dataset, fingerprint):
                    self._say(f"fetches the graph {printable(dataset['name'])}")
                    await self._fetch_graph(dataset, fingerprint, connection)
        except DataError as error:
            self._fail("DataError", str(error))
            raise
        connection.send(pack(GraphsKept()))

    async def _fetch_graph(
        self,
        dataset: dict[str, Any],
        fingerprint: str,
        connection: ControlConnection,
    ) -> None:
        from emu.graph_data.copied_graphs import GraphCopy  # noqa: PLC0415

        copy = GraphCopy(dataset, fingerprint)
        try:
            is_whole = False
            while not is_whole:
                connection.send(pack(GraphWanted(dataset["name"], copy.received)))
                piece = expect(await self._next(connection), GraphPiece)
                copy.add(piece.file, piece.data)
                is_whole = piece.last
            await asyncio.to_thread(copy.keep)
        finally:
            copy.discard()  # what was not kept

    async def _serve(self, launch: Launch, connection: ControlConnection) -> None:
        """Launch, and follow the coordinator from the first moment: it may give up."""
        self._watch.limit = launch.heartbeat_timeout
        with contextlib.closing(RateBoard.create(max(launch.edges, 1))) as board:
            clock = ClockComparison(connection, board, launch.clock)
            self._clock = clock
            await clock.compare()
            connection.send(pack(BoardReady(board.path)))

            launching = asyncio.create_task(self._launch(launch, board, connection))
            following = asyncio.create_task(self._follow(connection, board))
            comparing = asyncio.create_task(clock.keep())
            try:
                # Either may end first: a launch that fails, or a run that is given up.
                await asyncio.wait(
                    [launching, following], return_when=asyncio.FIRST_COMPLETED
                )
                if not following.done():
                    await launching
                await following
            finally:
                launching.cancel()
                following.cancel()
                comparing.cancel()
                await asyncio.gather(
                    launching,
                    following,
                    comparing,
                    return_exceptions=True,
                )

    async def _join(self) -> ControlConnection:
        deadline = this_host.monotonic() + self._patience
        identity = Identity.of(self._token, "agent", self._name)
        while True:
            try:
                connection = await connect_control(
                    self._coordinator,
                    identity=identity,
                    limits=_LIMITS,
                )
            except (NodeLost, DeadlineExceeded) as error:
                if this_host.monotonic() > deadline:
                    address = format_address(*self._coordinator)
                    raise NodeLost(
                        f"no coordinator answers at {address}: {error}"
                    ) from error
                await asyncio.sleep(0.1)  # an engine may start hosts in any order
            else:
                host = await self._describe(connection.local_address)
                connection.send(pack(AgentHello(host)))
                return connection

    async def _next(self, connection: ControlConnection) -> Message:
        """Return what the coordinator says next beside signs of life."""
        while True:
            message = unpack(await connection.receive())
            self._watch.on_message(this_host.monotonic())
            if not isinstance(message, Beat):
                return message

    def _stop(self, order: Stop) -> None:
        """Say how the run ended; raises RunError where it failed."""
        if order.failed:
            raise RunError(f"the run failed: {printable(order.reason)}")
        self._say(f"the run ended: {printable(order.reason)}")

    async def _launch(
        self,
        launch: Launch,
        board: RateBoard,
        connection: ControlConnection,
    ) -> None:
        orders = [ProcessSpec.from_map(fields) for fields in launch.processes]
        # One key for a host: its processes are of one user, and each proves its edges.
        with_tls = any(spec.settings.tls == "all" for spec in orders)
        host = HostSide(
            certificate=draw_certificate() if with_tls else b"",
            coordinator=self._coordinator,
            bind=self._bind or connection.local_address,
            board=board.path,
        )
        specs = [with_keys(spec, self._token, host) for spec in orders]

        programs = {task.program for spec in specs for task in spec.tasks}
        names = ", ".join(spec.process for spec in specs)
        compute = specs[0].settings.compute if specs else "timed"
        try:
            check_allowed(programs | model_programs(specs), self._allow)
            count = format_count(len(specs), "process")
            self._say(f"starts {count}: {printable(names)}")
            preload = modules_to_preload(programs, compute=compute)
            late = late_modules(programs, compute=compute)
            await self._forks.fork(specs, preload, late)
        except NodeMisbehaved as error:
            self._fail("ProgramRefused", str(error))
            raise
        except RunError as error:
            self._fail("ForkServerLost", str(error))
            raise
        except OSError as error:
            loss = NodeLost(f"cannot fork node processes: {error}; see the log")
            self._fail("ForkServerLost", str(loss))
            raise loss from error

    def _fail(self, error: str, text: str) -> None:
        self._send(Failed(error, text, ""))

    def _send(self, message: Message) -> None:
        """Send to the coordinator, if it still listens."""
        if self._connection is not None:
            with contextlib.suppress(EmulatorError, OSError):
                self._connection.send(pack(message))

    async def _follow(self, connection: ControlConnection, board: RateBoard) -> None:
        """Obey the coordinator to the end; raises NodeLost when it falls silent."""
        while True:
            message = await self._next(connection)
            if isinstance(message, RateUpdate):
                publish_segments(board, message)
            elif isinstance(message, Kill):
                for process in message.processes:
                    self._forks.kill(process)
            elif isinstance(message, Again):
                board.clear()
                self._say("goes on with a further run")
                connection.send(pack(BoardReady(board.path)))
            elif isinstance(message, Stop):
                return self._stop(message)
            else:
                raise MalformedFrame(f"{type(message).__name__} is not for an agent")


def publish_segments(board: RateBoard, segments: RateUpdate) -> None:
    """Put segments that came by message on the board of this host."""
    board.publish(
        edges=np.frombuffer(segments.edges, "<i8"),
        iterations=np.frombuffer(segments.iterations, "<i8"),
        served=np.frombuffer(segments.served, "<f8"),
        rates=np.frombuffer(segments.rates, "<f8"),
        since=np.frombuffer(segments.since, "<f8"),
        numbers=np.frombuffer(segments.numbers, "<i8"),
    )
