"""Checks of an audit beside the constraints: speeds, rates, channels, quotas.

Every fault is planted alone, in data of which no two quantities are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from emu.prediction.simulation import simulate
from emu.problem import (
    Cluster,
    Edge,
    Fault,
    Job,
    Machine,
    Outages,
    Placement,
    Problem,
    RateHistory,
    Realization,
    Schedule,
    Task,
    Tuner,
    with_faults,
)
from emu.testing import two_machine_example
from emu.trust.audit import audit
from emu.trust.audit_checks import allowance, work_of


def said(schedule: Schedule, **options: Any) -> list[str]:
    """Return what an audit without any tolerance but rounding says."""
    return [str(violation) for violation in audit(schedule, **options).violations]


def placed(schedule: Schedule, name: str, place: Any, value: float) -> Schedule:
    """Return the schedule with another value at one place of an array."""
    array = getattr(schedule, name).copy()
    array[place] = value
    change: dict[str, Any] = {name: array}
    return replace(schedule, **change)


def two_flows() -> Schedule:
    """Return a (1 s), which sends 20 B and then 30 B to b over 10 B/s; b takes 4 s.

    Iterations of a end at 1 and 2 s; its flows last from 1 to 3 and from 3 to 6 s.
    """
    machines = (Machine("m0", 40.0, 10.0), Machine("m1", 50.0, 60.0))
    job = Job((Task("a", "a", iterations=2), Task("b", "b")), (Edge(0, 1),), 3)
    problem = Problem(Cluster(machines), job, Placement((0, 1)))
    times = np.array([[1.0] * 3, [4.0] * 3])
    realization = Realization(times, np.array([[20.0, 30.0, 0.0]]))
    made = simulate(problem, realization, record_rates=True)
    return replace(made, task_settled=made.task_end, flow_settled=made.flow_end)


def with_row(
    schedule: Schedule, time: float, iteration: int, rate: float, edge: int = 0
) -> Schedule:
    """Return the schedule with one more row of rates, in the order of time."""
    rates = schedule.rates
    assert rates is not None
    place = int(np.searchsorted(rates.time, time, side="right"))
    row = {"time": time, "edge": edge, "iteration": iteration, "rate": rate}
    columns = {
        name: np.insert(getattr(rates, name), place, value)
        for name, value in row.items()
    }
    return replace(schedule, rates=RateHistory(**columns))


FAULTS: dict[str, Callable[[Schedule], Schedule]] = {
    "(6) a[1] was known to have ended before it did: 0.5 s": (
        lambda s: placed(s, "task_settled", (0, 1), 1.5)
    ),
    "(7) a->b[0] was known to have ended before it did: 0.25 s": (
        lambda s: placed(s, "flow_settled", (0, 0), 2.75)
    ),
    "(7) a->b[1] is not ready when its source ended: 0.5 s": (
        lambda s: placed(s, "flow_ready", (0, 1), 1.5)
    ),
    "(7) a->b[0] started before it was ready: 0.5 s": (
        lambda s: placed(s, "flow_ready", (0, 0), 1.5)
    ),
    "(7) a->b[0] has -1.0 as its ready": (
        lambda s: placed(s, "flow_ready", (0, 0), -1.0)
    ),
    "(7) a->b[1] has inf as its end": lambda s: placed(s, "flow_end", (0, 1), np.inf),
    "(12) a->b[1] has nan as its bytes": (
        lambda s: placed(s, "flow_bytes", (0, 1), np.nan)
    ),
    "(7) a->b[2] is not to be sent and has a start: 1 iteration": (
        lambda s: placed(s, "flow_start", (0, 2), 9.0)
    ),
    "(12) a->b[2] is not to be sent and has a bytes: 1 iteration": (
        lambda s: placed(s, "flow_bytes", (0, 2), 5.0)
    ),
    "(12) a->b[1] has a rate before it started, at 2.5 s: 0.5 s": (
        lambda s: with_row(s, 2.5, 1, 0.5)
    ),
    "(12) a->b[0] has a rate after it ended, at 3.25 s: 0.25 s": (
        lambda s: with_row(s, 3.25, 0, 0.5)
    ),
    "(12) a->b[2] has a rate and is not sent, at 4 s": (
        lambda s: with_row(s, 4.0, 2, 0.0)
    ),
    "is -1 B/s at 4 s of edge 0, iteration 1": lambda s: with_row(s, 4.0, 1, -1.0),
    "is inf B/s at 4 s of edge 0, iteration 1": lambda s: with_row(s, 4.0, 1, np.inf),
    "is 1 B/s at 4 s of edge 1, iteration 0": (
        lambda s: with_row(s, 4.0, 0, 1.0, edge=1)
    ),
    "is 1 B/s at 4 s of edge -1, iteration 0": (
        lambda s: with_row(s, 4.0, 0, 1.0, edge=-1)
    ),
    "is 1 B/s at 4 s of edge 0, iteration 3": lambda s: with_row(s, 4.0, 3, 1.0),
    "is 1 B/s at 4 s of edge 0, iteration -1": lambda s: with_row(s, 4.0, -1, 1.0),
}


@pytest.mark.parametrize("words", FAULTS)
def test_each_fault_is_named_where_it_is(words: str) -> None:
    schedule = two_flows()
    assert said(schedule) == []

    found = said(FAULTS[words](schedule))

    assert any(words in sentence for sentence in found), found


def test_a_rate_of_nothing_may_be_stated_at_any_time() -> None:
    """It takes nothing from a link."""
    assert said(with_row(two_flows(), 2.5, 1, 0.0)) == []


def test_rates_stand_in_the_order_of_time() -> None:
    schedule = two_flows()
    rates = schedule.rates
    assert rates is not None
    turned = replace(schedule, rates=rates.rows(np.arange(len(rates.time))[::-1]))

    assert any(
        "that is not in the order of time, at 1 s" in text for text in said(turned)
    )
    # Of 6, 4 and 5 s the last is before the first of them, too.
    times = np.array([6.0, 4.0, 5.0])
    flow = np.zeros(3, np.int64)
    rows = RateHistory(times, flow, flow + 1, np.zeros(3))
    words = "(12) a->b[1] has a rate in a row that is not in the order of time"
    found = [text for text in said(replace(schedule, rates=rows)) if words in text]
    assert found == [f"{words}, at 4 s: 2 s", f"{words}, at 5 s: 1 s"]


@pytest.mark.parametrize(
    ("stated", "off"), [(16.5, ""), (16.0, "0.5"), (18.0, "1.5"), (np.nan, "16.5")]
)
def test_a_makespan_is_the_last_end_and_what_deaths_add(
    stated: float, off: str
) -> None:
    """The last task ends at 15 s."""
    schedule = replace(two_flows(), outages=Outages(1.5, recovery=0.25))
    words = f"is said to be {stated:g} s, the last task ends at 16.5 s: {off} s"
    expected = [f"(15) the makespan {words}"] if off else []
    assert said(schedule, makespan=stated) == expected


def test_a_makespan_may_be_off_by_the_rounding_of_its_sums() -> None:
    """By 1e-12 of 15 s, which are 1.5e-11 s: half of that, and twice as much."""
    schedule = two_flows()
    last = 15.0
    assert said(schedule, makespan=last + 0.75e-11, tolerance=0.0) == []
    assert said(schedule, makespan=last - 0.75e-11, tolerance=0.0) == []
    assert len(said(schedule, makespan=last + 3e-11, tolerance=0.0)) == 1


def test_a_time_may_be_off_by_the_tolerance_and_its_rounding() -> None:
    times = np.array([0.0, 2e6, -3e6])
    expected = [0.25, 0.25 + 2e-6, 0.25 + 3e-6]
    assert allowance(times, 0.25).tolist() == expected


def test_what_meets_a_bound_exactly_keeps_it() -> None:
    """Nothing is off: no time, byte or rate, each of which is a small integer."""
    schedule = two_flows()
    exact = {"tolerance": 0.0, "relative": 0.0, "makespan": 15.0}
    assert said(schedule, volumes=schedule.flow_bytes, **exact) == []


def test_every_comparison_is_counted_once() -> None:
    """Of two tasks with 2 and 3 iterations, and an edge with 2 of 3 flows.

    Arrays are compared as a whole: 6 ends of tasks, 3 times of flows.
    """
    schedule = two_flows()
    assert schedule.rates is not None
    assert schedule.rates.time.tolist() == [1.0, 3.0]

    assert audit(schedule, makespan=15.0).checked == {
        "(5),(6)": 5 + 5,
        "(7)": 2 + 2 + 3 + 3 + 6 + 3,
        "(8),(9)": 2,
        "(10)": 4,
        "(11)": 1,
        # Four values of each flow, each row as such and in four ways, and the bytes.
        "(12)": 4 * 3 + 2 + 4 * 2 + 2,
        "(13),(14)": 4,
        "(15)": 1,
        "slots": 0,
        "channels": 0,
        "reads": 0,
    }


def test_a_task_takes_what_was_stated_at_the_least() -> None:
    """Task b takes 4 s each time; its last iteration should have taken 4.5 s."""
    schedule = two_flows()
    least = np.array([[0.5, 1.0, np.nan], [4.0, 3.0, 4.5]])

    short = "(6) b[2] takes less than its time: 4 of 4.5 s: 0.5 s"
    assert said(schedule, least_times=least) == [short]
    assert said(schedule, least_times=least, tolerance=0.5) == []


def test_only_stores_that_wait_for_nothing_begin_with_the_run() -> None:
    """The store b waits for a, worker c for no task; each may begin late."""
    machines = (Machine("m0", 40.0, 10.0), Machine("m1", 50.0, 60.0))
    kinds = {"a": "graph_store", "b": "graph_store", "c": "worker"}
    tasks = tuple(Task(name, kind) for name, kind in kinds.items())
    problem = Problem(
        Cluster(machines), Job(tasks, (Edge(0, 1),), 1), Placement((0, 1, 0))
    )
    times = np.array([[1.0], [4.0], [2.0]])
    made = simulate(problem, Realization(times, np.array([[20.0]])))
    assert made.task_start.tolist() == [[0.0], [3.0], [0.0]]
    late = placed(placed(made, "task_start", (2, 0), 0.5), "task_end", (2, 0), 2.5)

    report = audit(late)

    assert report.passed
    store_late = placed(late, "task_start", (0, 0), 0.25)
    assert said(store_late, tolerance=0.25) == []
    assert "(5) a[0] started after the run began: 0.25 s" in said(
        store_late, tolerance=0.125
    )


def test_work_is_counted_at_the_speed_that_its_machine_has() -> None:
    """m0 stands from 2 to 3 s, is half as fast from 5 to 9 s; m1 a quarter from 4."""
    machines = (Machine("m0", 1.0, 1.0), Machine("m1", 1.0, 1.0))
    cluster = with_faults(
        Cluster(machines),
        (
            Fault("m1", 4.0, np.inf, 0.25, of_machine=True),
            Fault("m0", 5.0, 9.0, 0.5, of_machine=True),
            Fault("m0", 2.0, 3.0, 0.0, of_machine=True),
        ),
    )
    tasks = (Task("a", "a"), Task("b", "b"), Task("g", "g", gate=True))
    problem = Problem(cluster, Job(tasks, (), 3), Placement((0, 1, 0)))
    start = np.array([[0.0, 1.0, 6.0], [1.0, 3.0, 5.0], [0.0, 1.0, 6.0]])
    end = np.array([[1.0, 6.0, 10.0], [3.0, 5.0, 9.0], [1.0, 6.0, 10.0]])

    work = work_of(problem, start, end)

    by_a = [1.0, 5.0 - 1.0 - 0.5 * 1.0, 4.0 - 0.5 * 3.0]
    by_b = [2.0, 2.0 - 0.75 * 1.0, 4.0 - 0.75 * 4.0]
    assert work.tolist() == [by_a, by_b, [1.0, 5.0, 4.0]]
    # In whatever order they are stated.
    turned = replace(cluster, speed_changes=cluster.speed_changes[::-1])
    assert turned.speed_changes != cluster.speed_changes
    work = work_of(replace(problem, cluster=turned), start, end)
    assert work.tolist() == [by_a, by_b, [1.0, 5.0, 4.0]]


def test_what_was_known_a_tolerance_too_soon_may_be_right() -> None:
    """An end of a task by 0.25 s, of a flow by 0.125 s: by clocks."""
    schedule = two_flows()
    early = placed(schedule, "task_settled", (1, 0), schedule.task_end[1, 0] - 0.25)
    early = placed(early, "flow_settled", (0, 0), schedule.flow_end[0, 0] - 0.125)

    words = "was known to have ended before it did"
    assert said(early, tolerance=0.3) == []
    assert said(early, tolerance=0.2) == [f"(6) b[0] {words}: 0.25 s"]


def test_a_flow_without_an_end_was_not_sent_and_nothing_else() -> None:
    lost = placed(two_flows(), "flow_end", (0, 0), np.nan)

    assert [text for text in said(lost) if "nan as its end" in text] == []
    assert any(text.startswith("(7) a->b[0] was not sent") for text in said(lost))


def on_a_channel() -> Schedule:
    """Return flows over one channel, of a (1 s) and b (2 s): 1 to 3 and 3 to 6 s."""
    machines = (Machine("m0", 40.0, 10.0), Machine("m1", 50.0, 60.0))
    tasks = (Task("a", "a"), Task("b", "b"), Task("c", "c"))
    edges = (Edge(0, 2, channel="line"), Edge(1, 2, channel="line"))
    problem = Problem(Cluster(machines), Job(tasks, edges, 1), Placement((0, 0, 1)))
    times = np.array([[1.0], [2.0], [4.0]])
    return simulate(problem, Realization(times, np.array([[20.0], [30.0]])))


def test_flows_of_a_channel_go_one_after_the_other_as_they_get_ready() -> None:
    schedule = on_a_channel()
    assert said(schedule) == []

    early = placed(schedule, "flow_start", (1, 0), 2.5)
    busy = "started while another flow was under way on channel line: 0.5 s"
    assert said(early) == [f"channels b->c[0] {busy}"]
    turned = replace(
        schedule,
        flow_start=np.array([[5.0], [2.0]]),
        flow_end=np.array([[7.0], [5.0]]),
        task_start=np.array([[0.0], [0.0], [7.0]]),
        task_end=np.array([[1.0], [2.0], [11.0]]),
    )
    overtakes = "started before one that got ready earlier on channel line: 1 s"
    assert said(turned) == [f"channels b->c[0] {overtakes}"]


def test_of_a_channel_what_has_no_bytes_may_go_first_in_an_instant() -> None:
    """Both start at 2 s, where b got ready; a is said to have got ready after it."""
    made = on_a_channel()
    schedule = replace(
        made,
        flow_ready=np.array([[2.0 + 1e-12], [2.0]]),
        flow_start=np.array([[2.0], [2.0]]),
        flow_end=np.array([[2.0], [5.0]]),
        flow_bytes=np.array([[0.0], [30.0]]),
        task_end=np.array([[2.0], [2.0], [10.0]]),
    )

    assert not [text for text in said(schedule) if text.startswith("channels")]


def test_a_flow_of_a_channel_is_held_against_all_that_began_before_it() -> None:
    """From 2 to 9 s, 3 to 4 and 5 to 6 s: both of the later ones are early."""
    machines = (Machine("m0", 40.0, 10.0), Machine("m1", 50.0, 60.0))
    tasks = tuple(Task(name, name) for name in "abcd")
    edges = tuple(Edge(source, 3, channel="line") for source in range(3))
    problem = Problem(Cluster(machines), Job(tasks, edges, 1), Placement((0, 0, 0, 1)))
    made = simulate(problem, Realization(np.full((4, 1), 2.0), np.full((3, 1), 10.0)))
    schedule = replace(
        made,
        flow_start=np.array([[2.0], [3.0], [5.0]]),
        flow_end=np.array([[9.0], [4.0], [6.0]]),
    )

    busy = "started while another flow was under way on channel line"
    found = [text for text in said(schedule) if busy in text]
    assert found == [f"channels b->d[0] {busy}: 6 s", f"channels c->d[0] {busy}: 4 s"]


def test_a_flow_of_a_channel_is_held_against_all_that_began_after_it() -> None:
    """Sources end at 4, 1 and 6 s; flows go in this order, the second too late."""
    machines = (Machine("m0", 40.0, 10.0), Machine("m1", 50.0, 60.0))
    tasks = tuple(Task(name, name) for name in "abcd")
    edges = tuple(Edge(source, 3, channel="line") for source in range(3))
    problem = Problem(Cluster(machines), Job(tasks, edges, 1), Placement((0, 0, 0, 1)))
    times = np.array([[4.0], [1.0], [6.0], [2.0]])
    made = simulate(problem, Realization(times, np.full((3, 1), 10.0)))
    schedule = replace(
        made,
        flow_start=np.array([[4.0], [5.0], [6.0]]),
        flow_end=np.array([[5.0], [6.0], [7.0]]),
    )

    overtakes = "started before one that got ready earlier on channel line"
    found = [text for text in said(schedule) if text.startswith("channels")]
    assert found == [f"channels a->d[0] {overtakes}: 3 s"]


def test_a_flow_is_ready_when_the_end_of_its_source_is_known() -> None:
    """Task a ends at 1 s, which is known at 2.5 s: b's flow, of 2 s, goes first."""
    schedule = on_a_channel()
    turned = replace(
        schedule,
        task_settled=np.array([[2.5], [2.0], [11.0]]),
        flow_start=np.array([[5.0], [2.0]]),
        flow_end=np.array([[7.0], [5.0]]),
        task_start=np.array([[0.0], [0.0], [7.0]]),
        task_end=np.array([[1.0], [2.0], [11.0]]),
    )

    assert said(turned) == []


