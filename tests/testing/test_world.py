"""Processes of trials in virtual time: who learns of an end, and when."""

from __future__ import annotations

import asyncio

import pytest

from emu.testing.trials.world import KILLED, World


@pytest.mark.parametrize(
    ("parent_dies", "heard"),
    [
        # The parent lives for 5 s, the child for 2.
        (None, [("child", 3, 2.0), ("parent", 0, 5.0)]),
        (4.0, [("child", 3, 2.0), ("parent", KILLED, 4.0)]),
        # Children die with their parent, who hears nothing of it.
        (1.0, [("parent", KILLED, 1.0)]),
    ],
)
def test_a_parent_that_lives_hears_of_the_end_of_its_child(
    parent_dies: float | None, heard: list[tuple[str, int, float]]
) -> None:
    world = World()
    found: list[tuple[str, int, float]] = []

    def note(name: str, code: int) -> None:
        found.append((name, code, round(world.network.now, 3)))

    async def child() -> int:
        await asyncio.sleep(2.0)
        return 3

    async def parent() -> int:
        world.start("child", child, on_end=note)
        await asyncio.sleep(5.0)
        return 0

    began = world.network.now
    process = world.start("parent", parent, on_end=note)
    if parent_dies is not None:
        world.loop.call_at(began + parent_dies, world.kill, process)
    world.loop.run_until_complete(asyncio.sleep(10.0))
    world.close()

    assert found == [(name, code, began + time) for name, code, time in heard]
    assert not world.complaints
