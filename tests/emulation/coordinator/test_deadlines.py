"""What is overdue is named; what is merely long is left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.emulation.coordinator.deadlines import Deadlines
from emu.errors import DeadlineExceeded
from emu.problem import Realization
from emu.testing import two_machine_example
from tests.emulation.coordinator.virtual import (
    PerfectProcesses,
    begin,
    driver_of,
    take_in,
)

PATIENCE = 2.0


class Halfway:
    """The two-machine example, stopped wherever a test wants it."""

    def __init__(
        self,
        *,
        timed: bool = True,
        grow: float = 1.0,
        then: float = 1.0,
        first: int = 0,
        credit: int | None = None,
    ) -> None:
        self.problem, small = two_machine_example(2, credit=credit)
        times = small.times * [1.0, then]
        self.realization = Realization(times, small.volumes * grow)
        self.outlet = PerfectProcesses(self.problem, self.realization)
        self.run, _, self.deadlines = driver_of(
            self.problem,
            self.realization,
            "oes",
            self.outlet,
            patience=PATIENCE,
            timed=timed,
            first=first,
        )

    def until(self, instants: int) -> Deadlines:
        """Run through so many instants and return what watches."""
        begin(self.run, self.problem)
        for _ in range(instants):
            take_in(self.run, *self.outlet.next_events())
        return self.deadlines


def test_before_the_run_a_process_is_before_iteration_0() -> None:
    assert Halfway().deadlines.doing("s1") == "task s1 before iteration 0"


def checked(deadlines: Deadlines, *times: float) -> None:
    """Look at these run times, as a process does that never stands still."""
    for time in times:
        deadlines.check(time, time)


def test_running_task_is_due_at_its_profiled_end() -> None:
    deadlines = Halfway().until(0)
    checked(deadlines, 0.9, 1.1, 1.1 + PATIENCE)
    with pytest.raises(
        DeadlineExceeded,
        match=r"the coordinator waits for task g0 to end iteration 0 since 1\.000 s; "
        r"g0 was last seen when the run began; .* over 2 s of wall time",
    ):
        checked(deadlines, 1.2 + PATIENCE)


def test_each_iteration_is_due_by_its_own_time() -> None:
    story = Halfway(then=5.0).until(1).story()
    assert "task g0 runs iteration 1, due at 6.000 s" in story


def test_a_task_whose_end_is_known_is_due_then_and_a_gate_never() -> None:
    """Its process said that it ends later than the 1 s of its profile."""
    half = Halfway()
    deadlines = half.until(0)
    first = half.problem.job.index("g0")
    desk = deadlines._desk
    desk.known[first] = 0
    desk.known_end[first] = 4.5
    assert "task g0 runs iteration 0, due at 4.500 s" in deadlines.story()

    deadlines._is_gate[first] = True
    assert "task g0 runs" not in deadlines.story()


def test_a_story_tells_of_tasks_and_flows_in_the_order_of_their_beginnings() -> None:
    deadlines = Halfway().until(0)
    desk = deadlines._desk
    desk.task_start[0, 0] = 0.5
    assert deadlines.story() == (
        "task g1 runs iteration 0, due at 1.000 s; "
        "task g0 runs iteration 0, due at 1.500 s"
    )

    # Whatever their ends: the first of both will be over last.
    first, last = 0, 1
    desk.known[last], desk.known_end[last] = 0, 0.75
    desk.task_start[last, 0] = 0.6
    assert deadlines.story() == (
        "task g0 runs iteration 0, due at 1.500 s; "
        "task g1 runs iteration 0, due at 0.750 s"
    )
    assert desk.task_start[first, 0] < desk.task_start[last, 0]

    deadlines = Halfway().until(2)
    flows = deadlines._flows()
    assert len(flows) > 1
    deadlines._desk.activated[flows[0]] += 0.25
    assert deadlines._flows() == [*flows[1:], flows[0]]


def test_without_times_nothing_says_when_a_task_is_due() -> None:
    story = Halfway(timed=False).until(0).story()
    assert story == "task g0 runs iteration 0; task g1 runs iteration 0"


def test_a_task_was_last_seen_at_the_latest_of_what_it_did() -> None:
    """It ended its first iteration at 6 s, and received two flows: at 5 and 8 s."""
    half = Halfway()
    deadlines = half.until(0)
    job = half.problem.job
    reader = job.index("s1")
    edge = next(e for e in job.in_edges(reader) if job.edge_names[e] == "g0->s1")
    deadlines._desk.task_end[reader, 0] = 6.0
    deadlines._desk.flow_end[edge] = [5.0, 8.0]

    last = deadlines._sighting_of(reader)
    assert last == "receiving g0->s1 of iteration 1 at 8.000 s"
    # What stands last among its inputs is no later for it.
    other = max(job.in_edges(reader))
    assert other > edge
    deadlines._desk.flow_end[other] = [7.0, 7.5]
    assert deadlines._sighting_of(reader) == last


def test_task_without_a_profile_is_due_when_it_starts() -> None:
    deadlines = Halfway(timed=False).until(0)
    checked(deadlines, 0.1, 0.1 + PATIENCE)
    with pytest.raises(DeadlineExceeded, match=r"g0 to end iteration 0 since 0\.000 s"):
        checked(deadlines, 0.2 + PATIENCE)


@given(st.floats(2 * PATIENCE, 1e6), st.floats(0.0, PATIENCE))
def test_pause_of_the_coordinator_is_nobodys_delay(pause: float, awake: float) -> None:
    """A suspended laptop: all is overdue when it wakes, and nobody is to blame."""
    deadlines = Halfway().until(0)
    deadlines.check(1.1, 1.1)
    deadlines.check(1.1 + pause, 1.1 + awake)
    with pytest.raises(DeadlineExceeded):
        deadlines.check(1.2 + pause + PATIENCE, 1.2 + PATIENCE)


def test_what_came_in_time_is_waited_for_no_longer() -> None:
    half = Halfway()
    deadlines = half.until(0)
    checked(deadlines, 1.1)
    take_in(half.run, *half.outlet.next_events())
    checked(deadlines, 1.2 + PATIENCE)


def test_a_task_that_is_late_twice_is_waited_for_twice() -> None:
    """Task g0 is late at 1.5 s, then its process says that it ends at 6 s.

    The task is late once more at 6.5 s, and has another 2 s from then on.
    """
    deadlines = Halfway().until(0)
    desk = deadlines._desk
    checked(deadlines, 1.5)
    desk.known[:2], desk.known_end[:2] = 0, 6.0
    checked(deadlines, 4.0, 6.5, 6.5 + PATIENCE)
    with pytest.raises(DeadlineExceeded, match=r"g0 to end iteration 0 since 6\.000 s"):
        checked(deadlines, 6.6 + PATIENCE)


def test_flow_is_due_when_its_fluid_is_served() -> None:
    deadlines = Halfway().until(2)  # g0 and g1 have ended twice; flows until 5 s
    checked(deadlines, 4.9, 5.1, 5.2)  # seen to be served at 5.1
    with pytest.raises(
        DeadlineExceeded,
        match=r"task s1 waits for the flow g0->s1 of iteration 0 since 5\.100 s; "
        r"g0 was last seen ending iteration 1 at 2\.000 s; s1 was last seen when",
    ):
        checked(deadlines, 5.3 + PATIENCE)


def test_a_flow_as_long_as_it_likes_is_no_error() -> None:
    half = Halfway(grow=1e4)
    deadlines = half.until(2)
    for now in range(3, 20_000, 1000):
        checked(deadlines, float(now))


def test_nothing_under_way_is_noticed() -> None:
    deadlines = Halfway().deadlines
    checked(deadlines, 0.0, PATIENCE)
    with pytest.raises(DeadlineExceeded, match="no task runs and no flow is active"):
        checked(deadlines, PATIENCE + 0.1)


def test_process_is_told_by_task_and_iteration() -> None:
    deadlines = Halfway().until(1)

    assert deadlines.doing("g0") == (
        "task g0 in iteration 1, awaited by s0 for its iteration 1, s1 for its "
        "iteration 1; sending g0->s1 of iteration 0"
    )
    assert deadlines.doing("s1") == "receiving g0->s1 of iteration 0"
    assert deadlines.doing("w0") == "task w0 before iteration 0"


def test_a_task_that_waits_for_a_later_iteration_is_named_with_it() -> None:
    half = Halfway()
    begin(half.run, half.problem)
    while "p0 in iteration 0" not in half.deadlines.doing("p0"):
        take_in(half.run, *half.outlet.next_events())

    assert "awaited by w0 for its iteration 1" in half.deadlines.doing("p0")
    # No task reads what the last iteration makes.
    while "p0 in iteration 1" not in half.deadlines.doing("p0"):
        take_in(half.run, *half.outlet.next_events())
    assert half.deadlines.doing("p0") == "task p0 in iteration 1"


def test_a_later_attempt_numbers_iterations_as_of_the_whole_job() -> None:
    """Iteration 0 of the attempt is number 7 of the job."""
    half = Halfway(first=7)
    deadlines = half.until(0)
    assert deadlines.doing("s1") == "task s1 before iteration 7"
    assert deadlines.doing("g0") == (
        "task g0 in iteration 7, awaited by s0 for its iteration 7, s1 for its "
        "iteration 7"
    )
    assert deadlines.story().startswith("task g0 runs iteration 7, due at 1.000 s")

    for _ in range(2):
        take_in(half.run, *half.outlet.next_events())
    assert deadlines.doing("s1") == "receiving g0->s1 of iteration 7"
    assert "waits for the flow g0->s1 of iteration 7" in deadlines.story()
    assert deadlines._last_seen(0) == "g0 was last seen ending iteration 8 at 2.000 s"
    while not half.run.finished:
        take_in(half.run, *half.outlet.next_events())
    assert deadlines.doing("w0") == "task w0 after its last iteration 8"


def test_who_waits_for_a_credit_alone_is_not_named() -> None:
    """With a window of one the stores wait for the worker's credit, not for data."""
    half = Halfway(credit=1)
    begin(half.run, half.problem)
    while "w0 in iteration 0" not in half.deadlines.doing("w0"):
        take_in(half.run, *half.outlet.next_events())

    assert half.deadlines.doing("w0") == (
        "task w0 in iteration 0, awaited by p0 for its iteration 0"
    )


