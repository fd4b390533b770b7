"""Parts of connections, each without a socket."""

from __future__ import annotations

import asyncio
import platform
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from emu.emulation.network import tuning
from emu.emulation.network.control import QUEUE, ControlConnection, ControlServer
from emu.emulation.network.data_server import DataConnection
from emu.emulation.network.inbox import Inbox
from emu.emulation.wire.data_reader import DataReader
from emu.errors import NodeLost
from emu.prediction.core import lib


@pytest.mark.parametrize(
    ("paused", "queued", "resumes"),
    [(True, QUEUE // 2 - 1, True), (True, QUEUE // 2, False), (False, 0, False)],
)
def test_reading_goes_on_below_half_of_the_queue(
    queued: int, *, paused: bool, resumes: bool
) -> None:
    """Reading that went on at the limit would stop again at the next message."""
    resumed: list[bool] = []
    connection: Any = object.__new__(ControlConnection)
    connection._paused = paused
    connection._queue = deque(range(queued))
    connection._transport = SimpleNamespace(resume_reading=lambda: resumed.append(True))
    connection._read_on()
    assert resumed == [True] * resumes
    assert connection._paused is (paused and not resumes)


@pytest.mark.parametrize("fate", ["ends", "fails", "is cancelled"])
async def test_a_connection_whose_service_failed_is_kept_for_the_error(
    fate: str,
) -> None:
    """A service that ends or is cancelled leaves no handle."""
    server: Any = object.__new__(ControlServer)
    server._handles = {}

    async def serve(_connection: object) -> None:
        if fate == "fails":
            raise ValueError("it failed")
        if fate == "is cancelled":
            raise asyncio.CancelledError

    server._serve = serve
    server._on_made(None)
    (handle,) = server._handles
    await asyncio.wait([handle])
    await asyncio.sleep(0)
    assert [*server._handles] == [handle] * (fate == "fails")
    if fate == "fails":
        with pytest.raises(ValueError, match="it failed"):
            await handle


async def test_who_gives_up_as_its_edge_fails_is_cancelled() -> None:
    """It asked to be, and is not told of the edge."""
    inbox = Inbox("w0")
    waiting = asyncio.ensure_future(inbox.get(5, 0))
    await asyncio.sleep(0)
    inbox.fail(5, NodeLost("gone"))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


def test_bursts_of_a_stranger_were_not_watched() -> None:
    connection: Any = object.__new__(DataConnection)
    for frames, burst in (
        (None, -1.0),
        (SimpleNamespace(core=SimpleNamespace(burst=7)), 7.0),
    ):
        connection._end = SimpleNamespace(frames=frames)
        assert connection.largest_burst == burst


@pytest.mark.parametrize("is_open", [True, False])
def test_a_connection_that_is_closed_receives_no_more(*, is_open: bool) -> None:
    calls: list[Any] = []
    connection: Any = object.__new__(DataConnection)
    connection._open = is_open
    connection._sock = SimpleNamespace(fileno=lambda: 9)
    connection._loop = SimpleNamespace(add_reader=lambda *given: calls.append(given))
    connection._receive = lambda: calls.append("received")
    connection.take_back()
    assert calls == [(9, connection._receive), "received"] * is_open


@pytest.mark.parametrize(
    ("fd", "part", "begin", "end", "receives", "inside"),
    [
        (0, "AT_PREFIX", 4, 4, True, False),
        (-1, "AT_PREFIX", 4, 5, False, True),
        (7, "AT_BODY", 4, 4, True, True),
    ],
)
def test_a_reader_is_inside_a_frame_from_its_first_byte_on(
    fd: int, part: str, begin: int, end: int, *, receives: bool, inside: bool
) -> None:
    reader: Any = object.__new__(DataReader)
    number = getattr(lib, part)
    reader.core = SimpleNamespace(fd=fd, part=number, begin=begin, end=end)
    assert reader.receives is receives
    assert reader.inside is inside


def test_a_processor_without_a_known_number_has_the_slice_of_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    assert tuning._set_slice(0) is None
