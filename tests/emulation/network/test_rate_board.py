"""The rate board, within one process and between two."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.emulation.network.clock import ClockLine
from emu.emulation.network.rate_board import CoreSegments, RateBoard
from emu.emulation.shaping import RateSegment
from emu.prediction.core import lib, pointer

# Every line it writes satisfies served == 3 * rate == since, so a reader that mixes
# two of them is found out.
WRITER = """
import sys, numpy as np
from emu.emulation.network.rate_board import RateBoard

board = RateBoard.open(sys.argv[1], writable=True)
edges = np.arange(board.edges)
print("ready", flush=True)
for value in range(1, 20001):
    line = np.full(board.edges, float(value))
    board.publish(edges, edges * 0 + value, 3 * line, line, 3 * line)
"""


def test_a_line_is_read_as_published() -> None:
    board = RateBoard.create(3)

    board.publish([2, 0], [5, 6], [1.5, 0.0], [10.0, 0.0], 7.25)

    assert board.read(0) == RateSegment(6, 0.0, 0.0, 7.25)
    assert board.read(1) is None
    assert board.read(2) == RateSegment(5, 1.5, 10.0, 7.25)
    board.close()


def test_segments_that_never_came_are_missed() -> None:
    """The second of edge 1, and with it the first of edge 0, were lost on the way."""
    board = RateBoard.create(3)
    board.publish([1], [0], [0.0], [1.0], 0.0, [1])
    assert [board.count_missed(edge) for edge in range(3)] == [0, 0, 0]
    board.publish([0, 1], [0, 0], [0.0, 0.0], [3.0, 0.5], 1.0, [2, 3])

    assert [board.count_missed(edge) for edge in range(3)] == [1, 1, 0]
    assert board.counts.tolist() == [1, 2, 0]
    board.publish([0, 1], [1, 1], [0.0, 0.0], [3.0, 0.5], 2.0, [3, 4])
    assert [board.count_missed(edge) for edge in range(3)] == [1, 1, 0]
    board.close()


def test_lines_that_change_places_stay_those_of_their_edges() -> None:
    """The second line is written first: its rate falls."""
    board = RateBoard.create(2)
    board.publish([0, 1], [0, 0], [0.0, 0.0], [1.0, 9.0], 0.0)

    board.publish([0, 1], [0, 0], [3.0, 4.0], [2.0, 5.0], [6.0, 7.0])

    assert board.read(0) == RateSegment(0, 3.0, 2.0, 6.0)
    assert board.read(1) == RateSegment(0, 4.0, 5.0, 7.0)
    board.close()


lines = st.lists(
    st.tuples(
        st.integers(0, 4), st.integers(0, 9), st.floats(0, 1e9), st.floats(0, 1e9)
    ),
    min_size=1,
    max_size=12,
)


@given(lines)
def test_the_newest_line_wins(published: list[tuple[int, int, float, float]]) -> None:
    board = RateBoard.create(5)
    expected: dict[int, RateSegment] = {}

    for time, (edge, iteration, served, rate) in enumerate(published):
        board.publish([edge], [iteration], [served], [rate], [float(time)])
        expected[edge] = RateSegment(iteration, served, rate, float(time))

    assert [board.read(edge) for edge in range(5)] == [
        expected.get(edge) for edge in range(5)
    ]
    board.close()


def test_a_board_that_is_cleared_has_the_clock_alone() -> None:
    with contextlib.closing(RateBoard.create(3)) as board:
        board.publish([0, 2], [4, 5], [1.0, 2.0], [3.0, 4.0], [5.0, 6.0])
        line = ClockLine(at=7.0, offset=8.0, drift=0.25)
        board.publish_clock(line)
        board.clear()

        assert [board.read(edge) for edge in range(3)] == [None] * 3
        assert board.counts.tolist() == [0, 0, 0]
        assert board.clock() == line


def test_publishing_nothing_is_fine() -> None:
    board = RateBoard.create(1)

    board.publish([], [], [], [], 0.0)

    assert board.read(0) is None
    board.close()


def test_an_entry_that_a_writer_left_half_written_is_no_line() -> None:
    board = RateBoard.create(1)
    board.publish([0], [1], [0.0], [5.0], 0.0)

    board._entries["begun"] += 1

    assert board.read(0) is None
    board.close()


def test_reads_are_never_torn_by_another_process() -> None:
    board = RateBoard.create(4)
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, board.path], stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"ready\n"

    seen = set()
    newest = [0] * 4
    while writer.poll() is None:
        for edge in range(4):
            line = board.read(edge)
            if line is None:
                continue
            assert line.served == line.since == 3 * line.rate == 3.0 * line.iteration
            assert line.iteration >= newest[edge]
            newest[edge] = line.iteration
            seen.add(line.iteration)
    writer.stdout.close()

    assert writer.returncode == 0
    assert [board.read(edge) for edge in range(4)] == [
        RateSegment(20000, 60000.0, 20000.0, 60000.0)
    ] * 4
    assert len(seen) > 10
    board.close()


def test_a_reader_cannot_write() -> None:
    board = RateBoard.create(2)
    reader = RateBoard.open(board.path)

    with pytest.raises(ValueError, match="read-only"):
        reader.publish([0], [0], [0.0], [1.0], 0.0)

    reader.close()
    board.close()


def test_lowered_rates_come_first() -> None:
    """A new iteration starts from nothing: its rate is not lowered."""
    board = RateBoard.create(5)
    edges = [4, 1, 3, 2]
    board.publish(edges, 0, 0.0, 10.0, 0.0)
    news = CoreSegments(edges, [0, 0, 1, 0], 0.0, [15.0, 5.0, 5.0, 0.0], 1.0)
    order = np.empty(4, np.int64)

    lib.order_of_publication(board.address, news.core, pointer(order))

    assert order.tolist() == [1, 3, 0, 2]
    board.close()


def test_what_is_not_on_the_board_is_not_written() -> None:
    """Nothing of the call is: memory beyond the board is somebody else's."""
    board = RateBoard.create(2)

    for edge in (3, -1):
        with pytest.raises(IndexError, match="beyond the 2 of a board"):
            board.publish([0, edge], 0, 0.0, 1.0, 0.0)

    assert board.counts.tolist() == [0, 0]
    board.close()


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs memfd_create")
def test_a_board_has_no_name_and_goes_with_its_holder() -> None:
    board = RateBoard.create(2)
    path = board.path
    target = Path(path).readlink()

    board.close()

    assert "memfd" in str(target)
    assert not Path(path).exists()


def test_without_memfd_the_name_goes_with_the_holder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    board = RateBoard.create(2)
    reader = RateBoard.open(board.path)
    board.publish([1], [0], [0.0], [2.0], 0.0)

    assert Path(board.path).exists()
    board.close()
    assert not Path(board.path).exists()
    assert reader.read(1) == RateSegment(0, 0.0, 2.0, 0.0)
    reader.close()


def test_a_board_without_edges_is_misuse() -> None:
    with pytest.raises(ValueError, match="needs an edge"):
        RateBoard.create(0)


def test_a_board_has_no_clock_until_one_is_published() -> None:
    board = RateBoard.create(2)
    assert board.clock() is None
    board.close()


def test_a_segment_that_is_being_written_is_none_yet() -> None:
    with contextlib.closing(RateBoard.create(1)) as board:
        board.publish([0], [3], [0.0], [1.0], [0.0])
        board.entries["begun"][0] += 1

        assert board.read(0) is None
        assert board.count_missed(0) == 0
