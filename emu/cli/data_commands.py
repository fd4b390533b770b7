"""``emu import`` and ``emu data``: graphs of the user's own."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emu.cli.app import app
from emu.cli.options import JsonTarget, emit
from emu.errors import DataError
from emu.names import file_part
from emu.report.terminal import plain_table, terminal

if TYPE_CHECKING:
    from emu.graph_data.data_inventory import KeptData

FeatureFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A row of numbers per vertex: npy or text."),
]
LabelFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A class per vertex, number or word."),
]


@app.command("import")
def import_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Graph to bring in.")],
    name: Annotated[
        str, typer.Option("--out", "-o", metavar="NAME", help="What to call it.")
    ],
    features: FeatureFile = None,
    feature_length: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Make up features of this length."),
    ] = None,
    labels: LabelFile = None,
    classes: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Make up labels of so many classes."),
    ] = None,
) -> None:
    """Bring a graph of your own in, for job.dataset: NAME.

    FILE is an edge list (csv, tsv, txt, also gz), npz, a Data of PyTorch Geometric
    (pt), a graph of dgl (bin), or a folder of OGB or of DistDGL's partitions. Nothing
    that a file holds is executed. Every edge counts in both directions.

    Raises
    ------
    DataError
        When the file cannot be read, or its parts do not fit together.
    """
    from emu.graph_data.imported import import_graph  # noqa: PLC0415 - numba
    from emu.graph_data.synthetic_graph import PRESETS  # noqa: PLC0415 - numba

    if file_part(name) != name or name in PRESETS:
        raise DataError(
            "letters, digits, dots and dashes make a name, and no synthetic graph's",
            path=f"-o {name}",
        )
    facts = import_graph(
        file,
        name,
        features=features,
        feature_length=feature_length,
        labels=labels,
        classes=classes,
    ).facts
    split = f"{facts['train']} to train on" if facts["train"] else "split at random"
    typer.echo(
        f"{name}: {facts['vertices']} vertices, {facts['edges']} edges (both "
        f"directions), features of length {facts['feature_length']}, "
        f"{facts['classes']} classes, {split}"
    )
    for note in facts["notes"]:
        typer.echo(f"  {note}")
    if facts["parts"]:
        typer.echo(f"  {facts['parts']} parts of its own: job.partitioner: imported")
    typer.echo(
        f"next: job.dataset: {name} in a scenario of system: dgtp; "
        "emu init demo copies one to edit"
    )


class Action(StrEnum):
    """Action on the data."""

    LIST = "list"
    CLEAR = "clear"


@app.command("data")
def data_command(
    action: Annotated[
        Action, typer.Argument(metavar="[list|clear]", help="list is the default.")
    ] = Action.LIST,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME...]", help="Imported graphs to remove."),
    ] = None,
    json_target: JsonTarget = None,
) -> None:
    """List graphs, or clear what was imported and prepared.

    emu data clear removes prepared forms, which are made again when they are needed;
    emu data clear NAME an imported graph with its forms. Files in EMU_DATA stay.

    Raises
    ------
    DataError
        When nothing is kept under a name.
    """
    from emu.graph_data import data_inventory  # noqa: PLC0415 - numba

    if action is Action.CLEAR:
        freed = data_inventory.clear_data(names or [])
        if emit(json_target, {"freed": freed}):
            typer.echo(f"{_megabytes(freed)} freed")
        return
    rows = data_inventory.kept_data()
    if emit(json_target, [asdict(row) for row in rows]):
        _print(rows)


def _print(rows: list[KeptData]) -> None:
    from emu.graph_data.sources import data_folders  # noqa: PLC0415 - numba

    table = plain_table("", "graph", "kind", ">vertices", ">edges", ">size", "origin")
    for row in rows:
        counts = ("" if n is None else f"{n:,}" for n in (row.vertices, row.edges))
        table.add_row(row.name, row.kind, *counts, _megabytes(row.size), row.origin)
    if rows:
        terminal().print(table)
    typer.echo(f"looked in {' and '.join(map(str, data_folders()))}")
    typer.echo("products-like, reddit-like and papers100m-like need no files")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
