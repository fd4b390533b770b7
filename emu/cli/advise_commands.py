"""``emu advise``: which system, on which machines, with which settings."""

from __future__ import annotations

import sys
from math import inf
from pathlib import Path
from typing import Annotated

import typer

import emu
from emu.cli.app import app, option
from emu.cli.options import JsonTarget, Overrides, ScenarioFile, emit, seconds
from emu.errors import ScenarioError
from emu.experiment.advice import Terms, advise
from emu.experiment.target import WITHIN, Target
from emu.report.comparison import reason
from emu.report.terminal import terminal
from emu.scenario import write_scenario
from emu.training.looks import HELD
from emu.units import MONEY


def _dollars(text: str) -> float:
    """Return an amount of money; raises ScenarioError when it is none."""
    try:
        return MONEY.parse(text)
    except ValueError as error:
        raise ScenarioError(str(error), file=f"--budget {text}") from error


@app.command("advise")
def advise_command(
    file: ScenarioFile,
    overrides: Overrides = None,
    to: Annotated[
        str, option("accuracy=0.88", "Judge by the time to it; default: of an epoch.")
    ] = "",
    within: Annotated[
        int, option("EPOCHS", "With --to: passes over the training set.", min=HELD)
    ] = WITHIN,
    budget: Annotated[
        str, option("MONEY", "Dollars at most: to the accuracy, else of an epoch.")
    ] = "",
    deadline: Annotated[
        str, option("TIME", "Time at most, likewise; alone it asks for the cheapest.")
    ] = "",
    max_staleness: Annotated[
        int | None, option("N", "Updates that weights may lack at most.", min=0)
    ] = None,
    seeds: Annotated[
        int, option("N", "Its seed and those that follow, for how sure it is.", min=1)
    ] = 3,
    write: Annotated[
        Path | None, option("FILE", "Write what to use as a scenario.")
    ] = None,
    json_target: JsonTarget = None,
) -> None:
    """Say which system to use on which machines, and how sure that is.

    By simulation: every system on every set of machines, then settings of the best
    three, one after the other. Five lines say what to use, how it compares with the
    file as it stands, what limits it, what comes next, and from which latency, network,
    features, hidden width or rate of collecting on another system is the better one.

    Raises
    ------
    ScenarioError
        When nothing keeps to budget and deadline.
    """
    terms = Terms(
        Target.parse(to, within) if to else None,
        _dollars(budget) if budget else inf,
        seconds(deadline, "--deadline") if deadline else inf,
        max_staleness,
        seeds,
    )
    scenario = emu.load(file, overrides or [])
    with terminal(sys.stderr).status("advising") as status:
        advice = advise(scenario, terms, lambda what: status.update(f"trying {what}"))
    if write is not None:
        write_scenario(write, advice.best.scenario)
    if emit(json_target, advice.to_json()):
        terminal().print(*advice.lines(), sep="\n")
        for name, error in advice.refused.items():
            typer.echo(f"not {name}: {reason(error)}", err=True)
        for line in advice.untried:
            typer.echo(f"not tried, {line}", err=True)
    if write is not None:
        typer.echo(f"written to {write}; next: emu simulate {write}", err=True)
