"""A node process: connects, waits for the barrier, obeys, hands over its results."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import importlib
import sys
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar, cast

import uvloop

from emu.emulation.network.authentication import Identity
from emu.emulation.network.clock import BEAT, RunClock
from emu.emulation.network.control import connect_control
from emu.emulation.network.pacer import Pacer
from emu.emulation.network.rate_board import RateBoard
from emu.emulation.network.rx_timestamps import arrival_device
from emu.emulation.network.statistics import ProcessStatistics
from emu.emulation.network.tuning import tune_process
from emu.emulation.wire.array_parts import ArrayParts, parts_of
from emu.emulation.wire.frame_layout import Fields
from emu.emulation.wire.messages import (
    Again,
    Begin,
    Failed,
    Finish,
    Frames,
    Listening,
    Message,
    Orders,
    Outcome,
    Peers,
    ProcessHello,
    Ready,
    ResultPart,
    RunTask,
    StatePart,
    Stop,
    expect,
    pack,
    unpack,
)
from emu.emulation.wire.notes import Order
from emu.emulation.wire.process_spec import ProcessSpec
from emu.errors import (
    EmulatorError,
    MalformedFrame,
    NodeLost,
    NodeMisbehaved,
)
from emu.host.this_host import this_host
from emu.problem.job import TIMED
from emu_nodes.host_metrics import HostMetrics
from emu_nodes.line import Line, may_have_rings
from emu_nodes.program import (
    KeepsState,
    Program,
    Shared,
    TaskProgram,
    task_brief,
)
from emu_nodes.task_runner import (
    EdgeEnds,
    TaskContext,
    TaskRunner,
    WallClockTimer,
    warm_up_process,
)
from emu_nodes.timed import Timed, prepare_pools
from emu_nodes.timed_layout import find_timed_programs
from emu_nodes.timed_process import TimedProcess
from emu_nodes.timed_selector import TimedLoop, TimedSelector, may_be_timed

#: Where the peak of this process's memory begins anew, on Linux.
_PEAK_MEMORY = Path("/proc/self/clear_refs")
_ANY_ADDRESS = {"0.0.0.0", "::"}  # noqa: S104 -- what a peer cannot connect to
T = TypeVar("T", bound=Message)


def load_program(path: str) -> type:
    """Return the class of a program, ``module:Class``.

    Raises NodeMisbehaved when it is no class with a method ``run``: not called then.
    """
    module, name = path.split(":")
    target = getattr(importlib.import_module(module), name, None)
    if isinstance(target, type) and callable(getattr(target, "run", None)):
        return target
    raise NodeMisbehaved(f"{path} is no class with a method run, so no program")


def offset_now(board: RateBoard) -> float:
    """Return the coordinator's clock minus ours, seconds; 0 on its own host."""
    line = board.clock()
    return 0.0 if line is None else line.ahead(this_host.monotonic())


async def follow_host_clock(clock: RunClock, pacer: Pacer) -> None:
    """Have run time follow the coordinator's clock until cancelled."""
    while (line := pacer.board.clock()) is not None:
        clock.follow(line, this_host.monotonic(), BEAT)
        clock.show(pacer.core)
        await asyncio.sleep(BEAT)


def prepare(descriptions: Sequence[Fields]) -> None:
    """Make what processes of these specifications share with others, before the fork.

    What is wrong with one, or has no memory, its process says.
    """
    with contextlib.suppress(
        EmulatorError,
        MemoryError,
        AttributeError,
        TypeError,
        ValueError,
    ):
        specs = [ProcessSpec.from_map(fields) for fields in descriptions]
        prepare_pools(specs)


