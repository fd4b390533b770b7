"""Small pieces of HTML, every text escaped, and the drawing of a cluster's links.

Machines stand on a ring. Links are known by the routes that cross them: where a route
leaves one link and enters the next both touch the same junction, a switch or the root
of a socket's PCIe. So the graph follows from the routes alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from emu.problem import Cluster, Schedule
from emu.runs.result import Row, port_rows
from emu.units import format_duration, format_rate, format_size

if TYPE_CHECKING:
    from emu.report.terminal import Fact

    Node = tuple[int, int]
    Ends = tuple[Node, Node]
    Floats = NDArray[np.float64]

#: Columns that fit the screen of a telephone.
_NARROW = 4


def table(shown: Table) -> str:
    """Return a terminal's table, without the columns of bars, which have no name."""
    columns = [column for column in shown.columns if column.header]
    tags = ["", " class=number"]
    # A narrow screen shows the name of the column in every cell of a wide table.
    kinds = [
        f'{tags[column.justify == "right"]} data-column="{escape(str(column.header))}"'
        for column in columns
    ]
    wide = " class=wide" if len(columns) > _NARROW else ""

    def cells(tag: str, row: Iterable[object]) -> str:
        both = zip(row, kinds, strict=True)
        return "".join(f"<{tag}{k}>{escape(str(text))}</{tag}>" for text, k in both)

    head = cells("th", [column.header for column in columns])
    rows = zip(*(column.cells for column in columns), strict=True)
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return (
        f"<div class=scroll><table{wide}><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def figures(facts: Iterable[Fact]) -> str:
    """Return the numbers of a headline, each with the key of result.json it is of."""
    cells = []
    for label, value, note, name, _ in facts:
        key = f' data-key="{escape(name)}"' if name else ""
        cells.append(
            f"<div class=figure><span class=label>{escape(label)}</span>"
            f"<span class=value{key}>{escape(value)}</span>"
            f"<span class=note>{escape(note)}</span></div>"
        )
    return f"<div class=figures>{''.join(cells)}</div>"


def meter(label: str, fraction: float, text: str) -> str:
    """Return a bar that is filled to ``fraction``; over-full ones look different."""
    full = " over" if fraction > 1 else ""
    width = 100 * min(max(fraction, 0.0), 1.0)
    return (
        f"<div class=meter><span class=label>{escape(label)}</span>"
        f'<span class="track{full}"><span style="width:{width:.1f}%"></span></span>'
        f"<span class=note>{escape(text)}</span></div>"
    )


def section(identifier: str, title: str, *parts: str, note: str = "") -> str:
    """Return a titled part of the page, nothing when there is nothing in it."""
    inside = "".join(parts)
    if not inside:
        return ""
    remark = f"<p class=remark>{escape(note)}</p>" if note else ""
    return (
        f'<section id="{escape(identifier)}"><h2>{escape(title)}</h2>'
        f"{remark}{inside}</section>"
    )


def page_title(name: str, text: str) -> str:
    """Return the head of a page: its name, and what it is of."""
    return f"<header><h1>{escape(name)}</h1><p>{escape(text)}</p></header>"


def bullets(texts: Iterable[object]) -> str:
    """Return a list of texts; nothing where there are none."""
    items = "".join(f"<li>{escape(str(text))}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def chart(identifier: str, title: str, note: str) -> str:
    """Return a titled place that the page's script draws a chart in."""
    place = f"<div class=chart data-chart={escape(identifier)}></div>"
    return section(identifier, title, place, note=note)


#: Machines that a drawing has room for.
MOST_DRAWN = 64
_WIDTH = 960
_HEIGHT = 640
_NAMED = 6
#: Colour of a link by its use over that of the busiest: none, a half, as much.
_RAMP = np.array([[154, 164, 175], [0, 114, 178], [213, 94, 0]])


def link_ends(cluster: Cluster) -> tuple[list[Ends], set[Ends]]:
    """Return both ends of every link, and which machines touch junctions directly.

    An end that one machine alone begins or ends routes with is that machine.
    """
    links = cluster.links
    count = len(cluster.machines)
    root = [*range(2 * len(links))]  # ends of link i: 2 i and 2 i + 1

    def find(end: int) -> int:
        return end if root[end] == end else find(root[end])

    ends: dict[int, set[int]] = {}
    for source in range(count):
        for to in range(count):
            if route := links.route(source, to):
                for one, other in itertools.pairwise(route):
                    root[find(2 * one + 1)] = find(2 * other)
                ends.setdefault(2 * route[0], set()).add(source)
                ends.setdefault(2 * route[-1] + 1, set()).add(to)
    roots = [find(end) for end in range(len(root))]
    size = np.bincount(roots, minlength=len(root))
    number = {one: place for place, one in enumerate(dict.fromkeys(roots))}
    nodes: list[Node] = []
    spokes: set[Ends] = set()
    for end, of in enumerate(roots):
        machines = ends.get(end, set())
        alone = size[of] == 1 and len(machines) == 1
        node = (min(machines), 0) if alone else (number[of], 1)
        nodes.append(node)
        spokes |= set() if alone else {((m, 0), node) for m in machines}
    return [*zip(nodes[::2], nodes[1::2], strict=True)], spokes


def _places(machines: int, joined: list[Ends]) -> dict[Node, Floats]:
    """Return where nodes are drawn: junctions in the middle of what they join."""
    angles = 2 * np.pi * (np.arange(machines) + 0.5) / machines - np.pi / 2
    ring = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    at = {(m, 0): ring[m] for m in range(machines)}
    free = [*dict.fromkeys(node for pair in joined for node in pair if node[1])]
    row = {node: place for place, node in enumerate(free)}
    matrix = 1e-3 * np.eye(len(free))
    offsets = np.zeros((len(free), 2))
    for one, other in joined:
        for node, end in ((one, other), (other, one)):
            if node[1] and node != end:
                matrix[row[node], row[node]] += 1
                if end[1]:
                    matrix[row[node], row[end]] -= 1
                else:
                    offsets[row[node]] += at[end]
    for place, node in enumerate(free):
        middle = np.linalg.solve(matrix, offsets)[place]
        near = sum(bool(np.abs(middle - other).max() < 0.05) for other in at.values())
        at[node] = middle + 0.12 * near * np.array([1.0, 0.6])
    scale = np.array([_WIDTH / 2 - 60, _HEIGHT / 2 - 50])
    centre = np.array([_WIDTH / 2, _HEIGHT / 2])
    return {node: centre + scale * place for node, place in at.items()}


def link_graph(cluster: Cluster, schedule: Schedule) -> str:
    """Return the drawing as SVG; empty where NICs are all links, or too many."""
    if not cluster.links.shared or len(cluster.machines) > MOST_DRAWN:
        return ""
    ends, spokes = link_ends(cluster)
    at = _places(len(cluster.machines), [*ends, *spokes])
    rows = port_rows(schedule)
    most = max((row["used"] for row in rows), default=0.0) or 1.0
    by_use = sorted(range(len(rows)), key=lambda port: rows[port]["used"])
    parts = [
        f'<path class="spoke" d="{_path(at[one], at[other])}"/>'
        for one, other in sorted(spokes)
    ]
    places = {p: (at[ends[p][0]], at[ends[p][1]]) for p in by_use}
    length = schedule.length  # the busiest on top
    parts += [_link(*places[port], rows[port], most, length) for port in by_use]
    for port in by_use[-_NAMED:]:
        if rows[port]["bytes"]:
            middle = _bend(*places[port])[1]
            parts.append(_label(middle, rows[port]["port"], "name"))
    for node, (x, y) in at.items():
        if node[1]:  # a junction is a small square, a machine a disc with its name
            place = f'x="{x - 5:.0f}" y="{y - 5:.0f}"'
            parts.append(f'<rect class="junction" {place} width="10" height="10"/>')
            continue
        name = cluster.machines[node[0]].name
        disc = f'<circle class="machine" cx="{x:.0f}" cy="{y:.0f}" r="19"/>'
        parts.append(disc + _label(at[node], name[:6], "inside", name))
    return (
        f'<div class="scroll"><svg class="links" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'role="img" aria-label="links and their load">{"".join(parts)}</svg></div>'
    )


def _bend(tail: Floats, head: Floats) -> tuple[Floats, Floats]:
    """Return the control point of a curve that keeps to the right, and its middle."""
    along = head - tail
    across = np.array([-along[1], along[0]])
    length = max(math.hypot(*along), 1.0)
    control = (tail + head) / 2 + across / length * min(0.12 * length + 8, 34)
    return control, (tail + 2 * control + head) / 4


def _link(tail: Floats, head: Floats, row: Row, most: float, makespan: float) -> str:
    """Return a link as a curve with an arrow, and its figures for the pointer."""
    use = row["used"] / most
    part = [np.interp(use, [0, 0.5, 1], _RAMP[:, i]) for i in range(3)]
    colour = f"rgb({','.join(f'{value:.0f}' for value in part)})"
    control, middle = _bend(tail, head)
    if (tail == head).all():  # both ends are at one junction
        place = f'cx="{tail[0] + 22:.0f}" cy="{tail[1]:.0f}" r="22"'
        shape = f'<circle fill="none" {place}/>'
    else:
        shape = f'<path fill="none" d="{_path(tail, control, head)}"/>'
        along = head - tail
        unit = along / max(math.hypot(*along), 1.0)
        across = np.array([-unit[1], unit[0]])
        back = middle - 4 * unit
        corners = middle + 6 * unit, back + 4 * across, back - 4 * across
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        shape += f'<polygon fill="{colour}" stroke="none" points="{points}"/>'
    text = (
        f"{row['port']}: {format_size(row['bytes'])} at "
        f"{format_rate(row['bytes_per_second'])}, busy "
        f"{format_duration(row['used'] * makespan, 3)} ({row['used']:.0%})"
    )
    attribute = "" if row["bytes"] else ' class="unused"'
    return (
        f'<g stroke="{colour}" stroke-width="{1 + 5 * use:.1f}"{attribute}>'
        f"<title>{escape(text)}</title>{shape}</g>"
    )


def _path(*points: Floats) -> str:
    """Return the data of a line through two points, or of a curve of three."""
    begin, *others = (f"{x:.0f} {y:.0f}" for x, y in points)
    return f"M{begin}{'Q' if len(others) > 1 else 'L'}{' '.join(others)}"


def _label(at: Floats, text: str, kind: str, title: str = "") -> str:
    hint = f"<title>{escape(title)}</title>" if title else ""
    place = f'x="{at[0]:.0f}" y="{at[1] + 4:.0f}"'
    return (
        f'<text class="{kind}" text-anchor="middle" {place}>{hint}{escape(text)}</text>'
    )