def tuned() -> Schedule:
    """Return a run of 7 s whose quota of 20 slots is looked at every 2 s, 3 times."""
    machine = Machine("m0", 1.0, 1.0, slots={"a": 20, "b": 1})
    cluster = Cluster((machine,), tuners=(Tuner(0, "a", "b", 30, period=2.0),))
    tasks = (Task("x", "x", takes="a"), Task("y", "y", takes="b"))
    problem = Problem(cluster, Job(tasks, (), 1), Placement((0, 0)))
    times = np.array([[7.0], [1.0]])
    return simulate(problem, Realization(times, np.zeros((0, 1))))


@pytest.mark.parametrize(
    ("quotas", "words"),
    [
        ([20, 22, 25], ""),
        ([18, 18, 20], ""),
        ([20, 22], "was looked at 2 of 3 times: 1 looks"),
        ([20, 21, 21], "went from 20 to 21 at 4 s: 1 slots"),
        ([16, 16, 16], "went from 20 to 16 at 2 s: 4 slots"),
    ],
)
def test_quotas_go_in_steps_and_none_is_left_out(quotas: list[int], words: str) -> None:
    schedule = tuned()
    assert schedule.quotas is not None
    assert schedule.quotas.tolist() == [[20]] * 3

    changed = replace(schedule, quotas=np.array(quotas)[:, None])
    # Two pools, and every look.
    assert audit(changed).checked["slots"] == 2 + len(quotas)

    expected = [f"slots the quota of a of m0 {words}"] if words else []
    assert said(changed) == expected
    # The third look, at 6 of 7 s, may be missing where the end is off by more than 1 s.
    is_late = "looked at" in words
    assert (said(changed, tolerance=1.25) == []) == (is_late or not words)


