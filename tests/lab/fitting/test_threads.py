"""Causes by what threads did: what each had sent, received and waited for."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.lab.fitting import threads
from emu.lab.fitting.calls import Pause
from emu.lab.fitting.causes import BEGUN, DRAINED, GOT, Cause, FittedSteps, Own
from emu.lab.fitting.steps import Crossed, Step
from tests.lab.fitting.known_steps import Row, make_step

A, B, C = (0, 0), (1, 1), (2, 1)


def noted(step: Step, calls: list[float], taken: Row | None = None) -> Step:
    """Return a step whose calls are noted, and when the kernel had taken it."""
    over = step.first if taken is None else taken
    return replace(step, call=np.array(calls), taken=over)


def test_steps_are_found_by_the_calls_that_begin_them() -> None:
    """Calls of -1 were not noted; a call may have number 0."""
    steps = [
        noted(make_step(A, B, [0.1, 1.1]), [5, -1]),
        noted(make_step(B, A, [0.2, 1.2]), [0, 8]),
    ]
    assert threads._list_begins(steps) == {5: (0, 0), 0: (1, 0), 8: (1, 1)}


def test_what_the_kernel_held_counts_where_a_cause_waits_for_it() -> None:
    """One of four steps is awaited by a step, and one by a thread's computing."""
    rows = [
        [Cause(1, DRAINED, 0), Cause(2, GOT, 0)],
        [Cause(0, BEGUN, 1)],
    ]
    computing = {1: Own(Cause(3, DRAINED, 0), np.zeros(4))}
    held = threads._list_waited(rows, computing, [10.0, 20.0, 30.0, 40.0])
    assert held == (0.0, 20.0, 0.0, 40.0)


def test_receipts_by_order_count_only_where_calls_tell_none() -> None:
    """Each cause stands once, in the order of order, sends, receipts."""
    ordered = [Cause(0, GOT, 0), Cause(1, BEGUN, 0)]
    earlier = [Cause(1, BEGUN, 0), Cause(2, BEGUN, 1)]
    receipt = Cause(3, GOT, 0)
    sends = [Cause(1, BEGUN, 0), Cause(2, BEGUN, 1)]
    assert threads._join(ordered, earlier, [receipt]) == [*sends, receipt]
    assert threads._join(ordered, earlier, []) == [ordered[0], *sends]


def long_step(waits: list[float], rest: int) -> Step:
    """Return steps of ten packets of 100 bytes, some of which come behind the call."""
    begin = np.arange(4.0)
    taken = begin + np.array(waits)
    ahead = 10 - rest
    early = np.linspace(0.0, 1.0, ahead, endpoint=False)
    time = []
    for start, end in zip(begin, taken, strict=True):
        time += [
            *(start + (end - start) * early),
            *np.linspace(end + 0.1, end + 0.2, rest),
        ]
    crossed = Crossed(np.array(time), np.arange(0, 4100, 100))
    step = make_step(A, B, begin, begin + 0.9, size=1000.0)
    return noted(replace(step, crossed=crossed), [1, 2, 3, 4], taken)


@pytest.mark.parametrize(
    ("waits", "rest", "held"),
    [
        ([0.5, 0.5, 0.5, 0.5], 4, 400.0),
        ([0.5, 0.5, 0.5, 0.5], 9, 900.0),
        ([0.5, 0.5, 0.5, 0.5], 0, 1.0),  # a sender that waited for all of it
        ([0.5, 0.5, 0.5, 0.5], 10, 0.0),  # nothing had crossed: it did not wait
        ([0.0001, 0.5, 0.0001, 0.0001], 4, 0.0),
        ([0.0625, 0.0001, 0.0625, 0.0625], 4, 400.0),
    ],
)
def test_a_kernel_holds_what_had_not_crossed_when_a_sender_went_on(
    waits: list[float], rest: int, held: float
) -> None:
    """A sender did not wait where most of its calls took less than a millisecond."""
    assert threads._hold(long_step(waits, rest), 77.0) == held


def test_a_sender_waited_where_its_call_took_a_millisecond() -> None:
    """All of its packets came later."""
    step = replace(long_step([0.5] * 4, 9).part(slice(0, 1)), first=np.zeros(1))
    for taken, held in ((0.001, 900.0), (0.0009, 0.0)):
        crossed = Crossed(np.array([taken, *range(1, 10)]), np.arange(0, 1100, 100))
        waiting = replace(step, taken=np.array([taken]), crossed=crossed)
        assert threads._hold(waiting, 77.0) == held


