"""The figures of the study, and its tables as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from tools.paper_figures.findings import interval, quantiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from tools.paper_figures.contest import Duel
    from tools.paper_figures.findings import Comparison, Series, Verdict
    from tools.paper_figures.landscape import Cell, Gain

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
    return _save(figure, folder / f"figure_{number}.svg")


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
        yerr=[i.half if np.isfinite(i.half) else 0.0 for i in found],
        label=contender,
        color=colour,
        linestyle=style,
        marker=marker,
        markersize=4,
        linewidth=1.2,
        capsize=2,
    )


def draw_map(cells: Mapping[Cell, Sequence[Gain]], folder: Path) -> Path:
    """Draw what ETP's placement and the search's save on DistDGL's, cell by cell."""
    loads = sorted({(cell.batch, cell.pmr) for cell in cells})
    spreads = sorted({cell.spread for cell in cells})
    rooms = sorted({cell.room for cell in cells})
    figure = Figure(figsize=(9.0, 5.0), layout="constrained")
    panels = figure.subplots(2, len(loads), sharex=True, sharey=True)
    for row, who in enumerate(("etp", "search")):
        for column, load in enumerate(loads):
            axes = panels[row][column]
            own = {
                (c.spread, c.room): interval([_saved(g, who) for g in gains])
                for c, gains in cells.items()
                if (c.batch, c.pmr) == load
            }
            shown = [[own[s, r].mean for s in spreads] for r in rooms]
            axes.imshow(
                shown, origin="lower", aspect="auto", cmap="RdBu", vmin=-0.5, vmax=0.5
            )
            for (spread, room), found in own.items():
                place = spreads.index(spread), rooms.index(room)
                bold = "bold" if found.mean >= WORTH else "normal"
                text = f"{100 * found.mean:.0f} ± {100 * found.half:.0f}"
                axes.text(
                    *place, text, ha="center", va="center", fontsize=7, fontweight=bold
                )
            axes.set_xticks(range(len(spreads)), [f"{s:g}" for s in spreads])
            axes.set_yticks(range(len(rooms)), [f"{r:g}" for r in rooms])
            pmr = f"PMR {load[1]:g}" if load[1] else "as sampled"
            axes.set_title(f"{who}, batch {load[0]}, {pmr}", fontsize="small")
    figure.supxlabel("fast NIC over slow NIC", fontsize="small")
    figure.supylabel("cores there over cores needed", fontsize="small")
    figure.suptitle(
        "Time that a placement saves on DistDGL's under TCP, % (bold: 10 and more)",
        fontsize="medium",
    )
    return _save(figure, folder / "map.svg")


#: A saving that would be worth a scheduler of one's own.
WORTH = 0.1


def _saved(gain: Gain, who: str) -> float:
    return 1.0 - float(getattr(gain, who)) / gain.distdgl


def _save(figure: Figure, path: Path) -> Path:
    with mpl.rc_context({"svg.hashsalt": "emu"}):
        figure.savefig(path, metadata={"Date": None})
    return path


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; the first column is text, the others are numbers."""
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def verdict_table(found: Mapping[str, Sequence[Verdict]]) -> str:
    """Return the paper's savings beside ours, at the best point, for every reading."""
    headings = ["figure", "against", "paper"]
    for reading in found:
        headings += [f"{reading}: mean", "best cluster", "first, last x", "is"]
    rows = []
    for claims in zip(*found.values(), strict=True):
        first = claims[0].claim
        row = [f"{first.figure} {first.setting}", first.other, f"{first.reported:.0%}"]
        for v in claims:
            row += [
                f"{v.mean.mean:+.1%} ± {v.mean.half:.1%}",
                f"{v.most:+.1%}",
                f"{v.first:+.1%}, {v.last:+.1%}",
                v.word,
            ]
        rows.append(row)
    return table(headings, rows)


def comparison_table(found: Mapping[str, Sequence[Comparison]]) -> str:
    """Return paired savings, a column per kind of clusters."""
    rows = []
    for pair in zip(*found.values(), strict=True):
        cells = [
            f"{c.saved.mean:+.1%} ± {c.saved.half:.1%} "
            f"({c.better} of {c.draws}), {c.saved.word}"
            for c in pair
        ]
        rows.append([f"{pair[0].one} on {pair[0].other}", *cells])
    return table(["saving of", *found], rows)


def duel_table(duels: Sequence[Duel]) -> str:
    """Return the distribution of what the searches found, given the same time."""
    rows = []
    for setting, reading in dict.fromkeys((d.setting, d.demands) for d in duels):
        own = [d for d in duels if (d.setting, d.demands) == (setting, reading)]
        for name, points in quantiles(own).items():
            values = (f"{point:.1%}" for point in points)
            rows.append([f"{setting}, {reading}: {name}", *values])
    return table(["placements", "5 %", "median", "95 %"], rows)
