"""The fork server: no address, nothing left behind, ends told, dies with its agent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from emu.emulation.launch.fork import ForkServer
from emu.emulation.launch.fork_server import pack
from emu.host.interruption import StopWatch
from tests.emulation.launch.specs import process_spec

HERE = Path(__file__).parent

pytestmark = pytest.mark.cold


class Ends:
    """A fork server; what its processes run is in ``programs`` beside this file."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self.lost: list[str] = []
        self.server = ForkServer(self.codes.__setitem__, self.lost.append)

    async def start(
        self, *processes: str, preload: Sequence[str] = (), late: Sequence[str] = ()
    ) -> None:
        """Fork one process per name; the name says what it does."""
        await self.server.start()
        specs = [process_spec(name) for name in processes]
        await self.server.fork(specs, [*preload], late)

    def children(self) -> dict[str, psutil.Process]:
        """Return the forked processes by name, and the server as such."""
        found = psutil.Process().children(recursive=True)
        return {process.name(): process for process in found}


@contextlib.asynccontextmanager
async def forking(
    monkeypatch: pytest.MonkeyPatch, *processes: str, late: Sequence[str] = ()
) -> AsyncIterator[Ends]:
    path = f"{HERE / 'programs'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    monkeypatch.setenv("PYTHONPATH", path)
    ends = Ends()
    await ends.start(*processes, late=late)
    try:
        yield ends
    finally:
        await ends.server.aclose(0.0)
    assert not psutil.Process().children()


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 -- of other processes
            await asyncio.sleep(0.01)


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in for the temporary folder, in which another user was first."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


async def test_ends_are_told_with_their_status(monkeypatch: pytest.MonkeyPatch) -> None:
    async with forking(monkeypatch, "exit 0", "exit 3", "raise", "sleep") as ends:
        await until(lambda: len(ends.codes) == 3 and "emu:sleep" in ends.children())
        assert ends.codes == {"exit 0": 0, "exit 3": 3, "raise": 1}
        ends.children()["emu:sleep"].kill()
        await until(lambda: len(ends.codes) == 4)

        assert ends.codes["sleep"] == -signal.SIGKILL
        assert not ends.lost


