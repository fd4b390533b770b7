"""Verdicts of real runs: a quiet one, and one whose process stood still."""

from __future__ import annotations

import math
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from emu.experiment.run_experiment import carry_out, emulation_settings
from emu.runs.run_directory import RunDirectory
from emu.scenario import load, prepare
from tests.coordinator.emulated import Acts, named

if TYPE_CHECKING:
    from emu.coordinator import Observer
    from tests.leftovers import Leftovers

pytestmark = [pytest.mark.emulation, pytest.mark.timeout(180)]
GOLDEN = Path(__file__).parents[2] / "scenarios" / "golden.yaml"
#: 38 emulated seconds in 1.9 wall seconds.
OPTIONS = ["emulation.time_scale=0.05", "expect=null"]


def _result(tmp_path: Path, observer: Observer | None = None) -> dict[str, Any]:
    experiment = prepare(load(GOLDEN, OPTIONS), emulated=True)
    return carry_out(
        experiment,
        emulation_settings(experiment.scenario),
        RunDirectory.create("golden", tmp_path),
        observer,
    ).result


def _difference(result: dict[str, Any]) -> float:
    return float(result["makespan"] - result["replayed_makespan"])


def test_a_run_says_how_far_it_can_be_believed(
    tmp_path: Path, leftovers: Leftovers
) -> None:
    result = _result(tmp_path)
    verdict, budget = result["verdict"], result["error_budget"]

    assert verdict["trust"] in {"trusted", "degraded", "untrusted"}
    assert (verdict["trust"] == "trusted") == (not verdict["reasons"])
    assert verdict["error"] >= 0
    assert math.fsum(budget.values()) == pytest.approx(
        _difference(result), abs=1e-3 * result["makespan"]
    )
    assert leftovers.note() == []


def test_a_process_that_stood_still_makes_a_run_untrusted(
    tmp_path: Path, leftovers: Leftovers
) -> None:
    """w0 stops for 0.4 s of wall time while it sends a flow of 0.05 s to ps0."""
    problem = prepare(load(GOLDEN, OPTIONS), emulated=True).problem

    def stop() -> None:
        process = named(leftovers.note(), "w0")
        process.send_signal(signal.SIGSTOP)
        threading.Timer(0.4, process.send_signal, [signal.SIGCONT]).start()

    result = _result(tmp_path, Acts("flow w0->ps0", stop, problem))
    verdict, budget = result["verdict"], result["error_budget"]

    assert verdict["trust"] == "untrusted"
    assert verdict["error"] > 0.03
    assert verdict["host"]["loop_lag_max"] > 0.1
    assert any(remedy.startswith("raise time_scale") for remedy in verdict["remedies"])
    assert math.fsum(budget.values()) == pytest.approx(
        _difference(result), abs=1e-3 * result["makespan"]
    )
