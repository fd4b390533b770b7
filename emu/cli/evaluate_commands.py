"""``emu evaluate``."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import Annotated

import typer

from emu.cli.app import app
from emu.cli.options import JsonTarget, emit
from emu.experiment.training_results import evaluate_run
from emu.report import terminal
from emu.report.job_tables import accuracy_table


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")],
    json_target: JsonTarget = None,
) -> None:
    """Evaluate a run's weights on the whole graph.

    Accuracy by split, of weights.npz, with every neighbour of every vertex. It needs
    the data set that was trained on.
    """
    found = evaluate_run(run)
    if emit(json_target, found.get("", found)):
        terminal().print(accuracy_table(found))
