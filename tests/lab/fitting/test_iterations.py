"""Iterations that all-reduces end, from packets and exchanges stated by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from emu.lab.fitting import iterations
from emu.lab.fitting.conversations import Exchange, Process, Ring, Unfittable
from emu.lab.fitting.iterations import FittedIterations

CLIENT, SERVER, OTHER = (0, 0), (1, 1), (2, 1)


def exchange(
    asked: tuple[float, float],
    answered: tuple[float, float],
    *,
    client: Process = CLIENT,
    server: Process = SERVER,
    request: int = 10,
    answer: int = 100,
) -> Exchange:
    """Return a request and its answer, each by its first and its last packet."""
    return Exchange(client, server, asked, answered, request, answer)


def test_a_server_serves_one_after_the_other() -> None:
    """Time that a server took for other requests is no part of an answer."""
    first = exchange((0.0, 1.0), (3.0, 4.0))
    second = exchange((0.5, 2.0), (4.5, 5.0))
    # An answer that began before the request was whole took no time.
    third = exchange((5.0, 7.0), (6.0, 8.0))
    elsewhere = exchange((0.5, 2.0), (4.5, 6.0), server=OTHER)

    found = iterations._services([third, second, first, elsewhere])

    assert found == {first: 2.0, second: 1.5, third: 0.0, elsewhere: 2.5}


def test_rounds_wait_for_all_answers_of_the_one_before() -> None:
    """The second asks before the first answer's end; one at the end is of the next."""
    exchanges = [
        exchange((0.9, 1.0), (1.2, 1.3)),  # before the iteration
        exchange((1.0, 1.1), (2.0, 3.0)),
        exchange((2.5, 2.6), (2.7, 2.8), server=OTHER),
        exchange((2.9, 2.95), (3.2, 3.5)),
        exchange((3.5, 3.6), (3.7, 4.5)),
        exchange((5.0, 5.1), (5.2, 5.3)),
    ]
    found = iterations._rounds(exchanges, 1.0, 5.0)
    assert found == [exchanges[1:4], exchanges[4:5]]


def ring_of(sent: list[tuple[list[float], list[int]]]) -> Ring:
    """Return a ring whose members send packets to the next alone."""
    streams = tuple((np.array(times), np.array(sizes)) for times, sizes in sent)
    return Ring(
        members=tuple((machine, 0) for machine in range(len(sent))),
        sent=streams,
        any_sent=tuple(times for times, _ in streams),
    )


def test_bursts_are_parted_by_answers_or_by_silence_of_all() -> None:
    """5 ms in which nobody sends part them; an answer does where any came."""
    first = ([0.0, 0.0041, 0.0151, 0.0152], [1, 1, 1, 1])
    second = ([0.0082, 0.0203, 0.0301], [1, 1, 1])
    ring = ring_of([first, second])

    # Nobody sends from 8.2 to 15.1 ms, 15.2 to 20.3 ms and 20.3 to 30.1 ms.
    assert iterations._bursts(ring, [[], []]) == [
        [(0, 2), (2, 4)],
        [(0, 1), (1, 2), (2, 3)],
    ]
    assert iterations._bursts(ring, [[0.0042, 0.0043], []])[0] == [(0, 2), (2, 4)]
    assert iterations._bursts(ring, [[0.0002], []])[0] == [(0, 1), (1, 4)]
    shorter = iterations._bursts(ring, [[], []], 0.004)
    assert shorter[0] == [(0, 1), (1, 2), (2, 4)]


