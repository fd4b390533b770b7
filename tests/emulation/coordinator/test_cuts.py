"""States that processes send: what makes a cut, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace

import numpy as np
import pytest

from emu.emulation.coordinator.cuts import CutKeeper, CutPlan
from emu.emulation.wire.array_parts import PART, state_parts
from emu.emulation.wire.messages import StatePart
from emu.errors import DataError, NodeMisbehaved
from emu.problem import Edge, Job, Task
from emu.problem.job import Cut
from emu.problem.workloads import CHECKPOINT

JOB = Job((Task("ps0", "ps"), Task("ps1", "ps"), Task("w0", "w")), (), 10)
BEGINS = {"ps0": ("ps0",), "ps1": ("ps1",), "w0": ("ps0", "ps1")}


def state(task: str, n: int, size: int = 5) -> list[StatePart]:
    return state_parts(task, n, {"a": np.full(size, float(n)), "b": np.arange(3)})


def test_a_cut_is_kept_when_all_states_are_there() -> None:
    kept: list[Cut] = []
    long = PART // 4

    def keep(cut: Cut) -> None:  # the first takes longer than the second
        time.sleep(0.05 if cut.iteration == 2 else 0.0)
        kept.append(cut)

    async def gather() -> None:
        keeper = CutKeeper(JOB, CutPlan(BEGINS, 2, keep))
        parts = state("ps0", 2, long)
        assert len(parts) > 2
        for part in parts:
            keeper.add("ps0", part)
        for part in state("ps1", 4):
            keeper.add("ps1", part)
        await keeper.finish()
        assert not kept
        for part in [*state("ps1", 2), *state("ps0", 4)]:
            keeper.add(part.task, part)
        await keeper.finish()
        keeper.check()
        assert not keeper._coming  # a whole cut is let go of

    asyncio.run(gather())

    assert [cut.iteration for cut in kept] == [2, 4]
    np.testing.assert_array_equal(kept[0].states["ps0"]["a"], np.full(long, 2.0))
    np.testing.assert_array_equal(kept[1].states["ps1"]["b"], np.arange(3))


@pytest.mark.parametrize(
    ("process", "part"),
    [
        ("ps1", state("ps0", 2)[0]),
        ("w0", state("w0", 2)[0]),
        ("ps0", state("ps0", 3)[0]),
        ("ps0", state("ps0", 10)[0]),
        ("ps0", state("ps0", 0)[0]),
        ("ps0", replace(state("ps0", 2)[0], total=1)),
    ],
)
def test_state_that_fits_no_cut_is_misbehaviour(process: str, part: StatePart) -> None:
    keeper = CutKeeper(JOB, CutPlan(BEGINS, 2, lambda _: None))
    with pytest.raises(NodeMisbehaved, match=f"{process} sent state"):
        keeper.add(process, part)
    with pytest.raises(NodeMisbehaved, match="not asked for"):
        CutKeeper(JOB, None).add(process, part)


def test_state_is_sent_once() -> None:
    keeper = CutKeeper(JOB, CutPlan(BEGINS, 2, lambda _: None))
    for part in state("ps0", 2):
        keeper.add("ps0", part)
    with pytest.raises(NodeMisbehaved, match="the state of ps0 twice"):
        keeper.add("ps0", state("ps0", 2)[0])


def test_state_that_is_cut_short_makes_no_cut() -> None:
    keeper = CutKeeper(Job(JOB.tasks[:1], (), 4), CutPlan({"ps0": ("ps0",)}, 2, print))
    with pytest.raises(NodeMisbehaved, match="the state before 2 is damaged"):
        keeper.add("ps0", replace(state("ps0", 2, PART)[0], last=True))


def test_pieces_of_state_are_as_long_as_announced() -> None:
    keeper = CutKeeper(Job(JOB.tasks[:1], (), 4), CutPlan({"ps0": ("ps0",)}, 2, print))
    first, last = state("ps0", 2)
    keeper.add("ps0", first)
    with pytest.raises(NodeMisbehaved, match="a is longer than announced"):
        keeper.add("ps0", first)

    keeper = CutKeeper(Job(JOB.tasks[:1], (), 4), CutPlan({"ps0": ("ps0",)}, 2, print))
    keeper.add("ps0", first)
    with pytest.raises(NodeMisbehaved, match="b is cut short"):
        keeper.add("ps0", replace(last, total=last.total + 1))


def test_a_cut_that_cannot_be_kept_ends_the_run() -> None:
    def refuse(_: Cut) -> None:
        raise DataError("cannot be written: No space left on device", path="x")

    async def gather() -> None:
        keeper = CutKeeper(JOB, CutPlan(BEGINS, 2, refuse))
        keeper.check()
        for part in [*state("ps0", 2), *state("ps1", 2)]:
            keeper.add(part.task, part)
        keeper.check()  # it is being written
        try:
            await asyncio.sleep(0.05)
            with pytest.raises(DataError, match="No space left"):
                keeper.check()
        finally:
            await keeper.aclose()

    asyncio.run(gather())


@pytest.mark.parametrize("every", [2, 3, 5])
def test_cuts_are_before_multiples_of_their_interval(every: int) -> None:
    """The job has ten iterations; no cut comes before iteration 0."""
    keeper = CutKeeper(JOB, CutPlan(BEGINS, every, lambda _: None))
    taken = []
    for iteration in range(12):
        with contextlib.suppress(NodeMisbehaved):
            keeper.add("ps0", state("ps0", iteration)[0])
            taken.append(iteration)

    assert taken == [*range(every, 10, every)]


def test_with_a_copy_elsewhere_its_process_sends_the_state() -> None:
    """The keeper also sends the state of iteration 4, which is kept already."""
    tasks = (Task("ps0", "ps"), Task("copy", CHECKPOINT, process="keeper"))
    job = Job(tasks, (Edge(0, 1),), 10)
    kept: list[int] = []

    def keep(cut: Cut) -> None:
        kept.append(cut.iteration)

    async def gather() -> None:
        keeper = CutKeeper(job, CutPlan({"ps0": ("ps0",)}, 2, keep, Cut(4, {})))
        with pytest.raises(NodeMisbehaved, match="ps0 sent state that was not asked"):
            keeper.add("ps0", state("ps0", 6)[0])
        for iteration in (4, 6):
            for part in state("ps0", iteration):
                keeper.add("keeper", part)
        await keeper.finish()

    asyncio.run(gather())
    assert kept == [6]


def test_who_begins_with_what() -> None:
    cut = Cut(4, {"ps0": {"a": np.zeros(2)}, "ps1": {"a": np.ones(2)}})
    first, later = (CutPlan(BEGINS, 2, print, start) for start in (Cut(0, {}), cut))
    assert first.owners == ("ps0", "ps1")
    assert first.parts_for(["w0", "ps0"]) == []
    parts = later.parts_for(["w0"])
    assert [(part.task, part.iteration) for part in parts] == [("ps0", 4), ("ps1", 4)]
    assert [part.task for part in later.parts_for(["ps1"])] == ["ps1"]
    # Two tasks of a process begin with a state each.
    both = later.parts_for(["ps1", "ps0", "ps1"])
    assert [part.task for part in both] == ["ps1", "ps0"]
    assert later.parts_for(["g0"]) == []


def test_cuts_of_a_later_attempt_are_numbered_as_of_the_whole_job() -> None:
    """Ten iterations are left of twenty: the last cut is before 18."""
    keeper = CutKeeper(JOB, CutPlan(BEGINS, 2, lambda _: None, Cut(10, {})))
    keeper.add("ps0", state("ps0", 18)[0])
    for n in (10, 20):
        with pytest.raises(NodeMisbehaved, match="not asked for"):
            keeper.add("ps0", state("ps0", n)[0])

    # They are before multiples of their interval, wherever this attempt began.
    rarer = CutKeeper(JOB, CutPlan(BEGINS, 4, lambda _: None, Cut(10, {})))
    rarer.add("ps0", state("ps0", 12)[0])
    with pytest.raises(NodeMisbehaved, match="not asked for"):
        rarer.add("ps0", state("ps0", 14)[0])
