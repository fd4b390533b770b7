"""Figures of a live run, event by event, of times that a test states."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.emulation.wire.messages import FlowEnded, RunTask, TaskEnded
from emu.prediction.scheduling import Decisions
from emu.prediction.scheduling.scheduler import RateSegments
from emu.report.dashboard import LiveRun
from emu.report.dashboard.live_run import _Flows
from emu.report.dashboard.live_table import live_table
from emu.report.dashboard.status import History, Seen
from emu.testing import two_machine_example
from tests.report.dashboard.replay import Clock


def live_run(time_scale: float = 2.0) -> tuple[LiveRun, Clock]:
    """Return a run that began at 100 s of the wall clock, or has yet to."""
    problem, _ = two_machine_example(3)
    clock = Clock()
    return LiveRun(problem, "s", "oes", time_scale, clock=clock), clock


def ended(task: int, iteration: int, end: float, **more: Any) -> TaskEnded:
    """Return the end of a task that took a second."""
    fields: dict[str, Any] = {
        "task": task,
        "iteration": iteration,
        "start": end - 1.0,
        "end": end,
        "edges": [],
        "volumes": [],
        "began": end - 1.0,
        "cpu": 0.0,
        "late": 0.0,
        "report": {},
    }
    return TaskEnded(**fields | more)


def rows(*lines: tuple[int, int, float, float]) -> RateSegments:
    """Return rates: edge, iteration, bytes so far and bytes per second."""
    edge, iteration, served, rate = (
        np.array(column) for column in zip(*lines, strict=True)
    )
    return RateSegments(edge, iteration, served, rate, np.zeros(len(edge)))


def test_lateness_and_figures_are_of_what_tasks_reported() -> None:
    """Figures are means of the last reports; what is no number is none."""
    live, clock = live_run()
    live.tape.began(2.5)
    live.tape.task_ended(ended(4, 0, 1.0, late=0.25, report={"loss": 4.0, "rows": 9.0}))
    live.tape.task_ended(ended(4, 1, 2.0, late=0.125, report={"loss": 2.0}))
    live.tape.task_ended(
        ended(3, 0, 2.5, report={"loss": 5.0, "test_accuracy": 0.5, "x": 1.0})
    )
    live.tape.task_ended(ended(3, 1, 3.0, report={"loss": np.nan}))
    status = live.status()
    assert (status.late_steps, status.max_late) == (2, 0.25)
    assert status.figures == {"loss": 3.5, "test_accuracy": 0.5}
    assert (status.steps_ended, status.iterations_ended) == (4, 0)
    training = live.history_json()["training"]
    assert training == [
        (1.0, "loss", 4.0),
        (2.0, "loss", 2.0),
        (2.5, "loss", 5.0),
        (2.5, "test_accuracy", 0.5),
    ]
    assert clock.now == 100.0


def test_run_time_is_wall_time_by_the_scale_and_never_goes_back() -> None:
    """The first event came at once: run time 0 was 2 s before it, at 100 s."""
    live, clock = live_run()
    assert live.status().run_time == 0.0
    live.tape.began(2.5)
    assert live.status().run_time == 0.0
    clock.now = 102.0
    live.tape.task_ended(ended(4, 0, 1.0))
    assert live.status().run_time == 1.0
    clock.now = 107.0
    assert live.status().run_time == 3.5
    # Heard at 107 s, it happened at 102.5 s: 4.5 s late, and nothing goes back.
    live.tape.task_ended(ended(4, 1, 1.25))
    status = live.status()
    assert (status.delay, status.max_delay, status.run_time) == (4.5, 4.5, 3.5)
    # A faster event moves run time 0: of the former one 5 s are then known.
    live.tape.task_ended(ended(4, 2, 4.0))
    status = live.status()
    assert (status.delay, status.max_delay, status.run_time) == (0.0, 4.5, 4.0)


def test_what_runs_is_told_from_its_start() -> None:
    live, _ = live_run()
    live.tape.began(2.5)
    live.tape.task_started(RunTask(4, 1, 7.5))
    live.tape.task_started(RunTask(2, 0, 8.5))
    running = [(row.task, row.iteration, row.since) for row in live.status().running]
    assert running == [("w0", 1, 7.5), ("s0", 0, 8.5)]
    live.tape.task_ended(ended(4, 1, 9.0))
    assert [row.task for row in live.status().running] == ["s0"]


def test_an_attempt_goes_on_at_the_run_time_and_iteration_of_the_last() -> None:
    """It began anew at 4 s with iteration 1; what it reports counts from there."""
    live, clock = live_run()
    live.tape.began(2.5)
    live.tape.on_join(6)
    clock.now = 108.0
    live.tape.task_ended(ended(4, 0, 4.0))
    assert live.status().processes == 6
    live.tape.restarting("w0 died", 1)
    status = live.status()
    assert (status.phase, status.processes, status.run_time) == ("starting", 0, 4.0)
    assert status.steps_ended == 6
    clock.now = 120.0
    live.tape.began(2.5)
    live.tape.task_started(RunTask(4, 0, 0.5))
    live.tape.task_ended(ended(3, 0, 2.0))
    status = live.status()
    (row,) = status.running
    assert (row.iteration, row.since) == (1, 4.5)
    assert status.run_time == 6.0
    assert live.history_json()["spans"] == [(4, 0, 3.0, 4.0), (3, 1, 5.0, 6.0)]
    assert live.history_json()["deaths"] == [(4.0, "w0 died: goes on at iteration 1")]


def test_flows_move_at_their_rates_and_arrive_whole() -> None:
    """Edges 4 and 1 are s0->w0 and g0->s1; that of 1 crosses both NICs."""
    problem, _ = two_machine_example(3)
    flows = _Flows(problem)
    flows.volumes = {(1, 0): 40.0, (2, 0): 30.0, (2, 1): 7.0}
    flows.decide(
        SimpleNamespace(  # type: ignore[arg-type]
            flows=[(1, 0), (2, 0)], lines=rows((1, 0, 5.0, 2.0), (2, 0, 0.0, 3.0))
        ),
        now=10.0,
    )
    links = [link.name for link in problem.links]
    rates = dict(zip(links, flows.port_rate.tolist(), strict=True))
    assert rates == {"m0 out": 2.0, "m0 in": 3.0, "m1 out": 3.0, "m1 in": 2.0}
    flows.advance(4.0)
    assert flows.moved.tolist() == [4.0 * rates[name] for name in links]
    first, second = flows.list_largest(14.0)
    assert (first.edge, first.source, first.destination) == ("g0->s1", "g0", "s1")
    assert (first.iteration, first.bytes, first.sent, first.rate) == (
        0,
        40.0,
        13.0,
        2.0,
    )
    assert (second.bytes, second.sent, second.rate) == (30.0, 12.0, 3.0)
    # Rates run on until the end is told, and no further than the flow is large.
    assert [flow.sent for flow in flows.list_largest(99.0)] == [40.0, 30.0]
    assert [flow.sent for flow in flows.list_largest(0.0)] == [0.0, 0.0]

    flows.end(FlowEnded(2, 0, 15.0, 31.0))
    rates = dict(zip(links, flows.port_rate.tolist(), strict=True))
    assert rates == {"m0 out": 2.0, "m0 in": 0.0, "m1 out": 0.0, "m1 in": 2.0}
    arrived = dict(zip(links, flows.arrived.tolist(), strict=True))
    assert arrived == {"m0 out": 0.0, "m0 in": 31.0, "m1 out": 31.0, "m1 in": 0.0}
    assert [*flows.active] == [1]
    assert flows.volumes == {(1, 0): 40.0, (2, 1): 7.0}
    # What is over does not come back, the next iteration does.
    flows.decide(
        SimpleNamespace(  # type: ignore[arg-type]
            flows=[(2, 0)], lines=rows((2, 0, 0.0, 9.0))
        ),
        now=16.0,
    )
    assert [*flows.active] == [1]
    assert flows.port_rate[links.index("m1 out")] == 0.0
    flows.decide(
        SimpleNamespace(  # type: ignore[arg-type]
            flows=[(2, 1)], lines=rows((2, 1, 0.0, 9.0))
        ),
        now=16.0,
    )
    assert flows.active == {1: 0, 2: 1}
    flows.clear()
    assert (flows.active, flows.volumes) == ({}, {})
    assert not flows.port_rate.any()
    assert flows.arrived.any()


def test_volumes_are_kept_of_flows_between_machines_alone() -> None:
    live, _ = live_run()
    live.tape.began(2.5)
    live.tape.task_ended(ended(0, 0, 1.0, edges=[0, 1], volumes=[40.0, 50.0]))
    live.status()
    assert live._flows.volumes == {(1, 0): 50.0}


def test_a_sample_has_the_mean_rates_of_its_span() -> None:
    """A quarter of a wall second apart at the least."""
    live, clock = live_run(time_scale=1.0)
    live.tape.began(2.5)
    live.status()
    live.tape.on_decisions(Decisions(1.0, [], [(1, 0)], rows((1, 0, 0.0, 8.0))))
    clock.now = 102.0
    live.status()
    live.tape.on_decisions(Decisions(1.5, [], [], rows((1, 0, 4.0, 2.0))))
    clock.now = 102.2
    live.status()
    assert live.history_json()["time"] == [0.0]
    clock.now = 104.0
    live.status()
    history = live.history_json()
    assert history["time"][:2] == [0.0, history["time"][1]]
    assert history["end"] == live.status().run_time
    assert set(history["flows"]) == {1}


def test_a_merge_weighs_rates_by_their_lengths_and_keeps_the_most_flows() -> None:
    """Spans of 1 and 3 s at 8 and 4, of 0 s twice, and one that stays alone."""
    history = History(capacity=4)
    for start, end, rate, flows in (
        (0.0, 1.0, 8.0, 3),
        (1.0, 4.0, 4.0, 2),
        (4.0, 4.0, 6.0, 5),
        (4.0, 4.0, 2.0, 7),
        (4.0, 6.0, 1.0, 1),
    ):
        history.add(start, end, [rate, 2 * rate], flows)
    assert history.time == [0.0, 4.0, 4.0]
    assert history.rates == [[5.0, 10.0], [4.0, 8.0], [1.0, 2.0]]
    assert history.flows == [3, 7, 1]
    assert (history.merged, history.end) == (1, 6.0)


def test_a_viewer_gets_what_it_has_not_seen() -> None:
    history = History(capacity=8)
    history.add(0.0, 1.0, [3.0, 4.0], 2)
    history.report(0.5, "loss", 1.0)
    history.ran(0, 0, 0.0, 1.0)
    _, seen = history.since(Seen(0, 0, 0, 0))
    assert seen == Seen(merged=0, samples=1, reports=1, spans=1)
    history.add(1.0, 2.0, [5.0, 6.0], 1)
    history.report(1.5, "loss", 0.5)
    history.ran(1, 0, 1.0, 2.0)
    history.deaths.append((2.0, "died"))
    news, _ = history.since(seen)
    assert news["samples"] == {
        "time": [1.0],
        "end": 2.0,
        "rates": [[5.0, 6.0]],
        "flows": [1],
        "training": [(1.5, "loss", 0.5)],
        "spans": [(1, 0, 1.0, 2.0)],
        "deaths": [(2.0, "died")],
    }
    assert history.to_json()["rates"] == [[3.0, 5.0], [4.0, 6.0]]


def test_training_is_thinned_beyond_four_times_the_samples() -> None:
    """Every second value of each figure stays, the first one included."""
    history = History(capacity=2)
    for number in range(8):
        history.report(float(number), "ab"[number % 2], 0.0)
    assert (len(history.training), history.merged) == (8, 0)
    history.report(8.0, "a", 0.0)
    assert [time for time, *_ in history.training] == [0.0, 1.0, 4.0, 5.0, 8.0]
    assert history.merged == 1


@pytest.mark.parametrize(("rate", "full"), [(0.0, 0), (5.0, 6), (10.0, 12), (30.0, 12)])
def test_the_bar_of_a_link_is_its_share_of_the_capacity(rate: float, full: int) -> None:
    live, _ = live_run()
    status = live.status()
    ports = [
        port.model_copy(update={"rate": rate, "bytes": 2e6}) for port in status.ports
    ]
    changes = {"ports": ports, "figures": {"loss": 0.12345}, "active_flows": 1}
    table = live_table(status.model_copy(update=changes))
    columns = [[*map(str, column.cells)] for column in table.columns]
    assert columns[0] == ["m0", "m1"]
    assert columns[1] == ["█" * full + "░" * (12 - full)] * 2
    assert columns[3] == columns[6] == ["2 MB"] * 2
    assert str(table.title) == "s: starting, iteration 0/3, 0.00 s, 1 flow, loss 0.1235"
