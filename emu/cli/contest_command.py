"""``emu contest``: the worst case of a rule, placement or system beside another."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import typer

import emu
from emu.cli.app import app, argument, option
from emu.cli.confirmation import confirm_row
from emu.cli.options import JsonTarget, Overrides, emit
from emu.cli.progress import status_line
from emu.cli.repeat_runs import Plan, read_plan
from emu.errors import ScenarioError
from emu.experiment.contest import (
    Contest,
    Contestant,
    Effort,
    Kind,
    NearFile,
    SmallJob,
    find_worst,
    read_contestants,
)
from emu.experiment.systems import check_one_job
from emu.host.files import check_writable
from emu.report import contest_tables
from emu.report.terminal import terminal
from emu.scenario.scenario_file import write_scenario
from emu.units import format_ratio

#: Instances to try. A rule on a small job takes 1 ms on both sides, a placement that is
#: searched 100, a scenario of a graph more.
_TRIES_OF_JOBS = 5000
_TRIES_OF_SEARCHES = 500
#: Factor within which numbers of a file are varied.
_WITHIN = 2.0

Start: TypeAlias = Callable[[np.random.Generator], Any]


@app.command()
def contest(
    loser: str = argument("A", "Rule, placement or row of --systems that loses."),
    winner: str = argument("B", "Another of its kind."),
    kind: Kind | None = option(
        "--of rules|placements|systems", "Where both names are of several kinds."
    ),
    near: Path | None = option("FILE", "Vary speeds, times, sizes of this scenario."),
    overrides: Overrides = None,
    within: float = option("FACTOR", "With --near: each by at most so much (2).", 0.0),
    tries: int = option(
        "N", "Instances to try; default: 5000, 500 where slow.", 0, min=0
    ),
    seed: int = option("N", "Of the search: the same finds the same.", 0, min=0),
    out: Path | None = option("FILE", "To write; default: contest_A_B.yaml."),
    json_target: JsonTarget = None,
    *,
    confirm: bool = option("--confirm", "Run both sides over sockets as well."),
    repeat: str = option("N|auto", "With --confirm: run each so often.", "1"),
) -> None:
    """Find where one rule, placement or system loses most to another.

    The instance on which A loses most to B is written as a scenario.

    Simulated annealing over small jobs of stores, samplers, workers and parameter
    servers, or with --near over the speeds, times and sizes of a scenario. The worst
    instance is made as simple as it can be while 95 % of the loss stays; a loss that a
    tie decides does not count. Beside it stands what is left of the loss where machines
    are equal, tasks take no time, flows are equal, or there is one iteration.
    """
    plan = read_plan(repeat)
    if plan is not None and not confirm:
        problem = "is of runs: write --confirm as well"
        raise ScenarioError(problem, file=f"--repeat {repeat}")
    sides = read_contestants(loser, winner, kind)
    file = out or Path(f"contest_{loser}_{winner}.yaml")
    if file.exists():
        raise ScenarioError("is there already; choose another --out", file=str(file))
    check_writable(file)
    kind_of_sides = sides[0].kind
    start = _start(
        kind=kind_of_sides,
        near=near,
        overrides=overrides,
        within=within,
    )
    is_quick = kind_of_sides is Kind.RULES and near is None
    default_tries = _TRIES_OF_JOBS if is_quick else _TRIES_OF_SEARCHES
    effort = Effort(tries=tries or default_tries, seed=seed)

    with status_line(f"looking for the worst case of {loser}") as say:

        def watch(tried: int, loss: float) -> None:
            worst = format_ratio(max(loss, 0.0))
            say(f"{tried:,} of {effort.tries:,} instances, worst {worst}")

        result = find_worst(*sides, start, effort, watch)
        if result is not None and confirm:
            result = _confirm(result, plan, say)

    if result is None:
        _say_none(sides, effort, json_target)
        return
    if result.loser.kind is Kind.SYSTEMS:
        # A table of systems makes its rows of one file.
        worst_case = result.instance.scenario()
    else:
        worst_case = result.bout.loser.scenario
    write_scenario(file, worst_case)
    _show(result, file, json_target)


def _start(
    kind: Kind,
    near: Path | None,
    overrides: Overrides,
    within: float,
) -> Start:
    """Return what draws the start of a walk."""
    if near is None:
        if overrides:
            problem = "is of a scenario: write --near FILE as well"
            raise ScenarioError(problem, file=f"--set {overrides[0]}")
        if within:
            problem = "is of a scenario: write --near FILE as well"
            raise ScenarioError(problem, file=f"--within {within:g}")
        if kind is Kind.SYSTEMS:
            problem = "train a graph: write --near FILE, whose job they share"
            raise ScenarioError(problem, file="two systems")
        return lambda rng: SmallJob.draw(rng, free=kind is Kind.PLACEMENTS)

    scenario = emu.load(near, overrides or [])
    # Otherwise every instance would be refused, one after the other.
    if kind is Kind.SYSTEMS:
        check_one_job(scenario)
    base = NearFile.of(scenario, within or _WITHIN)
    return lambda _: base


def _confirm(
    found: Contest[Any], plan: Plan | None, say: Callable[[str], None]
) -> Contest[Any]:
    """Return the contest with runs over sockets of both sides."""
    bout = found.bout
    say(f"over sockets: {found.loser.name}, 1 of 2")
    loser = confirm_row(bout.loser, found.loser.name, plan)
    say(f"over sockets: {found.winner.name}, 2 of 2")
    winner = confirm_row(bout.winner, found.winner.name, plan)
    confirmed = replace(bout, loser=loser, winner=winner)
    return replace(found, bout=confirmed)


def _say_none(
    sides: Sequence[Contestant], effort: Effort, json_target: str | None
) -> None:
    """Say that no instance was found; that there is none it does not prove."""
    loser, winner = sides
    content = {"kind": loser.kind.value, "loss": None}
    if emit(json_target, content):
        outcome = f"no instance was found on which {loser.name} loses to {winner.name}"
        typer.echo(f"{outcome} (--tries {effort.tries}): another --seed may find one")


def _show(found: Contest[Any], file: Path, json_target: str | None) -> None:
    """Print the contest, and with which commands both sides are found again."""
    content = contest_tables.contest_json(found, str(file))
    if not emit(json_target, content):
        return
    console = terminal()
    console.print(contest_tables.contest_table(found))
    for line in contest_tables.contest_lines(found):
        console.print(line)
    console.print("")
    for line in found.instance.lines():
        console.print(f"  {line}")
    flows = contest_tables.flows_table(found)
    if flows is not None:
        console.print(flows)

    path = shlex.quote(str(file))
    if found.loser.kind is Kind.SYSTEMS:
        names = f"{found.loser.name},{found.winner.name}"
        console.print(f"written: emu compare {path} --systems {names}")
    else:
        console.print(f"written: emu simulate {path}, of which {found.loser.name} is")
        console.print(f"the other: emu simulate {path} --set {found.winner.key()}")
