"""Periods by the bytes at which bursts begin, stated by hand."""

from __future__ import annotations

import numpy as np
import pytest

from emu.lab.fitting import repeats
from emu.lab.fitting.conversations import Unfittable
from emu.lab.fitting.repeats import (
    Chain,
    _convert,
    _explain,
    _find_periods,
    _follow,
    _turns_of,
    count_turns,
    find_chain,
    settle,
)


def test_bursts_whole_periods_apart_are_a_chain() -> None:
    """The third came 200 bytes late, the fourth is of none, one ran together."""
    places = np.array([0, 500, 10_000, 20_200, 23_000, 40_200, 51_000])
    chain = _follow(places, 0, 10_000.0)
    # Of the last two periods the first may be 2 * 256 bytes beside its place.
    assert (chain.bursts, chain.turns) == ([0, 2, 3, 5], [0, 1, 2, 4])
    assert _follow(places, 4, 10_000.0).bursts == [4]
    # From 128 kB on the tolerance is 0.2 % of the period.
    places = np.array([0, 200_400, 601_200, 1_002_402])
    assert _follow(places, 0, 200_000.0).bursts == [0, 1, 2]
    assert _follow(np.array([0, 10_256, 20_513]), 0, 10_000.0).bursts == [0, 1]


def test_a_cover_is_of_the_periods_of_all_bytes() -> None:
    """Ten periods begin with eleven bursts, of which two are missing."""
    chain = Chain(100.0, [*range(9)], [*range(9)])
    assert chain.cover(1000) == pytest.approx(9 / 11)


def test_periods_are_the_distances_that_most_bursts_have() -> None:
    """Bursts begin at 0 and 3000 of every 10 kB: a quarter of 80 kB is the longest."""
    places = np.add.outer(10_000 * np.arange(8), [0, 3000]).ravel()
    assert _find_periods(places, 80_000) == [3000, 7000, 10_000, 13_000, 17_000, 20_000]
    assert _find_periods(places, 79_999)[-1] == 17_000
    assert _find_periods(np.array([0, 100, 256]), 10_000) == []
    assert _find_periods(np.array([0, 257]), 10_000) == [257]


@pytest.mark.parametrize(
    ("near", "far", "periods"),
    [
        # Half of 256 bytes, or of 0.2 %, are of the same period.
        (1000, 1128, [1064]),
        (1000, 1129, [1000, 1129]),
        (200_000, 200_200, [200_100]),
        (200_000, 200_201, [200_000, 200_201]),
    ],
)
def test_distances_beside_one_another_are_of_one_period(
    near: int, far: int, periods: list[int]
) -> None:
    """The one in the middle stands for them."""
    places = np.array([0, near, 10_000_000, 10_000_000 + far])
    assert _find_periods(places, 1_600_000) == periods


def test_a_chain_may_begin_behind_bursts_that_are_of_none() -> None:
    """The longest of those that begin with one of the first bursts is taken."""
    places = np.append([1234, 2345], 5000 * np.arange(1, 17))
    chain = find_chain(places, 80_000)
    assert chain is not None
    assert chain.bursts == [*range(2, 18)]


