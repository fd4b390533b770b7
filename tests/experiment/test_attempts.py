"""Attempts that deaths end: where the next begins, what was lost, when it is enough."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from emu.emulation.coordinator import Observer
from emu.emulation.wire.messages import RunTask
from emu.errors import DeadlineExceeded, NodeLost, NodeMisbehaved, RunError
from emu.experiment import attempts
from emu.experiment.attempts import (
    Ended,
    Progress,
    cut_plan,
    outages_of,
    recovery_of,
    run_attempts,
    with_outages,
)
from emu.problem import Outages
from emu.problem.job import Cut
from emu.scenario import Experiment, load
from emu.scenario.scenario_file import loads
from tests.testing.trial_cases import DGTP, experiment

DONE: Any = object()


def restarted(most: int | None = None) -> Experiment:
    """Return a job of 3 iterations with a cut before each, time scale 0.5."""
    whole = experiment("dgtp")
    scenario = whole.scenario.model_validate(
        whole.scenario.to_json()
        | {"checkpoint": {"every": "1 iterations"}, "on_failure": "restart"}
        | ({} if most is None else {"max_restarts": most})
    )
    emulation = scenario.emulation.model_copy(update={"time_scale": 0.5})
    return replace(whole, scenario=scenario.model_copy(update={"emulation": emulation}))


class Deaths:
    """Attempts that end at stated wall times after they were ordered, one a second.

    Parameters
    ----------
    plan
        Of each attempt that dies: wall time 0, or None where it dies before, the cut
        that it keeps or 0, the first sign and when it was given up.
    """

    def __init__(
        self, run: Path, *plan: tuple[float | None, int, float, float], last: float
    ) -> None:
        self.run, self.plan, self.last = run, [*plan], last
        self.began: list[tuple[int, int]] = []

    def __call__(
        self,
        left: Experiment,
        start: Cut | None,
        observer: Observer,
        ended: Sequence[Ended],
    ) -> Any:
        """Die as planned, or end."""
        self.began.append((left.first, start.iteration if start else 0))
        if not self.plan:
            observer.on_zero(self.last)
            return DONE
        zero, keeps, seen, noticed = self.plan.pop(0)
        if zero is not None:
            observer.on_zero(zero)
        if keeps:
            worker = left.problem.job.index("w1")
            observer.task_started(RunTask(worker, keeps - left.first, 2.0))
            observer.task_started(RunTask(worker - 1, keeps - left.first, 1.5))
            plan = cut_plan(left, self.run, start)
            assert plan is not None
            plan.keep(Cut(keeps, {"ps0": {"parameters": np.zeros(2)}}))
        error = NodeLost(f"w0 died in attempt {len(ended)}")
        error.seen, error.noticed = seen, noticed
        raise error


class Notices(Observer):
    """Keeps the lines on restarts."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @override
    def restarting(self, error: str, first: int) -> None:
        self.lines.append(f"{error}; {first}")


def test_a_damaged_cut_lets_an_attempt_begin_before_the_one_that_died(
    tmp_path: Path,
) -> None:
    """The rest was once counted from the one that died: nothing fitted its times."""
    dying = Deaths(
        tmp_path, (0.0, 1, 3.0, 3.0), (4.0, 2, 6.0, 6.0), (7.0, 0, 8.0, 8.0), last=9.0
    )

    def once(left: Experiment, start: Cut | None, *rest: Any) -> Any:
        if left.first == 2:
            (newest,) = tmp_path.glob("checkpoints/*2/*.npz")
            newest.write_bytes(newest.read_bytes()[:-1])
        return dying(left, start, *rest)

    whole = restarted()
    left, _, ended = run_attempts(whole, None, tmp_path, Observer(), once)

    assert dying.began == [(0, 0), (1, 1), (2, 2), (1, 1)]
    assert ended[-1].again == ended[-1].ran == 2.0
    straight = whole.beginning_at(1, left.began)
    np.testing.assert_array_equal(left.realization.times, straight.realization.times)
    assert left.simulate().makespan == straight.simulate().makespan


