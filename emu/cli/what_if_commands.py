"""``emu explain``, ``compare`` and ``crossover``: causes, and what changes them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import emu
from emu.cli.app import app, argument, option
from emu.cli.compare_systems import (
    As,
    Confirm,
    Open,
    compare_rows,
    form_of,
    judge_rows,
    rows_json,
    show_systems,
    write_systems,
)
from emu.cli.options import (
    BoundTime,
    Jobs,
    JsonTarget,
    Overrides,
    RunCode,
    ScenarioFile,
    emit,
    seconds,
    split_words,
)
from emu.cli.report_commands import say_missing
from emu.errors import ScenarioError
from emu.experiment.checkpoint_interval import copies_line, intervals, not_sought
from emu.experiment.crossover import Values, find_crossover
from emu.experiment.systems import WITHIN, Target
from emu.prediction.analysis.bounds import placement_gap, placement_line
from emu.report.comparison import comparison_tables
from emu.report.explanation_tables import (
    SHOWN,
    explanation_tables,
    job_line,
    print_placing,
    recovery_lines,
)
from emu.report.many_runs import runs_json, runs_table
from emu.report.system_tables import crossover_table
from emu.report.terminal import terminal
from emu.scenario.document import value_at
from emu.training.looks import HELD


@app.command()
def explain(
    what: Annotated[Path, argument("RUN|FILE", "Run directory, or scenario.")],
    overrides: Overrides = None,
    json_target: JsonTarget = None,
    top: Annotated[int, option("N", "Improvements to show.", min=0)] = SHOWN,
    bound_time: BoundTime = "5 s",
    *,
    helpful: Annotated[
        bool, option("--improvements/--no-improvements", "Say what would help.")
    ] = True,
    run_code: RunCode = False,
) -> None:
    """Explain why a run takes so long, and what would help.

    A scenario is simulated. For a run directory it also says where emulation and
    simulation parted.
    """
    limit = seconds(bound_time, "--bound-time")
    subject = emu.load_run(what) if what.is_dir() else emu.load(what, overrides or [])
    if isinstance(subject, emu.Scenario):
        window: object = subject.job.credit_window
        pins = subject.pins
        scenario = emu.place(subject)
        placing = scenario.placing
        explanation = emu.explain(scenario, helpful=helpful)
        made = explanation.schedule
        lines = [*recovery_lines(scenario.attempts(made), made.length)][:1]
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
    console.print(explanation_tables(explanation, top, window, pins))
    for line in lines:
        console.print(f"\n{line}")
    if placing:
        console.print()
        print_placing(placing, console)
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


@app.command()
def crossover(
    file: ScenarioFile,
    key: Annotated[str, option("KEY", "Such as job.model.hidden.")],
    between: Annotated[
        str, option("A,B", "Two rows of compare --systems.")
    ] = "data_parallel,p3",
    values: Annotated[
        str,
        option(
            "--range LOW,HIGH",
            "Ends of the search; default: a 16th of the file's value to 16 times.",
        ),
    ] = "",
    overrides: Overrides = None,
    json_target: JsonTarget = None,
) -> None:
    """Find the value of a key from which another system is faster.

    Bisection in simulation; beside it what first principles say: where the busiest link
    has as many bytes to carry in both systems.
    """
    scenario = emu.load(file, overrides or [])
    systems = split_words(between)
    if len(systems) != 2:
        raise ScenarioError("write --between A,B", file=f"--between {between}")
    try:
        low, _, high = values.partition(",")
        ends = Values.between(low, high) if values else None
        ends = ends or Values.around(value_at(scenario.to_json(), key))
    except ValueError as error:
        wrong = f"--range {values}" if values else f"--key {key}"
        raise ScenarioError(f"{error}: write --range LOW,HIGH", file=wrong) from error
    outcome = find_crossover(scenario, key, (systems[0], systems[1]), ends)
    if emit(json_target, outcome.to_json()):
        terminal().print(crossover_table(outcome))


@app.command()
def compare(
    what: Annotated[
        list[Path], argument("FILE|RUN...", "A scenario, or run directories.")
    ],
    overrides: Overrides = None,
    policies: Annotated[
        str, option("A,B", "Rate policies, or all; default: the scenario's.")
    ] = "",
    placements: Annotated[
        str, option("A,B", "Placements; default: the scenario's.")
    ] = "",
    move: Annotated[
        list[str] | None, option("TASK=MACHINE", "Show it with this task moved.")
    ] = None,
    swap: Annotated[
        list[str] | None, option("TASK,TASK", "Show it with these tasks swapped.")
    ] = None,
    seeds: Annotated[
        int, option("N", "Scenario only: its seed and those that follow it.", min=1)
    ] = 1,
    systems: Annotated[
        str, option("A,B", "Scenario only: all, or rows such as dgtp,p3.none,dgcl.")
    ] = "",
    to: Annotated[
        str, option("accuracy=0.88", "With --systems: time to that accuracy.")
    ] = "",
    within: Annotated[
        int, option("EPOCHS", "With --to: passes over the training set.", min=HELD)
    ] = WITHIN,
    write: Annotated[
        Path | None, option("DIR", "Write each row as a scenario.")
    ] = None,
    json_target: JsonTarget = None,
    form: As = None,
    out: Annotated[
        Path | None,
        option("FILE", "Runs: a picture, .svg, .pdf or .png. Systems: that of --as."),
    ] = None,
    confirm: Confirm = 0,
    *,
    open_it: Open = False,
    keep_placement: Annotated[
        bool, option("--keep-placement", "Place by the scenario's policy alone.")
    ] = False,
    same_machines: Annotated[
        bool, option("--same-machines", "With --systems: on those of the first.")
    ] = False,
    jobs: Jobs = 0,
) -> None:
    """Compare placements and policies, or recorded runs.

    Placements and rate policies of a scenario are compared by simulation, beside the
    scenario as it is, each placed under its own policy. Differences are taken seed by
    seed against the first row; one within its own 95 % interval is a tie. Runs that
    differ by their seed only make one row. With systems it is shown as each of them,
    with as many seeds per iteration and what is added to the file or dropped from it;
    nothing else is varied. Where the file states no machines (job.machines), each
    system is on those on which it is fastest. With --to all train until three looks in
    a row hold an accuracy, an epoch apart, and rows are the times that this takes.

    Raises
    ------
    ExpectationMissed
        When a row missed an ``expect:``; a single value is of the first row alone, or
        of the system that the file states.
    """
    if to and not systems:
        raise ScenarioError("write --systems all as well", file=f"--to {to}")
    if all(path.is_dir() for path in what):
        runs = [emu.load_run(path) for path in what]
        say_missing(*runs)
        if emit(json_target, runs_json(runs)):
            terminal().print(runs_table(runs))
        if out is not None:
            from emu.report.plots import plot  # noqa: PLC0415 - matplotlib takes 0.5 s

            plot(runs, "compare", out)
    elif len(what) > 1:
        raise ScenarioError("compare one scenario, or runs", file=str(what[-1]))
    elif systems:
        of, rows = emu.load(what[0], overrides or []), split_words(systems)
        target, form = Target.parse(to, within) if to else None, form_of(form, out, to)
        how: Any = {"same": same_machines, "target": target, "confirm": confirm}
        results = compare_rows(of, rows, seeds, **how)
        show_systems(of, results, to, write, json_target)
        write_systems(of, results, to, form, out, open_it=open_it)
        # Of all systems some cannot be: their rows say so, and the others stand.
        judge_rows(of, [r for r in results if "all" not in rows or not r.refused])
    else:
        placed = emu.place(emu.load(what[0], overrides or []))
        candidates = emu.compare(
            placed,
            placements=split_words(placements),
            policies=split_words(policies),
            moves=[_pair(text, "=", "--move TASK=MACHINE") for text in move or ()],
            swaps=[_pair(text, ",", "--swap TASK,TASK") for text in swap or ()],
            seeds=seeds,
            keep_placement=keep_placement,
            jobs=jobs,
        )
        of = placed.scenario
        if emit(json_target, rows_json(of, candidates, candidates[0], write)):
            job = job_line(placed.problem.job, "", of.job.credit_window, of.pins)
            terminal().print(*comparison_tables(candidates, job))
            print_placing(placed.placing, terminal())
        judge_rows(of, candidates)


def _pair(text: str, sign: str, right: str) -> tuple[str, str]:
    """Return the two names of an option."""
    names = [part.strip() for part in text.split(sign)]
    if len(names) != 2 or not all(names):
        option = right.split(maxsplit=1)[0]
        raise ScenarioError(f"write {right}", file=f"{option} {text}")
    return names[0], names[1]
