"""A drawn graph in a drawn layout of a drawn format comes back equal, by its ids."""

from __future__ import annotations

import gzip
import os
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from emu.graph_data.imported import import_graph
from emu.graph_data.readers import edge_list
from emu.graph_data.readers.text_table import TableOptions

pytestmark = pytest.mark.usefixtures("read_here")

Pairs = list[tuple[int, int]]
WORDS = ["alice", "Bob B", "x1", "ü-8", "Doe, J", "a;b", "0x1f", "n0de", "007", "-"]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, Pairs]:
    vertices = draw(st.integers(2, 9))
    ends = st.tuples(*[st.integers(0, vertices - 1)] * 2)
    return vertices, draw(st.lists(ends, min_size=1, max_size=14))


@st.composite
def ids(draw: st.DrawFn, count: int, words: list[str]) -> list[str]:
    """Ids in the order in which they are numbered."""
    numbers = st.integers(0, 2 ** draw(st.sampled_from([5, 40, 62])))
    kind = draw(st.sampled_from(["order", "gaps", "huge", "words"]))
    if kind == "order":
        return [*map(str, range(count))]
    if kind == "words":
        return draw(st.lists(st.sampled_from(words), min_size=count, max_size=count,
                             unique=True))  # fmt: skip
    many = draw(st.lists(numbers, min_size=count, max_size=count, unique=True))
    return [str(number + 2**64 * (kind == "huge")) for number in many]


@st.composite
def layouts(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "separator": draw(st.sampled_from([",", ";", "\t", " "])),
        "packed": draw(st.booleans()),
        "encoding": draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16"])),
        "end": draw(st.sampled_from(["\n", "\r\n"])),
        "comment": draw(st.sampled_from(["", "# a, b", "% c"])),
        "quoted": draw(st.booleans()),
        "rng": np.random.default_rng(draw(st.integers(0, 99))),
    }


def write_table(
    path: Path, header: list[str] | None, rows: list[list[str]], layout: dict[str, Any]
) -> Path:
    """Write a table with its columns in the order in which they are given."""
    separator = layout["separator"]

    def field(text: str) -> str:
        special = any(mark in text for mark in (separator, " ", ",", ";"))
        return f'"{text}"' if special or layout["quoted"] else text

    lines = [layout["comment"]] if layout["comment"] else []
    lines += [
        separator.join(map(field, row)) for row in ([header] if header else []) + rows
    ]
    content = (layout["end"].join(lines) + layout["end"]).encode(layout["encoding"])
    path.write_bytes(gzip.compress(content) if layout["packed"] else content)
    return path


def read_back(kept: Any) -> tuple[list[str], set[frozenset[str]]]:
    names = [*map(str, range(kept.facts["vertices"]))]
    if kept.holds("ids"):
        names = [*map(str, kept.array("ids").tolist())]
    indptr, indices = kept.array("indptr"), kept.array("indices")
    rows = (indices[indptr[v] : indptr[v + 1]] for v in range(len(names)))
    pairs = {frozenset((names[v], names[u])) for v, row in enumerate(rows) for u in row}
    return names, pairs


def bring(folder: str, path: Path, **options: Any) -> Any:
    with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": folder}):
        return import_graph(path, "own", **options)


def expect(edges: Pairs, names: list[str]) -> set[frozenset[str]]:
    return {frozenset((names[a], names[b])) for a, b in edges if a != b}


def draw_values(vertices: int, rng: Any) -> tuple[Any, Any, Any]:
    """Return classes, parts and features; never is each vertex a class of its own."""
    labels = rng.integers(0, 3, vertices)
    labels[:2] = 0
    parts = rng.choice(["train", "val", "test", "none"], vertices)
    parts[0] = "train"
    return labels, parts, rng.integers(-9, 9, (vertices, 2))


HEADERS = [("source", "target"), ("src", "dst"), ("fromNode", "toNode"), ("u", "v"),
           ("node1", "node2"), ("id_a", "id_b")]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(data=st.data(), graph=graphs(), layout=layouts(), beside=layouts())
