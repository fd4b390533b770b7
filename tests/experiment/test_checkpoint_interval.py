"""Young's and Daly's intervals against the model that they approximate, and trials."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.experiment import checkpoint_interval
from emu.experiment.checkpoint_interval import (
    Intervals,
    _list_machines,
    _mean,
    _with_interval,
    copies_line,
    intervals,
    not_sought,
    young_daly,
)
from emu.scenario import Experiment, prepare
from emu.scenario.scenario_file import loads
from emu.units import format_size
from tests.testing.trial_cases import DGTP

KILLS = "failures: {machine: {every: 6 s, what: kill}}"


def ready(checkpoint: str, more: str = KILLS, iterations: int = 120) -> Experiment:
    text = DGTP.replace("iterations: 3", f"iterations: {iterations}")
    stated = f"checkpoint: {{{checkpoint}}}\nrecovery: 0.2 s\non_failure: restart\n"
    return prepare(loads(f"name: it\n{text}{stated}max_restarts: 99\n{more}\n"))


@pytest.mark.parametrize("takes", [0.001, 0.1, 1.0])
@pytest.mark.parametrize("between", [10.0, 300.0])
def test_dalys_is_near_the_best_of_the_exact_expectation(
    takes: float, between: float
) -> None:
    """Deaths without memory: segments of work and checkpoint, tried until one lasts."""
    work = np.geomspace(takes / 10, 10 * between, 200_001)
    per_second = np.expm1((work + takes) / between) / work
    young, daly = young_daly(takes, between)
    best = work[per_second.argmin()]
    assert daly == pytest.approx(best, rel=0.01)
    assert young == pytest.approx(math.sqrt(2 * takes * between))


def test_a_checkpoint_that_outlasts_the_machines_is_taken_once() -> None:
    assert young_daly(5.0, 2.0)[1] == 2.0
    assert young_daly(2.0, 1.0) == (2.0, 1.0)


def test_dalys_expansion_holds_up_to_twice_the_time_between_deaths() -> None:
    """The root of (1 - x) exp(x) = exp(-takes / between) is the best share of work."""
    takes = 3.0
    between = 2.0
    shares = np.linspace(0.0, 1.0, 10_001)
    falls_to = (1 - shares) * np.exp(shares)
    best = between * shares[np.argmax(falls_to <= math.exp(-takes / between))]
    _, daly = young_daly(takes, between)
    assert daly == pytest.approx(best, rel=0.05)
    assert daly < 0.9 * between


def test_the_best_by_simulation_is_near_dalys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the draws of users finds it as well, in a third of the CPU."""
    monkeypatch.setattr(checkpoint_interval, "_DRAWS", 16)
    found = intervals(ready("every: 40 iterations, takes: 30 ms"))
    assert found is not None
    assert found.between == 2.0  # three machines
    assert found.iteration == pytest.approx(0.0512, rel=0.02)
    young, daly = young_daly(0.03, found.between)
    assert found.young == pytest.approx(young / found.iteration)
    assert found.daly == pytest.approx(daly / found.iteration)
    assert 0.5 < found.best / found.daly < 2.0
    assert round(found.daly) in found.means  # beside shares of it and the stated one
    assert round(found.young) not in found.means
    assert found.means[found.best] == min(found.means.values())
    assert found.means[40] > 1.1 * found.means[found.best]
    assert f"every {found.best} iterations would be best" in found.line()
    assert found.to_json()["means"]["40"] == found.means[40]


def test_who_ends_last_may_die_until_then() -> None:
    """Stores are over tens of milliseconds before: of these a late kill is none."""
    experiment = ready("every: 5 iterations, takes: 30 ms", iterations=9)
    whole = _with_interval(experiment, 5).simulate()
    late = whole.makespan - 1e-3
    gaps = np.array([[late, 1e6]])
    assert _mean(experiment, 5, gaps) > whole.makespan + 0.2


