"""CSV files of two columns whose header says of which kind they are."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path

from emu.host.input_file import one_error, read_packed_text
from emu.units import read_number

Rows = Iterator[tuple[int, list[str]]]


def read_headed_table(path: Path) -> tuple[list[str], Rows]:
    """Return the header, and number and cells of every line below it that has any.

    The header is empty where the file is; an error of reading names the file.
    """
    with one_error(path):
        lines = read_packed_text(path).splitlines()
        table = [*csv.reader(lines)]

    header: list[str] = []
    if table:
        header = [cell.strip() for cell in table[0]]
    numbered_rows = enumerate(table[1:], 2)
    rows = ((number, cells) for number, cells in numbered_rows if cells)
    return header, rows


def number_of(cell: str) -> float:
    """Return the number in a cell, not a number where it holds none."""
    try:
        return read_number(cell)
    except ValueError:
        return math.nan
