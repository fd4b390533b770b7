"""Sections of ``job`` on the lambdas of Dorylus: launches, failures, their number."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from emu.problem.fields.quantities import Duration, Few, Positive, Ratio
from emu.problem.fields.section import Section
from emu.problem.machine import LEAST_PERIOD
from emu.units import DURATION


class LaunchSection(Section):
    """Time to launch a lambda, from when the graph task before it starts."""

    cold: Duration = 0.0
    """First of each interval."""
    warm: Duration = 0.0
    """Later ones."""

    @property
    def takes_time(self) -> bool:
        """True where a launch is a task of its own."""
        return self.cold > 0 or self.warm > 0


class SlowLambdasSection(Section):
    """Lambdas that take longer, chosen by the seed before the run."""

    share: Ratio = 0.0
    """Probability, per task and epoch."""
    factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    """Mean slowdown."""
    spread: Literal["constant", "exponential"] = "constant"
    """``exponential``: 1 plus an exponential variable of mean factor - 1."""

    def factors(self, seed: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Return what the time of every (lambda, epoch) is multiplied with.

        Epochs that follow change none before: ``until`` decides how many there are.
        """
        draws = np.random.default_rng([seed, 7]).random((*shape[::-1], 2)).T
        extra = np.full(shape, self.factor - 1.0)
        if self.spread == "exponential":
            extra *= -np.log1p(-draws[1])
        return 1.0 + np.where(draws[0] < self.share, extra, 0.0)


def _long_enough(period: float) -> float:
    if period < LEAST_PERIOD:
        seconds, least = DURATION.exact(period), DURATION.exact(LEAST_PERIOD)
        raise ValueError(f"found {seconds}, write {least} or more")
    return period


class TunerSection(Section):
    """Autotuner of ``lambdas: auto``, from min(intervals, 100) on.

    Each period, by the slope of a server's queue for threads over five periods: where
    it is positive the quota falls by a tenth, where negative it rises by one.
    """

    period: Annotated[Duration, AfterValidator(_long_enough)] = 1.0
    """Time between looks at the queue; the paper states none."""


class DyingLambdasSection(Section):
    """Lambdas that do not answer in time, chosen by the seed before the run.

    Their server waits for ``timeout``, at the least, launches another, cold, and drops
    what the first still sends. One that is slow, and answers, is waited for.
    """

    share: Annotated[Ratio, Field(ge=0, le=1)] = 0.0
    """Probability, per task and epoch, and of each lambda launched instead."""
    late: Annotated[Ratio, Field(ge=0, le=1)] = 0.5
    """Share of them that do their work and answer too late; the others die in it."""
    timeout: Duration = 0.5
    """Least time from the call to the launch of another."""
    ratio: Positive = 5.0
    """Or that many times what this step took lambdas of the server in epochs before,
    smoothed: 0.95 of the mean so far and 0.05 of the next, bytes apart."""
    attempts: Annotated[Few, Field(le=100)] = 5
    """Lambdas of one task and epoch; that none answers is an error."""
