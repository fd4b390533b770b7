"""The scheduler driven event by event."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import SchedulingError
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Profile,
    Task,
)
from emu.scheduling import (
    RATE_POLICIES,
    Decisions,
    End,
    RateSegments,
    Scheduler,
    newest,
    policy_named,
)
from emu.simulation import simulate
from emu.testing import two_machine_example
from emu.testing.strategies import problems

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.problem import Realization

RULES = [name for name in RATE_POLICIES if name != "portfolio"]


class Reporting:
    """A scheduler, and the ends that it was not asked to settle yet."""

    def __init__(self, *arguments: Any) -> None:
        self.scheduler = Scheduler(*arguments)
        self.ends: list[End] = []

    def task_ended(
        self, task: int, iteration: int, volumes: dict[int, float], time: float
    ) -> None:
        """Announce what a task sends, and keep its end."""
        self.scheduler.announce(task, iteration, volumes)
        self.ends.append(End(time, task, -1, iteration))

    def end_task(self, *event: Any) -> None:
        """Announce what a task sends and settle its end."""
        self.task_ended(*event)
        self.settle()

    def flow_arrived(self, edge: int, iteration: int, time: float) -> None:
        """Keep the arrival of a flow."""
        self.ends.append(End(time, -1, edge, iteration))

    def settle(self, until: float | None = None) -> list[Decisions]:
        """Settle; what is not taken in stays, unless one is impossible."""
        ends, self.ends = sorted(self.ends), []
        decisions, taken = self.scheduler.settle(ends, until)
        self.ends = ends[taken:]
        return decisions


class VirtualCoordinator:
    """Obeys a scheduler with a virtual clock, by its decisions alone.

    ``rng`` shuffles the order in which the events of one instant are told.
    """

    def __init__(
        self,
        problem: Problem,
        realization: Realization,
        policy: str,
        rng: np.random.Generator | None = None,
    ) -> None:
        self.problem, self.realization, self.rng = problem, realization, rng
        profile = Profile(realization.times, realization.volumes)
        self.reporting = Reporting(problem, policy, profile)
        self.scheduler = self.reporting.scheduler
        self.running: list[tuple[float, int, int]] = []
        self.flow_ends: dict[int, tuple[float, int]] = {}
        self.now = 0.0
        self.task_start: NDArray[np.float64] = np.full(realization.times.shape, np.nan)
        self.flow_end: NDArray[np.float64] = np.full(realization.volumes.shape, np.nan)

    def obey(self, decisions: Decisions) -> None:
        """Start what is to be started and note when flows will end."""
        self.now = decisions.time
        for task, iteration in decisions.tasks:
            self.task_start[task, iteration] = self.now
            end = self.now + self.realization.times[task, iteration]
            heapq.heappush(self.running, (end, task, iteration))
        lines = decisions.lines
        for edge, iteration, served, rate in zip(
            lines.edge, lines.iteration, lines.served, lines.rate, strict=True
        ):
            left = self.realization.volumes[edge, iteration] - served
            end = self.now + max(left, 0.0) / rate if rate else math.inf
            self.flow_ends[int(edge)] = (end, int(iteration))

    def tell_next_instant(self) -> float | None:
        """Move the clock to the next end and tell all ends of that time.

        Return the time by which to settle where nothing ends but a fluid: a flow that
        arrived a rounding before that has not ended.
        """
        times = [end for end, *_ in self.running]
        times += [end for end, _ in self.flow_ends.values()]
        if min(times, default=math.inf) == math.inf:
            return self.scheduler.next_end
        self.now = min(times)
        due = self.now * (1 + 1e-12)
        ends = [("task", *event) for event in self.running if event[0] <= due]
        ends += [
            ("flow", end, edge, iteration)
            for edge, (end, iteration) in self.flow_ends.items()
            if end <= due
        ]
        if self.rng is not None:
            ends = [ends[i] for i in self.rng.permutation(len(ends))]
        for kind, end, which, iteration in ends:
            if kind == "flow":
                del self.flow_ends[which]
                self.flow_end[which, iteration] = self.now
                self.reporting.flow_arrived(which, iteration, self.now)
            else:
                self.running.remove((end, which, iteration))
                volumes = {
                    edge: float(self.realization.volumes[edge, iteration])
                    for edge in self.problem.job.out_edges(which)
                }
                self.reporting.task_ended(which, iteration, volumes, self.now)
        return None

    def run(self) -> None:
        """Run to the end."""
        self.obey(self.scheduler.begin())
        while not self.scheduler.finished:
            fluid_end = self.tell_next_instant()
            # Tasks without length end at once: more events of the same instant.
            for decisions in self.reporting.settle(fluid_end):
                self.obey(decisions)


@pytest.mark.parametrize("policy", RULES)
@given(drawn=problems(latest=True))
def test_driven_by_events_equals_simulated(
    policy: str, drawn: tuple[Problem, Realization]
) -> None:
    problem, realization = drawn
    if not (realization.times > 0).all():
        realization = type(realization)(realization.times + 0.25, realization.volumes)
    schedule = simulate(problem, realization, policy)
    coordinator = VirtualCoordinator(problem, realization, policy)
    coordinator.run()
    np.testing.assert_allclose(
        coordinator.task_start, schedule.task_start, rtol=1e-9, atol=1e-9
    )
    if schedule.reads is not None:
        np.testing.assert_array_equal(coordinator.scheduler.reads.log, schedule.reads)
    flows = ~np.isnan(coordinator.flow_end)
    np.testing.assert_allclose(
        coordinator.flow_end[flows], schedule.flow_end[flows], rtol=1e-9, atol=1e-9
    )
    assert flows.sum() == (schedule.flow_bytes[tuple(schedule.flows().T)] > 0).sum()


@pytest.mark.parametrize("policy", RULES)
@given(drawn=problems(), seed=st.integers(0, 2**32 - 1))
def test_the_order_of_events_of_one_instant_does_not_matter(
    policy: str, drawn: tuple[Problem, Realization], seed: int
) -> None:
    told = VirtualCoordinator(*drawn, policy)
    told.run()
    shuffled = VirtualCoordinator(*drawn, policy, np.random.default_rng(seed))
    shuffled.run()
    np.testing.assert_allclose(
        told.task_start, shuffled.task_start, rtol=1e-12, atol=1e-12
    )


def at_first_flows() -> tuple[Reporting, Decisions]:
    """Return a scheduler at 1 s, when both stores have ended iteration 0."""
    problem, _ = two_machine_example(2)
    scheduler = Reporting(problem, "oes")
    scheduler.scheduler.begin()
    scheduler.task_ended(0, 0, {0: 40.0, 1: 40.0}, 1.0)
    scheduler.task_ended(1, 0, {2: 40.0, 3: 40.0}, 1.0)
    (decisions,) = scheduler.settle()
    return scheduler, decisions


def test_decisions() -> None:
    scheduler, decisions = at_first_flows()
    assert decisions.time == 1.0
    assert decisions.tasks == [(0, 1), (1, 1)]
    assert sorted(decisions.flows) == [(1, 0), (2, 0)]
    assert sorted(decisions.lines.edge) == [1, 2]
    assert decisions.lines.rate.tolist() == [10.0, 10.0]
    assert decisions.lines.served.tolist() == [0.0, 0.0]
    assert scheduler.scheduler.served(1, 3.0) == 20.0
    assert scheduler.scheduler.served(1, 99.0) == 40.0
    assert not scheduler.scheduler.finished


def test_a_flow_ends_when_its_fluid_has_and_its_last_byte_is_there() -> None:
    """Both fluids end at 5 s; one flow has arrived at 4 s, the other does at 5.2 s."""
    scheduler, _ = at_first_flows()
    assert scheduler.scheduler.next_end == 5.0
    scheduler.flow_arrived(1, 0, 4.0)  # g0->s1: s1 has all its inputs, at 5 s
    assert scheduler.settle() == []
    assert scheduler.settle(4.9) == []

    (served,) = scheduler.settle(5.0)

    assert (served.time, served.served, served.tasks) == (5.0, 2, [(3, 0)])
    assert sorted(served.lines.edge.tolist()) == [1, 2]
    assert served.lines.served.tolist() == [40.0, 40.0]
    assert served.lines.rate.tolist() == [0.0, 0.0]
    assert len(served.news) == 0
    assert scheduler.scheduler.served(2, 5.1) == 40.0
    scheduler.flow_arrived(2, 0, 5.2)
    (arrived,) = scheduler.settle()
    assert (arrived.time, arrived.served, arrived.tasks) == (5.2, 0, [(2, 0)])


def test_a_fluid_that_ends_makes_room_before_what_comes_later() -> None:
    """s1->w0 of 5.5 s finds m1's out port empty, though g1->s0 has not arrived."""
    scheduler, _ = at_first_flows()
    scheduler.flow_arrived(1, 0, 4.0)
    scheduler.settle(5.0)
    scheduler.task_ended(3, 0, {5: 60.0}, 5.5)

    (begun,) = scheduler.settle()

    assert (begun.time, begun.served) == (5.5, 0)
    assert begun.news.edge.tolist() == [5]
    assert begun.news.rate.tolist() == [10.0]


