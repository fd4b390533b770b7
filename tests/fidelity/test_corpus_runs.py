"""Emulated against simulated makespan on a fixed part of the corpus.

Wall times are so short that the sockets, not patience, are tested. A run that its own
verdict does not trust says nothing about fidelity: it is tried again, and too many of
those fail the test too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from emu.scenario import load
from tests.fidelity.corpus import draw_scenario
from tools.trials.trial import Trial, attempt, prepared

#: Five of each shape of job: training, one-shot DGTP, random graph, multi-round DGTP.
SEEDS = range(20)
#: Wall seconds of one run; 0.3 ms per flow on a chain of 10 are 0.2 %. Hop-by-hop
#: sampling has chains of 100 under a rule that sends one flow at a time: in 1.5 s they
#: came 2 % late, so many events take longer.
WALL, PER_EVENT = 1.5, 0.01
#: What a trusted run may be off by (the verdict allows 1 %), and one that is not by
#: more than its bound says.
OFF, SLACK = 0.02, 0.02
RETRIES = 2


@pytest.fixture(scope="module")
def trials() -> Iterator[dict[int, Trial]]:
    """Return the runs of this module so far, by seed; most of all can be trusted.

    Not a test of its own: tests run in random order, and it must come last.
    """
    found: dict[int, Trial] = {}
    yield found
    if len(found) == len(SEEDS):
        trusted = [trial.trust == "trusted" for trial in found.values()]
        assert sum(trusted) >= len(SEEDS) * 0.7


@pytest.mark.emulation
@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_emulated_and_simulated_makespan_agree(
    trials: dict[int, Trial], tmp_path: Path, seed: int
) -> None:
    path = tmp_path / "drawn.yaml"
    path.write_text(json.dumps(draw_scenario(seed, most_processes=10)))
    experiment = prepared(load(path), WALL, per_event=PER_EVENT)

    runs = tmp_path / "runs"
    trial = trials[seed] = attempt("drawn", experiment, runs, retries=RETRIES)

    assert trial.trust != "failed", trial.problem
    allowed = OFF if trial.trust == "trusted" else trial.bound + SLACK
    assert abs(trial.replay_error) <= allowed
