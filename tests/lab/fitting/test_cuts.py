"""Where steps and bursts are cut: packets, joints and periods stated by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.lab.fitting import periods, steps
from emu.lab.fitting.calls import Sent
from emu.lab.fitting.conversations import Packets, Process, Unfittable
from emu.lab.fitting.steps import ALL, FULL, Crossed
from emu.prediction.analysis.traffic import Traffic
from tests.lab.fitting.known_steps import Row, make_step

A, B, C = (0, 0), (1, 1), (2, 0)


def test_bytes_have_come_with_the_packet_that_completes_them() -> None:
    """Packets of 10 bytes come at 1, 2 and 4 s; behind them is the last one."""
    crossed = Crossed(np.array([1.0, 2.0, 4.0]), np.array([0, 10, 20, 30]))
    found = crossed.when(np.array([0.0, 10.0, 10.5, 20.0, 30.0, 31.0, np.nan]))
    np.testing.assert_equal(found, [1.0, 1.0, 2.0, 2.0, 4.0, 4.0, np.nan])
    assert crossed.packet(np.array([0, 2, 9])).tolist() == [1.0, 4.0, 4.0]


def test_steps_are_moved_by_iterations_and_are_unknown_where_they_came_from() -> None:
    """Every row goes with them, forth and back."""
    step = make_step(A, B, [1.0, 2.0, 3.0, 4.0])
    nan = np.nan
    np.testing.assert_equal(step.roll(1).first, [nan, 1.0, 2.0, 3.0])
    np.testing.assert_equal(step.roll(-2).last, [3.0, 4.0, nan, nan])
    np.testing.assert_equal(step.roll(0).until, [1000.0, 2000.0, 3000.0, 4000.0])
    part = step.part(slice(1, 3))
    assert (part.first.tolist(), part.until.tolist()) == ([2.0, 3.0], [2000.0, 3000.0])


def test_a_step_is_noted_where_the_call_is_known_in_every_iteration() -> None:
    """Call 0 is one; -1 stands for none."""
    step = make_step(A, B, [1.0, 2.0])
    assert not step.is_noted
    for calls, is_noted in (([0.0, 5.0], True), ([-1.0, 5.0], False)):
        given: Any = SimpleNamespace(call=np.array(calls))
        assert steps.Step.is_noted.fget(given) == is_noted  # type: ignore[attr-defined]


def test_a_step_is_of_the_iteration_in_which_it_mostly_begins() -> None:
    """Iterations begin each second; it was cut a second early, once in two."""
    starts = np.arange(5.0)
    nan = np.nan
    for first, lag in (
        ([0.5, 1.5, 2.5, 3.5], 0),
        ([1.0, 2.0, nan, 4.0], 1),
        ([1.5, 2.5, 2.5, 4.5], 1),
        ([-0.5, 0.5, 1.5, 2.5], -1),
    ):
        assert steps._lag_of(make_step(A, B, first), starts) == lag


def traffic_of(nics: list[list[float]]) -> Traffic:
    given: Any = SimpleNamespace(
        nics=np.array(nics), machines=("m0", "m1", "m2"), programs=("p", "q")
    )
    traffic: Traffic = given
    return traffic


def test_two_milliseconds_of_silence_part_steps_at_fast_nics() -> None:
    """And 24 packets of the slower NIC on the way at others."""
    fast = [[9e9, 1.0, 1.0], [1.0, 9e9, 1.0]]
    assert steps._silence(A, B, traffic_of(fast)) == 0.002
    slow = [[9e9, 1.0, 1.0], [1.0, 24 * FULL, 1.0]]
    assert steps._silence(A, B, traffic_of(slow)) == 1.0


def test_iterations_of_two_processes_are_those_of_the_one_that_has_some() -> None:
    """Iterations of both, or of several others alone, are refused as unclear."""
    traffic = traffic_of([[1.0] * 3] * 2)
    row = np.array([0.0, 2.0, 3.0, 4.0])

    def clock(*marked: Process) -> Process:
        return steps._clock_of(A, B, dict.fromkeys(marked, row), traffic)

    assert clock(C) == C
    assert clock(ALL) == ALL
    assert clock(B, C) == B
    with pytest.raises(Unfittable, match=r"p on m0 to q on m1: .*p on m0 1 s, q on m1"):
        clock(A, B)
    with pytest.raises(Unfittable, match=r"\(p on m2 1 s, q on m2 1 s\)"):
        clock(C, (2, 1))


@pytest.mark.parametrize(
    ("sizes", "short"),
    [
        ([FULL, 2 * FULL, 100, FULL - 1], [0, 0, 1, 1]),
        # Most bytes go in packets of 900: 1800 are two of them, a usual one is full.
        ([900] * 5 + [1800, FULL, 899], [0] * 7 + [1]),
        # Of 523 bytes none is full, of 524 all are.
        ([523] * 3, [1] * 3),
        ([524] * 3, [0] * 3),
        ([], []),
    ],
)
def test_packets_that_are_not_full_end_messages(
    sizes: list[int], short: list[int]
) -> None:
    """The usual size is that of most bytes, from the smallest MTU on."""
    assert steps._short(np.array(sizes, np.int64)).tolist() == [bool(s) for s in short]


def sent_of(**rows: Any) -> Sent:
    names = ("call", "called", "next_call", "next_called", "split", "taken")
    count = len(next(iter(rows.values())))
    return Sent(**{name: np.array(rows.get(name, np.zeros(count))) for name in names})


def test_something_ends_behind_silence_short_packets_and_known_calls() -> None:
    """A part ends only between two known calls, behind a short packet or a pause."""
    sizes = [FULL, FULL, 100, 48, FULL, FULL, FULL]
    packets: Any = SimpleNamespace(bytes=np.array(sizes))
    is_silent = np.array([1, 0, 0, 0, 0, 0], bool)
    blind = sent_of(call=[-1] * 7, next_call=[-1] * 7)
    assert steps._part(packets, blind, is_silent).tolist() == [
        *(True, False, True, True, False, False)
    ]
    known = sent_of(
        call=[0, 0, 1, 2, 3, 4, 5],
        next_call=[0, 0, 1, 2, 3, 4, 5],
        called=[0.0, 0.0, 0.0, 0.0, 0.0, 0.0002, 0.00055],
        taken=[0.0, 0.0, 0.0, 0.0, 0.0, 0.0003, 0.0],
    )
    # A silence within a call is none; the 5th went on at once, the 6th after 250 us.
    assert steps._part(packets, known, is_silent).tolist() == [
        *(False, False, True, True, False, True)
    ]


def test_the_quiet_time_beside_marks_is_the_nearest_that_is_good() -> None:
    """Packets come from 0.1 s before each mark until 0.2 s behind it."""
    marks = np.arange(10.0, 20.0)
    near = np.add.outer(np.arange(8.0, 22.0), np.linspace(-0.1, 0.2, 31)).ravel()
    # Of 64 phases the nearest at which half of the longest silence (0.35 s) is around.
    found = steps._quiet(np.sort(near), marks)
    assert found == pytest.approx(-0.28125)
    assert steps._quiet(np.sort(near) - 0.09, marks) == pytest.approx(0.296875)
    assert steps._quiet(np.sort(near) + 0.5, marks) == 0.0


def test_steps_end_at_bytes_at_which_a_tenth_of_the_iterations_are_cut() -> None:
    """Cuts within 32 bytes are the same; near the end they must be 80 %."""

    def places(*joints: int, iterations: int = 10) -> list[float]:
        return steps._places(
            np.array(joints), near_bytes=50.0, usual=1000.0, iterations=iterations
        )

    assert places(100) == [100.0]
    assert places(100, iterations=11) == []
    assert places(100, 132, iterations=20) == [116.0]
    assert places(100, 133, iterations=20) == []
    assert places(300, 300, 100, 110, 120, iterations=20) == [110.0, 300.0]
    # 949 is no end, from 950 on it is.
    assert places(949) == [949.0]
    assert places(*[950] * 7) == []
    assert places(*[950] * 8) == [950.0]
    assert places() == []


def bounds_of(joints: list[list[int]], sent: list[int]) -> list[list[float]] | None:
    found = steps._bounds([np.array(row) for row in joints], np.array(sent))
    return None if found is None else [bound.tolist() for bound in found]


def test_iterations_of_as_many_bytes_are_cut_at_the_same_ones() -> None:
    """Within 32 bytes of the usual 1000; who has no cut there has the usual one.

    One in twenty is cut at 100 bytes as well, which is too seldom.
    """
    joints = [[400 + number] for number in range(18)] + [[], [100, 418]]
    sent = [1000] * 12 + [1032, 968, 1032, 968] + [300] * 4
    assert bounds_of(joints, sent) == [
        [0.0] * 20,
        [*(400.0 + number for number in range(16)), *[300.0] * 4],
        [float(size) for size in sent],
    ]
    one_more = [*sent[:18], 1000, 1000]
    found = bounds_of(joints, one_more)
    assert found is not None
    assert found[1][-2:] == [409.0, 418.0]
    # With one more than 32 bytes off four fifths are not left.
    sent[12] = 1033
    pieces = [[400], []] * 10
    assert bounds_of(pieces, sent) is None
    sent[12] = 1032
    assert bounds_of(pieces, sent) is not None


def test_iterations_of_as_many_pieces_are_cut_behind_each() -> None:
    """However large; who has another number of them is unknown there."""
    joints = [[10], [500], [70], [900], [1, 2]]
    found = bounds_of(joints, [100, 2000, 300, 5000, 9])
    assert found is not None
    nan = np.nan
    np.testing.assert_equal(
        found, [[0.0] * 5, [10.0, 500.0, 70.0, 900.0, nan], [100, 2000, 300, 5000, 9]]
    )


def test_beyond_twenty_full_packets_one_more_is_the_same() -> None:
    """The last one of an iteration may come twice now and then."""
    large = 21 * FULL
    sent = [large, large + FULL + 32, large, large, large]
    assert bounds_of([[]] * 5, sent) is not None
    usual = 20 * FULL
    joints = [[], [], [1], [2], [3, 4]]
    more = [usual, usual + FULL, usual + FULL, usual, usual]
    assert bounds_of(joints, more) is None


def cut(volumes: list[int], joints: list[list[int]], total: float) -> Any:
    iterations: Any = SimpleNamespace(
        volumes=np.array(volumes), joints=[np.array(row) for row in joints]
    )
    return steps._cut(iterations, "a to b", total)


def test_what_crosses_in_few_iterations_is_left_out_where_it_is_little() -> None:
    """Half of the iterations are enough; a hundredth of all bytes is little."""
    assert cut([10, 0, 0, 0], [[0]] * 4, 1000.0) == []
    with pytest.raises(Unfittable, match=r"sent 11 bytes in 25% of the iterations"):
        cut([11, 0, 0, 0], [[0]] * 4, 1000.0)
    assert len(cut([500, 0, 500, 0], [[0]] * 4, 1000.0)) == 2
    # What varies is one step where it is little, and no step where it is not.
    varies = [[0, 1, 2], [0, 3], [0, 4, 5, 6], [0]]
    volumes = [100, 200, 300, 400]
    found = cut(volumes, varies, 100_000.0)
    assert [bound.tolist() for bound in found] == [[0.0] * 4, [100.0, 200, 300, 400]]
    with pytest.raises(Unfittable, match=r"sent 130 to 370 bytes .* in 1 to 4 pieces"):
        cut(volumes, varies, 99_999.0)


def packets_of(times: Any, sizes: list[int]) -> Packets:
    """Return packets of one process to another."""
    count = len(times)
    nothing = np.zeros(count, np.int64)
    return Packets(
        processes=(A, B),
        rows=np.arange(count),
        source=nothing,
        destination=nothing + 1,
        time=np.array(times),
        bytes=np.array(sizes),
    )


def test_packets_within_begin_with_the_first_mark_and_end_before_the_last() -> None:
    """Marks at 1, 2 and 3 s."""
    packets = packets_of([0.9, 1.0, 2.5, 3.0], [1] * 4)
    found = periods._within(packets, np.array([1.0, 2.0, 3.0]))
    assert found.tolist() == [False, True, True, False]


def test_periods_are_unsteady_by_the_median_of_their_distances() -> None:
    """Gaps of 1, 1, 2, 4 and 2 s: 2 s is in the middle, and 1 s beside it."""
    times = np.cumsum([0.0, 1.0, 1.0, 2.0, 4.0, 2.0])
    assert periods._unsteadiness(times) == 0.5


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        ([5000] * 6, 6),
        ([5000] * 5 + [5100], 6),  # 2 % of the usual size are alike
        ([5000] * 5 + [5101], 5),
        ([500] * 5 + [564], 6),  # as are 64 bytes
        ([500] * 5 + [565], 5),
        ([500] * 4 + [5], 4),
    ],
)
def test_bursts_of_the_usual_size_make_a_row(sizes: list[int], count: int) -> None:
    """A second apart each."""
    packets = packets_of(np.arange(float(len(sizes))), sizes)
    row = periods._longest_row(packets, np.arange(len(sizes)))
    assert row.tolist() == list(range(count))


@pytest.mark.parametrize(("gap", "length"), [(1.8, 7), (1.81, 5)])
def test_a_burst_is_missing_beyond_1_8_times_the_usual_period(
    gap: float, length: int
) -> None:
    """The first two of seven come so long before the others."""
    times = [0.0, 1.0, *(1.0 + gap + second for second in range(5))]
    row = periods._longest_row(packets_of(times, [100] * 7), np.arange(7))
    assert len(row) == length


def test_candidates_are_bursts_by_each_number_that_a_silence_makes() -> None:
    """Pairs of bursts 50 ms apart each second: ten of one silence, five of another."""
    times = np.add.outer(np.arange(5.0), [0.0, 0.05]).ravel()
    packets = packets_of(times, [1000] * 10)
    found = [row.tolist() for row in periods._candidates(packets)]
    assert found[0] == [0.0, 1.0, 2.0, 3.0, 4.0]
    # Silences of a millisecond part nothing.
    close = packets_of(0.001 * np.arange(10), [1000] * 10)
    assert [*periods._candidates(close)] == []


def chosen(
    monkeypatch: pytest.MonkeyPatch, *candidates: tuple[Any, int]
) -> tuple[list[float], list[int]]:
    """Return the times that are taken of some, and lengths of those that are tried.

    Each with the iterations that are whole then; 0 where it is aperiodic.
    """
    tried: list[int] = []
    whole = {id(times): count for times, count in candidates}

    def try_out(_: object, __: object, times: Row) -> int:
        tried.append(len(times))
        count = whole[id(times)]
        if not count:
            raise Unfittable(f"{len(times)} are none")
        return count

    monkeypatch.setattr(periods, "_candidates", lambda _: [t for t, _ in candidates])
    monkeypatch.setattr(periods, "_whole", try_out)
    packets = packets_of([0.0, 0.5, 1.0, 8.5], [1] * 4)
    nothing: Any = None
    return periods._of_all(packets, nothing).tolist(), tried


def test_periods_are_tried_until_none_can_have_more_iterations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The longest first; one that was tried is not tried again."""
    long, same = np.arange(9.0), np.arange(9.0) + 0.25
    medium, other, short = 2 * np.arange(8.0), 3 * np.arange(8.0), np.arange(7.0)
    found, tried = chosen(
        monkeypatch, (short, 7), (long, 7), (same, 9), (medium, 8), (other, 8)
    )
    assert (found, tried) == (medium.tolist(), [9, 8])
    # As many as before are no more.
    found, tried = chosen(monkeypatch, (long, 6), (medium, 6), (short, 7))
    assert (found, tried) == (short.tolist(), [9, 8, 7])


