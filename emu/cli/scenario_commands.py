"""Commands around scenario files, documents and graphs.

A name of which there is nothing is a ScenarioError, of data a DataError; so is a file
that is there already, and one that cannot be read or whose parts do not fit together.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import Progress, TaskID

from emu.cli.app import app, argument, option
from emu.cli.options import JsonTarget, Overrides, emit, seconds, split_words
from emu.errors import DataError, ScenarioError
from emu.host.files import write_atomic
from emu.lab.setup import find_lab_errors, lab_notes
from emu.names import file_part
from emu.problem.fields.suggestion import nearest
from emu.report.terminal import plain_table, terminal
from emu.scenario import Scenario, find_errors, load, scenario_file
from emu.scenario.document import MOST_VALUES
from emu.scenario.own_rules import is_program
from emu.scenario.realize import model_programs
from emu.scenario.schema import file_schema
from emu.systems.job_section import MOST_EDGES, TRANSLATED
from emu.systems.system import systems
from emu.units import RATE, format_count

if TYPE_CHECKING:
    from emu.interchange.workload import Workload

#: File beside a copied scenario, from which its editor knows keys and values.
_SCHEMA = "emu.schema.json"
#: NIC of every machine of a trace that states none, where no other is asked for.
_NIC = "10 Gbit/s"


@app.command()
def init(
    name: str = argument("NAME", "Of the scenario; default: golden.", "golden"),
    out: Path | None = option(
        "FILE", "To write; default: NAME.yaml, folder NAME of a lab."
    ),
) -> None:
    """Copy a shipped scenario or lab into this directory, to edit.

    It also runs without a copy, by its name: emu simulate golden, emu lab all_reduce.
    Beside a scenario emu.schema.json tells editors its keys.
    """
    scenarios = scenario_file.list_scenarios()
    labs = scenario_file.list_labs()
    names = scenarios | labs
    if name not in names:
        is_system = name in systems()
        problem = f"a system; {TRANSLATED}" if is_system else nearest(name, names)
        raise ScenarioError(problem, file=f"no scenario {name!r}")
    target = out or Path(name if name in labs else f"{name}.yaml")
    if target.exists():
        raise ScenarioError("is there already; choose another --out", file=str(target))
    if name in labs:
        _copy_lab(labs[name].parent, target)
        return

    text = names[name].read_text(encoding="utf-8")
    # The schema lies beside the file, so that editors find it without a network.
    write_atomic(target, f"# yaml-language-server: $schema={_SCHEMA}\n{text}")
    schema = json.dumps(file_schema(), indent=1)
    write_atomic(target.parent / _SCHEMA, schema + "\n")
    for model in model_programs(load(names[name])):
        # A model that is a program is named by a path beside the scenario.
        file, _, _ = model.program.rpartition(":")
        program = Path(file)
        copy = target.parent / program.relative_to(names[name].parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        # A program that is there may have been edited.
        if not copy.exists():
            write_atomic(copy, program.read_text(encoding="utf-8"))
    path = shlex.quote(str(target))
    typer.echo(f"written to {target}; next: emu simulate {path}")


def _copy_lab(folder: Path, target: Path) -> None:
    ignore = shutil.ignore_patterns("__pycache__")
    try:
        shutil.copytree(folder, target, ignore=ignore)
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        raise ScenarioError(problem, file=str(target)) from error
    path = shlex.quote(f"{target}/{scenario_file.LAB}")
    typer.echo(f"written to {target}/; next: emu lab {path}")


@app.command()
def validate(
    files: list[Path] = argument("FILE...", "Scenarios and labs."),
    overrides: Overrides = None,
    json_target: JsonTarget = None,
) -> None:
    """Check scenario and lab files; print every error in them.

    An error names the file, the line, the key, and what would be right. Of code of
    others it looks at the text alone; a line says which simulating would run.
    """
    changes = overrides or []
    errors = {str(file): _find_errors(file, changes) for file in files}
    report = {
        file: [
            {
                "file": error.file,
                "line": error.line,
                "key": error.key,
                "problem": error.problem,
            }
            for error in errors_of_file
        ]
        for file, errors_of_file in errors.items()
    }
    if emit(json_target, report):
        for file in files:
            if not errors[str(file)]:
                _say_good(file, changes)

    problems = [error for file_errors in errors.values() for error in file_errors]
    for problem in problems:
        typer.echo(f"emu: {problem}", err=True)
    if problems:
        # All errors have been printed: the exit code alone is left to say.
        raise typer.Exit(ScenarioError.exit_code)


def _find_errors(file: Path, overrides: list[str]) -> list[ScenarioError]:
    try:
        if scenario_file.is_lab(file, overrides):
            return find_lab_errors(file, overrides)
        return find_errors(file, overrides)
    except ScenarioError as error:
        return [error]


def _say_good(file: Path, overrides: list[str]) -> None:
    typer.echo(f"{file}: good")
    # A lab is code of others itself.
    if scenario_file.is_lab(file, overrides):
        notes = lab_notes(scenario_file.load_lab(file, overrides))
    else:
        notes = _notes(load(file, overrides))
    for note in notes:
        typer.echo(f"{file}: {note}", err=True)


def _notes(scenario: Scenario) -> Iterator[str]:
    """Yield what a good scenario means, and whose code simulating it would run."""
    yield from scenario.cluster.remarks()
    programs = [model.program for model in model_programs(scenario)]
    if is_program(rule := scenario.schedule.policy):
        programs.insert(0, rule)
    for program in programs:
        yield f"code of others, not run: {program}"


@app.command()
def schema() -> None:
    """Print the JSON Schema of scenario and lab files, for editors."""
    typer.echo(json.dumps(file_schema(), indent=2))


@app.command()
def docs(
    name: str = argument("[NAME]", "Of the document; default: a list.", ""),
) -> None:
    """Show a document of emu, or list them."""
    documents = scenario_file.list_documents()
    if not name:
        width = max(map(len, documents)) + 2
        for title, path in documents.items():
            heading = path.read_text(encoding="utf-8").split("\n", 1)[0]
            typer.echo(f"{title:{width}}{heading.removeprefix('# ')}")
        return
    if name not in documents:
        raise ScenarioError(nearest(name, documents), file=f"no document {name!r}")
    text = documents[name].read_text(encoding="utf-8")
    console = terminal()
    # Drawn for eyes; whatever reads a pipe gets the Markdown itself.
    console.print(Markdown(text)) if console.is_terminal else typer.echo(text)


#: Content of the arrays that state a split.
SplitContent = StrEnum("SplitContent", "MASKS IDS")
#: Part that keeps a vertex of several.
Overlap = StrEnum("Overlap", "FIRST LAST")
#: Order of the rows of tables beside a graph.
Order = StrEnum("Order", "ROWS IDS LABELS")


@app.command("import")
def import_command(
    file: Path = argument("FILE", "Graph to bring in."),
    name: str = option("--out -o NAME", "What to call it.", ...),
    features: Path | None = option(
        "FILE", "A row of numbers per vertex: text, npy, npz, json."
    ),
    feature_length: int | None = option("N", "Make up features of this length.", min=1),
    labels: Path | None = option("FILE", "A class per vertex, number or word."),
    classes: int | None = option("N", "Make up labels of so many classes.", min=1),
    graph: int | None = option("N", "Which of several graphs, from 0.", min=0),
    relation: str = option("A,R,A", "Take one relation of several.", ""),
    split_number: int | None = option("N", "Which of several splits, from 0.", min=0),
    split_arrays: SplitContent | None = option(
        "masks|ids", "What arrays of splits hold."
    ),
    split_codes: str | None = option(
        "A,B,C", "Codes of train, valid and test, such as 0,1,2."
    ),
    overlap: Overlap | None = option(
        "first|last", "Part that keeps a vertex of several, of train, valid, test."
    ),
    splits: Path | None = option(
        "FILE", "train, valid or test per vertex; or a folder of lists."
    ),
    columns: str | None = option(
        "A,B", "Columns with the ends of edges: names, numbers."
    ),
    *,
    bipartite: bool | None = option(
        "--bipartite/--no-bipartite", "Both ends are of two kinds, or of one."
    ),
    header: bool | None = option(
        "--header/--no-header", "The first line is no edge, or one."
    ),
    ids: bool | None = option(
        "--ids/--no-ids", "Tables beside name vertices, or are in their order."
    ),
    id_column: str | None = option("NAME", "Column of vertices in tables beside."),
    order: Order | None = option(
        "rows|ids|labels", "Vertices of rows in order: 0, 1, ..; sorted ids; labels."
    ),
    words: bool | None = option(
        "--words/--no-words", "Ids are words, even if some are numbers."
    ),
    neighbours: bool = option(
        "--neighbours", "A line has a vertex and its neighbours."
    ),
    flatten: bool = option("--flatten", "Make one graph of several types."),
    label_column: str | None = option(
        "NAME", "Column of classes in the file of --labels."
    ),
    json_target: JsonTarget = None,
) -> None:
    """Bring a graph of your own in, for job.dataset: NAME.

    FILE is an edge list (csv, tsv, txt, also gz), a graph of METIS, MatrixMarket,
    KONECT, LGL or Friendster, npz, npy, a Data or HeteroData of PyTorch Geometric (pt),
    graphs of dgl (bin), or a folder of OGB or of DistDGL's partitions. Nothing that a
    file holds is executed. Every edge counts in both directions. What was used is
    printed, what was left out is counted; where a file can be read in two ways, both
    are shown with the option that decides.
    """
    from emu.graph_data.imported import import_graph, summary_lines  # noqa: PLC0415
    from emu.graph_data.readers import text_table  # noqa: PLC0415 - numpy
    from emu.graph_data.readers.split_arrays import Choices  # noqa: PLC0415 - numpy
    from emu.graph_data.synthetic_graph import PRESETS  # noqa: PLC0415 - numpy

    if file_part(name) != name or name in PRESETS:
        rule = "letters, digits, dots and dashes make a name"
        raise DataError(f"{rule}, and no synthetic graph's", path=f"-o {name}")
    facts = import_graph(
        file,
        name,
        features=features,
        feature_length=feature_length,
        labels=labels,
        classes=classes,
        choices=Choices(
            graph=graph,
            flatten=flatten,
            relation=_relation_names(relation),
            split_number=split_number,
            split_arrays=split_arrays or "",
            split_codes=(*split_words(split_codes or ""),),
            overlap=overlap or "",
        ),
        splits=splits,
        table=text_table.TableOptions(
            columns=None if columns is None else (*split_words(columns),),
            bipartite=bipartite,
            header=header,
            words=words,
            neighbours=neighbours,
            ids=ids,
            id_column=id_column,
            order=order or "",
            label_column=label_column,
        ),
        tell=lambda line: typer.echo(line, err=True),
    ).facts
    if emit(json_target, facts):
        _print_import(name, facts, summary_lines(facts))


def _relation_names(relation: str) -> tuple[str, ...]:
    """Return the three names of an option; DataError where they are not three."""
    if not relation:
        return ()
    names = tuple(part.strip() for part in relation.split(","))
    if len(names) != 3:
        problem = "three names are needed: type, relation, type"
        raise DataError(problem, path=f"--relation {relation}")
    return names


def _print_import(name: str, facts: dict[str, Any], lines: list[str]) -> None:
    split = f"{facts['train']} to train on" if facts["train"] else "split at random"
    typer.echo(
        f"{name}: {facts['vertices']} vertices, {facts['edges']} edges (both "
        f"directions), features of length {facts['feature_length']}, "
        f"{facts['classes']} classes, {split}"
    )
    for line in lines:
        typer.echo(f"  {line}")
    typer.echo(
        f"next: job.dataset: {name} in a scenario of system: dgtp; "
        "emu init demo copies one to edit"
    )


@app.command("import-workload")
def import_workload(
    files: list[Path] = argument("FILE...", "Trace or workflow of others."),
    target: Path = option("--out -o NAME.json", "Scenario to write.", ...),
    nic: str | None = option(
        "RATE", f"NIC of every machine, in and out; default: {_NIC}.", None
    ),
    latency: str = option("TIME", "From a NIC to any other.", ""),
    copies: int = option("N", "Ranks that have this one Chakra trace.", 0, min=0),
    time_scale: float = option(
        "N", "Seconds of traces per second of the job, as a lab states it.", 1.0
    ),
    *,
    in_order: bool = option("--in-order", "Files are of rank 0, 1, ... in order."),
    large: bool = option("--large", "Take more than a million nodes, or 256 MB."),
) -> None:
    """Write a scenario of a trace or workflow of others.

    FILE is a trace of torch.profiler (Kineto; one FILE per rank), of coflow-benchmark
    (Facebook's), a Chakra execution trace of one rank (.et or .json; NAME.0.et,
    NAME.1.et, ... are those of all ranks), a workflow of WfCommons, or a GOAL schedule
    (LogGOPSim, ATLAHS; text). What a custom job has no word for is left out, by name
    and count.

    Raises
    ------
    DataError
        When a file cannot be read, or cannot be carried out.
    """
    from emu.interchange.known_formats import check_command  # noqa: PLC0415 - seldom
    from emu.interchange.recognise import WORKLOAD  # noqa: PLC0415 - seldom used
    from emu.interchange.workload_formats import (  # noqa: PLC0415 - seldom used
        read_workload,
    )

    for file in files:
        check_command(file, WORKLOAD)
    if not 0 < time_scale < float("inf"):
        raise ScenarioError("write a number above 0", file="--time-scale")
    workload = read_workload(
        *files, copies=copies, in_order=in_order, time_scale=time_scale, large=large
    )
    nic = _nic_of_others(workload, nic, latency)
    text = json.dumps(workload.scenario(target.stem, nic, latency))
    write_atomic(target, text)

    for line in _describe_import(workload, nic, latency):
        typer.echo(line)
    # Every value but the first of its list has a comma before it: these signs are about
    # as many as values, without reading the text again.
    is_big = sum(map(text.count, ",[{")) > MOST_VALUES or workload.edges > MOST_EDGES
    path = shlex.quote(str(target))
    typer.echo(f"next: emu simulate {path}{' --large' if is_big else ''}")


def _nic_of_others(workload: Workload, nic: str | None, latency: str) -> str:
    """Return the NIC of machines that have none; errors name the option.

    Read here, where no key of the new file stands for the option.
    """
    if workload.states_nics:
        for name, value in (("--nic", nic), ("--latency", latency)):
            if value:
                problem = f"the trace states its NICs: leave {name} out"
                raise ScenarioError(problem, file=name)
    if nic:
        seconds(nic, "--nic", RATE)
    if latency:
        seconds(latency, "--latency")
    return _NIC if nic is None else nic


def _describe_import(workload: Workload, nic: str, latency: str) -> Iterator[str]:
    """Yield what a scenario of others has from elsewhere, and what it leaves out."""
    yield from workload.notes
    for operation, count in workload.left_out.most_common():
        if count:
            yield f"left out: {operation}, {format_count(count, 'time')}"
    if not workload.states_nics:
        yield f"NICs are not in the file: {nic}, by --nic; latency {latency or 'none'}"
    if not workload.rule:
        yield "rates by oes: the file names no rule of emu (schedule.policy)"


Action = StrEnum("Action", "LIST FETCH CLEAR")


@app.command("data")
def data_command(
    action: Action = argument(
        "[list|fetch|clear]", "list is the default.", Action.LIST
    ),
    names: list[str] | None = argument("[NAME...]", "Graphs to fetch or remove.", None),
    json_target: JsonTarget = None,
) -> None:
    """List graphs, fetch public ones, or clear what was prepared.

    emu data fetch cora fetches a public graph, for job.dataset: cora. emu data clear
    removes prepared forms, which are made again when they are needed; emu data clear
    NAME an imported or fetched graph with its forms. Files in EMU_DATA stay.
    """
    from emu.graph_data import sources  # noqa: PLC0415 - numpy

    if action is Action.FETCH:
        _fetch(names or [])
        return
    if action is Action.CLEAR:
        count = sources.clear_data(names or [])
        if emit(json_target, {"freed": count}):
            typer.echo(f"{_megabytes(count)} freed")
        return
    if names:
        problem = f"lists all graphs: leave out {', '.join(names)}"
        raise ScenarioError(problem, file="data list")
    rows = sources.list_data()
    if emit(json_target, [asdict(row) for row in rows]):
        table = plain_table(
            "", "graph", "kind", ">vertices", ">edges", ">size", "origin"
        )
        alike = attrgetter("name", "kind", "origin", "vertices", "edges")
        for (name, kind, origin, *facts), group in groupby(rows, alike):
            counts = ("" if n is None else f"{n:,}" for n in facts)
            # Prepared forms of one graph differ in size alone, and share a row.
            same = [*group]
            of_all = f"{len(same)} x {origin}" if len(same) > 1 else origin
            size = _megabytes(sum(row.size for row in same))
            table.add_row(name, kind, *counts, size, of_all)
        if rows:
            terminal().print(table)
        typer.echo(f"looked in {' and '.join(map(str, sources.data_folders()))}")
        typer.echo("products-like, reddit-like and papers100m-like need no files")


def _fetch(names: list[str]) -> None:
    """Fetch public graphs; say how large each is."""
    from emu.graph_data.fetch import PUBLIC_GRAPHS, fetch_graph  # noqa: PLC0415 - numpy

    if not names:
        graphs = ", ".join(PUBLIC_GRAPHS)
        raise DataError(f"name one or more of {graphs}", path="emu data fetch")
    console = Console(stderr=True)
    for name in names:
        quiet = not console.is_terminal
        with Progress(console=console, transient=True, disable=quiet) as bar:
            total = PUBLIC_GRAPHS[name].size if name in PUBLIC_GRAPHS else None
            task = bar.add_task(f"fetching {name}", total=total)

            # A default is of this round; the name in a closure would be of the last.
            def tell(done: int, task: TaskID = task) -> None:
                bar.update(task, completed=done)

            path = fetch_graph(name, tell)
        size = _megabytes(path.stat().st_size)
        typer.echo(f"{name}: {size}, for job.dataset: {name}")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
