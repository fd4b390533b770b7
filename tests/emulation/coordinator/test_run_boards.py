"""Boards of a run's hosts: near ones are written, others get messages, by hand."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from typing_extensions import override

from emu.emulation.coordinator.board_record import BoardRecord
from emu.emulation.coordinator.observers import Observer, Observers
from emu.emulation.coordinator.run_boards import RunBoards
from emu.emulation.coordinator.settings import RunSettings
from emu.emulation.network.rate_board import RateBoard
from emu.emulation.shaping import RateSegment
from emu.emulation.wire.messages import RateUpdate, TaskEnded
from emu.prediction.scheduling import RateSegments
from emu.problem import Cluster, Edge, Job, Machine, Placement, Problem, Task

#: Of edges that leave m0, m1 and m0; as many segments of them were decided.
EDGES = (Edge(0, 1), Edge(1, 0, lag=1), Edge(0, 2))
PUBLISHED = [4, 7, 9]


def problem() -> Problem:
    machines = tuple(Machine(f"m{number}", 1.0, 1.0) for number in range(2))
    tasks = tuple(Task(f"t{number}", "task") for number in range(3))
    return Problem(Cluster(machines), Job(tasks, EDGES, 2), Placement((0, 1, 1)))


def segments() -> RateSegments:
    """Return those of the last two edges, each column of its own values."""
    return RateSegments(
        edge=np.array([1, 2]),
        iteration=np.array([0, 1]),
        served=np.array([10.0, 20.0]),
        rate=np.array([2.0, 3.0]),
        since=np.array([0.5, 0.25]),
    )


class Nics:
    """NICs of the kernel: senders get twice the rates."""

    def for_senders(self, told: RateSegments) -> RateSegments:
        """Return what is shown in place of some segments."""
        return RateSegments(
            told.edge, told.iteration, told.served, 2 * told.rate, told.since
        )


class Stage:
    """Boards of two hosts, of which some are near."""

    def __init__(self, boards: list[RateBoard | None], nics: Any = None) -> None:
        self.agents = [
            SimpleNamespace(board=board, host_name=f"m{number}")
            for number, board in enumerate(boards)
        ]
        self.sent: list[tuple[str, RateUpdate]] = []
        membership: Any = SimpleNamespace(
            agents=self.agents,
            send_to_agent=lambda agent, message: self.sent.append(
                (agent.host_name, message)
            ),
        )
        desk = SimpleNamespace(rates=segments(), published=np.array(PUBLISHED))
        self.desk = cast("Any", desk)
        self.record = BoardRecord(len(EDGES))
        recorder: Any = SimpleNamespace(board=self.record)
        settings = RunSettings(kernel_nics=nics)
        self.boards = RunBoards(problem(), membership, settings, self.desk, recorder)


@pytest.fixture
def near() -> Iterator[list[RateBoard]]:
    """Yield two boards of this host."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(contextlib.closing(RateBoard.create(len(EDGES))))
            for _ in range(2)
        ]


def read(board: RateBoard) -> list[RateSegment | None]:
    return [board.read(edge) for edge in range(len(EDGES))]


SHOWN = [None, RateSegment(0, 10.0, 2.0, 0.5), RateSegment(1, 20.0, 3.0, 0.25)]


def test_near_boards_show_all_and_others_are_told(near: list[RateBoard]) -> None:
    stage = Stage([near[0], None])
    stage.boards.publish(stage.desk)

    assert read(near[0]) == SHOWN
    ((host, message),) = stage.sent
    assert host == "m1"
    assert np.frombuffer(message.edges, np.int64).tolist() == [1, 2]
    assert np.frombuffer(message.iterations, np.int64).tolist() == [0, 1]
    assert np.frombuffer(message.served).tolist() == [10.0, 20.0]
    assert np.frombuffer(message.rates).tolist() == [2.0, 3.0]
    assert np.frombuffer(message.since).tolist() == [0.5, 0.25]
    assert np.frombuffer(message.numbers, np.int64).tolist() == [7, 9]
    assert stage.record.rows().tolist() == [(0.5, 1, 0, 2.0), (0.25, 2, 1, 3.0)]


def test_the_core_writes_boards_where_all_are_near(near: list[RateBoard]) -> None:
    assert Stage([*near]).boards.near() == near
    assert Stage([near[0], None]).boards.near() == []
    assert Stage([*near], Nics()).boards.near() == []


def test_with_nics_a_machine_sees_the_rates_of_its_own_senders(
    near: list[RateBoard],
) -> None:
    """Edge 1 leaves m1 and edge 2 leaves m0, each at the rates that senders get."""
    stage = Stage([*near], Nics())
    stage.boards.publish(stage.desk)

    assert read(near[0]) == [None, None, RateSegment(1, 20.0, 6.0, 0.25)]
    assert read(near[1]) == [None, RateSegment(0, 10.0, 4.0, 0.5), None]
    assert near[1].count_missed(1) == 6  # of seven that were decided
    assert stage.boards.missing_rates().tolist() == [0, 0, 0]


def test_what_the_worst_of_the_near_boards_lacks_is_missing(
    near: list[RateBoard],
) -> None:
    """Edge 0 came 3 of 4 times to the first, and all of edge 1 to the second."""
    stage = Stage([*near])
    counts = (3, 5, 9), (4, 7, 6)
    for board, counts_of_board in zip(near, counts, strict=True):
        for edge, count in enumerate(counts_of_board):
            for _ in range(count):
                board.publish([edge], 0, 0.0, 1.0, 0.0)

    assert stage.boards.missing_rates().tolist() == [1, 2, 3]
    stage.agents.reverse()
    assert stage.boards.missing_rates().tolist() == [1, 2, 3]
    stage.agents[0].board = None  # of another host
    assert stage.boards.missing_rates().tolist() == [1, 2, 0]


def test_two_boards_of_the_core_have_room_for_every_edge(
    near: list[RateBoard],
) -> None:
    record = BoardRecord(len(EDGES))
    assert record.core.entries == len(EDGES) + 1  # with that of the clock
    record.show_on(near)
    record.core.shown = record.core.room - 5
    record.keep_room()
    assert record.core.room >= record.core.shown + 2 * len(EDGES)
    with pytest.raises(ValueError, match="fewer than 4 edges"):
        BoardRecord(4).show_on(near)


class Watches(Observer):
    """Sees ends of tasks."""

    def __init__(self) -> None:
        self.seen: list[TaskEnded] = []

    @override
    def task_ended(self, message: TaskEnded) -> None:
        self.seen.append(message)


def test_several_observers_watch_where_one_does_and_all_are_notified() -> None:
    first, last = Watches(), Watches()
    end: Any = object()
    several = Observers([first, Observer(), last])
    several.task_ended(end)

    assert first.seen == last.seen == [end]
    assert several.watches
    assert not Observers([Observer(), Observer()]).watches
