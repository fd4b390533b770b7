"""The page of a reproduction: figures drawn beside the paper's points, and all rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from emu.report.html import markup as html
from emu.report.html.page import whole_page
from emu.report.terminal import plain_table
from emu.reproduction.blocks import (
    by_claim,
    format_found,
    format_number,
    format_ratio,
    format_stated,
    summarise,
)
from emu.reproduction.claims import Claim, read_papers
from emu.reproduction.rows import Row
from emu.runs.intervals import Interval

#: Size of a chart, and what its axes leave free for their words, pixels.
_WIDTH = 520
_HEIGHT = 230
_LEFT = 64
_BOTTOM = 34
_TOP = 14
#: Of the terminal's blue and orange in either mode: found, stated.
_FOUND = "var(--allocated)"
_STATED = "var(--moved)"
#: Distances between two marks, over a power of ten: their numbers are short.
_STEPS = (1, 2, 2.5, 5, 10)
#: Of cards: wide enough for a chart whose words can be read.
_COLUMNS = "grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr))"


@dataclass(frozen=True)
class Axis:
    """The vertical axis of a chart, from ``low`` to ``high``, with its marks."""

    low: float
    high: float
    step: float

    @classmethod
    def around(cls, values: Sequence[float]) -> Axis:
        """Return an axis with 0 and all values, and four marks or so."""
        low = min(0.0, *values)
        # Where all is 0 the axis still needs a length, by which places are divided.
        high = max(0.0, *values) or (0.0 if low else 1.0)
        rough = max(high - low, 1e-9) / 4
        power = 10.0 ** math.floor(math.log10(rough))
        # Short by rounding alone is long enough: the next step may be twice as long.
        enough = rough * 0.999
        steps = [power * size for size in _STEPS]
        step = next(length for length in steps if length >= enough)
        return cls(
            low=step * math.floor(low / step),
            high=step * math.ceil(high / step),
            step=step,
        )

    @property
    def _length(self) -> float:
        return self.high - self.low

    def y(self, value: float) -> float:
        """Return where a value is drawn, pixels from the top."""
        room = _HEIGHT - _TOP - _BOTTOM
        depth = self.high - value
        return _TOP + room * depth / self._length

    @property
    def marks(self) -> list[float]:
        """Values that have a line and a number."""
        count = round(self._length / self.step)
        # Products, since a sum of steps drifts away from round numbers.
        return [self.low + number * self.step for number in range(count + 1)]


def _text(
    x: float,
    y: float,
    words: str,
    anchor: str,
    colour: str = "var(--quiet)",
) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="{colour}" font-size="12">{escape(words)}</text>'


def _line(x: float, y: float, to_x: float, to_y: float, style: str) -> str:
    ends = f'x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"'
    return f"<line {ends} {style}/>"


def _draw_grid(axis: Axis, unit: str) -> list[str]:
    parts = []
    for mark in axis.marks:
        y = axis.y(mark)
        colour = "var(--rule)" if mark else "var(--quiet)"
        line = _line(
            _LEFT,
            y,
            to_x=_WIDTH,
            to_y=y,
            style=f'stroke="{colour}"',
        )

        # 3 * 0.1 would read 0.30000000000000004 in more digits.
        number = format_number(round(mark, 9))
        label = _text(
            _LEFT - 8,
            y + 4,
            words=f"{number} {unit}",
            anchor="end",
        )
        parts += [line, label]
    return parts


def _draw_found(
    axis: Axis,
    places: Sequence[float],
    found: Sequence[Interval],
) -> str:
    """Return what was found at every point, joined, with its interval."""
    style = f'stroke="{_FOUND}" stroke-width="2"'
    points = []
    parts = []
    for x, value in zip(places, found, strict=True):
        y = axis.y(value.mean)
        points.append(f"{x:.1f},{y:.1f}")

        bar = _line(
            x,
            axis.y(value.mean + value.half),
            to_x=x,
            to_y=axis.y(value.mean - value.half),
            style=style,
        )
        dot = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{_FOUND}"/>'
        label = _text(
            x + 9,
            y + 4,
            words=format_number(value.mean),
            anchor="start",
            colour=_FOUND,
        )
        parts += [bar, dot, label]

    curve = f'points="{" ".join(points)}"'
    parts.append(f'<polyline {curve} fill="none" stroke="{_FOUND}"/>')
    return "".join(parts)


def _draw_stated(
    axis: Axis,
    places: Sequence[float],
    rows: Sequence[Row],
) -> str:
    """Return the paper's points; a number for all of them is a dashed line."""
    parts = []
    for number, row in enumerate(rows):
        if row.stated is None:
            continue
        y = axis.y(row.stated)
        if row.claim.each:
            x = places[number]
            style = f'fill="none" stroke="{_STATED}" stroke-width="2"'
            # A ring around the dot of what was found: both are seen where they agree.
            # Its number stands on the other side of it.
            mark = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8" {style}/>'
            label = _text(
                x - 12,
                y + 4,
                words=format_number(row.stated),
                anchor="end",
                colour=_STATED,
            )
        else:
            mark = _line(
                _LEFT,
                y,
                to_x=_WIDTH,
                to_y=y,
                style=f'stroke="{_STATED}" stroke-width="2" stroke-dasharray="6 4"',
            )
            label = _text(
                _WIDTH - 4,
                y - 6,
                words=f"paper: {format_stated(row)}",
                anchor="end",
                colour=_STATED,
            )
        parts += [mark, label]
    return "".join(parts)


