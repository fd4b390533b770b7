"""Tables with a row per vertex: features, labels and splits, by order or by id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from emu.array_types import Array, Mask, Rows
from emu.errors import DataError
from emu.graph_data.readers import text_table
from emu.graph_data.readers.columns import (
    BOOLEAN,
    COMMA,
    EMPTY,
    INTEGER,
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
from emu.units import format_count

#: Words that files have in place of a class, in small letters.
_NO_CLASS = {
    "",
    "-1",
    "na",
    "nan",
    "none",
    "null",
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
#: Part of a split by each of its words; an empty field is in none.
PARTS = {"": ""}
for _part, _words in _WORDS.items():
    PARTS.update(dict.fromkeys(_words.split(), _part))


@dataclass(frozen=True, eq=False)
class VertexTable:
    """Values of vertices."""

    path: Path
    kind: str
    """``features``, ``labels`` or ``split``."""
    values: Array
    """A row or a value per vertex; of a split whether it is in each of its parts."""
    ids: Array | None = None
    """Vertex of every row; None where they are in order."""
    how: str = "rows in order"
    """Columns and arrays that were taken, for people."""
    left_out: tuple[str, ...] = ()
    is_stated: bool = False
    """True where an option says that ids are those of the graph."""


def read_features(
    path: Path,
    options: TableOptions,
    known: KnownIds | None = None,
) -> VertexTable:
    """Return features: the numbers of every row of a text.

    Raises DataError with the line that is something else, or of another length.
    """
    table = _open(path, options)
    numbers = tuple(map(str, range(table.width)))
    # pandas writes the numbers of columns so, and ids may begin like that.
    is_numbered = table.width > 2 and table.row == numbers
    if is_numbered and not table.names:
        raise table.error("begins 0, 1, 2: remove numbers of columns, or write 0.0, 1")
    table = _read_all(table)
    place = choose_id(table, known, ())
    is_open = not table.names and options.ids is None
    if place is None and is_open:
        place = number_column(table, known)

    columns = [column for column in choose_features(table) if column != place]
    if not columns:
        fields = " ".join(table.first_row)
        raise table.error(f"has no column of numbers: {fields!r}")
    return _finish(
        table,
        "features",
        values=_feature_values(table, columns),
        used=columns,
        place=place,
        source=format_count(len(columns), "column"),
        note=_describe(table, columns),
    )


def _feature_values(table: TextTable, chosen: Sequence[int]) -> Rows:
    """Return the numbers of some columns; DataError with a line that has others."""
    first_column = chosen[0]
    first = table.columns[first_column]
    if table.width == 1 and first.kinds[EMPTY]:
        fields = first.fields()
        row = fields.index("") + 1
        raise table.error(f"row {row} is empty, it needs a number: remove it, if none")
    shape = (first.rows, len(chosen))
    values = np.empty(shape, np.float32)
    # What float32 cannot hold becomes infinite, which is refused with its line.
    with np.errstate(over="ignore"):
        # Column by column: one at a time is float64, the whole is float32.
        for feature, column in enumerate(chosen):
            values[:, feature] = table.columns[column].real
    if np.isfinite(values).all():
        return values

    def fits(fields: list[str]) -> bool:
        numbers = [real(field) for field in fields]
        with np.errstate(over="ignore"):
            row = np.array(numbers, np.float32)
        return bool(np.isfinite(row).all())

    count = format_count(len(chosen), "number")
    raise table.bad_line(chosen, fits, f"{count} that float32 holds")


def _finish(
    table: TextTable,
    kind: str,
    *,
    values: Array,
    used: Sequence[int],
    place: int | None,
    source: str,
    note: str = "",
) -> VertexTable:
    """Return the values of some columns with the vertices that they belong to."""
    ids, order = _ids(table, place)
    unused = table.left_out([place, *used])
    return VertexTable(
        path=table.path,
        kind=kind,
        values=values,
        ids=ids,
        how=f"{source}, {order}{note}",
        left_out=count_left_out("column", unused),
        is_stated=table.options.states_ids,
    )


def _describe(table: TextTable, chosen: Sequence[int]) -> str:
    """Return which features were made numbers, for people."""
    forms = {
        BOOLEAN: "True and False as 1 and 0",
        COMMA: "decimal commas",
    }
    text = ""
    for kind, form in forms.items():
        of_kind = [place for place in chosen if table.columns[place].main_kind == kind]
        names = [table.name(place) for place in of_kind]
        if names:
            text += f"; {form}: {name_some(names)}"
    return text


def read_labels(
    path: Path,
    options: TableOptions,
    known: KnownIds | None = None,
) -> VertexTable:
    """Return the classes of a table, numbers from 0; -1 and "" where there is none.

    Raises DataError where several columns may have the classes, or the vertices' names.
    """
    opened = _open(path, options)
    table = _read_all(opened)
    column_name = options.label_column
    columns = []
    if column_name:
        columns.append(table.column(column_name, "--label-column"))
    place = choose_id(table, known, columns)
    first = table.columns[0]
    # A column of distinct values beside one-hot columns names the vertices.
    may_be_ids = not table.names and len(first.distinct) == first.rows
    if place is None and may_be_ids and one_hot_columns(table, 0):
        place = 0
    column = choose_class(table, place)
    if column is None:
        columns = one_hot_columns(table, place)
        values = np.stack([table.columns[member].real for member in columns])
        return _finish(
            table,
            "labels",
            values=values.argmax(0),
            used=columns,
            place=place,
            source=f"one class for each of {len(columns)} columns",
        )

    # Of a table of ids and classes the first column is the ids, of classes alone it is
    # none.
    place = first_as_id(table, place, column)
    class_column = table.columns[column]
    _check_first_class(table, class_column)
    classes, note = _classes(class_column)
    _check_classes(table, column, classes)
    return _finish(
        table,
        "labels",
        values=classes,
        used=[column],
        place=place,
        source=table.name(column),
        note=note,
    )


def _check_first_class(table: TextTable, column: Column) -> None:
    """Refuse a first row that may have names of columns, or their number."""
    words = column.fields()
    first = table.first_row
    # A class that recurs below is a class: no name of a column does.
    if table.names or words[0] in words[1:]:
        return

    # A first line "2708 7" states sizes: the first is the number of rows that follow.
    rows_that_follow = str(len(words) - 1)
    states_size = table.width > 1 and first[0] == rows_that_follow
    has_number = any(map(is_number, first))
    if states_size or not has_number:
        fields = " ".join(first)
        raise table.error(
            f"begins with sizes or names of columns, {fields!r}: remove them, or write "
            "label (id,label) above a row"
        )


def _check_classes(table: TextTable, column: int, values: Array) -> None:
    """Refuse classes of which every vertex has its own: they may be names or values."""
    are_words = values.dtype.kind == "U"
    no_class = "" if are_words else -1
    classes = values[values != no_class]
    distinct = np.unique(classes)
    # Two vertices may well have two classes.
    if len(classes) < 3 or len(distinct) < len(classes):
        return

    may_be_classes = are_words
    if not are_words:
        is_class = _may_be_class(classes)
        may_be_classes = bool(is_class.all())
    if may_be_classes:
        raise table.error(
            f"makes every vertex a class of its own by {table.name(column)}: name the "
            "column of classes with --label-column"
        )


def _may_be_class(numbers: Array) -> Mask:
    """Return which numbers may be those of classes."""
    # Infinity is its own floor.
    is_class: Mask = np.isfinite(numbers) & (np.floor(numbers) == numbers)
    is_class &= numbers >= 0
    return is_class


def _classes(column: Column) -> tuple[Array, str]:
    """Return classes as numbers from 0 where all are numbers, else as words."""
    word_column = column.as_words()
    names = []
    for word in word_column.words or ():
        has_class = word.lower() not in _NO_CLASS
        name = word if has_class else ""
        names.append(name)
    filled_names = filter(None, names)
    are_numbers = all(map(is_number, filled_names))
    if not are_numbers:
        words = word_array(names)
        return words[word_column.values], ""

    # Per distinct word: a column of ten million rows has few.
    numbers = np.array([float(name or -1) for name in names])
    values = numbers[word_column.values]
    present = values[values != -1]
    is_class = _may_be_class(present)
    is_plain = True
    # Those that begin above 0 are numbered where all labels are.
    if len(present):
        begins_above = present.min() > 0
        is_plain = bool(begins_above or present.max() < len(values))
    if is_plain or not is_class.all():
        return values, ""

    distinct, codes = np.unique(present, return_inverse=True)
    values[values != -1] = codes
    text = f"{len(distinct)} numbers from {distinct[0]:g} to {distinct[-1]:g}"
    return values, f"; classes are the {text}"


def read_splits(
    path: Path,
    options: TableOptions,
    known: KnownIds | None = None,
) -> VertexTable:
    """Return the parts of every vertex, by a table or by a folder of lists of ids.

    Such a folder has a file each for train, valid and test. Raises DataError when a
    part is none of these.
    """
    if path.is_dir():
        return _read_lists(path, options)
    opened = _open(path, options)
    table = _read_all(opened)
    masks = {}
    for column, name in enumerate(table.names):
        part = split_part(name)
        if part:
            masks[column] = part
    # One such name alone may be a column of words, called train or test by chance.
    if len(masks) > 1:
        return _read_masks(table, masks, known)

    part_columns = [column for column, name in enumerate(table.names) if is_part(name)]
    is_lost = table.width > 2 and not part_columns
    if is_lost or len(part_columns) > 1:
        raise table.error("needs one column with train, valid or test, and one of ids")
    # Without a name the last column, as lists of id and part are written.
    column = table.width - 1
    if part_columns:
        column = part_columns[0]
    place = choose_id(table, known, [column])
    place = first_as_id(table, place, column)
    parts, note = _parts(table, table.columns[column])
    return _finish(
        table,
        "split",
        values=parts,
        used=[column],
        place=place,
        source=table.name(column),
        note=note,
    )


def _parts(table: TextTable, column: Column) -> tuple[Mask, str]:
    """Return whether each row is in each part, by words or codes."""
    words = [word.lower() for word in column.fields()]
    codes = table.options.split_codes
    unknown = [word for word in words if word not in PARTS]
    has_words = any(kind_of(word) == TEXT for word in unknown)
    may_be_codes = bool(unknown) and not has_words

    # Numbers may be codes in any order; which is which, only a person can say.
    if codes or may_be_codes:
        return parts_of_codes(
            np.array(column.fields()),
            codes=codes,
            name="",
            origin=str(table.path),
        )
    if unknown:
        raise table.error(
            f"has a part {unknown[0]!r}: train, valid or test, or name the words of "
            "these, --split-codes TRAIN,VALID,TEST"
        )

    parts = np.array([PARTS[word] for word in words])
    all_parts = np.array(SPLIT)
    is_in_part = parts[:, None] == all_parts
    return is_in_part, ""


def _read_masks(
    table: TextTable,
    masks: Mapping[int, str],
    known: KnownIds | None,
) -> VertexTable:
    """Return parts of which each has a column of 0 and 1, or of True and False."""
    place = choose_id(table, known, list(masks))
    has_others = table.width > len(masks)
    if has_others:
        place = first_as_id(table, place, min(masks))
    parts = set(masks.values())
    if len(parts) < len(masks):
        raise table.error(f"has {len(masks)} columns of masks for one part")

    shape = (table.columns[0].rows, len(SPLIT))
    values = np.zeros(shape, bool)
    for column, part in masks.items():
        numbers = table.columns[column].real
        is_binary = np.isin(numbers, (0, 1))
        if not is_binary.all():
            name = table.name(column)
            raise table.error(f"{name} holds other values than 0 and 1, True and False")
        number = SPLIT.index(part)
        values[:, number] = numbers == 1
    names = map(table.name, masks)
    return _finish(
        table,
        "split",
        values=values,
        used=list(masks),
        place=place,
        source=" and ".join(names),
    )


def _read_lists(folder: Path, options: TableOptions) -> VertexTable:
    """Return the parts of a folder that has a list of ids for each."""
    lists = {}
    others = []
    for file in sorted(folder.iterdir()):
        stem, *_ = file.name.split(".")
        part = PARTS.get(stem.lower())
        # Files beside the lists are named, and left out.
        if part:
            lists[file] = part
        else:
            others.append(file.name)
    if "train" not in lists.values():
        raise DataError("holds no list of ids called train.txt", path=folder)
    columns = []
    for file in lists:
        table = _open(file, options)
        if table.width != 1:
            problem = f"has {table.width} columns, an id per line is needed"
            raise table.error(problem)
        (column,) = table.read_ids([0]).values()
        _check_ids(table, column, 0)
        columns.append(column)

    table_of_parts = lists_of_ids(
        folder,
        parts=list(lists.values()),
        columns=columns,
        options=options,
    )
    left_out = count_left_out("file", others)
    return replace(table_of_parts, left_out=left_out)


def lists_of_ids(
    path: Path,
    parts: Sequence[str],
    columns: Sequence[Column],
    options: TableOptions,
) -> VertexTable:
    """Return the parts of vertices of which each part has a list.

    Raises DataError when a list names a vertex twice.
    """
    as_words = bool(options.words)
    words: list[str] = []
    for column in columns:
        as_words = as_words or column.names_words(stated=options.words)
        words += column.fields()
    # All lists numbered together: one id has one number in each.
    all_ids = Column.of(words)
    keys = join_columns([all_ids], as_words=as_words)
    vertices = len(keys.ids)

    shape = (vertices, len(SPLIT))
    values = np.zeros(shape, bool)
    begin = 0
    for part, column in zip(parts, columns, strict=True):
        stop = begin + column.rows
        places = keys.codes[0][begin:stop]
        begin = stop
        counts = np.bincount(places, minlength=vertices)
        if (counts > 1).any():
            vertex = int(counts.argmax())
            twice = keys.ids[vertex]
            problem = f"names vertex {twice} {counts.max()} times in {part}"
            raise DataError(problem, path=path)
        number = SPLIT.index(part)
        values[places, number] = True

    return VertexTable(
        path=path,
        kind="split",
        values=values,
        ids=keys.ids,
        how="lists of ids",
        is_stated=options.states_ids,
    )


def _open(path: Path, options: TableOptions) -> TextTable:
    """Return a table; its first row has names if these are known or above numbers."""
    if not path.exists():
        raise DataError("there is no such file", path=path)
    # Its rows are entries, which would pass for features of vertices.
    first_lines = text_table.first_lines(path)
    first_line = "".join(first_lines)
    if first_line.lstrip("%").startswith("MatrixMarket"):
        problem = "is MatrixMarket, a table with a row per vertex is needed"
        raise DataError(problem, path=path)
    table = text_table.open_table(path, options)
    if not text_table.starts_with_words(table):
        return table.decide(header=False)

    names = table.header
    are_above_numbers = False
    for name, field in zip(names, table.second_row, strict=False):
        may_be_name = kind_of(name) == TEXT and name.lower() not in _NO_CLASS
        if may_be_name and is_number(field):
            are_above_numbers = True
    has_index = table.first_row[0] == "" and table.width > 1
    has_names = are_above_numbers or has_index or names_vertices(names, PARTS)
    return table.decide(header=has_names)


def _read_all(table: TextTable) -> TextTable:
    """Return the table with its columns; of a single one an empty line is a row too."""
    if table.width > 1:
        return table.with_columns(range(table.width))

    # A table has no empty rows, a column may: they stand for no class.
    words = []
    with text_table.open_lines(table.path, table.options.tell) as lines:
        for number, line in enumerate(lines, 1):
            if text_table.is_comment(line):
                continue
            if number > table.lines_before:
                text = text_table.strip_comment(line, table.comment)
                words.append(text.strip(' \t"'))
            elif not table.names and not line.strip():
                raise table.error(
                    f"line {number} is empty, above the first row: remove it, or "
                    "write none for a vertex that has nothing"
                )
    # Empty lines at the end are of editors, not vertices without a class.
    while words and not words[-1]:
        words.pop()
    return replace(table, columns={0: Column.of(words)})


def _check_ids(table: TextTable, column: Column, place: int) -> None:
    """Refuse a column of ids in which one is empty, or no id among numbers."""
    are_words = table.options.words
    if are_words is None:
        are_words = column.main_kind == TEXT
    has_others = not are_words and set(column.kinds) != {INTEGER}
    if not column.kinds[EMPTY] and not has_others:
        return

    def fits(fields: list[str]) -> bool:
        text = fields[0]
        if are_words:
            return bool(text)
        return bool(whole(text))

    raise table.bad_line([place], fits, "a vertex id")


def _ids(table: TextTable, place: int | None) -> tuple[Array | None, str]:
    """Return the vertex of every row, None where they are in order, and how so."""
    if place is None:
        return None, "rows in order"
    column = table.columns[place]
    if table.options.words:
        column = table.read_ids([place])[place]
    _check_ids(table, column, place)
    as_words = column.names_words(stated=table.options.words)
    keys = join_columns([column], as_words=as_words)
    codes = keys.codes[0]
    ids = keys.ids[codes]
    return ids, f"by id in {table.name(place)}"
