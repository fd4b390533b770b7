"""Guards are silent on what is possible, and name what is not and its instant."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from emu.emulation.wire.frame_layout import BOARD_ROWS
from emu.prediction.analysis.bounds import bounds
from emu.prediction.scheduling import RATE_POLICIES
from emu.prediction.simulation import simulate
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Realization,
    Task,
)
from emu.systems.system import system_guards
from emu.testing import two_machine_example
from emu.testing.strategies import problems
from emu.trust.guards import examine
from emu.trust.guards.earliest_ends import earliest_ends
from emu.trust.guards.traffic import enough_carried, link_bytes, of_flows
from tests.trust.guards.reported import BYTE_SCALE, TIME_SCALE, frames, reported

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from emu.problem import Schedule

    Rows = NDArray[np.void]


def golden() -> tuple[Schedule, Realization]:
    problem, realization = two_machine_example(3)
    return simulate(problem, realization), realization


def said(schedule: Schedule, **changes: Any) -> list[str]:
    return [
        str(found) for found in examine(reported(schedule, **changes), system_guards())
    ]


@pytest.mark.parametrize("policy", RATE_POLICIES)
@settings.get_profile("each_rule")
@given(drawn=problems(latencies=True))
def test_what_the_simulator_makes_is_possible(
    policy: str, drawn: tuple[Problem, Realization]
) -> None:
    schedule = simulate(*drawn, policy, record_rates=True)
    kept = [s for s in said(schedule) if not s.startswith("enough carried")]
    assert kept == []


def test_a_port_of_one_and_a_half_times_its_capacity_is_found() -> None:
    """The network runs at 15 B/s, the machines are said to have 10."""
    problem, realization = two_machine_example(3)
    faster = [
        Machine(m.name, 1.5 * m.bandwidth_in, 1.5 * m.bandwidth_out)
        for m in problem.cluster.machines
    ]
    fast = Problem(Cluster(tuple(faster)), problem.job, problem.placement)
    schedule = replace(simulate(fast, realization), problem=problem)

    found = said(schedule, lead=0.006, stall=0.02)

    assert [words[:10] for words in found[:4]] == ["link bytes"] * 4
    assert any(words.startswith("constraints: (13)") for words in found)
    # 40 B leave m0 at once; the first flow of 40 is there after 40 / 15 s.
    assert found[0].startswith("link bytes at 3.66667 s: link m0 out of 10 B/s carried")


def test_a_run_of_178_bytes_tests_control() -> None:
    schedule, _ = golden()
    few = frames(schedule)
    few["bytes"] = (few["bytes"] * (0.2 / BYTE_SCALE)).round()

    found = examine(reported(schedule, received=few, sent=few, byte_scale=0.2))

    assert [f.guard for f in found] == ["enough carried"]
    assert "this run tests control, not the network" in found[0].sentence
    # What was sent and never came carried nothing.
    lost = reported(schedule, received=few, byte_scale=0.2)
    assert [finding.guard for finding in enough_carried(lost)] == ["enough carried"]
    assert found[0].remedy == "raise byte_scale to 1000"
    assert found[0].to_json()["at"] is None


def test_no_scale_makes_more_bytes_of_a_job_that_trains() -> None:
    schedule, _ = golden()
    few = frames(schedule)
    few["bytes"] = (few["bytes"] * (0.2 / BYTE_SCALE)).round()
    problem = schedule.problem
    alone = {"dataset": "x"}
    for job_settings in (alone, {"jobs": {"a": {}, "b": alone}}):
        job = replace(problem.job, settings=job_settings)
        trained = replace(schedule, problem=replace(problem, job=job))

        found = examine(reported(trained, received=few, sent=few, byte_scale=0.2))

        assert [f.guard for f in found] == ["enough carried"]
        assert found[0].remedy == "train on a larger graph, batch or model"


def one_flow(sizes: tuple[float, ...], **changes: Any) -> tuple[Schedule, list[str]]:
    """Return flows of m0 (out 40 B/s) to m1 (in 10) after 1 s, and what is said."""
    tasks = tuple(Task(f"{a}{n}", "x") for n in range(len(sizes)) for a in "ab")
    edges = tuple(Edge(2 * n, 2 * n + 1) for n in range(len(sizes)))
    machines = Machine("m0", 30.0, 40.0), Machine("m1", 10.0, 20.0)
    standing = Placement((0, 1) * len(sizes))
    problem = Problem(Cluster(machines), Job(tasks, edges, 1), standing)
    volumes = np.array(sizes)[:, None]
    realization = Realization(np.ones((len(tasks), 1)), volumes)
    schedule = simulate(problem, realization, record_rates=True)
    return schedule, said(schedule, **changes)


@pytest.mark.parametrize(
    ("came", "stood", "fires"),
    # Of the narrower NIC, 10 B/s: 2 s of catching up and 0.1 s unseen at 0.2 wall
    # seconds each are 25.1 B, 0.4 s in which the process stood still another 20.
    [(25.2, 0.0, False), (25.4, 0.0, True), (45.2, 0.4, False), (45.4, 0.4, True)],
)
def test_a_burst_is_held_against_the_narrowest_link(
    came: float, stood: float, *, fires: bool
) -> None:
    counted = {
        "host_metrics": {"loop_lag_max": stood},
        "received": {"bursts": [{"edge": 0, "bytes": came * BYTE_SCALE}]},
    }
    _, words = one_flow((100.0,), statistics={"b0": counted}, catch_up=2.0)
    assert [w for w in words if w.startswith("bursts")] == (
        [w for w in words if "than 10 B/s carries" in w] if fires else []
    )
    assert any(w.startswith("bursts") for w in words) == fires


@pytest.mark.parametrize(("ahead", "fires"), [(0.0205, False), (0.032, True)])
def test_a_frame_may_leave_by_the_lead_before_its_task_ends(
    ahead: float, *, fires: bool
) -> None:
    """A lead of 20 ms and clocks of 1 ms, of wall time; the task ends at 1 s."""
    schedule, _ = one_flow((100.0,))
    sent = frames(schedule)
    sent["first"] = 1.0 - ahead / TIME_SCALE

    words = said(schedule, sent=sent, lead=0.02)

    assert any("left before its task ended" in word for word in words) == fires


def test_what_senders_did_not_know_may_be_ahead() -> None:
    """Bytes of m1 in, 10 B/s, there 0.1 s (0.02 s of wall time) before they fit."""
    schedule, _ = one_flow((100.0,))
    early = frames(schedule)
    early["last"] -= 0.1
    for stale, fires in ((0.0, True), (0.021, False)):
        words = said(schedule, received=early, sent=early, stale=stale)
        assert any(w.startswith("link bytes") for w in words) == fires


@pytest.mark.parametrize(
    ("early", "seconds", "stale", "named"),
    [
        ([1], 10.0, 0.66, "a1->b1[0]"),
        ([1], 10.0, 0.67, ""),  # 33 B, for which the link needs that
        ([1], 0.014, 0.0, ""),  # clocks
        ([0, 1], 0.016, 0.1, "a0->b0[0]"),  # no sender knew its rate
    ],
)
def test_flows_that_outrun_their_rates_are_found(
    early: list[int], seconds: float, stale: float, named: str
) -> None:
    """Each has a third of 10 B/s: the link has room for one that takes more."""
    schedule, words = one_flow((100.0, 100.0, 100.0))
    assert words == []
    rows = frames(schedule)
    rows["last"][np.isin(rows["edge"], early)] -= seconds

    words = said(schedule, received=rows, sent=rows, stale=stale)

    found = [w.split("frame ")[1] for w in words if "rates allow" in w]
    assert [w.split(" came")[0] for w in found] == ([named] if named else [])
    # NICs of the kernel keep to rates alone: these are no plan of theirs.
    by_kernel = said(schedule, received=rows, sent=rows, stale=stale, burst=(0.0, 1.0))
    assert not [w for w in by_kernel if "rates allow" in w]


def test_flows_without_bytes_do_not_count_as_carried() -> None:
    """One of 5 packets among three of none, which have nothing to show."""
    _, words = one_flow((5 * 1448 / BYTE_SCALE, 0.0, 0.0, 0.0))
    assert words == []
    _, words = one_flow((3 * 1448 / BYTE_SCALE, 0.0, 0.0, 0.0))
    assert [w[:14] for w in words] == ["enough carried"]
    # In the mean: one of 12 packets beside two of one each.
    _, words = one_flow(tuple(count * 1448 / BYTE_SCALE for count in (1, 12, 1)))
    assert words == []


def _dropped(rows: Rows, edge: int) -> Rows:
    kept: Rows = rows[(rows["edge"] != edge) | (rows["iteration"] != 1)]
    return kept


def _moved(column: str, seconds: float) -> Callable[[Rows], Rows]:
    def move(rows: Rows) -> Rows:
        rows[column][_chosen(rows)] += seconds
        return rows

    return move


def _halved(rows: Rows) -> Rows:
    rows["bytes"][_chosen(rows)] //= 2
    return rows


def _chosen(rows: Rows) -> NDArray[np.bool_]:
    chosen: NDArray[np.bool_] = (rows["edge"] == 1) & (rows["iteration"] == 1)
    return chosen


#: What is done to the rows of the receivers or senders. The golden example's edges: 1 =
#: g0->s1 between machines, 0 = g0->s0 within one. 5 ms of wall time are 0.025 s.
FAULTS: dict[str, tuple[str, Callable[[Rows], Rows]]] = {
    "frame g0->s1[1] never came": ("received", lambda r: _dropped(r, 1)),
    "frame g0->s0[1] never came": ("received", lambda r: _dropped(r, 0)),
    "came before the one before it": ("received", _moved("last", -6.0)),
    "came twice": ("received", lambda r: np.concatenate([r, r[_chosen(r)]])),
    "with other bytes than its task": ("received", _halved),
    "before its last byte was sent": ("sent", _moved("last", 0.025)),
    "came before its last byte was": ("received", _moved("last", -0.025)),
    "came before its task ended": ("received", _moved("first", -5.0)),
    "left before its task ended": ("sent", _moved("first", -5.0)),
    "ended before its last byte came": ("received", _moved("last", 0.5)),
}


@pytest.mark.parametrize(("more", "fires"), [(1, False), (2, True)])
def test_bytes_of_a_frame_differ_by_one_at_most(more: int, *, fires: bool) -> None:
    """Of 4,000,000: what is scaled may be no whole number."""
    schedule, _ = golden()
    rows = frames(schedule)
    edge, iteration = schedule.flows()[0]
    rows["bytes"][(rows["edge"] == edge) & (rows["iteration"] == iteration)] += more

    found = [words for words in said(schedule, received=rows) if "other bytes" in words]

    assert bool(found) == fires


def test_what_never_came_is_named_after_what_has_a_time() -> None:
    """A frame whose task is not said to have ended, and one of a later task."""
    schedule, _ = golden()
    ended = schedule.task_end.copy()
    ended[0, 0] = np.nan
    unknown = replace(schedule, task_end=ended)
    rows = frames(schedule)
    kept = rows[(rows["edge"] != 1) | (rows["iteration"] == 2)]

    assert any(
        words.endswith("frame g0->s1[1] never came (and 1 others)")
        for words in said(unknown, received=kept)
    )


def test_frames_within_a_machine_carry_no_bytes() -> None:
    schedule, _ = golden()
    rows = frames(schedule)
    rows["bytes"][rows["edge"] == 0] = 0

    assert schedule.flow_bytes[0, 0] > 0
    assert said(schedule, received=rows, sent=rows) == []


@pytest.mark.parametrize(("size", "fires"), [(0.0, True), (15.9, True), (16.1, False)])
def test_a_link_may_carry_what_its_bucket_lets_go_at_once(
    size: float, *, fires: bool
) -> None:
    """The first flow of 40 B, alone on a link of 10 B/s, comes 1.6 s early."""
    schedule, _ = golden()
    rows = frames(schedule)
    edge, iteration = schedule.flows()[0]
    first = (rows["edge"] == edge) & (rows["iteration"] == iteration)
    rows["last"][first] -= 1.6 + 0.001 / TIME_SCALE

    burst = (0.0, size * BYTE_SCALE)
    found = [*link_bytes(reported(schedule, received=rows, burst=burst))]

    assert bool(found) == fires


@pytest.mark.parametrize(("lag", "fires"), [(0.0, True), (0.03, True), (0.04, False)])
def test_a_sender_logs_the_end_of_a_frame_soon_unless_it_stood_still(
    lag: float, *, fires: bool
) -> None:
    """0.1 s of wall time after it noted it: 25 ms are allowed, and twice the lag."""
    schedule, _ = golden()
    edge, iteration = schedule.flows()[0].tolist()
    end = schedule.flow_end[edge, iteration] + 0.1 / TIME_SCALE
    edges, iterations = schedule.flow_end.shape
    log = [
        [edge, iteration, end, 0.0, 0.0, 0.0],
        # Of flows that the job does not have nothing is said.
        [edges, 0, 9.0, 0.0, 0.0, 0.0],
        [0, iterations, 9.0, 0.0, 0.0, 0.0],
    ]
    statistics = {"g0": {"host_metrics": {"loop_lag_max": lag}}, "g1": {}}

    sentences = said(schedule, sends=np.array(log).ravel(), statistics=statistics)

    words = "was sent at another time by its sender's log"
    assert any(words in sentence for sentence in sentences) == fires


@pytest.mark.parametrize("words", FAULTS)
def test_faults_of_frames_are_found(words: str) -> None:
    side, plant = FAULTS[words]
    schedule, _ = golden()
    change: dict[str, Any] = {side: plant(frames(schedule))}

    assert any(words in sentence for sentence in said(schedule, **change))


@pytest.mark.parametrize("one_clock", [True, False])
def test_arrivals_a_little_early_are_found_where_clocks_are_one(
    *,
    one_clock: bool,
) -> None:
    """By 0.8 ms of wall time, at every hop of a chain."""
    schedule, _ = golden()
    early = frames(schedule)
    early["last"] -= 0.0008 / TIME_SCALE
    sentences = said(schedule, received=early, one_clock=one_clock)
    words = "came before its last byte was sent"
    assert any(words in sentence for sentence in sentences) == one_clock


@pytest.mark.parametrize(("factor", "edges"), [(1.0, 0), (0.97, 1)])
def test_a_board_that_shows_other_rates_is_found(factor: float, edges: int) -> None:
    schedule = simulate(*two_machine_example(3), record_rates=True)
    assert schedule.rates is not None
    board = np.zeros(len(schedule.rates.rate), BOARD_ROWS)
    board["since"] = schedule.rates.time
    for name in ("edge", "iteration", "rate"):
        board[name] = getattr(schedule.rates, name)
    board["rate"][board["edge"] == 1] *= factor
    sentences = said(schedule, board=board[::2])
    found = [sentence for sentence in sentences if "rates that nobody" in sentence]
    assert len(found) == edges
    assert all("senders of g0->s1 found" in sentence for sentence in found)


def test_a_board_of_an_edge_that_is_not_there_is_found() -> None:
    schedule = simulate(*two_machine_example(3), record_rates=True)
    edges = len(schedule.problem.job.edges)
    board = np.zeros(1, BOARD_ROWS)
    board["edge"] = edges

    (found,) = said(schedule, board=board)

    assert said(replace(schedule, rates=None), board=board) == []
    assert found == (
        f"rates at 0 s: senders of edge {edges}, which is not there found 1 rates that "
        "nobody decided, the first 0 B/s from 0 s on"
    )


@pytest.mark.parametrize(
    ("seconds", "fires"),
    # 0.15 s ahead of the order and 1 ms of clocks, of wall time; 3 s of work.
    [(-0.152, True), (-0.1505, False), (0.6, False), (0.6008, False), (0.602, True)],
)
def test_a_task_begins_after_its_order_and_before_its_end(
    seconds: float, *, fires: bool
) -> None:
    schedule, _ = golden()
    began = schedule.task_start.copy()
    began[4, 1] += seconds / TIME_SCALE

    found = [words for words in said(schedule, began=began) if "says that it" in words]

    assert bool(found) == fires
    instant = f"{began[4, 1]:.6g} s"
    assert all(f" at {instant}: task w0[1] says" in words for words in found)
    assert all(words.endswith("(and 0 others)") for words in found)
    # Of two it names the first, by their places.
    began[5, 0] = schedule.task_end[5, 0] + 9.0
    found = [words for words in said(schedule, began=began) if "says that it" in words]
    assert len(found) == 1
    assert ("task w0[1] says" in found[0]) == fires
    assert found[0].endswith(f"(and {int(fires)} others)")


def test_a_constraint_that_is_broken_once_has_no_others() -> None:
    schedule, realization = golden()
    ends = schedule.task_end.copy()
    ends[4, 1] -= 1.5  # w0 takes 3 s
    (once,) = (
        words
        for words in said(replace(schedule, task_end=ends), times=realization.times)
        if "takes less" in words
    )
    ends[4, 0] -= 1.5
    (twice,) = (
        words
        for words in said(replace(schedule, task_end=ends), times=realization.times)
        if "takes less" in words
    )
    assert "others" not in once
    assert twice.endswith("(and 1 others)")


def test_a_task_that_ends_before_its_time_is_found() -> None:
    schedule, realization = golden()
    ends = schedule.task_end.copy()
    ends[4, 1] -= 1.5  # w0 takes 3 s
    early = replace(schedule, task_end=ends)

    found = [str(f) for f in examine(reported(early, realization))]

    assert any("(6) w0[1] takes less than its time" in words for words in found)


@given(drawn=problems(latencies=True))
def test_no_schedule_is_faster_than_the_lower_bound(
    drawn: tuple[Problem, Realization],
) -> None:
    problem, realization = drawn
    least = earliest_ends(problem, realization.times, realization.volumes)
    schedule = simulate(problem, realization)

    assert (least <= schedule.task_end * (1 + 1e-9)).all()
    path = bounds(problem, realization).critical_path
    assert least.max() == pytest.approx(path)  # the scheduler's own way to it


def test_an_arrival_that_was_told_early_is_found() -> None:
    """The rates go on until 5 ms later, so that no time of the schedule is off."""
    schedule, _ = golden()
    notified = schedule.flow_end - 0.025

    assert any(
        "was notified to have come at" in words
        for words in said(schedule, notified=notified)
    )
    assert said(schedule, notified=schedule.flow_end) == []


@pytest.mark.parametrize("one_clock", [True, False])
def test_an_arrival_that_is_told_early_is_found_where_all_read_one_clock(
    *,
    one_clock: bool,
) -> None:
    """By 0.8 ms of wall time, at every hop: both are of one note of one kernel."""
    schedule, _ = golden()
    told = schedule.flow_end - 0.0008 / TIME_SCALE
    sentences = said(schedule, notified=told, one_clock=one_clock)
    is_found = any("was notified to have come at" in text for text in sentences)
    assert is_found == one_clock


def test_an_arrival_that_did_not_count_is_found_however_little_it_was_late() -> None:
    """0.1 ms of wall time after the end that the schedule gives the flow."""
    schedule, _ = golden()
    rows = frames(schedule)
    rows["last"] += 0.0005
    notified = schedule.flow_end + 0.0005

    found = said(schedule, notified=notified, received=rows)
    assert any("counts as ended before its last byte came" in words for words in found)


@pytest.mark.parametrize(
    ("clock", "answered", "found"),
    [
        ([38.0, 38.1], [7.6, 7.62], []),
        ([37.9, 39.0], [7.55, 7.9], []),  # messages took their time
        ([38.38, 38.48], [7.6, 7.62], ["clocks at 38.48 s: process w0 read 7.696 s"]),
        ([37.62, 38.1], [7.6, 7.9], ["clocks at 37.62 s: process w0 read 7.524 s"]),
    ],
)
def test_a_clock_that_drifts_is_found(
    clock: list[float], answered: list[float], found: list[str]
) -> None:
    schedule, _ = golden()
    statistics = {"g0": {}, "w0": {"clock": clock, "answered": answered}}

    words = said(schedule, statistics=statistics)
    assert [sentence.split(" of wall time")[0] for sentence in words] == found


def test_volumes_that_task_and_announcement_halve_alike_are_found() -> None:
    problem, realization = two_machine_example(3)
    half = replace(realization, volumes=realization.volumes / 2)

    found = said(simulate(problem, half), volumes=realization.volumes)

    assert any("(12) g0->s1[0] carried 20 of 40 bytes" in words for words in found)


@pytest.mark.parametrize(
    ("kind", "kinds", "broken"),
    [
        ("features", {"sampler": "model_forward"}, 1),
        ("activations", {"sampler": "model_forward"}, 0),
        # Apt has P3's phases, and asks stores for features.
        ("features", {"sampler": "model_forward", "worker": "sampler_fetch"}, 0),
    ],
)
def test_features_of_p3_that_travel_are_found(
    kind: str, kinds: dict[str, str], broken: int
) -> None:
    """Of the same job without P3's tasks they may."""
    schedule, _ = golden()
    problem = schedule.problem
    tasks = tuple(
        replace(task, kind=kinds.get(task.kind, task.kind))
        for task in problem.job.tasks
    )
    job = replace(problem.job, tasks=tasks)
    p3 = replace(schedule, problem=Problem(problem.cluster, job, problem.placement))
    rows = [{"edge": 1, "kind": kind, "bytes": 8e5}]
    came: dict[str, Any] = {"statistics": {"s1": {"received": {"payloads": rows}}}}

    found = said(p3, **came)

    assert len(found) == broken
    assert all("g0->s1 carried 8 bytes of features" in words for words in found)
    assert said(schedule, **came) == []


