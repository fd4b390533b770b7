"""Tables that are odd and legal: read as they stand, or refused with their line."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from emu.errors import DataError
from emu.graph_data.imported import import_graph
from emu.graph_data.readers import text_table
from emu.graph_data.readers.edge_list import read_edge_list
from emu.graph_data.readers.text_table import TableOptions
from emu.graph_data.readers.vertex_table import (
    read_features,
    read_labels,
    read_splits,
)

pytestmark = pytest.mark.usefixtures("read_here")


def written(folder: Path, text: str | bytes, name: str = "table.csv") -> Path:
    """Write a file and return its path."""
    content = text if isinstance(text, bytes) else text.encode()
    (folder / name).write_bytes(content)
    return folder / name


def edges_of(folder: Path, text: str | bytes, **options: Any) -> Any:
    """Return the edges of a list between ids as texts, and the graph."""
    graph = read_edge_list(written(folder, text), TableOptions(**options))
    ids = graph.ids
    assert ids is not None
    ends = zip(ids[graph.sources], ids[graph.destinations], strict=True)
    return [f"{source}-{destination}" for source, destination in ends], graph


@pytest.mark.parametrize(
    ("text", "edges"),
    [
        ("1.10 1.2\n1.1 1.2\n", ["1.10-1.2", "1.1-1.2"]),
        ("+5 6\n5 6\n", ["+5-6", "5-6"]),
        ("1e3 7\n1000 7\n", ["1e3-7", "1000-7"]),
        ("src,dst\n1.10,1.2\n1.1,1.2\n", ["1.10-1.2", "1.1-1.2"]),
    ],
)
def test_ids_that_are_stated_to_be_words_stand_as_written(
    text: str, edges: list[str], tmp_path: Path
) -> None:
    """Numbers that are equal are words that differ, in edges, tables and lists."""
    assert edges_of(tmp_path, text, words=True)[0] == edges


def test_ids_of_tables_that_are_words_stand_as_written(tmp_path: Path) -> None:
    """Versions 1.10 and 1.1 are two vertices; 007 of a list is a word by itself."""
    words = TableOptions(words=True)
    labels = written(tmp_path, "id,label\n1.10,0\n1.1,1\n1.2,1\n")
    table = read_labels(labels, words)
    assert table.ids is not None
    assert table.ids.tolist() == ["1.10", "1.1", "1.2"]
    assert table.values.tolist() == [0, 1, 1]

    folder = tmp_path / "lists"
    folder.mkdir()
    written(folder, "1.10\n1.2\n", "train.txt")
    written(folder, "1.1\n", "test.txt")
    lists = read_splits(folder, words)
    assert lists.ids is not None
    assert lists.ids.tolist() == ["1.1", "1.10", "1.2"]
    assert lists.values.T.tolist() == [
        [False, True, True],
        [False, False, False],
        [True, False, False],
    ]

    written(folder, "007\n008\n", "train.txt")
    written(folder, "9\n", "test.txt")
    for words_stated, ids in ((None, ["007", "008", "9"]), (False, [7, 8, 9])):
        lists = read_splits(folder, TableOptions(words=words_stated))
        assert lists.ids is not None
        assert lists.ids.tolist() == ids


def test_words_are_no_numbers_where_these_are_stated(tmp_path: Path) -> None:
    """--no-words names the line that is none; it used to be damage."""
    labels = written(tmp_path, "id,label\n1,0\nb,1\nc,1\n")
    with pytest.raises(DataError, match="line 3 is 'b 1', it needs a vertex id"):
        read_labels(labels, TableOptions(words=False))


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("x source target\na b c\nb c a\n", {"header": False}),
        ("0 source target\n1 target b\n2 b source\n", {}),
    ],
)
def test_an_edge_that_looks_like_names_leaves_the_columns_open(
    text: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """Each pair of its three columns is asked about; it used to be damage."""
    with pytest.raises(DataError, match=r"which two columns are ids.*--columns 2,3"):
        edges_of(tmp_path, text, **options)


@pytest.mark.parametrize(
    "columns", [("source", " target "), ("02", " 3"), ("2", "target")]
)
def test_columns_are_named_with_blanks_or_zeros_around(
    columns: tuple[str, ...], tmp_path: Path
) -> None:
    """As for every other option that names a column."""
    text = "w,source,target\n1,2,3\n1,3,4\n"
    assert edges_of(tmp_path, text, columns=columns)[0] == ["2-3", "3-4"]


def test_a_header_may_lack_the_names_of_several_columns(tmp_path: Path) -> None:
    """Words above words and numbers: asked, since rows 3 and 4 have no name."""
    with pytest.raises(DataError, match="'al bo', a header or an edge"):
        edges_of(tmp_path, "al bo\nx y 3 4\nz w 5 6\n")


def test_a_last_name_that_is_no_list_stands_for_one_column(tmp_path: Path) -> None:
    """R numbers its rows under no name; JODIE's list of features has several."""
    options: dict[str, Any] = {"columns": ("user", "playlist"), "bipartite": False}
    text = '"user" "playlist"\n"1" 5 7\n"2" 7 9\n'
    assert edges_of(tmp_path, text, **options)[0] == ["5-7", "7-9"]
    for name in ("list_of_features", "List of features"):
        text = f"user_id,item_id,{name}\n0,4,1,2\n1,4,3,4\n"
        assert edges_of(tmp_path, text)[0] == ["0-4", "1-4"]


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_letter_of_the_last_line_decides_on_the_encoding(
    end: str, tmp_path: Path
) -> None:
    """Latin-1 also where no line ends behind it."""
    for encoding in ("latin-1", "utf-8"):
        text = f"source,target\na,b\nb,é{end}".encode(encoding)
        assert edges_of(tmp_path, text)[0] == ["a-b", "b-é"]


