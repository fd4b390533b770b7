"""One process that plays a whole cluster: virtual time, processes, their sockets.

The event loop is asyncio's own, over a selector that knows the sockets in memory and
lets time pass when nothing is ready. Which virtual process a callback is of follows
from its context, so that one can die at any of its steps. Libraries of the kind
(simloop, simloom, seedloop) want Python 3.12, and have no sockets below transports,
which data connections read and write by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextvars import Context, ContextVar, copy_context
from functools import partial
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector, SelectorKey
from typing import Any, cast

from typing_extensions import override

from emu.host.this_host import Host, create_memory
from emu.testing.trials.wires import Damage, Draws, Network, VirtualSocket

_PROCESS: ContextVar[VirtualProcess | None] = ContextVar("process", default=None)
_THE_WORLD = Context()
_FIRST_ID = 1 << 23  # no process of Linux has such a number
_AT_ONCE = 1e-11  # wall seconds, less than any clock shows
_TURN = 1e-10  # wall seconds that a turn of the loop takes: none would let loops spin
TURNS = 1_000_000
_UNWIND = 60.0  # wall seconds
KILLED = -9


def _process_of(handle: asyncio.Handle) -> VirtualProcess | None:
    context: Context = handle._context  # type: ignore[attr-defined]  # noqa: SLF001
    # A handle runs in its context, and has no public way to it before Python 3.14.
    return context.get(_PROCESS)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _forget(process: VirtualProcess, task: asyncio.Task[Any]) -> None:
    process.tasks.pop(task, None)


class Stuck(Exception):
    """Nothing will ever happen again, or too much."""


class VirtualProcess:
    """A process of the world: some tasks, timers and sockets that end together."""

    def __init__(
        self,
        world: World,
        name: str,
        parent: VirtualProcess | None,
    ) -> None:
        self.name = name
        self.parent = parent
        self.number = _FIRST_ID + len(world.processes)
        self.context = copy_context()
        self.context.run(_PROCESS.set, self)
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.steps = 0
        """Callbacks so far; it is killed at ``dies_at``."""
        self.dies_at = world.deaths.get(name, 0)
        self.dead = False
        self.never: list[asyncio.Handle] = []
        """Callbacks that were due after its death."""
        self.code: int | None = None
        self.ended = asyncio.Event()
        self.left: list[str] = []
        """Tasks that it left when it ended by itself."""


class _Selector:
    """Answers of a selector to asyncio, about sockets of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._keys: dict[int, SelectorKey] = {}
        self.hot = world.network.hot

    def get_map(self) -> Mapping[int, SelectorKey]:
        return self._keys

    def get_key(self, fd: int) -> SelectorKey:
        return self._keys[fd]

    def register(
        self,
        fd: int,
        events: int,
        data: Any,
    ) -> SelectorKey:
        if fd not in self._world.network.sockets:
            raise ValueError(f"no socket {fd}")
        return self._set(fd, events, data)

    def modify(self, fd: int, events: int, data: Any) -> SelectorKey:
        if self._world.buried:  # its socket may have died with its process
            return self._set(fd, events, data)
        return self.register(fd, events, data)

    def _set(self, fd: int, events: int, data: Any) -> SelectorKey:
        key = SelectorKey(fd, fd, events, data)
        self._keys[fd] = key
        self.hot[fd] = None
        return key

    def unregister(self, fd: int) -> SelectorKey:
        self.hot.pop(fd, None)
        return self._keys.pop(fd)

    def select(self, timeout: float | None) -> list[tuple[Any, int]]:
        sockets = self._world.network.sockets
        ready = []
        for fd in list(self.hot):
            key = self._keys.get(fd)
            sock = sockets.get(fd)
            mask = 0
            if key is not None and sock is not None:
                if sock.readable:
                    mask |= EVENT_READ
                if sock.writable:
                    mask |= EVENT_WRITE
                mask &= key.events
            if mask:
                ready.append((key, mask))
            else:
                # Looked at again when something touches it: idle sockets cost nothing.
                del self.hot[fd]

        self._world.pass_time(0.0 if ready else timeout)
        self._world.network.draws.order(ready)
        return ready

    def close(self) -> None:
        self._keys.clear()


