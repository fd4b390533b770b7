"""Files of MatrixMarket and METIS, by what their first lines state."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.errors import DataError
from emu.graph_data.readers.matrix_files import (
    _Form,
    is_matrix,
    read_matrix,
    read_metis,
)
from emu.graph_data.readers.text_table import TableOptions

HEAD = "%%MatrixMarket matrix coordinate"


def matrix(folder: Path, text: str) -> Path:
    """Return a file of MatrixMarket."""
    path = folder / "graph.mtx"
    path.write_text(text)
    return path


def test_entries_of_a_square_matrix_are_edges_of_one_kind(tmp_path: Path) -> None:
    """Values are left out; rows and columns count from 1."""
    text = f"{HEAD} real general\n% words\n3 3 2\n1 3 0.5\n2 1 7\n"
    path = matrix(tmp_path, text)
    assert is_matrix(path)
    found = read_matrix(path, TableOptions())
    assert (found.sources.tolist(), found.destinations.tolist()) == ([0, 1], [2, 0])
    assert found.ids is not None
    assert (found.vertices, found.ids.tolist()) == (3, [1, 2, 3])
    assert found.left_out == ("1 column: values",)
    both = read_matrix(path, TableOptions(bipartite=True))
    assert (both.vertices, both.destinations.tolist()) == (6, [5, 3])


def test_rows_and_columns_of_others_are_two_kinds(tmp_path: Path) -> None:
    """A matrix that is not square cannot have vertices of one kind."""
    path = matrix(tmp_path, f"{HEAD} pattern general\n2 3 2\n1 3\n2 1\n")
    found = read_matrix(path, TableOptions())
    assert (found.vertices, found.sources.tolist()) == (5, [0, 1])
    assert found.destinations.tolist() == [4, 2]
    assert found.left_out == ()
    with pytest.raises(DataError, match="2 rows and 3 columns: it is bipartite"):
        read_matrix(path, TableOptions(bipartite=False))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"{HEAD} pattern general\n2 2 3\n1 2\n2 1\n", "states 3 entries and holds 2"),
        (f"{HEAD} real general\n2 2 1\n1 2\n", "has 2 columns of 3 of real entries"),
        (f"{HEAD} pattern general\n2 2\n1 2\n", "states '2 2'; rows, columns"),
        (f"{HEAD} pattern general\n2 2 1\n1 3\n", "row and column from 1 to 2 and 2"),
        (f"{HEAD} pattern general\n2 2 1\n0 2\n", "row and column from 1 to 2 and 2"),
        (f"{HEAD} pattern general\n2 3 1\n3 2\n", "row and column from 1 to 2 and 3"),
        (f"{HEAD} odd general\n2 2 1\n1 2\n", "matrix coordinate is read"),
        ("%%MatrixMarket matrix array real\n2 2 1\n1 2\n", "coordinate is read"),
        (f"{HEAD} pattern odd\n2 2 1\n1 2\n", "its last word is one of general"),
        (f"{HEAD} pattern symmetric\n3 2 1\n3 1\n", "3 rows and 2 columns: both are"),
    ],
)
def test_matrices_that_are_not_as_they_state_are_refused(
    tmp_path: Path, text: str, problem: str
) -> None:
    """The error names what is wrong with the file."""
    with pytest.raises(DataError, match=problem):
        read_matrix(matrix(tmp_path, text), TableOptions())


@pytest.mark.parametrize("form", ["symmetric", "skew-symmetric", "hermitian"])
def test_half_of_a_matrix_is_not_of_two_kinds(tmp_path: Path, form: str) -> None:
    """Entries that it leaves out would be edges that are missing."""
    path = matrix(tmp_path, f"{HEAD} real {form}\n2 2 1\n2 1 3\n")
    assert read_matrix(path, TableOptions()).vertices == 2
    with pytest.raises(DataError, match=r"both are one kind .* no --bipartite"):
        read_matrix(path, TableOptions(bipartite=True))


def test_whole_numbers_without_a_sign_are_values(tmp_path: Path) -> None:
    """Texts that scipy writes for matrices of unsigned numbers."""
    path = matrix(tmp_path, f"{HEAD} unsigned-integer general\n2 2 1\n2 1 3\n")
    assert read_matrix(path, TableOptions()).left_out == ("1 column: values",)


@pytest.mark.parametrize(
    ("fields", "before", "step", "numbers", "left_out"),
    [
        ("3 4", 0, 1, 8, 0),
        ("3 4 1", 0, 2, 16, 1),
        ("3 4 10", 1, 1, 11, 1),
        ("3 4 011 2", 2, 2, 22, 2),
        ("3 4 100", 1, 1, 11, 1),
        ("3 4 111 3", 4, 2, 28, 3),
        ("3 4 001 3", 0, 2, 16, 1),
    ],
)
def test_lines_of_metis_are_as_the_first_one_says(
    fields: str, before: int, step: int, numbers: int, left_out: int
) -> None:
    """Sizes and weights stand before neighbours, those of edges behind each."""
    form = _Form.of(fields.split())
    assert (form.vertices, form.edges) == (3, 4)
    assert (form.before, form.step, form.numbers) == (before, step, numbers)
    assert len(form.left_out) == left_out


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ("3", "the first line is not: vertices edges"),
        ("3 4 0 1 2", "the first line is not: vertices edges"),
        ("3 4 0000", "fmt is 0000"),
        ("3 4 2", "fmt is 002"),
        ("0 4", "the first line states 0 vertices"),
        ("x 4", "invalid literal .* 'x'"),
        ("3 4 010 x", "invalid literal .* 'x'"),
    ],
)
def test_first_lines_that_are_not_of_metis_are_refused(
    fields: str, problem: str
) -> None:
    """A first line has two to four numbers, of which the third is three flags."""
    with pytest.raises(ValueError, match=problem):
        _Form.of(fields.split())


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("3 2\n2\n1 3\n2\n", {(0, 1), (1, 2)}),
        ("% words\n3 1\n\n3\n2\n", {(1, 2)}),
        ("3 1\n2\n1\n", {(0, 1)}),  # the last has no line
        ("3 2 1\n2 9\n1 9 3 8\n2 8\n", {(0, 1), (1, 2)}),
        ("3 2 10\n5 2\n5 1 3\n5 2\n", {(0, 1), (1, 2)}),
    ],
)
def test_neighbours_of_metis_are_edges(
    tmp_path: Path, text: str, ends: set[tuple[int, int]]
) -> None:
    """An edge stands in the lines of both its ends, which are counted from 1."""
    path = tmp_path / "x.graph"
    path.write_text(text)
    found = read_metis(path)
    assert found is not None
    pairs = zip(found.sources.tolist(), found.destinations.tolist(), strict=True)
    assert {(min(pair), max(pair)) for pair in pairs} == ends
    assert found.vertices == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("2 1\n2\n1\n1\n", "more than 2 lines follow"),
        ("3 1\n2 3\n1\n1\n", "more numbers follow than 1 edges have"),
        ("3 2\n2\n1\n", "2 neighbours stand for 2 edges"),
        ("3 1\n4\n1\n", "is no METIS"),
        ("3 1\n2\n\n2\n", "is no METIS"),
        ("3 1\n0\n\n1\n", "is no METIS"),
    ],
)
def test_files_that_are_no_metis_are_named_so_where_their_names_say_it(
    tmp_path: Path, text: str, problem: str
) -> None:
    """A file of another name is left to other readers."""
    path = tmp_path / "x.graph"
    path.write_text(text)
    with pytest.raises(DataError, match=problem):
        read_metis(path)
    other = tmp_path / "x.txt"
    other.write_text(text)
    assert read_metis(other) is None
