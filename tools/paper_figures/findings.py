"""From spans to means: paired savings beside the paper's, as tables and figures."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from emu.runs.intervals import Interval, interval
from tools.paper_figures.contest import Span

#: What lies within its interval of 0.
TIE = "tie"
#: A saving is reproduced when it is at most this share of the paper's away from it.
BAND = 0.2


def word(found: Interval) -> str:
    """Return whether the sign is certain: saves, costs, or a tie; so is one draw."""
    if found.tie or found.count < 2:
        return TIE
    return "saves" if found.mean > 0 else "costs"


#: (setting, sweep, contender) -> x -> training times over the draws, seconds.
Series = dict[tuple[str, str, str], dict[float, list[float]]]


def by_series(spans: Iterable[Span]) -> Series:
    """Return training times in the order of the draws, of one kind of clusters."""
    found: Series = defaultdict(lambda: defaultdict(list))
    swept = (span for span in spans if span.sweep != "search")
    for span in sorted(swept, key=lambda span: (span.x, span.draw)):
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
    """A claim and what is seen of it here.

    Parameters
    ----------
    claim
        Of the paper.
    mean
        Saving at the best point, as a mean over the draws, with its interval.
    most
        The largest saving of any draw and point, as the paper's "up to" is.
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
        if self.most <= 0:
            return "the opposite"
        if abs(self.most / self.claim.reported - 1) <= BAND:
            return "reproduced"
        return "larger" if self.most > self.claim.reported else "smaller"


def said(found: Interval) -> str:
    """Return a mean saving with its interval, which one draw has none of."""
    half = f" ± {found.half:.1%}" if found.count > 1 else ""
    return f"{found.mean:+.1%}{half}"


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


#: Number of the paper's figure -> (setting, sweep).
FIGURES = {
    6: ("products", "batch"),
    7: ("papers100M", "batch"),
    8: ("products", "pmr"),
    9: ("papers100M", "pmr"),
}
AXES = {"batch": "batch size per sampler", "pmr": "peak-to-mean ratio"}
#: Reading of "cores" -> what the machines have.
READINGS = {"cores": "a core is two logical ones", "logical": "a core is a logical one"}
#: Contender -> (colour, line style, marker); Okabe and Ito's colours.
LINES = {
    "DGTP": ("#0072B2", "-", "o"),
    "DistDGL": ("#D55E00", "-", "s"),
    "DistDGL FIFO": ("#D55E00", ":", "s"),
    "OMCoflow": ("#009E73", "--", "^"),
    "OMCoflow wc": ("#009E73", ":", "^"),
    "MRTF": ("#CC79A7", "--", "v"),
    "MRTF exclusive": ("#CC79A7", ":", "v"),
    "max-min": ("#56B4E9", ":", "x"),
    "ours": ("#000000", "-", "D"),
}


def draw_sweep(number: int, readings: Mapping[str, Series], folder: Path) -> Path:
    """Draw figure ``number``: times relative to DGTP's, a panel per reading."""
    setting, sweep = FIGURES[number]
    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    panels = figure.subplots(1, len(readings), sharey=True, squeeze=False)[0]
    for axes, (reading, series) in zip(panels, readings.items(), strict=True):
        reference = series[setting, sweep, "DGTP"]
        for contender in LINES:
            _line(axes, contender, series[setting, sweep, contender], reference)
        draws = max(map(len, reference.values()))
        axes.set_title(f"{READINGS[reading]}, {draws} clusters", fontsize="small")
        axes.set(xlabel=AXES[sweep])
    panels[0].set(ylabel="training time relative to DGTP's")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside right center", fontsize="x-small", frameon=False
    )
    figure.suptitle(
        f"Figure {number}: {setting}, mean over clusters and its 95 % interval",
        fontsize="medium",
    )
    path = folder / f"figure_{number}.svg"
    with mpl.rc_context({"svg.hashsalt": "emu"}):
        figure.savefig(path, metadata={"Date": None})
    return path


def _line(
    axes: Axes,
    contender: str,
    points: Mapping[float, Sequence[float]],
    reference: Mapping[float, Sequence[float]],
) -> None:
    colour, style, marker = LINES[contender]
    xs = sorted(points)
    found = [
        interval([a / b for a, b in zip(points[x], reference[x], strict=True)])
        for x in xs
    ]
    axes.errorbar(
        xs,
        [i.mean for i in found],
        yerr=[i.half for i in found],
        label=contender,
        color=colour,
        linestyle=style,
        marker=marker,
        markersize=4,
        linewidth=1.2,
        capsize=2,
    )


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; the first column is text, the others are numbers."""
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def verdict_table(found: Mapping[str, Sequence[Verdict]]) -> str:
    """Return the paper's savings beside ours for every reading, "up to" both."""
    headings = ["figure", "against", "paper: up to"]
    for reading in found:
        headings += [f"{reading}: up to", "is", "mean", "first, last x"]
    rows = []
    for claims in zip(*found.values(), strict=True):
        first = claims[0].claim
        row = [f"{first.figure} {first.setting}", first.other, f"{first.reported:.0%}"]
        for v in claims:
            row += [
                f"{v.most:+.1%}",
                v.word,
                said(v.mean),
                f"{v.first:+.1%}, {v.last:+.1%}",
            ]
        rows.append(row)
    return table(headings, rows)


def comparison_table(found: Mapping[str, Sequence[Comparison]]) -> str:
    """Return paired savings, a column per kind of clusters."""
    rows = []
    for pair in zip(*found.values(), strict=True):
        cells = [
            f"{said(c.saved)} ({c.better} of {c.draws}), {word(c.saved)}" for c in pair
        ]
        rows.append([f"{pair[0].one} on {pair[0].other}", *cells])
    return table(["saving of", *found], rows)


#: Words -> contender, and what it is held against.
DUELS = {
    "search against ETP": ("search", "ETP"),
    "DGTP (ETP) against DistDGL": ("DGTP", "DistDGL"),
    "search against DistDGL": ("search", "DistDGL"),
    "gap of ETP to the bound": ("ETP", "bound"),
    "gap of search to the bound": ("search", "bound"),
}


def duel_table(spans: Sequence[Span]) -> str:
    """Return the distribution of what the searches found, given the same time."""
    rows = []
    found = [s for s in spans if s.sweep == "search" and s.nics == "symmetric"]
    for setting, reading in dict.fromkeys((s.setting, s.demands) for s in found):
        own: dict[str, list[float]] = defaultdict(list)
        for span in found:
            if (span.setting, span.demands) == (setting, reading):
                own[span.contender].append(span.makespan)
        for name, (one, other) in DUELS.items():
            ratio = np.array(own[one]) / np.array(own[other])
            values = ratio - 1 if other == "bound" else 1 - ratio
            points = np.quantile(values, (0.05, 0.5, 0.95))
            cells = (f"{point:.1%}" for point in points)
            rows.append([f"{setting}, {reading}: {name}", *cells])
    return table(["placements", "5 %", "median", "95 %"], rows)