def test_lists_and_tables_come_back_by_id(
    data: st.DataObject,
    graph: tuple[int, Pairs],
    layout: dict[str, Any],
    beside: dict[str, Any],
) -> None:
    """Columns in any order, tables in any order of rows, all of them by id."""
    vertices, edges = graph
    names = data.draw(ids(vertices, WORDS))
    rng, ends = layout["rng"], data.draw(st.sampled_from(HEADERS))
    header = data.draw(st.sampled_from(["known", "unknown", "none"]))
    extra = data.draw(st.integers(0, 2))
    columns = [*["weight", "time"][:extra], *ends]
    order = (
        [*rng.permutation(len(columns))]
        if header != "none"
        else [-2, -1, *range(extra)]
    )
    rows = [
        [([*["0.5", "7"][:extra], names[a], names[b]])[c] for c in order]
        for a, b in edges
    ]
    shown = [columns[c] for c in order]
    options: dict[str, Any] = {"header": header != "none"}
    if header == "unknown":
        shown = [f"{name}X" for name in "qwer"][: len(shown)]
        places = order.index(len(columns) - 2), order.index(len(columns) - 1)
        options |= {"columns": tuple(shown[p] for p in places), "bipartite": False}
    elif header == "none" and extra == 2:
        options["columns"] = ("1", "2")  # else it may be a matrix
    options["words"] = not all(name.isdecimal() for name in names) or "007" in names
    labels, parts, features = draw_values(vertices, rng)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        edge_file = write_table(home / "e.csv", shown if header != "none" else None,
                                rows, layout)  # fmt: skip
        mixed = [[names[v], str(features[v][0]), str(labels[v]), str(features[v][1])]
                 for v in rng.permutation(vertices)]  # fmt: skip
        table = write_table(home / "x.csv", ["id", "f1", "label", "f2"], mixed, beside)
        split = write_table(home / "s.csv", ["node_id", "split"],
                            [[names[v], parts[v]] for v in rng.permutation(vertices)],
                            beside)  # fmt: skip
        kept = bring(folder, edge_file, features=table, labels=table, splits=split,
                     table=TableOptions(**options))  # fmt: skip
        back, pairs = read_back(kept)
        at = [back.index(name) for name in names]

        assert pairs == expect(edges, names)
        np.testing.assert_array_equal(kept.array("labels")[at], labels)
        np.testing.assert_array_equal(kept.array("features")[at], features)
        for part, word in (("train", "train"), ("valid", "val"), ("test", "test")):
            assert {back[v] for v in kept.array(part)} == {
                name for name, p in zip(names, parts, strict=True) if p == word
            }
        loops = sum(a == b for a, b in edges)
        facts = kept.facts
        assert facts["self_loops"] == loops
        assert facts["doubles"] == len(edges) - loops - len(pairs)
        assert sum(facts["class_sizes"]) == vertices


@settings(max_examples=30, deadline=None)
@given(graph=graphs(), layout=layouts(), beside=layouts(), named=st.booleans())
def test_tables_in_order_and_lists_of_classes(
    graph: tuple[int, Pairs], layout: dict[str, Any], beside: dict[str, Any], named: Any
) -> None:
    """Features in order, their ids left out; classes by id, or in order, in one."""
    vertices, edges = graph
    labels, parts, features = draw_values(vertices, layout["rng"])
    order = layout["rng"].permutation(vertices) if named else range(vertices)
    # Two readings of a file are asked for: ids from 1 may be rows from 0, and a first
    # row of the number of rows below it, with a class of its own, may be sizes.
    named_vertices = {end for edge in edges for end in edge}
    assume(min(named_vertices) != 1 or len(named_vertices) == 1)
    first_class = labels[order[0]]
    assume(order[0] != vertices - 1 or np.count_nonzero(labels == first_class) > 1)
    ends = [[str(end) for end in edge] for edge in edges]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        kept = bring(
            folder,
            write_table(home / "e", None, ends, layout),
            features=write_table(
                home / "x", ["", "a", "b"],
                [[str(v), *map(str, features[v])] for v in range(vertices)], beside,
            ),
            labels=write_table(
                home / "y", None,
                [[str(v)] * named + [str(labels[v])] for v in order], beside,
            ),
            splits=write_table(
                home / "s", None,
                [[str(v)] * named + [str(parts[v])] for v in order], beside,
            ),
            table=TableOptions(header=False),
        )  # fmt: skip

        assert read_back(kept)[1] == expect(edges, [*map(str, range(vertices))])
        np.testing.assert_array_equal(kept.array("features"), features)
        np.testing.assert_array_equal(kept.array("labels"), labels)
        np.testing.assert_array_equal(
            kept.array("train"), np.flatnonzero(parts == "train")
        )