class VirtualLoop(asyncio.SelectorEventLoop):
    """Asyncio's loop in virtual time: threads run at once, and nothing sleeps."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _transports: Mapping[int, asyncio.Transport]

    def __init__(self, world: World) -> None:
        self._world = world
        self.selector = _Selector(world)
        super().__init__(cast("BaseSelector", self.selector))
        # Asyncio runs timers that are due within it: by default it is the real clock's.
        self._clock_resolution = _AT_ONCE
        self.set_task_factory(cast("Any", self._task))

    def _make_self_pipe(self) -> None:
        """Do without: nothing wakes it from outside."""

    _close_self_pipe = _write_to_self = _make_self_pipe

    @override
    def time(self) -> float:
        return self._world.network.now

    @override
    def call_soon(  # type: ignore[override]  # any arguments
        self,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.Handle:
        process = _PROCESS.get() if context is None else context.get(_PROCESS)
        if process is not None:
            if process.dead:
                # Laid aside and not thrown away: at the end of the world it is unwound.
                handle = asyncio.Handle(callback, args, self, context)
                process.never.append(handle)
                return handle
            process.steps += 1
            if process.steps == process.dies_at:
                self._world.network.happen(process.name)
                super().call_soon(self._world.kill, process, context=_THE_WORLD)
        return super().call_soon(callback, *args, context=context)

    @override
    def run_in_executor(  # type: ignore[override]  # any arguments
        self,
        _executor: Any,
        func: Callable[..., Any],
        *args: Any,
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 -- the caller's
            future.set_exception(error)
        return future

    @override
    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        return [(0, socket.SOCK_STREAM, 0, "", (host, port))]

    @override
    async def sock_accept(self, sock: Any) -> Any:
        # Asyncio's own sets the result of a future that was cancelled in that turn.
        while True:
            try:
                return sock.accept()
            except BlockingIOError:
                ready = self.create_future()
                self.add_reader(sock.fileno(), _wake, ready)
                try:
                    await ready
                finally:
                    self.remove_reader(sock.fileno())

    @override
    async def create_server(  # type: ignore[override]  # any arguments
        self,
        factory: Any,
        *address: Any,
        **options: Any,
    ) -> Any:
        if address:
            options["sock"] = self._world.listen(address)
        return await super().create_server(factory, **options)

    @override
    async def create_connection(  # type: ignore[override]  # any arguments
        self,
        factory: Any,
        *address: Any,
    ) -> Any:
        sock = cast("socket.socket", self._world.open_socket())
        try:
            await self.sock_connect(sock, address)
        except OSError:
            sock.close()
            raise
        return await super().create_connection(factory, sock=sock)

    def _task(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, Any],
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, context=context)
        process = _PROCESS.get() if context is None else context.get(_PROCESS)
        if process is not None:
            process.tasks[task] = None
            forget = partial(_forget, process)
            task.add_done_callback(forget, context=_THE_WORLD)
        return task

    def drop(self, process: VirtualProcess) -> None:
        """Lay all callbacks of a process aside."""
        nothing = asyncio.Handle(lambda: None, (), self)
        nothing.cancel()
        handles = list(self._ready)
        for position, handle in enumerate(handles):
            if _process_of(handle) is process:
                process.never.append(handle)
                self._ready[position] = nothing  # the turn has counted them
        for timer in self._scheduled:
            if _process_of(timer) is process:
                timer.cancel()

    def resume(self, process: VirtualProcess) -> None:
        """Run what was laid aside after all."""
        self._ready.extend(process.never)

    def abort_all(self) -> None:
        """Close what has still something to send, and no receiver.

        One that was closed and has sent all is over: it has no loop to abort it.
        """
        transports = list(self._transports.values())
        for transport in transports:
            is_unsent = transport.get_write_buffer_size() > 0
            if is_unsent or not transport.is_closing():
                transport.abort()

    def next_timer(self) -> float:
        """Return when the next timer is due, wall seconds."""
        return self._scheduled[0].when()

    def timers(self) -> list[str]:
        """Return the timers that are set, without those of the world itself."""
        timers = []
        for handle in self._scheduled:
            if handle.cancelled():
                continue
            if _process_of(handle) is not None:
                timers.append(repr(handle))
        return timers


class World:
    """Virtual time, and everything in it.

    ``seed`` and ``calm``: as `Draws` has them; ``damages``: of wires; ``deaths``: the
    step at which a process dies by its name.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        calm: bool = True,
        damages: Iterable[Damage] = (),
        deaths: Mapping[str, int] | None = None,
    ) -> None:
        draws = Draws(seed, calm=calm)
        self.network = Network(draws, damages, self._at)
        self.deaths = dict(deaths or {})
        self.processes: list[VirtualProcess] = []
        self._turns = 0
        self._memory: dict[str, int] = {}
        self._opened: list[int] = []
        self._lives: list[asyncio.Task[Any]] = []
        self.complaints: list[str] = []
        self.buried = False
        """True once killed processes have unwound: nothing counts any more."""
        self.loop = VirtualLoop(self)
        self.loop.set_exception_handler(self._complain)

    def host(self) -> Host:
        """Return the computer that everything runs on."""
        return Host(
            monotonic=lambda: self.network.now,
            thread_time=lambda: 0.0,
            name_of_clock=lambda: "virtual",
            process_id=lambda: getattr(_PROCESS.get(), "number", _FIRST_ID - 1),
            draw=self.network.draws.secret,
            open_socket=cast("Any", self.open_socket),
            listen=cast("Any", self.listen),
            create_memory=self._create_memory,
            open_memory=self._open_memory,
            precise_timers=lambda: False,
        )

    def _create_memory(self) -> tuple[int, str]:
        fd, _ = create_memory()
        path = f"/proc/virtual/{len(self._memory)}"
        self._memory[path] = os.dup(fd)
        self._opened.append(fd)
        return fd, path

    def _open_memory(self, path: str, _access: int) -> int:
        fd = os.dup(self._memory[path])
        self._opened.append(fd)
        return fd

    # Time.

    def pass_time(self, timeout: float | None) -> None:
        """Go to the next timer."""
        self._turns += 1
        now = self.network.now

        if timeout is None:
            raise Stuck(f"nothing will happen any more after {now:.3f} s")
        if self._turns > TURNS:
            raise Stuck(f"{TURNS} turns of the loop, and it goes on")
        if timeout > 0:
            self.network.now = self.loop.next_timer()
        else:
            # Late in a long job a turn is less than floats tell.
            least = math.nextafter(now, math.inf)
            self.network.now = max(now + _TURN, least)

    def _at(
        self,
        wall: float,
        callback: Callable[..., object],
        *args: Any,
    ) -> None:
        """Call back at a wall time, as the world itself."""
        self.loop.call_at(wall, callback, *args, context=_THE_WORLD)

    def open_socket(self, *_: Any, **__: Any) -> VirtualSocket:
        """Return a socket of the process that runs, whatever its kind."""
        return VirtualSocket(self.network, _PROCESS.get())

    def listen(self, address: tuple[Any, ...], **_: Any) -> VirtualSocket:
        """Return a socket of the process that runs, which listens at an address."""
        return self.network.listen(address, _PROCESS.get())

    # Processes.

    def start(
        self,
        name: str,
        work: Callable[[], Coroutine[Any, Any, int]],
        *,
        on_end: Callable[[str, int], object] = lambda *_: None,
    ) -> VirtualProcess:
        """Start a process; a parent that lives gets a call when it ends."""
        process = VirtualProcess(self, name, _PROCESS.get())
        self.processes.append(process)
        life = self._live(process, work)
        task = self.loop.create_task(life, context=process.context)

        def end(_: asyncio.Task[int]) -> None:
            if process.code is None:
                is_failure = task.cancelled() or task.exception()
                code = 1 if is_failure else task.result()
                self._end(process, code)

        task.add_done_callback(end, context=_THE_WORLD)
        process.tasks.pop(task)  # it ends the others
        self._lives.append(task)
        parent = process.parent

        async def report() -> None:
            await process.ended.wait()
            if parent is None or not parent.dead:
                on_end(name, cast("int", process.code))

        context = parent.context if parent is not None else _THE_WORLD
        reporting = self.loop.create_task(report(), context=context)
        self._lives.append(reporting)
        if parent is not None:
            parent.tasks.pop(reporting)
        return process

    async def _live(
        self,
        process: VirtualProcess,
        work: Callable[[], Coroutine[Any, Any, int]],
    ) -> int:
        try:
            return await work()
        finally:
            rest = [task for task in process.tasks if not task.done()]
            process.left = [repr(task) for task in rest]
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

    def kill(self, process: VirtualProcess) -> None:
        """End a process at once, as SIGKILL does, and its children with it."""
        if process.code is not None:
            return
        process.dead = True
        self.loop.drop(process)
        self._end(process, KILLED)
        for child in self.processes:
            if child.parent is process:
                self.kill(child)

    def _end(self, process: VirtualProcess, code: int) -> None:
        process.code = code
        # A list: one that is closed leaves the sockets.
        sockets = list(self.network.sockets.values())
        for sock in sockets:
            if sock.owner is process:
                sock.close()
        process.ended.set()

    # The end.

    def _complain(
        self,
        _loop: asyncio.AbstractEventLoop,
        context: dict[str, Any],
    ) -> None:
        if self.buried:
            return
        culprit = None
        for key in ("exception", "task", "future"):
            culprit = culprit or context.get(key)
        message = context["message"]
        self.complaints.append(f"{message}: {culprit!r}")

    def close(self) -> None:
        """End everything; complain of what is left over."""
        for timer in self.loop.timers():
            self.complaints.append(f"a timer is left: {timer}")
        for sock in self.network.sockets.values():
            if sock.owner:
                self.complaints.append(f"a socket of {sock.owner.name} is left")

        rest = [task for task in self._lives if not task.done()]
        for process in self.processes:
            process.dead = False
            process.dies_at = 0
            self.loop.resume(process)
            rest += [task for task in process.tasks if not task.done()]
        for task in rest:
            task.cancel()
        if rest:
            self.buried = True
            with contextlib.suppress(Stuck):
                self.loop.run_until_complete(asyncio.wait(rest, timeout=_UNWIND))
                self.loop.abort_all()
                self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()
        self._close_memory()
        # A coordinator moves all objects that are there when it begins, those of the
        # world too, where the garbage collector seldom looks.
        self._lives.clear()
        for process in self.processes:
            process.never.clear()

    def _close_memory(self) -> None:
        inodes = {os.fstat(fd).st_ino for fd in self._memory.values()}
        for fd in self._opened:  # the number may be another file's by now
            with contextlib.suppress(OSError):
                inode = os.fstat(fd).st_ino
                if inode in inodes:
                    os.close(fd)
        for fd in self._memory.values():
            os.close(fd)
