"""Processes that share the work of a comparison, one per core."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Self, TypeVar

from emu.errors import RunError

R = TypeVar("R")


class WorkerPool:
    """Does things in processes of its own while it is entered; a context manager.

    A process ends with its connection, so however this one ends. ``cores`` is how many
    there are; with 1 all is done here. ``watch`` is called with how much is done.
    """

    def __init__(self, cores: int, watch: Callable[[str], None]) -> None:
        self._cores, self._watch = cores, watch
        self._idle = SimpleQueue[Connection]()
        self._processes: list[tuple[subprocess.Popen[bytes], Connection]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        for process, connection in self._processes:
            if error:  # what is under way may take minutes
                process.terminate()
            connection.close()
            process.wait()

    def work(
        self, what: str, function: Callable[..., R], items: Sequence[tuple[Any, ...]]
    ) -> list[R]:
        """Return what a function returns of every item, in their order.

        Raises RunError when a process of the pool was killed.
        """
        self._watch(f"{what}: 0 of {len(items)}")
        count = min(self._cores, len(items))
        if count < 2:
            return [function(*item) for item in items]
        while len(self._processes) < count:
            self._start()
        with ThreadPoolExecutor(count) as threads:
            futures = [threads.submit(self._ask, function, item) for item in items]
            try:
                for number, one in enumerate(as_completed(futures), 1):
                    one.result()
                    self._watch(f"{what}: {number} of {len(items)}")
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                for process, _ in self._processes:
                    process.terminate()
                raise
        return [future.result() for future in futures]

    def _start(self) -> None:
        here, there = socket.socketpair()
        call = f"from {__name__} import serve; serve({there.fileno()})"
        with there:
            process = subprocess.Popen(  # noqa: S603 - ours
                [sys.executable, "-c", call],
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the process that asks
            )
        connection = Connection(here.detach())
        self._processes.append((process, connection))
        self._idle.put(connection)

    def _ask(self, function: Callable[..., R], item: tuple[Any, ...]) -> R:
        connection = self._idle.get()
        try:
            connection.send((function, item))
            answer: tuple[R | None, BaseException | None] = connection.recv()
        except (EOFError, OSError) as error:
            raise RunError("a process of this comparison was killed") from error
        finally:
            self._idle.put(connection)
        result, failure = answer
        if failure is not None:
            raise failure
        return result  # type: ignore[return-value]


def serve(descriptor: int) -> None:
    """Do what is asked through a connection until it ends."""
    with Connection(descriptor) as connection, contextlib.suppress(EOFError, OSError):
        while True:
            function, item = connection.recv()
            try:
                result, failure = function(*item), None
            except Exception as error:  # noqa: BLE001 - raised where it was asked for
                result, failure = None, error
            connection.send((result, failure))