def test_a_task_between_two_iterations_has_not_done_its_last() -> None:
    half = Halfway()
    begin(half.run, half.problem)
    activities = set()
    while not half.run.finished:
        activities |= {
            half.deadlines.doing(task.name) for task in half.problem.job.tasks
        }
        take_in(half.run, *half.outlet.next_events())

    assert any(text.endswith(" before iteration 1") for text in activities)
    assert not any(text.endswith("last iteration 0") for text in activities)


@pytest.mark.parametrize(
    ("count", "named", "waiters"),
    [
        (2, "g0, g1", ", awaited by s0 for its iteration 0, s1 for its iteration 0"),
        (3, "g0, g1, s0", ", awaited by s1 for its iteration 0"),
        (6, "g0, g1, s0 and 3 more", ""),
    ],
)
def test_of_a_process_with_many_tasks_some_are_named(
    count: int, named: str, waiters: str
) -> None:
    """A server of Dorylus was killed in a line of 900 characters."""
    problem, realization = two_machine_example(2)
    names = {task.name: "server0" for task in problem.job.tasks[:count]}
    tasks = [
        replace(task, process=names.get(task.name, task.process))
        for task in problem.job.tasks
    ]
    problem = replace(problem, job=replace(problem.job, tasks=tuple(tasks)))
    outlet = PerfectProcesses(problem, realization)
    run, _, deadlines = driver_of(
        problem, realization, "oes", outlet, patience=PATIENCE
    )

    assert deadlines.doing("server0").startswith(f"tasks {named}: task g0 before")
    begin(run, problem)
    doing = deadlines.doing("server0")
    assert doing.startswith(f"tasks {named}: task g0 in iteration 0{waiters}; task g1")
    checked(deadlines, 1.1)
    with pytest.raises(DeadlineExceeded, match="g0 in process server0 was last seen"):
        checked(deadlines, 1.2 + PATIENCE)


@pytest.mark.parametrize(("count", "rest"), [(6, ""), (7, "; 1 more"), (9, "; 3 more")])
def test_of_many_lines_six_are_told(count: int, rest: str) -> None:
    lines = [f"line {number}" for number in range(count)]

    assert Deadlines._join_lines(lines) == "; ".join(lines[:6]) + rest


def test_process_that_has_done_all_is_told_so() -> None:
    half = Halfway()
    begin(half.run, half.problem)
    while not half.run.finished:
        take_in(half.run, *half.outlet.next_events())

    assert half.deadlines.doing("w0") == "task w0 after its last iteration 1"
    assert half.deadlines.story() == "no task runs and no flow is active"