def test_what_came_nearest_to_a_period_has_most_packets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three of four packets lie within the first times, and two within the others."""
    first, second = np.arange(9.0), np.arange(8.0) / 8
    with pytest.raises(Unfittable, match=r"come every 1 s, 9 times, but 9 are none"):
        chosen(monkeypatch, (first, 0), (second, 0))
    with pytest.raises(Unfittable, match="no two processes sent 5 bursts"):
        chosen(monkeypatch)


def whole_of(monkeypatch: pytest.MonkeyPatch, sizes: list[int], count: int) -> int:
    """Return the iterations of marks at 1 to 11 s of which so many have all parts.

    Packets come at 0.5, 1 and 10.5 s.
    """
    monkeypatch.setattr(periods, "steps_between", lambda *_: [])
    monkeypatch.setattr(periods, "longest", lambda _: slice(1, 1 + count))
    nothing: Any = None
    packets = packets_of([0.5, 1.0, 10.5], sizes)
    return periods._whole(packets, nothing, np.arange(1.0, 12.0))


def test_iterations_have_most_bytes_and_most_of_them_all_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three fifths of the bytes, and eight of ten."""
    assert whole_of(monkeypatch, [40, 30, 30], 8) == 8
    with pytest.raises(Unfittable, match=r"^41% of all bytes crossed before and after"):
        whole_of(monkeypatch, [41, 30, 29], 8)
    with pytest.raises(Unfittable, match=r"^7 in a row have all of their parts"):
        whole_of(monkeypatch, [40, 30, 30], 7)


def test_steps_of_each_process_have_rows_by_iteration() -> None:
    """Two iterations of 30 and 40 bytes, of which a step has those from 10 on."""
    crossed = Crossed(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 10, 30, 50, 70]))
    sent = sent_of(
        call=[5, 6, 7, 8],
        next_call=[5, 6, 7, 8],
        called=[0.9, 1.9, 2.9, 3.9],
        next_called=[0.9, 1.9, 2.9, 3.9],
        taken=[1.1, 2.1, 3.1, 4.1],
    )
    found = steps._Iterations(
        crossed=crossed,
        starts=np.array([0, 30, 70]),
        volumes=np.array([30, 40, 0]),
        joints=[],
        sent=sent,
    ).rows(np.array([10.0, 0.0, 0.0]), np.array([30.0, 40.0, 0.0]))
    nan = np.nan
    expected = {
        "first": [1.9, 2.9, nan],
        "last": [2.0, 4.0, nan],
        "sizes": [20.0, 40.0, nan],
        "until": [30.0, 70.0, nan],
        "call": [6.0, 7.0, nan],
        "taken": [2.1, 4.1, nan],
    }
    assert {*found} == {*expected}
    for name, row in expected.items():
        np.testing.assert_equal(found[name], row)