async def test_processes_have_what_was_prepared_before_their_fork(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with forking(monkeypatch, "exit 0", "count a", "count b") as ends:
        await until(lambda: len(ends.codes) == 3)

    assert ends.codes == {"exit 0": 0, "count a": 2, "count b": 3}


async def test_late_modules_are_imported_before_the_fork_where_they_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = ["no_such_library", "colorsys"]
    names = [f"imported {module}" for module in (*late, "chunk")]
    async with forking(monkeypatch, *names, late=late) as ends:
        await until(lambda: len(ends.codes) == 3)

    assert ends.codes == dict(zip(names, (0, 1, 0), strict=True))
    assert not ends.lost


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("raise OSError('libc10.so: not found')", "OSError: libc10.so: not found"),
        ("raise ImportError", "ImportError: "),
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_"),
        ("def", "SyntaxError: invalid syntax"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
async def test_what_does_not_import_is_named_once_and_nothing_is_forked(
    source: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    ends = Ends()
    try:
        await ends.start("one", "two", preload=["torch", "emu.graph_data"])
        await until(lambda: ends.lost)
        await asyncio.sleep(0.1)
        left = ends.children()
    finally:
        await ends.server.aclose(0.0)

    assert len(ends.lost) == 1
    assert ends.lost[0].startswith(f"torch does not import: {said}")
    assert not ends.codes
    assert not any(name.startswith("emu:") for name in left)


async def test_everybody_computes_with_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with forking(monkeypatch, "sleep") as ends:
        await until(lambda: "emu:sleep" in ends.children())
        stated = [process.environ() for process in ends.children().values()]

    threads = {e[name] for e in stated for name in e if name.endswith("NUM_THREADS")}
    assert threads == {"1"}


async def test_there_is_no_address_to_be_found_and_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch, scratch: Path
) -> None:
    """The hole of old: the socket lay in emu-agent-<pid> of the temporary folder."""
    squatted = scratch / f"emu-agent-{os.getpid()}"
    squatted.mkdir(mode=0o777)
    async with forking(monkeypatch, "sleep") as ends:
        await until(lambda: "emu:sleep" in ends.children())
        bound = [
            connection.laddr
            for process in ends.children().values()
            for connection in process.net_connections("unix")
        ]

        assert set(bound) <= {""}
        assert names(scratch) == [squatted.name]
        assert names(squatted) == []
        for process in ends.children().values():
            process.kill()
    assert names(scratch) == [squatted.name]


async def test_death_of_the_server_is_named_and_takes_everybody_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with forking(monkeypatch, "sleep", "sleep too") as ends:
        await until(lambda: {"emu:sleep", "emu:sleep too"} <= ends.children().keys())
        processes = list(ends.children().values())
        next(p for p in processes if not p.name().startswith("emu:")).kill()
        await until(lambda: ends.lost)
        await until(
            lambda: (
                not any(
                    p.is_running() and p.status() != psutil.STATUS_ZOMBIE
                    for p in processes
                )
            )
        )

        assert ends.lost == ["the fork server was killed by SIGKILL"]


async def test_server_that_dies_as_it_is_asked_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two of six that were killed before the first fork were a lost connection."""
    async with forking(monkeypatch) as ends:
        (server,) = psutil.Process().children()
        server.kill()
        with contextlib.suppress(psutil.NoSuchProcess):
            while server.status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.001)  # noqa: ASYNC251 -- the loop must not see it yet
        with pytest.raises(OSError, match="the fork server was killed by SIGKILL"):
            await ends.server.fork([process_spec("sleep")], [])


def test_of_two_ends_of_a_server_the_first_is_the_cause() -> None:
    ends = Ends()
    ends.server._lose("it did not import torch")
    ends.server._lose("the fork server was killed")

    assert ends.lost == ["it did not import torch"]


def test_a_server_is_asked_to_kill_its_own_processes_alone() -> None:
    """A server that has not started has none."""
    ends = Ends()
    ends.server.kill("w0")
    written: list[bytes] = []
    ends.server._writer = cast("Any", SimpleNamespace(write=written.append))
    ends.server._alive = {"w0"}
    for process in ("w1", "w0"):
        ends.server.kill(process)

    assert written == [pack({"kill": "w0"})]


async def test_server_that_is_stopped_is_ended_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with forking(monkeypatch, "sleep") as ends:
        await until(lambda: "emu:sleep" in ends.children())
        for process in ends.children().values():
            process.suspend()


async def test_server_that_stays_stopped_is_lost_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Processes that it had yet to fork were what a run missed, at its deadline."""
    monkeypatch.setattr(StopWatch, "PAUSE", 0.02)
    async with forking(monkeypatch, "sleep") as ends:
        await until(lambda: "emu:sleep" in ends.children())
        ends.server.patience = 0.1
        for process in ends.children().values():
            if not process.name().startswith("emu:"):
                process.suspend()
        await until(lambda: ends.lost)
        await until(lambda: not psutil.Process().children())

        assert ends.lost == ["the fork server was stopped for 0.1 s of wall time"]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel does it on Linux")
def test_everybody_dies_with_a_killed_agent(tmp_path: Path) -> None:
    agent = """
import asyncio, os, signal, psutil
from emu.emulation.launch.fork import ForkServer
from tests.emulation.launch.specs import process_spec

async def main():
    server = ForkServer(print, print)
    await server.start()
    await server.fork([process_spec("sleep")], [])
    while not (found := [p for p in psutil.Process().children(recursive=True)
                         if p.name() == "emu:sleep"]):
        await asyncio.sleep(0.01)
    print(*[p.pid for p in psutil.Process().children(recursive=True)], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""

    async def start() -> list[int]:
        paths = [str(HERE / "programs"), os.environ.get("PYTHONPATH", "")]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", agent),
            stdout=asyncio.subprocess.PIPE,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(paths),
                "TMPDIR": str(tmp_path),
            },
        )
        out, _ = await process.communicate()
        return [int(pid) for pid in out.split()]

    pids = asyncio.run(start())
    patience = time.monotonic() + 10
    while any(map(alive, pids)) and time.monotonic() < patience:
        time.sleep(0.01)

    assert len(pids) == 2
    assert not any(map(alive, pids))
    assert list(tmp_path.iterdir()) == []


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