def test_a_step_whose_calls_were_not_noted_keeps_what_was_estimated() -> None:
    """One call of -1 is enough for that, as is none at all."""
    step = long_step([0.5] * 4, 4)
    assert threads._hold(replace(step, call=np.array([1.0, 2, -1, 3])), 77.0) == 77.0
    assert threads._hold(replace(step, call=np.empty(0)), 77.0) == 77.0


def test_a_cause_comes_first_by_its_median_and_of_equals_by_its_number() -> None:
    """Beginnings count for sends, ends for receipts; a lag is always earlier."""
    steps = [
        make_step(A, B, [0.1, 1.1, 2.9], [0.5, 1.5, 2.95]),
        make_step(B, A, [0.3, 1.3, 2.3], [0.4, 1.4, 2.4]),
        make_step(B, A, [0.3, 1.3, 2.3], [0.6, 1.6, 2.6]),
    ]

    def is_earlier(step: int, moment: int, lag: int, number: int) -> bool:
        return threads._is_earlier(Cause(step, moment, lag), number, steps)

    assert is_earlier(0, BEGUN, 0, 1)
    assert not is_earlier(0, GOT, 0, 1)
    assert is_earlier(0, GOT, 1, 1)
    assert not is_earlier(1, BEGUN, 0, 0)
    assert is_earlier(1, BEGUN, 0, 2)
    assert not is_earlier(2, BEGUN, 0, 1)
    assert not is_earlier(2, DRAINED, 0, 1)
    assert not is_earlier(1, BEGUN, 0, 1)


def sends_of(steps: list[Step], held: list[float]) -> threads._Sends:
    return threads._Sends(steps, held)


def test_sends_are_awaited_where_the_next_step_begins_when_they_were_taken() -> None:
    """Steps at 0.5 s of an iteration, and a large one that was taken by then or not."""
    begin = np.arange(20.0)
    large = noted(make_step(A, B, begin + 0.1, begin + 0.9), [*range(20)], begin + 0.5)
    late = noted(make_step(A, B, begin + 0.1, begin + 0.9), [*range(20)], begin + 0.6)
    ordered = make_step(A, B, begin + 0.1, begin + 0.4)
    following = make_step(A, C, begin + 0.5, begin + 0.6)
    steps = [large, late, ordered, following, large]
    sends = sends_of(steps, [1.0, 9.0, 9.0, 0.0, 0.0])

    assert sends.behind([Cause(0, BEGUN, 0)], 3) == [Cause(0, DRAINED, 0)]
    # What the kernel took after it began is no wait; of an earlier iteration it is.
    assert sends.behind([Cause(1, DRAINED, 0)], 3) == [Cause(1, BEGUN, 0)]
    assert sends.behind([Cause(1, BEGUN, 1)], 3) == [Cause(1, DRAINED, 1)]
    # Where calls were not noted order says it, and receipts are as they are.
    assert sends.behind([Cause(2, DRAINED, 0)], 3) == [Cause(2, DRAINED, 0)]
    assert sends.behind([Cause(2, GOT, 0)], 3) == [Cause(2, GOT, 0)]
    assert sends.behind([Cause(0, GOT, 0), Cause(0, GOT, 1)], 3) == [Cause(0, GOT, 1)]
    # The kernel holds nothing of the last.
    assert sends.behind([Cause(4, BEGUN, 0)], 3) == [Cause(4, BEGUN, 0)]


@pytest.mark.parametrize(("early", "moment"), [(1, DRAINED), (2, BEGUN)])
def test_one_of_twenty_may_begin_before_its_cause_was_taken(
    early: int, moment: int
) -> None:
    """It begins 50 us before in all of them, and in some of them a second before."""
    begin = np.arange(0.0, 60.0, 3.0)
    first = begin + 1.5 - 5e-5
    first[3 : 3 + early] -= 1.0
    large = noted(make_step(A, B, begin + 0.1, begin + 1.9), [*range(20)], begin + 1.5)
    sends = sends_of([large, make_step(A, C, first)], [9.0, 0.0])

    assert sends.behind([Cause(0, BEGUN, 0)], 1) == [Cause(0, moment, 0)]


def pauses_of(count: int, **fields: Any) -> list[Pause]:
    """Return pauses whose fields are rows, or the same in all."""
    rows = {
        name: value if isinstance(value, list) else [value] * count
        for name, value in fields.items()
    }
    return [
        Pause(**{name: row[number] for name, row in rows.items()})
        for number in range(count)
    ]


