"""What each cause changes of a simulation, by hand from what was observed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from emu.prediction.analysis.flow_counts import FlowCounts
from emu.prediction.simulation import simulate
from emu.problem import Realization, Schedule
from emu.trust.causes import list_causes
from emu.trust.changed_simulation import Change
from emu.trust.observed import Observations, ProcessWaits
from tests.trust.test_causes import (
    ITERATIONS,
    NONE,
    SHAPE,
    STATED,
    problem,
    simulated,
)


def changes_by_cause(
    ran: Schedule, links: tuple[str, ...] = (), **observed: Any
) -> dict[str, Change]:
    """Return what each cause of a run changes, by its sentence."""
    flows = [(0, n) for n in range(ITERATIONS)]
    found = list_causes(ran, STATED, [*links], flows, Observations(**observed))
    return {cause.sentence: cause.change for cause in found}


def flow_counts(**given: Any) -> FlowCounts:
    return FlowCounts(
        **NONE | {name: np.broadcast_to(value, SHAPE) for name, value in given.items()}
    )


@pytest.mark.parametrize(
    ("words", "counts", "seconds"),
    [
        # 300 real bytes go in 30 windows of 0.15 s of wall time each: 2.25 s for 1 s.
        (
            "small window",
            {
                "window": 10.0,
                "allowed": 5.0,
                "least_round_trip": 0.15,
                "receiver_limited": 1.4,
                "busy": 1.5,
            },
            1.25,
        ),
        # 15 B go in 0.1 s at 150 B per second of wall time; a round trip takes 0.2 s.
        ("slow start", {"allowed": 15.0, "least_round_trip": 0.2}, 0.05),
    ],
)
def test_windows_are_of_real_bytes_and_of_wall_time(
    words: str, counts: dict[str, float], seconds: float
) -> None:
    """Every flow has 100 B in 1 s, emulated; 300 B and 2 s real."""
    found = changes_by_cause(
        STATED, counts=flow_counts(**counts), time_scale=2.0, byte_scale=3.0
    )
    (change,) = (found[said] for said in found if said.startswith(words))

    sent = STATED.flow_bytes > 0
    assert np.asarray(change.delays)[sent] == pytest.approx(seconds)


def test_slow_start_is_told_by_the_first_window_and_its_round_trip() -> None:
    """The first window is 15 B; that it grows to 40 B later is no reason."""
    counts = flow_counts(allowed=15.0, window=40.0, least_round_trip=0.2)
    said = changes_by_cause(STATED, counts=counts)

    (start,) = (sentence for sentence in said if sentence.startswith("slow start"))
    assert start == (
        "slow start: s->r begins with 15 B, and a round trip takes 200 ms of wall time"
    )


@pytest.mark.parametrize(
    ("window", "is_loss"), [(15.0, True), (10.0, True), (5.0, False)]
)
def test_what_a_small_buffer_threw_away_is_no_loss(
    window: float, *, is_loss: bool
) -> None:
    """Less than the least that its sender ever began with, where that is known.

    The longer wait counts, of which a second is half of one of the run.
    """
    counts = flow_counts(
        window=window,
        allowed=[40.0, 10.0, 20.0, 0.0, 50.0],
        busy=1.5,
        receiver_limited=1.4,
        hole=[0.5, 0.75, 0.5, 0.5, 0.5],
        timeouts=1.0,
        timer=0.25,
    )
    found = changes_by_cause(STATED, counts=counts, time_scale=2.0)
    losses = {said: change.waits for said, change in found.items() if "lost" in said}

    assert bool(losses) == is_loss
    for said, waits in losses.items():
        assert said.endswith("waited for up to 375 ms")
        assert np.asarray(waits).tolist() == [[0.25, 0.375, 0.25, 0.25, 0.25]] * 2


def test_a_clock_ahead_makes_flows_into_its_process_longer_and_tasks_shorter() -> None:
    """Clock r is ahead by 3 s at the end, s by 1 s behind; a wall second is half."""
    processes = {"r": ProcessWaits(clock=3.0), "s": ProcessWaits(clock=-1.0)}
    found = changes_by_cause(STATED, processes=processes, time_scale=2.0)
    ((said, change),) = found.items()

    assert said == "clock of r: off by 3 s at the end"
    part = STATED.flow_end / STATED.length
    flows = np.array([[3.0 + 1.0], [-1.0 - 3.0]]) * part / 2.0
    assert np.asarray(change.delays) == pytest.approx(np.nan_to_num(flows))
    tasks = np.array([[1.0] * ITERATIONS, [-3.0] * ITERATIONS]) / 2.0 / STATED.length
    assert np.asarray(change.work) == pytest.approx(tasks)


def test_traffic_of_others_takes_of_each_link_what_crossed_it() -> None:
    foreign = {"a out": 30.0, "b in": 95.0, "b out": 40.0}
    ((said, change),) = changes_by_cause(STATED, foreign=foreign).items()

    assert said == "another program's traffic: 95 B/s over b in"
    # A link keeps a tenth of its 100 B/s at least.
    assert change.rates == pytest.approx({"a out": 0.7, "b in": 0.1, "b out": 0.6})


def delays_by_words(words: str, **observed: Any) -> list[np.ndarray]:
    """Return what causes add to flows that were sent, of those that begin so."""
    found = changes_by_cause(STATED, **observed)
    sent = STATED.flow_bytes > 0
    named = [change for said, change in found.items() if said.startswith(words)]
    delays = [np.asarray(change.delays)[sent] for change in named]
    return [seconds for seconds in delays if seconds.any()]


@pytest.mark.parametrize(
    ("counts", "seconds"),
    [
        # A flow of 1 s: ten windows of 0.15 s, of 0.104 s, and of a reader that kept
        # up for more than half of the time.
        ({"receiver_limited": 0.8, "least_round_trip": 0.15}, [0.5]),
        ({"receiver_limited": 0.8, "least_round_trip": 0.104}, []),
        ({"receiver_limited": 0.75, "least_round_trip": 0.15}, []),
        # A flow shorter than a first window shows only how long its sender waited.
        (
            {"allowed": 11.0, "receiver_limited": 1.4, "least_round_trip": 0.01},
            [0.4],
        ),
    ],
)
def test_a_small_window_makes_longer_what_it_holds_up(
    counts: dict[str, float], seconds: list[float]
) -> None:
    counted = flow_counts(**{"window": 10.0, "allowed": 5.0, "busy": 1.5} | counts)
    found = delays_by_words("small window", counts=counted)

    assert [delays[0] for delays in found] == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("counts", "seconds"),
    [
        # Bytes that waited for a quarter of the time that a window was closed.
        ({"unread": 0.25, "receiver_limited": 0.9}, [0.45]),
        ({"unread": 0.2, "receiver_limited": 0.8}, [0.1]),
        ({"unread": 1.2, "receiver_limited": 0.9}, [0.6]),
        # A small window is one, whoever reads.
        ({"unread": 0.25, "receiver_limited": 0.9, "window": 5.0}, []),
    ],
)
def test_a_receiver_pauses_in_wall_time(
    counts: dict[str, float], seconds: list[float]
) -> None:
    """A second of a run is two of wall time."""
    counted = flow_counts(allowed=10.0, busy=1.0, **counts)
    found = delays_by_words("receivers pause", counts=counted, time_scale=2.0)

    assert [delays[0] for delays in found] == pytest.approx(seconds)


def test_a_window_is_named_by_the_flow_that_it_makes_longest() -> None:
    """Ten windows of 10 B take as many round trips, of 0.2 s most."""
    round_trips = [[0.15, 0.15, 0.15, 0.15, 0.15], [0.15, 0.2, 0.15, 0.15, 0.15]]
    counts = flow_counts(
        window=10.0,
        allowed=5.0,
        busy=1.5,
        receiver_limited=1.4,
        least_round_trip=round_trips,
    )
    said = changes_by_cause(STATED, counts=counts)

    (window,) = (sentence for sentence in said if sentence.startswith("small window"))
    assert window.startswith("small window: r->s may have 10 B on its way")
    assert window.endswith("took 1 s longer for it")


def test_a_disk_that_made_no_task_late_is_no_cause() -> None:
    """Task s waited 2 s for one and was on time; of r one step was late by 0.5 s."""
    times = np.ones(SHAPE)
    times[1, 3] = 1.5
    made = simulate(problem(), Realization(times, np.full(SHAPE, 100.0)), "maxmin")
    ran = replace(made, rates=None)
    waited = {"s": ProcessWaits(disk=2.0), "r": ProcessWaits(disk=0.25)}

    found = changes_by_cause(ran, processes=waited)

    (change,) = (found[said] for said in found if said.startswith("slow disk"))
    expected = np.zeros(SHAPE)
    expected[1, 3] = 0.25
    assert change.work == pytest.approx(expected)


def test_a_single_step_that_took_another_time_is_a_cause() -> None:
    """All others took what was stated; real work of the stated times is none."""
    times = np.ones(SHAPE)
    times[1, 3] = 1.5
    made = simulate(problem(), Realization(times, np.full(SHAPE, 100.0)), "maxmin")
    ran = replace(made, rates=None)
    excess = times - 1.0

    found = changes_by_cause(ran)
    (predicted,) = (found[said] for said in found if said.startswith("tasks took"))
    found = changes_by_cause(ran, measured=times)
    (measured,) = (found[said] for said in found if said.startswith("real work"))
    assert predicted.work == pytest.approx(excess)
    assert measured.work == pytest.approx(excess)

    found = changes_by_cause(ran, measured=np.ones(SHAPE))
    assert not any(said.startswith("real work") for said in found)


def test_a_pause_is_named_by_the_flow_that_waited_longest() -> None:
    counts = flow_counts(unread=[[0.0, 0.3, 0.2, 0.0, 0.1], [0.2, 0.1, 0.5, 0.1, 0.1]])
    said = changes_by_cause(STATED, counts=counts)

    (pause,) = (sentence for sentence in said if sentence.startswith("receivers"))
    assert pause.endswith("for up to 500 ms of one flow (r->s)")


def test_what_held_a_flow_up_is_held_up_once() -> None:
    """A lost segment, and meanwhile nobody read: 1.2 s of 1.5 s are left."""
    ran = simulated(share=2 / 3)
    counts = flow_counts(hole=0.3, unread=0.3)
    said = changes_by_cause(ran, ("a out",), counts=counts)

    assert any(sentence.endswith("had 83.3 % of it") for sentence in said)


@pytest.mark.parametrize(
    ("works", "most"), [([1.25, 0.25], "r"), ([1.75, 1.5], "s"), ([0.5, 1.25], "s")]
)
def test_of_tasks_the_one_that_is_farthest_off_is_named(
    works: list[float], most: str
) -> None:
    """Either way: each was to take 1 s."""
    times = np.repeat(np.array(works)[:, None], ITERATIONS, axis=1)
    made = simulate(problem(), Realization(times, np.full(SHAPE, 100.0)), "maxmin")
    ran = replace(made, rates=None)

    predicted = changes_by_cause(ran)
    measured = changes_by_cause(ran, measured=times)

    for words, found in (
        ("tasks took other times", predicted),
        ("real work took other CPU time", measured),
    ):
        (said,) = (sentence for sentence in found if sentence.startswith(words))
        assert f"than predicted, {most} most: " in said


@pytest.mark.parametrize(
    ("within", "words"),
    [(0.0, "late coordinator: orders"), (0.5, "waits for a core: the coordinator")],
)
def test_what_tasks_waited_for_orders_is_of_the_coordinator(
    within: float, words: str
) -> None:
    """Each begins 0.5 s after it was to, while the coordinator has a turn."""
    ran = simulated(work=1.5)
    starts = np.unique(ran.task_start)
    turns = np.array([[start, start + 0.5, 0.0, within] for start in starts])
    found = changes_by_cause(ran, began=ran.task_start + 0.5, turns=turns)

    (change,) = (found[said] for said in found if said.startswith(words))
    assert change.work == pytest.approx(np.full(SHAPE, 0.5))


def test_links_that_the_same_flows_cross_are_slow_together() -> None:
    ran = simulated(share=2 / 3)
    found = changes_by_cause(ran, ("b in", "a out"))

    words = "b in or a out is below its stated rate: "
    (change,) = (found[said] for said in found if said.startswith(words))
    assert change.rates == pytest.approx({"a out": 2 / 3, "b in": 2 / 3})


def test_waits_of_the_coordinator_before_and_within_its_turns_add_up() -> None:
    ran = simulated(share=2 / 3)
    start = float(ran.flow_start[0, 0])
    late = {(0, 0): start + 1.0}
    sends = {(0, 0): np.array([0.0, start - 0.1, start + 1.0, 0.0])}
    turns = np.array([[start + 0.6, start + 1.0, 0.5, 0.25]])
    said = changes_by_cause(
        ran,
        first=late,
        sends=sends,
        turns=turns,
        processes={"s": ProcessWaits(core=0.7, disk=2.0)},
    )

    assert (
        "waits for a core: the coordinator most was ready and had none for 750 ms"
        in said
    )


def test_the_slowest_disk_is_that_of_who_waited_longest_in_all() -> None:
    """One step of s is late by 1 s, each of the five of r by 0.5 s."""
    times = np.array([[1.0, 1.0, 2.0, 1.0, 1.0], [1.5] * ITERATIONS])
    made = simulate(problem(), Realization(times, np.full(SHAPE, 100.0)), "maxmin")
    processes = {"s": ProcessWaits(disk=1.0), "r": ProcessWaits(disk=2.5)}
    said = changes_by_cause(replace(made, rates=None), processes=processes)

    (disk,) = (sentence for sentence in said if sentence.startswith("slow disk"))
    assert disk == "slow disk: r most waited for one, 2.5 s in all"


@pytest.mark.parametrize(
    ("counts", "is_slow"),
    [
        # Of ten flows six found a queue of three round trips and more, then five.
        ({"round_trip": [[0.4] * 5, [0.4, 0.1, 0.1, 0.1, 0.1]]}, True),
        ({"round_trip": [[0.4] * 5, [0.1] * 5]}, False),
        ({"round_trip": 0.29}, False),
        # What waited for lost segments all the while says nothing of a link.
        ({"round_trip": [[0.4] * 5, [0.4] * 5], "hole": 0.5}, False),
    ],
)
def test_a_queue_that_stands_doubts_what_a_link_carried_before(
    counts: dict[str, Any], *, is_slow: bool
) -> None:
    """Flows took 1.5 s for 1 s over links that were sound before the run."""
    sound = dict.fromkeys(["a out", "a in", "b out", "b in"], 1.0)
    said = changes_by_cause(
        simulated(share=2 / 3),
        ("a out",),
        counts=flow_counts(least_round_trip=0.1, **counts),
        nics=sound,
    )

    assert any("a out is below" in sentence for sentence in said) == is_slow