def draw_chart(claim: Claim, rows: Sequence[Row]) -> str:
    """Return the figure of a claim that was carried out, as SVG."""
    intervals = rows[0].curve
    values = [row.stated for row in rows if row.stated is not None]
    for interval in intervals:
        # The bars of intervals are drawn, too, and may reach below 0.
        values.append(interval.mean - interval.half)
        values.append(interval.mean + interval.half)
    axis = Axis.around(values)

    room = (_WIDTH - _LEFT) / len(intervals)
    places = [_LEFT + room * (number + 0.5) for number in range(len(intervals))]
    labels = [
        _text(x, _HEIGHT - 10, point.label, "middle")
        for x, point in zip(places, claim.points, strict=True)
    ]
    parts = [
        *_draw_grid(axis, claim.unit),
        *labels,
        _draw_found(axis, places, intervals),
        _draw_stated(axis, places, rows),
    ]
    box = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" style="max-width: 640px"'
    name = escape(f"{claim.place}: {claim.title}")
    return f'<svg {box} width="100%" aria-label="{name}">{"".join(parts)}</svg>'


def _card(claim: Claim, rows: Sequence[Row]) -> str:
    """Return the card of a claim: its chart, its numbers, and why they differ."""
    first = rows[0]
    grid = plain_table("", "point", ">paper", ">here", ">ratio")
    for row in rows:
        grid.add_row(
            row.point,
            format_stated(row),
            format_found(row),
            format_ratio(row),
        )
    cost = f"{first.seconds:.1f} s of CPU" if first.settings else ""
    remarks = [claim.why, first.settings, claim.reading, cost]

    heading = escape(f"{claim.place.capitalize()}: {claim.title}")
    parts = [
        f"<h3>{heading}</h3>",
        draw_chart(claim, rows),
        html.table(grid),
    ]
    parts += [f"<p class=remark>{escape(text)}</p>" for text in remarks if text]
    if claim.quote:
        quotes = html.bullets(claim.quote)
        summary = "<summary>The paper's words</summary>"
        parts.append(f"<details>{summary}{quotes}</details>")
    return f"<div class=card>{''.join(parts)}</div>"


def reproduction_page(rows: Sequence[Row]) -> str:
    """Return a page that needs no other file: every paper, its figures and rows."""
    title = "Papers beside this model"
    key = escape(
        "Blue, filled: found here, with the 95 % interval of the seeds. "
        "Orange, rings and dashed lines: the paper's."
    )
    parts = [
        html.page_title(title, summarise(rows)),
        f"<p>{key}</p>",
    ]
    for name, paper in read_papers().papers.items():
        of_paper = [row for row in rows if row.claim.paper == name]
        cards = []
        refusals = []
        for claim, group in by_claim(of_paper):
            # What was refused has no curve: its reason goes into a list below.
            reason = group[0].refused
            if reason:
                refusals.append(f"{claim.place}, {claim.title}: {reason}")
            else:
                cards.append(_card(claim, group))

        # Papers that were not asked for have no section.
        if of_paper:
            section = html.section(
                name,
                paper.title,
                f'<div class=cards style="{_COLUMNS}">{"".join(cards)}</div>',
                html.bullets(refusals),
                note=summarise(of_paper),
            )
            parts.append(section)
    return whole_page(title, "".join(parts), {})