def test_a_thread_computes_before_it_receives_once() -> None:
    """It is ready 0.25 s behind the step before, a tenth later each time."""
    begin = np.arange(4.0)
    sends = sends_of([make_step(A, B, begin), make_step(A, C, begin + 0.9)], [0.0, 0.0])
    earlier = [Cause(0, BEGUN, 0)]
    ready = [0.25, np.nan, 2.45, 3.55]

    own = sends.compute(pauses_of(4, groups=1, ready=ready), earlier)
    assert own is not None
    assert own.cause == earlier[0]
    # Where it received nothing it takes the usual time.
    np.testing.assert_allclose(own.seconds, [0.25, 0.45, 0.45, 0.55])

    def compute(**fields: Any) -> Own | None:
        return sends.compute(pauses_of(4, **fields), earlier)

    assert compute(groups=[1, 1, 1, 2], ready=ready) is None
    assert compute(groups=0, ready=ready) is None
    assert compute(groups=1, ready=np.nan) is None
    assert compute(groups=1, ready=[-0.5, 1.0005, 2.0009, 3.0001]) is None
    assert sends.compute(pauses_of(4, groups=1, ready=ready), []) is None
    early = compute(groups=1, ready=[-0.5, 1.5, 2.5, 3.5])
    assert early is not None
    assert early.seconds.tolist() == [0.0, 0.5, 0.5, 0.5]
    # A millisecond is enough.
    sends = sends_of([make_step(A, B, [0.0]), make_step(A, C, [0.9])], [0.0, 0.0])
    own = sends.compute(pauses_of(1, groups=1, ready=0.001), earlier)
    assert own is not None
    assert own.seconds.tolist() == [0.001]


def test_a_thread_may_receive_twice_in_one_of_twenty_iterations() -> None:
    """Two iterations of twenty with two receipts leave computing without one end."""
    begin = np.arange(20.0)
    sends = sends_of([make_step(A, B, begin), make_step(A, C, begin + 0.9)], [0.0, 0.0])
    for groups, is_found in (([2] + [1] * 19, True), ([2, 2] + [1] * 18, False)):
        pauses = pauses_of(20, groups=groups, ready=(begin + 0.5).tolist())
        found = sends.compute(pauses, [Cause(0, BEGUN, 0)])
        assert (found is not None) == is_found


def test_the_step_that_a_thread_had_sent_last_is_the_same_in_all_but_two() -> None:
    """Calls 0, 10, 20 ... begin step 1, one iteration each."""
    begins = {10 * number: (1, number) for number in range(22)}
    begins[5] = (0, 0)

    def earlier(before: list[int]) -> list[Cause]:
        return threads._sent_earlier(pauses_of(len(before), before=before), begins)

    same = [10 * number for number in range(22)]
    assert earlier(same) == [Cause(1, BEGUN, 0)]
    assert earlier([-1, *same[:-1]]) == [Cause(1, BEGUN, 1)]
    # 19 of the 20 inside are 95 %.
    assert earlier([-1, -1, 5, *same[3:]]) == [Cause(1, BEGUN, 0)]
    assert earlier([-1, -1, 5, 5, *same[4:]]) == []
    assert earlier([-1] * 22) == []
    # The first of all calls counts as well.
    assert earlier([*same[:19], 5, 5, 5]) == [Cause(1, BEGUN, 0)]
    assert earlier([5, *same[1:19], 5, 5, 5]) == []
    # 19 of 21 are less than 95 %, 20 are more.
    assert earlier([*same[:19], 5, 5, 5, 5]) == []
    assert earlier([*same[:20], 5, 5, 5]) == [Cause(1, BEGUN, 0)]


def test_receipts_are_the_newest_of_each_source_that_a_thread_read() -> None:
    """Two steps come from machine 1 and one from machine 2, to machine 0."""
    begin = np.arange(4.0)
    steps = [
        make_step(B, A, begin + 0.1, begin + 0.2),
        make_step(B, A, begin + 0.3, begin + 0.4),
        make_step(C, A, begin + 0.5, begin + 0.6),
        make_step(A, B, begin + 0.8, begin + 0.9),
        make_step(B, C, begin + 0.1, begin + 0.2),
    ]

    def receipts(
        over: float, sources: set[int], *, is_woken: bool = False
    ) -> set[Cause]:
        pauses = pauses_of(
            4,
            begun=(begin - 0.2).tolist(),
            over=(begin + over).tolist(),
            sources=sources,
            is_woken=is_woken,
        )
        return {*threads._find_receipts(pauses, 3, steps)}

    assert receipts(0.7, {1}) == {Cause(1, GOT, 0)}
    assert receipts(0.7, {1, 2}) == {Cause(1, GOT, 0), Cause(2, GOT, 0)}
    assert receipts(0.3, {1}) == {Cause(0, GOT, 0)}
    # 20 us after the end of the pause is still before it, by the clocks of kernels.
    assert receipts(0.4 - 2e-5, {1}) == {Cause(1, GOT, 0)}
    assert receipts(0.4 - 6e-5, {1}) == {Cause(0, GOT, 0)}
    assert receipts(0.7, set()) == set()
    assert receipts(0.7, set(), is_woken=True) == {Cause(1, GOT, 0), Cause(2, GOT, 0)}
    assert receipts(0.1, {1}) == set()