def test_a_letter_that_the_start_of_a_text_cuts_is_no_damage() -> None:
    """A text that goes on may be cut within a letter, but not a text that ends."""
    start = b"a" * ((1 << 20) - 1) + "é".encode()[:1]
    assert text_table._encoding_of(start) == "utf-8-sig"
    assert text_table._encoding_of(start[1:]) == "latin-1"
    assert text_table._encoding_of(b"\xff" + start[1:]) == "latin-1"


class Pieces(io.BytesIO):
    """Bytes that come in pieces of a length."""

    size = 1

    @override
    def read1(self, size: int | None = -1, /) -> bytes:
        return self.read(self.size)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    ("text", "has_padded"),
    [
        (b"1,2\n3,07\n", True),
        (b"01,2\n", True),
        (b"10,0\n100,20\n0.5", False),
    ],
)
def test_numbers_with_zeros_in_front_are_seen_across_pieces(
    text: bytes, size: int, *, has_padded: bool
) -> None:
    """Wherever the pieces in which a text is read cut them."""
    pieces = Pieces(text)
    pieces.size = size
    content = text_table._Content(pieces, None, "file")
    while content.read1():
        pass
    assert content.has_padded == has_padded


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("# Nodes: 3 Edges: 2\n0 1\n1 2\n", ()),
        ("# Edges: 1,002, Nodes: 3\n0 1\n1 2\n", ("1002 edges are stated, 2 are",)),
        ("# Edges: 3\n0 1\n1 2\n", ("3 edges are stated, 2 are there",)),
        ("% sym\n% 1 3 3\n1 2\n2 3\n", ("1 edges are stated, 2 are there",)),
        ("% sym\n% 2 3 3\n1 2\n2 3\n", ()),
    ],
)
def test_a_number_of_edges_that_is_stated_is_held_to_the_rows(
    text: str, note: tuple[str, ...], tmp_path: Path
) -> None:
    """Commas part thousands there; the rows are what counts."""
    _, *notes = edges_of(tmp_path, text)[1].notes
    assert len(notes) == len(note)
    assert all(found.startswith(text) for found, text in zip(notes, note, strict=True))


@pytest.mark.parametrize(
    ("text", "classes"),
    [
        ("0 # first\n1\n1 # x\n0\n", [0, 1, 1, 0]),
        ("0\n% of others\n1\n  # of one\n0\n", [0, 1, 0]),
        ('"a # b" # x\nc\n"a # b"\nc # y\n', ["a # b", "c", "a # b", "c"]),
        ("label\n\ncat\n\ncat\n\n\n", ["", "cat", "", "cat"]),
        ("\nlabel\ncat\ncat\n", ["cat", "cat"]),
    ],
)
def test_comments_beside_classes_are_no_part_of_them(
    text: str, classes: list[Any], tmp_path: Path
) -> None:
    """Also in a table of one column, whose empty lines are vertices without a class."""
    table = read_labels(written(tmp_path, text), TableOptions())
    assert table.values.tolist() == classes
    assert table.ids is None


