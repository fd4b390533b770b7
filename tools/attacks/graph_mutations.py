"""Mutated graph files: the outcome changes rightly, is said, or is refused.

    tools/hostile graphs --count 2500 --seed 1

A file of each format is drawn, and one column, line, header, field, quote or array of
it dropped, renamed, changed or added. What emu makes of it is compared with an oracle
that is told what is where (`slow_graph_reader`). Wrong is another graph than that, or
the same report where something beside the graph has changed.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from emu.errors import DataError
from emu.graph_data.imported import import_graph, summary_lines
from tools.attacks import slow_graph_reader as slow
from tools.attacks.slow_graph_reader import Layout, NoGraphError, SlowGraph

_SEPARATORS = (",", ";", "\t", " ")
_NAMES = (("source", "target"), ("src", "dst"), ("from", "to"), ("node1", "node2"))
_PARTS = {"train": "train", "val": "valid", "test": "test"}


@dataclass(frozen=True)
class Table:
    """A table that is drawn, before it is written."""

    layout: Layout
    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def text(self) -> str:
        """The table as a file has it."""
        lines = [self.names] if self.layout.has_header else []
        return "".join(
            self.layout.separator.join(line) + "\n" for line in (*lines, *self.rows)
        )

    def with_column(self, place: int, role: str, name: str, fields: Any) -> Table:
        """Return the table with one more column."""
        rows = zip(self.rows, fields, strict=True)
        return Table(
            layout=replace(self.layout, roles=_put(self.layout.roles, place, role)),
            names=_put(self.names, place, name),
            rows=tuple(_put(row, place, field) for row, field in rows),
        )

    def without_column(self, place: int) -> Table:
        """Return the table without a column."""
        return Table(
            layout=replace(self.layout, roles=_cut(self.layout.roles, place)),
            names=_cut(self.names, place),
            rows=tuple(_cut(row, place) for row in self.rows),
        )


def _put(row: tuple[str, ...], place: int, field: str) -> tuple[str, ...]:
    return (*row[:place], field, *row[place:])


def _cut(row: tuple[Any, ...], place: int) -> tuple[Any, ...]:
    return (*row[:place], *row[place + 1 :])


@dataclass(frozen=True)
class Mutant:
    """Files of which one was changed, and what has to come of them."""

    change: str
    files: dict[str, bytes]
    read: Callable[[], SlowGraph]
    """The graph that they state; raises NoGraphError where they state none."""
    has_to_say: bool
    """True where something has changed that is no part of the graph."""


def draw_edges(rng: Generator) -> tuple[Table, list[str]]:
    """Return an edge list, and the ids of its vertices."""
    count = int(rng.integers(8, 20))
    begin = int(rng.integers(0, 2) * rng.integers(0, 60))
    ids = [str(begin + n) for n in range(count)]
    if rng.random() < 0.3:
        ids = [f"v{n}{'xyz'[n % 3]}" for n in range(count)]
    if rng.random() < 0.1:
        ids = [f"{n:03}" for n in range(count)]
    ends = [*range(count), *rng.integers(0, count, 2 * count)]
    others = rng.integers(0, count, len(ends))
    rows = tuple((ids[a], ids[b]) for a, b in zip(ends, others, strict=True))
    layout = Layout(
        separator=_SEPARATORS[rng.integers(len(_SEPARATORS))],
        roles=("end", "end"),
        has_header=bool(rng.random() < 0.6),
    )
    table = Table(layout, _NAMES[rng.integers(len(_NAMES))], rows)
    if rng.random() < 0.5:
        weights = [f"{weight:.3f}" for weight in rng.random(len(rows)) + 0.001]
        table = table.with_column(2, "", "weight", weights)
    used = sorted({field for row in table.rows for field in row[:2]})
    return table, used


def draw_vertices(rng: Generator, ids: list[str]) -> Table:
    """Return a table of features, classes and parts by id, in any order of rows."""
    rows = [
        (
            ids[n],
            f"{rng.normal():.4f}",
            "pqr"[n % 3] if rng.random() < 0.9 else "",
            ("train", "val", "test")[n % 3],
        )
        for n in rng.permutation(len(ids))
    ]
    layout = Layout(",", ("id", "feature", "label", "part"), has_header=True)
    return Table(layout, ("id", "f1", "label", "split"), tuple(rows))


@dataclass(frozen=True)
class Changed:
    """A table of which something was changed."""

    table: Table
    text: str
    has_to_say: bool = False


Change = Callable[[Table, Generator], Changed]


def _whole(table: Table, *, says: bool = False) -> Changed:
    return Changed(table, table.text, says)


def _line(table: Table, rng: Generator) -> int:
    return int(rng.integers(len(table.rows)))


def _column(table: Table, rng: Generator) -> int:
    return int(rng.integers(len(table.names)))


def drop_line(table: Table, rng: Generator) -> Changed:
    """Drop a row."""
    return _whole(replace(table, rows=_cut(table.rows, _line(table, rng))))


def repeat_line(table: Table, rng: Generator) -> Changed:
    """Write a row twice."""
    row = table.rows[_line(table, rng)]
    return _whole(replace(table, rows=(*table.rows, row)))


def change_field(table: Table, rng: Generator) -> Changed:
    """Put another field of its column, a word, or nothing in place of a field."""
    row = _line(table, rng)
    column = _column(table, rng)
    other = table.rows[_line(table, rng)][column]
    field = str(rng.choice([other, other, "Zed", "", "-4", "7.5"]))
    fields = table.rows[row]
    changed = (*fields[:column], field, *fields[column + 1 :])
    rows = (*table.rows[:row], changed, *table.rows[row + 1 :])
    return _whole(replace(table, rows=rows))


def drop_column(table: Table, rng: Generator) -> Changed:
    """Drop a column with its name."""
    column = _column(table, rng)
    is_used = bool(table.layout.roles[column])
    return _whole(table.without_column(column), says=not is_used)


def add_column(table: Table, rng: Generator) -> Changed:
    """Add a column of times, counts, numbers, truth values, dates or words."""
    count = len(table.rows)
    fields = [
        [str(1000 + 20 * (n // 3)) for n in range(count)],
        [str(n) for n in range(count)],
        [f"{value:.4f}" for value in rng.random(count)],
        [("True", "False")[n % 2] for n in range(count)],
        [str(1 + n % 5) for n in range(count)],
        [f"2010-01-{1 + n % 28:02}" for n in range(count)],
        [("friend", "foe")[n % 2] for n in range(count)],
    ]
    chosen = int(rng.integers(len(fields)))
    place = int(rng.integers(len(table.names) + 1))
    # A table of vertices takes each column of numbers for a feature.
    is_feature = "id" in table.layout.roles and chosen < 5
    role = "feature" if is_feature else ""
    added = table.with_column(place, role, "extra", fields[chosen])
    return _whole(added, says=not is_feature)


def rename_column(table: Table, rng: Generator) -> Changed:
    """Give a column a name that says nothing."""
    column = _column(table, rng)
    is_used = bool(table.layout.roles[column])
    names = (*table.names[:column], "qq", *table.names[column + 1 :])
    says = not is_used and table.layout.has_header
    return _whole(replace(table, names=names), says=says)


def swap_columns(table: Table, rng: Generator) -> Changed:
    """Write two columns in the other order, where names say which is which."""
    if table.layout.has_header:
        table = _swap(table, _column(table, rng), _column(table, rng))
    return _whole(table)


def drop_header(table: Table, _: Generator) -> Changed:
    """Drop the names of the columns."""
    layout = replace(table.layout, has_header=False)
    return _whole(replace(table, layout=layout))


def repeat_header(table: Table, rng: Generator) -> Changed:
    """Write types, units or the names again below the names."""
    if not table.layout.has_header:
        return _whole(table)
    kinds = [("string",) * len(table.names), ("",) * len(table.names), table.names]
    header = kinds[rng.integers(len(kinds))]
    return _whole(replace(table, rows=(header, *table.rows)))


def _of_text(change: Callable[[str, str], str]) -> Change:
    """Return a change of one line as it is written."""

    def changed(table: Table, rng: Generator) -> Changed:
        lines = table.text.splitlines()
        place = int(rng.integers(len(lines)))
        lines[place] = change(lines[place], table.layout.separator)
        return Changed(table, "\n".join(lines) + "\n")

    return changed


CHANGES: dict[str, Change] = {
    "drop line": drop_line,
    "repeat line": repeat_line,
    "change field": change_field,
    "drop column": drop_column,
    "add column": add_column,
    "rename column": rename_column,
    "swap columns": swap_columns,
    "drop header": drop_header,
    "repeat header": repeat_header,
    "quote": _of_text(lambda line, mark: mark.join(f'"{f}"' for f in line.split(mark))),
    "open quote": _of_text(lambda line, _: f'"{line}'),
    "comment": _of_text(lambda line, _: f"{line}\n# a comment"),
    "empty line": _of_text(lambda line, _: f"{line}\n\n"),
    "cut line": _of_text(lambda line, mark: line.rsplit(mark, 1)[0]),
    "longer line": _of_text(lambda line, mark: f"{line}{mark}1"),
}


def _swap(table: Table, one: int, other: int) -> Table:
    order = [*range(len(table.names))]
    order[one], order[other] = order[other], order[one]
    return Table(
        layout=replace(
            table.layout, roles=tuple(table.layout.roles[place] for place in order)
        ),
        names=tuple(table.names[place] for place in order),
        rows=tuple(tuple(row[place] for place in order) for row in table.rows),
    )


def mutate_tables(rng: Generator) -> tuple[dict[str, bytes], Mutant]:
    """Return an edge list with a table beside it, and a mutant of one of both."""
    edges, ids = draw_edges(rng)
    beside = draw_vertices(rng, ids)
    files = {"e.txt": edges.text.encode(), "x.csv": beside.text.encode()}
    texts = {"e.txt": edges.text, "x.csv": beside.text}
    layouts = {"e.txt": edges.layout, "x.csv": beside.layout}
    name = str(rng.choice([*files]))
    table = {"e.txt": edges, "x.csv": beside}[name]
    change = str(rng.choice([*CHANGES]))
    changed = CHANGES[change](table, rng)
    texts[name] = changed.text
    layouts[name] = changed.table.layout

    def read() -> SlowGraph:
        graph = slow.read_edges(texts["e.txt"], _roles(edges, layouts["e.txt"]))
        slow.add_table(graph, texts["x.csv"], layouts["x.csv"])
        return graph

    return files, Mutant(
        change=f"{name}: {change}",
        files={**files, name: changed.text.encode()},
        read=read,
        has_to_say=changed.has_to_say,
    )


def _roles(original: Table, layout: Layout) -> Layout:
    """Return a layout whose first columns are the ends where one was lost unnamed."""
    is_lost = len(layout.roles) < len(original.names) and len(layout.roles) > 1
    if is_lost and not layout.has_header and layout.roles.count("end") < 2:
        rest = [""] * (len(layout.roles) - 2)
        return replace(layout, roles=("end", "end", *rest))
    return layout


def mutate_matrix(rng: Generator) -> tuple[dict[str, bytes], Mutant]:
    """Return a matrix of MatrixMarket, and a mutant with a line or a number changed."""
    size = int(rng.integers(4, 9))
    entries = rng.integers(1, size + 1, (12, 2))
    lines = ["%%MatrixMarket matrix coordinate pattern general", f"{size} {size} 12"]
    lines += [f"{a} {b}" for a, b in entries]
    return _of_lines("g.mtx", lines, slow.read_matrix_market, rng, first=1)


def mutate_blocks(rng: Generator) -> tuple[dict[str, bytes], Mutant]:
    """Return a graph of LGL, and a mutant with a line or a name changed."""
    lines = []
    for vertex in "abcdef":
        lines.append(f"# {vertex}")
        near = rng.choice([*"abcdefgh"], int(rng.integers(1, 4)), replace=False)
        lines += [f"{other} 0.5" for other in near]
    return _of_lines("g.lgl", lines, slow.read_blocks, rng, first=0)


def mutate_colons(rng: Generator) -> tuple[dict[str, bytes], Mutant]:
    """Return lists of Friendster, and a mutant with a line or a name changed."""
    lines = []
    for vertex in range(101, 108):
        near = rng.choice(range(101, 111), int(rng.integers(2, 5)), replace=False)
        lines.append(f"{vertex}:{','.join(map(str, near))}")
    return _of_lines("g.txt", lines, slow.read_colons, rng, first=0)


def mutate_konect(rng: Generator) -> tuple[dict[str, bytes], Mutant]:
    """Return a list of KONECT with weights, and a mutant with an edge changed."""
    size = int(rng.integers(5, 12))
    ends = rng.integers(1, size + 1, (15, 2))
    lines = ["% asym positive", f"% 15 {size} {size}"]
    lines += [f"{left} {right} {1 + left % 3}" for left, right in ends]
    return _of_lines("out.k", lines, slow.read_konect, rng, first=2)


def mutate_metis(rng: Generator) -> tuple[dict[str, bytes], Mutant]:
    """Return a graph of METIS, and a mutant with a line or a number changed."""
    size = int(rng.integers(4, 9))
    pairs = {frozenset(map(int, rng.integers(1, size + 1, 2))) for _ in range(12)}
    pairs = {pair for pair in pairs if len(pair) == 2}
    near: list[list[str]] = [[] for _ in range(size)]
    for left, right in sorted(map(sorted, pairs)):
        near[left - 1].append(str(right))
        near[right - 1].append(str(left))
    lines = [f"{size} {len(pairs)}", *map(" ".join, near)]
    return _of_lines("g.graph", lines, slow.read_metis, rng, first=0)


def _of_lines(
    name: str,
    lines: list[str],
    read: Callable[[str], SlowGraph],
    rng: Generator,
    first: int,
) -> tuple[dict[str, bytes], Mutant]:
    original = "\n".join(lines) + "\n"
    place = int(rng.integers(first, len(lines)))
    kind = rng.choice(["drop line", "repeat line", "change field"])
    if kind == "drop line":
        del lines[place]
    elif kind == "repeat line":
        lines.insert(place, lines[place])
    else:
        words = [*re.finditer(r"\w+", lines[place])]
        others = re.findall(r"\w+", "\n".join(lines[first:]))
        if words:
            word = words[rng.integers(len(words))]
            other = str(rng.choice(others))
            line = lines[place]
            lines[place] = f"{line[: word.start()]}{other}{line[word.end() :]}"
    text = "\n".join(lines) + "\n"
    files = {name: original.encode()}
    mutant = Mutant(f"{name}: {kind}", {name: text.encode()}, lambda: read(text), False)
    return files, mutant


def mutate_arrays(rng: Generator) -> tuple[dict[str, bytes], Mutant]:
    """Return an npz file, and one with an array dropped, renamed, changed, added."""
    count = int(rng.integers(5, 12))
    part = rng.integers(0, 3, count)
    part[0] = 0
    arrays: dict[str, Any] = {
        "edge_index": rng.integers(0, count, (2, 20)),
        "x": rng.normal(size=(count, 2)).astype(np.float32),
        "y": np.arange(count) % 3,
        "train_mask": part == 0,
        "val_mask": part == 1,
        "test_mask": part == 2,
    }
    roles = {"edge_index": "edges", "x": "features", "y": "labels"}
    roles |= {f"{word}_mask": part for word, part in _PARTS.items()}
    files = {"g.npz": _packed(arrays)}
    name = str(rng.choice([*arrays]))
    kind = str(rng.choice(["drop", "rename", "change", "add"]))
    changed = dict(arrays)
    if kind == "drop":
        del changed[name]
    elif kind == "rename":
        changed["zz"] = changed.pop(name)
    elif kind == "add":
        changed["extra"] = rng.integers(0, 3, count)
    else:
        array = changed[name].copy()
        place = int(rng.integers(array.size))
        array.flat[place] = not array.flat[place] if array.dtype == bool else 1
        changed[name] = array
    known = {role: key for key, role in roles.items() if key in changed}
    says = kind in {"add", "rename"}
    mutant = Mutant(
        f"{kind} {name}",
        {"g.npz": _packed(changed)},
        lambda: slow.read_arrays(changed, known),
        says,
    )
    return files, mutant


def _packed(arrays: dict[str, Any]) -> bytes:
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    return content.getvalue()


KINDS = (
    mutate_tables,
    mutate_tables,
    mutate_tables,
    mutate_matrix,
    mutate_blocks,
    mutate_colons,
    mutate_konect,
    mutate_metis,
    mutate_arrays,
)


def import_files(files: dict[str, bytes], folder: Path) -> tuple[SlowGraph, list[str]]:
    """Return the graph that emu makes of files, and what it says; raises DataError."""
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    beside = folder / "x.csv"
    options: dict[str, Any] = {}
    if beside.exists():
        options = dict.fromkeys(("features", "labels", "splits"), beside)
    elif "g.npz" not in files:
        options = {"feature_length": 1, "classes": 1}
    path = folder / next(iter(files))
    kept = import_graph(path, folder.name, **options)
    facts = kept.facts
    names = [*map(str, range(facts["vertices"]))]
    if kept.holds("ids"):
        names = [*map(str, kept.array("ids").tolist())]

    graph = SlowGraph(vertices={*names})
    indptr, indices = kept.array("indptr"), kept.array("indices")
    for vertex, name in enumerate(names):
        for other in indices[indptr[vertex] : indptr[vertex + 1]]:
            graph.add_edge(name, names[other])
    if not options or beside.exists():
        rows = kept.array("features").tolist()
        labels = kept.array("labels").tolist()
        graph.features = dict(zip(names, rows, strict=True))
        classes = zip(names, labels, strict=True)
        graph.classes = {name: str(label) for name, label in classes if label >= 0}
        for part in _PARTS.values():
            if kept.holds(part):
                graph.parts[part] = {names[v] for v in kept.array(part)}
    return graph, summary_lines(facts)


def judge(seed: int, folder: Path) -> tuple[str, str]:
    """Return what was changed and what came of it; that begins with "wrong" if so."""
    rng = np.random.default_rng(seed)
    files, mutant = KINDS[rng.integers(len(KINDS))](rng)
    try:
        _, said = import_files(files, folder / f"good{seed}")
    except DataError as error:
        return "nothing", f"asked: {error}"
    try:
        found, says = import_files(mutant.files, folder / f"mutant{seed}")
    except DataError as error:
        is_ours = "is damaged" not in str(error)
        return mutant.change, "refused" if is_ours else f"wrong: {error}"
    try:
        expected = mutant.read()
    except NoGraphError as error:
        return mutant.change, f"wrong: taken, though {error}"
    problem = compare(found, expected)
    if problem:
        return mutant.change, f"wrong: {problem}"
    if mutant.has_to_say and says == said:
        return mutant.change, "wrong: nothing is said"
    return mutant.change, "right"


def compare(found: SlowGraph, expected: SlowGraph) -> str:
    """Return how two graphs differ; "" where they do not."""
    if found.edges != expected.edges:
        return f"edges {found.edges ^ expected.edges}"
    if found.vertices != expected.vertices:
        return f"vertices {found.vertices ^ expected.vertices}"
    return _compare_values(found, expected) if expected.features else ""


def _compare_values(found: SlowGraph, expected: SlowGraph) -> str:
    if found.features.keys() != expected.features.keys():
        return "features of other vertices"
    for vertex, row in expected.features.items():
        if not np.allclose(found.features[vertex], row, rtol=1e-5):
            return f"features of {vertex}: {found.features[vertex]}, not {row}"
    if not slow.same_classes(found.classes, expected.classes):
        return "other classes"
    parts = {_PARTS.get(name, name): ids for name, ids in expected.parts.items() if ids}
    parts.pop("", None)
    others = {name: ids for name, ids in found.parts.items() if ids}
    return "" if parts == others else f"parts {others}, not {parts}"


def main() -> int:
    """Judge so many mutants; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    counts = Counter[str]()
    wrong = []
    for number in range(options.count):
        seed = options.seed * 1_000_000 + number
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_CACHE_HOME"] = folder
            change, outcome = judge(seed, Path(folder))
        counts[outcome.partition(":")[0]] += 1
        if outcome.startswith("wrong"):
            wrong.append(f"{seed} {change}: {outcome}")
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))
    print(*wrong, sep="\n")
    return 1 if wrong else 0
