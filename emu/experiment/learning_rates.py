"""Learning rates that are tried for one class of weights, each as far as it pays.

How long a step takes does not depend on its learning rate: of trainings of equal
mini-batches the best is the one that reaches the target in the fewest steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor, inf, log10

import numpy as np

from emu.array_types import Floats
from emu.errors import ScenarioError
from emu.experiment.systems import Target
from emu.scenario import Scenario, load, prepare
from emu.scenario.virtual_training import accuracy_curve
from emu.training.looks import HELD, epoch_of, hold, reach

#: Passes over the training set after which slow rates are left out, after so many
#: steps at least: whole-graph training takes one in a pass, and starts by chance.
_RUNGS = (4, 12, 36)
_LEAST_STEPS = 12
#: A rate that stands where the leader stood in a third of the time is left out.
_SLOWER = 3
#: Accuracy that a leader gains at least from one rung to the next; a leader that gains
#: less stands still, and those that were left out for it are tried again.
_GAIN = 0.005
#: Where no rate gains that much over so many steps, the target is given up. A training
#: may rest at first, and rests for fewer: at 10 times the rate it would have moved.
_STILL_STEPS = 100
#: Rates that are tried beyond the grid, on one side, where its last one is the best.
_BEYOND = 3
KEY = "job.optimizer.lr"


@dataclass(frozen=True)
class Learning:
    """One learning rate, trained so far."""

    rate: float
    levels: Floats
    """Accuracy that looks in a row hold, by the pass from which they do."""
    steps: float = inf
    """Steps to the target; infinite where it was not reached."""
    passes: float = inf
    """Passes over the training set likewise."""

    @property
    def level(self) -> float:
        """Accuracy that was held at best."""
        return float(self.levels.max(initial=0.0))

    def is_slow(self, leader: Learning) -> bool:
        """Return True for a rate that is several times as slow as another one."""
        early = ceil(len(leader.levels) / _SLOWER)
        level = leader.levels[:early].max(initial=0.0)
        return self.level < float(level)


@dataclass(frozen=True)
class Rates:
    """Learning rates that were tried for one class of weights."""

    tried: Mapping[float, Learning]

    @property
    def best(self) -> Learning:
        """The rate with the fewest steps; without any that came nearest."""
        return min(self.tried.values(), key=nearness)


def nearness(learning: Learning) -> tuple[float, float]:
    """Return what is least of the best rate: its steps, then what it lacks."""
    return learning.steps, -learning.level


def find_rate(
    plain: Scenario,
    target: Target,
    most: float = inf,
    *,
    keep: bool = False,
    watch: Callable[[float], None] = lambda _: None,
) -> Rates:
    """Return the learning rates of a grid around the scenario's, and their steps.

    All are trained for a few passes, those that are not far behind for more, until one
    reaches the target, or all stand still before it. Where the best is the last of the
    grid, the next one is tried.

    ``plain``: a job that trains, of any length. ``most``: passes in which the target
    has to be reached to be of use. ``keep``: whether no rate is tried but the
    scenario's. ``watch`` is called with every rate that is trained. Raises
    ScenarioError, DataError as `accuracy_curve`, but for trainings that diverge.
    """
    most = min(most, target.within)
    # Looks that make it sure come after the one that reaches it.
    useful_passes = max(floor(most), 1)
    passes = min(target.within, useful_passes + HELD - 1)
    file_rate = rate_of(plain)
    race = _Race(plain, target, watch)
    if keep:
        race.run([file_rate], passes)
        return Rates(race.tried)

    passes = race.run(list_rates(file_rate), passes)
    for _ in range(_BEYOND):
        best = race.leader
        beyond = next_rate(best.rate, sorted(race.tried))
        if beyond is None:
            break
        # One pass fewer than the best: later it would not be the better one.
        passes = int(min(passes, best.passes + HELD - 2))
        race.train(beyond, passes)
    return Rates(race.tried)


@dataclass
class _Race:
    """Trainings of one class of weights, each at a learning rate of its own."""

    plain: Scenario
    target: Target
    watch: Callable[[float], None]
    tried: dict[float, Learning] = field(default_factory=dict)
    """The steps and accuracy that every rate reached."""

    @property
    def leader(self) -> Learning:
        return min(self.tried.values(), key=nearness)

    def run(self, grid: Sequence[float], most: int) -> int:
        """Train rates until one reaches the target, or none is to reach it.

        Returns the passes that were trained.
        """
        steps_per_pass = count_steps(self.plain)
        least = _LEAST_STEPS / steps_per_pass
        rungs = [rung for rung in _RUNGS if least <= rung < most]
        alive = [*grid]
        levels: dict[float, float] = {}
        passes_before = 0
        for passes in (*rungs, most):
            self._train_all(alive, passes)
            level_before = max(levels.values(), default=-inf)
            stands_still = self.leader.level < level_before + _GAIN
            if stands_still:
                left_out = [rate for rate in grid if rate not in alive]
                self._train_all(left_out, passes)

            steps = (passes - passes_before) * steps_per_pass
            is_long = bool(levels) and steps >= _STILL_STEPS
            is_given_up = is_long and self._all_stand_still(levels)
            if self.leader.passes < inf or is_given_up:
                return passes

            levels = {rate: learning.level for rate, learning in self.tried.items()}
            passes_before = passes
            # The leader first: the pass in which it is there
            # bounds the training of the others.
            alive = sorted(grid, key=lambda rate: nearness(self.tried[rate]))
            if not stands_still:
                leader = self.leader
                alive = [rate for rate in alive if not self.tried[rate].is_slow(leader)]
        return most

    def _all_stand_still(self, levels: Mapping[float, float]) -> bool:
        """Return True where no rate has gained on what it held itself."""
        return all(
            self.tried[rate].level < level + _GAIN for rate, level in levels.items()
        )

    def _train_all(self, rates: Sequence[float], passes: int) -> None:
        """Train some rates, each no further than it may still be the best."""
        for rate in rates:
            learning = self.train(rate, passes)
            # With the looks that make it sure; a rate
            # that is there later is not the best.
            useful = learning.passes + HELD - 1
            passes = int(min(passes, useful))

    def train(self, rate: float, passes: int) -> Learning:
        """Return one rate, trained for so many passes, or until it is there."""
        self.watch(rate)
        learning = _train(self.plain, self.target, rate, passes)
        self.tried[rate] = learning
        return learning


def _train(plain: Scenario, target: Target, rate: float, passes: int) -> Learning:
    """Return one rate, trained for so many passes, or until it reaches the target."""
    bounded_target = replace(target, within=max(passes, HELD))
    scenario = bounded_target.end(load(plain, {KEY: rate}))
    # With `until` it would be trained here already, to know how long it is.
    without_end = scenario.model_copy(update={"until": None})
    try:
        looks = accuracy_curve(scenario, lambda: prepare(without_end).simulate())
    except ScenarioError as error:
        # The key of a training that diverges; whatever else fails, fails at every rate.
        if error.key != "job.optimizer":
            raise
        return Learning(rate, np.zeros(0))  # it diverged

    accuracy = np.array([look.accuracy for look in looks])
    levels = hold(accuracy)
    place = reach(accuracy, target.accuracy)
    if place is None:
        return Learning(rate, levels)
    # Looks are a pass apart, see `Target.end`.
    step = looks[place].step
    return Learning(
        rate=rate,
        levels=levels,
        steps=step,
        passes=place + 1,
    )


def count_steps(scenario: Scenario) -> int:
    """Return the steps of a pass over the training set."""
    settings = scenario.to_job(train_vertices=1, pins=False).settings
    epoch = epoch_of(settings)
    return epoch.steps if epoch else 1


def rate_of(scenario: Scenario) -> float:
    """Return the learning rate of a job that trains."""
    return float(scenario.job.optimizer.lr)  # type: ignore[attr-defined]


def list_rates(stated: float) -> list[float]:
    """Return the grid around a stated rate, which comes first.

    Of 1 and 3 times powers of ten the two above it, and the one below.
    """
    place = _place_of(stated)
    grid = [_nth_rate(place + number) for number in range(-1, 3)]
    if stated not in grid:
        # A rate between two of the series has one below it without that.
        del grid[0]
    return [stated, *(rate for rate in grid if rate != stated)]


def next_rate(best: float, tried: Sequence[float]) -> float | None:
    """Return the rate beyond the end of what was tried; None where it is no end."""
    place = _place_of(best)
    if best == tried[-1]:
        return _nth_rate(place + 1)
    if best != tried[0]:
        return None
    below = _nth_rate(place)
    if below == best:
        below = _nth_rate(place - 1)
    return below


def _place_of(rate: float) -> int:
    """Return the place of the last rate of the series that is not above this one."""
    # The logarithm of a power of ten may be just below its whole number.
    exponent = floor(log10(rate) + 1e-9)
    place = 2 * exponent
    if rate >= _nth_rate(place + 1):
        place += 1
    return place


def _nth_rate(place: int) -> float:
    """Return a rate of the series ..., 0.01, 0.03, 0.1, 0.3, 1 (place 0), 3, ..."""
    exponent, is_odd = divmod(place, 2)
    digit = 3 if is_odd else 1
    # From text: 3 times 0.1 is not 0.3, and would be another rate than the file's.
    return float(f"{digit}e{exponent}")


def rates_words(tried: Sequence[float]) -> Iterator[str]:
    """Yield the range of what was tried, in words; nothing where nothing was."""
    if len(tried) > 1:
        lowest = min(tried)
        highest = max(tried)
        yield f"lr tried {lowest:g} to {highest:g}"
