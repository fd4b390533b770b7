"""``emu explain``: why it takes so long, and what would help."""

from __future__ import annotations

from pathlib import Path

import emu
from emu.cli import options
from emu.cli.app import app, argument, option
from emu.cli.options import JsonTarget, Overrides, emit
from emu.experiment.checkpoint_interval import copies_line, intervals, not_sought
from emu.prediction.analysis.bounds import placement_gap, placement_line
from emu.report import explanation_tables as words
from emu.report.terminal import terminal


@app.command()
def explain(
    what: Path = argument("RUN|FILE", "Run directory, or scenario."),
    overrides: Overrides = None,
    json_target: JsonTarget = None,
    top: int = option("N", "Improvements to show.", words.SHOWN, min=0),
    bound_time: options.BoundTime = "5 s",
    *,
    helpful: bool = option(
        "--improvements/--no-improvements", "Say what would help.", True
    ),
    run_code: options.RunCode = False,
) -> None:
    """Explain why a run takes so long, and what would help.

    A scenario is simulated. For a run directory it also says where emulation and
    simulation parted.
    """
    limit = options.seconds(bound_time, "--bound-time")
    subject = emu.load_run(what) if what.is_dir() else emu.load(what, overrides or [])
    if isinstance(subject, emu.Scenario):
        window: object = subject.job.credit_window
        pins = subject.pins
        scenario = emu.place(subject)
        placing = scenario.placing
        explanation = emu.explain(scenario, helpful=helpful)
        made = explanation.schedule
        lines = [*words.recovery_lines(scenario.attempts(made), made.length)][:1]
        lines += copies_line(scenario, made.length)
        if helpful and (best := intervals(scenario)):
            lines, more = [*lines, best.line()], {"checkpoints": best.to_json()}
        else:
            lines, more = lines + not_sought(scenario.scenario), {}
    else:
        lines, more = [], {}
        window, pins = subject.result.get("credit_window"), {}
        placing = subject.result.get("placing", {})
        explanation = emu.explain(subject, helpful=helpful, run_code=run_code)
    console = terminal(quiet=json_target == "-")
    console.print(words.explanation_tables(explanation, top, window, pins))
    for line in lines:
        console.print(f"\n{line}")
    if placing:
        console.print()
        words.print_placing(placing, console)
    content, schedule = explanation.to_json(), explanation.schedule
    content |= {"placing": placing, **more}
    if helpful:
        gap = placement_gap(
            schedule.problem,
            explanation.realization,
            explanation.replayed_makespan,
            seconds=limit,
        )
        console.print(f"\n{placement_line(gap)}")
        content |= gap
    emit(json_target, content)
