"""Readers count the keys that they did not ask for; files are named by their start."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import DataError
from emu.interchange.accounted import read_mapping, read_xml
from emu.interchange.recognise import Format, recognise, refuse_other_formats

NAMES = st.text("abcdef", min_size=1, max_size=3)
FLAT = st.dictionaries(NAMES, st.integers(), max_size=6)
TASK = Format("a list of tasks", ("emu do FILE",), keys=frozenset({"tasks", "x"}))
GRAPH = Format("a graph", ("emu draw FILE",), pattern=r"^graph \d+$")
FOLDER = Format("a folder of parts", holds="part*/x.bin")


@given(FLAT, st.sets(NAMES), st.lists(FLAT, max_size=4))
def test_what_nobody_asked_for_is_counted(
    values: dict[str, int], asked: set[str], rows: list[dict[str, int]]
) -> None:
    reading = read_mapping({**values, "rows": rows}, "file")
    for key in asked:
        reading.get(key)
        for row in reading.parts("rows", "row"):
            row.get(key)
    counts = reading.left_out()

    expected = {f"{key} of a file": 1 for key in values if key not in asked}
    if not asked:
        expected["rows of a file"] = 1
    for content in rows if asked else ():
        for key in content.keys() - asked:
            name = f"{key} of a row"
            expected[name] = expected.get(name, 0) + 1
    assert dict(counts) == expected


def test_elements_and_attributes_are_accounted_for() -> None:
    root = read_xml('<a x="1" y="2"><b z="3" w="4"/><c/><b z="5"/><d><b/></d></a>')
    assert root.text("y") == "2"
    assert [b.number("z") for b in root.elements("b")] == [3, 5]

    assert root.left_out() == {
        "x of an a": 1,
        "w of a b": 1,
        "<c> of an a": 1,
        "<d> of an a": 1,
    }


def test_an_article_is_of_the_first_letter_alone() -> None:
    """Write "an" before each vowel: "an edge" as "an account"."""
    for kind in ("edge", "account", "Zone"):
        article = "a" if kind == "Zone" else "an"
        assert dict(read_mapping({"x": 1}, kind).left_out()) == {
            f"x of {article} {kind}": 1
        }


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({}, "a link has no 'rate'"),
        ({"rate": "fast"}, "rate of a link is 'fast', write a number"),
        ({"rate": True}, "write a number"),
        ({"rate": float("inf")}, "write a number"),
        ({"rate": -1}, "a whole number from 0 on"),
        ({"rate": 1.5}, "a whole number from 0 on"),
    ],
)
def test_a_value_that_is_not_right(content: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_mapping(content, "link").count("rate")


def test_a_file_is_recognised_by_all_that_a_row_states(tmp_path: Path) -> None:
    inner = {"x": {"graph": 1}, "tasks": [{"y": 1}]}
    (tmp_path / "tasks").write_bytes(gzip.compress(json.dumps(inner).encode()))
    (tmp_path / "nested").write_text(json.dumps({"x": inner}))
    (tmp_path / "graph").write_text("\n# c\ngraph 12\n1 2\n")
    (tmp_path / "parts" / "part0").mkdir(parents=True)
    (tmp_path / "parts" / "part0" / "x.bin").touch()
    formats = (TASK, GRAPH, FOLDER)
    names = ("tasks", "nested", "graph", "parts")
    found = [recognise(tmp_path / name, formats) for name in names]

    assert found == [TASK, None, GRAPH, FOLDER]
    refuse_other_formats(tmp_path / "graph", "emu draw FILE", formats)
    refuse_other_formats(tmp_path / "nested", "emu draw FILE", formats)
    with pytest.raises(DataError, match=f"is a list of tasks: emu do {tmp_path}"):
        refuse_other_formats(tmp_path / "tasks", "emu draw FILE", formats)


def test_a_text_is_no_list_of_its_letters() -> None:
    reading = read_mapping({"files": ["f", 7], "parents": "ab", "rows": [{}]}, "task")

    assert reading.texts("files") == ["f", "7"]
    assert reading.texts("children") == []
    for key, value in (("parents", "'ab', write a list"), ("rows", "texts in the")):
        with pytest.raises(ValueError, match=f"{key} of a task is .*{value}"):
            reading.texts(key)


def test_a_part_that_is_no_mapping_is_named() -> None:
    reading = read_mapping({"job": [1, 2]}, "file")
    assert dict(reading.part("task").left_out()) == {}
    with pytest.raises(ValueError, match=r"job .*a mapping"):
        reading.part("job")
