"""Payloads waiting for the tasks that need them."""

from __future__ import annotations

import asyncio
import contextlib
import time

import numpy as np
import pytest

from emu.emulation.network.clock import RunClock
from emu.emulation.network.inbox import (
    BufferPool,
    Delivery,
    Handoff,
    Inbox,
    InboxStatistics,
)
from emu.emulation.network.send_log import FrameLog
from emu.emulation.wire.frame_layout import FRAME_ROWS
from emu.errors import DeadlineExceeded, NodeLost, NodeMisbehaved


def delivery(edge: int, iteration: int) -> Delivery:
    return Delivery(edge, iteration, {"x": np.zeros(4)}, arrived=1.0)


async def test_what_is_here_is_taken_at_once() -> None:
    inbox = Inbox()
    inbox.deliver(delivery(1, 0))
    inbox.deliver(delivery(1, 1))

    got = await inbox.get(1, 1)

    assert (got.edge, got.iteration, got.nbytes) == (1, 1, 32)
    assert inbox.statistics == InboxStatistics(1, 32, 2, 64)


async def test_someone_else_takes_what_lies_here_and_what_comes() -> None:
    inbox = Inbox()
    inbox.deliver(delivery(1, 0))
    taken: list[Delivery] = []

    (waiting,) = inbox.forward(taken.append)
    inbox.deliver(delivery(1, 0))
    inbox.deliver(delivery(2, 5))

    assert (waiting.edge, waiting.iteration) == (1, 0)
    assert [(came.edge, came.iteration) for came in taken] == [(1, 0), (2, 5)]
    assert inbox.forward(taken.append) == []


async def test_the_most_that_waited_is_kept_when_it_is_gone() -> None:
    inbox = Inbox()
    inbox.deliver(Delivery(1, 0, {"x": np.zeros(100)}, arrived=1.0))
    await inbox.get(1, 0)
    inbox.deliver(delivery(1, 1))

    assert inbox.statistics == InboxStatistics(1, 32, 1, 800)


async def test_what_is_not_here_is_awaited() -> None:
    inbox = Inbox()
    waiter = asyncio.ensure_future(inbox.get(2, 5))
    await asyncio.sleep(0)

    inbox.deliver(delivery(2, 5))

    assert (await waiter).iteration == 5
    assert inbox.statistics.waiting == 0


async def test_a_deadline_names_who_waits_for_what() -> None:
    with pytest.raises(
        DeadlineExceeded, match=r"w3 waited 0.001 s for iteration 7 of edge 2"
    ):
        await Inbox("w3").get(2, 7, within=0.001)


async def test_a_failed_edge_fails_waiters_now_and_later() -> None:
    inbox = Inbox()
    waiter = asyncio.ensure_future(inbox.get(2, 1))
    other = asyncio.ensure_future(inbox.get(3, 1))
    await asyncio.sleep(0)
    inbox.deliver(delivery(2, 0))

    inbox.fail(2, NodeLost("g0 has gone"))
    inbox.fail(2, NodeLost("a consequence"))  # the first is the cause

    with pytest.raises(NodeLost, match="g0 has gone"):
        await waiter
    assert (await inbox.get(2, 0)).iteration == 0
    with pytest.raises(NodeLost, match="g0 has gone"):
        await inbox.get(2, 2)
    assert not other.done()
    other.cancel()


async def test_a_cancelled_waiter_loses_nothing() -> None:
    inbox = Inbox()
    waiter = asyncio.ensure_future(inbox.get(0, 0))
    await asyncio.sleep(0)

    inbox.deliver(delivery(0, 0))
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter

    assert (await inbox.get(0, 0)).iteration == 0


async def test_twice_is_misbehaviour_and_two_waiters_are_misuse() -> None:
    inbox = Inbox()
    inbox.deliver(delivery(0, 0))
    with pytest.raises(NodeMisbehaved, match="edge 0 delivered iteration 0 twice"):
        inbox.deliver(delivery(0, 0))

    waiter = asyncio.ensure_future(inbox.get(0, 1))
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="awaited already"):
        await inbox.get(0, 1)
    waiter.cancel()


async def test_release_gives_pooled_memory_back() -> None:
    pool = BufferPool()
    buffer = pool.acquire(100)
    Delivery(0, 0, {}, 0.0, buffer=buffer).release()
    Delivery(0, 1, {}, 0.0).release()

    assert pool.statistics.in_use == 0


async def test_a_deadline_that_meets_its_delivery_loses_nothing() -> None:
    """Both happen in one turn of the loop; the payload is there for the next."""
    inbox = Inbox()
    waiter = asyncio.ensure_future(inbox.get(0, 0, within=0.001))
    await asyncio.sleep(0)
    time.sleep(0.005)  # noqa: ASYNC251 - now the timer is overdue

    inbox.deliver(delivery(0, 0))
    with contextlib.suppress(DeadlineExceeded):
        inbox.deliver(await waiter)

    assert (await inbox.get(0, 0, within=1)).iteration == 0


async def test_a_payload_is_there_at_once_and_cannot_be_written() -> None:
    inbox, departures, arrivals = Inbox(), FrameLog(), FrameLog()
    handoff = Handoff(3, inbox, departures, arrivals)
    sent = np.arange(4.0)

    await handoff.send(1, {"x": sent}, shaped=False)
    delivery = await inbox.get(3, 1, within=0.0)

    assert np.shares_memory(delivery.payload["x"], sent)
    with pytest.raises(ValueError, match="read-only"):
        delivery.payload["x"][0] = 1.0
    delivery.release()
    for log in (departures, arrivals):
        (piece,) = log.pieces(RunClock(0.0, 1.0))
        (row,) = np.frombuffer(piece, FRAME_ROWS)
        assert (row["edge"], row["iteration"], row["bytes"]) == (3, 1, 32)


async def test_an_iteration_is_handed_over_once() -> None:
    handoff = Handoff(3, Inbox(), FrameLog(), FrameLog())
    await handoff.send(0, {})
    with pytest.raises(NodeMisbehaved, match="edge 3 delivered iteration 0 twice"):
        await handoff.send(0, {})
