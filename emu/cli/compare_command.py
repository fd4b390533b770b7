"""``emu compare``: placements, rules, systems or recorded runs side by side."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.table import Table

import emu
from emu.cli import options
from emu.cli.app import app, argument, option
from emu.cli.compare_options import Compared, check_options
from emu.cli.confirmation import confirm_row
from emu.cli.options import JsonTarget, Overrides, emit, judge_simulated, split_words
from emu.cli.progress import status_line
from emu.cli.repeat_runs import Plan, read_plan
from emu.cli.report_commands import OF_FIGURES, Form, say_missing
from emu.emulation.launch.host_report import usable_cores
from emu.errors import EmulatorError, ScenarioError
from emu.experiment.expectations import list_unchecked
from emu.experiment.premises import premise_line
from emu.experiment.question import Answer
from emu.experiment.refusal import reason
from emu.experiment.system_rows import compare_systems
from emu.experiment.systems import WITHIN, Target, write_rows
from emu.experiment.variants import Candidate
from emu.host.files import check_folder, check_writable, write_atomic
from emu.interchange.measurement import TimeUnit, read_measurement
from emu.prediction.placement_policies import PLACEMENT_POLICIES
from emu.problem.fields.suggestion import nearest
from emu.report import explanation_tables as words
from emu.report import system_tables, target_tables
from emu.report.comparison import candidate_json, comparison_tables
from emu.report.many_runs import runs_json, runs_table
from emu.report.measured_rows import measurement_rows, measurement_tables
from emu.report.terminal import terminal
from emu.report.work_table import work_table
from emu.runs.result import Result
from emu.scenario import Experiment, Scenario
from emu.training.looks import HELD

#: Form in which the table of systems is written.
As: TypeAlias = Annotated[
    Form | None,
    option(
        "--as html|csv|svg|pdf|png", "With --systems: a page, a table, curves.", ...
    ),
]


@app.command()
def compare(
    context: typer.Context,
    what: list[Path] = argument("FILE|RUN...", "A scenario, or run directories."),
    overrides: Overrides = None,
    policies: str = option(
        "A,B", "Rate policies, or all; default: the scenario's.", ""
    ),
    placements: str = option("A,B", "Placements, or all; default: the scenario's.", ""),
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
    write: Path | None = option("DIR", "Write each row as a scenario.", is_eager=True),
    json_target: JsonTarget = None,
    form: As = None,
    out: Path | None = option(
        "FILE", "Runs: a picture, .svg, .pdf or .png. Systems: that of --as."
    ),
    confirm: int = option("N", "With --to: run the best N over sockets.", 0, min=0),
    repeat: str = option("N|auto", "With --confirm: run each so often.", "1"),
    explain: str = option(
        "SYSTEM", "Show its counts by rates, and what overlaps what.", ""
    ),
    skip: int | None = option(
        "N", "Runs: iterations in front of a .csv to leave out.", None, min=0
    ),
    unit: TimeUnit | None = option("s|ms|us", "Runs: of the times of a .csv.", None),
    *,
    open_it: bool = option("--open", "Open what --as writes in the browser."),
    keep_placement: bool = option(
        "--keep-placement", "Place by the scenario's policy alone."
    ),
    same_machines: bool = option(
        "--same-machines", "With --systems: on those of the first."
    ),
    keep_rate: bool = option(
        "--keep-lr", "With --to: at the file's learning rate, without a grid of others."
    ),
    count_looks: bool = option(
        "--count-looks", "With --to: training waits for each look at the accuracy."
    ),
    jobs: options.Jobs = 0,
) -> None:
    """Compare placements and policies, or recorded runs.

    Placements and rate policies of a scenario are compared by simulation, beside the
    scenario as it is, each placed under its own policy. Differences are taken seed by
    seed against the first row; one within its own 95 % interval is a tie. Runs that
    differ by their seed only make one row; beside runs stands what was measured
    elsewhere, a .csv of iteration,seconds or link,bytes: iterations by their
    distribution, and by how far they drift apart along the run. With systems it is
    shown as each of them, with as many seeds per iteration and what is added to the
    file or dropped from it; nothing else is varied. Where the file states no machines
    (job.machines), each system is on those on which it is fastest. With --to all train
    until three looks in a row hold an accuracy, an epoch apart, and rows are the times
    that this takes, each at the best learning rate of a small grid around the file's.

    Raises
    ------
    ExpectationMissed
        When a row missed an ``expect:``; a single value is of the first row alone, or
        of the system that the file states.
    """
    # To work a row by hand no other is needed.
    systems = systems or explain
    _check_times(what, skip, unit)
    compared = _find_kind(what, systems)
    check_options(compared, options.stated_options(context))
    _check_written(write)

    if compared is Compared.RUNS:
        _compare_runs(what, json_target, out, skip, unit)
    elif compared is Compared.SYSTEMS:
        scenario = emu.load(what[0], overrides or [])
        rows = split_words(systems)
        form = form_of(form, out, to, write)
        results = compare_rows(
            scenario,
            rows,
            seeds,
            same=same_machines,
            target=_target_of(to, within, count_looks=count_looks),
            keep_rate=keep_rate,
            confirm=confirm,
            plan=read_plan(repeat),
            cores=jobs or usable_cores(),
        )
        show_systems(scenario, results, to, write, json_target, explain=explain)
        write_systems(scenario, results, to, form, out, open_it=open_it)
        # Of all systems some cannot be: their rows say so, and the others stand.
        judged_rows = [row for row in results if "all" not in rows or not row.refused]
        _judge_rows(scenario, [(row.system, row) for row in judged_rows])
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
        _show_variants(base, candidates, write, json_target)
        _judge_rows(base.scenario, _list_judged(candidates, placements))


def _check_written(folder: Path | None) -> None:
    """Raise DataError where rows are to be written, and cannot be, to a folder."""
    if folder is not None:
        check_folder(folder)


def _find_kind(paths: Sequence[Path], systems: str) -> Compared:
    """Return the kind of what is compared; raise ScenarioError where it is of two."""
    first_path, *more_paths = paths
    if first_path.is_dir() and all(map(_is_measured, more_paths)):
        return Compared.RUNS

    if more_paths:
        raise ScenarioError("compare one scenario, or runs", file=str(more_paths[-1]))
    return Compared.SYSTEMS if systems else Compared.VARIANTS


def _is_measured(path: Path) -> bool:
    """Return True for a run directory, and for what was measured elsewhere."""
    return path.is_dir() or path.suffix == ".csv"


def _target_of(to: str, within: int, *, count_looks: bool) -> Target | None:
    """Return the target of the options; raise ScenarioError where one needs another."""
    if to:
        target = Target.parse(to, within)
        return replace(target, counts_looks=count_looks)
    if count_looks:
        raise ScenarioError("write --to accuracy=0.88 as well", file="--count-looks")
    return None


def _show_variants(
    base: Experiment,
    candidates: Sequence[Candidate],
    write: Path | None,
    json_target: JsonTarget,
) -> None:
    """Print premises and tables of variants, and write their scenarios."""
    scenario = base.scenario
    first = candidates[0]
    content = [candidate_json(row, first) for row in candidates]
    write_files(
        folder=write,
        name=scenario.name,
        rows=[(row.name, row.scenarios) for row in candidates],
        content=content,
    )
    if not emit(json_target, content):
        return

    premises = [row.answer.premises for row in candidates if not row.refused]
    console = terminal()
    console.print(premise_line(premises))
    job = words.job_line(
        base.problem.job,
        window=scenario.job.credit_window,
        pins=scenario.pins,
    )
    tables = comparison_tables(candidates, job)
    console.print(*tables)
    words.print_placing(base.placing, console)


def _check_times(
    files: Sequence[Path], skip: int | None, unit: TimeUnit | None
) -> None:
    """Raise ScenarioError where options are of times, and none were measured."""
    if any(path.suffix == ".csv" for path in files):
        return
    problem = "is of iterations measured elsewhere: write RUN times.csv"
    if skip is not None:
        raise ScenarioError(problem, file=f"--skip {skip}")
    if unit is not None:
        raise ScenarioError(problem, file=f"--unit {unit}")


def _compare_runs(
    paths: Sequence[Path],
    json_target: JsonTarget,
    out: Path | None,
    skip: int | None,
    unit: TimeUnit | None,
) -> None:
    """Show recorded runs, and beside them what was measured elsewhere."""
    from emu.interchange.known_formats import check_command  # noqa: PLC0415 - seldom
    from emu.interchange.recognise import COMPARE  # noqa: PLC0415 - seldom used

    _check_apart(paths)
    if out is not None:
        check_writable(out)
    for path in paths:
        if not path.is_dir():
            check_command(path, COMPARE)
    runs = [emu.load_run(path) for path in paths if path.is_dir()]
    files = [path for path in paths if not path.is_dir()]
    measurements = [read_measurement(path, skip, unit) for path in files]
    times = [found.path for found in measurements if found.unit == "seconds"]
    _check_times(times, skip, unit)
    say_missing(*runs)
    content = [*runs_json(runs)]
    for measurement in measurements:
        row = {
            "name": measurement.path.name,
            "rows": [*measurement_rows(measurement, runs)],
        }
        content.append(row)
    if emit(json_target, content):
        tables = [runs_table(runs)]
        for measurement in measurements:
            tables += measurement_tables(measurement, runs)
        terminal().print(*tables)
    if out is not None:
        from emu.report.plots import plot  # noqa: PLC0415 - matplotlib takes 0.5 s

        plot(runs, "compare", out)


def _check_apart(paths: Sequence[Path]) -> None:
    """Raise ScenarioError where one run or file is named twice: it is one draw."""
    seen = set()
    for path in paths:
        place = path.resolve()
        if place in seen:
            problem = "is named twice, and one run does not repeat itself: name it once"
            raise ScenarioError(problem, file=str(path))
        seen.add(place)


def _pair(text: str, sign: str, right: str) -> tuple[str, str]:
    """Return the two names of an option."""
    parts = [part.strip() for part in text.partition(sign)]
    first, _, second = parts
    # A third name would be part of the second one otherwise.
    if not (first and second) or sign in second:
        option, *_ = right.split(maxsplit=1)
        raise ScenarioError(f"write {right}", file=f"{option} {text}")
    return first, second


def form_of(
    form: Form | None, out: Path | None, to: str, write: Path | None = None
) -> Form | None:
    """Return the form of what is written, by the file where it is not stated.

    Raises ScenarioError when there is no such form, or the other options lack its
    contents.
    """
    forms = [kind for kind in Form if kind is not Form.TRACE]  # which is of one run
    if form is None and out is not None:
        suffix = out.suffix.removeprefix(".")
        # The one form that no table has stands for every ending that is unknown.
        form = Form(suffix) if suffix in forms else Form.TRACE
    if form is Form.TRACE:
        raise ScenarioError(f"write --as {'|'.join(forms)}", file=f"--out {out}")

    if out is not None:
        check_writable(out, write)
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
    keep_rate: bool,
    confirm: int,
    plan: Plan | None,
    cores: int,
) -> list[Answer]:
    """Return the rows of a table, and say meanwhile how far it is."""
    if confirm and target is None:
        problem = "write --to accuracy=0.88, say, as well"
        raise ScenarioError(problem, file=f"--confirm {confirm}")
    if plan is not None and not confirm:
        raise ScenarioError("is of runs: write --confirm N as well", file="--repeat")
    console = terminal(sys.stderr)

    def warn(name: str, error: EmulatorError) -> None:
        console.print(f"{name}: {reason(error)}")

    with status_line("comparing systems", "comparing systems: ", console) as say:
        results = compare_systems(
            scenario,
            rows,
            seeds,
            same_machines=same,
            target=target,
            keep_rate=keep_rate,
            watch=say,
            warn=warn,
            cores=cores if target else 1,  # a process takes 3 s to start
        )
        ranking = system_tables.rank(results)
        best = [row.system for row in ranking[:confirm]]
        for number, name in enumerate(best, 1):
            say(f"over sockets: {name}, {number} of {len(best)}")
            try:
                # Each run replaces its row at once, so that a later failure loses none.
                results = [
                    confirm_row(row, row.system, plan) if row.system == name else row
                    for row in results
                ]
            except EmulatorError as error:  # the table stands without
                console.print(f"{name} could not be run: {reason(error)}")
    return results


def write_files(
    folder: Path | None,
    name: str,
    rows: Sequence[tuple[str, Mapping[int, Scenario]]],
    content: Sequence[Result],
) -> None:
    """Write the rows of a comparison into a folder; their JSON names the files."""
    if folder is None:
        return
    # Written before the JSON is, which names the files.
    files = write_rows(folder, name, rows)
    for row, names in zip(content, files, strict=True):
        row["files"] = names
    typer.echo(f"written to {folder}: every row, for emu simulate", err=True)


def _list_judged(
    rows: Iterable[Candidate], placements: str
) -> Iterator[tuple[str, Answer]]:
    """Yield rows with their names, but of all placements none that cannot be."""
    spared: Collection[str] = ()
    names = split_words(placements)
    if names == ["all"]:
        spared = PLACEMENT_POLICIES
    for row in rows:
        if row.refused and row.placement in spared:
            continue
        yield row.name, row.answer


def _judge_rows(scenario: Scenario, rows: Iterable[tuple[str, Answer]]) -> None:
    """Raise where a row was refused, or missed what the scenario expects."""
    lines = []
    for name, row in rows:
        # A row that was asked for by its name, and refused, ends the command.
        row.checked()
        if row.missed:
            different = dict.fromkeys(row.missed)
            lines.append(f"{name}: {'; '.join(different)}")
    unchecked = list_unchecked(scenario.expect)
    judge_simulated(unchecked, lines)


def show_systems(
    scenario: Scenario,
    results: Sequence[Answer],
    to: str,
    write: Path | None,
    json_target: str | None,
    *,
    explain: str = "",
) -> None:
    """Print the premises and tables of all rows, what each has otherwise, the first.

    Raises ScenarioError when no row is called as the one to ``explain``.
    """
    content = system_tables.answers_json(results)
    explained = [row for row in results if row.system == explain]
    if explain and not explained:
        names = [row.system for row in results]
        problem = f"no such row, {nearest(explain, names)}"
        raise ScenarioError(problem, file=f"--explain {explain}")
    for row in explained:
        position = results.index(row)
        content[position]["work"] = [asdict(work) for work in row.work]
    write_files(
        folder=write,
        name=scenario.name,
        rows=[(row.system, row.scenarios) for row in results],
        content=content,
    )
    if not emit(json_target, content):
        return

    tables, lines = _tables_and_lines(results, to)
    tables += [work_table(row) for row in explained]
    # On the terminal premises come before the tables they hold for.
    premises, *sentences = lines
    edits: list[str] = []
    for row in results:
        edits += system_tables.edit_lines(row)
    console = terminal()
    console.print(premises, *tables, *edits, *sentences, sep="\n")

    placings = {}
    for row in results:
        if row.placing:
            placings[row.system] = row.placing
    words.warn_unclaimed(placings)


def _tables_and_lines(
    results: Sequence[Answer], to: str
) -> tuple[list[Table], list[str]]:
    """Return the tables, and lines: the premises first."""
    premises = [row.premises for row in results if not row.refused]
    lines = [premise_line(premises)]
    limits = system_tables.limits_table(results)
    if not to:
        table = system_tables.systems_table(results)
        lines += system_tables.ranking(results)
        return [table, limits], lines
    table = target_tables.target_table(results, to)
    tables = [table, limits, *system_tables.runs_of_rows(results)]
    lines += target_tables.target_lines(results)
    return tables, lines


def write_systems(
    scenario: Scenario,
    results: Sequence[Answer],
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
        tables, lines = _tables_and_lines(results, to)
        accuracy_and_split = None
        if to:
            target = Target.parse(to)
            accuracy_and_split = (target.accuracy, target.split)
        page = system_tables.systems_page(
            scenario.name,
            results,
            tables,
            lines,
            target=accuracy_and_split,
        )
        write_atomic(path, page)
    elif form is Form.CSV:
        table = system_tables.systems_csv(results)
        write_atomic(path, table)
    else:
        from emu.report.plot_curves import accuracy_figure  # noqa: PLC0415
        from emu.report.plot_style import save, style  # noqa: PLC0415

        target = Target.parse(to)
        curves = system_tables.curves_of(results)
        with style(dark=False):
            figure = accuracy_figure(curves, target.accuracy)
            save(figure, path)
    typer.echo(f"written to {path}", err=True)
    if open_it:
        # Only an absolute path has a URI.
        address = path.resolve().as_uri()
        webbrowser.open(address)
