"""``emu compare --systems``: rows, their tables, files, and runs that confirm them."""

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
from emu.cli.app import option
from emu.cli.options import emit, judge_simulated
from emu.cli.report_commands import OF_FIGURES, Form
from emu.cli.signs_of_life import note_stage
from emu.emulation.launch.host_report import usable_cores
from emu.errors import EmulatorError, ScenarioError
from emu.experiment.expectations import list_unchecked
from emu.experiment.system_rows import compare_systems
from emu.experiment.systems import Target, write_rows
from emu.host.files import write_atomic
from emu.report.comparison import Candidate, reason
from emu.report.explanation_tables import warn_unclaimed
from emu.report.system_tables import (
    Confirmation,
    SystemResult,
    edit_lines,
    limits_table,
    rank,
    ranking,
    runs_of_rows,
    systems_csv,
    systems_table,
    target_lines,
    target_table,
)
from emu.report.terminal import terminal
from emu.runs.result import Result
from emu.scenario import Scenario
from emu.scenario.run_sections import AUTO

As: TypeAlias = Annotated[
    Form | None,
    option("--as html|csv|svg|pdf|png", "With --systems: a page, a table, curves."),
]
Confirm: TypeAlias = Annotated[
    int, option("--confirm N", "With --to: run the best N over sockets.", min=0)
]
Open: TypeAlias = Annotated[
    bool, option("--open", "Open what --as writes in the browser.")
]


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
            cores=usable_cores() if target else 1,  # a process takes 3 s to start
        )
        best = [one.system for one in rank(results)[:confirm]]
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
    text = content["verdict"]["trust"], content["prediction"]["outcome"]
    error = content["makespan_error"]
    return replace(
        row, run=Confirmation(str(run.path), content["makespan"], error, *text)
    )


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
    for row in rows:
        if row.refused:
            raise row.refused
    lines = [
        f"{r.name}: {'; '.join(dict.fromkeys(r.missed))}" for r in rows if r.missed
    ]
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
    terminal().print(*chain(*map(edit_lines, results), lines), sep="\n")
    warn_unclaimed({r.system: r.placing for r in results if r.placing})


def _tables_and_lines(
    results: Sequence[SystemResult], to: str
) -> tuple[list[Table], list[str]]:
    if not to:
        return [systems_table(results), limits_table(results)], [ranking(results)]
    tables = [target_table(results, to), limits_table(results)]
    return [*tables, *runs_of_rows(results)], [*target_lines(results)]


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
    # matplotlib, and what the page imports, take half a second.
    from emu.report.systems_page import curves_of, systems_page  # noqa: PLC0415

    if form is Form.HTML:
        tables, lines = _tables_and_lines(results, to)
        write_atomic(path, systems_page(scenario.name, results, tables, lines))
    elif form is Form.CSV:
        write_atomic(path, systems_csv(results))
    else:
        from emu.report.plot_curves import accuracy_figure  # noqa: PLC0415
        from emu.report.plot_style import save, style  # noqa: PLC0415

        target = Target.parse(to).accuracy
        with style(dark=False):
            save(accuracy_figure(curves_of(results), target), path)
    typer.echo(f"written to {path}", err=True)
    if open_it:
        webbrowser.open(path.resolve().as_uri())
