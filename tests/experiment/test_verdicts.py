"""Verdicts of real runs: a quiet one, and one whose process stood still."""

from __future__ import annotations

import dataclasses
import math
import signal
import threading
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from emu.emulation.coordinator import Observer
from emu.experiment.run_experiment import carry_out, emulation_settings
from emu.report.html.page import write_report
from emu.report.run_tables import run_tables
from emu.report.terminal import terminal
from emu.runs.run_directory import RunDirectory
from emu.scenario import load, prepare
from tests import draws
from tests.emulation.coordinator.emulated import Acts, named
from tests.integration.scenarios import custom, flow, read
from tests.leftovers import Leftovers

pytestmark = [pytest.mark.emulation, pytest.mark.timeout(180)]
GOLDEN = Path(__file__).parents[2] / "scenarios" / "golden.yaml"
#: 38 emulated seconds in 1.9 wall seconds.
OPTIONS = ["emulation.time_scale=0.05", "expect=null"]


def _result(tmp_path: Path, observer: Observer | None = None) -> dict[str, Any]:
    experiment = prepare(load(GOLDEN, OPTIONS))
    return carry_out(
        experiment,
        emulation_settings(experiment.scenario),
        RunDirectory.create("golden", tmp_path),
        observer,
    ).content


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
    problem = prepare(load(GOLDEN, OPTIONS)).problem

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


def _with_program(
    program: str, tmp_path: Path, *, speed: float = 1.0, **emulation: Any
) -> dict[str, Any]:
    """Run five iterations of a task of 1 s with another program; return the result."""
    document = custom(
        [{"name": "a"}, {"name": "b", "time": "0 s"}],
        [flow("a", "b", "1 kB")],
        {"a": "m0", "b": "m1"},
        machine={"nic": "1 MB/s", "speed": speed},
        emulation=emulation,
        iterations=5,
    )
    experiment = prepare(read(document))
    job = experiment.problem.job
    other = dataclasses.replace(job.tasks[0], program=f"sabotage:{program}")
    changed = dataclasses.replace(job, tasks=(other, job.tasks[1]))
    problem = dataclasses.replace(experiment.problem, job=changed)
    return carry_out(
        dataclasses.replace(experiment, problem=problem),
        emulation_settings(experiment.scenario, allow=(f"sabotage:{program}",)),
        RunDirectory.create(program, tmp_path),
    ).content


def test_overrun_of_a_known_share_is_the_headline(
    tmp_path: Path, leftovers: Leftovers
) -> None:
    """Every task takes 1.209 times what was stated, as on a computer that is busy."""
    result = _with_program("Overruns", tmp_path, time_scale=0.2)

    assert 0.2 <= result["makespan_error"] <= 0.3
    assert abs(result["replay_error"]) <= 0.02
    assert result["verdict"]["trust"] == "untrusted"
    shown = f"{100 * result['makespan_error']:+.3g} %"
    text = StringIO()
    terminal(text).print(run_tables(result))
    rows = [" ".join(line.split()) for line in text.getvalue().splitlines()]
    assert any(row.startswith(f"makespan error {shown}") for row in rows)
    assert (
        f'data-key="makespan_error">{shown}'
        in write_report(next(tmp_path.glob("Overruns-*"))).read_text()
    )
    assert leftovers.note() == []


@pytest.mark.parametrize(
    ("time_scale", "speed"), [(3.0, 1.0), draws.rarely(12.0, 1.0), (6.0, 2.0)]
)
def test_measured_work_takes_the_same_at_every_time_scale(
    time_scale: float, speed: float, tmp_path: Path, leftovers: Leftovers
) -> None:
    """Five times 30 ms of CPU time, over the speed of the machine."""
    result = _with_program(
        "Burns", tmp_path, speed=speed, compute="real", time_scale=time_scale
    )
    verdict, expected = result["verdict"], 5 * 0.03 / speed + 0.001
    leftovers.note()

    assert result["times"] == "stated"
    # What the file states is what was predicted: a second, of which 30 ms were burnt.
    assert result["prediction"]["outcome"] == "differs"
    # Without what came late: on a busy host the work may not fit, and that is said.
    assert verdict["on_time_makespan"] == pytest.approx(expected, rel=0.03)
    if verdict["trust"] == "trusted":
        assert result["makespan"] == pytest.approx(expected, rel=0.03)
