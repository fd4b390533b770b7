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


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"events": [{}]}, r"NICs changed while it ran \(events\)"),
        (
            {"trust": "degraded", "waited_share": 0.25},
            r"were 25 % .*\(5 % may be\).* state cpu: N of every",
        ),
        (
            {"trust": "degraded", "waited_share": 0.1, "early_share": 0.5},
            "were 50 % of what programs computed",
        ),
        (
            {"trust": "degraded", "waited_share": 0.5, "cpu": {"m0": 1.0}},
            r"were 50 % .* state a larger lab\.time_scale and run it again",
        ),
    ],
)
def test_runs_of_which_no_fit_is_right_are_refused(
    monkeypatch: pytest.MonkeyPatch,
    runs: dict[str, Traffic],
    known: dict[str, Any],
    words: str,
) -> None:
    """Force fits runs that are not trusted, but no other refused run."""
    lab = LAB | known
    monkeypatch.setattr(fit_run, "read_lab", lambda _: lab)
    with pytest.raises(DataError, match=words):
        fit_run.fit_run(Path("run"))
    if lab["events"]:
        with pytest.raises(DataError, match=words):
            fit_run.fit_run(Path("run"), force=True)
    else:
        assert fit_run.fit_run(Path("run"), force=True).iterations > 0
    assert len(runs) == 2


def test_a_run_of_other_cores_says_nothing_of_other_nics(
    monkeypatch: pytest.MonkeyPatch,
    runs: dict[str, Traffic],
) -> None:
    """The labs state other shares of cores."""
    by_name = {"run": LAB, "slow": LAB | {"cpu": {"m0": 0.5}}}
    monkeypatch.setattr(fit_run, "read_lab", lambda path: by_name[path.name])
    with pytest.raises(DataError, match="has other cores than the run"):
        fit_run.fit_run(Path("run"), against=Path("slow"))
    assert len(runs) == 2


def test_errors_of_a_fit_are_shares_of_what_was_measured() -> None:
    """Errors are known for the run that was fitted and for its second half."""
    fit = fit_run.Fit(
        document={"name": "n"},
        iterations=4,
        first=2,
        measured=2.0,
        simulated=2.5,
        held_out_measured=4.0,
        held_out_simulated=3.0,
    )
    assert (fit.error, fit.held_out_error) == (0.25, -0.25)
    found = fit.to_json()
    assert (found["error"], found["held_out_error"]) == (0.25, -0.25)
    assert (found["first"], found["measured"], found["other_error"]) == (2, 2.0, None)
    assert "document" not in found
    assert fit.text("n.json") == '{"name": "n"}'
    text = fit.text("n.yaml")
    assert text.startswith("# By `emu fit` from n: what crossed in 4 iterations\n")
    assert "# from number 2, at 2 s each.\n" in text


def test_a_fit_of_as_much_yaml_as_is_read_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One character less is refused, with the form that has no bound."""
    fit = fit_run.Fit({"name": "n"}, 4, 2, 2.0, 2.5, 4.0, 3.0)
    size = len(fit.text("n.yaml"))
    monkeypatch.setattr(fit_run, "MOST_YAML", size)
    assert len(fit.text("n.yaml")) == size
    monkeypatch.setattr(fit_run, "MOST_YAML", size - 1)
    with pytest.raises(DataError, match=r"name it \.json"):
        fit.text("n.yaml")