def main(descriptions: Sequence[Fields]) -> int:
    """Be the processes of some specifications, in one loop; return the exit status.

    Each has its own sockets, memory, compute thread and place in the run. What is slow
    once, and the look at the loop, they share.
    """
    specs = [ProcessSpec.from_map(fields) for fields in descriptions]
    tuning = tune_process()
    if len(specs) > 1:
        tuning["processes"] = "machine"
    warming: list[asyncio.Future[None]] = []

    def warm_up(compute: Executor) -> Awaitable[None]:
        if not warming:
            warming.append(asyncio.ensure_future(warm_up_process(compute)))
        return warming[0]

    shared_metrics: list[HostMetrics] = []

    def metrics() -> HostMetrics:
        if not shared_metrics or shared_metrics[-1].closed:  # of a run before
            shared_metrics[:] = [HostMetrics()]
        return shared_metrics[0]

    selector = TimedSelector(specs) if may_be_timed(specs) else None

    def make_loop() -> asyncio.AbstractEventLoop:
        if selector is None:
            return uvloop.new_event_loop()
        return TimedLoop(selector)

    async def serve() -> int:
        surroundings = Surroundings(
            tuning=tuning,
            warm_up=warm_up,
            metrics=metrics,
            members=len(specs),
            has_rings=may_have_rings(specs),
            selector=selector,
        )
        with contextlib.closing(Line(specs)) as line:
            processes = [NodeProcess(spec, surroundings, line) for spec in specs]
            statuses = (process.exit_status() for process in processes)
            return max(await asyncio.gather(*statuses))

    with asyncio.Runner(loop_factory=make_loop) as runner:
        return runner.run(serve())


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """Things around a process that are not of the run."""

    tuning: Mapping[str, str]
    """Settings of the host that were applied, for the manifest."""
    warm_up: Callable[[Executor], Awaitable[None]] = warm_up_process
    """Does once before the run what is slow the first time."""
    metrics: Callable[[], HostMetrics] = HostMetrics
    members: int = 1
    """Node processes that share the process of the system."""
    has_rings: bool = False
    """True where they may speak with the coordinator through memory."""
    selector: TimedSelector | None = None
    """Selector of their loop, where that gives timed tasks their turns."""


