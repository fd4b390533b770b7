"""The drawing of a cluster's links, as SVG.

Machines stand on a ring. Links are known by the routes that cross them: where a route
leaves one link and enters the next both touch the same junction, a switch or the root
of a socket's PCIe. So the graph follows from the routes alone.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.array_types import Floats
from emu.problem import Cluster, Schedule
from emu.runs.result import Row, port_rows
from emu.units import format_duration, format_rate, format_size

#: Machines that a drawing has room for.
MOST_DRAWN = 64
#: Size of the drawing, in pixels of its own.
_WIDTH = 960
_HEIGHT = 640
#: Links that have their name in the drawing, the busiest.
_NAMED = 6
#: Colour of a link by its use over that of the busiest: none, a half, as much.
_RAMP = np.array(
    [
        [154, 164, 175],
        [0, 114, 178],
        [213, 94, 0],
    ]
)


class Node(NamedTuple):
    """A machine or a junction, by its number among these."""

    number: int
    is_junction: bool


if TYPE_CHECKING:
    Ends = tuple[Node, Node]


def _join_ends(cluster: Cluster) -> tuple[list[int], dict[int, set[int]]]:
    """Return roots of ends of links, and which machines' routes begin or end there.

    Ends that touch have one root.
    """
    # Link i has the ends 2 i and 2 i + 1.
    end_count = 2 * len(cluster.links)
    root = list(range(end_count))

    def find(end: int) -> int:
        if root[end] == end:
            return end
        return find(root[end])

    machines_at = defaultdict[int, set[int]](set)
    machines = range(len(cluster.machines))
    pairs = itertools.product(machines, machines)
    for source, destination in pairs:
        route = cluster.links.route(source, destination)
        if not route:
            continue
        for link, next_link in itertools.pairwise(route):
            head = find(2 * link + 1)
            next_tail = find(2 * next_link)
            root[head] = next_tail
        first_link = route[0]
        last_link = route[-1]
        first_end = 2 * first_link
        last_end = 2 * last_link + 1
        machines_at[first_end].add(source)
        machines_at[last_end].add(destination)

    roots = [find(end) for end in range(end_count)]
    return roots, machines_at


def link_ends(cluster: Cluster) -> tuple[list[Ends], set[Ends]]:
    """Return both ends of every link, and which machines touch junctions directly.

    An end that one machine alone begins or ends routes with is that machine.
    """
    roots, machines_at = _join_ends(cluster)
    count = len(roots)
    touching = np.bincount(roots, minlength=count)
    distinct = dict.fromkeys(roots)
    number_of = {end: number for number, end in enumerate(distinct)}
    nodes: list[Node] = []
    spokes: set[Ends] = set()
    for end, junction in enumerate(roots):
        members = machines_at[end]
        # No other link ends there, and one machine alone uses it: it is that machine.
        if touching[junction] == 1 and len(members) == 1:
            (machine,) = members
            disc = Node(machine, is_junction=False)
            nodes.append(disc)
        else:
            node = Node(number_of[junction], is_junction=True)
            nodes.append(node)
            for machine in members:
                disc = Node(machine, is_junction=False)
                spokes.add((disc, node))

    tails = nodes[::2]
    heads = nodes[1::2]
    ends = list(zip(tails, heads, strict=True))
    return ends, spokes


def _places(machines: int, joined: Sequence[Ends]) -> dict[Node, Floats]:
    """Return where nodes are drawn: junctions in the middle of what they join."""
    # Half a step off the top (y grows downwards): two machines stand side by side.
    steps = np.arange(machines) + 0.5
    angles = 2 * np.pi * steps / machines - np.pi / 2
    sides = [np.cos(angles), np.sin(angles)]
    ring = np.stack(sides, axis=1)
    places: dict[Node, Floats] = {}
    for machine, place in enumerate(ring):
        disc = Node(machine, is_junction=False)
        places[disc] = place
    middles = _middles(places, joined)
    direction = np.array([1.0, 0.6])
    for node, middle in middles.items():
        # Junctions with the same neighbours would hide each other.
        crowd = 0
        for place in places.values():
            distances = np.abs(middle - place)
            # In radii of the ring: 0.05 are 13 to 21 pixels, and a square has 10.
            if distances.max() < 0.05:
                crowd += 1
        aside = 0.12 * crowd * direction
        places[node] = middle + aside

    # A margin for discs with their names, and for links that both ends join.
    centre = np.array([_WIDTH / 2, _HEIGHT / 2])
    margin = np.array([60, 50])
    scale = centre - margin
    return {node: centre + scale * place for node, place in places.items()}


def _middles(
    machines: dict[Node, Floats], joined: Sequence[Ends]
) -> dict[Node, Floats]:
    """Return the mean place of the neighbours of every junction, with machines fixed.

    The places are those of springs at rest, one per pair of ``joined``.
    """
    row: dict[Node, int] = {}
    nodes = itertools.chain.from_iterable(joined)
    for node in nodes:
        if node.is_junction and node not in row:
            row[node] = len(row)
    junctions = list(row)

    matrix = 1e-3 * np.eye(len(junctions))  # one that nothing holds has a place, too
    shape = (len(junctions), 2)
    offsets = np.zeros(shape)
    for tail, head in joined:
        pairs = ((tail, head), (head, tail))
        for node, neighbour in pairs:
            # Machines do not move, nor does a junction for a link of both its ends.
            if not node.is_junction or node == neighbour:
                continue
            place = row[node]
            matrix[place, place] += 1
            if neighbour.is_junction:
                other_place = row[neighbour]
                matrix[place, other_place] -= 1
            else:
                offsets[place] += machines[neighbour]

    middles = np.linalg.solve(matrix, offsets)
    return dict(zip(junctions, middles, strict=True))


def link_graph(cluster: Cluster, schedule: Schedule) -> str:
    """Return the drawing as SVG; empty where NICs are all links, or too many."""
    if not cluster.links.shared or len(cluster.machines) > MOST_DRAWN:
        return ""
    ends, spokes = link_ends(cluster)
    place_of = _places(len(cluster.machines), [*ends, *spokes])
    rows = port_rows(schedule)
    uses = [row["used"] for row in rows]
    # Where nothing moved, no link is the busiest, and all shares are 0.
    most = max(uses, default=0.0) or 1.0
    ports = range(len(rows))
    by_use = sorted(ports, key=uses.__getitem__)

    parts = []
    for machine, junction in sorted(spokes):
        line = _path(place_of[machine], place_of[junction])
        parts.append(f'<path class="spoke" d="{line}"/>')
    for port in by_use:  # the busiest on top
        tail, head = ends[port]
        row = rows[port]
        figures = _write_figures(row, schedule.length)
        link = _link(
            place_of[tail],
            head=place_of[head],
            use=row["used"] / most,
            figures=figures,
            used=bool(row["bytes"]),
        )
        parts.append(link)
    for port in by_use[-_NAMED:]:
        row = rows[port]
        if row["bytes"]:
            tail, head = ends[port]
            _, middle = _bend(place_of[tail], place_of[head])
            name = _label(middle, row["port"], kind="name")
            parts.append(name)
    for node, place in place_of.items():
        mark = _node(node, place, cluster)
        parts.append(mark)
    content = "".join(parts)
    return (
        f'<div class="scroll"><svg class="links" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'role="img" aria-label="links and their load">{content}</svg></div>'
    )


def _node(node: Node, place: Floats, cluster: Cluster) -> str:
    """Return a junction as a small square, or a machine as a disc with its name."""
    x, y = place
    if node.is_junction:
        x_left = x - 5
        top = y - 5
        corner = f'x="{x_left:.0f}" y="{top:.0f}"'
        return f'<rect class="junction" {corner} width="10" height="10"/>'
    name = cluster.machines[node.number].name
    disc = f'<circle class="machine" cx="{x:.0f}" cy="{y:.0f}" r="19"/>'
    # A disc of 38 pixels has room for six letters; the pointer shows the whole name.
    label = _label(place, text=name[:6], kind="inside", title=name)
    return disc + label


def _bend(tail: Floats, head: Floats) -> tuple[Floats, Floats]:
    """Return the control point of a curve that keeps to the right, and its middle."""
    course = head - tail
    # Both directions of a link lie beside each other, and not on one line.
    right, down = course
    across = np.array([-down, right])
    length = max(math.hypot(right, down), 1.0)
    bulge = min(0.12 * length + 8, 34)
    chord_middle = (tail + head) / 2
    unit = across / length
    control = chord_middle + unit * bulge
    # A quadratic Bezier curve at its parameter 1/2.
    middle = (tail + 2 * control + head) / 4
    return control, middle


def _link(
    tail: Floats,
    head: Floats,
    use: float,
    figures: str,
    *,
    used: bool,
) -> str:
    """Return a link as a curve with an arrow, and its figures for the pointer.

    ``use`` is the share of what the busiest link was used.
    """
    stops = [0, 0.5, 1]
    levels = [np.interp(use, stops, shades) for shades in _RAMP.T]
    texts = ",".join(f"{level:.0f}" for level in levels)
    colour = f"rgb({texts})"
    if (tail == head).all():  # both ends are at one junction
        x, y = tail
        centre = x + 22
        shape = f'<circle fill="none" cx="{centre:.0f}" cy="{y:.0f}" r="22"/>'
    else:
        control, middle = _bend(tail, head)
        curve = _path(tail, control, head)
        shape = f'<path fill="none" d="{curve}"/>'
        shape += _arrow(middle, head - tail, colour)

    attribute = "" if used else ' class="unused"'
    title = escape(figures)
    width = 1 + 5 * use
    return (
        f'<g stroke="{colour}" stroke-width="{width:.1f}"{attribute}>'
        f"<title>{title}</title>{shape}</g>"
    )


def _arrow(middle: Floats, course: Floats, colour: str) -> str:
    """Return the head of an arrow in the middle of a curve."""
    length = max(math.hypot(*course), 1.0)
    unit = course / length
    x, y = unit
    across = np.array([-y, x])
    back = middle - 4 * unit
    corners = (
        middle + 6 * unit,
        back + 4 * across,
        back - 4 * across,
    )
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    return f'<polygon fill="{colour}" stroke="none" points="{points}"/>'


def _write_figures(row: Row, makespan: float) -> str:
    use = row["used"]
    size = format_size(row["bytes"])
    rate = format_rate(row["bytes_per_second"])
    busy = format_duration(use * makespan, 3)
    return f"{row['port']}: {size} at {rate}, busy {busy} ({use:.0%})"


def _path(*points: Floats) -> str:
    """Return the data of a line through two points, or of a curve of three."""
    point_texts = [f"{x:.0f} {y:.0f}" for x, y in points]
    begin, *rest = point_texts
    command = "Q" if len(rest) > 1 else "L"
    points_after = " ".join(rest)
    return f"M{begin}{command}{points_after}"


def _label(
    place: Floats,
    text: str,
    kind: str,
    title: str = "",
) -> str:
    x, y = place
    hint = f"<title>{escape(title)}</title>" if title else ""
    # SVG puts the base line of a text at y; 4 pixels further down it looks centred.
    base_line = y + 4
    return (
        f'<text class="{kind}" text-anchor="middle" x="{x:.0f}" y="{base_line:.0f}">'
        f"{hint}{escape(text)}</text>"
    )