def test_a_look_in_the_instant_of_the_end_may_be_missing() -> None:
    """0.1 s times 3 is a rounding above the third look of a tuner of 0.1 s."""
    machine = Machine("m0", 1.0, 1.0, slots={"a": 20, "b": 1})
    cluster = Cluster((machine,), tuners=(Tuner(0, "a", "b", 30, period=0.1),))
    problem = Problem(
        cluster, Job((Task("x", "x", takes="a"),), (), 1), Placement((0,))
    )
    times = np.array([[3 * 0.1]])
    made = simulate(problem, Realization(times, np.zeros((0, 1))))
    for looks in (2, 3):
        schedule = replace(made, quotas=np.array([[20]] * looks))
        assert said(schedule, tolerance=0.0) == []


def test_a_quota_that_rises_within_the_tolerance_may_have_risen() -> None:
    """Of 20 slots 22 from 2 s on: the last two of 22 are taken at 1.5 s."""
    machine = Machine("m0", 1.0, 1.0, slots={"a": 20, "b": 1})
    cluster = Cluster((machine,), tuners=(Tuner(0, "a", "b", 30, period=2.0),))
    tasks = tuple(Task(f"x{number}", "x", takes="a") for number in range(22))
    problem = Problem(cluster, Job(tasks, (), 1), Placement((0,) * 22))
    made = simulate(problem, Realization(np.full((22, 1), 9.0), np.zeros((0, 1))))
    start = np.full((22, 1), 1.0)
    start[20:] = 1.5
    schedule = replace(
        made, task_start=start, task_end=start + 9.0, quotas=np.array([[22]] * 5)
    )

    for tolerance, words in ((0.6, []), (0.4, ["overdrawn at 1.5 s: 2 slots"])):
        found = [
            text for text in said(schedule, tolerance=tolerance) if "drawn" in text
        ]
        assert [text.partition("is ")[2] for text in found] == words


