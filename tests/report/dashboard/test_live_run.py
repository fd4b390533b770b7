"""The figures of a live run, replayed from a simulation whose answers are known."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from emu.prediction.analysis.link_load import sum_rates
from emu.prediction.scheduling import Decisions
from emu.prediction.scheduling.scheduler import RateSegments
from emu.report.dashboard import LiveRun
from emu.report.dashboard.live_table import live_table
from emu.report.dashboard.server import metrics
from emu.report.dashboard.status import NOTHING, SPANS, History
from emu.report.terminal import terminal
from tests.report.dashboard.replay import Replay


def test_a_run_is_followed_to_its_end() -> None:
    replay = Replay()
    status = replay.live.status()
    assert (status.phase, status.processes, status.run_time) == ("running", 6, 0.0)
    replay.until(replay.schedule.makespan)
    replay.live.on_end(replay.result())
    status = replay.live.status()
    assert status.phase == "ended"
    assert status.steps_ended == status.steps == 6 * 4
    assert status.iterations_ended == 4
    assert status.active_flows == 0
    assert status.running == []
    assert status.figures == {"loss": 0.25}
    assert status.run_time == replay.schedule.makespan
    assert status.verdict == "trusted"
    assert status.outcome is not None
    assert status.outcome.makespan == replay.schedule.makespan


def test_after_a_restart_it_goes_on_at_the_time_so_far() -> None:
    """The first attempt dies amid its second iteration; that begins anew."""
    replay, again = Replay(), Replay(3)
    dies = float(np.nanmedian(replay.schedule.task_end))
    replay.until(dies)
    live = replay.live
    live.tape.restarting("w0 died", 1)
    status = live.status()
    assert (status.phase, status.running, status.active_flows) == ("starting", [], 0)
    assert status.iterations_ended == 1
    assert all(port.rate == 0 for port in status.ports)
    death = [pytest.approx(status.run_time), "w0 died: goes on at iteration 1"]
    assert [[*one] for one in live.history_json()["deaths"]] == [death]
    assert status.run_time <= dies

    again.live, again.clock = live, replay.clock
    again.begin()
    again.until(again.schedule.makespan)

    status = live.status()
    assert status.phase == "ended"
    assert status.iterations_ended == 4
    assert status.active_flows == 0
    assert status.run_time == pytest.approx(dies + again.schedule.makespan)
    assert len(live.prediction_json()) == replay.schedule.task_end.size


def test_what_is_under_way_is_shown_at_every_moment() -> None:
    replay = Replay()
    made = replay.schedule
    for time in np.linspace(0.05, made.makespan - 0.05, 40).tolist():
        replay.until(time)
        status = replay.live.status()
        tasks = (made.task_start <= time) & (time < made.task_end)
        assert len(status.running) == tasks.sum()
        remote = np.array([bool(hops) for hops in made.problem.hops])[:, None]
        flows = (made.flow_start <= time) & (time < made.flow_end) & remote
        assert status.active_flows == flows.sum()
        for flow in status.flows:
            assert flow.edge == f"{flow.source}->{flow.destination}"
        for port in status.ports:
            assert 0 <= port.rate <= port.capacity * (1 + 1e-9)


def test_the_history_holds_the_bytes_of_the_rates() -> None:
    replay = Replay()
    replay.until(replay.schedule.makespan)
    replay.live.on_end(replay.result())
    history = replay.live.history_json()
    lengths = np.diff([*history["time"], history["end"]])
    assert lengths.sum() == pytest.approx(replay.schedule.makespan)
    curves = sum_rates(replay.schedule)
    assert curves is not None
    for rates, (time, level) in zip(history["rates"], curves, strict=True):
        expected = float(np.sum(level[:-1] * np.diff(time)))
        assert np.dot(rates, lengths) == pytest.approx(expected)


@pytest.mark.parametrize("place", [0, -1])
def test_a_line_of_a_flow_that_is_over_does_not_come_back(place: int) -> None:
    """Neither of the first iteration nor of the last."""
    replay = Replay()
    replay.until(replay.schedule.makespan)
    edge, n = replay.schedule.flows()[place].tolist()
    stale = RateSegments(*(np.array([value]) for value in (edge, n, 0.0, 7.0, 1e3)))
    replay.live.tape.on_decisions(Decisions(1e3, [], [(edge, n)], stale))
    status = replay.live.status()
    assert status.active_flows == 0
    assert [port.rate for port in status.ports] == [0.0] * 4


def test_events_that_are_heard_late_count_as_delay() -> None:
    replay = Replay(1)
    replay.until(1.0)
    assert replay.live.status().max_delay == pytest.approx(0.0, abs=1e-9)
    replay.clock.now += 20.0
    first = np.nanmin(replay.schedule.flow_end[replay.schedule.flow_end > 1.0])
    replay.until(replay.schedule.makespan)
    assert replay.live.status().max_delay == pytest.approx(21.0 - first)


def test_the_time_left_follows_from_the_prediction_and_the_pace_so_far() -> None:
    """One emulated second is one wall second here."""
    replay = Replay()
    assert replay.live.status().left is None
    middle = replay.schedule.makespan / 2
    replay.until(middle)
    status = replay.live.status()
    ends = replay.schedule.task_end
    last = ends[ends <= middle].max()
    assert status.left == pytest.approx(
        middle * replay.schedule.makespan / last - middle
    )
    replay.clock.now += 1.0  # nothing ends for a second: what is left takes longer too
    slower = replay.live.status().left
    assert slower is not None
    assert status.left is not None
    assert slower > status.left
    replay.until(replay.schedule.makespan)
    assert replay.live.status().left is None


def test_tasks_that_ended_and_those_that_were_simulated_are_the_same_spans() -> None:
    """The run of the replay is the very simulation."""
    replay = Replay()
    expected = replay.live.prediction_json()
    replay.until(replay.schedule.makespan)
    ended = replay.live.history_json()["spans"]

    assert sorted(map(list, ended)) == sorted(expected)
    assert len(ended) == replay.live.status().steps
    assert [start for _, _, start, _ in expected] == sorted(
        start for _, _, start, _ in expected
    )


def test_of_many_spans_the_last_are_kept_and_viewers_hear_them_anew() -> None:
    history = History()
    for n in range(SPANS):
        history.ran(0, n, n, n + 1.0)
    _, seen = history.since(NOTHING)
    history.ran(0, SPANS, SPANS, SPANS + 1.0)
    news, _ = history.since(seen)

    assert len(history.spans) == SPANS // 2 + 1
    assert news["history"]["spans"][-1][1] == SPANS


def test_a_failed_run_says_why() -> None:
    replay = Replay()
    replay.until(3.0)
    replay.live.on_failure("w0 died")
    status = replay.live.status()
    assert (status.phase, status.error) == ("failed", "w0 died")


def test_merging_keeps_the_area_and_bounds_the_memory() -> None:
    history = History(capacity=8)
    rng = np.random.default_rng(3)
    edges = np.cumsum(np.append(0.0, rng.random(50)))
    rates = rng.random((50, 2))
    for k in range(50):
        history.add(edges[k], edges[k + 1], rates[k].tolist(), k)
        assert len(history.time) <= 8
    lengths = np.diff([*history.time, history.end])
    assert lengths.sum() == pytest.approx(edges[-1])
    np.testing.assert_allclose(
        lengths @ np.array(history.rates), np.diff(edges) @ rates
    )
    assert history.flows[-1] == 49
    assert history.merged > 0


def test_thinning_keeps_half_of_every_figure() -> None:
    """Dropping every second row removed one of two figures that come by turns."""
    history = History(capacity=8)
    for n in range(17):
        history.report(n, "loss", 1.0 / (n + 1))
        history.report(n, "accuracy", n / 20)
    counts = Counter(figure for _, figure, _ in history.training)

    assert counts["loss"] == counts["accuracy"] == 9
    assert history.training[0] == (0, "loss", 1.0)


def test_a_link_that_is_cut_is_an_empty_bar() -> None:
    status = Replay().live.status()
    cut = [
        port.model_copy(update={"capacity": 0.0, "rate": 0.0}) for port in status.ports
    ]
    console = terminal()
    with console.capture() as printed:
        console.print(live_table(status.model_copy(update={"ports": cut})))
    assert "░" in printed.get()
    assert "█" not in printed.get()


def test_metrics_are_in_the_text_format() -> None:
    replay = Replay()
    replay.until(4.0)
    status = replay.live.status()
    text = metrics(status)
    assert text.endswith("\n")
    values = dict(
        line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")
    )
    assert float(values["emu_run_time_seconds"]) == status.run_time
    for port in status.ports:
        named = f'emu_port_rate_bytes_per_second{{port="{port.port}"}}'
        assert float(values[named]) == port.rate
    names = {line.split()[2] for line in text.splitlines() if "# TYPE" in line}
    assert {name.partition("{")[0] for name in values} == names


def test_the_terminal_table_fits_and_shows_every_machine() -> None:
    replay = Replay()
    replay.until(4.0)
    console = terminal()
    with console.capture() as printed:
        console.print(live_table(replay.live.status()))
    text = printed.get()
    assert "m0" in text
    assert "m1" in text
    assert max(map(len, text.splitlines())) <= 100


def test_nothing_is_counted_after_the_last_task_ended() -> None:
    """The replay, the prediction and the verdict take wall time of their own."""
    replay = Replay()
    makespan = replay.schedule.makespan
    replay.until(makespan + 30.0)
    status = replay.live.status()
    assert (status.phase, status.run_time, status.processes) == ("ended", makespan, 0)
    replay.live.on_end(replay.result())
    replay.until(makespan + 60.0)
    status = replay.live.status()
    assert (status.phase, status.run_time, status.processes) == ("ended", makespan, 0)
    assert replay.live.history_json()["end"] == makespan


def test_a_failed_run_has_no_processes() -> None:
    replay = Replay()
    replay.until(3.0)
    assert replay.live.status().processes > 0
    replay.live.on_failure("a process died")
    assert replay.live.status().processes == 0


@pytest.mark.parametrize("pace", [0.5, 1.0, 1.7])
def test_the_bar_goes_by_time_at_any_pace(pace: float) -> None:
    """Steps are of no account: a long one moves it on while it runs."""
    replay = Replay()
    live, whole = replay.live, replay.schedule.makespan
    shares = []
    for time in np.linspace(0.01, whole - 0.01, 30).tolist():
        replay.until(time)
        replay.clock.now = max(replay.clock.now, 100.0 + pace * time)
        status = live.status()
        shares.append(status.share)
        if pace == 1:
            assert status.share == pytest.approx(status.run_time / whole, abs=1e-6)
    assert shares == sorted(shares)
    assert 0 <= shares[0] < 0.1
    assert shares[-1] <= 1
    replay.until(whole)
    assert live.status().share == 1


def test_bytes_of_a_port_are_of_all_flows_that_arrived() -> None:
    replay = Replay()
    replay.until(replay.schedule.makespan)
    schedule = replay.schedule
    sizes = dict.fromkeys(range(len(schedule.problem.links)), 0.0)
    for edge, iteration in schedule.flows().tolist():
        for port in schedule.problem.hops[edge]:
            sizes[port] += float(schedule.flow_bytes[edge, iteration])

    shown = [port.bytes for port in replay.live.status().ports]
    assert shown == pytest.approx([*sizes.values()])
    assert len({*shown}) > 1


def test_before_there_is_a_prediction_every_step_counts_alike() -> None:
    """A page may be opened while the run is still being predicted."""
    replay = Replay()
    problem = replay.schedule.problem
    live = LiveRun(problem, "two machines", "oes", 1.0, clock=replay.clock)
    status = live.status()
    assert (status.share, status.left) == (0.0, None)

    live.tape.began(2.5)
    for _, _, tell in replay._events[: len(replay._events) // 2]:
        tell(live.tape)
    status = live.status()
    assert 0 < status.steps_ended < status.steps
    assert status.share == status.steps_ended / status.steps
    assert status.left is None
