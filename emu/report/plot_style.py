"""Style of figures: Okabe-Ito colours, sizes for two-column papers, light and dark.

Must not know: what is drawn. Imported only where a figure is drawn: matplotlib takes
half a second to import.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from emu.errors import DataError
from emu.host.files import whole_file
from emu.problem import Cluster
from emu.runs.recorded_run import RecordedRun

#: Okabe and Ito (2008): distinct with every kind of colour blindness, and in grey.
COLOURS = (
    "#0072B2",  # blue
    "#E69F00",  # orange
    "#009E73",  # bluish green
    "#CC79A7",  # reddish purple
    "#56B4E9",  # sky blue
    "#D55E00",  # vermillion
    "#F0E442",  # yellow
)
_SKY_BLUE = 4
#: Widths in inches: a page of text, as two columns of a paper.
WIDTH = 7.2
#: Endings of files that figures are written to.
FORMATS = ("svg", "pdf", "png")
#: Colours of text, paper and grids on bright paper, and on dark (True).
_INK = {False: "#1a1a1a", True: "#e6e6e6"}
_PAPER = {False: "#ffffff", True: "#16181d"}
_FAINT = {False: "#d0d0d0", True: "#3a3f47"}


@contextmanager
def style(*, dark: bool) -> Iterator[None]:
    """Draw what is drawn inside with our fonts and colours, on a solid background.

    The background is painted, so that a figure stays readable in whatever page or
    viewer it is put, bright or dark.
    """
    keys_of = {
        _INK[dark]: "text.color axes.labelcolor axes.titlecolor axes.edgecolor "
        "xtick.color ytick.color",
        _PAPER[dark]: "figure.facecolor axes.facecolor savefig.facecolor",
        _FAINT[dark]: "grid.color",
    }

    settings: Any = {}
    for colour, keys in keys_of.items():
        settings |= dict.fromkeys(keys.split(), colour)
    settings |= {
        "grid.linewidth": 0.6,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.7,
        "axes.titlesize": 8.5,
        "axes.titlelocation": "left",
        "axes.labelsize": 8,
        "xtick.labelsize": 7.5,
        "ytick.labelsize": 7.5,
        "legend.fontsize": 7.5,
        "legend.frameon": False,
        "lines.linewidth": 1.3,
        "font.family": "sans-serif",
        "svg.fonttype": "none",  # text stays text: searchable, and small files
        "svg.hashsalt": "emu",  # the same figure is the same file
        # TrueType: checks of some publishers refuse Type 3, which is the default.
        "pdf.fonttype": 42,
        "text.parse_math": False,  # a name may hold dollars
    }

    with mpl.rc_context(settings):
        yield


def colours(names: Sequence[str]) -> dict[str, str]:
    """Return a colour for every name, in order; they repeat after seven."""
    distinct = dict.fromkeys(names)
    return dict(zip(distinct, palette(len(distinct)), strict=True))


def palette(count: int) -> list[str]:
    """Return ``count`` colours; on dark paper sky blue takes the place of blue."""
    shades = [*COLOURS]
    is_dark = mpl.rcParams["axes.facecolor"] == _PAPER[True]
    if is_dark:
        shades[0] = COLOURS[_SKY_BLUE]
        shades[_SKY_BLUE] = COLOURS[0]
    return [shades[number % len(shades)] for number in range(count)]


def ink() -> str:
    """Return the colour of text and emphasis in the current style."""
    return str(mpl.rcParams["text.color"])


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """Return an empty figure of that size in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    # Without pyplot, which would keep every figure and look for a display.
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure; the ending gives the format, one of `FORMATS`.

    Raises DataError when the ending is another one, or the file cannot be written.
    """
    kind = path.suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        names = ", ".join(f".{name}" for name in FORMATS)
        raise DataError(f"ends in none of {names}", path=path)

    # Without a date the same figure is the same file.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with whole_file(path) as partial:
        figure.savefig(
            partial,
            facecolor="auto",
            format=kind,
            dpi=200,
            metadata=metadata.get(kind),
        )


def legend_above(axes: Axes, columns: int = 4) -> None:
    """Put the legend above the plot, where it covers no data."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=columns,
        columnspacing=1.2,
        handlelength=1.4,
    )


#: Inches below which a figure is of one column of a paper.
_COLUMN = 5.0


@dataclass(frozen=True)
class Window:
    """A part of a figure; the default is all of it."""

    width: float = WIDTH
    """Inches."""
    since: float = 0.0
    until: float = math.inf
    """Emulated seconds between which a time axis shows; 0 with all before it."""
    machines: tuple[str, ...] = ()
    """Names of those that are shown; empty for all, and for links that are no NIC."""
    only: str = ""
    """``emulated`` or ``simulated``; empty for both."""
    clock: str = ""
    """Kind of time of the runs shown, likewise; empty where it is of both."""

    @property
    def narrow(self) -> bool:
        """True where the figure is for one column."""
        return self.width < _COLUMN

    def time_axis(
        self,
        axes: Axes,
        end: float,
        begin: float = 0.0,
    ) -> None:
        """Limit and label the time axis of a figure from ``begin`` to ``end`` seconds.

        Raises DataError when that is nothing.
        """
        # 0 is also what is not stated: the axis begins with the first attempt then.
        since = self.since or begin
        until = min(self.until, end or 1.0)
        if not since < until:
            raise DataError(
                f"nothing is left from {since:g} s to {until:g} s, "
                f"the runs end at {end:g} s"
            )
        axes.set_xlim(since, until)
        axes.set_xlabel(f"{self.clock} time (s)".lstrip())

    def shows(self, cluster: Cluster, machine: int) -> bool:
        """Return True where a machine is shown, by its position; -1 is no machine."""
        if not self.machines:
            return True
        # Who names machines asks for these alone, and not for the links between them.
        return machine >= 0 and cluster.machines[machine].name in self.machines

    def of(self, run: RecordedRun) -> RecordedRun:
        """Return a run with the schedule alone that is to be shown.

        Raises DataError when it has no such schedule, or no such machine.
        """
        names = run.problem.cluster.names
        for name in self.machines:
            if name not in names:
                problem = f"has no machine {name!r}, known: {', '.join(names)}"
                raise DataError(problem, path=run.path)
        if not self.only:
            return run
        if getattr(run, self.only) is None:
            raise DataError(f"has no {self.only} schedule", path=run.path)
        if self.only == "emulated":
            return replace(run, simulated=None)
        return replace(run, emulated=None)
