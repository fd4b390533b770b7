"""Worst cases of rules and placements: one instance for every ordered pair.

    tools/study contest OUT [--tries N] [--confirm N]

Eight rules for rates and five placements, each against each of its kind: the share by
which the first takes longer on the worst small job that `emu contest` finds, written to
OUT as a scenario. Every one is simulated again from its file, as ``emu simulate`` does;
``--confirm N`` runs both sides of the N rules' pairs with the largest losses over
sockets as well.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from pathlib import Path

import emu
from emu.experiment.contest import (
    Contestant,
    Effort,
    Kind,
    SmallJob,
    find_worst,
)
from emu.experiment.question import ask
from emu.scenario import load
from emu.scenario.scenario_file import write_scenario
from tools.runner import Study, Work

RULES = (
    *("oes", "maxmin", "fifo", "mrtf"),
    *("omcoflow", "sebf_madd", "sincronia", "aalo"),
)
PLACEMENTS = ("etp", "ifs", "distdgl", "best", "round_robin")
#: Tries of placements for each of rules: a search for one takes 50 times as long.
SHARE_OF_PLACEMENTS = 0.05


@dataclass(frozen=True)
class Loss:
    """Worst case of one pair."""

    case: str
    kind: str
    loser: str
    winner: str
    loss: float
    """Share; 0 where no instance was found."""
    steady_loss: float
    hangs_on: str
    """Change that takes most of the loss away."""
    again: float
    """The loss by simulating the file that was written."""


def options(parser: ArgumentParser) -> None:
    """Add how many instances are tried."""
    parser.add_argument("--tries", type=int, default=3000)
    parser.add_argument("--confirm", type=int, default=0, help="pairs over sockets")


def work(options: Namespace) -> Iterator[Work[Loss]]:
    """Yield every pair."""
    for kind, names in ((Kind.RULES, RULES), (Kind.PLACEMENTS, PLACEMENTS)):
        tries = options.tries
        if kind is Kind.PLACEMENTS:
            tries = int(tries * SHARE_OF_PLACEMENTS)
        for loser, winner in permutations(names, 2):
            sides = (Contestant(kind, loser), Contestant(kind, winner))
            yield (
                f"{loser} {winner}",
                partial(worst_of, *sides, tries=tries, folder=options.out),
            )


def worst_of(
    loser: Contestant, winner: Contestant, *, tries: int, folder: Path
) -> Sequence[Loss]:
    """Return the row of a pair."""
    is_free = loser.kind is Kind.PLACEMENTS
    found = find_worst(
        loser,
        winner,
        lambda rng: SmallJob.draw(rng, free=is_free),
        Effort(tries=tries),
    )
    loss = 0.0
    steady_loss = 0.0
    again = 0.0
    hangs_on = ""
    if found is not None:
        loss = found.loss
        steady_loss = found.steady_loss
        left = {
            words: rest for words, rest in found.without.items() if rest is not None
        }
        if left:
            hangs_on = min(left, key=left.__getitem__)
        file = folder / f"contest_{loser.name}_{winner.name}.yaml"
        write_scenario(file, found.bout.loser.scenario)
        other = load(emu.load(file), [winner.key()])
        again = ask(emu.load(file)).makespan / ask(other).makespan - 1.0
    row = Loss(
        case=f"{loser.name} {winner.name}",
        kind=loser.kind.value,
        loser=loser.name,
        winner=winner.name,
        loss=loss,
        steady_loss=steady_loss,
        hangs_on=hangs_on,
        again=again,
    )
    return [row]


def table(rows: list[Loss], options: Namespace) -> Iterator[str]:
    """Yield a table for each kind, loser by winner, and what the runs say."""
    for kind, names in ((Kind.RULES, RULES), (Kind.PLACEMENTS, PLACEMENTS)):
        yield f"{kind.value}: row loses so many percent to column"
        yield " " * 12 + "".join(f"{name:>12}" for name in names)
        losses = {(row.loser, row.winner): row.loss for row in rows}
        for loser in names:
            cells = [f"{100 * losses.get((loser, w), 0.0):12.0f}" for w in names]
            yield f"{loser:12}" + "".join(cells)
    apart = max((abs(row.loss - row.again) for row in rows), default=0.0)
    yield f"simulated again from the files: {apart:.1g} apart at most"

    rules = sorted(rows, key=lambda row: -row.loss)
    confirmed = [row for row in rules if row.kind == Kind.RULES][: options.confirm]
    for row in confirmed:
        yield confirmation(row, options.out)


def confirmation(row: Loss, folder: Path) -> str:
    """Return what two runs over sockets say of a pair."""
    scenario = emu.load(folder / f"contest_{row.loser}_{row.winner}.yaml")
    slow = emu.run(scenario, runs=folder / "runs").result
    other = load(scenario, {"schedule.policy": row.winner})
    fast = emu.run(other, runs=folder / "runs").result
    loss = slow["makespan"] / fast["makespan"] - 1.0
    verdicts = f"{slow['verdict']['trust']}, {fast['verdict']['trust']}"
    percent = f"{100 * loss:.1f} % for {100 * row.loss:.1f}"
    return f"over sockets, {row.case}: {percent} ({verdicts})"


STUDY = Study(
    row=Loss,
    work=work,
    table=table,
    options=options,
    settled=("tries",),
    wrong=lambda rows: any(abs(row.loss - row.again) > 1e-9 for row in rows),
)
