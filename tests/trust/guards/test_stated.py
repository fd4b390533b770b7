"""Task times, credit windows and what else guards read of a scenario."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from emu.problem import Problem, Realization
from emu.runs.audit_inputs import unchecked_windows
from emu.scenario import Experiment, load, prepare
from emu.simulation import simulate
from emu.testing.strategies import problems
from emu.trust.guards.evidence import Evidence, fitting, most_stated, stated_capacities
from emu.trust.guards.schedule import task_times, window
from emu.wire.frame_layout import FRAME_ROWS
from tests.integration.scenarios import GOLDEN


@given(drawn=problems(links=True, changes=True))
def test_capacities_over_time(drawn: tuple[Problem, Realization]) -> None:
    problem, _ = drawn
    times, steps = np.arange(0.0, 16.0, 0.25), problem.links.steps
    for port, link in enumerate(problem.links):
        of_guards = [stated_capacities(problem, t)[link.name] for t in times.tolist()]
        np.testing.assert_array_equal(steps.at(port, times), of_guards)
        np.testing.assert_allclose(
            steps.carried(port, times), fitting(problem, link.name, times), rtol=1e-12
        )
        assert steps.most[port] == most_stated(problem)[link.name]


def experiment(most: int | str) -> Experiment:
    overrides = {"job.credit_window": most, "job.iterations": 6, "expect": None}
    return prepare(load(GOLDEN, overrides))


def evidence(
    made: Experiment, share: float = 1.0, stated: int | None = None
) -> Evidence:
    """Return what a run reports whose tasks take a share of their times."""
    realization = replace(made.realization, times=share * made.realization.times)
    none = np.zeros(0, FRAME_ROWS)
    return Evidence(
        schedule=simulate(made.problem, realization, "oes"),
        sent=none,
        received=none,
        notified=None,
        statistics={},
        time_scale=1.0,
        byte_scale=1.0,
        lead=0.0,
        stale=0.0,
        stall=0.0,
        times=made.realization.times,
        windows=() if stated is None else (("", stated),),
    )


@pytest.mark.parametrize("share", [0.97, 0.999, 0.99999])
def test_tasks_that_take_a_share_of_their_time_are_named(share: float) -> None:
    (found,) = task_times(evidence(experiment("unlimited"), share))
    assert "that are stated" in found.sentence


@pytest.mark.parametrize("share", [1.0, 1.2])
def test_tasks_may_take_their_time_and_more(share: float) -> None:
    assert not [*task_times(evidence(experiment("unlimited"), share))]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_window_off_by_one_is_named(most: int) -> None:
    assert not [*window(evidence(experiment(most), stated=most))]
    (found,) = window(evidence(experiment(most + 1), stated=most))
    assert f"the credit window is {most}" in found.sentence
    assert f"[{most}] started" in found.sentence  # the first that may not yet


@pytest.mark.parametrize(
    ("name", "unchecked"),
    [("p3_products", True), ("golden", False), ("demo", False)],
)
def test_an_audit_names_windows_that_it_does_not_check(
    name: str, *, unchecked: bool
) -> None:
    """Those of P3's cycles, each of which works on several mini-batches."""
    assert unchecked_windows(load(name)) == unchecked
