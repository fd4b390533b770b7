"""``emu explain``: why it takes so long, and what would help."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import emu
from emu.cli import options
from emu.cli.app import app, argument, option
from emu.cli.options import JsonTarget, Overrides, emit
from emu.cli.progress import status_line
from emu.errors import ScenarioError
from emu.experiment.checkpoint_interval import copies_line, intervals, not_sought
from emu.experiment.question import ask
from emu.prediction.analysis.bounds import placement_gap, placement_line
from emu.prediction.analysis.explanation import Explanation
from emu.report import explanation_tables as words
from emu.report.terminal import terminal
from emu.runs.result import Result
from emu.scenario.scenario_file import has_recorded_job


@app.command()
def explain(
    what: Path = argument("RUN|FILE", "Run directory, or scenario."),
    overrides: Overrides = None,
    json_target: JsonTarget = None,
    top: int = option("N", "Improvements to show.", words.SHOWN, min=0),
    bound_time: options.BoundTime = "",
    *,
    bound: options.Bound = False,
    helpful: bool = option(
        "--improvements/--no-improvements", "Say what would help.", True
    ),
    run_code: options.RunCode = False,
) -> None:
    """Explain why a run takes so long, and what would help.

    A scenario is simulated, as is the job of a virtual run. For another run directory
    it also says where emulation and simulation parted.
    """
    limit = options.bound_seconds(bound_time, bound=bound)
    if what.is_dir() and not has_recorded_job(what):
        _refuse_overrides(overrides)
        run = emu.load_run(what)
        account = _of_run(run, helpful=helpful, run_code=run_code)
    else:
        scenario = emu.load(what, overrides or [])
        account = _of_scenario(scenario, helpful=helpful)

    explanation = account.explanation
    # Beside JSON on standard output, which `emit` writes at the end, no table may
    # stand.
    console = terminal(quiet=json_target == "-")
    if account.premises:
        console.print(account.premises)
    tables = words.explanation_tables(
        explanation,
        shown=top,
        window=account.window,
        pins=account.pins,
    )
    console.print(tables)
    for line in account.lines:
        console.print(f"\n{line}")
    if account.placing:
        console.print()
        words.print_placing(account.placing, console)

    content = {
        **explanation.to_json(),
        "placing": account.placing,
        **account.more,
    }
    if limit is not None:
        gap = placement_gap(
            explanation.schedule.problem,
            explanation.realization,
            explanation.replayed_makespan,
            seconds=limit,
        )
        line_of_gap = placement_line(gap)
        console.print(f"\n{line_of_gap}")
        content |= gap
    emit(json_target, content)


def _refuse_overrides(overrides: Overrides) -> None:
    """Raise ScenarioError where keys are set of a run, which has been as it was."""
    if overrides:
        problem = "is of a scenario, and a run has its own: leave it out"
        raise ScenarioError(problem, file=f"--set {overrides[0]}")


@dataclass(frozen=True)
class _Told:
    """An explanation, and what is told beside it."""

    explanation: Explanation
    placing: Result
    window: object
    """Credit window as stated."""
    pins: Collection[str] = ()
    premises: str = ""
    lines: tuple[str, ...] = ()
    more: Result = field(default_factory=dict)


def _of_run(run: emu.RecordedRun, *, helpful: bool, run_code: bool) -> _Told:
    explanation = emu.explain(run, helpful=helpful, run_code=run_code)
    return _Told(
        explanation,
        # A run may lack its result.json, which has them.
        placing=run.result.get("placing", {}),
        window=run.result.get("credit_window"),
    )


def _of_scenario(scenario: emu.Scenario, *, helpful: bool) -> _Told:
    answer = ask(emu.place(scenario))
    ready, schedule = answer.first
    recovery = words.recovery_lines(answer.deaths, schedule.length)
    # The first line sums up; `emu simulate` lists every restart.
    lines = [*islice(recovery, 1)]
    lines += copies_line(ready, schedule.length)

    more: Result = {}
    # Looking for the best interval simulates many: only where help is asked for.
    best = intervals(ready) if helpful else None
    if best is not None:
        lines.append(best.line())
        more["checkpoints"] = best.to_json()
    else:
        # It says so where a missing cost is the reason, and nothing of other scenarios.
        lines += not_sought(ready.scenario)
    with status_line("explaining", "trying: ") as say:
        explanation = emu.explain(ready, helpful=helpful, watch=say)
    return _Told(
        explanation,
        placing=ready.placing,
        window=scenario.job.credit_window,
        pins=scenario.pins,
        premises=answer.premises.line(),
        lines=tuple(lines),
        more=more,
    )
