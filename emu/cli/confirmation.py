"""Rows of a table over sockets: once, or so often that a further run is known."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import emu
from emu.cli.host_options import Hosts
from emu.cli.repeat_runs import Plan, gather_runs
from emu.cli.run_commands import prepare_run, run_once
from emu.errors import ScenarioError
from emu.experiment.draw import Confirmation
from emu.experiment.question import Answer
from emu.report.terminal import terminal
from emu.runs.repeats import Repeats
from emu.scenario import Scenario
from emu.scenario.run_sections import AUTO
from emu.trust.verdict import Trust

#: Directory that takes the run directories.
_RUNS = Path("runs")


def confirm_row(row: Answer, name: str, plan: Plan | None = None) -> Answer:
    """Return a row with its run over sockets, of the first seed; ``name``: of it.

    ``plan``: how often; None for once. Raises as `emu.run`; ScenarioError where its
    steps are recorded.
    """
    scenario = _scenario_of(row, name)
    if plan is not None:
        repeats = _repeat(scenario, plan)
        return replace(row, run=_confirmation_of(repeats))
    run = emu.run(scenario)

    result = run.result
    confirmation = Confirmation(
        str(run.path),
        makespan=result["makespan"],
        makespan_error=result["makespan_error"],
        trust=result["verdict"]["trust"],
        outcome=result["prediction"]["outcome"],
    )
    return replace(row, run=confirmation)


def _scenario_of(row: Answer, name: str) -> Scenario:
    """Return the scenario that is run for a row."""
    scenario = row.scenario
    if row.question.has_steps:
        raise ScenarioError("its steps are found elsewhere: no run has them all")
    # What the file states holds; else trials find what this host can keep to.
    if "time_scale" not in scenario.emulation.model_fields_set:
        emulation = scenario.emulation.model_copy(update={"time_scale": AUTO})
        scenario = scenario.model_copy(update={"emulation": emulation})
    # Run directories are named by scenarios: each row has one of its own.
    return scenario.model_copy(update={"name": f"{scenario.name}-{name}"})


def _repeat(scenario: Scenario, plan: Plan) -> Repeats:
    """Run a scenario on this host as often as a plan says, a line for each run."""
    console = terminal(sys.stderr)
    this_host = Hosts(agents=0, file=None, ray="")
    beginning = prepare_run(
        stated=lambda: scenario,
        resume=None,
        runs=_RUNS,
        carried=lambda _: None,
        progress=console,
        carriers=this_host,
        force=False,
        allow=(),
    )
    experiment = beginning.experiment
    settings = this_host.settings(experiment, None, ())
    once = partial(run_once, beginning, _RUNS, console, live=False)
    repeats, _ = gather_runs(
        experiment=experiment,
        settings=settings,
        once=once,
        plan=plan,
        console=console,
    )
    return repeats


def _confirmation_of(repeats: Repeats) -> Confirmation:
    """Return what several runs say of a row; trusted where all of them are."""
    doubted = [run.trust for run in repeats.runs if run.trust != Trust.TRUSTED]
    span = repeats.further_makespan
    return Confirmation(
        repeats.nearest.path,
        makespan=repeats.makespan,
        makespan_error=repeats.error or 0.0,
        trust=max(doubted, default=str(Trust.TRUSTED)),
        outcome=str(repeats.outcome),
        runs=len(repeats.runs),
        further=(span.low, span.high),
    )