#: Start, length and bytes, on a grid: many share an instant.
FLOWS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 6), st.integers(1, 20)), max_size=12
)


@given(FLOWS, st.integers(1, 9), st.integers(0, 30))
@example([(0, 1, 1), (10, 2, 20), (4, 1, 2)], 1, 0)  # the worst begins last
def test_flows_overflow_where_some_interval_does(
    drawn: list[tuple[int, int, int]], capacity: int, depth: int
) -> None:
    start, length, sent = np.array(drawn, dtype=float).reshape(-1, 3).T
    end = start + length
    excess = {
        (s, e): sent[(start >= s) & (end <= e)].sum() - capacity * (e - s)
        for s in set(start)
        for e in set(end)
        if e >= s
    }
    found = of_flows(capacity * start, capacity * end, sent, depth)

    over = [e for (_, e), most in excess.items() if most > depth]
    if not over:
        assert found is None
        return
    assert found is not None
    assert found.at == capacity * min(over)
    assert found.most == pytest.approx(max(excess.values()))
    since = found.since / capacity
    until = found.until / capacity
    assert excess[since, until] == pytest.approx(found.most)


def test_what_fits_to_the_last_digit_does_not_overflow() -> None:
    """Behind a long run: its times are exact to 1e-11 s, and 1,000 volumes sum up."""
    count = 1000
    chance = np.random.default_rng(5)
    lengths = chance.uniform(0.1, 1.0, count)
    ends = 1e5 + np.cumsum(lengths)
    starts = ends - lengths
    for capacity in (1e3, 1e9):
        clock = capacity * starts, capacity * ends
        assert of_flows(*clock, sent=capacity * lengths, depth=0.0) is None
        assert of_flows(*clock, sent=1.001 * capacity * lengths, depth=0.0) is not None


def test_flows_that_fill_a_link_together_do_not_overflow() -> None:
    """Three flows of one interval are each far below the capacity."""
    start, end, sent = np.zeros(3), np.full(3, 10.0), np.array([1.0, 2.0, 7.0])
    assert of_flows(start, end, sent, 0.0) is None
    assert of_flows(start, 0.999 * end, sent, 0.0) is not None
