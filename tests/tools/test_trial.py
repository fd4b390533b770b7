"""Trials: prepared for a wall time, repeated while they cannot be trusted."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.errors import NodeLost
from emu.prediction.simulation import simulate
from emu.scenario import Experiment, load
from emu.trust.lateness import FlowCompletion
from emu.trust.verdict import HostFigures
from tests.fidelity.corpus import draw_scenario
from tools.trials.trial import attempt, finish_figures, prepared, prepared_at


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    path = tmp_path / "drawn.yaml"
    path.write_text(json.dumps(draw_scenario(2, most_processes=10)))
    return prepared(load(path), wall=2.0)


class Carried:
    """Carries nothing out: the simulation stands in for the run."""

    def __init__(self, *trusts: str) -> None:
        self.trusts = list(trusts)

    def __call__(self, experiment: Experiment, *_: Any) -> Any:
        """Return what a run with the next verdict would.

        Raises NodeLost when that is ``failed``.
        """
        trust = self.trusts.pop(0)
        if trust == "failed":
            raise NodeLost("w0 died")
        schedule = simulate(
            experiment.problem,
            experiment.realization,
            experiment.policy,
            record_rates=True,
        )
        result = {
            "replayed_makespan": schedule.makespan, "makespan": schedule.makespan,
            "replay_error": 0.0, "makespan_error": 0.0, "wall_seconds": 2.0,
            "startup": {"seconds": 1.0},
            "verdict": {
                "trust": trust, "error": 0.001, "shift": 0.003,
                "host": vars(HostFigures()),
                "guards": [{"guard": "link bytes"}, {"guard": "cause"}],
            },
        }  # fmt: skip
        return SimpleNamespace(
            run=SimpleNamespace(schedule=schedule, realization=experiment.realization),
            replayed=schedule,
            content=result,
        )


def test_the_time_scale_gives_the_wall_time(experiment: Experiment) -> None:
    scale = experiment.scenario.emulation.stated_time_scale

    assert scale * experiment.simulate().makespan == pytest.approx(2.0, rel=0.01)
    assert experiment.scenario.emulation.stated_byte_scale > 0


def test_a_run_that_is_not_trusted_is_tried_again_and_counted(
    experiment: Experiment, tmp_path: Path
) -> None:
    carry = Carried("untrusted", "failed", "trusted", "trusted")

    trial = attempt("drawn-2@wall/0", experiment, tmp_path, retries=3, carry=carry)

    assert (trial.trust, trial.retries) == ("trusted", 2)
    assert (trial.scenario, trial.variant) == ("drawn-2", "wall")
    assert trial.expected == experiment.simulate().makespan
    assert trial.guards == "link bytes,cause"
    assert trial.bound == 0.003
    assert trial.replay_error == 0.0
    assert trial.flow_error == pytest.approx(0.0, abs=1e-9)
    assert (trial.system, trial.shape) == ("custom", "graph")
    assert trial.finishes == trial.kept == trial.flows > 0
    assert trial.peak_rate > 0
    real = experiment.scenario.emulation.stated_byte_scale
    assert trial.received == experiment.realization.volumes.sum() * real > 0
    assert math.isnan(trial.weights)  # it trains nothing
    assert (trial.tries, trial.tries_cost) == (0, 0.0)
    assert math.isnan(trial.predicted_error)
    assert len(carry.trusts) == 1


def test_what_is_tried_again_may_be_slower_each_time(
    experiment: Experiment, tmp_path: Path
) -> None:
    carry = Carried("untrusted", "untrusted", "trusted")
    scale = experiment.scenario.emulation.stated_time_scale

    trial = attempt("a@wall/0", experiment, tmp_path, retries=4, slower=3, carry=carry)

    assert (trial.trust, trial.retries) == ("trusted", 2)
    assert trial.time_scale == pytest.approx(9 * scale)


def test_the_last_word_counts_when_none_is_trusted(
    experiment: Experiment, tmp_path: Path
) -> None:
    trial = attempt(
        "drawn-2@wall/0",
        experiment,
        tmp_path,
        retries=1,
        carry=Carried("untrusted", "failed"),
    )

    assert (trial.trust, trial.retries, trial.problem) == ("failed", 1, "w0 died")
    assert math.isnan(trial.replay_error)
    with pytest.raises(ValueError, match="retries"):
        attempt("drawn-2@wall/0", experiment, tmp_path, retries=-1)


def test_a_scenario_is_prepared_at_the_time_scale_that_is_asked_for(
    experiment: Experiment,
) -> None:
    again = prepared_at(experiment.scenario, 12.5)

    assert again.scenario.emulation.stated_time_scale == 12.5
    assert again.simulate().makespan == experiment.simulate().makespan


def test_finishes_are_counted_against_what_they_may_be_off_by() -> None:
    # Allowed: 2 ms of the short ones, 10 ms of the flow of a second.
    errors = np.array([0.001, -0.0019, 0.003, 0.009, 0.0])
    lengths = np.array([0.1, 0.1, 0.1, 1.0, 0.0])

    figures = finish_figures(FlowCompletion(errors, lengths))

    assert (figures["finishes"], figures["kept"]) == (5, 4)
    assert figures["finish_p50"] == pytest.approx(0.0019)
    assert figures["finish_max"] == pytest.approx(0.009)
    assert math.isinf(figures["finish_share_p95"])
    assert finish_figures(FlowCompletion(errors[:0], lengths[:0])) == {
        "finishes": 0, "kept": 0,
    }  # fmt: skip


def test_a_run_of_many_events_takes_longer_and_its_payloads_shrink(
    experiment: Experiment, tmp_path: Path
) -> None:
    schedule = experiment.simulate()
    events = schedule.task_end.size + len(schedule.flows())

    longer = prepared(experiment.scenario, wall=2.0, per_event=0.1)
    thinner = prepared(experiment.scenario, wall=2.0, most_rate=1e6)

    scale = longer.scenario.emulation.stated_time_scale
    assert scale * schedule.makespan == pytest.approx(0.1 * events, rel=0.01)
    trial = attempt("drawn-2@wall/1", thinner, tmp_path, carry=Carried("trusted"))
    assert trial.peak_rate == pytest.approx(1e6, rel=0.01)
    assert trial.time_scale == experiment.scenario.emulation.stated_time_scale
