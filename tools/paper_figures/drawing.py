"""The figures and the two tables of the study."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from tools.paper_figures.findings import interval, quantiles

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from tools.paper_figures.contest import Duel
    from tools.paper_figures.findings import Series, Verdict

#: Number of the paper's figure -> (setting, sweep).
FIGURES = {
    6: ("products", "batch"),
    7: ("papers100M", "batch"),
    8: ("products", "pmr"),
    9: ("papers100M", "pmr"),
}
AXES = {"batch": "batch size per sampler", "pmr": "peak-to-mean ratio"}
#: Contender -> (colour, line style, marker); Okabe and Ito's colours.
LINES = {
    "DGTP": ("#0072B2", "-", "o"),
    "DistDGL": ("#D55E00", "--", "s"),
    "OMCoflow": ("#009E73", "--", "^"),
    "MRTF": ("#CC79A7", "--", "v"),
    "MRTF exclusive": ("#CC79A7", ":", "v"),
    "max-min": ("#56B4E9", ":", "x"),
    "ours": ("#000000", "-", "D"),
}
PARTS_OF = {"ETP": "#0072B2", "search": "#000000"}


def draw_sweep(number: int, series: Series, folder: Path) -> list[Path]:
    """Draw figure ``number``, left the training times, right their ratio to DGTP's."""
    setting, sweep = FIGURES[number]
    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    times, ratios = figure.subplots(1, 2)
    shown = {
        c: series[setting, sweep, c] for c in LINES if (setting, sweep, c) in series
    }
    for contender, points in shown.items():
        reference = shown["DGTP"]
        relative = {
            x: [a / b for a, b in zip(values, reference[x], strict=True)]
            for x, values in points.items()
        }
        hours = {x: [value / 3600 for value in values] for x, values in points.items()}
        _line(times, contender, hours)
        _line(ratios, contender, relative)
    times.set(xlabel=AXES[sweep], ylabel="training time, h", ylim=(0, None))
    ratios.set(xlabel=AXES[sweep], ylabel="time relative to DGTP")
    times.legend(fontsize="x-small", frameon=False, ncols=2)
    draws = max(len(values) for values in shown["DGTP"].values())
    figure.suptitle(
        f"Figure {number}: {setting}, mean of {draws} clusters and 95 % interval",
        fontsize="medium",
    )
    return _save(figure, folder / f"figure_{number}")


def _line(axes: Axes, contender: str, points: dict[float, list[float]]) -> None:
    colour, style, marker = LINES[contender]
    xs = sorted(points)
    found = [interval(points[x]) for x in xs]
    halves = [i.half if np.isfinite(i.half) else 0.0 for i in found]
    axes.errorbar(
        xs,
        [i.mean for i in found],
        yerr=halves,
        label=contender,
        color=colour,
        linestyle=style,
        marker=marker,
        markersize=4,
        linewidth=1.2,
        capsize=2,
    )


def draw_duels(duels: Sequence[Duel], folder: Path) -> list[Path]:
    """Draw ETP against the improved search: time saved, and both gaps, as ECDFs."""
    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    gains, gaps = figure.subplots(1, 2)
    for setting, style in zip(
        dict.fromkeys(d.setting for d in duels), "-:", strict=False
    ):
        own = [duel for duel in duels if duel.setting == setting]
        _steps(gains, [100 * d.gain for d in own], setting, "#000000", style)
        for name, values in (
            ("ETP", [100 * (d.etp / d.bound - 1) for d in own]),
            ("search", [100 * (d.search / d.bound - 1) for d in own]),
        ):
            _steps(gaps, values, f"{name}, {setting}", PARTS_OF[name], style)
    gains.set(
        xlabel="time that the search saves on ETP's, %", ylabel="part of clusters"
    )
    gaps.set(xlabel="above the lower bound of all placements, %")
    for axes in (gains, gaps):
        axes.legend(fontsize="x-small", frameon=False)
    figure.suptitle("Placement searches given the same time", fontsize="medium")
    return _save(figure, folder / "search")


def _steps(
    axes: Axes, values: Sequence[float], label: str, colour: str, style: str
) -> None:
    parts = np.arange(1, len(values) + 1) / len(values)
    axes.step(
        sorted(values), parts, where="post", label=label, color=colour, linestyle=style
    )


def _save(figure: Figure, stem: Path) -> list[Path]:
    paths = [stem.with_suffix(suffix) for suffix in (".svg", ".png")]
    for path in paths:
        figure.savefig(path, dpi=150)
    return paths


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """Return the paper's savings beside ours, at the best point of every sweep."""
    table = Table(title="Time that DGTP saves, up to: the paper and this reproduction")
    table.add_column("figure")
    table.add_column("against")
    for heading in ("paper", "mean", "95 %", "best draw"):
        table.add_column(heading, justify="right")
    table.add_column("first, last x", justify="right")
    table.add_column("ours saves", justify="right")
    table.add_column("seen")
    for v in verdicts:
        table.add_row(
            f"{v.claim.figure} {v.claim.setting}",
            v.claim.other,
            f"{v.claim.reported:.0%}",
            f"{v.mean.mean:.1%}",
            f"±{v.mean.half:.1%}",
            f"{v.most:.1%}",
            f"{v.first:.1%}, {v.last:.1%}",
            f"{v.ours:.1%}",
            v.word,
        )
    return table


def duel_table(duels: Sequence[Duel]) -> Table:
    """Return the distribution of what the searches found, per setting."""
    table = Table(title="Placement searches given the same time, over the clusters")
    table.add_column("setting")
    table.add_column("what")
    for heading in ("5 %", "median", "95 %"):
        table.add_column(heading, justify="right")
    for setting in dict.fromkeys(duel.setting for duel in duels):
        own = [duel for duel in duels if duel.setting == setting]
        for name, points in quantiles(own).items():
            table.add_row(setting, name, *(f"{point:.2%}" for point in points))
        seconds = np.median([(d.seconds_etp, d.seconds_search) for d in own], axis=0)
        counts = np.median(
            [(d.candidates_etp, d.candidates_search) for d in own], axis=0
        )
        table.add_row(
            setting,
            "ETP and search: s, candidates",
            "",
            f"{seconds[0]:.1f}, {seconds[1]:.1f}",
            f"{counts[0]:.0f}, {counts[1]:.0f}",
        )
    return table
