"""``emu compare``: placements, rules, systems or recorded runs side by side."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.table import Table

import emu
from emu.cli import options
from emu.cli.app import app, argument, option
from emu.cli.options import JsonTarget, Overrides, emit, judge_simulated, split_words
from emu.cli.report_commands import OF_FIGURES, Form, say_missing
from emu.cli.signs_of_life import note_stage
from emu.emulation.launch.host_report import usable_cores
from emu.errors import EmulatorError, ScenarioError
from emu.experiment.expectations import list_unchecked
from emu.experiment.system_rows import compare_systems
from emu.experiment.systems import WITHIN, Target, write_rows
from emu.host.files import write_atomic
from emu.report import explanation_tables as words
from emu.report import system_tables
from emu.report.comparison import Candidate, comparison_tables, reason
from emu.report.many_runs import runs_json, runs_table
from emu.report.measurement import measurement_table, read_measurement
from emu.report.system_tables import Confirmation, SystemResult
from emu.report.terminal import terminal
from emu.runs.result import Result
from emu.scenario import Scenario
from emu.scenario.run_sections import AUTO
from emu.training.looks import HELD

As: TypeAlias = Annotated[
    Form | None,
    option(
        "--as html|csv|svg|pdf|png", "With --systems: a page, a table, curves.", ...
    ),
]


@app.command()
def compare(
    what: list[Path] = argument("FILE|RUN...", "A scenario, or run directories."),
    overrides: Overrides = None,
    policies: str = option(
        "A,B", "Rate policies, or all; default: the scenario's.", ""
    ),
    placements: str = option("A,B", "Placements; default: the scenario's.", ""),
    move: list[str] | None = option("TASK=MACHINE", "Show it with this task moved."),
    swap: list[str] | None = option("TASK,TASK", "Show it with these tasks swapped."),
    seeds: int = option(
        "N", "Scenario only: its seed and those that follow it.", 1, min=1
    ),
    systems: str = option(
        "A,B", "Scenario only: all, or rows such as dgtp,p3.none,dgcl.", ""
    ),
    to: str = option("accuracy=0.88", "With --systems: time to that accuracy.", ""),
    within: int = option(
        "EPOCHS", "With --to: passes over the training set.", WITHIN, min=HELD
    ),
    write: Path | None = option("DIR", "Write each row as a scenario."),
    json_target: JsonTarget = None,
    form: As = None,
    out: Path | None = option(
        "FILE", "Runs: a picture, .svg, .pdf or .png. Systems: that of --as."
    ),
    confirm: int = option("N", "With --to: run the best N over sockets.", 0, min=0),
    *,
    open_it: bool = option("--open", "Open what --as writes in the browser."),
    keep_placement: bool = option(
        "--keep-placement", "Place by the scenario's policy alone."
    ),
    same_machines: bool = option(
        "--same-machines", "With --systems: on those of the first."
    ),
    jobs: options.Jobs = 0,
) -> None:
    """Compare placements and policies, or recorded runs.

    Placements and rate policies of a scenario are compared by simulation, beside the
    scenario as it is, each placed under its own policy. Differences are taken seed by
    seed against the first row; one within its own 95 % interval is a tie. Runs that
    differ by their seed only make one row; beside runs stands what was measured
    elsewhere, a .csv of iteration,seconds or link,bytes. With systems it is shown as
    each of them, with as many seeds per iteration and what is added to the file or
    dropped from it; nothing else is varied. Where the file states no machines
    (job.machines), each system is on those on which it is fastest. With --to all train
    until three looks in a row hold an accuracy, an epoch apart, and rows are the times
    that this takes.

    Raises
    ------
    ExpectationMissed
        When a row missed an ``expect:``; a single value is of the first row alone, or
        of the system that the file states.
    """
    if to and not systems:
        raise ScenarioError("write --systems all as well", file=f"--to {to}")
    if what[0].is_dir() and all(p.is_dir() or p.suffix == ".csv" for p in what):
        _compare_runs(what, json_target, out)
    elif len(what) > 1:
        raise ScenarioError("compare one scenario, or runs", file=str(what[-1]))
    elif systems:
        of, rows = emu.load(what[0], overrides or []), split_words(systems)
        target, form = Target.parse(to, within) if to else None, form_of(form, out, to)
        how: Any = {"same": same_machines, "target": target, "confirm": confirm}
        how["cores"] = jobs or usable_cores()
        results = compare_rows(of, rows, seeds, **how)
        show_systems(of, results, to, write, json_target)
        write_systems(of, results, to, form, out, open_it=open_it)
        # Of all systems some cannot be: their rows say so, and the others stand.
        judge_rows(of, [r for r in results if "all" not in rows or not r.refused])
    else:
        base = emu.place(emu.load(what[0], overrides or []))
        candidates = emu.compare(
            base,
            placements=split_words(placements),
            policies=split_words(policies),
            moves=[_pair(text, "=", "--move TASK=MACHINE") for text in move or ()],
            swaps=[_pair(text, ",", "--swap TASK,TASK") for text in swap or ()],
            seeds=seeds,
            keep_placement=keep_placement,
            jobs=jobs,
        )
        of = base.scenario
        if emit(json_target, rows_json(of, candidates, candidates[0], write)):
            job = words.job_line(base.problem.job, "", of.job.credit_window, of.pins)
            terminal().print(*comparison_tables(candidates, job))
            words.print_placing(base.placing, terminal())
        judge_rows(of, candidates)


def _compare_runs(
    what: Sequence[Path], json_target: JsonTarget, out: Path | None
) -> None:
    """Show recorded runs, and beside them what was measured elsewhere."""
    runs = [emu.load_run(path) for path in what if path.is_dir()]
    others = [read_measurement(path) for path in what if not path.is_dir()]
    say_missing(*runs)
    apart = [{"name": one.path.name, "rows": [*one.rows(runs)]} for one in others]
    if emit(json_target, [*runs_json(runs), *apart]):
        tables = (measurement_table(one, runs) for one in others)
        terminal().print(runs_table(runs), *tables)
    if out is not None:
        from emu.report.plots import plot  # noqa: PLC0415 - matplotlib takes 0.5 s

        plot(runs, "compare", out)


def _pair(text: str, sign: str, right: str) -> tuple[str, str]:
    """Return the two names of an option."""
    one, _, other = (part.strip() for part in text.partition(sign))
    if not (one and other) or sign in other:
        option = right.split(maxsplit=1)[0]
        raise ScenarioError(f"write {right}", file=f"{option} {text}")
    return one, other


def form_of(form: Form | None, out: Path | None, to: str) -> Form | None:
    """Return the form of what is written, by the file where it is not stated.

    Raises ScenarioError when there is no such form, or the other options lack its
    contents.
    """
    forms = [one for one in Form if one is not Form.TRACE]  # which is of one run
    if form is None and out is not None:
        suffix = out.suffix.removeprefix(".")
        form = next((one for one in forms if one == suffix), Form.TRACE)
    if form is Form.TRACE:
        raise ScenarioError(f"write --as {'|'.join(forms)}", file=f"--out {out}")
    if form in OF_FIGURES and not to:
        problem = "draws accuracy over time: write --to accuracy=0.88, say, as well"
        raise ScenarioError(problem, file=f"--as {form}")
    return form


def compare_rows(
    scenario: Scenario,
    rows: Sequence[str],
    seeds: int,
    *,
    same: bool,
    target: Target | None,
    confirm: int,
    cores: int,
) -> list[SystemResult]:
    """Return the rows of a table, and say meanwhile how far it is."""
    if confirm and target is None:
        problem = "write --to accuracy=0.88, say, as well"
        raise ScenarioError(problem, file=f"--confirm {confirm}")
    console = terminal(sys.stderr)
    with console.status("comparing systems") as status:

        def say(text: str) -> None:
            note_stage(text)
            status.update(f"comparing systems: {text}")

        def warn(name: str, error: EmulatorError) -> None:
            console.print(f"{name}: {reason(error)}")

        results = compare_systems(
            scenario,
            rows,
            seeds,
            same_machines=same,
            target=target,
            watch=say,
            warn=warn,
            cores=cores if target else 1,  # a process takes 3 s to start
        )
        best = [one.system for one in system_tables.rank(results)[:confirm]]
        for number, name in enumerate(best, 1):
            say(f"over sockets: {name}, {number} of {len(best)}")
            try:
                results = [_confirm(r) if r.system == name else r for r in results]
            except EmulatorError as error:  # the table stands without
                console.print(f"{name} could not be run: {reason(error)}")
    return results


def _confirm(row: SystemResult) -> SystemResult:
    """Return a row with its run over sockets, of the first seed."""
    scenario = next(iter(row.scenarios.values()))
    if "time_scale" not in scenario.emulation.model_fields_set:
        emulation = scenario.emulation.model_copy(update={"time_scale": AUTO})
        scenario = scenario.model_copy(update={"emulation": emulation})
    scenario = scenario.model_copy(update={"name": f"{scenario.name}-{row.system}"})
    run = emu.run(scenario)
    content = run.result
    figures = content["makespan"], content["makespan_error"]
    text = content["verdict"]["trust"], content["prediction"]["outcome"]
    return replace(row, run=Confirmation(str(run.path), *figures, *text))


def rows_json(
    scenario: Scenario, rows: Sequence[Any], first: Any, folder: Path | None
) -> list[Result]:
    """Return the rows of a comparison, written into a folder if one is named."""
    content = [row.to_json(first) for row in rows]
    if folder is not None:
        pairs = [(row.name, row.scenarios) for row in rows]
        files = write_rows(folder, scenario.name, pairs)
        for row, own in zip(content, files, strict=True):
            row["files"] = own
        typer.echo(f"written to {folder}: every row, for emu simulate", err=True)
    return content


def judge_rows(scenario: Scenario, rows: Sequence[Candidate | SystemResult]) -> None:
    """Raise where a row was refused, or missed what the scenario expects."""
    lines = []
    for row in rows:
        if row.refused:
            raise row.refused
        if row.missed:
            lines.append(f"{row.name}: {'; '.join(dict.fromkeys(row.missed))}")
    judge_simulated(list_unchecked(scenario.expect), lines)


def show_systems(
    scenario: Scenario,
    results: Sequence[SystemResult],
    to: str,
    write: Path | None,
    json_target: str | None,
) -> None:
    """Print the tables of all rows, what each has otherwise, and which is first."""
    first = next(result for result in results if not result.refused)
    if not emit(json_target, rows_json(scenario, results, first, write)):
        return
    tables, lines = _tables_and_lines(results, to)
    for table in tables:
        terminal().print(table)
    terminal().print(*chain(*map(system_tables.edit_lines, results), lines), sep="\n")
    words.warn_unclaimed({r.system: r.placing for r in results if r.placing})


def _tables_and_lines(
    results: Sequence[SystemResult], to: str
) -> tuple[list[Table], list[str]]:
    limits = system_tables.limits_table(results)
    if not to:
        lines = [system_tables.ranking(results)]
        return [system_tables.systems_table(results), limits], lines
    tables = [system_tables.target_table(results, to), limits]
    tables += system_tables.runs_of_rows(results)
    return tables, [*system_tables.target_lines(results)]


def write_systems(
    scenario: Scenario,
    results: Sequence[SystemResult],
    to: str,
    form: Form | None,
    out: Path | None,
    *,
    open_it: bool = False,
) -> None:
    """Write a table of systems as a page, a table, or curves; open it where asked to.

    Raises DataError when it cannot be written.
    """
    if form is None:
        return
    path = out or Path(f"{scenario.name}-systems.{form}")
    if form is Form.HTML:
        content = _tables_and_lines(results, to)
        write_atomic(path, system_tables.systems_page(scenario.name, results, *content))
    elif form is Form.CSV:
        write_atomic(path, system_tables.systems_csv(results))
    else:
        from emu.report.plot_curves import accuracy_figure  # noqa: PLC0415
        from emu.report.plot_style import save, style  # noqa: PLC0415

        target = Target.parse(to).accuracy
        with style(dark=False):
            save(accuracy_figure(system_tables.curves_of(results), target), path)
    typer.echo(f"written to {path}", err=True)
    if open_it:
        webbrowser.open(path.resolve().as_uri())