def test_each_begins_with_the_last_cut_and_the_loss_is_split(tmp_path: Path) -> None:
    once = Deaths(
        tmp_path,
        (100.0, 2, 103.0, 103.25),
        (None, 0, 105.0, 105.5),
        (110.0, 0, 111.0, 111.0),
        last=114.0,
    )
    notices = Notices()
    left, done, ended = run_attempts(restarted(), None, tmp_path, notices, once)

    assert done is DONE
    assert left.first == 2
    assert left.problem.job.iterations == 1
    assert once.began == [(0, 0), (2, 2), (2, 2), (2, 2)]
    assert [line[-3:] for line in notices.lines] == ["; 2"] * 3
    # 3 wall seconds are 6 run seconds, of which 4 came after the cut's last start.
    said = [f"w0 died in attempt {n}" for n in range(3)]
    clocks = [attempt.clock for attempt in ended]
    assert clocks == [
        (100.0, 103.0, 103.25),
        (105.0, 105.0, 105.5),
        (110.0, 111.0, 111.0),
    ]
    ended = [replace(attempt, clock=()) for attempt in ended]
    assert ended == [
        Ended(0, 2, 6.0, 4.0, 0.25, 2.0, said[0], 0.0, False, 105.5 - 103.0),
        Ended(2, 2, 0.0, 0.0, 0.5, 2.0, said[1], 8.0, False, 110.0 - 105.0),
        Ended(2, 2, 2.0, 2.0, 0.0, 2.0, said[2], 10.0, False, 114.0 - 111.0),
    ]
    assert outages_of(ended) == Outages(8.0 + 3 * 2.0, 6.0)
    recovery = recovery_of(ended, 24.0, 23.0)["recovery"]
    assert recovery["lost"] == {"recovery": 6.0, "again": 6.0}
    assert (recovery["makespan"], recovery["predicted_makespan"]) == (24.0, 23.0)
    assert recovery_of([], 10.0, 9.0) == {}


def test_what_a_later_attempt_lost_counts_from_its_own_cut(tmp_path: Path) -> None:
    """Its cut began 2 s after it did, whatever number the iteration has in it."""
    once = Deaths(tmp_path, (0.0, 1, 3.0, 3.0), (10.0, 2, 16.0, 16.0), last=20.0)
    *_, ended = run_attempts(restarted(), None, tmp_path, Observer(), once)

    losses = [(one.next_iteration, one.ran, one.again) for one in ended]
    assert losses == [(1, 6.0, 4.0), (2, 12.0, 10.0)]


