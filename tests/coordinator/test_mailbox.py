"""Everything once, in order, without waiting longer than asked to."""

from __future__ import annotations

import asyncio
from contextlib import closing

from emu.coordinator.peers import Mailbox


async def test_all_that_has_come_is_given_once_and_in_order() -> None:
    with closing(Mailbox[int]()) as mail:
        for n in range(5):
            mail.put(n)

        assert await mail.everything(10.0) == [0, 1, 2, 3, 4]
        assert await mail.everything(0.001) == []


async def test_who_waits_is_woken_and_gets_what_comes_in_the_same_turn() -> None:
    with closing(Mailbox[str]()) as mail:
        waiting = asyncio.ensure_future(mail.everything(10.0))
        await asyncio.sleep(0)
        mail.put("a")
        mail.put("b")

        assert await waiting == ["a", "b"]


async def test_a_waiter_that_gave_up_loses_nothing() -> None:
    with closing(Mailbox[int]()) as mail:
        waiting = asyncio.ensure_future(mail.everything(10.0))
        await asyncio.sleep(0)
        waiting.cancel()
        mail.put(1)

        assert await mail.everything(10.0) == [1]
