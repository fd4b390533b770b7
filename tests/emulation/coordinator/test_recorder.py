"""What recording a run costs, event by event."""

from __future__ import annotations

import contextlib
import gc
import tracemalloc
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from emu.emulation.coordinator.board_record import BoardRecord
from emu.emulation.coordinator.desk import Desk
from emu.emulation.coordinator.outcome import Answers, EmulatedRun, Recorder
from emu.emulation.coordinator.rate_record import RateRecord
from emu.emulation.network.rate_board import RateBoard
from emu.emulation.wire.frame_layout import FRAME_ROWS
from emu.emulation.wire.messages import Finish, Frames, Message, ResultPart, TaskEnded
from emu.errors import NodeMisbehaved
from emu.prediction.scheduling import Scheduler
from emu.prediction.simulation import simulate
from emu.problem.changes import SpeedChange
from emu.testing import two_machine_example

FLOWS = 2


def instant(n: int) -> dict[str, NDArray[Any]]:
    """Return what one instant decides: two flows get other rates."""
    return {
        "edge": np.arange(FLOWS),
        "iteration": np.full(FLOWS, n % 3),
        "rate": np.full(FLOWS, float(n)),
        "since": np.full(FLOWS, n / 10),
    }


def note(record: RateRecord, found: dict[str, NDArray[Any]]) -> None:
    """Append what an instant decides, as the core does."""
    record.keep_room()
    begin = record.core.count
    for name, column in found.items():
        getattr(record, name)[begin : begin + FLOWS] = column
    record.core.count += FLOWS


def recorder(first: int = 0, behind: int = 0) -> Recorder:
    """Return the recorder of a job, of which the fifth task is some cycles behind."""
    problem, _ = two_machine_example(3)
    tasks = [*problem.job.tasks]
    tasks[4] = replace(tasks[4], behind=behind)
    problem = replace(problem, job=replace(problem.job, tasks=tuple(tasks)))
    scheduler = Scheduler(problem, "oes")
    return Recorder(problem, scheduler, Desk(problem, scheduler), first)


def test_an_event_costs_what_its_rates_take() -> None:
    """Kept as the arrays of each instant they were 1 kB an event; 32 bytes unpacked."""
    record, events = RateRecord(FLOWS), 20_480
    for n in range(1000):
        note(record, instant(n))
    gc.collect()
    tracemalloc.start()
    begun = tracemalloc.get_traced_memory()[0]
    for n in range(events):
        note(record, instant(n))
    gc.collect()
    grown = (tracemalloc.get_traced_memory()[0] - begun) / events
    tracemalloc.stop()
    print(f"{grown:.0f} bytes per event of {FLOWS} rates")  # noqa: T201

    assert grown <= 32 * FLOWS / 2


def test_rates_are_kept_in_their_order() -> None:
    record = RateRecord(FLOWS)
    found = [instant(n) for n in range(1300)]  # packed twice, and a rest
    for columns in found:
        note(record, columns)
    rates = record.history()

    assert len(rates.time) == 1300 * FLOWS
    for name, of in (("time", "since"), ("rate", "rate"), ("edge", "edge")):
        expected = np.concatenate([columns[of] for columns in found])
        np.testing.assert_array_equal(getattr(rates, name), expected)
    assert rates.time.dtype == rates.rate.dtype == np.float64
    assert rates.edge.dtype == rates.iteration.dtype == np.int64


