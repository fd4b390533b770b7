"""``emu advise``: which system on which machines."""

from __future__ import annotations

import sys
from math import inf
from pathlib import Path

import typer

import emu
from emu.cli import options
from emu.cli.app import app, option
from emu.cli.options import JsonTarget, Overrides, emit
from emu.cli.signs_of_life import note_stage
from emu.errors import ScenarioError
from emu.experiment.advice import Advice, Terms, advise
from emu.experiment.job_shares import JobAdvice, share_machines
from emu.experiment.systems import WITHIN, Target
from emu.report.terminal import terminal
from emu.scenario import write_scenario
from emu.training.looks import HELD
from emu.units import MONEY


@app.command("advise")
def advise_command(
    file: options.ScenarioFile,
    overrides: Overrides = None,
    to: str = option(
        "accuracy=0.88", "Judge by the time to it; default: of an epoch.", ""
    ),
    within: int = option(
        "EPOCHS", "With --to: passes over the training set.", WITHIN, min=HELD
    ),
    budget: str = option(
        "MONEY", "Dollars at most: to the accuracy, else of an epoch.", ""
    ),
    deadline: str = option(
        "TIME", "Time at most, likewise; alone it asks for the cheapest.", ""
    ),
    max_staleness: int | None = option(
        "N", "Updates that weights may lack at most.", min=0
    ),
    seeds: int = option(
        "N", "Its seed and those that follow, for how sure it is.", 3, min=1
    ),
    write: Path | None = option("FILE", "Write what to use as a scenario."),
    json_target: JsonTarget = None,
    *,
    by_sum: bool = option(
        "--sum", "Of several jobs: least weighted sum, not the longest."
    ),
) -> None:
    """Say which system to use on which machines, and how sure that is.

    By simulation: every system on every set of machines, then settings of the best
    four, one after the other. Five lines say what to use, how it compares with the file
    as it stands, what limits it, what comes next, and from which latency, network,
    features, hidden width or rate of collecting on another system is the better one.
    Of several jobs (jobs:) it says who gets which machines.

    Raises
    ------
    ScenarioError
        When nothing keeps to budget and deadline.
    """
    scenario = emu.load(file, overrides or [])
    target = Target.parse(to, within) if to else None
    money = options.seconds(budget, "--budget", MONEY) if budget else inf
    limit = options.seconds(deadline, "--deadline") if deadline else inf
    terms = Terms(target, money, limit, max_staleness, seeds)
    if scenario.jobs and terms != Terms(target, seeds=seeds):
        problem = "are of one job: leave them out of several"
        raise ScenarioError(problem, file="--budget, --deadline, --max-staleness")
    if by_sum and not scenario.jobs:
        raise ScenarioError("is of several jobs, write jobs", file="--sum")
    with terminal(sys.stderr).status("advising") as status:

        def watch(what: str) -> None:
            note_stage(what)
            status.update(f"trying {what}")

        advice: Advice | JobAdvice
        if scenario.jobs:
            advice = share_machines(scenario, target, sums=by_sum, watch=watch)
        else:
            advice = advise(scenario, terms, watch)
    if write is not None:
        write_scenario(write, advice.best.scenario)
        typer.echo(f"written to {write}; next: emu simulate {write}", err=True)
    if emit(json_target, advice.to_json()):
        terminal().print(*advice.lines(), sep="\n")
    for line in advice.remarks():
        typer.echo(line, err=True)