def test_a_slot_may_be_free_a_tolerance_before_it_is_said_to_be() -> None:
    """Task y takes the one slot 0.25 s before x ends."""
    machine = Machine("m0", 1.0, 1.0, slots={"a": 1})
    tasks = (Task("x", "x", takes="a"), Task("y", "y", takes="a"))
    problem = Problem(Cluster((machine,)), Job(tasks, (), 1), Placement((0, 0)))
    times = np.array([[2.0], [3.0]])
    made = simulate(problem, Realization(times, np.zeros((0, 1))))
    early = placed(placed(made, "task_start", (1, 0), 1.75), "task_end", (1, 0), 4.75)

    assert said(early, tolerance=0.3) == []
    assert said(early, tolerance=0.2) == [
        "slots pool a of m0 of 1 slots is overdrawn at 1.75 s: 1 slots"
    ]


def test_a_task_that_ends_frees_one_slot() -> None:
    """Of two slots x and y have one each; when x ends at 2 s, only z may begin."""
    machine = Machine("m0", 1.0, 1.0, slots={"a": 2, "unused": 3})
    tasks = tuple(Task(name, name, takes="a") for name in "xyzw")
    problem = Problem(Cluster((machine,)), Job(tasks, (), 1), Placement((0,) * 4))
    times = np.array([[2.0], [3.0], [4.0], [5.0]])
    made = simulate(problem, Realization(times, np.zeros((0, 1))))
    assert made.task_start[:, 0].tolist() == [0.0, 0.0, 2.0, 3.0]
    assert said(made) == []

    early = placed(placed(made, "task_start", (3, 0), 2.0), "task_end", (3, 0), 7.0)
    overdrawn = "slots pool a of m0 of 2 slots is overdrawn at 2 s: 1 slots"
    assert said(early) == [overdrawn]


