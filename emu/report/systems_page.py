"""The page of a table of systems: the table, accuracy over time, what is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from rich.table import Table

from emu.report.html.chart_data import Charts
from emu.report.html.markup import chart, page_title, section, table
from emu.report.html.page import whole_page
from emu.report.system_tables import SystemResult, edit_lines, rank
from emu.report.trace import pack


def systems_page(
    name: str,
    results: Sequence[SystemResult],
    tables: Sequence[Table],
    lines: Sequence[str],
) -> str:
    """Return the page of a scenario's systems, with the tables of the terminal.

    ``lines`` say which is first.
    """
    words = "".join(f"<p>{escape(line)}</p>" for line in lines)
    changes = "".join(
        f"<details><summary>{escape(one.system)}</summary><ul>"
        + "".join(f"<li>{escape(line)}</li>" for line in edit_lines(one))
        + "</ul></details>"
        for one in results
    )
    first, *others = tables
    parts = [
        page_title(name, str(first.title)),
        section("first", "Which system is first", words, table(first)),
        chart("counts", "Accuracy over time", _CURVES),
        *(section(f"table{n}", str(t.title), table(t)) for n, t in enumerate(others)),
        section("changes", "What each takes otherwise than the file", changes),
    ]
    ranking = [*rank(results), *(one for one in results if one.refused)]
    return whole_page(name, "".join(parts), _data(curves_of(ranking)))


def curves_of(
    results: Sequence[SystemResult],
) -> dict[str, Sequence[tuple[float, float]]]:
    """Return the accuracy over time of every system, with its first seed."""
    return {
        one.system: next(iter(one.curves.values())) for one in results if one.curves
    }


def _data(curves: Mapping[str, Sequence[tuple[float, float]]]) -> Charts:
    ends = [curve[-1][0] for curve in curves.values()]
    curves_of_rows = [
        {
            "name": name,
            "time": pack([time for time, _ in curve], "f4"),
            "rate": pack([100 * share for _, share in curve], "f4"),
        }
        for name, curve in curves.items()
    ]
    # As many as there are colours in a plot.
    parts = [
        curves_of_rows[n : n + _COLOURS]
        for n in range(0, len(curves_of_rows), _COLOURS)
    ]
    plots = [{"title": "accuracy", "unit": "%", "curves": part} for part in parts]
    return {
        "clock": "emulated time (s)",
        "start": 0.0,
        "end": max(ends, default=0.0),
        "runs": [],
        "training": [],
        "counts": plots,
    }


#: Colours of curves in a plot of the page.
_COLOURS = 6
_CURVES = (
    "Of the first seed, from the first look on, in emulated time, until the target; "
    "a curve ends at the first of the looks that hold it. Drag to zoom, double-click "
    "for everything; SVG and CSV save what is shown."
)