def test_where_no_process_holds_a_cut_all_attempts_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first lost what came after its cut; the second takes that cut along."""
    cuts = iter([None, Cut(0, {})])

    def leave(newest: Cut, *_: object) -> Cut:
        return next(cuts) or newest

    monkeypatch.setattr(attempts, "_cut_left", leave)
    once = Deaths(tmp_path, (0.0, 1, 3.0, 3.0), (4.0, 0, 6.0, 6.0), last=9.0)
    left, _, ended = run_attempts(restarted(), None, tmp_path, Observer(), once)

    assert once.began == [(0, 0), (1, 1), (0, 0)]
    assert left.first == 0
    assert [attempt.ran for attempt in ended] == [6.0, 4.0]
    assert [attempt.again for attempt in ended] == [6.0, 4.0]
    assert [*tmp_path.glob("checkpoints/*/*.npz")] == []


def test_an_attempt_that_died_is_given_up_before_the_next_begins(
    tmp_path: Path,
) -> None:
    """A soak kept 24 MB of each: cycles of objects that no collection looked at."""
    dying = Deaths(tmp_path, *[(0.0, 0, 1.0, 1.0)] * 2, last=9.0)
    held: list[weakref.ref[Any]] = []

    def once(left: Experiment, *rest: Any) -> Any:
        assert [one() for one in held] == [None] * len(held)
        cycle = [copy(left)]
        cycle.append(cycle)  # type: ignore[arg-type]
        held.append(weakref.ref(cycle[0]))
        gc.collect()  # what lives is in the oldest generation then
        return dying(left, *rest)

    run_attempts(restarted(), None, tmp_path, Observer(), once)
    assert len(held) == 3


def test_progress_is_watched_where_a_death_is_followed_by_another_attempt() -> None:
    ends_at_a_death = experiment("dgtp")
    assert not Progress(ends_at_a_death).watches
    assert Progress(restarted(most=1)).watches


@pytest.mark.parametrize("most", [1, 2, None])
def test_without_progress_it_ends_with_one_error(
    tmp_path: Path, most: int | None
) -> None:
    limit = most or 3
    deaths = [(None, 0, float(n), float(n)) for n in range(10)]
    once = Deaths(tmp_path, *deaths, last=0.0)
    with pytest.raises(NodeLost, match=rf"{limit} restarts.*max_restarts: {limit}"):
        run_attempts(restarted(most), None, tmp_path, Observer(), once)
    assert len(once.began) == limit + 1


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (NodeLost("died"), 2),
        (DeadlineExceeded("stands still"), 2),
        (NodeMisbehaved("lies"), 1),
        (RunError("raised ValueError, and will again"), 1),
    ],
)
def test_what_would_come_again_is_not_tried_again(
    tmp_path: Path, error: RunError, attempts: int
) -> None:
    calls = []

    def once(*_: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise error
        return DONE

    if attempts > 1:
        assert run_attempts(restarted(), None, tmp_path, Observer(), once)[1] is DONE
    else:
        with pytest.raises(type(error), match=str(error)):
            run_attempts(restarted(), None, tmp_path, Observer(), once)
    assert len(calls) == attempts


def test_by_default_the_first_death_ends_it(tmp_path: Path) -> None:
    once = Deaths(tmp_path, (0.0, 0, 1.0, 1.0), last=0.0)
    with pytest.raises(NodeLost, match=r"^w0 died in attempt 0$"):
        run_attempts(experiment("dgtp"), None, tmp_path, Observer(), once)


@dataclass(frozen=True)
class Part:
    """Stands for a schedule, or a run of one."""

    length: float = 0.0
    outages: Outages | None = None
    schedule: Part | None = None


@pytest.mark.parametrize("is_foreseen", [False, True])
def test_what_deaths_add_is_told_of_the_run_and_both_simulations(
    is_foreseen: bool,  # noqa: FBT001
) -> None:
    """The run lost 7 s; beforehand 9 s were foreseen, with 4 s of recovery."""
    ended = [Ended(0, 2, 5.0, 1.0, 0.5, 2.0, "w0 died")]
    asked = []

    def outages(length: float) -> Outages:
        asked.append(length)
        return Outages(9.0, 4.0)

    foreseen: Any = SimpleNamespace(outages=outages) if is_foreseen else None
    run: Any = Part(schedule=Part(30.0))
    simulated: Any = (Part(31.0), Part(32.0))
    found: Any = with_outages(run, simulated, ended, foreseen)
    parted_run, (prediction, replay) = found

    assert parted_run.schedule == Part(30.0, Outages(7.0, 2.0))
    others = Outages(9.0, 4.0) if is_foreseen else Outages(7.0, 2.0)
    assert (prediction, replay) == (Part(31.0, others), Part(32.0, others))
    # The last attempt that is foreseen is the prediction's.
    assert asked == ([31.0] if is_foreseen else [])


def test_recovery_has_what_was_foreseen_where_it_could_be() -> None:
    attempt = Ended(0, 2, 5.0, 1.0, 0.5, 2.0, "w0 died")
    lost = {"recovery": 4.0, "again": 3.0}
    killed = [replace(attempt, ran=6.0)]
    foreseen: Any = SimpleNamespace(stated=None, lost=lost, killed=killed)
    found = recovery_of([attempt], 30.0, 29.0, foreseen)["recovery"]
    assert found["predicted_lost"] is lost
    assert [row["ran"] for row in found["predicted_attempts"]] == [6.0]
    assert [row["ran"] for row in found["attempts"]] == [5.0]
    assert "foreseen_makespan" not in found
    foreseen.stated = 0.0
    found = recovery_of([attempt], 30.0, 29.0, foreseen)["recovery"]
    assert found["foreseen_makespan"] == 0.0
    assert "predicted_lost" not in recovery_of([attempt], 30.0, 29.0)["recovery"]


def test_what_died_by_itself_is_a_kill_of_its_processes_a_moment_later() -> None:
    """A death of unknown victims, or in one of several jobs, names no process."""
    known = Ended(0, 2, 5.0, 1.0, 0.5, 2.0, "w0 died", began=3.0, victims=("p", "q"))
    stated = replace(known, killed=True)
    unknown = replace(known, ran=7.0, victims=(), error="an agent died")

    def list_deaths(jobs: Sequence[str]) -> Any:
        job = SimpleNamespace(job_names=jobs)
        experiment: Any = SimpleNamespace(problem=SimpleNamespace(job=job))
        return attempts._list_deaths(experiment, [known, stated, unknown])

    first, second = list_deaths([""])
    assert (first.name, first.processes) == ("p, q", ("p", "q"))
    assert 8.0 < first.time < 8.0 + 1e-12
    assert (second.name, second.processes) == ("an agent died", ())
    assert 10.0 < second.time < 10.0 + 1e-12
    of_several = list_deaths(["x", "y"])
    assert [(kill.name, kill.processes) for kill in of_several] == [
        ("w0 died", ()),
        ("an agent died", ()),
    ]


def test_a_length_that_an_accuracy_decided_is_that_of_the_run() -> None:
    """The file is as long where it states the same accuracy, and the length alone."""
    until = {"accuracy": "6 %", "split": "train"}
    text = DGTP.replace("iterations: 3", "iterations: 60")
    stated = loads(f"name: it\n{text}", {"until": until})
    assert stated.until is not None
    noted = load(stated, {"until": None, "job.iterations": 12})
    section = stated.until.model_dump(mode="json", exclude_none=True)
    same = attempts._as_long(stated, noted, section)
    assert (same.until, same.job) == (None, noted.job)
    other = attempts._as_long(stated, noted, {**section, "split": "test"})
    assert (other.until, other.job) == (stated.until, noted.job)
    assert attempts._as_long(stated, noted, None) is stated
    assert attempts._as_long(noted, stated, section) is noted
