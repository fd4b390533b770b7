"""Iterations by their period: those of known jobs, with what begins and ends a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.lab.fitting.causes import FittedSteps
from emu.lab.fitting.conversations import Unfittable
from emu.lab.fitting.fitted_job import write_fit
from emu.lab.fitting.iterations import FittedIterations, fit_traffic
from emu.lab.fitting.periods import _longest_row, _rank, usual_size
from emu.lab.fitting.steps import FULL
from emu.prediction.analysis.traffic import PACKET, Traffic
from tests import draws
from tests.lab.fitting.crossed import crossed
from tests.lab.fitting.test_steps import (
    ITERATIONS,
    KINDS,
    OTHERS,
    PROGRAMS,
    Build,
    Document,
    asking,
    averaging,
    gathering,
    per_iteration,
    simulated,
)


def noisy(traffic: Traffic, seed: int, share: float) -> Traffic:
    """Return the traffic with bytes before and after it, and packets a little later."""
    rng = np.random.default_rng(seed)
    rows = traffic.packets.copy()
    rows["time"] += rng.exponential(5e-5, len(rows))
    some = rows[rng.integers(0, len(rows), 12)]
    some["bytes"] = rng.dirichlet(np.ones(12)) * share * rows["bytes"].sum()
    length = rows["time"].max()
    some["time"] = rng.uniform(0, length / ITERATIONS, 12)
    some["time"][6:] += length + 2 * length / ITERATIONS
    rows["time"] += 1.5 * length / ITERATIONS
    some["time"][6:] += 1.5 * length / ITERATIONS
    both = np.concatenate([rows, some])
    return replace(traffic, packets=both[np.argsort(both["time"], kind="stable")])


def traffic_of(document: Document) -> Traffic:
    schedule = simulated(document)
    tasks = [task.name for task in schedule.problem.job.tasks]
    programs = [p for p in PROGRAMS if any(name.startswith(p) for name in tasks)]
    return crossed(schedule, tuple(programs), FULL)


def off_at_some_nics(kind: Callable[[int], Document], seed: int) -> float:
    """Return by what share the fit of a drawn job is off, at most."""
    document, share = kind(seed), 0.2 * np.random.default_rng(seed).random()
    traffic = noisy(traffic_of(document), seed, share)
    try:
        found = fit_traffic(traffic)
    except Unfittable:
        return np.inf
    assert isinstance(found, FittedSteps)
    assert ITERATIONS - 3 <= found.count <= ITERATIONS
    again = write_fit("fitted", found, traffic)
    pairs = [
        (
            per_iteration(simulated(again, **nics)),
            per_iteration(simulated(document, **nics)),
        )
        for nics in ({}, *OTHERS[kind is asking :])
    ]
    return max(abs(fit / truth - 1) for fit, truth in pairs)


@pytest.mark.parametrize("kind", KINDS)
def test_iterations_come_back_with_what_they_say_of_other_nics(
    kind: Callable[[int], Document],
) -> None:
    """Drawn jobs are within 5 %, but 62 of 300 of workers in their own time.

    No fit has who meets whom at their server; of 300 others of each kind none and one
    were off.
    """
    off = [off_at_some_nics(kind, seed) for seed in draws.some(range(24))]

    assert np.median(off) < 0.03
    assert np.mean(np.array(off) > 0.05) <= (0.34 if kind is asking else 0.05)


def test_the_beginning_is_skipped() -> None:
    traffic = traffic_of(averaging(1))

    whole, rest = fit_traffic(traffic), fit_traffic(traffic, skip=4)

    assert rest.first == 4
    assert rest.ends.tolist() == whole.ends[4 - whole.first :].tolist()


def test_what_has_no_period_says_what_came_nearest() -> None:
    traffic = traffic_of(gathering(2))
    few = traffic.packets["time"] < np.quantile(traffic.packets["time"], 0.2)
    with pytest.raises(Unfittable, match=r"no two processes sent 5 bursts .*--mark"):
        fit_traffic(replace(traffic, packets=traffic.packets[few]))

    rng = np.random.default_rng(2)
    rows = traffic.packets.copy()
    back = rows["destination"] == 0
    rows["bytes"][back] = rng.integers(1, 90_000, back.sum())
    rows["time"][back] = np.sort(rng.uniform(0, rows["time"].max(), back.sum()))
    random = replace(traffic, packets=np.sort(rows, order="time"))
    with pytest.raises(Unfittable, match=r"bursts come every .* s, .* but .*--mark"):
        fit_traffic(random)


def test_a_part_of_a_run_is_not_taken_for_it() -> None:
    """A short period is of few bytes: most cross beside it."""
    traffic = traffic_of(gathering(3))
    last = traffic.packets["time"].max()
    more = np.zeros(300, PACKET)
    more["time"] = last + np.cumsum(np.random.default_rng(3).uniform(0, 0.1, 300))
    more["destination"] = 1
    more["bytes"] = 20_000
    ports = traffic.packets[traffic.packets["source"] == 0][0]
    for name in ("source_port", "destination_port"):
        more[name] = ports[name]
    rows = np.concatenate([traffic.packets, more])

    with pytest.raises(Unfittable, match=r"of all bytes crossed before and after"):
        fit_traffic(replace(traffic, packets=rows))


def test_a_ring_that_sums_nothing_is_fitted_by_its_steps() -> None:
    """Bytes that go round it once are no all-reduce, though they cross as one."""
    build = Build(8)
    for i in range(3):
        before, after = f"worker-m{(i - 1) % 3}", f"worker-m{(i + 1) % 3}"
        build.task(f"worker-m{i}.own", 0.02 + 0.04 * i, 0.021 + 0.04 * i)
        build.task(f"worker-m{i}.passed", 0.001, 0.001)
        build.flow(f"worker-m{i}.own", f"worker-m{i}.passed")
        build.flow(f"{before}.own", f"worker-m{i}.passed", 20 * FULL + 100)
        build.flow(f"worker-m{i}.passed", f"{after}.own", 20 * FULL + 100, lag=1)
        build.flow(f"worker-m{i}.passed", f"worker-m{i}.own", lag=1)
    traffic = traffic_of(build.scenario())

    found = fit_traffic(traffic, ring=False)

    assert isinstance(fit_traffic(traffic), FittedIterations)
    again = simulated(write_fit("fitted", found, traffic))
    assert per_iteration(again) == pytest.approx(found.seconds, rel=0.02)


def test_the_usual_size_is_in_the_middle_of_all_bytes() -> None:
    """Two large messages have more bytes than many small ones."""
    assert usual_size([900, *[10] * 20, 1000]) == 900
    assert usual_size([90, *[10] * 20]) == 10


@pytest.mark.parametrize("steady", [[0.0, 2.0, 4.0, 6.0], [0.0, 1.0, 2.0, 3.5]])
def test_of_periods_the_longest_is_first_and_of_these_the_steadiest(
    steady: list[float],
) -> None:
    longest = [0.0, 1.0, 3.0, 6.0, 9.0]
    unsteady = [0.0, 1.0, 3.0, 6.0]

    def rank(times: list[float]) -> tuple[int, float]:
        return _rank(np.array(times))

    in_order = sorted([unsteady, steady, longest], key=rank)
    assert in_order == [longest, steady, unsteady]


def test_of_rows_between_missing_bursts_the_longest_is_taken() -> None:
    """Bursts of 90 kB every second, of which those at 2, 3 and 8 s are missing."""
    began = np.array([0.0, 1.0, 4.0, 5.0, 6.0, 7.0, 9.0, 10.0, 11.0])
    sent: Any = SimpleNamespace(time=began, bytes=np.full(len(began), 90_000))
    row = _longest_row(sent, np.arange(len(began)))
    assert row.tolist() == [4.0, 5.0, 6.0, 7.0]
