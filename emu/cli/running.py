"""Steps of every run of a scenario, one alone or several side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emu.cli.options import emit
from emu.errors import ExpectationMissed, RunUntrusted, ScenarioError
from emu.experiment.auto_scale import with_scales
from emu.experiment.expectations import missed_expectations
from emu.experiment.readiness import check_ready
from emu.experiment.run_experiment import carry_out, emulation_settings
from emu.report import terminal
from emu.report.comparison import sharing_table
from emu.report.html import write_report
from emu.report.scale_tables import trial_line
from emu.report.trace import write_trace
from emu.runs.run_directory import RunDirectory
from emu.trust.verdict import Trust

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from rich.console import Console

    from emu.experiment.scale_search import ScaleChoice
    from emu.scenario import Experiment, Scenario


def judge(scenario: Scenario, result: dict[str, Any], *, strict: bool) -> None:
    """Raise where a run missed what the scenario expects, or may not be trusted.

    Raises
    ------
    ExpectationMissed
        When it missed an ``expect:``.
    RunUntrusted
        When it is not trusted and that is asked for.
    """
    missed = missed_expectations(scenario.expect, result)
    if missed:
        raise ExpectationMissed("; ".join(missed))
    verdict = result["verdict"]
    if strict and verdict["trust"] != Trust.TRUSTED:
        raise RunUntrusted(f"{verdict['trust']}: {'; '.join(verdict['reasons'])}")


_PICTURES = {"trace.json": write_trace, "report.html": write_report}


def draw(run: Path, console: Console, pictures: Iterable[str] = _PICTURES) -> None:
    """Write trace.json and report.html of ``run``; a failure to draw is only printed.

    The run itself is finished and written down.
    """
    for name in pictures:
        write = _PICTURES[name]
        try:
            path = write(run)
        except Exception as error:  # noqa: BLE001 - a picture must not fail a run
            said = f"{name} could not be drawn: {type(error).__name__}: {error}"
            console.print(said, style="yellow", markup=False)
            continue
        if name == "report.html":
            console.print(f"the picture is {path}", markup=False, soft_wrap=True)


def tried_out(
    scenario: Scenario,
    progress: Console,
    *,
    try_stated: bool,
    allow: tuple[str, ...],
) -> tuple[Experiment, ScaleChoice | None]:
    """Return a scenario with its scales stated; say how trials of them come out."""
    experiment, choice = with_scales(
        scenario,
        lambda trial: progress.print(trial_line(trial.to_json())),
        try_stated=try_stated,
        allow=allow,
    )
    if choice is not None and choice.taken is None:
        progress.print(
            f"no trial met max_error and max_late_flows; time scale "
            f"{choice.time_scale:g} is untried (emulation.trial_budget is "
            f"{scenario.emulation.trial_budget:g} s)"
        )
    return experiment, choice


def overrides_of(network: str, sharing: str) -> list[list[str]]:
    """Return the overrides of ``--network`` and ``--sharing``, for every run.

    Under ``fair`` and ``tcp`` the kernel shares, which is ``maxmin`` to the simulator;
    ``assigned`` leaves the policy of the scenario.

    Raises
    ------
    ScenarioError
        When kinds of sharing are stated for another network.
    """
    stated = [f"emulation.network={network}"] if network else []
    if not sharing:
        return [stated]
    if network != "kernel":
        raise ScenarioError("is of --network kernel: state that too", file="--sharing")
    runs = []
    for kind in sharing.split(","):
        policy = [] if kind == "assigned" else ["schedule.policy=maxmin"]
        runs.append([*stated, f"emulation.sharing={kind}", *policy])
    return runs


def side_by_side(
    scenarios: Sequence[Scenario],
    runs: Path,
    progress: Console,
    json_target: str | None,
    allow: tuple[str, ...],
    *,
    strict: bool,
) -> None:
    """Run scenarios one after the other; print a row of each, beside its prediction.

    Raises
    ------
    ExpectationMissed, RunUntrusted
        As `judge`, after all of them.
    """
    results = []
    for scenario in scenarios:
        check_ready(scenario, runs)
        experiment, choice = tried_out(
            scenario, progress, try_stated=False, allow=allow
        )
        directory = RunDirectory.create(scenario.name, runs)
        settings = emulation_settings(experiment.scenario, allow=allow)
        outcome = carry_out(experiment, settings, directory, choice=choice)
        results.append(outcome.result)
        progress.print(f"{scenario.emulation.sharing}: written to {directory.path}/")
        draw(directory.path, progress)
    if emit(json_target, results):
        terminal().print(sharing_table(results))
    for scenario, result in zip(scenarios, results, strict=True):
        judge(scenario, result, strict=strict)
