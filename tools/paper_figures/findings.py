"""From spans to means: paired savings, their intervals, and the paper's beside them."""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tools.paper_figures.contest import Duel, Span

#: Two-sided 95 % points of Student's t by degrees of freedom; 1.96 beyond.
_STUDENT = {
    1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26,
    10: 2.23, 12: 2.18, 15: 2.13, 19: 2.09, 24: 2.06, 29: 2.05, 39: 2.02, 59: 2.00,
}  # fmt: skip


#: What lies within its interval of 0.
TIE = "tie"
#: A saving is reproduced when it is at most this share of the paper's away from it.
BAND = 0.2


@dataclass(frozen=True)
class Interval:
    """A mean and the half width of its 95 % interval (Student's t)."""

    mean: float
    half: float

    @property
    def word(self) -> str:
        """Whether the sign is certain: saves, costs, or a tie."""
        if abs(self.mean) <= self.half:
            return TIE
        return "saves" if self.mean > 0 else "costs"


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of ``values`` and its 95 % interval; infinite for one value."""
    if len(values) < 2:
        return Interval(values[0], np.inf)
    error = statistics.stdev(values) / len(values) ** 0.5
    freedom = max((f for f in _STUDENT if f < len(values)), default=1)
    factor = 1.96 if len(values) > 120 else _STUDENT[freedom]
    return Interval(statistics.fmean(values), factor * error)


#: (setting, sweep, contender) -> x -> training times over the draws, seconds.
Series = dict[tuple[str, str, str], dict[float, list[float]]]


def by_series(spans: Iterable[Span]) -> Series:
    """Return training times in the order of the draws, of one kind of clusters."""
    found: Series = defaultdict(lambda: defaultdict(list))
    for span in sorted(spans, key=lambda span: (span.x, span.draw)):
        key = span.setting, span.sweep, span.contender
        found[key][span.x].append(span.training)
    return found


@dataclass(frozen=True)
class Claim:
    """What the paper reports DGTP to save, "up to", as part of the other's time.

    ``reported`` has the settings of the paper's sentence; a sentence on both settings
    counts for each.
    """

    figure: str
    setting: str
    sweep: str
    other: str
    reported: float


CLAIMS = tuple(
    Claim(figure, setting, sweep, other, reported)
    for figure, setting, sweep, savings in (
        ("6", "products", "batch", (0.11, 0.33, 0.67)),
        ("7", "papers100M", "batch", (0.25, 0.33, 0.67)),
        ("8", "products", "pmr", (0.26, 0.37, 0.55)),
        ("9", "papers100M", "pmr", (0.26, 0.37, 0.55)),
    )
    for other, reported in zip(("DistDGL", "OMCoflow", "MRTF"), savings, strict=True)
)


@dataclass(frozen=True)
class Verdict:
    """A claim and what we see of it.

    Parameters
    ----------
    claim
        What the paper says.
    mean
        Saving at the best point, as a mean over the draws, with its interval.
    most
        The largest saving of any draw and point.
    first, last
        Mean savings at the smallest and largest x: whether the gain grows.
    """

    claim: Claim
    mean: Interval
    most: float
    first: float
    last: float

    @property
    def word(self) -> str:
        """How the claim fares: reproduced only within `BAND` of it, either way."""
        if self.mean.word == TIE:
            return TIE
        if self.mean.mean < 0:
            return "the opposite"
        if abs(self.mean.mean / self.claim.reported - 1) <= BAND:
            return "reproduced"
        return "larger" if self.mean.mean > self.claim.reported else "smaller"


def saving(new: Sequence[float], old: Sequence[float]) -> list[float]:
    """Return (old - new) / old of every draw."""
    return [(b - a) / b for a, b in zip(new, old, strict=True)]


def verdicts(series: Series) -> list[Verdict]:
    """Return every claim that ``series`` has the contenders of, judged."""
    found = []
    for claim in CLAIMS:
        place = claim.setting, claim.sweep
        if (*place, claim.other) not in series:
            continue
        others = series[*place, claim.other]
        dgtp = {
            x: saving(times, others[x]) for x, times in series[*place, "DGTP"].items()
        }
        means = {x: statistics.fmean(values) for x, values in dgtp.items()}
        best = max(means, key=means.__getitem__)
        found.append(
            Verdict(
                claim,
                interval(dgtp[best]),
                max(max(values) for values in dgtp.values()),
                means[min(means)],
                means[max(means)],
            )
        )
    return found


#: What is compared at the reference point: what saves, and on what.
PAIRS = (
    ("DGTP", "DistDGL"),
    ("ours", "DistDGL"),
    ("ours", "DGTP"),
    ("DGTP", "DistDGL OES"),
    ("DGTP", "max-min"),
    ("DistDGL OES", "DistDGL"),
    ("DGTP", "DistDGL FIFO"),
    ("DGTP", "DGTP FIFO"),
    ("DGTP", "OMCoflow"),
    ("DGTP", "OMCoflow wc"),
    ("DGTP", "MRTF"),
    ("DGTP", "MRTF exclusive"),
)


@dataclass(frozen=True)
class Comparison:
    """What one contender saves on another, cluster by cluster."""

    one: str
    other: str
    saved: Interval
    better: int
    draws: int


def comparisons(series: Series, setting: str, batch: float) -> list[Comparison]:
    """Return `PAIRS` of a setting at one batch size, flows as sampled."""

    def times(contender: str) -> list[float]:
        return series[setting, "batch", contender][batch]

    found = []
    for one, other in PAIRS:
        saved = saving(times(one), times(other))
        better = sum(value > 0 for value in saved)
        found.append(Comparison(one, other, interval(saved), better, len(saved)))
    return found


def write_rows(path: Path, rows: Sequence[Any]) -> None:
    """Write dataclasses of one type as CSV, fields as columns."""
    with path.open("w", newline="") as file:
        names = [field.name for field in fields(rows[0])]
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def quantiles(duels: Sequence[Duel]) -> dict[str, tuple[float, float, float]]:
    """Return 5 %, 50 % and 95 % points of what the duels show: time saved, gaps."""
    values = {
        "search against ETP": [duel.gain for duel in duels],
        "DGTP (ETP) against DistDGL": [1 - d.dgtp / d.distdgl for d in duels],
        "search against DistDGL": [1 - d.search / d.distdgl for d in duels],
        "gap of ETP to the bound": [duel.etp / duel.bound - 1 for duel in duels],
        "gap of search to the bound": [duel.search / duel.bound - 1 for duel in duels],
    }
    return {
        name: tuple(np.quantile(column, (0.05, 0.5, 0.95)).tolist())
        for name, column in values.items()
    }