def test_a_flow_of_no_bytes_ends_no_sooner_than_the_one_before_it() -> None:
    """It takes its turn on the edge, however early its task has ended."""
    run = recorder()
    # From one machine to the other, as w0 of iterations 0 and 1 sends to p0.
    crossing = next(edge for edge, hops in enumerate(run._problem.hops) if hops)
    run.task_end[:] = 1.0
    run._volumes[crossing] = [40.0, 0.0, 0.0]
    run._activated[crossing, 0] = 2.0
    run._ended[crossing, 0] = 7.0
    # A flow of the last iteration over an edge with lag has no reader.
    job = run._problem.job
    unread = next(e for e, count in enumerate(job.flow_counts) if count < 3)
    run._volumes[unread] = 5.0

    schedule = run.schedule()
    assert schedule.flow_ready[crossing, 0] == 1.0
    assert schedule.flow_start[crossing, 0] == 2.0
    assert np.isnan(schedule.flow_bytes[unread]).tolist() == [False, False, True]

    assert schedule.flow_end[crossing, :2].tolist() == [7.0, 7.0]
    assert schedule.flow_start[crossing, 1] == 7.0


def test_a_replay_has_the_times_that_tasks_took_and_none_of_what_never_ran() -> None:
    """A third ended before its start, by the clock of another host: no time at all."""
    run = recorder()
    run.task_start[0], run.task_end[0] = [1.0, 4.0, 9.0], [3.5, 4.25, 8.0]
    run._volumes[2, 1] = 6.0
    found = run.realization()

    assert found.times[0].tolist() == [2.5, 0.25, 0.0]
    assert found.times[1].tolist() == [0.0, 0.0, 0.0]
    assert found.volumes[2, 1] == 6.0


def test_reports_of_a_later_attempt_are_of_mini_batches_of_the_whole_job() -> None:
    """What a task said is filed when its end settles, once.

    A phase two cycles behind is at mini-batch 4 in cycle 1 of what begins with 5.
    """
    run = recorder(first=5, behind=2)
    reported = TaskEnded(4, 1, 2.0, 5.0, [], [], 0.5, 0.25, 0.125, {"loss": 1.5})
    run.take_report(reported)
    assert run.reports == []
    for _ in range(2):
        run.file_report(replace(reported, report={}))

    task = two_machine_example(3)[0].job.tasks[4].name
    assert run.reports == [(5.0, task, 4, {"loss": 1.5})]
    assert not run.has_reports
    # A report without a loss leaves the last one.
    run.take_report(replace(reported, iteration=2, report={"accuracy": 0.5}))
    run.file_report(replace(reported, iteration=2))
    assert run.loss == 1.5


def test_a_handoff_takes_no_turn_on_a_channel() -> None:
    """Within a machine it ends as its task does; the scheduler noted another end."""
    problem, _ = two_machine_example(3)
    edges = tuple(replace(edge, channel="c") for edge in problem.job.edges)
    problem = replace(problem, job=replace(problem.job, edges=edges))
    scheduler = Scheduler(problem, "oes")
    run = Recorder(problem, scheduler, Desk(problem, scheduler))
    handoff = next(e for e, hops in enumerate(problem.hops) if not hops)
    run.task_end[:] = [1.0, 2.0, 4.0]

    schedule = run.schedule()

    assert schedule.flow_end[handoff].tolist() == [1.0, 2.0, 4.0]


def test_lateness_counts_as_work_at_the_speed_that_its_machine_has() -> None:
    """Both tasks are late by 2 s up to 10 s; from 9 s on m0 has a quarter of it."""
    problem, realization = two_machine_example(1)
    cluster = problem.cluster
    first = cluster.machines[0].name
    changes = (SpeedChange(9.0, first, 0.25),)
    slow = replace(problem, cluster=replace(cluster, speed_changes=changes))
    ended = replace(simulate(problem, realization), problem=slow)
    ended.task_end[:] = 10.0
    late = np.full_like(ended.task_end, 2.0)
    run = SimpleNamespace(schedule=ended, late=late)

    work = EmulatedRun.late_work.fget(run)  # type: ignore[attr-defined]

    on_first = np.array(problem.placement.machine_of) == 0
    assert work[on_first] == pytest.approx(1.25)
    assert work[~on_first] == pytest.approx(2.0)