def test_a_process_is_ready_when_it_first_speaks_behind_its_answers() -> None:
    """And behind the sum before: both of its own packets and of what it received."""
    sent = np.array([0.5, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    answered = np.array([0.0, 1.0, 3.5])
    summed = np.array([2.5, 5.5])
    bursts = [(2.0, 2.4), (4.0, 4.5), (7.0, 7.5)]

    def first_after(summed: list[float]) -> list[float]:
        return iterations._first_after(sent, answered, np.array(summed), bursts)

    # Behind 1.0 s; behind the answer at 3.5 s; behind the sum at 5.5 s.
    assert first_after([2.5, 5.5, 9.0]) == [1.5, 4.0, 6.0]
    assert first_after([3.7, 4.4, 9.0]) == [1.5, 4.0, 5.0]
    assert summed.size == 2


def test_a_member_of_a_ring_has_the_sum_with_the_last_packet_of_the_one_before() -> (
    None
):
    """Three send 800 bytes for a sum of 600, twice, with silence between."""
    times = [
        [0.000, 0.001, 0.002, 0.003, 1.000, 1.001, 1.002, 1.003],
        [0.0001, 0.0011, 0.0021, 0.0041, 1.0002, 1.0011, 1.0021, 1.0041],
        [0.0002, 0.0012, 0.0022, 0.0032, 1.0001, 1.0012, 1.0022, 1.0052],
    ]
    ring = ring_of([(row, [200] * 8) for row in times])
    nobody: dict[Process, list[Exchange]] = {member: [] for member in ring.members}

    found = iterations._sums(ring, nobody, None)

    assert found.volume == pytest.approx(600.0)
    np.testing.assert_allclose(
        found.summed, [[0.0032, 1.0052], [0.003, 1.003], [0.0041, 1.0041]]
    )
    np.testing.assert_allclose(
        found.began, [[0.001, 1.0], [0.0001, 1.0002], [0.0002, 1.0001]], atol=0.0011
    )
    part = found.part(0, 1)
    assert part.began.shape == (3, 1)
    np.testing.assert_allclose(part.summed, found.summed)
    np.testing.assert_allclose(part.began[:, 0], found.began[:, 1])

    short = ring_of(
        [
            (row[: 8 if place else 4], [200] * (8 if place else 4))
            for place, row in enumerate(times)
        ]
    )
    with pytest.raises(Unfittable, match="sent 1 to 2 all-reduces of 800 bytes"):
        iterations._sums(short, nobody, None)


def test_seconds_of_rounds_are_those_between_an_answer_and_the_next_request() -> None:
    """Two members; the first asks two rounds once and one another time."""
    other = (1, 0)
    ring = Ring(((0, 0), other), (), ())
    one = [
        exchange((1.25, 1.3), (1.5, 2.0), request=10, answer=100),
        exchange((1.5, 1.6), (1.7, 1.75), request=1, answer=7),
        exchange((1.5, 1.6), (1.7, 1.75), server=OTHER, request=2, answer=8),
    ]
    two = [exchange((2.5, 2.6), (2.7, 3.0), request=20, answer=200)]
    three = [exchange((5.5, 5.6), (5.7, 6.0), request=30, answer=300)]
    services = {one[0]: 0.25, one[1]: 0.5, one[2]: 0.125, two[0]: 1.0, three[0]: 2.0}
    sums = iterations._Sums(
        began=np.array([[4.0, 7.0], [4.5, 6.5]]),
        summed=np.array([[1.0, 5.0, 8.0], [1.5, 5.25, 9.0]]),
        volume=100.0,
    )
    rounds: dict[Process, list[list[list[Exchange]]]] = {
        (0, 0): [[one, two], [three]],
        other: [[], []],
    }

    found = iterations._fit_rounds(
        ring=ring,
        rounds=rounds,
        sums=sums,
        services=services,
        nics=np.array([[400.0, 500.0], [800.0, 900.0]]),
        first=3,
    )

    assert (found.first, found.ring, found.volume) == (4, ring.members, 100.0)
    # Before the first round, the second and the all-reduce.
    assert found.stages[0, 0].tolist() == [[0.25, 0.5], [0.5, 0.0], [1.0, 1.0]]
    assert found.stages[other].tolist() == [[0.0, 0.0], [0.0, 0.0], [3.0, 1.25]]
    assert {key: rows.tolist() for key, rows in found.asked.items()} == {
        ((0, 0), 0, SERVER): [[11.0, 30.0], [107.0, 300.0], [0.75, 2.0]],
        ((0, 0), 0, OTHER): [[2.0, 0.0], [8.0, 0.0], [0.125, 0.0]],
        ((0, 0), 1, SERVER): [[20.0, 0.0], [200.0, 0.0], [1.0, 0.0]],
    }
    assert found.starts.tolist() == [1.25, 5.125]
    assert found.ends.tolist() == [5.125, 8.5]
    # From the last beginning until the last sum: 0.75 and 2 s, in the middle 1.375 s;
    # the slowest NIC needs 0.25 s for 100 bytes.
    assert found.overhead == pytest.approx(1.125)
    part = found.part(1, 2)
    assert (part.first, part.count) == (5, 1)
    assert part.stages[0, 0].tolist() == [[0.5], [0.0], [1.0]]
    assert part.asked[(0, 0), 1, SERVER].tolist() == [[0.0], [0.0], [0.0]]
    assert (part.starts.tolist(), part.ends.tolist()) == ([5.125], [8.5])


@pytest.mark.parametrize(
    ("rounds", "stretch"),
    [
        ([[1, 1, 1, 3, 1], [1, 1, 1, 1, 1]], slice(0, 5)),
        ([[1, 1, 1, 4, 1], [1, 1, 1, 1, 1]], slice(0, 3)),
        ([[1, 9, 1, 1, 1], [1, 1, 1, 1, 9]], slice(2, 4)),
        ([[], []], slice(0, 0)),
    ],
)
def test_iterations_of_two_rounds_more_than_usual_are_alike(
    rounds: list[list[int]], stretch: slice
) -> None:
    """The longest stretch in which all processes have so many is taken."""
    given: dict[Process, list[list[list[Exchange]]]] = {}
    for number, row in enumerate(rounds):
        given[number, 0] = [[[]] * turns for turns in row]
    assert iterations._find_alike(given) == stretch


def test_means_of_bytes_are_whole_and_those_of_seconds_are_not() -> None:
    """The first two rows are bytes."""
    rows = np.array([[1.0, 2.0], [4.0, 5.4], [1.0, 2.0]])
    found = iterations._mean(rows, 3, byte_rows=2)
    assert found.tolist() == [[2.0] * 3, [5.0] * 3, [1.5] * 3]
    assert iterations._mean(rows, 1).tolist() == [[1.5], [4.7], [1.5]]


@pytest.mark.parametrize(
    ("second", "is_common"),
    [
        # Within half of a second of the first in the middle of three iterations.
        ([0.4, 1.4, 2.4, 3.4], True),
        ([0.5, 1.5, 2.5, 3.5], False),
        ([-0.4, 0.6, 1.6, 2.6], True),
    ],
)
def test_who_begins_within_half_an_iteration_goes_by_one_clock(
    second: list[float], *, is_common: bool
) -> None:
    """All of the first begin before any of the next does."""
    marks = {CLIENT: np.arange(4.0), OTHER: np.array(second)}
    found = iterations._common_clock(marks)
    assert (len(found) == 1) == is_common


def test_one_of_twenty_iterations_may_begin_out_of_order() -> None:
    """Two of twenty that do so mean that the clocks differ."""
    times = np.arange(21.0)
    for late, is_common in ((1, True), (2, False)):
        other = times + 0.1
        other[4 : 4 + late] += 1.0
        found = iterations._common_clock({CLIENT: times, OTHER: other})
        assert (len(found) == 1) == is_common


def bursts_of(count: int, size: int, gap: float = 1.0) -> Ring:
    """Return a ring of two whose members send a burst of four packets a second."""
    begins = gap * np.arange(count)
    streams = []
    for shift in (0.0, 0.0002):
        times = np.add.outer(begins + shift, 0.0005 * np.arange(4)).ravel()
        streams.append((times.tolist(), [size // 4] * (4 * count)))
    return ring_of(streams)


def test_a_burst_of_the_usual_size_is_an_iteration() -> None:
    """Bytes of a period that are as usual leave that; more are the period's."""
    ring = bursts_of(12, 4000)
    assert iterations._iteration_size(ring, 4100.0, None) == 4100.0
    assert iterations._iteration_size(ring, 2000.0, None) == 4000.0
    assert iterations._iteration_size(ring, 4000.0, 6) == 8000.0
    few = bursts_of(3, 4000)
    assert iterations._iteration_size(few, 2000.0, None) == 2000.0


def test_the_usual_burst_has_half_of_the_bytes_in_smaller_ones() -> None:
    """Sizes are those between the first packet of a burst and behind its last."""
    sent_before = [np.array([0, 100, 300, 900]), np.array([0, 50, 60])]
    bursts = [[*pairwise([0, 1, 3])], [(0, 1), (1, 2)]]
    assert iterations._usual_burst(bursts, sent_before) == 800


def test_templates_are_of_their_kind() -> None:
    """`FittedIterations` with servers are no all-reduces alone."""
    nothing = np.zeros(2)
    found = FittedIterations(
        nothing, nothing, 0, (CLIENT,), {CLIENT: np.zeros((1, 2))}, {}, 1.0, 0.0
    )
    for template, is_fit in (("allreduce", True), ("distdgl", False)):
        kind = iterations.Template(template)
        if is_fit:
            assert iterations.mean_iterations(found, kind).count == 2
        else:
            with pytest.raises(Unfittable, match="ask no servers"):
                iterations.mean_iterations(found, kind)