def test_an_empty_line_above_a_column_is_refused(tmp_path: Path) -> None:
    """It may be a vertex that has nothing: all below would belong to another."""
    path = written(tmp_path, "# classes\n\ncat\ndog\ncat\n")
    with pytest.raises(DataError, match="line 2 is empty, above the first row"):
        read_labels(path, TableOptions())
    path = written(tmp_path, "1\n\n3\n")
    with pytest.raises(DataError, match="row 2 is empty, it needs a number"):
        read_features(path, TableOptions())
    path = written(tmp_path, "1\n2.5\n3\n\n")
    values = read_features(path, TableOptions()).values
    assert values.tolist() == [[1.0], [2.5], [3.0]]


def test_a_first_row_without_a_value_is_no_header(tmp_path: Path) -> None:
    """NA stands above numbers as names do, and is none."""
    path = written(tmp_path, "0.5,NA\n0.2,1\n0.1,0\n")
    with pytest.raises(DataError, match=r"line 1 is '0\.5 NA', it needs 2 numbers"):
        read_features(path, TableOptions())
    table = read_labels(written(tmp_path, "10,NA\n20,1\n30,0\n40,1\n"), TableOptions())
    assert table.ids is not None
    assert table.ids.tolist() == [10, 20, 30, 40]
    assert table.values.tolist() == [-1, 1, 0, 1]


def test_masks_beside_another_column_may_be_by_id(tmp_path: Path) -> None:
    """Asked as beside classes; columns of masks alone are rows in order."""
    rows = "3,1,0\n2,1,0\n1,0,1\n0,0,1\n"
    path = written(tmp_path, f"v,train_mask,test_mask\n{rows}")
    with pytest.raises(DataError, match="no column that is called id beside train_mas"):
        read_splits(path, TableOptions())
    by_id = read_splits(path, TableOptions(ids=True))
    assert by_id.ids is not None
    assert by_id.ids.tolist() == [3, 2, 1, 0]
    in_order = read_splits(path, TableOptions(ids=False))
    assert in_order.ids is None
    assert in_order.values.T.tolist() == [
        [True, True, False, False],
        [False] * 4,
        [False, False, True, True],
    ]

    text = "val_mask,train_mask\nTrue,False\nFalse,True\nFalse,False\n"
    alone = read_splits(written(tmp_path, text), TableOptions())
    assert alone.ids is None
    assert alone.values.tolist() == [
        [False, True, False],
        [True, False, False],
        [False, False, False],
    ]
    index = read_splits(
        written(tmp_path, ",train,test\n0,1,0\n1,0,1\n"), TableOptions()
    )
    assert index.ids is None
    assert index.values[:, 0].tolist() == [True, False]


def test_codes_of_parts_keep_their_letters(tmp_path: Path) -> None:
    """T is for training and t to be tested, as they are stated."""
    path = written(tmp_path, "id,split\n3,T\n2,T\n1,v\n0,t\n")
    table = read_splits(path, TableOptions(split_codes=("T", "v", "t")))
    assert table.values.T.tolist() == [
        [True, True, False, False],
        [False, False, True, False],
        [False, False, False, True],
    ]


def test_answers_that_a_file_does_not_need_are_refused(tmp_path: Path) -> None:
    """Lists of neighbours are text, and no matrix."""
    lists = TableOptions(neighbours=True)
    np.savez(tmp_path / "g.npz", edge_index=[[0, 1], [1, 2]])
    with pytest.raises(DataError, match=r"is no text: leave .*--neighbours out"):
        import_graph(tmp_path / "g.npz", "own", table=lists)
    text = "%%MatrixMarket matrix coordinate pattern general\n3 3 1\n1 2\n"
    matrix = written(tmp_path, text, "g.mtx")
    with pytest.raises(DataError, match=r"is MatrixMarket: leave .*--neighbours out"):
        import_graph(matrix, "own", table=lists)


