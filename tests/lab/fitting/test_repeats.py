"""Periods in what crosses: drawn programs of several sums per step come out again."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import emu
from emu.lab.fitting.causes import FittedSteps
from emu.lab.fitting.conversations import Unfittable
from emu.lab.fitting.iterations import FittedIterations, fit_traffic
from emu.lab.fitting.repeats import _find_periods, count_turns, find_chain
from emu.lab.fitting.steps import ALL, FULL
from emu.prediction.analysis.traffic import Traffic
from emu.scenario.scenario_file import loads
from tests.lab.fitting.crossed import crossed

STEPS = 16
WORKERS = 4
#: Bytes per second of a NIC of 100 Mbit/s.
NIC = 12.5e6


def summing(
    sizes: list[int], gaps: list[float], seed: int, jitter: float = 0.01
) -> Traffic:
    """Return what crosses when four workers sum so many bytes, each behind its gap.

    The first two steps take twice as long, as programs do that warm up.
    """
    rng = np.random.default_rng(seed)
    tasks: list[dict[str, Any]] = []
    where = {}
    collectives = []
    count = len(sizes)
    for part, gap in enumerate(gaps):
        for worker in range(WORKERS):
            times = gap * rng.normal(1, jitter, STEPS)
            times[:2] *= 2
            name = f"worker-m{worker}.{part}"
            tasks.append({"name": name, "time": [f"{time:.6f} s" for time in times]})
            where[name] = f"m{worker}"
        following = (part + 1) % count
        allreduce = {
            "among": [f"worker-m{worker}.{part}" for worker in range(WORKERS)],
            "volume": f"{sizes[part]} B",
            "then": [f"worker-m{worker}.{following}" for worker in range(WORKERS)],
            "lag": int(following == 0),
        }
        collectives.append({"allreduce": allreduce})

    document = {
        "cluster": {"machines": [{"count": WORKERS, "nic": "100 Mbit/s"}]},
        "job": {
            "system": "custom",
            "iterations": STEPS,
            "tasks": tasks,
            "flows": [],
            "collectives": collectives,
            "credit_window": "unlimited",
        },
        "placement": {"policy": "explicit", "tasks": where},
        "schedule": {"policy": "maxmin"},
    }
    schedule = emu.simulate(loads(json.dumps(document), name="drawn.json"))
    return crossed(schedule, ("worker",), FULL)


@pytest.mark.parametrize("seed", range(12))
def test_sums_of_a_step_are_one_iteration(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 7))
    sizes = rng.integers(100_000, 900_000, count).tolist()
    gaps = [0.05, *rng.uniform(0.006, 0.02, count - 1).tolist()]
    traffic = summing(sizes, gaps, seed)

    found = fit_traffic(traffic)

    step = sum(gaps) + 2 * (WORKERS - 1) / WORKERS * sum(sizes) / NIC
    assert isinstance(found, FittedIterations)
    assert STEPS - 4 <= found.count <= STEPS
    assert found.part(3, found.count).seconds == pytest.approx(step, rel=0.02)


def test_alike_sums_are_told_by_their_times() -> None:
    traffic = summing([300_000] * 3, [0.08, 0.01, 0.01], seed=1)

    assert STEPS - 4 <= fit_traffic(traffic).count <= STEPS


def test_two_readings_are_asked_about() -> None:
    rng = np.random.default_rng(3)
    lengths = np.tile([1.1, 1.0], 20) + rng.normal(0, 0.035, 40)
    times = np.cumsum(lengths)
    turns = [*range(len(times))]

    with pytest.raises(Unfittable, match=r"--iterations 40 or --iterations 20 decides"):
        count_turns(times.tolist(), turns)
    assert count_turns(times.tolist(), turns, 40) == 1
    assert count_turns(times.tolist(), turns, 20) == 2
    with pytest.raises(Unfittable, match="are no 29 iterations"):
        count_turns(times.tolist(), turns, 29)


@pytest.mark.parametrize(("long_turns", "number"), [(3, 8), (2, 1)])
def test_three_long_periods_are_of_a_turn_and_fewer_of_none(
    long_turns: int, number: int
) -> None:
    """Four iterations show a turn; the first of them may be warming up."""
    lengths = np.ones(4 * 8)
    lengths[[8, 16, 24][:long_turns]] = 2.0
    times = np.cumsum([0.0, *lengths])

    assert count_turns(times.tolist(), [*range(len(times))]) == number


def test_a_mark_amid_what_is_under_way_cuts_where_it_was_called() -> None:
    """Marks of one process come while the others still send."""
    sizes = [700_000, 300_000]
    gaps = [0.03, 0.006]
    traffic = summing(sizes, gaps, seed=5)
    step = sum(gaps) + 2 * (WORKERS - 1) / WORKERS * sum(sizes) / NIC
    rng = np.random.default_rng(5)
    began = 2 * step + sum(gaps) * 2 + step * np.arange(STEPS - 2)
    marks = {ALL: began - rng.uniform(0, 0.035, len(began))}

    found = fit_traffic(traffic, marks=marks)

    assert isinstance(found, FittedSteps)
    for one in found.steps:
        assert np.ptp(one.sizes) <= FULL


def test_a_chain_survives_bursts_that_ran_together_and_others_beside() -> None:
    rng = np.random.default_rng(7)
    pattern = np.cumsum([0, 40_000, 7_000, 90_000])
    period = 150_000
    places = np.concatenate([pattern + period * turn for turn in range(20)])
    kept = rng.random(len(places)) > 0.2
    beside = rng.integers(0, 20 * period, 6)
    drawn = np.sort(np.concatenate([places[kept], beside]))

    chain = find_chain(drawn, 20 * period)

    assert chain is not None
    assert chain.period == period
    assert find_chain(np.sort(rng.integers(0, 20 * period, 60)), 20 * period) is None


def test_distances_that_differ_by_little_are_of_one_period() -> None:
    """A turn takes 1 MB and every other one 400 B more: a fraction of 0.2 %."""
    turns = np.arange(40)
    places = 1_000_000 * turns + 400 * (turns % 2)

    periods = _find_periods(places, 40_000_000)

    assert len(periods) == 10
    np.testing.assert_allclose(periods, 1_000_000 * (1 + turns[:10]), rtol=5e-4)
