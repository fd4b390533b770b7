"""Fits that are held against a run at other NICs, and say so from then on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError
from emu.lab import fit_run
from emu.prediction.analysis.traffic import Traffic
from emu.scenario.scenario_file import loads
from tests.lab.fitting.crossed import crossed
from tests.lab.fitting.test_fit import KNOWN, PROGRAMS, simulated, traffic_of

SLOW = crossed(simulated(KNOWN, m0="5 Mbit/s"), PROGRAMS)
LAB: dict[str, Any] = {
    "trust": "trusted",
    "waited_share": 0.0,
    "events": [],
    "programs": [],
}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> dict[str, Traffic]:
    """Return what crossed by the name of its run, to be changed."""
    traffic = {"run": traffic_of(KNOWN), "slow": SLOW}
    monkeypatch.setattr(fit_run, "read_traffic", lambda path: traffic[path.name])
    monkeypatch.setattr(fit_run, "read_lab", lambda _: LAB)
    return traffic


def note_of(fit: fit_run.Fit) -> str:
    return loads(fit.text("fit.json"), name="fit.json").job.fit_note


def test_a_fit_says_how_far_it_was_off_at_other_nics(runs: dict[str, Traffic]) -> None:
    fit = fit_run.fit_run(Path("run"), against=Path("slow"))

    assert fit.other_error is not None
    assert abs(fit.other_error) < 0.05
    assert f"this fit was {fit.other_error:+.1%} off" in note_of(fit)
    # What ran at the NICs that were fitted stays as it was.
    assert fit.document["cluster"] == fit_run.fit_run(Path("run")).document["cluster"]
    assert len(runs) == 2


def test_a_fit_that_is_far_off_is_no_good_elsewhere(runs: dict[str, Traffic]) -> None:
    late = SLOW.packets.copy()
    late["time"] *= 1.5
    runs["slow"] = replace(SLOW, packets=late)

    fit = fit_run.fit_run(Path("run"), against=Path("slow"))

    assert fit.other_error == pytest.approx(-1 / 3, abs=0.05)
    assert "no good for NICs other than those" in note_of(fit)


@pytest.mark.usefixtures("runs")
def test_a_fit_alone_says_that_nobody_measured() -> None:
    assert note_of(fit_run.fit_run(Path("run"))).startswith(
        "not measured at other NICs"
    )


def test_a_run_that_says_nothing_of_other_nics_is_refused(
    runs: dict[str, Traffic],
) -> None:
    with pytest.raises(DataError, match="has the NICs of the run that is fitted"):
        fit_run.fit_run(Path("run"), against=Path("run"))
    runs["slow"] = replace(SLOW, machines=("a", "b", "c"), nics=np.array(SLOW.nics))
    with pytest.raises(DataError, match="is of other machines"):
        fit_run.fit_run(Path("run"), against=Path("slow"))
