"""Several runs of one scenario: how far a further one may be off, and what that says.

One run is one draw of what the network and the host do. Three of one scenario over
kernel TCP were +1.3, +2.8 and +17 % off: the verdict on any of them is luck.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from statistics import median

import numpy as np

from emu.array_types import Floats
from emu.problem import Schedule
from emu.runs.intervals import interval
from emu.runs.result import Result

#: Runs below which no two groups of makespans are told from a wide one.
_LEAST_OF_MODES = 4
#: A gap that parts two groups is so many times as wide as the wider of them.
_APART = 3.0


class Agreement(StrEnum):
    """Outcome of a prediction beside several runs."""

    AGREES = "agrees"
    """A further run would, with 95 %."""
    DIFFERS = "differs"
    """A further run would not, with 95 %."""
    UNDECIDED = "undecided"
    """A further run may do either: more runs narrow the interval, or show that chance
    decides."""
    ONE_DRAW = "one draw"
    NOT_JUDGED = "not judged"
    """Nothing was predicted."""


@dataclass(frozen=True)
class Span:
    """Interval in which a further value lies with 95 %."""

    low: float
    high: float

    @property
    def half(self) -> float:
        """Half of its width."""
        return (self.high - self.low) / 2.0


def further(values: Sequence[float]) -> Span:
    """Return the interval in which one more value lies with 95 %.

    Student's t for a further draw: wider than that of the mean, and it stays as wide as
    the draws are, however many there are. Infinite for one value.
    """
    count = len(values)
    if count == 1:
        return Span(-math.inf, math.inf)
    mean = interval(values)
    # The half of a mean is t s / sqrt(n); a further draw has t s sqrt(1 + 1/n).
    half = mean.half * math.sqrt(count + 1.0)
    return Span(mean.mean - half, mean.mean + half)


def modes(values: Sequence[float]) -> list[list[float]]:
    """Return the values in groups that lie clearly apart, each in order.

    One group where there are few values, or no gap is three times as wide as the groups
    on both sides of it.
    """
    ordered = sorted(values)
    if len(ordered) < _LEAST_OF_MODES:
        return [ordered]
    gaps = np.diff(ordered)
    cut = int(np.argmax(gaps)) + 1
    groups = [ordered[:cut], ordered[cut:]]
    widths = [group[-1] - group[0] for group in groups]
    widest = max(widths)

    # A single value far off may be a second state, or an accident: it is no group.
    is_single = min(map(len, groups)) == 1
    if is_single or gaps[cut - 1] <= _APART * widest:
        return [ordered]
    return groups


@dataclass(frozen=True)
class RunFigures:
    """Figures that are kept of one run."""

    path: str
    makespan: float
    """Seconds."""
    error: float | None
    """Error against what was predicted before the run; None of a lab without that."""
    trust: str
    iterations: tuple[float, ...] = ()
    """Seconds from the end of one iteration to that of the next."""
    started_anew: str = ""
    """Why its processes are not those of the run before; empty of the first, and where
    they are."""


@dataclass(frozen=True)
class Repeats:
    """Runs of one scenario."""

    runs: tuple[RunFigures, ...]
    threshold: float
    """Share by which prediction and run may differ."""

    @property
    def makespan(self) -> float:
        """Median, seconds."""
        return median(run.makespan for run in self.runs)

    @property
    def nearest(self) -> RunFigures:
        """Run whose makespan is nearest to the median."""
        makespan = self.makespan
        return min(self.runs, key=lambda run: abs(run.makespan - makespan))

    @property
    def errors(self) -> list[float]:
        """Error of each run that was predicted."""
        return [run.error for run in self.runs if run.error is not None]

    @property
    def error(self) -> float | None:
        """Median of the errors; None where nothing was predicted."""
        if not self.errors:
            return None
        return median(self.errors)

    @property
    def further_error(self) -> Span:
        """Interval in which the error of a further run lies."""
        if not self.errors:
            return Span(-math.inf, math.inf)
        return further(self.errors)

    @property
    def further_makespan(self) -> Span:
        """Interval in which the makespan of a further run lies."""
        makespans = [run.makespan for run in self.runs]
        return further(makespans)

    @property
    def outcome(self) -> Agreement:
        """Outcome of the prediction: it agrees only where the interval does."""
        if not self.errors:
            return Agreement.NOT_JUDGED
        if len(self.errors) == 1:
            return Agreement.ONE_DRAW
        span = self.further_error
        threshold = self.threshold
        if -threshold <= span.low and span.high <= threshold:
            return Agreement.AGREES
        if span.low > threshold or span.high < -threshold:
            return Agreement.DIFFERS
        return Agreement.UNDECIDED

    @property
    def is_decided(self) -> bool:
        """True where the interval is as narrow as the threshold, and agrees or differs.

        Without a prediction: where that of the makespan is.
        """
        if len(self.runs) == 1:
            return False
        half = 0.0
        if self.errors:
            half = self.further_error.half
        elif self.makespan:
            half = self.further_makespan.half / self.makespan
        is_narrow = half <= self.threshold
        return is_narrow and self.outcome is not Agreement.UNDECIDED

    def iteration_table(self) -> list[Result]:
        """Return median and interval of every iteration that all runs have, seconds."""
        count = min(len(run.iterations) for run in self.runs)
        table = []
        for iteration in range(count):
            seconds = [run.iterations[iteration] for run in self.runs]
            span = further(seconds)
            row = {
                "median": median(seconds),
                "low": span.low,
                "high": span.high,
            }
            table.append(_finite(row))
        return table

    def to_json(self) -> Result:
        """Return the content of ``--json``, see docs/results.md."""
        makespans = [run.makespan for run in self.runs]
        further_makespan = asdict(self.further_makespan)
        further_error = asdict(self.further_error)

        return {
            "makespan": self.makespan,
            "further_makespan": _finite(further_makespan),
            "error": self.error,
            "further_error": _finite(further_error),
            "threshold": self.threshold,
            "outcome": str(self.outcome),
            "groups": modes(makespans),
            "iterations": self.iteration_table(),
            "runs": [asdict(run) for run in self.runs],
        }


def _finite(row: dict[str, float]) -> Result:
    """Return a row in which what is infinite is None: JSON knows no infinity."""
    finite_row: Result = {}
    for key, value in row.items():
        finite_row[key] = value if math.isfinite(value) else None
    return finite_row


def iteration_lengths(schedule: Schedule) -> Floats:
    """Return the seconds from the end of one iteration to that of the next.

    An iteration ends with the last of its tasks, and of those before it; the first
    begins with the job.
    """
    # Tasks with fewer rounds than the job have NaN behind their last one.
    ends = np.fmax.reduce(schedule.task_end, axis=0)
    # Some task of an earlier iteration may end after the next one.
    return np.diff(np.maximum.accumulate(ends), prepend=0.0)


def spread_of_iterations(seconds: Floats, simulated: Floats) -> float | None:
    """Return the share by which a further run may be off, as one's iterations suggest.

    Half of a 95 % interval, as `further`: iterations are taken for independent draws,
    so that what all of them share is not in it. None for fewer than three.

    Parameters
    ----------
    seconds, simulated
        Length of every iteration of a run, and of its simulation.
    """
    count = min(len(seconds), len(simulated))
    simulated_iterations = simulated[:count]
    length = float(simulated_iterations.sum())
    if count < 3 or not length:
        return None
    late = seconds[:count] - simulated_iterations
    deviation = float(np.std(late, ddof=1))
    # Two runs part by sqrt(2) times what one parts from its mean.
    of_both = math.sqrt(2.0 * count)
    half = 1.96 * of_both * deviation
    return half / length