def test_ends_told_together_are_settled_each_at_its_time() -> None:
    one_by_one, _ = at_first_flows()
    together, _ = at_first_flows()
    expected = []
    for task, edge, volumes, time in (
        (-1, 1, {}, 5.0),
        (-1, 2, {}, 5.2),
        (3, -1, {5: 60.0}, 6.0),
        (2, -1, {4: 60.0}, 6.2),
    ):
        for scheduler in (one_by_one, together):
            if task < 0:
                scheduler.flow_arrived(edge, 0, time)
            else:
                scheduler.task_ended(task, 0, volumes, time)
        expected += one_by_one.settle()

    found = together.settle()

    assert [d.time for d in found] == [d.time for d in expected]
    assert [(d.time, d.served) for d in found] == [
        (5.0, 2),
        (5.2, 0),
        (6.0, 0),
        (6.2, 0),
    ]
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine.tasks, mine.flows) == (theirs.tasks, theirs.flows)
        for column in ("edge", "iteration", "served", "rate", "since"):
            np.testing.assert_array_equal(
                getattr(mine.lines, column), getattr(theirs.lines, column)
            )


def test_more_than_there_is_room_for_is_settled_all_the_same() -> None:
    """300 tasks on two machines end one after the other, and send one flow each."""
    count = 300
    tasks = tuple(Task(f"t{i}", "t") for i in range(2 * count))
    job = Job(tasks, tuple(Edge(i, count + i) for i in range(count)), 1)
    cluster = Cluster((Machine("a", 10.0, 10.0), Machine("b", 10.0, 10.0)))
    problem = Problem(cluster, job, Placement((0,) * count + (1,) * count))
    scheduler = Reporting(problem, "mrtf")
    begun = scheduler.scheduler.begin()
    for i in range(count):
        scheduler.task_ended(i, 0, {i: 1e6}, 1.0 + i)

    found = scheduler.settle()

    assert len(begun.tasks) == count
    assert [d.time for d in found] == [1.0 + i for i in range(count)]
    assert [d.flows for d in found] == [[(i, 0)] for i in range(count)]
    assert all(i in d.lines.edge for i, d in enumerate(found))