def test_receipts_of_up_to_two_iterations_before_count_where_they_are_often() -> None:
    """A thread that knew nothing newer since a moment ago goes by what came then."""
    begin = np.arange(10.0)
    steps = [
        make_step(B, A, begin + 0.1, begin + 0.2),
        make_step(A, B, begin + 0.8, begin + 0.9),
    ]

    def receipts(since: float, read: int) -> list[Cause]:
        sources = [{1}] * read + [set()] * (10 - read)
        pauses = pauses_of(
            10,
            begun=(begin - since).tolist(),
            over=(begin + 0.1).tolist(),
            sources=sources,
        )
        return threads._find_receipts(pauses, 1, steps)

    assert receipts(0.5, 10) == []
    assert receipts(0.8, 10) == [Cause(0, GOT, 1)]
    assert receipts(0.8, 4) == [Cause(0, GOT, 1)]
    assert receipts(0.8, 3) == []

    # What came three iterations before is too long ago.
    pauses = pauses_of(
        10,
        begun=(begin - 5).tolist(),
        over=(begin + 0.5).tolist(),
        sources={1},
    )
    for last, found in ((2.2, [Cause(0, GOT, 2)]), (2.6, [])):
        late = make_step(B, A, begin + 2.1, begin + last)
        assert threads._find_receipts(pauses, 1, [late, steps[1]]) == found


def test_a_receipt_that_mostly_comes_later_is_no_cause() -> None:
    """A receipt in time in five of ten is a cause; 50 us behind a pause is in time."""
    begin = np.arange(10.0)
    over = begin + 0.5
    last = over + 5e-5
    effect = make_step(A, B, begin + 0.8)
    for late, found in ((6, []), (5, [Cause(0, GOT, 0)])):
        arrivals = last.copy()
        arrivals[:late] += 0.4
        pauses = pauses_of(10, begun=begin.tolist(), over=over.tolist(), sources={1})
        steps = [make_step(B, A, begin + 0.1, arrivals), effect]
        assert threads._find_receipts(pauses, 1, steps) == found


def test_steps_that_were_noted_go_by_their_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last thread had sent, computed 0.3 s and received: both are causes."""
    begin = np.arange(6.0)
    steps = (
        noted(make_step(A, B, begin + 0.1, begin + 0.2), [*range(0, 18, 3)]),
        make_step(B, A, begin + 0.5, begin + 0.6),
        noted(make_step(A, C, begin + 0.7, begin + 0.8), [*range(2, 20, 3)]),
    )
    order = (
        (Cause(2, BEGUN, 1), Cause(1, GOT, 1)),
        (Cause(0, GOT, 0),),
        (Cause(1, GOT, 0), Cause(0, BEGUN, 0)),
    )
    found = FittedSteps(
        starts=begin,
        ends=begin + 1,
        first=0,
        steps=steps,
        causes=order,
        held=(0.0, 50.0, 0.0),
    )

    def pause(call: int, _begins: Any) -> Pause:
        iteration, place = divmod(call, 3)
        if place == 0:
            return Pause(before=call - 1 if call else -1)
        start = float(iteration)
        return Pause(
            before=call - 2,
            begun=start + 0.1,
            ready=start + 0.4,
            over=start + 0.65,
            groups=1,
            sources={1},
        )

    given: Any = SimpleNamespace(pause=pause)
    monkeypatch.setattr(threads, "Threads", lambda _: given)
    nothing: Any = None

    fitted = threads.follow_threads(found, nothing)

    assert fitted.causes == (
        # No receipt was told by calls: order says it.
        (Cause(2, BEGUN, 1), Cause(1, GOT, 1)),
        (Cause(0, GOT, 0),),
        (Cause(1, GOT, 0),),
    )
    assert fitted.held == (0.0, 0.0, 0.0)
    (part,) = fitted.computing.values()
    assert [*fitted.computing] == [2]
    assert part.cause == Cause(0, BEGUN, 0)
    np.testing.assert_allclose(part.seconds, 0.3)
