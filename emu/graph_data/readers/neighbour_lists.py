"""Graphs as lists of neighbours, a line or a block of lines for each vertex.

Three layouts: ``a b c`` (adjacency lists of networkx), ``a:b,c`` (Friendster), and LGL
(http://lgl.sourceforge.net), where ``# a`` stands above the neighbours of a, with a
weight behind each. The first is read where an option says so; others say it themselves.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from emu.errors import DataError
from emu.graph_data.readers import text_table
from emu.graph_data.readers.columns import INTEGER, Column, join_columns
from emu.graph_data.readers.found_graph import FoundGraph
from emu.graph_data.readers.questions import Reading, ask, count_left_out
from emu.graph_data.readers.text_table import TableOptions
from emu.interchange.known_formats import FORMATS
from emu.interchange.recognise import recognise

#: Lines by which a layout is known.
_LINES = 40
_COLON = re.compile(r"([^\s,:]+):([^\s,:]*(?:,[^\s,:]+)*)")
#: Blocks of LGL, and what may as well be edges.
_BLOCKS = [row for row in FORMATS if row.reader in ("blocks", "blocks_or_edges")]
#: What Friendster's lists have for vertices whose neighbours are not known.
_UNKNOWN = {"private", "notfound"}


def find_layout(path: Path, options: TableOptions) -> str:
    """Return ``lines``, ``colons`` or ``blocks``; "" where a text has no such lists.

    Raises DataError where blocks may as well be edges below comments.
    """
    if options.neighbours:
        return "lines"

    lines = text_table.first_lines(path, _LINES)
    rows = [line for line in lines if not line.startswith(text_table.COMMENTS)]
    # One list of several shows that a comma parts neighbours.
    texts = [row.strip() for row in rows]
    matches = [_COLON.fullmatch(text) for text in texts]
    have_colons = None not in matches
    has_comma = any("," in row for row in rows)
    # A time, 12:30, looks like a list of one.
    if have_colons and has_comma:
        return "colons"

    # Whoever states columns has a list of edges.
    if options.columns is not None:
        return ""
    format_of_blocks = recognise(path, _BLOCKS)
    if format_of_blocks is None:
        return ""
    if format_of_blocks.reader == "blocks_or_edges":
        mark = lines[0].lstrip("# ").rstrip()
        raise _ask_for_edges(mark, texts[0], path)
    return "blocks"


def _ask_for_edges(mark: str, row: str, path: Path) -> DataError:
    """Return a question whether rows are neighbours of marks, or edges."""
    neighbour, weight = row.split()
    as_edges = Reading(
        "edges below comments", f"the first is {neighbour} to {weight}", "--columns 1,2"
    )
    as_blocks = Reading(
        "LGL",
        f"{mark} has a neighbour {neighbour} of weight {weight}",
        f"write weights as {weight}.0",
    )
    return ask("may be read as", [as_edges, as_blocks], path)


def read_neighbours(
    path: Path,
    layout: str,
    options: TableOptions,
) -> FoundGraph:
    """Return the graph of lists of neighbours.

    Raises DataError with the line that is none.
    """
    lists = _Lists()
    with text_table.open_lines(path, options.tell) as lines:
        for number, line in enumerate(lines, 1):
            text = line.strip()
            try:
                lists.add(text, layout)
            except ValueError as error:
                problem = f"line {number} is {text!r:.60}, it needs {error}"
                raise DataError(problem, path=path) from error

    edges = len(lists.neighbours)
    if not edges:
        raise DataError("holds no neighbours", path=path)

    # All in one column, so that an id has one number wherever it stands.
    words = [*lists.sources, *lists.neighbours, *lists.heads]
    column = Column.of(words)
    as_words = column.names_words(stated=options.words)
    if not as_words and column.kind != INTEGER:
        problem = "has ids that are no whole numbers from 0 (or --words)"
        raise DataError(problem, path=path)

    keys = join_columns([column], as_words=as_words)
    codes = keys.codes[0]
    last = 2 * edges

    entries = []
    kinds_left_out = sorted(lists.left_out.items())
    for name, count in kinds_left_out:
        if count:
            entries.append(f"{name} ({count:,})")
    heads = len(lists.heads)
    note = f"neighbours of {heads:,} vertices, {layout}"
    return FoundGraph(
        sources=codes[:edges],
        destinations=codes[edges:last],
        origin=str(path),
        vertices=len(keys.ids),
        ids=keys.ids,
        notes=(note,),
        left_out=count_left_out("kind of entries", entries),
    )


class _Lists:
    """Lists of neighbours, while their lines are read."""

    def __init__(self) -> None:
        self.heads: dict[str, None] = {}
        """Vertices that have a list, in order."""
        self.sources: list[str] = []
        """Vertex of every neighbour."""
        self.neighbours: list[str] = []
        self.left_out = Counter[str]()
        """Counts of entries that are no neighbours, by their kind."""

    def add(self, text: str, layout: str) -> None:
        """Add a line; ValueError with what it lacks."""
        # Before comments are skipped: here the mark begins a block.
        is_mark = layout == "blocks" and text.startswith("#")
        if is_mark:
            words = text[1:].split()
            if len(words) != 1:
                raise ValueError("one vertex behind #")
            (self._head,) = words
            self._add_list(self._head, [])
        elif not text or text.startswith(text_table.COMMENTS):
            return
        elif layout == "blocks":
            neighbour, *weights = text.split()
            is_neighbour = bool(self.heads) and len(weights) <= 1
            if not is_neighbour:
                raise ValueError("a neighbour and at most a weight, below # vertex")
            self.left_out["weights"] += len(weights)
            self._add_list(self._head, [neighbour])
        elif layout == "colons":
            self._add_known(text)
        else:
            entries = text.strip(",;| \t")
            head, *neighbours = re.split(r"[\s,;|]+", entries)
            self._add_list(head, neighbours)

    def _add_known(self, text: str) -> None:
        """Add a list of Friendster without the neighbours that it keeps to itself."""
        match = _COLON.fullmatch(text)
        if not match:
            raise ValueError("vertex:neighbour,neighbour")
        words = match[2].split(",")
        kept_back = [word for word in words if word in _UNKNOWN]
        self.left_out.update(kept_back)
        neighbours = [word for word in words if word and word not in _UNKNOWN]
        self._add_list(match[1], neighbours)

    def _add_list(self, head: str, neighbours: Sequence[str]) -> None:
        # Also without neighbours: it is a vertex for all that.
        self.heads[head] = None
        sources = [head] * len(neighbours)
        self.sources.extend(sources)
        self.neighbours.extend(neighbours)