def test_an_iteration_comes_to_its_pool_when_the_one_before_has_ended() -> None:
    """Of one slot: x from 0 to 2 s, y, which came at 1 s, until 3 s, then x again."""
    machine = Machine("m0", 1.0, 1.0, slots={"a": 1})
    tasks = (
        Task("x", "x", takes="a"),
        Task("y", "y", takes="a", iterations=1),
        Task("z", "z", iterations=1),
    )
    job = Job(tasks, (Edge(2, 1),), 2)
    problem = Problem(Cluster((machine,)), job, Placement((0, 0, 0)))
    times = np.array([[2.0, 2.0], [1.0, 0.0], [1.0, 0.0]])
    made = simulate(problem, Realization(times, np.zeros((1, 2))))
    assert made.task_start[:2, 0].tolist() == [0.0, 2.0]
    assert made.task_start[0, 1] == 3.0

    # Who frees a slot in the instant in which another takes it goes first.
    assert said(made, tolerance=0.0) == []


@pytest.mark.parametrize(
    ("came", "began", "most"),
    [
        # Came 0.5 s apart, and began 0.25 s apart in the other order; and likewise.
        ((1.0, 0.5), (1.5, 1.75), 0.25),
        ((1.0, 0.75), (1.5, 2.0), 0.25),
    ],
)
def test_what_is_within_the_tolerance_may_have_been_first(
    came: tuple[float, float], began: tuple[float, float], most: float
) -> None:
    """Tasks x and y come to two slots when p and q have ended."""
    machine = Machine("m0", 1.0, 1.0, slots={"a": 2})
    tasks = tuple(Task(name, name, takes="a") for name in "xy")
    tasks += tuple(Task(name, name) for name in "pq")
    job = Job(tasks, (Edge(2, 0), Edge(3, 1)), 1)
    problem = Problem(Cluster((machine,)), job, Placement((0,) * 4))
    times = np.array([[1.0], [1.0], [came[0]], [came[1]]])
    made = simulate(problem, Realization(times, np.zeros((2, 1))))
    start = np.array([[began[0]], [began[1]], [0.0], [0.0]])
    late = replace(made, task_start=start, task_end=start + times)

    assert said(late, tolerance=most + 0.01) == []
    words = "x[0] got a slot of a before a task that came earlier"
    apart = came[0] - came[1]
    assert said(late, tolerance=most - 0.01) == [f"slots {words}: {apart:g} s"]


