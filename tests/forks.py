"""Workers that are forks of the process that has collected the tests: ``--forks 2``.

Workers that are started each import and collect all tests, 11 s of CPU. A fork has
them. Each has a range of the tests; whose range has ended takes the later half of the
longest that is left. What a worker that dies leaves is reported as failed.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import mmap
import os
import signal
import tempfile
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection, Pipe, wait
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
import pytest

#: Wall seconds from one look for workers that have died to the next.
_PATIENCE = 1.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that asks for workers."""
    help_text = "run tests in so many forks of this process"
    parser.addoption("--forks", type=int, default=0, help=help_text)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run all tests in forks, where some are asked for."""
    config = session.config
    count = config.getoption("forks")
    # What cannot be collected, and a list of tests, is pytest's own business.
    if not count or session.testsfailed or config.option.collectonly:
        return None

    # Folders of workers lie in it.
    config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    gc.collect()
    gc.freeze()
    workers: dict[Connection, int] = {}
    with tempfile.TemporaryFile() as lock:
        ranges = Ranges(len(session.items), count, lock)
        try:
            for number in range(count):
                receiving, sending = Pipe(duplex=False)
                pid = os.fork()
                if not pid:
                    _work(session, number, ranges, sending)
                sending.close()
                workers[receiving] = pid
            _report(session, workers)
        finally:
            for pid in workers.values():
                os.kill(pid, signal.SIGINT)
            for pid in workers.values():
                os.waitpid(pid, 0)
    return True


class Ranges:
    """Positions of tests, a range for each worker, in memory that forks share."""

    def __init__(self, tests: int, workers: int, lock: IO[bytes]) -> None:
        bounds = np.linspace(0, tests, workers + 1).astype(np.int64)
        memory = mmap.mmap(-1, 2 * bounds.itemsize * workers)
        self._ranges = np.frombuffer(memory, np.int64).reshape(workers, 2)
        self._ranges[:, 0] = bounds[:-1]
        self._ranges[:, 1] = bounds[1:]
        self._lock = lock

    def take(self, worker: int) -> int | None:
        """Return the next position for a worker, None where none is left."""
        # A lock of a process ends with it, also where it is killed.
        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        try:
            first, end = self._ranges[worker].tolist()
            if first == end:
                first, end = self._steal()
            if first == end:
                return None
            self._ranges[worker] = first + 1, end
            return int(first)
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)

    def _steal(self) -> tuple[int, int]:
        """Return the later half of the longest range, which ends before it."""
        lengths = self._ranges[:, 1] - self._ranges[:, 0]
        longest = self._ranges[lengths.argmax()]
        first, end = longest.tolist()
        middle = (first + end) // 2
        longest[1] = middle
        return middle, end


def _work(
    session: pytest.Session, number: int, ranges: Ranges, sending: Connection
) -> None:
    """Run tests for as long as there are some; does not return."""
    code = 1
    try:
        _become_worker(session.config, number, sending)
        position = ranges.take(number)
        while position is not None:
            later = ranges.take(number)
            item = session.items[position]
            following = None if later is None else session.items[later]
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            position = later
        code = 0
    except BaseException:  # noqa: BLE001 - no exception leaves a fork
        traceback.print_exc()
    finally:
        # Where it was interrupted, fixtures are still there.
        with contextlib.suppress(BaseException):
            session._setupstate.teardown_exact(None)
        os._exit(code)


def _become_worker(config: pytest.Config, number: int, sending: Connection) -> None:
    """Give a fork its own captured output and folder, and its reports a way."""
    plugins = config.pluginmanager
    capture: Any = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
    capture.start_global_capturing()
    capture.suspend_global_capture()

    factory: Any = config._tmp_path_factory  # type: ignore[attr-defined]
    folder = factory.getbasetemp() / f"worker{number}"
    folder.mkdir(mode=0o700)
    factory._basetemp = folder

    # Plugins ask it for where to write to.
    terminal: Any = plugins.getplugin("terminalreporter")
    plugins.unregister(terminal)
    plugins.register(SimpleNamespace(_tw=terminal._tw), "terminalreporter")
    plugins.register(_Reports(config, sending))


class _Reports:
    """Sends what is reported in a worker."""

    def __init__(self, config: pytest.Config, sending: Connection) -> None:
        self._config = config
        self._sending = sending

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self._sending.send(("logstart", {"nodeid": nodeid, "location": location}))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(
            config=self._config, report=report
        )
        self._sending.send(("logreport", data))

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        self._sending.send(("logfinish", {"nodeid": nodeid, "location": location}))


def _report(session: pytest.Session, workers: dict[Connection, int]) -> None:
    """Report what workers send, and at the end what none has finished.

    Raises pytest.Session.Failed and Interrupted as pytest does.
    """
    hook = session.config.hook
    left = {item.nodeid: item for item in session.items}
    started = set()
    for event, content in _messages(workers):
        if event == "logstart":
            started.add(content["nodeid"])
            hook.pytest_runtest_logstart(**content)
        elif event == "logfinish":
            del left[content["nodeid"]]
            hook.pytest_runtest_logfinish(**content)
        else:
            report = hook.pytest_report_from_serializable(
                config=session.config, data=content
            )
            hook.pytest_runtest_logreport(report=report)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)

    for name, item in left.items():
        problem = "while it ran" if name in started else "before it ran"
        report = pytest.TestReport(
            nodeid=name,
            location=item.location,
            keywords={},
            outcome="failed",
            longrepr=f"its worker died {problem}",
            when="call",
        )
        hook.pytest_runtest_logreport(report=report)


def _messages(workers: dict[Connection, int]) -> Iterator[tuple[str, Any]]:
    """Yield what workers send until all have ended; they are taken out."""
    while workers:
        wait([*workers], timeout=_PATIENCE)
        # Asked before the last that they sent is read.
        ended = [
            connection
            for connection, pid in workers.items()
            if os.waitpid(pid, os.WNOHANG)[0]
        ]
        # Not until they are closed: what workers have started may hold their ends.
        for connection in workers:
            with contextlib.suppress(EOFError):
                while connection.poll():
                    yield connection.recv()
        for connection in ended:
            del workers[connection]
            connection.close()
