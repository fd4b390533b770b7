"""Causes of steps whose times are stated: what each waits for, and how long behind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emu.lab.fitting.causes import (
    BEGUN,
    DRAINED,
    GOT,
    HELD,
    Cause,
    FittedSteps,
    Own,
    Times,
    _spread,
    find_causes,
    longest,
    longest_run,
    on_its_way,
    overtaken,
)
from emu.lab.fitting.conversations import Unfittable
from emu.lab.fitting.steps import ALL, NOTE, Crossed, Step
from tests.lab.fitting.known_steps import Row, make_step

#: Processes: programs 0 and 1 on machines 0 to 2.
CLIENT, SERVER, OTHER = (0, 0), (1, 1), (2, 0)
BEGAN = np.arange(6.0)
MARKS = {ALL: np.arange(7.0)}
#: Seconds by which programs are late now and then, in turns that no other has.
UNSTEADY = np.array([0.0, 0.02, 0.01, 0.03, 0.0, 0.04])
RESTLESS = np.array([0.03, 0.0, 0.01, 0.0, 0.04, 0.02])


@pytest.mark.parametrize(
    ("good", "start", "stop"),
    [
        ([], 0, 0),
        ([0, 0], 0, 0),
        ([1, 1, 1], 0, 3),
        ([1, 1, 0, 1, 1], 0, 2),
        ([1, 0, 1, 1, 1], 2, 5),
        ([0, 1, 1, 1, 0, 1, 1], 1, 4),
    ],
)
def test_the_longest_run_is_the_first_of_as_long_ones(
    good: list[int], start: int, stop: int
) -> None:
    """Empty where nothing is good; behind each gap a run begins anew."""
    assert longest_run(np.array(good, dtype=bool)) == slice(start, stop)


def test_iterations_that_lack_a_step_are_in_no_stretch() -> None:
    """Three steps lack iterations 1, 5 and none; the shortest tells how many are."""
    nan = np.nan
    steps = [
        make_step(CLIENT, SERVER, [0.1, nan, 2.1, 3.1, 4.1, 5.1]),
        make_step(SERVER, CLIENT, [0.2, 1.2, 2.2, 3.2, 4.2, nan, 6.2]),
        make_step(CLIENT, OTHER, [0.3, 1.3, 2.3, 3.3, 4.3, 5.3, 6.3]),
    ]
    assert longest(steps) == slice(2, 5)
    with pytest.raises(Unfittable, match=r"^3 iterations of 6 follow one another"):
        find_causes(steps, {ALL: np.arange(8.0)}, skip=0)


def test_spreads_are_without_the_farthest_tenth() -> None:
    """The gap of 100 s of ten gaps, and the farthest of three, are not counted."""
    gaps = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 100.0])
    # 4.5 is in the middle; nine others are 0.5 to 4.5 from it.
    assert _spread(gaps) == pytest.approx(20.5 / 9)
    assert _spread(np.array([0.0, 1.0, 10.0])) == 0.5
    assert _spread(np.array([7.0])) == 0.0


def test_bytes_on_their_way_are_those_of_a_step_that_have_not_come() -> None:
    """Two iterations end with bytes 20 and 40; a packet of 10 comes each second."""
    crossed = Crossed(np.array([1.0, 2.0, 3.0, 4.0]), np.arange(0, 50, 10))
    step = replace(
        make_step(CLIENT, SERVER, [0.0, 2.0], size=20.0),
        crossed=crossed,
    )
    assert on_its_way(step, np.array([1.0, 2.5])).tolist() == [10.0, 20.0]
    assert on_its_way(step, np.array([5.0, 3.9])).tolist() == [0.0, 10.0]
    assert on_its_way(step, np.array([0.5])).tolist() == [20.0]


def test_moments_of_causes_are_those_of_earlier_iterations() -> None:
    """The kernel holds 30 of 100 bytes: the others are there with the 7th packet."""
    time = np.linspace(0.1, 2.0, 20)
    crossed = Crossed(time, np.arange(0, 210, 10))
    step = replace(
        make_step(CLIENT, SERVER, [0.05, 1.05], [1.0, 2.0], size=100.0),
        crossed=crossed,
    )
    small = make_step(SERVER, CLIENT, [1.5, 2.75], [1.6, 2.8], size=10.0)
    times = Times([step, small], [30.0, 30.0])

    assert times.of(Cause(0, BEGUN, 0)).tolist() == [0.05, 1.05]
    assert times.of(Cause(0, GOT, 0)).tolist() == [1.0, 2.0]
    np.testing.assert_allclose(times.of(Cause(0, DRAINED, 0)), [0.7, 1.7])
    np.testing.assert_equal(times.of(Cause(0, GOT, 1)), [np.nan, 1.0])
    # All of a small step is held: it has drained when what was before it had come.
    assert times.of(Cause(1, DRAINED, 0))[1] == 1.6

    got = Cause(0, GOT, 0)
    before = Cause(0, GOT, 1)
    np.testing.assert_allclose(times.gap(1, [got]), [0.5, 0.75])
    np.testing.assert_allclose(times.gap(1, [before], 0.25), [1.25, 1.75])
    np.testing.assert_allclose(times.gap(1, [before, Cause(0, BEGUN, 0)]), [1.45, 1.7])
    np.testing.assert_allclose(times.gap(1, [], 0.25), [1.25, 2.5])
    np.testing.assert_allclose(times.gap_behind(1, before), [1.75])
    own = Own(before, np.array([0.5, 0.5]))
    np.testing.assert_allclose(times.gap_behind_own(1, own), [np.inf, 1.25])


def fit(*steps: Step, count: int = 6) -> FittedSteps:
    """Return steps with their causes, in iterations of a second."""
    return find_causes(steps, {ALL: np.arange(count + 1.0)}, skip=0)


def test_four_iterations_are_enough() -> None:
    """Numbers begin behind what was skipped, times at the marks of the slowest."""
    nan = np.nan
    ask = make_step(CLIENT, SERVER, [nan, 1.1, 2.1, 3.1, 4.1], clock=CLIENT)
    tell = make_step(OTHER, SERVER, [0.3, 1.3, 2.3, 3.3, 4.3], clock=OTHER)
    marks = {CLIENT: np.arange(6.0), OTHER: np.arange(7.0) + 0.25}

    found = find_causes([ask, tell], marks, skip=10)

    assert (found.first, found.count) == (11, 4)
    assert found.starts.tolist() == [1.25, 2.25, 3.25, 4.25]
    assert found.ends.tolist() == [2.25, 3.25, 4.25, 5.25]
    assert found.seconds == 1.0
    part = found.part(1, 3)
    assert (part.first, part.count) == (12, 2)
    assert part.starts.tolist() == [2.25, 3.25]
    assert part.ends.tolist() == [3.25, 4.25]
    assert part.steps[0].first.tolist() == [2.1, 3.1]
    assert part.causes == found.causes
    # Steps of two clocks are no causes of one another, each is one of its next.
    assert found.causes == (((0, BEGUN, 1),), ((1, BEGUN, 1),))


def test_an_answer_waits_for_its_request_and_a_request_for_the_answer_before() -> None:
    """Each program takes a time of its own; the first request has nothing before it."""
    asked = BEGAN + 0.1 + UNSTEADY
    answered = asked + 0.01 + 0.03
    found = fit(
        make_step(CLIENT, SERVER, asked, asked + 0.01),
        make_step(SERVER, CLIENT, answered, answered + 0.08),
    )

    assert found.causes == (((1, GOT, 1),), ((0, GOT, 0),))
    assert found.held == (0.0, 0.0)
    np.testing.assert_allclose(found.gaps[1], 0.03)
    waited = 1 - 0.12 + np.diff(UNSTEADY)
    np.testing.assert_allclose(found.gaps[0], [0.1, *waited])


def test_of_two_requests_the_later_one_is_answered() -> None:
    """One comes at 0.11 s and one at 0.31 s of an iteration; the answer at 0.35 s."""
    early = make_step(CLIENT, SERVER, BEGAN + 0.1, BEGAN + 0.11)
    late = make_step(CLIENT, SERVER, BEGAN + 0.3, BEGAN + 0.31, number=1)
    answer = make_step(SERVER, CLIENT, BEGAN + 0.35, BEGAN + 0.36)

    assert fit(early, late, answer).causes[2] == ((1, GOT, 0),)
    # Behind the answer it is of the next: what came in this iteration is newer.
    behind = make_step(CLIENT, SERVER, BEGAN + 0.5, BEGAN + 0.51, number=1)
    assert fit(early, behind, answer).causes[2] == ((0, GOT, 0),)


def test_who_answers_all_at_once_waits_for_all() -> None:
    """The last request alone would say as much of its answer, which has a peer."""
    first = BEGAN + 0.1 + UNSTEADY
    second = BEGAN + 0.2 + RESTLESS
    tell = make_step(CLIENT, SERVER, first, first + 0.01)
    last = make_step(OTHER, SERVER, second, second + 0.01)
    answers = (
        make_step(SERVER, CLIENT, second + 0.03, second + 0.05),
        make_step(SERVER, OTHER, second + 0.032, second + 0.06),
    )
    # Of CLIENT's two causes the one by OTHER decides; the answer has both.
    found = fit(tell, last, *answers)
    assert {(0, GOT, 0), (1, GOT, 0)} <= {*found.causes[2]}
    assert {(0, GOT, 0), (1, GOT, 0), (2, BEGUN, 0)} & {*found.causes[3]} != {
        (1, GOT, 0)
    }
    np.testing.assert_allclose(found.gaps[2], 0.02)


def test_a_step_between_two_answers_keeps_the_request_of_the_later_one() -> None:
    """The first answer did not wait for what came between the two answers."""
    first = BEGAN + 0.1 + UNSTEADY
    second = BEGAN + 0.2 + RESTLESS
    third = (3, 0)
    steps = (
        make_step(CLIENT, SERVER, first, first + 0.01),
        make_step(OTHER, SERVER, second, second + 0.01),
        make_step(SERVER, CLIENT, second + 0.03, second + 0.05),
        make_step(SERVER, OTHER, second + 0.05, second + 0.06),
    )
    between = make_step(third, SERVER, second + 0.035, second + 0.04)

    # Without it the later answer waits for the earlier one, which waits for both.
    assert fit(*steps).causes[2:] == (
        ((3, BEGUN, 1), (0, GOT, 0), (1, GOT, 0)),
        ((2, BEGUN, 0),),
    )
    assert fit(*steps, between).causes[3] == ((1, GOT, 0),)
    # Of two that wait for their requests alone neither waits for the other's.
    own = make_step(SERVER, CLIENT, first + 0.03, first + 0.05)
    assert fit(*steps[:2], own, steps[3]).causes[2:] == (
        ((0, GOT, 0),),
        ((1, GOT, 0),),
    )


@pytest.mark.parametrize(("unsteady", "is_request"), [(4e-5, True), (6e-5, False)])
def test_a_request_says_as_much_as_all_causes_within_50_us(
    unsteady: float, *, is_request: bool
) -> None:
    """It comes earlier by twice so much every other time, another note never does."""
    early = np.tile([0.0, 2 * unsteady], 3)
    request = make_step(CLIENT, SERVER, BEGAN + 0.05, BEGAN + 0.1 - early)
    other = make_step(OTHER, SERVER, BEGAN + 0.05, BEGAN + 0.15)
    answer = make_step(SERVER, CLIENT, BEGAN + 0.2, BEGAN + 0.3)

    causes = fit(request, other, answer).causes[2]

    both = ((2, BEGUN, 1), (0, GOT, 0), (1, GOT, 0))
    assert causes == (((0, GOT, 0),) if is_request else both)


@pytest.mark.parametrize(("gap", "is_answer"), [(0.0009, True), (0.0011, False)])
def test_peers_answer_at_once_behind_all_that_they_sent(
    gap: float, *, is_answer: bool
) -> None:
    """One that comes a millisecond later waits for what else had come as well."""
    peer = (1, 0)
    ask = make_step(CLIENT, peer, BEGAN + 0.1, BEGAN + 0.11)
    own = make_step(peer, OTHER, BEGAN + 0.05, BEGAN + 0.06)
    other = make_step(OTHER, peer, BEGAN + 0.07, BEGAN + 0.08)
    answer = make_step(peer, CLIENT, BEGAN + 0.11 + gap, BEGAN + 0.2)

    causes = fit(ask, own, other, answer).causes[3]

    at_once = ((0, GOT, 0), (1, BEGUN, 0))
    assert ({*causes} == {*at_once}) == is_answer
    assert ((2, GOT, 0) in causes) != is_answer


def test_what_came_three_iterations_before_is_no_cause() -> None:
    """An arrival that took 2.5 iterations is too old to be a cause; 1.5 are not."""
    for took, lag in ((0.05, 0), (0.5, 1), (1.5, 2), (2.5, None)):
        arrival = make_step(CLIENT, SERVER, BEGAN, BEGAN + took)
        step = make_step(SERVER, OTHER, BEGAN + 0.1, BEGAN + 0.2)
        causes = fit(arrival, step).causes[1]
        assert causes == (
            ((1, BEGUN, 1),) if lag is None else ((1, BEGUN, 1), (0, GOT, lag))
        )


@pytest.mark.parametrize(("late", "lag"), [(0, 0), (1, 0), (2, 1)])
def test_a_cause_may_come_late_once_in_twenty(late: int, lag: int) -> None:
    """Else it comes in the instant in which the step begins."""
    began = np.arange(20.0)
    came = began + 0.1
    came[5 : 5 + late] += 0.3
    arrival = make_step(CLIENT, SERVER, began, came)
    step = make_step(SERVER, OTHER, began + 0.1, began + 0.2)
    assert (0, GOT, lag) in fit(arrival, step, count=20).causes[1]


def test_moments_are_ordered_by_the_median_of_their_iterations() -> None:
    """The middle one of 41 iterations is late: by its clock it would come second."""
    began = np.arange(41.0)
    came = began + 0.1
    came[20] += 0.4
    arrival = make_step(CLIENT, SERVER, began, came)
    step = make_step(SERVER, OTHER, began + 0.3, began + 0.4)
    assert fit(arrival, step, count=41).causes[1] == ((1, BEGUN, 1), (0, GOT, 0))


def test_all_that_a_process_sent_in_any_order_is_waited_for() -> None:
    """Two steps begin in changing order, and the third step waits for both."""
    steps = (
        make_step(CLIENT, SERVER, BEGAN + 0.1 + UNSTEADY),
        make_step(CLIENT, OTHER, BEGAN + 0.1 + RESTLESS),
        make_step(CLIENT, SERVER, BEGAN + 0.3, number=1),
    )
    assert fit(*steps).causes[2] == ((0, BEGUN, 0), (1, BEGUN, 0))


def with_note(extra: Row, count: int, size: float = NOTE) -> tuple[Cause, ...]:
    """Return the causes of a step at 0.3 s, behind data and, some later, a note."""
    began = np.arange(float(count))
    return fit(
        make_step(CLIENT, SERVER, began + 0.05, began + 0.1),
        make_step(OTHER, SERVER, began + 0.05, began + 0.2 - extra, size=size),
        make_step(SERVER, (3, 0), began + 0.3),
        count=count,
    ).causes[2]


def test_a_note_is_a_cause_where_a_step_is_as_steady_behind_it() -> None:
    """It is so within 50 us, and 15 % more; of more than 48 bytes it is no note."""
    with_it = ((2, BEGUN, 1), (0, GOT, 0), (1, GOT, 0))
    without = ((2, BEGUN, 1), (0, GOT, 0))
    often = np.tile([0.0, 1.0], 6)
    # 0.85 times a spread of 58 us is 49.3 us, of 60 us 51 us.
    assert with_note(often * 2 * 58e-6, 12) == with_it
    assert with_note(often * 2 * 60e-6, 12) == without
    assert with_note(often * 2 * 60e-6, 12, NOTE + 1) == with_it
    # Of four iterations the last two count, before which causes may be.
    assert with_note(np.array([0.0, 0.0, 0.0, 0.05]), 4) == without
    assert with_note(np.array([0.0, 0.05, 0.0, 0.0]), 4) == with_it


def test_a_note_that_a_process_sent_itself_is_always_a_cause() -> None:
    """However steady the step is behind the data that had come before."""
    note = make_step(SERVER, OTHER, BEGAN + 0.2 - UNSTEADY, size=NOTE)
    causes = fit(
        make_step(CLIENT, SERVER, BEGAN + 0.05, BEGAN + 0.1),
        note,
        make_step(SERVER, (3, 0), BEGAN + 0.3),
    ).causes[2]
    assert (1, BEGUN, 0) in causes


def known(*steps: Step, causes: tuple[Cause, ...]) -> FittedSteps:
    """Return steps of which the last has these causes."""
    began = np.arange(float(len(steps[0].first)))
    nothing: tuple[tuple[Cause, ...], ...] = ((),) * (len(steps) - 1)
    held = (0.0,) * len(steps)
    return FittedSteps(began, began + 1, 0, steps, (*nothing, causes), held)


@pytest.mark.parametrize(
    ("size", "cause", "late", "is_overtaken"),
    [
        (HELD, Cause(0, BEGUN, 0), 1, True),
        (HELD - 1, Cause(0, BEGUN, 0), 1, False),
        (HELD, Cause(0, BEGUN, 1), 1, False),
        (HELD, Cause(0, GOT, 0), 1, False),
        (HELD, Cause(0, DRAINED, 0), 1, True),
        (HELD, Cause(0, BEGUN, 0), 2, False),
    ],
)
def test_large_steps_that_are_under_way_are_overtaken(
    size: float, cause: Cause, late: int, *, is_overtaken: bool
) -> None:
    """The next step may begin after all has come in one of twenty iterations."""
    began = np.arange(20.0)
    first = began + 0.2
    first[:late] = began[:late] + 0.5
    large = make_step(CLIENT, SERVER, began + 0.1, began + 0.5, size=size)
    found = known(large, make_step(CLIENT, OTHER, first, first + 0.9), causes=(cause,))
    assert overtaken(found) == [large] * is_overtaken


def test_a_step_that_several_overtake_is_told_once() -> None:
    """Two causes of a step are the same large one."""
    large = make_step(CLIENT, SERVER, BEGAN + 0.1, BEGAN + 0.5, size=HELD)
    causes = (Cause(0, BEGUN, 0), Cause(0, DRAINED, 0))
    found = known(large, make_step(CLIENT, OTHER, BEGAN + 0.2), causes=causes)
    assert overtaken(found) == [large]


def large_and_next(
    behind: float, pace: Row | float = 0.005, count: int = 6
) -> FittedSteps:
    """Return 300 kB in 100 packets from 0.1 s on, and a step that begins behind that.

    A packet comes each 5 ms, or in a pace of its own by iteration.
    """
    began = np.arange(float(count))
    paces = np.full(count, pace)
    time = (began + 0.1)[:, None] + np.outer(paces, np.arange(1, 101))
    time = time.ravel()
    crossed = Crossed(time, 3000 * np.arange(100 * count + 1))
    large = make_step(CLIENT, SERVER, began + 0.1, began + 0.6, size=3e5)
    large = replace(large, crossed=crossed)
    step = make_step(CLIENT, OTHER, began + 0.1 + behind)
    return fit(large, step, count=count)


def test_a_sender_that_goes_on_when_a_part_has_come_waited_for_the_kernel() -> None:
    """The sender goes on after 0.25 s, when 50 of 100 packets have come."""
    found = large_and_next(0.251)
    assert found.causes[1] == ((0, DRAINED, 0),)
    assert found.held == (150_000.0, 0.0)
    np.testing.assert_allclose(found.gaps[1], 0.001, atol=1e-9)


@pytest.mark.parametrize(
    ("behind", "pace"),
    [
        (0.0005, 0.005),  # it begins with the large step
        (0.004, 0.005),  # nothing of that had come: the kernel took it at once
        (0.25, np.array([0.004, 0.008, 0.005, 0.007, 0.004, 0.008])),
    ],
)
def test_a_sender_that_did_not_wait_goes_on_behind_the_beginning(
    behind: float, pace: Row | float
) -> None:
    """Nothing is held then, also where it is steadier behind the beginning."""
    found = large_and_next(behind, pace)
    assert found.held == (0.0, 0.0)
    assert found.causes[1] == ((0, BEGUN, 0),)