@pytest.mark.parametrize(("taken", "words"), [(2.0, ""), (3.0, ""), (3.5, "3.5 s")])
def test_a_quota_that_changes_within_the_tolerance_may_be_either(
    taken: float, words: str
) -> None:
    """Of 20 slots 18 from 2 s on: 19 are taken at once, with 1.2 s of tolerance."""
    machine = Machine("m0", 1.0, 1.0, slots={"a": 20, "b": 1})
    cluster = Cluster((machine,), tuners=(Tuner(0, "a", "b", 30, period=2.0),))
    tasks = tuple(Task(f"x{number}", "x", takes="a") for number in range(19))
    problem = Problem(cluster, Job(tasks, (), 1), Placement((0,) * 19))
    made = simulate(problem, Realization(np.full((19, 1), 3.0), np.zeros((0, 1))))
    schedule = replace(
        made,
        task_start=made.task_start + taken,
        task_end=made.task_end + taken,
        quotas=np.array([[18], [18], [18]]),
    )

    found = [text for text in said(schedule, tolerance=1.2) if "overdrawn" in text]

    assert len(found) == bool(words)
    assert all(f"of 18 slots is overdrawn at {words}" in text for text in found)


def tuned_slots() -> Schedule:
    """Return a task that takes slots of a tuned pool, and one that takes none."""
    machine = Machine("m0", 1.0, 1.0, slots={"a": 20, "b": 1})
    cluster = Cluster((machine,), tuners=(Tuner(0, "a", "b", 30, period=0.1),))
    tasks = (Task("x", "x", takes="a", iterations=2), Task("y", "y"))
    problem = Problem(cluster, Job(tasks, (), 3), Placement((0, 0)))
    return simulate(problem, Realization(np.full((2, 3), 0.3), np.zeros((0, 3))))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -5.0])
@pytest.mark.parametrize(
    "made", [tuned_slots, two_flows, lambda: simulate(*two_machine_example(3))]
)
def test_impossible_times_are_named_and_end_no_audit(
    made: Callable[[], Schedule], value: float
) -> None:
    schedule = replace(made(), rates=None)
    for name in ("task_start", "task_end", "flow_start", "flow_end", "flow_bytes"):
        array = getattr(schedule, name)
        for place in np.argwhere(np.isfinite(array)):
            wrong = placed(schedule, name, tuple(place), value)
            # Bytes within a machine take no link: nothing asks for them.
            assert said(wrong) or name == "flow_bytes", f"{name} {place}"
