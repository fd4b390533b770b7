"""Graphs as lists of neighbours, a line or a block of lines for each vertex.

Three layouts: ``a b c`` (adjacency lists of networkx), ``a:b,c`` (Friendster), and LGL
(http://lgl.sourceforge.net), where ``# a`` stands above the neighbours of a, with a
weight behind each. The first is read where an option says so; others say it themselves.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from emu.errors import DataError
from emu.graph_data.readers import text_table
from emu.graph_data.readers.columns import INTEGER, TEXT, Column, join_columns
from emu.graph_data.readers.found_graph import FoundGraph
from emu.graph_data.readers.questions import count_left_out
from emu.graph_data.readers.text_table import TableOptions

#: Lines by which a layout is known.
_LINES = 40
_COLON = re.compile(r"([^\s,:]+):([^\s,:]*(?:,[^\s,:]+)*)")
_LGL = re.compile(r"(# ?\S+\n([^#\s]\S*([ \t]\S+)?\n)*){2,}")
#: What Friendster's lists have for vertices whose neighbours are not known.
_UNKNOWN = {"private", "notfound"}

Lists = list[tuple[str, list[str]]]


def find_layout(path: Path, options: TableOptions) -> str:
    """Return ``lines``, ``colons`` or ``blocks``; "" where a text has no such lists."""
    if options.neighbours:
        return "lines"
    lines = text_table.first_lines(path, _LINES)
    rows = [line for line in lines if not line.startswith(text_table.COMMENTS)]
    matches = [_COLON.fullmatch(row.strip()) for row in rows]
    if rows and all(matches) and any("," in row for row in rows):
        return "colons"
    head = "\n".join(line.rstrip() for line in lines) + "\n"
    return "blocks" if _LGL.match(head) else ""


def read_neighbours(path: Path, layout: str, options: TableOptions) -> FoundGraph:
    """Return the graph of lists of neighbours.

    Raises DataError with the line that is none.
    """
    lists: Lists = []
    left_out = Counter[str]()
    with text_table.open_lines(path, options.tell) as lines:
        for number, line in enumerate(lines, 1):
            try:
                _add(line.strip(), layout, lists, left_out)
            except ValueError as error:
                problem = f"line {number} is {line.strip()!r:.60}, it needs {error}"
                raise DataError(problem, path=str(path)) from error

    sources = [vertex for vertex, near in lists for _ in near]
    ends = [neighbour for _, near in lists for neighbour in near]
    heads = [vertex for vertex, _ in lists]
    if not ends:
        raise DataError("holds no neighbours", path=str(path))

    column = Column.of([*sources, *ends, *heads])
    as_words = options.words
    if as_words is None:
        as_words = column.main_kind == TEXT or column.is_padded
    if not as_words and column.kind != INTEGER:
        problem = "has ids that are no whole numbers from 0 (or --words)"
        raise DataError(problem, path=str(path))
    keys = join_columns([column], as_words=as_words)
    codes = keys.codes[0]
    names = [f"{name} ({count:,})" for name, count in sorted((+left_out).items())]
    return FoundGraph(
        codes[: len(ends)],
        codes[len(ends) : 2 * len(ends)],
        str(path),
        len(keys.ids),
        ids=keys.ids,
        notes=(f"neighbours of {len({*heads}):,} vertices, {layout}",),
        left_out=count_left_out("kind of entries", names),
    )


def _add(text: str, layout: str, lists: Lists, left_out: Counter[str]) -> None:
    """Add a line to the lists; ValueError with what it lacks."""
    if layout == "blocks" and text.startswith("#"):
        head = text[1:].split()
        if len(head) != 1:
            raise ValueError("one vertex behind #")
        lists.append((head[0], []))
    elif not text or text.startswith(text_table.COMMENTS):
        return
    elif layout == "blocks":
        neighbour, *weights = text.split()
        if not lists or len(weights) > 1:
            raise ValueError("a neighbour and at most a weight, below # vertex")
        left_out["weights"] += len(weights)
        lists[-1][1].append(neighbour)
    elif layout == "colons":
        match = _COLON.fullmatch(text)
        if not match:
            raise ValueError("vertex:neighbour,neighbour")
        near = [word for word in match[2].split(",") if word]
        unknown = [word for word in near if word in _UNKNOWN]
        left_out.update(unknown)
        lists.append((match[1], [word for word in near if word not in _UNKNOWN]))
    else:
        words = re.split(r"[\s,;|]+", text.strip(",;| \t"))
        lists.append((words[0], words[1:]))
