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


def _cut(row: tuple[str, ...], place: int) -> tuple[str, ...]:
    return (*row[:place], *row[place + 1 :])


@dataclass(frozen=True)
class Mutant:
    """Files of which one was changed, and what has to come of them."""

    change: str
    files: dict[str, bytes]
    read: Callable[[], SlowGraph]
    """The graph that they state; raises NoGraphError where they state none."""
    has_to_say: bool
    """Whether something has changed that is no part of the graph."""


def draw_edges(rng: Generator) -> tuple[Table, list[str]]:
    """Return an edge list, and the ids of its vertices."""
    count = int(rng.integers(8, 20))
    begin = int(rng.integers(0, 2) * rng.integers(0, 60))
    ids = [str(begin + n) for n in range(count)]
    if rng.random() < 0.3:
        ids = [f"v{n}{'xyz'[n % 3]}" for n in range(count)]
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


def change_table(table: Table, rng: Generator) -> tuple[str, Table, str, bool]:
    """Return what was changed, the table, its text, and whether that has to be said."""
    row = int(rng.integers(len(table.rows)))
    column = int(rng.integers(len(table.names)))
    is_used = bool(table.layout.roles[column])
    rows = [*table.rows]
    kind = rng.choice(
        ["drop line", "repeat line", "change field", "empty field", "drop column",
         "add column", "rename column", "swap columns", "drop header", "second header",
         "quote", "open quote", "comment", "cut line", "word"]
    )  # fmt: skip
    says = False
    if kind == "drop line":
        del rows[row]
    elif kind == "repeat line":
        rows.append(rows[row])
    elif kind in {"change field", "empty field", "word"}:
        fields = {"empty field": "", "word": "Zed"}
        field = fields.get(kind, rows[int(rng.integers(len(rows)))][column])
        rows[row] = (*rows[row][:column], field, *rows[row][column + 1 :])
    elif kind == "drop column":
        table = table.without_column(column)
        return kind, table, table.text, not is_used
    elif kind == "add column":
        return _add_column(table, rng)
    elif kind == "rename column":
        table = replace(
            table, names=(*table.names[:column], "qq", *table.names[column + 1 :])
        )
        says = not is_used and table.layout.has_header
    elif kind == "swap columns":
        other = int(rng.integers(len(table.names)))
        table = _swap(table, column, other)
        rows = [*table.rows]
    elif kind == "drop header" and table.layout.has_header:
        table = replace(table, layout=replace(table.layout, has_header=False))
    elif kind == "second header" and table.layout.has_header:
        rows.insert(0, tuple("string" for _ in table.names))
    changed = replace(table, rows=tuple(rows))
    lines = changed.text.splitlines()
    line = int(rng.integers(len(lines)))
    if kind == "quote":
        lines[line] = changed.layout.separator.join(
            f'"{field}"' for field in lines[line].split(changed.layout.separator)
        )
    elif kind == "open quote":
        lines[line] = '"' + lines[line]
    elif kind == "comment":
        lines.insert(line + 1, "# a comment")
    elif kind == "cut line":
        lines[line] = lines[line].rsplit(changed.layout.separator, 1)[0]
    return str(kind), changed, "\n".join(lines) + "\n", says


def _add_column(table: Table, rng: Generator) -> tuple[str, Table, str, bool]:
    count = len(table.rows)
    fields = [
        [str(1000 + 20 * (n // 3)) for n in range(count)],
        [str(n) for n in range(count)],
        [f"{value:.4f}" for value in rng.random(count)],
        [("True", "False")[n % 2] for n in range(count)],
        [f"2010-01-{1 + n % 28:02}" for n in range(count)],
        [("friend", "foe")[n % 2] for n in range(count)],
        [str(1 + n % 5) for n in range(count)],
    ]
    chosen = int(rng.integers(len(fields)))
    place = int(rng.integers(len(table.names) + 1))
    # A table of vertices takes each column of numbers for a feature.
    is_feature = "id" in table.layout.roles and chosen not in {4, 5}
    role = "feature" if is_feature else ""
    made = fields[chosen]
    table = table.with_column(place, role, "extra", made)
    return f"add column {chosen}", table, table.text, not role


def _swap(table: Table, one: int, other: int) -> Table:
    order = [*range(len(table.names))]
    order[one], order[other] = order[other], order[one]
    if not table.layout.has_header:
        return table
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
    change, changed, text, says = change_table(table, rng)
    texts[name] = text
    layouts[name] = changed.layout

    def read() -> SlowGraph:
        graph = slow.read_edges(texts["e.txt"], _roles(edges, layouts["e.txt"]))
        slow.add_table(graph, texts["x.csv"], layouts["x.csv"])
        return graph

    mutant = {**files, name: text.encode()}
    return files, Mutant(f"{name}: {change}", mutant, read, says)


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
        words = lines[place].split()
        other = lines[int(rng.integers(first, len(lines)))].split()
        words[-1 if words[0] == "#" else 0] = other[-1 if other[0] == "#" else 0]
        lines[place] = " ".join(words)
    text = "\n".join(lines) + "\n"
    files = {name: original.encode()}
    mutant = Mutant(f"{name}: {kind}", {name: text.encode()}, lambda: read(text), False)
    return files, mutant


def mutate_arrays(rng: Generator) -> tuple[dict[str, bytes], Mutant]:
    """Return an npz file, and a mutant with an array dropped, renamed, changed, added."""
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


KINDS = (mutate_tables, mutate_tables, mutate_matrix, mutate_blocks, mutate_arrays)


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
    _, said = import_files(files, folder / f"good{seed}")
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
    if not expected.features:
        return ""
    if found.features.keys() != expected.features.keys():
        return "features of other vertices"
    for vertex, row in expected.features.items():
        if not np.allclose(found.features[vertex], row, rtol=1e-5):
            return f"features of {vertex}: {found.features[vertex]}, not {row}"
    if not slow.same_classes(found.classes, expected.classes):
        return "other classes"
    parts = {
        _PARTS.get(name, name): ids
        for name, ids in expected.parts.items()
        if name and ids
    }
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