def test_without_a_rate_or_a_cost_none_is_computed() -> None:
    free = ready("every: 5 iterations")
    assert intervals(free) is None
    assert ["checkpoint.takes" in line for line in not_sought(free.scenario)] == [True]
    immortal = ready("every: 5 iterations, takes: 30 ms", "")
    assert intervals(immortal) is None
    assert not_sought(immortal.scenario) == []
    assert not_sought(ready("every: 5 iterations, takes: 1 ms").scenario) == []
    assert not_sought(ready("every: 5 iterations", "").scenario) == []


def test_a_checkpoint_holds_the_job_for_what_it_takes() -> None:
    free, held = (
        ready(f"every: 5 iterations{more}", "", 21).simulate().makespan
        for more in ("", ", takes: 30 ms")
    )
    assert held - free == pytest.approx(4 * 0.03, rel=1e-2)


def test_copies_cost_what_they_delay_the_job() -> None:
    """A NIC of 2 Mbit/s is busy for 0.1 s with what an iteration of 0.4 s sends."""
    stated = ready("every: 5 iterations, to: peer", iterations=21)
    slow = stated.scenario.model_copy(update={"failures": None})
    found = intervals(stated)
    assert found is not None
    free = ready("every: 5 iterations", "", 21).simulate().makespan
    longer = prepare(slow).simulate().makespan - free
    assert longer > 0
    assert found.takes == pytest.approx(longer / 4)
    (line,) = copies_line(stated, free + longer)
    sizes = stated.realization.volumes[-2]
    each = format_size(float(sizes[5]))
    assert np.flatnonzero(sizes).tolist() == [5, 10, 15, 20]
    assert line.startswith(f"4 checkpoints to peers of {each}: ")
    assert line.endswith(f", {100 * longer / free:.3g} %, beside none")
    assert copies_line(ready("every: 5 iterations"), 1.0) == []
    assert not_sought(stated.scenario) == []


def test_an_interval_without_progress_has_no_mean() -> None:
    found = Intervals(
        young=3.0,
        daly=2.5,
        best=2,
        means={2: 9.0, 7: math.inf},
        between=40.0,
        iteration=0.5,
        takes=0.25,
        stated=7,
    )
    assert found.to_json()["means"] == {"2": 9.0, "7": None}
    assert found.line() == (
        "a checkpoint every 2 iterations would be best: 9 s over 64 draws, no end with "
        "every 7; Young 3, Daly 2.5 with a death each 40 s and 250 ms a checkpoint"
    )


def test_machines_are_those_of_all_tasks_of_processes() -> None:
    """One process has tasks on two machines; no process has the last task."""
    names = ["a", "b", "c", "d"]
    job = SimpleNamespace(
        tasks=[SimpleNamespace(name=name) for name in names],
        processes={"p": (0, 1), "q": (2,)},
    )
    experiment: Any = SimpleNamespace(
        problem=SimpleNamespace(job=job),
        tasks={"a": "m0", "b": "m1", "c": "m1", "d": "m2"},
    )
    assert _list_machines(experiment) == {"m0", "m1"}


def test_intervals_are_within_the_length_of_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The best has the shortest mean of those that were tried, here the longest."""

    def mean(_experiment: object, interval: int, gaps: np.ndarray) -> float:
        assert gaps.shape == (64, 1000)
        return 9.5 - interval

    monkeypatch.setattr(checkpoint_interval, "_mean", mean)
    found = intervals(ready("every: 5 iterations, takes: 30 ms", iterations=9))
    assert found is not None
    assert (min(found.means), max(found.means), found.best) == (1, 9, 9)
    assert found.means[5] == 4.5


def test_machines_that_never_die_ask_for_no_interval() -> None:
    slow = "failures: {machine: {every: 6 s, what: slow, by: 2, for: 1 s}}"
    experiment = ready("every: 5 iterations, takes: 30 ms", slow)
    assert experiment.scenario.failures is not None
    assert intervals(experiment) is None
    assert not_sought(ready("every: 5 iterations", slow).scenario) == []
