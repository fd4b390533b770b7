"""``emu advise``: which system on which machines."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from dataclasses import replace
from math import inf
from pathlib import Path

import typer

import emu
from emu.cli import options
from emu.cli.app import app, option
from emu.cli.options import JsonTarget, Overrides, emit
from emu.cli.progress import status_line
from emu.errors import ScenarioError
from emu.experiment.advice import Advice, advise, find_target
from emu.experiment.job_shares import JobAdvice, share_machines
from emu.experiment.prospects import Choice, Terms
from emu.experiment.systems import WITHIN, Target
from emu.host.files import check_writable
from emu.report.terminal import terminal
from emu.scenario import Scenario, write_scenario
from emu.training.looks import HELD
from emu.units import DURATION, MONEY, Quantity

#: Options that say nothing where several jobs share the machines.
_OF_ONE_JOB = ("--budget", "--deadline", "--max-staleness", "--keep-lr", "--seeds")


@app.command("advise")
def advise_command(
    context: typer.Context,
    file: options.ScenarioFile,
    overrides: Overrides = None,
    to: str = option(
        "accuracy=0.88",
        "Accuracy to train to; default: what the file's job reaches in its length.",
        "",
    ),
    within: int = option(
        "EPOCHS", "Passes over the training set to it at most.", WITHIN, min=HELD
    ),
    budget: str = option("MONEY", "Dollars at most, to the accuracy.", ""),
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
    per_epoch: bool = option(
        "--per-epoch",
        "Judge by the time of an epoch, among whole-graph or mini-batch systems alone.",
    ),
    keep_rate: bool = option("--keep-lr", "Try no learning rate but the file's."),
    by_sum: bool = option(
        "--sum", "Of several jobs: least weighted sum, not the longest."
    ),
) -> None:
    """Say which system to use on which machines, and how sure that is.

    By simulation, to an accuracy: every system on every set of machines, at the best
    learning rate of a small grid, then batches, fan-outs and settings of the best four.
    A line names what is held and what was tried; five say what to use, how it compares
    with the file as it stands, what limits it, what comes next, and from which latency,
    network, features, hidden width or rate of collecting on another system is the
    better one. Of several jobs (jobs:) it says who gets which machines.

    Raises
    ------
    ScenarioError
        When nothing keeps to budget and deadline; when there is no accuracy to train
        to.
    """
    scenario = emu.load(file, overrides or [])
    trains = bool(to) or not (per_epoch or scenario.jobs)
    _check_options(scenario, options.stated_options(context), trains=trains)
    if write is not None:
        check_writable(write)
    if to and per_epoch:
        raise ScenarioError("write one of --to and --per-epoch", file=f"--to {to}")
    terms = Terms(
        target=Target.parse(to, within) if to else None,
        budget=_limit(budget, "--budget", MONEY),
        deadline=_limit(deadline, "--deadline", DURATION),
        staleness=max_staleness,
        seeds=seeds,
        keep_rate=keep_rate,
    )

    with status_line("advising", "trying ") as watch:
        advice: Advice | JobAdvice
        if scenario.jobs:
            advice = share_machines(scenario, terms.target, sums=by_sum, watch=watch)
        else:
            # With neither, the others have to get as far as the file's own job does.
            if trains and not to:
                watch("the file's own accuracy")
                # It trains the file's own job, so that the search has something to
                # train to.
                terms = replace(terms, target=find_target(scenario, within))
            advice = advise(scenario, terms, watch)
    if write is not None:
        best = advice.best
        # Several jobs are shared out by one scenario; of one job the best choice has
        # it.
        winner = best.answer.scenario if isinstance(best, Choice) else best.scenario
        write_scenario(write, winner)
        path = shlex.quote(str(write))
        typer.echo(f"written to {write}; next: emu simulate {path}", err=True)
    if emit(json_target, advice.to_json()):
        terminal().print(*advice.lines(), sep="\n")
    for line in advice.remarks():
        typer.echo(line, err=True)


def _limit(text: str, option: str, quantity: Quantity) -> float:
    """Return what an option states at most, infinite where it is left out.

    Raises ScenarioError when it is no such quantity, or none of it.
    """
    if not text:
        return inf
    limit = options.seconds(text, option, quantity)
    if not limit:
        problem = f"found {text!r}, which nothing keeps to: write more than 0"
        raise ScenarioError(problem, file=option)
    return limit


def _check_options(
    scenario: Scenario, stated: Collection[str], *, trains: bool
) -> None:
    """Raise ScenarioError where an option on the command line would change nothing.

    ``trains``: there is an accuracy to train to.
    """
    if scenario.jobs:
        for option_of_one in _OF_ONE_JOB:
            if option_of_one in stated:
                problem = "is of one job: leave it out of several"
                raise ScenarioError(problem, file=option_of_one)
    elif "--sum" in stated:
        raise ScenarioError("is of several jobs, write jobs", file="--sum")
    if "--within" in stated and not trains:
        problem = "is of an accuracy to train to: write --to, or leave it out"
        raise ScenarioError(problem, file="--within")