@settings(max_examples=40, deadline=None)
@given(data=st.data(), graph=graphs(), layout=layouts())
def test_graphs_of_other_formats_come_back(
    data: st.DataObject, graph: tuple[int, Pairs], layout: dict[str, Any]
) -> None:
    vertices, edges = graph
    names = [*map(str, range(1, vertices + 1))]
    form = data.draw(st.sampled_from([write_metis, write_matrix, write_konect]))
    text, kept_edges = form(vertices, edges, layout["rng"])
    content = text.replace("\n", layout["end"]).encode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / data.draw(
            st.sampled_from(["g.txt", "g", "out.g", "g.mtx"])
        )
        path.write_bytes(gzip.compress(content) if layout["packed"] else content)
        kept = bring(folder, path, feature_length=2, classes=1)

        assert read_back(kept) == (names, expect(kept_edges, names))


def write_metis(vertices: int, edges: Pairs, rng: Any) -> tuple[str, Pairs]:
    once = {(min(e), max(e)) for e in edges if e[0] != e[1]} or {(0, 1)}
    size, weighed, of_edges = rng.integers(0, 2, 3)
    ncon = int(rng.integers(1, 3)) if weighed else 0
    lines = [
        f"{vertices} {len(once)} {size}{weighed}{of_edges}" + f" {ncon}" * (ncon > 1)
    ]
    for v in range(vertices):
        numbers = [*rng.integers(1, 9, size + ncon)]
        for a, b in sorted(once):
            if v in {a, b}:
                numbers += [a + b - v + 1, *[a + b + 3] * of_edges]
        lines.append(" ".join(map(str, numbers)))
    return "% made\n" + "\n".join(lines) + "\n", sorted(once)


def write_matrix(vertices: int, edges: Pairs, rng: Any) -> tuple[str, Pairs]:
    kind, *values = [("pattern",), ("real", "0.5e-3"), ("integer", "-7"),
                     ("complex", "1 0.5")][rng.integers(4)]  # fmt: skip
    shape = ["general", "symmetric"][rng.integers(2)]
    if shape == "symmetric":
        edges = [(max(e), min(e)) for e in edges]
    lines = [f"%%MatrixMarket matrix coordinate {kind} {shape}", "% made", ""]
    lines += [f"{vertices} {vertices} {len(edges)}"]
    lines += [" ".join([str(a + 1), str(b + 1), *values]) for a, b in edges]
    return "\n".join(lines) + "\n", edges


def write_konect(vertices: int, edges: Pairs, rng: Any) -> tuple[str, Pairs]:
    more = ["", " 1", " 2 1088"][rng.integers(3)]
    kind = ["sym", "asym"][rng.integers(2)]
    lines = [f"% {kind} positive", f"% {len(edges)} {vertices} {vertices}"]
    return "\n".join([*lines, *(f"{a + 1} {b + 1}{more}" for a, b in edges)]), edges


@settings(max_examples=30, deadline=None)
@given(
    edges=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), min_size=1),
    shift=st.sampled_from([0, 5]),
    form=st.sampled_from(["header", "konect", "matrix"]),
)
def test_two_kinds_keep_apart(edges: Pairs, shift: int, form: str) -> None:
    """Ids of both sides overlap, or (5 apart) do not."""
    rows = [(a + 1, b + 1 + shift) for a, b in edges]
    lines = [f"{a},{b}" for a, b in rows]
    names = ("user_id", "item_id")
    text = "ts,item_id,user_id\n" + "\n".join(f"9,{b},{a}" for a, b in rows)
    if form == "konect":
        text, names = "% bip\n" + "\n".join(lines), ("left", "right")
    elif form == "matrix":
        top = "%%MatrixMarket matrix coordinate pattern general\n"
        text = top + f"5 12 {len(rows)}\n" + "\n".join(lines).replace(",", " ")
        names = ("row", "column")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "g"
        path.write_text(text)
        kept = bring(folder, path, feature_length=2, classes=1)
        _, pairs = read_back(kept)
        sides = {a for a, _ in rows}, {b for _, b in rows}
        if form == "matrix":
            sides = {*range(1, 6)}, {*range(1, 13)}
        apart = not sides[0] & sides[1]

        def name(side: int, one: int) -> str:
            return str(one) if apart else f"{names[side]}:{one}"

        assert pairs == {frozenset((name(0, a), name(1, b))) for a, b in rows}
        assert kept.facts["vertices"] == sum(map(len, sides))
        assert kept.facts["self_loops"] == 0


def test_each_side_of_a_bipartite_list_is_counted(tmp_path: Path) -> None:
    """Two users and three items: the note says which are how many."""
    path = tmp_path / "ratings.csv"
    path.write_text("user,item\nu1,i1\nu1,i2\nu2,i3\n")

    graph = edge_list.read_edge_list(path, TableOptions())

    assert graph.notes[-1] == "bipartite: 2 of user, 3 of item"
    assert graph.destinations.tolist() == [2, 3, 4]