class NodeProcess:
    """All that one process of a run does, and of those that follow it."""

    _failure: asyncio.Future[None]

    def __init__(
        self,
        spec: ProcessSpec,
        surroundings: Surroundings,
        line: Line,
    ) -> None:
        self._spec = spec
        self._settings = spec.settings
        self._surroundings = surroundings
        self._line = line
        self._name = spec.process
        self._compute = ThreadPoolExecutor(1, thread_name_prefix="compute")
        self._runners: dict[int, TaskRunner] = {}
        self._timed: TimedProcess | None = None  # in place of runners
        self._timer: WallClockTimer | None = None  # of runners
        self._handles: dict[asyncio.Future[Any], None] = {}  # a set has no order
        self._counted_cpu = 0.0  # seconds, of the runs before
        self.stopped = False  # by the coordinator: its agent says so

    async def exit_status(self) -> int:
        """Serve runs to the end of the last; return the exit status."""
        try:
            self._control = await connect_control(
                self._spec.here.coordinator,
                identity=Identity("process", self._name, self._spec.here.key),
                within=self._settings.deadline,
            )
            lead = self._line.lead
            numbers: list[int] = []
            if self._name == lead:
                self._line.connect(self._control)
                numbers = self._make_rings()
            try:
                self._send(ProcessHello(this_host.process_id(), lead, numbers))
                while await self._serve():
                    self._forget()
            finally:
                await self._control.aclose()
                self._compute.shutdown(wait=False, cancel_futures=True)
        except EmulatorError as error:  # the coordinator knows, or is gone
            if not self.stopped:
                self._say(str(error))
                return 1
        except Exception:  # noqa: BLE001 -- likewise
            traceback.print_exc()
            return 1
        return 0

    def _say(self, line: str) -> None:
        print(f"process {self._name}: {line}", file=sys.stderr)  # noqa: T201 -- the agent's log

    def _make_rings(self) -> list[int]:
        """Make rings for all of this loop; return the numbers by which to join them."""
        if not self._surroundings.has_rings:
            return []
        try:
            return (self._surroundings.selector or self._line).make_rings()
        except OSError as error:
            self._say(f"reports over its connection, not by rings: {error}")
            return []

    def _send(self, message: Message) -> None:
        self._control.send(pack(message))

    def _forget(self) -> None:
        """Let go of a run; what the next one begins with is made anew."""
        self._runners = {}
        self._timed = None
        self._handles = {}
        self._line.forget(self._name)
        gc.collect()  # not during the run: it takes the loop milliseconds
        with contextlib.suppress(OSError):
            _PEAK_MEMORY.write_text("5")

    async def _serve(self) -> bool:
        """Serve a run; return True where a further one follows."""
        self._failure = asyncio.get_running_loop().create_future()
        try:
            self._board = RateBoard.open(self._spec.here.board)
        except OSError as error:
            raise NodeLost(f"the rate board has gone with its agent: {error}") from None
        self._pacer = Pacer(self._board, self._settings)
        self._ends = EdgeEnds(self._spec, self._line.report, self._fail)
        try:
            return await self._take_part()
        except Exception as error:
            under_way = [runner.doing for runner in self._runners.values()]
            if self._timed is not None:
                under_way = self._timed.doing()
            failure = Failed(
                error=type(error).__name__,
                text=str(error),
                doing="; ".join(filter(None, under_way)),
                trace=traceback.format_exc(),
            )
            # Before the data connections end: peers will blame this process for that.
            with contextlib.suppress(EmulatorError):
                self._send(failure)
                await asyncio.sleep(0.05)  # let the message leave before the process
            raise
        finally:
            for handle in self._handles:
                handle.cancel()
            if self._timed is not None:
                self._timed.close()
            await self._ends.aclose()
            if self._timer is not None:
                self._timer.close()
                self._timer = None
            self._pacer.close()
            self._board.close()

    async def _take_part(self) -> bool:
        programs = await self._come_up()
        self._programs = programs
        await self._restore(programs)
        timed = self._find_timed(programs)
        if not timed:
            await self._surroundings.warm_up(self._compute)
        tuning = {
            **self._surroundings.tuning,
            "arrivals": arrival_device(),
            "pacer": self._pacer.device,
        }
        self._send(Ready(tuning))

        begin = await self._next(Begin, "the start of iteration 0")
        scale = self._settings.time_scale
        offset = offset_now(self._board)
        self._clock = RunClock(begin.start_wall, scale, offset)
        self._ends.clock = self._clock
        selector = self._surroundings.selector
        is_lead = self._name == self._line.lead
        if begin.rings and is_lead and selector is not None:
            selector.speak_by_rings(self._take_orders, self._fail)
        elif begin.rings and is_lead:
            self._line.speak_by_rings(self._fail)
        self._track(follow_host_clock(self._clock, self._pacer))
        self._pacer.start(self._clock)
        with contextlib.closing(self._surroundings.metrics()) as host_metrics:
            await self._obey(programs, timed)
            statistics = await self._count(host_metrics)
        self._hand_over(statistics)
        return await self._goes_on()

    def _take_orders(self, notes: bytes) -> None:
        """Have orders carried out that came by rings, and not for the core."""
        try:
            self._line.obey(Orders(notes))
        except EmulatorError as error:
            self._fail(error)

    async def _come_up(self) -> dict[int, Program]:
        """Listen, and connect to all peers while the programs are made."""
        ends = self._ends
        host, port = await ends.server.start(
            self._spec.here.bind, ports=self._settings.ports
        )
        address = self._control.local_address if host in _ANY_ADDRESS else host
        self._send(Listening(address, port))

        async def meet() -> None:
            peers = await self._next(Peers, "the addresses of its peers")
            await ends.meet(peers.addresses, self._pacer)

        if all(task.program == TIMED for task in self._spec.tasks):
            # To start a thread for them takes longer than to make them.
            programs = self._make_programs()
            await meet()
            return programs

        # At once: a partition takes seconds to load, and peers wait for each other.
        loop = asyncio.get_running_loop()
        loading = loop.run_in_executor(self._compute, self._make_programs)
        programs, _ = await asyncio.gather(loading, meet())
        return programs

    async def _count(self, host_metrics: HostMetrics) -> ProcessStatistics:
        """Return the figures of this process alone, where it shares another as well."""
        ends = self._ends
        pacer = self._pacer
        if self._timed is not None:
            self._timed.count()

        members = self._surroundings.members
        cpu_seconds, peak_memory = host_metrics.usage()
        if members > 1:  # its own thread, and its share of the loop
            cpu_seconds = this_host.thread_time() / members
            if self._timed is None:
                loop = asyncio.get_running_loop()
                thread_time = this_host.thread_time
                cpu_seconds += await loop.run_in_executor(self._compute, thread_time)
        of_this_run = cpu_seconds - self._counted_cpu
        self._counted_cpu = cpu_seconds

        return ProcessStatistics(
            received=ends.server.statistics(),
            memory=ends.pool.statistics,
            waiting=ends.inbox.statistics,
            sent=[edge.statistics for edge in ends.connections.values()],
            pacer=pacer.statistics(),
            host_metrics=host_metrics.use(),
            cpu_seconds=of_this_run,
            peak_memory=peak_memory // members,
            clock=[self._clock.now()],
            flows=pacer.log.pack(self._clock),
        )

    async def _next(self, kind: type[T], content: str) -> T:
        """Return the coordinator's next message, which is of this kind.

        It may wait as long as others may take, twice: its own deadline comes first.
        Raises NodeLost when it stops the run instead.
        """
        patience = 2 * self._settings.deadline
        frame = await self._control.receive(patience, waiting_for=content)
        message = unpack(frame)
        if isinstance(message, Stop):
            self.stopped = True
            raise NodeLost(f"the run was stopped: {message.reason}")
        return expect(message, kind)

    async def _restore(self, programs: dict[int, Program]) -> None:
        """Have programs begin with the state that the coordinator sends, if any."""
        missing_tasks = {name for task in self._spec.tasks for name in task.restores}
        parts = {name: ArrayParts() for name in missing_tasks}
        while missing_tasks:
            part = await self._next(StatePart, "the state it begins with")
            if part.task not in missing_tasks:
                raise MalformedFrame(f"the state of {part.task} was not asked for")
            with contextlib.suppress(ValueError):  # it shows in the arrays
                parts[part.task].add(part)
            if part.last:
                missing_tasks.discard(part.task)

        try:
            states = {name: pieces.arrays() for name, pieces in parts.items()}
        except ValueError as error:
            raise MalformedFrame(f"state to begin with: {error}") from error
        for task in self._spec.tasks:
            if task.restores:
                keeper = cast("KeepsState", programs[task.task])
                keeper.restore({name: states[name] for name in task.restores})

    def _make_programs(self) -> dict[int, Program]:
        """Make the programs of all tasks; those that compute may load data here."""
        # Memory touched for the first time during the run stalls the loop.
        for size in self._spec.reserved:
            self._ends.pool.reserve(size)

        programs: dict[int, Program] = {}
        common = Shared()
        for task in self._spec.tasks:
            brief = task_brief(task, self._spec.job_settings, self._spec.first)
            kind = load_program(task.program)
            program = cast("Program", kind(brief, common))
            programs[task.task] = program
            if isinstance(program, TaskProgram):
                self._ends.server.sinks.update(program.sinks())
        return programs

    async def _obey(
        self,
        programs: dict[int, Program],
        timed: dict[int, Timed],
    ) -> None:
        """Run tasks as ordered, until the run is finished.

        Orders may be hours apart: who waits for them relies on the agent, which gets a
        beat from the coordinator every second and takes its processes down otherwise.
        Raises NodeLost when the coordinator ends the run early or goes away.
        """
        self._line.join(self._name, self._take_up(programs, timed))
        following = asyncio.ensure_future(
            self._control.follow(lambda message: self._obeys(unpack(message)))
        )
        # Whatever fails beside the orders (a task, a connection) ends the process, too.
        await asyncio.wait(
            [following, self._failure], return_when=asyncio.FIRST_COMPLETED
        )

        self._line.leave(self._name)
        if self._failure.done():
            following.cancel()
            self._failure.result()
        following.result()

    def _find_timed(self, programs: dict[int, Program]) -> dict[int, Timed]:
        """Return the programs where the core runs them all; {} where it cannot."""
        if self._surroundings.selector is None:
            return {}
        return find_timed_programs(self._spec, programs, self._ends, self._pacer)

    def _take_up(
        self,
        programs: dict[int, Program],
        timed: dict[int, Timed],
    ) -> Callable[[Order], None]:
        """Be ready for orders; return who carries them out."""
        ends = self._ends
        selector = self._surroundings.selector
        if timed and selector is not None:
            self._timed = TimedProcess(
                self._spec,
                timed,
                ends,
                self._pacer,
                self._clock,
                selector,
                self._line.add,
                self._fail,
            )
            ends.count_frames = self._timed.count_frames
            self._timed.start()
            return self._timed.carry_out

        self._timer = WallClockTimer()
        context = TaskContext(
            inbox=self._ends.inbox,
            outputs=self._ends.outputs,
            compute=self._compute,
            timer=self._timer,
            clock=self._clock,
            report=self._line.report,
            send=self._send,
            settings=self._settings,
            first=self._spec.first,
        )
        for task in self._spec.tasks:
            runner = TaskRunner(task, programs[task.task], context)
            self._runners[task.task] = runner
        return self._carry_out

    def _obeys(self, message: Message) -> bool:
        """Obey a message; return True while there is more to come."""
        if isinstance(message, Orders):
            self._line.obey(message)
        elif isinstance(message, Stop):
            self.stopped = True
            raise NodeLost(f"the run was stopped: {message.reason}")
        else:
            expect(message, Finish)
            return False
        return True

    def _carry_out(self, order: Order) -> None:
        if isinstance(order, RunTask):
            self._track(self._runners[order.task].run(order))
        else:
            self._ends.connections[order.edge].notify(order.since)

    def _track(self, work: Coroutine[Any, Any, None] | asyncio.Future[Any]) -> None:
        """Run work beside the others; if it fails, the process does."""

        def on_end(handle: asyncio.Future[Any]) -> None:
            self._handles.pop(handle, None)
            if not handle.cancelled() and (error := handle.exception()) is not None:
                self._fail(error)

        handle = asyncio.ensure_future(work)
        self._handles[handle] = None
        handle.add_done_callback(on_end)

    def _fail(self, error: BaseException) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)
            self._failure.exception()  # retrieved: it may never be awaited

    def _hand_over(self, statistics: ProcessStatistics) -> None:
        """Send frames, results and statistics."""
        for connection in self._ends.connections.values():
            connection.note_connection()
        server = self._ends.server
        frames = zip_longest(
            self._pacer.departures.pieces(self._clock),
            server.log.pieces(self._clock),
            self._pacer.connections.pieces(),
            server.waits.pieces(),
            fillvalue=b"",
        )
        for sent, received, connections, waits in frames:
            self._send(Frames(sent, received, connections, waits))
        for task, program in self._programs.items():
            for part in parts_of(program.result()):
                self._send(ResultPart(task=task, **part))
        statistics.clock.append(self._clock.now())
        self._send(Outcome(statistics.to_map()))

    async def _goes_on(self) -> bool:
        """Return True where a further run follows, once the coordinator has decided.

        It judges and writes first, however long that takes; see `_obey`.
        """
        with contextlib.suppress(NodeLost):
            return isinstance(unpack(await self._control.receive()), Again)
        return False
