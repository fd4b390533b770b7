"""Search for the instance on which one contestant loses most to another.

Simulated annealing over instances, as PISA has it for schedulers (Coleman and
Krishnamachari, SAGA); here with contention, and the worst one is then made as simple as
a person can read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from emu.errors import EmulatorError, ScenarioError
from emu.experiment.contest.contestants import (
    Bout,
    Contestant,
    Kind,
    fight,
    loss_of,
)
from emu.experiment.contest.instance import Change, Instance, jitter, unchanged
from emu.experiment.contest.small_job import SmallJob
from emu.prediction.simulation import simulate
from emu.problem import Problem, Realization

I = TypeVar("I", bound=Instance)  # noqa: E741 - type of instance

#: Loss that is accepted as often as not, at the start and at the end of a walk.
_WARM = 0.1
_COLD = 0.002
#: Share of the tries of a walk that draw its start.
_DRAWS = 0.1
#: Share of the loss that may go while an instance is made simpler.
_GIVEN_UP = 0.05
#: A loss counts only where it stays with all numbers moved by so much: what a tie
#: decides is an accident of names.
JITTER = 0.01
_JITTERS = 3

#: Takes the number of instances that were tried, and the worst loss so far.
Watch = Callable[[int, float], None]


@dataclass(frozen=True)
class Effort:
    """Work of a search."""

    tries: int = 1500
    """Instances of all walks together, without those that make the worst simpler."""
    walks: int = 5
    """Walks from starts of their own."""
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Contest(Generic[I]):
    """Worst instance found."""

    loser: Contestant
    winner: Contestant
    instance: I
    bout: Bout
    steady_loss: float
    """Least loss with all numbers moved by up to `JITTER`."""
    without: Mapping[str, float | None]
    """Loss that is left, by what was taken away; None where that is refused."""
    tries: int
    refused: int
    """Instances that one of both cannot have."""

    @property
    def loss(self) -> float:
        """Share by which the loser takes longer."""
        return self.bout.loss


@dataclass
class _Judge(Generic[I]):
    """Says how far one contestant loses on an instance, and counts."""

    loser: Contestant
    winner: Contestant
    tries: int = 0
    refused: int = 0
    refusal: EmulatorError | None = None

    def loss(self, instance: I, change: Change = unchanged) -> float:
        """Return the loss; minus infinity where one of both is refused."""
        try:
            # A small job has its machines: rules need no scenario to be simulated.
            if self.loser.kind is Kind.RULES and isinstance(instance, SmallJob):
                return self._loss_of_rules(*instance.problem(change))
            return fight(instance.scenario(change), self.loser, self.winner).loss
        except EmulatorError as error:
            self.refusal = error
            return -math.inf

    def _loss_of_rules(self, problem: Problem, realization: Realization) -> float:
        makespans = []
        for rule in (self.loser.name, self.winner.name):
            schedule = simulate(problem, realization, rule, profile=realization)
            makespans.append(schedule.makespan)
        return loss_of(*makespans)

    def try_out(self, instance: I) -> float:
        """Return the loss, and count the instance."""
        loss = self.loss(instance)
        self.tries += 1
        self.refused += loss == -math.inf
        return loss

    def steady_loss(self, instance: I) -> float:
        """Return the least loss, as it is and with its numbers moved a little."""
        rng = np.random.default_rng(0)
        losses = [self.loss(instance)]
        for _ in range(_JITTERS):
            # What is lost by a tie alone needs no second look.
            if losses[-1] <= 0.0:
                break
            jittered_loss = self.loss(instance, jitter(rng, JITTER))
            losses.append(jittered_loss)
        return min(losses)


def find_worst(
    loser: Contestant,
    winner: Contestant,
    draw: Callable[[np.random.Generator], I],
    effort: Effort,
    watch: Watch | None = None,
) -> Contest[I] | None:
    """Return the worst instance for ``loser``; None where it never loses.

    Parameters
    ----------
    draw
        Returns an instance from which a walk may start.
    effort
        The same effort finds the same instance.
    watch
        Called after every instance with how far the search is.

    Raises
    ------
    ScenarioError
        When every instance was refused; it says why the last one was.
    """
    rng = np.random.default_rng(effort.seed)
    judge = _Judge[I](loser, winner)
    best: I | None = None
    best_loss = 0.0
    for _ in range(effort.walks):
        steps = max(1, effort.tries // effort.walks)
        worst = _walk(draw, judge, rng, steps, _watch_all(watch, best_loss))
        simple = _simplify(worst, judge)
        loss = judge.steady_loss(simple)
        if loss > best_loss:
            best = simple
            best_loss = loss

    if judge.refused == judge.tries and judge.refusal is not None:
        problem = f"every instance was refused, the last: {judge.refusal}"
        raise ScenarioError(problem, file=f"{loser.name} {winner.name}")
    if best is None:
        return None
    return Contest(
        loser=loser,
        winner=winner,
        instance=best,
        bout=fight(best.scenario(), loser, winner),
        steady_loss=best_loss,
        without=_losses_without(best, judge),
        tries=judge.tries,
        refused=judge.refused,
    )


def _watch_all(watch: Watch | None, loss_before: float) -> Watch | None:
    """Return a watch of one walk that says the worst loss of the walks before, too."""
    if watch is None:
        return None
    return lambda tries, loss: watch(tries, max(loss, loss_before))


def _losses_without(instance: I, judge: _Judge[I]) -> dict[str, float | None]:
    losses: dict[str, float | None] = {}
    for words, level in instance.level().items():
        loss = judge.loss(level)
        losses[words] = None if loss == -math.inf else loss
    return losses


def _walk(
    draw: Callable[[np.random.Generator], I],
    judge: _Judge[I],
    rng: np.random.Generator,
    steps: int,
    watch: Watch | None,
) -> I:
    """Return the worst instance of a walk that takes losses less and less often.

    It begins at the worst of some draws: on most of them both sides are the same, and a
    walk among these learns nothing (oes against max-min: 8, 12, 2 and 1 % with 3,000
    tries, 21, 30, 25 and 18 % so).
    """
    draw_count = max(1, int(steps * _DRAWS))
    starts = [draw(rng) for _ in range(draw_count)]
    losses = [judge.try_out(start) for start in starts]
    worst_start = int(np.argmax(losses))
    here = starts[worst_start]
    loss = max(losses)
    worst = here
    worst_loss = judge.steady_loss(here)
    for step in range(len(starts), steps):
        temperature = _WARM * (_COLD / _WARM) ** (step / steps)
        candidate = here.neighbour(rng)
        if candidate == here:
            continue
        candidate_loss = judge.try_out(candidate)
        gain = candidate_loss - loss
        # Where all was refused so far, anything is as good.
        moves_on = math.isnan(gain) or gain >= 0
        if not moves_on:
            chance = math.exp(gain / temperature)
            moves_on = rng.random() < chance
        if moves_on:
            here = candidate
            loss = candidate_loss
            if loss > worst_loss:
                steady_loss = judge.steady_loss(here)
                if steady_loss > worst_loss:
                    worst = here
                    worst_loss = steady_loss
        if watch is not None:
            watch(judge.tries, worst_loss)

    return worst


def _simplify(instance: I, judge: _Judge[I]) -> I:
    """Return the simplest instance found that keeps nearly all of the loss."""
    least = judge.steady_loss(instance) * (1.0 - _GIVEN_UP)
    if least <= 0.0:
        return instance
    is_simplest = False
    while not is_simplest:
        is_simplest = True
        for simpler in instance.simpler():
            if judge.steady_loss(simpler) >= least:
                instance = simpler
                is_simplest = False
                break
    return instance