def test_frames_are_told_apart_by_who_notes_them() -> None:
    problem, _ = two_machine_example(3)
    answers = Answers(problem.job)
    sent = np.array([(1, 0, 0.5, 1.0, 10)], FRAME_ROWS)
    received = np.array([(2, 1, 1.5, 2.0, 20)], FRAME_ROWS)
    answers.take("g0", Frames(sent.tobytes(), received.tobytes()), [0.0, 1.0])

    noted = answers.frames()
    edges = {name: rows["edge"].tolist() for name, rows in noted.items()}
    assert edges == {"sent": [1], "received": [2], "connections": [], "waits": []}


def test_a_rate_that_never_came_is_missed_by_its_sender_or_found_on_its_board() -> None:
    """The sender of edge 2 has missed two of which the board knows one."""
    problem, _ = two_machine_example(3)
    answers = Answers(problem.job)
    answers.statistics = {
        "g0": {"sent": [{"edge": 2, "missed": 2}]},
        "s0": {"sent": [{"edge": 0, "missed": 0}, {"edge": 1, "missed": 0}]},
    }
    answers.note_missing(np.array([3, 0, 1]))
    missed = {
        row["edge"]: row["missed"]
        for figures in answers.statistics.values()
        for row in figures["sent"]
    }
    assert missed == {0: 3, 1: 0, 2: 2}


def test_a_record_of_a_board_has_what_stood_there_at_every_note() -> None:
    """More rows than there is room for at first; of some edges, in any order."""
    rng = np.random.default_rng(3)
    record = BoardRecord(7)
    expected: list[tuple[float, int, int, float]] = []
    with contextlib.closing(RateBoard.create(7)) as board:
        for n in range(200):
            edges = rng.permutation(7)
            count = int(rng.integers(0, 6))
            rates = rng.random(7) + 1.0
            board.publish(edges, np.arange(7) + n, 0.0, rates, n / 8)
            record.note(board, edges, count)
            for edge, place in zip(edges[:count], range(count), strict=True):
                expected.append((n / 8, int(edge), place + n, rates[place]))

    assert len(expected) > 256
    assert record.rows().tolist() == expected


def test_words_after_a_run_that_cannot_be_are_refused() -> None:
    """A row that is cut short, another process's result, one too long, an order."""
    problem, _ = two_machine_example(3)
    answers = Answers(problem.job)
    row = np.array([(1, 0, 0.5, 1.0, 10)], FRAME_ROWS).tobytes()
    part = ResultPart(0, "x", "<f8", [1], 8, bytes(8))
    name = problem.job.tasks[0].name
    wrong: list[tuple[str, Message, str]] = [
        ("g0", Frames(row, row[:-1]), "a row of the frames is cut short"),
        ("g1", part, "g1 has results not its own"),
        ("g0", replace(part, data=bytes(16)), f"of the result of {name}, x is longer"),
        ("g0", Finish(), "g0 sent Finish after the run"),
    ]
    for process, message, words in wrong:
        with pytest.raises(NodeMisbehaved, match=words):
            answers.take(process, message, [0.0, 1.0])


def test_results_are_put_together_by_task() -> None:
    """The second task's array comes in two pieces; that of the first is cut short."""
    problem, _ = two_machine_example(3)
    answers = Answers(problem.job)
    first, second = (task.name for task in problem.job.tasks[:2])
    values = np.array([1.5, 2.5])
    data = values.tobytes()
    for piece in (data[:8], data[8:]):
        part = ResultPart(1, "x", "<f8", [2], 16, piece)
        answers.take("g1", part, [0.0, 1.0])
    results = answers.results()
    assert [*results] == [second]
    assert results[second]["x"].tolist() == [1.5, 2.5]

    answers.take("g0", ResultPart(0, "y", "<f8", [2], 16, data[:8]), [0.0, 1.0])
    with pytest.raises(NodeMisbehaved, match=f"the result of {first}, y is cut short"):
        answers.results()
