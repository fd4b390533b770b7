"""``emu reproduce``: figures of papers, as this model finds them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import typer

from emu.cli.app import app, argument, option
from emu.cli.options import Jobs, JsonTarget, emit
from emu.cli.progress import status_line
from emu.errors import DataError
from emu.host.files import check_writable, write_atomic
from emu.reproduction.blocks import text_lines, write_blocks
from emu.reproduction.claims import find_claims
from emu.reproduction.rows import Row, reproduce

#: Seeds of every claim, and those of ``--full``.
DRAWS = 3
MORE_DRAWS = 7


class Form(StrEnum):
    """Forms that ``--as`` writes beside the text."""

    HTML = "html"


@app.command("reproduce")
def reproduce_command(
    paper: str = argument(
        "PAPER", "Paper, as dgtp or p3, or all; a wrong name lists them."
    ),
    figure: str = argument("[FIGURE]", "figure-4, table-2, 4; default: all.", ""),
    json_target: JsonTarget = None,
    form: Form | None = option("--as html", "A page with the figures drawn."),
    out: Path | None = option("FILE", "Where the page goes; default: PAPER.html."),
    write: list[Path] = option("FILE", "Document whose marked places get rows.", ()),
    draws: int = option(
        "N", f"Seeds of each; default {DRAWS}, or {MORE_DRAWS}.", 0, min=0
    ),
    jobs: Jobs = 1,
    *,
    full: bool = option("--full", "More seeds, and what trains for minutes."),
) -> None:
    """Show figures of papers beside the same found here.

    Of every number of a paper that this model can speak of a row: the paper's, what is
    found here, their ratio, the walk of seeds and settings, why it differs, and the CPU
    time that it took. What cannot be had says why.
    """
    claims = find_claims(paper, figure)
    # Marked places hold all rows of a paper: those of one figure would replace them.
    if write and figure:
        problem = "gets the rows of whole papers, name no FIGURE"
        raise DataError(problem, path=write[0])

    page = None
    if form is not None or out is not None:
        page = out or Path(f"{paper}.html")
        check_writable(page)
    # Finding takes minutes: a document that cannot take rows is refused before, as it
    # is with none, which leave it as it is.
    for document in write:
        write_blocks(document, [])

    default_draws = MORE_DRAWS if full else DRAWS
    with status_line("reproducing", "reproducing: ") as watch:
        found = reproduce(
            claims,
            draws=draws or default_draws,
            jobs=jobs,
            full=full,
            watch=watch,
        )
        rows = list(found)

    content = [row.to_json() for row in rows]
    if emit(json_target, content):
        text = "\n".join(text_lines(rows))
        typer.echo(text)
    for document in write:
        write_blocks(document, rows)
        typer.echo(f"written to {document}", err=True)
    if page is not None:
        _write_page(page, rows)


def _write_page(path: Path, rows: Sequence[Row]) -> None:
    # Pages take half a second to import.
    from emu.reproduction.page import reproduction_page  # noqa: PLC0415

    page = reproduction_page(rows)
    write_atomic(path, page)
    typer.echo(f"written to {path}", err=True)