def test_a_late_event_counts_as_now() -> None:
    scheduler, _ = at_first_flows()
    scheduler.flow_arrived(1, 0, 5.0)
    scheduler.settle()
    scheduler.flow_arrived(2, 0, 4.5)
    (decisions,) = scheduler.settle()
    assert decisions.time == 5.0
    scheduler.task_ended(2, 0, {4: 60.0}, 6.0)
    (decisions,) = scheduler.settle()
    assert (decisions.time, decisions.tasks) == (6.0, [])
    with pytest.raises(SchedulingError, match="s0->w0 of 1 is not active"):
        scheduler.scheduler.served(4, 6.0)  # local: handed over, never active


def test_impossible_events_tell_their_story() -> None:
    scheduler, _ = at_first_flows()
    cases = {
        "g0 sent over edge 2, not one of its": (0, 1, {2: 1.0}, 2.0),
        "g0->s1 of 1 has -1.0 bytes": (0, 1, {1: -1.0}, 2.0),
        "g0->s0 of 1 has nan bytes": (0, 1, {0: math.nan}, 2.0),
        "an event at time nan": (0, 1, {}, math.nan),
        "task number 6 ended": (6, 0, {}, 2.0),
        "g0 ended iteration 7": (0, 7, {}, 2.0),
        "g0 ended iteration -1": (0, -1, {}, 2.0),
        f"g0 ended iteration {1 << 70}": (0, 1 << 70, {}, 2.0),
    }
    for story, event in cases.items():
        scheduler.ends.clear()
        with pytest.raises(SchedulingError, match=story):
            scheduler.end_task(*event)
    early = {
        "w0 ended iteration 0, but it has started 0": (4, 0),
        "g0 ended iteration 0, but it has started 2 and ended 1": (0, 0),
    }
    for story, (task, iteration) in early.items():
        scheduler.task_ended(task, iteration, {}, 2.0)
        with pytest.raises(SchedulingError, match=story):
            scheduler.settle()
    for edge, iteration, story in ((1, 1, "g0->s1 of 1"), (6, 0, "w0->p0 of 0")):
        scheduler.flow_arrived(edge, iteration, 2.0)
        with pytest.raises(
            SchedulingError, match=f"{story} arrived, .* not on its way"
        ):
            scheduler.settle()
    scheduler.flow_arrived(99, 0, 2.0)
    with pytest.raises(SchedulingError, match="edge 99"):
        scheduler.settle()
    with pytest.raises(SchedulingError, match="begun already"):
        scheduler.scheduler.begin()