def two_readings(unsteady: float, *, by_pair: bool, count: int = 40) -> list[float]:
    """Return times of periods that take 1.1 and 1.0 s in turns, a little unsteady.

    Each second pair is so much longer and shorter, or as it was drawn.
    """
    signs = np.tile([1.0, -1.0], count // 4)
    if not by_pair:
        signs = np.random.default_rng(0).permutation(signs)
    lengths = np.tile([1.1, 1.0], count // 2)
    lengths[::2] += unsteady * signs
    lengths[1::2] += unsteady * signs
    return [100.0, *(100.0 + np.cumsum(lengths)).tolist()]


def test_readings_that_are_as_likely_are_told_with_their_seconds() -> None:
    """Turns of two explain 60 %; those of four explain all where pairs take turns."""
    times = two_readings(0.02, by_pair=False)
    numbers = range(5, 46)
    words = (
        r"reads as 41 iterations of 1\.05 s, or as 20 of 2\.1 s with 2 alike parts: "
        "--iterations 41 or --iterations 20 decides"
    )
    with pytest.raises(Unfittable, match=words):
        count_turns(times, numbers)
    assert count_turns(times, numbers, 41) == 1
    assert count_turns(times, numbers, 20) == 2
    assert count_turns(two_readings(0.02, by_pair=True), numbers) == 4
    # What explains a tenth, or a little more by chance, is no turn.
    many = two_readings(0.045, by_pair=False, count=800)
    assert count_turns(many, range(801)) == 1
    assert count_turns(two_readings(0.01, by_pair=False), numbers) == 2


def test_the_shortest_period_that_covers_enough_is_taken() -> None:
    """Bursts begin at two places of each of 16 iterations, unequally far apart."""
    places = np.add.outer(10_000 * np.arange(16), [0, 3000]).ravel()
    chain = find_chain(places, 160_000)
    assert chain is not None
    assert chain.period == 10_000
    assert chain.bursts == [*range(0, 32, 2)]
    assert chain.turns == [*range(16)]

    even = find_chain(5000 * np.arange(32), 160_000)
    assert even is not None
    assert (even.period, even.turns) == (5000, [*range(32)])


@pytest.mark.parametrize(("count", "is_found"), [(4, False), (5, True)])
def test_five_bursts_make_a_chain(count: int, *, is_found: bool) -> None:
    """They are a period of 1000 bytes apart, in as many bytes."""
    chain = find_chain(1000 * np.arange(count), 1000 * count)
    assert (chain is not None) == is_found


def test_bursts_at_few_of_the_places_are_no_chain() -> None:
    """40 % of the periods of all bytes have to begin with one."""
    places = 1000 * np.arange(10)
    # 24 periods begin with 25 bursts at the most: ten are 40 % of them.
    assert find_chain(places, 24_000) is not None
    assert find_chain(places, 24_100) is None


def turn_lengths(long: float, short: float, turns: int, count: int) -> np.ndarray:
    """Return the times of periods of which each first of some turns is longer."""
    lengths = np.full(count, short)
    lengths[::turns] = long
    return np.append(0.0, np.cumsum(lengths))


@pytest.mark.parametrize("turns", [1, 2, 3, 5])
def test_turns_are_told_by_the_times_of_their_periods(turns: int) -> None:
    """One of some periods takes twice as long."""
    times = turn_lengths(2.0, 1.0, turns, 60)
    assert count_turns(times.tolist(), range(61)) == turns


def test_periods_that_vary_by_two_percent_are_alike() -> None:
    """The mean distance from the middle period decides, beyond the start."""
    for share, turns in ((0.039, 1), (0.041, 2)):
        for scale in (1.0, 10.0):
            times = scale * turn_lengths(1.0 + share, 1.0, 2, 48)
            assert count_turns(times.tolist(), range(49)) == turns
    # Eight periods show two turns, in the six behind those that warm up.
    assert count_turns(turn_lengths(2.0, 1.0, 2, 8).tolist(), range(9)) == 2
    # Three longest of 36 are cut to the third: a single long one says nothing.
    lengths = np.ones(48)
    lengths[40] = 9.0
    assert count_turns(np.append(0, np.cumsum(lengths)).tolist(), range(49)) == 1


@pytest.mark.parametrize("turns", [2, 3])
def test_what_turns_explain_is_their_share_of_the_variation(turns: int) -> None:
    """Periods of 1 and 2 s in turns, of which half of one turn takes 1.5 s."""
    lengths = np.tile([1.0, 2.0], 24)
    lengths[1::4] = 1.5
    times = np.append(0.0, np.cumsum(lengths))
    numbers = np.arange(49)
    # Of 36 periods beyond the warm-up 18 take 1 s, 9 take 1.5 s and 9 take 2 s; 1.25 s
    # is in the middle: they vary by 18 * 0.25 + 9 * 0.25 + 9 * 0.75 = 13.5 s. Turns of
    # two leave 18 * 0.25 = 4.5 s, those of three explain nothing.
    expected = 1 - 4.5 / 13.5 if turns == 2 else 0.0
    assert _explain(times, numbers, turns) == pytest.approx(expected, abs=0.05)


def test_few_periods_explain_nothing() -> None:
    """Three iterations of each turn are needed, behind a quarter that warms up."""
    for turns, count, share in ((2, 7, 1.0), (3, 11, 1.0), (3, 10, 0.0)):
        times = turn_lengths(2.0, 1.0, turns, count)
        assert _explain(times, np.arange(count + 1), turns) == share
    # What lies between bursts two periods apart is no period.
    times = turn_lengths(2.0, 1.0, 2, 8)
    assert _explain(times, np.array([0, 1, 2, 3, 4, 5, 6, 8, 10]), 2) == 0.0


@pytest.mark.parametrize(
    ("count", "iterations", "turns"),
    [(40, 40, 1), (40, 20, 2), (41, 20, 2), (43, 20, 2), (9, 10, 1), (60, 20, 3)],
)
def test_a_stated_number_of_iterations_decides(
    count: int, iterations: int, turns: int
) -> None:
    """Traffic before and after the iterations may look like more iterations."""
    assert _turns_of(count, iterations) == turns


@pytest.mark.parametrize(
    ("count", "iterations", "fits"),
    [
        (7, 10, False),
        (8, 10, True),
        (12, 10, True),
        (13, 10, False),
        (13, 11, True),
    ],
)
def test_one_and_a_tenth_of_the_iterations_may_be_missing(
    count: int, iterations: int, *, fits: bool
) -> None:
    """Up to one iteration and a tenth of the stated ones may be more or fewer."""
    if fits:
        assert _turns_of(count, iterations) == 1
        return
    with pytest.raises(Unfittable, match=f"^{count} periods repeat, which are no"):
        _turns_of(count, iterations)


def test_values_between_and_beyond_known_ones_go_on_as_far() -> None:
    """Three pairs are known; beyond them the mean slope of all goes on."""
    known, results = np.array([10.0, 20.0, 40.0]), np.array([2.0, 5.0, 8.0])
    values = np.array([5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0])
    found = _convert(values, known, results)
    assert found.tolist() == pytest.approx([1.0, 2.0, 3.5, 5.0, 6.5, 8.0, 10.0])


def test_marks_amid_bytes_are_settled_where_bursts_repeat() -> None:
    """Iterations of 10 kB have bursts at 0 and 3000; marks come some bytes later."""
    places = np.add.outer(10_000 * np.arange(1, 13), [0, 3000]).ravel()
    beside = np.array([100, -90, 50, 300, 20, -30, 80, 0])
    edges = 10_000 * np.arange(3, 11) + beside
    assert settle(edges, places).tolist() == (10_000 * np.arange(3, 11)).tolist()
    for later, first in ((4900, 3), (5100, 4)):
        marks = 10_000 * np.arange(3, 11) + later
        settled = 10_000 * np.arange(first, first + 8)
        assert settle(marks, places).tolist() == settled.tolist()


@pytest.mark.parametrize("first", [0, 1, 2])
def test_iterations_of_several_periods_begin_with_the_same_of_them(first: int) -> None:
    """Bursts come every 5 kB, an iteration has three: marks are near to one of them."""
    places = 5000 * np.arange(1, 41)
    begun = 5000 * (first + 1 + 3 * np.arange(11))
    assert settle(begun - 300, places).tolist() == begun.tolist()


def test_marks_among_very_many_bursts_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks stay where 12 places are more than the 11 that may be followed."""
    places = 10_000 * np.arange(1, 13)
    marks = 10_000 * np.arange(2, 9) + 100
    monkeypatch.setattr(repeats, "_MOST_PLACES", 12)
    assert settle(marks, places).tolist() == (marks - 100).tolist()
    monkeypatch.setattr(repeats, "_MOST_PLACES", 11)
    assert settle(marks, places) is marks


@pytest.mark.parametrize(
    "edges",
    [
        [10_000, 20_000, 40_000, 50_000, 60_000],  # one is missing
        [10_000, 20_600, 31_200, 41_800, 52_400],  # longer by 6 % than a period
        [10_000] * 5,
    ],
)
def test_marks_that_do_not_go_with_bursts_stay(edges: list[int]) -> None:
    """Nothing is settled where iterations are no periods."""
    places = 10_000 * np.arange(1, 13)
    marks = np.array(edges)
    assert settle(marks, places) is marks
    few = 10_000 * np.arange(1, 5)
    regular = 10_000 * np.arange(1, 6) + 100
    assert settle(regular, few) is regular
