"""Tables with a row per vertex: features, labels and splits, by order or by id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.errors import DataError
from emu.graph_data.readers import text_table
from emu.graph_data.readers.columns import (
    BOOLEAN,
    COMMA,
    EMPTY,
    TEXT,
    Column,
    is_number,
    join_columns,
    kind_of,
    real,
    whole,
    word_array,
)
from emu.graph_data.readers.questions import count_left_out, name_some
from emu.graph_data.readers.split_arrays import (
    SPLIT,
    parts_of_codes,
    split_part,
)
from emu.graph_data.readers.text_table import TableOptions, TextTable
from emu.graph_data.readers.vertex_columns import (
    KnownIds,
    choose_class,
    choose_features,
    choose_id,
    first_as_id,
    is_part,
    names_vertices,
    number_column,
    one_hot_columns,
)

_NO_CLASS = {
    "",
    "nan",
    "na",
    "none",
    "null",
    "-1",
    "unknown",
    "unlabeled",
    "unlabelled",
}
#: Words of each part, and of none.
_WORDS = {
    "train": "train training tr",
    "valid": "valid val validation dev va",
    "test": "test testing te",
    "": "none nan unlabeled unlabelled",
}
PARTS = {"": "", **{w: part for part, words in _WORDS.items() for w in words.split()}}


@dataclass(frozen=True, eq=False)
class VertexTable:
    """Values of vertices."""

    path: Path
    kind: str
    """``features``, ``labels`` or ``split``."""
    values: NDArray[Any]
    """A row or a value per vertex; of a split whether it is in each of its parts."""
    ids: NDArray[Any] | None
    """Vertex of every row; None where they are in order."""
    how: str
    """Columns and arrays that were taken, for people."""
    left_out: tuple[str, ...] = ()
    is_stated: bool = False
    """True where an option says that ids are those of the graph."""


def read_features(
    path: Path, options: TableOptions, known: KnownIds | None = None
) -> VertexTable:
    """Return features: the numbers of every row of a text.

    Raises DataError with the line that is something else, or of another length.
    """
    table = _open(path, options)
    counts = tuple(map(str, range(table.width)))
    if not table.names and table.width > 2 and table.row == counts:
        raise table.error("begins 0, 1, 2: remove numbers of columns, or write 0.0, 1")
    table = table.with_columns(range(table.width))
    place = choose_id(table, known, ())
    if place is None and not table.names and options.ids is None:
        place = number_column(table, known)

    chosen = [c for c in choose_features(table) if c != place]
    if not chosen:
        fields = " ".join(table.first_row)
        raise table.error(f"has no column of numbers: {fields!r}")
    rows = table.columns[chosen[0]].rows
    values = np.empty((rows, len(chosen)), np.float32)
    for place_of_feature, c in enumerate(chosen):
        values[:, place_of_feature] = table.columns[c].real
    if not np.isfinite(values).all():

        def fits(fields: list[str]) -> bool:
            return all(np.isfinite(np.float32(real(field))) for field in fields)

        raise table.bad_line(chosen, fits, f"{len(chosen)} numbers")
    how = f"{len(chosen)} columns"
    note = _describe(table, chosen)
    return _finish(table, "features", values, chosen, place, how, note)


def _finish(
    table: TextTable,
    kind: str,
    values: NDArray[Any],
    used: Sequence[int],
    place: int | None,
    how: str,
    note: str = "",
) -> VertexTable:
    """Return the values of some columns with the vertices that they belong to."""
    ids, by = _ids(table, place)
    return VertexTable(
        path=table.path,
        kind=kind,
        values=values,
        ids=ids,
        how=f"{how}, {by}{note}",
        left_out=count_left_out("column", table.left_out([place, *used])),
        is_stated=_is_stated(table.options),
    )


def _describe(table: TextTable, chosen: Sequence[int]) -> str:
    """Return which features were made numbers, for people."""
    forms = {BOOLEAN: "True and False as 1 and 0", COMMA: "decimal commas"}
    text = ""
    for kind, form in forms.items():
        found = [c for c in chosen if table.columns[c].main_kind == kind]
        text += f"; {form}: {name_some([*map(table.name, found)])}" if found else ""
    return text


def read_labels(
    path: Path, options: TableOptions, known: KnownIds | None = None
) -> VertexTable:
    """Return the classes of a table, numbers from 0; -1 and "" where there is none.

    Raises DataError where several columns may have the classes, or the vertices' names.
    """
    table = _read_all(_open(path, options))
    stated = options.label_column
    values = [table.column(stated, "--label-column")] if stated else []
    place = choose_id(table, known, values)
    first = table.columns[0]
    may_be_ids = not table.names and len(first.distinct) == first.rows
    if place is None and may_be_ids and one_hot_columns(table, 0):
        place = 0
    column = choose_class(table, place)
    if column is None:
        return _one_hot_labels(table, place)

    place = first_as_id(table, place, column)
    _check_first_class(table, table.columns[column])
    classes, note = _classes(table.columns[column])
    _check_classes(table, column, classes)
    name = table.name(column)
    return _finish(table, "labels", classes, [column], place, name, note)


def _one_hot_labels(table: TextTable, place: int | None) -> VertexTable:
    hot = one_hot_columns(table, place)
    values = np.stack([table.columns[c].real for c in hot]).argmax(0)
    how = f"one class for each of {len(hot)} columns"
    return _finish(table, "labels", values, hot, place, how)


def _check_first_class(table: TextTable, column: Column) -> None:
    """Refuse a first row that may have names of columns, or their number."""
    words = column.fields()
    first = table.first_row
    if table.names or words[0] in words[1:]:
        return
    states_size = table.width > 1 and first[0] == str(len(words) - 1)
    if states_size or not any(map(is_number, first)):
        problem = f"begins with sizes or names of columns, {' '.join(first)!r}: remove "
        raise table.error(f"{problem}them, or write label (id,label) above a row")


def _check_classes(table: TextTable, column: int, values: NDArray[Any]) -> None:
    """Refuse classes of which every vertex has its own: they may be names or values."""
    are_words = values.dtype.kind == "U"
    classes = values[values != ("" if are_words else -1)]
    is_alone = len(classes) > 2 and len(np.unique(classes)) == len(classes)
    if is_alone and (are_words or ((classes >= 0) & (classes % 1 == 0)).all()):
        raise table.error(
            f"makes every vertex a class of its own by {table.name(column)}: name the "
            "column of classes with --label-column"
        )


def _classes(column: Column) -> tuple[NDArray[Any], str]:
    """Return classes as numbers from 0 where all are numbers, else as words."""
    worded = column.as_words()
    words = worded.words or ()
    known = [word for word in words if word.lower() not in _NO_CLASS]
    if not all(map(is_number, known)):
        names = [word if word.lower() not in _NO_CLASS else "" for word in words]
        return word_array(names)[worded.values], ""

    numbers = [-1.0 if w.lower() in _NO_CLASS else float(w) for w in words]
    values = np.array(numbers)[worded.values]
    present = values[values != -1]
    is_odd = (present < 0) | (present % 1 != 0)
    # Those that begin above 0 are numbered where all labels are.
    is_plain = not len(present) or present.min() > 0 or present.max() < len(values)
    if is_odd.any() or is_plain:
        return values, ""
    distinct, codes = np.unique(present, return_inverse=True)
    values[values != -1] = codes
    text = f"{len(distinct)} numbers from {distinct[0]:g} to {distinct[-1]:g}"
    return values, f"; classes are the {text}"


def read_splits(
    path: Path, options: TableOptions, known: KnownIds | None = None
) -> VertexTable:
    """Return the parts of every vertex, by a table or by a folder of lists of ids.

    Such a folder has a file each for train, valid and test. Raises DataError when a
    part is none of these.
    """
    if path.is_dir():
        return _read_lists(path, options)
    table = _read_all(_open(path, options))
    named_parts = {c: split_part(name) for c, name in enumerate(table.names)}
    masks = {c: part for c, part in named_parts.items() if part}
    if len(masks) > 1:
        return _read_masks(table, masks, known)

    named = [c for c, name in enumerate(table.names) if is_part(name)]
    if len(named) > 1 or (table.width > 2 and not named):
        raise table.error("needs one column with train, valid or test, and one of ids")
    column = named[0] if named else table.width - 1
    place = choose_id(table, known, [column])
    place = first_as_id(table, place, column)
    parts, note = _parts(table, table.columns[column])
    name = table.name(column)
    return _finish(table, "split", parts, [column], place, name, note)


def _parts(table: TextTable, column: Column) -> tuple[NDArray[np.bool_], str]:
    """Return whether each row is in each part, by words or codes."""
    words = [word.lower() for word in column.fields()]
    codes = table.options.split_codes
    unknown = [word for word in words if word not in PARTS]
    if codes or (unknown and all(kind_of(word) != TEXT for word in unknown)):
        return parts_of_codes(np.array(words), codes, "", str(table.path))
    if unknown:
        problem = (
            f"has a part {unknown[0]!r}: train, valid or test, or name the words of "
        )
        raise table.error(f"{problem}these, --split-codes TRAIN,VALID,TEST")
    parts = np.array([PARTS[word] for word in words])
    return parts[:, None] == np.array(SPLIT), ""


def _read_masks(
    table: TextTable, masks: Mapping[int, str], known: KnownIds | None
) -> VertexTable:
    """Return parts of which each has a column of 0 and 1, or of True and False."""
    place = choose_id(table, known, [*masks])
    if len({*masks.values()}) < len(masks):
        raise table.error(f"has {len(masks)} columns of masks for one part")
    values = np.zeros((table.columns[0].rows, len(SPLIT)), bool)
    for c, part in masks.items():
        numbers = table.columns[c].real
        if not ((numbers == 0) | (numbers == 1)).all():
            problem = f"{table.name(c)} holds other values than 0 and 1, True and False"
            raise table.error(problem)
        values[:, SPLIT.index(part)] = numbers == 1
    names = " and ".join(map(table.name, masks))
    return _finish(table, "split", values, [*masks], place, names)


def _read_lists(folder: Path, options: TableOptions) -> VertexTable:
    """Return the parts of a folder that has a list of ids for each."""
    stems = {file: file.name.split(".")[0].lower() for file in folder.iterdir()}
    lists = {f: part for f in sorted(stems) if (part := PARTS.get(stems[f], ""))}
    if "train" not in lists.values():
        raise DataError("holds no list of ids called train.txt", path=str(folder))
    columns = []
    for file in lists:
        table = _open(file, options)
        if table.width != 1:
            problem = f"has {table.width} columns, an id per line is needed"
            raise table.error(problem)
        (column,) = table.read([0]).values()
        _check_ids(table, column, 0)
        columns.append(column)

    others = sorted(file.name for file in stems if file not in lists)
    return replace(
        lists_of_ids(folder, [*lists.values()], columns, options),
        left_out=count_left_out("file", others),
    )


def lists_of_ids(
    path: Path, parts: Sequence[str], columns: Sequence[Column], options: TableOptions
) -> VertexTable:
    """Return the parts of vertices of which each part has a list.

    Raises DataError when a list names a vertex twice.
    """
    as_words = bool(options.words) or any(c.main_kind == TEXT for c in columns)
    together = Column.of([word for column in columns for word in column.fields()])
    keys = join_columns([together], as_words=as_words)
    values = np.zeros((len(keys.ids), len(SPLIT)), bool)
    begin = 0
    for part, column in zip(parts, columns, strict=True):
        places = keys.codes[0][begin : begin + column.rows]
        begin += column.rows
        counts = np.bincount(places, minlength=len(keys.ids))
        if (counts > 1).any():
            twice = keys.ids[int(counts.argmax())]
            problem = f"names vertex {twice} {counts.max()} times in {part}"
            raise DataError(problem, path=str(path))
        values[places, SPLIT.index(part)] = True
    return VertexTable(
        path=path,
        kind="split",
        values=values,
        ids=keys.ids,
        how="lists of ids",
        is_stated=_is_stated(options),
    )


def _open(path: Path, options: TableOptions) -> TextTable:
    """Return a table; its first row has names if these are known or above numbers."""
    if not path.exists():
        raise DataError("there is no such file", path=str(path))
    if "".join(text_table.first_lines(path)).lstrip("%").startswith("MatrixMarket"):
        problem = "is MatrixMarket, a table with a row per vertex is needed"
        raise DataError(problem, path=str(path))
    table = text_table.open_table(path, options)
    if not text_table.starts_with_words(table):
        return table.decide(header=False)

    names = table.header
    pairs = zip(names, table.second_row, strict=False)
    above_numbers = any(kind_of(a) == TEXT and is_number(b) for a, b in pairs)
    has_index = table.first_row[0] == "" and table.width > 1
    return table.decide(
        header=above_numbers or has_index or names_vertices(names, PARTS)
    )


def _read_all(table: TextTable) -> TextTable:
    """Return the table with its columns; of a single one an empty line is a row too."""
    if table.width > 1:
        return table.with_columns(range(table.width))

    with text_table.open_lines(table.path, table.options.tell) as lines:
        words = [
            line.strip(' \t\r\n"')
            for number, line in enumerate(lines, 1)
            if number > table.lines_before and not line.startswith(table.comment)
        ]
    while words and not words[-1]:
        words.pop()
    return replace(table, columns={0: Column.of(words)})


def _check_ids(table: TextTable, column: Column, place: int) -> None:
    """Refuse a column of ids in which one is empty, or no id among numbers."""
    are_words = table.options.words or column.main_kind == TEXT
    is_odd = not are_words and set(column.kinds) != {"integer"}
    if column.kinds[EMPTY] or is_odd:

        def fits(fields: list[str]) -> bool:
            return bool(fields[0] if are_words else whole(fields[0]))

        raise table.bad_line([place], fits, "a vertex id")


def _ids(table: TextTable, place: int | None) -> tuple[NDArray[Any] | None, str]:
    """Return the vertex of every row, None where they are in order, and how so."""
    if place is None:
        return None, "rows in order"
    column = table.columns[place]
    _check_ids(table, column, place)
    as_words = column.names_words(stated=table.options.words)
    keys = join_columns([column], as_words=as_words)
    return keys.ids[keys.codes[0]], f"by id in {table.name(place)}"


def _is_stated(options: TableOptions) -> bool:
    return bool(options.ids) or options.id_column is not None