def test_policies_that_cannot_be_driven_are_refused() -> None:
    problem, realization = two_machine_example(2)
    with pytest.raises(ValueError, match="no policy is called fair; there are oes"):
        Scheduler(problem, "fair")
    with pytest.raises(ValueError, match="resolve it with"):
        Scheduler(problem, "portfolio")
    with pytest.raises(ValueError, match="oes_cp looks ahead"):
        Scheduler(problem, "oes_cp")
    with pytest.raises(ValueError, match="does not fit a job of 6 and 8"):
        Scheduler(problem, "oes_cp", Profile(realization.times, np.zeros((1, 2))))


def test_every_policy_says_what_it_is() -> None:
    for name in RATE_POLICIES:
        policy = policy_named(name)
        assert policy.name == name
        assert 10 < len(policy.summary) < 80
        assert policy.source


def test_the_newest_line_of_every_edge_is_kept_whole() -> None:
    def lines(*rows: tuple[int, int, float, float, float]) -> RateSegments:
        return RateSegments(*(np.array(column) for column in zip(*rows, strict=True)))

    merged = newest(
        [
            lines((3, 0, 0.0, 5.0, 1.0), (1, 0, 0.0, 6.0, 1.0)),
            lines((3, 0, 5.0, 2.0, 2.0)),
            lines((2, 4, 0.0, 1.0, 3.0), (1, 1, 0.0, 9.0, 3.0)),
        ]
    )

    rows = zip(
        merged.edge, merged.iteration, merged.served, merged.rate, merged.since,
        strict=True,
    )  # fmt: skip
    assert sorted(rows) == [
        (1, 1, 0.0, 9.0, 3.0),
        (2, 4, 0.0, 1.0, 3.0),
        (3, 0, 5.0, 2.0, 2.0),
    ]


def test_four_rules_promise_theorem_1() -> None:
    # Every flow has its oes rate or more (Theorem 1's condition); "none" is max-min.
    kept = {name for name, policy in RATE_POLICIES.items() if policy.keeps_theorem}
    assert kept == {"oes", "maxmin", "none", "oes_cp"}
