"""Trials: prepared for a wall time, repeated while nobody can trust them."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from emu.coordinator.trial import attempt, prepared
from emu.errors import NodeLost
from emu.scenario import load
from emu.testing.corpus import draw_scenario

if TYPE_CHECKING:
    from pathlib import Path

    from emu.scenario import Experiment


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

        Raises
        ------
        NodeLost
            When that is ``failed``.
        """
        trust = self.trusts.pop(0)
        if trust == "failed":
            raise NodeLost("w0 died")
        schedule = experiment.simulate()
        result = {
            "simulated_makespan": schedule.makespan, "makespan": schedule.makespan,
            "fidelity": 0.0, "prediction_error": 0.0, "wall_seconds": 2.0,
            "verdict": {"trust": trust, "error": 0.001},
        }  # fmt: skip
        return SimpleNamespace(
            run=SimpleNamespace(schedule=schedule), replayed=schedule, result=result
        )


def test_the_time_scale_gives_the_wall_time(experiment: Experiment) -> None:
    scale = experiment.scenario.emulation.stated_time_scale

    assert scale * experiment.simulate().makespan == pytest.approx(2.0, rel=0.01)
    assert experiment.scenario.emulation.stated_byte_scale > 0


def test_a_run_that_is_not_trusted_is_tried_again_and_counted(
    experiment: Experiment, tmp_path: Path
) -> None:
    carry = Carried("untrusted", "failed", "trusted", "trusted")

    trial = attempt(experiment, tmp_path, retries=3, carry=carry)

    assert (trial.trust, trial.retries) == ("trusted", 2)
    assert trial.fidelity == 0.0
    assert trial.flow_error == pytest.approx(0.0, abs=1e-9)
    assert len(carry.trusts) == 1


def test_the_last_word_counts_when_none_is_trusted(
    experiment: Experiment, tmp_path: Path
) -> None:
    trial = attempt(
        experiment, tmp_path, retries=1, carry=Carried("untrusted", "failed")
    )

    assert (trial.trust, trial.retries, trial.problem) == ("failed", 1, "w0 died")
    assert math.isnan(trial.fidelity)
    with pytest.raises(ValueError, match="retries"):
        attempt(experiment, tmp_path, retries=-1)