@pytest.mark.parametrize(
    ("rows", "classes", "note"),
    [
        ("0,a\n1,b\n", ["a", "b"], ""),
        ("0,a\n1,b\n2,b\n", ["a", "b", "b"], ""),
        ("0,0\n1,1\n2,-1\n", [0, 1, -1], ""),
        ("0,0\n1,1\n2,1\n3,3\n", [0, 1, 1, 3], ""),
        (
            *("0,0\n1,1\n2,1\n3,4\n", [0, 1, 1, 2]),
            "; classes are the 3 numbers from 0 to 4",
        ),
        ("0,5\n1,9\n2,9\n3,7\n", [5, 9, 9, 7], ""),  # numbered with all labels
        ("0,a\n1,b\n2,c\n", None, "makes every vertex a class of its own by label"),
        ("0,0\n1,1\n2,2\n", None, "makes every vertex a class of its own by label"),
    ],
)
def test_classes_are_fewer_than_vertices(
    rows: str, classes: list[Any] | None, note: str, tmp_path: Path
) -> None:
    """Two vertices may have two classes; class numbers below the row count stay."""
    path = written(tmp_path, f"id,label\n{rows}")
    if classes is None:
        with pytest.raises(DataError, match=note):
            read_labels(path, TableOptions())
        return
    table = read_labels(path, TableOptions())
    assert table.values.tolist() == classes
    assert table.how == f"label, by id in id{note}"


def test_numbers_of_columns_are_no_features(tmp_path: Path) -> None:
    """Two columns may well begin with 0 and 1, three with names above 0, 1, 2."""
    rows = TableOptions(ids=False)
    two = read_features(written(tmp_path, "0 1\n5 6\n"), rows)
    assert two.values.tolist() == [[0, 1], [5, 6]]
    named = read_features(written(tmp_path, "a b c\n0 1 2\n5 6 7\n"), rows)
    assert named.values.tolist() == [[0, 1, 2], [5, 6, 7]]
    with pytest.raises(DataError, match="remove numbers of columns"):
        read_features(written(tmp_path, "0 1 2\n5 6 7\n"), rows)
    with pytest.raises(DataError, match="has no column of numbers: 'a b'"):
        read_features(written(tmp_path, "a b\nc d\n"), rows)


@pytest.mark.parametrize(
    ("text", "is_matrix"),
    [
        ("0 7 2 3\n7 2 3 0\n", False),
        ("0 1 2 3 4\n1 2 3 4 0\n", True),
        ("0 1 2 3 4\n1 2 3 4 0\n2 3 4 0 1\n", False),
        ("5 7 6\n7 2 3\n6 3 9\n", True),
    ],
)
def test_a_square_or_wide_table_may_be_a_matrix(
    text: str, tmp_path: Path, *, is_matrix: bool
) -> None:
    """Symmetric, or of more than four columns; else its columns are asked about."""
    problem = "may be a matrix" if is_matrix else "which two columns are ids"
    with pytest.raises(DataError, match=problem):
        edges_of(tmp_path, text)


def test_options_name_columns_that_have_no_clear_name(tmp_path: Path) -> None:
    """A column with a double, odd or missing name is named by its number."""
    text = 'w,w,"a,b",*c,,d\n1,2,3,4,5,6\n'
    table = text_table.open_table(written(tmp_path, text), TableOptions())
    table = table.decide(header=True)
    columns = range(table.width)
    assert [table.option(place) for place in columns] == [*"12345", "d"]
    assert table.name(4) == "column 5"
    assert table.left_out([0, None, 5]) == ("w", "a,b", "*c", "column 5")
    assert [table.column(name, "--x") for name in ("w", "6", " d ", "1")] == [
        0,
        5,
        5,
        0,
    ]
    for name in ("0", "7", "e"):
        with pytest.raises(DataError, match=f"--x names '{name}', of 6 columns"):
            table.column(name, "--x")


def test_a_square_table_that_is_not_symmetric_is_a_list(tmp_path: Path) -> None:
    """Three edges with three numbers each, of which two are ids."""
    edges, _ = edges_of(tmp_path, "5 7 6\n7 6 3\n6 5 9\n")
    assert edges == ["5-7", "7-6", "6-5"]


def test_parts_are_true_or_false_and_name_a_vertex_once(tmp_path: Path) -> None:
    """The column that holds another value is named, and the vertex that recurs."""
    path = written(tmp_path, "train,test\n1,0\n0,1\n0,2\n")
    with pytest.raises(DataError, match="test holds other values than 0 and 1"):
        read_splits(path, TableOptions())
    folder = tmp_path / "lists"
    folder.mkdir()
    written(folder, "20\n10\n30\n10\n", "train.txt")
    with pytest.raises(DataError, match="names vertex 10 2 times in train"):
        read_splits(folder, TableOptions())
