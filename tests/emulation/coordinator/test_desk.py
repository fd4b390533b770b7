"""What the core notes of ends, beside what Python makes of the same decisions."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from emu.emulation.coordinator.desk import Desk, _newest_reads
from emu.emulation.wire.messages import FlowEnded, RunTask, TaskEnded, WakeSender
from emu.emulation.wire.notes import Ended, pack_end, pack_order, unpack_orders
from emu.errors import MalformedFrame, NodeMisbehaved
from emu.prediction.scheduling import Decisions, Scheduler
from emu.problem import Edge, Job, Problem, Realization, Task
from emu.testing import two_machine_example
from emu.testing.strategies import random_problem
from tests.emulation.coordinator.virtual import PerfectProcesses, drive
from tests.fidelity.corpus import RULES


class Compares(PerfectProcesses):
    """Compares what is sent with the decisions of which it is notified afterwards."""

    def __init__(self, problem: Problem, realization: Realization) -> None:
        super().__init__(problem, realization)
        self._rates: list[tuple[object, ...]] = []
        self._runs: list[tuple[int, int, float]] = []
        self._woken: dict[int, float] = {}
        self.compared = 0
        self.told: set[tuple[int, int]] = set()

    @override
    def publish(self, desk: Desk) -> None:
        super().publish(desk)
        self._rates = rows(desk.rates)

    @override
    def order(self, speaker: str, notes: bytes) -> None:
        super().order(speaker, notes)
        for order in unpack_orders(notes):
            if isinstance(order, RunTask):
                self._runs.append((order.task, order.iteration, order.start))
            else:
                self._woken[order.edge] = order.since

    @override
    def on_decisions(self, decisions: Decisions) -> None:
        super().on_decisions(decisions)
        self._decided = [*getattr(self, "_decided", []), decisions]

    @override
    def task_started(self, message: RunTask) -> None:
        self._runs.remove((message.task, message.iteration, message.start))

    def compare(self) -> None:
        """Compare all since the last time: of an edge the newest rate was published."""
        newest = {}
        for decisions in self.__dict__.pop("_decided", []):
            for row in rows(decisions.news):
                newest[row[0]] = row
        assert self._rates == [*newest.values()]
        assert self._runs == []
        for edge, iteration, _, rate, since in self._rates:
            flow = (int(edge), int(iteration))  # type: ignore[call-overload]
            if rate and flow not in self.told:  # a flow that begins is always told
                assert self._woken[flow[0]] == since
                self.told.add(flow)
        self.compared += len(self._rates)
        self._rates = []
        self._woken = {}

    @override
    def next_events(self) -> list[TaskEnded | FlowEnded]:
        self.compare()
        return super().next_events()


def rows(lines: object) -> list[tuple[object, ...]]:
    names = ("edge", "iteration", "served", "rate", "since")
    columns = (getattr(lines, name).tolist() for name in names)
    return [*zip(*columns, strict=True)]


@given(st.integers(0, 2**32), st.sampled_from(RULES))
def test_what_is_sent_is_what_was_decided(seed: int, policy: str) -> None:
    problem, realization = random_problem(np.random.default_rng(seed))
    outlet = Compares(problem, realization)
    drive(problem, realization, policy, processes=outlet)
    outlet.compare()


def test_something_is_compared() -> None:
    problem, realization = two_machine_example(3)
    outlet = Compares(problem, realization)
    drive(problem, realization, "oes", processes=outlet)
    assert outlet.compared > 10
    assert len(outlet.told) > 5


def desk_of(*others: int) -> Desk:
    """Return the desk of a run in which ``one`` speaks for all tasks but these."""
    problem, _ = two_machine_example(2)
    desk = Desk(problem, Scheduler(problem, "oes"))
    speakers = dict.fromkeys(range(len(problem.job.tasks)), "one")
    desk.begin({**speakers, **dict.fromkeys(others, "two")})
    return desk


def test_orders_are_parted_by_who_they_are_for() -> None:
    """Three bytes are for the first speaker, four for the second."""
    desk = desk_of(3)
    desk._orders[:7] = bytes(range(10, 17))
    core = desk.core
    for place, start in enumerate((0, 3, 7)):
        core.order_start[place] = start
    core.addressed[0] = 1
    core.addressed[1] = 0
    core.addressees = 2

    first, second = bytes(range(10, 13)), bytes(range(13, 17))
    assert desk.written_orders() == [("two", second), ("one", first)]


def test_an_end_that_has_settled_has_every_figure_of_its_report() -> None:
    """Task 1 ends iteration 1; all other cells of the desk hold other figures."""
    desk = desk_of()
    for number, name in enumerate(("task_start", "began", "cpu", "late"), 1):
        column = getattr(desk, name)
        column[:] = number * 100.0
        column[1, 1] = float(number)
    desk.ended_task[:1], desk.ended_iteration[:1], desk.ended_time[:1] = 1, 1, 9.0
    desk.ended_edge[1], desk.ended_iteration[1], desk.ended_task[1] = 4, 0, -1
    desk.ended_time[1], desk.ended_volume[1] = 9.5, 2.5
    desk.core.ended = 2

    task, flow = desk.ends()
    assert isinstance(task, TaskEnded)
    assert (task.task, task.iteration, task.end) == (1, 1, 9.0)
    assert (task.start, task.began, task.cpu, task.late) == (1.0, 2.0, 3.0, 4.0)
    job = two_machine_example(2)[0].job
    assert task.edges == [*job.out_edges(1)]
    assert flow == FlowEnded(4, 0, 9.5, 2.5)


def test_reads_of_the_newest_are_those_of_the_reader_with_bytes() -> None:
    """Task 2 has two, tasks 0 and 1 one and none; what only controls is not read."""
    edges = (
        Edge(0, 2, latest=True),
        Edge(0, 1),
        Edge(1, 2, 1, latest=True),
        Edge(2, 0, 1, latest=True),
        Edge(3, 2, 1, latest=True),
    )
    tasks = tuple(Task(f"t{n}", "task", gate=n == 3) for n in range(4))
    job = Job(tasks, edges, 2)
    assert job.control[4]

    starts, reads = _newest_reads(job)
    assert starts.tolist() == [0, 1, 1, 3, 3]
    assert reads.tolist() == [3, 0, 2]


def end_of(task: int, **changes: object) -> TaskEnded:
    fields = {"edges": [0], "volumes": [1.0], "report": {}, **changes}
    return TaskEnded(
        task=task, iteration=0, start=0.0, end=2.0, began=0.0, cpu=0.0, late=0.0,
        **fields,  # type: ignore[arg-type]
    )  # fmt: skip


def test_ends_wait_in_the_order_of_their_times_then_of_their_coming() -> None:
    desk = desk_of()
    ends: list[Ended] = [
        FlowEnded(edge, 0, time, 1.0) for edge, time in ((1, 3.0), (2, 1.0), (4, 3.0))
    ]
    notes = b"".join(map(pack_end, [*ends, end_of(0, report={"loss": 1.5})]))
    (told,) = desk.take("one", notes, now=2.5)

    assert told.report == {"loss": 1.5}
    count = desk.core.waiting
    assert desk.edge[:count].tolist() == [2, -1, 1, 4]
    assert desk.time[:count].tolist() == [1.0, 2.0, 3.0, 3.0]
    assert desk.core.last_past == 2.0


@pytest.mark.parametrize("speaker", ["one", "two", "stranger"])
def test_who_speaks_for_others_speaks_for_no_more(speaker: str) -> None:
    desk = desk_of(0)
    foreign = pack_end(end_of(1, edges=[]) if speaker == "two" else end_of(0))
    with pytest.raises(NodeMisbehaved, match=f"{speaker} ended a task that is not its"):
        [*desk.take(speaker, foreign, 0.0)]


def test_an_end_counts_whole_or_not_at_all() -> None:
    desk = desk_of()
    bad = pack_end(end_of(0, edges=[0, 1], volumes=[7.0, math.nan]))
    with pytest.raises(NodeMisbehaved, match="bytes are no number"):
        [*desk.take("one", bad, 0.0)]
    assert desk.core.waiting == 0
    assert desk.volumes[0, 0] == 0.0


def test_more_ends_than_can_be_under_way_are_refused() -> None:
    desk = desk_of()
    notes = pack_end(FlowEnded(1, 0, 1.0, 1.0)) * (desk.core.room + 1)
    with pytest.raises(NodeMisbehaved, match="more has ended than can be"):
        [*desk.take("one", notes, 0.0)]
    assert desk.core.waiting == desk.core.room


NOISE = st.binary(max_size=120) | st.sampled_from(
    [
        pack_end(FlowEnded(1, 0, 1.0, 1.0)),
        pack_end(end_of(0)),
        pack_end(end_of(2**31 - 1)),
        pack_end(FlowEnded(-5, -1, 1.0, 1.0)),
        pack_end(end_of(1, edges=[-3, 2**40], volumes=[1.0, 1.0])),
        pack_order(WakeSender(1, 1.0)),
    ]
)


@given(st.lists(NOISE, max_size=6), st.integers(0, 150))
def test_nonsense_is_misbehaviour_and_touches_nothing_else(
    noise: list[bytes], cut: int
) -> None:
    """Arrays stand within one another's reach: what is beyond one shows in others."""
    desk = desk_of(3)
    notes = b"".join(noise)
    with contextlib.suppress(NodeMisbehaved, MalformedFrame):
        [*desk.take("one", notes[: len(notes) - cut], 0.0)]
    assert set(np.flatnonzero(desk.volumes.any(axis=1))) <= {0}
    assert set(np.flatnonzero(desk.known + 1)) <= {0}
    assert not desk.published.any()
