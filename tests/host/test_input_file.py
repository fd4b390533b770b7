"""Files of others: at their limits and one beyond, of each kind that is read."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typing_extensions import TypedDict

from emu.errors import DataError
from emu.host import input_file
from emu.host.input_file import (
    ALWAYS_ALLOWED,
    array_names,
    check_inflation,
    check_shape,
    map_array,
    one_error,
    open_gzip,
    open_input,
    parse_json,
    read_array_header,
    read_arrays,
    read_json,
    read_packed_text,
    read_text,
)
from emu.host.limits import large_files


def refused(path: Path, problem: str) -> Any:
    return pytest.raises(DataError, match=f"^{re.escape(f'{path}: {problem}')}")


def test_a_file_has_at_most_its_limit_of_bytes(tmp_path: Path) -> None:
    """A mark of the order of bytes is no part of a text; a pipe is no file."""
    path = tmp_path / "five"
    path.write_bytes(b"\xef\xbb\xbfab")
    assert read_text(path, most=5) == "ab"
    with refused(path, "has 5 bytes, at most 4 are read"), open_input(path, 4):
        pass
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with refused(pipe, "is no regular file"), open_input(pipe):
        pass


def test_a_name_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """The last array or key of a name counted; of others each may be there."""
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name, number in (("a.npy", 1), ("b.npy", 2), ("b", 3)):
            with archive.open(name, "w") as member:
                np.save(member, np.array(number))
    assert read_arrays(path, ["a"])["a"] == 1
    with refused(path, "holds two arrays b: keep one of them"):
        read_arrays(path, ["a", "b"])

    content = tmp_path / "a.json"
    content.write_text('[{"a": 1}, {"a": 2, "a": 2}]')
    with refused(content, '"a" is there twice: keep one of them'):
        read_json(content)
    assert read_json(content, unique_keys=False) == [{"a": 1}, {"a": 2}]


def test_text_is_read_in_each_form_that_a_file_is_known_in(tmp_path: Path) -> None:
    """Read UTF-16, which has a mark, and gzip, whatever a file is called."""
    text = '{"\u00e9": 1}' + 200 * " "
    forms = [text.encode(code) for code in ("utf-8", "utf-8-sig", "utf-16")]
    forms.append(codecs.BOM_UTF16_BE + text.encode("utf-16-be"))
    path = tmp_path / "a.json"
    for form in forms:
        path.write_bytes(form)
        assert read_text(path) == read_packed_text(path) == text
        path.write_bytes(gzip.compress(form))
        assert read_packed_text(path, most=len(form)) == text
        assert read_json(path) == {"\u00e9": 1}

    packed = path.read_bytes()
    with refused(path, f"has {len(packed)} bytes, at most 9 are read"):
        read_packed_text(path, most=9)
    path.write_bytes(gzip.compress(bytes(1000)))
    with refused(path, "unpacks to more than 999 bytes, which are read"):
        read_packed_text(path, most=999)
    path.write_bytes(packed[:-9])
    with refused(path, "is damaged: Compressed file ended"):
        read_packed_text(path)
    path.write_bytes(b"\xff")
    with refused(path, "is not text in UTF-8"):
        read_json(path)


def test_json_is_read_packed_or_not_and_has_so_many_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values are counted by what begins or parts them: here four."""
    text = '{"a": [1, 2], "b": 3}'
    plain = tmp_path / "a.json"
    plain.write_text(text)
    packed = tmp_path / "a.json.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert read_json(plain) == read_json(packed) == {"a": [1, 2], "b": 3}
    with refused(tmp_path / "no.json", "is missing"):
        read_json(tmp_path / "no.json")
    plain.write_text("{")
    with refused(plain, "is not JSON: "):
        read_json(plain)
    packed.write_bytes(packed.read_bytes()[:-9])
    with refused(packed, "is not JSON: "):
        read_json(packed)

    monkeypatch.setattr(input_file, "_MOST_VALUES", 4)
    assert parse_json(text)["b"] == 3
    monkeypatch.setattr(input_file, "_MOST_VALUES", 3)
    with pytest.raises(ValueError, match="it has 4 values, at most 3 are read"):
        parse_json(text)
    with large_files(lambda _: None):
        assert parse_json(text)["b"] == 3


#: Ways of a reader through all of a file, each to its length.
READERS: tuple[Callable[[Any], int], ...] = (
    lambda stream: len(stream.read(None)),
    lambda stream: len(io.TextIOWrapper(stream, encoding="ascii").read()),
    lambda stream: sum(map(len, io.TextIOWrapper(stream, encoding="ascii"))),
    lambda stream: sum(map(len, iter(lambda: stream.read(1 << 22), b""))),
)


def test_a_packed_text_unpacks_to_what_is_always_allowed_and_no_more(
    tmp_path: Path,
) -> None:
    """Nothing packs into a hundredth of 16 MB: that much is allowed of any file."""
    path = tmp_path / "zeros.gz"
    for more in (0, 1):
        path.write_bytes(gzip.compress(bytes(ALWAYS_ALLOWED + more), 1))
        size = path.stat().st_size
        assert 100 * size < ALWAYS_ALLOWED
        problem = (
            f"has {size} bytes and unpacks to a hundred times that: unpack it first"
        )
        for read_all in READERS:
            with open_gzip(path) as stream:
                if not more:
                    assert len(stream.read(3)) == 3
                    assert read_all(stream) == ALWAYS_ALLOWED - 3
                    continue
                with refused(path, problem):
                    read_all(stream)


@pytest.mark.parametrize(
    ("size", "most", "allowed"),
    [
        (1, 100, ALWAYS_ALLOWED),
        (ALWAYS_ALLOWED, 3, 3 * ALWAYS_ALLOWED),
        (ALWAYS_ALLOWED // 100, 100, ALWAYS_ALLOWED),
    ],
)
def test_an_archive_claims_so_many_times_its_size(
    tmp_path: Path, size: int, most: int, allowed: int
) -> None:
    check_inflation(tmp_path, size, allowed, most)
    problem = f"has {size} bytes and claims to unpack to {allowed + 1}: save it"
    with refused(tmp_path, problem):
        check_inflation(tmp_path, size, allowed + 1, most)


def test_arrays_of_an_archive_are_those_that_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, a=np.arange(3), b=np.array(["x"]), big=np.zeros(4))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("README", "no array")
    assert array_names(path) == ["a", "b", "big"]
    found = read_arrays(path, ["b", "a"])
    assert {name: values.tolist() for name, values in found.items()} == {
        "b": ["x"],
        "a": [0, 1, 2],
    }
    with refused(path, "holds no c, d"):
        read_arrays(path, ["c", "a", "d"])
    with refused(tmp_path / "y.npz", "is missing"):
        array_names(tmp_path / "y.npz")


def written(values: np.ndarray[Any, Any], version: tuple[int, int] = (1, 0)) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, values, version)
    return file.getvalue()


@pytest.mark.parametrize("more", [-1, 1])
def test_an_array_has_as_many_bytes_as_its_header_says(
    tmp_path: Path, more: int
) -> None:
    content = written(np.arange(6.0))
    length = len(content)
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", content[: length - 1] if more < 0 else content + b"!")
    with refused(path, f"a claims {length} bytes of {length + more}"):
        read_arrays(path, ["a"])


def test_a_mapped_array_is_as_long_as_its_file_or_shorter(tmp_path: Path) -> None:
    """Columns come first where they did when it was written."""
    values = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    path = tmp_path / "x.npy"
    path.write_bytes(written(values) + b"more")
    assert map_array(path).tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    path.write_bytes(written(values))
    assert map_array(path).tolist() == values.tolist()
    path.write_bytes(written(values)[:-1])
    with pytest.raises(ValueError, match=r"says float64 .*\(2, 3\), and 47 bytes fol"):
        map_array(path)


@pytest.mark.parametrize(
    "values",
    [
        np.array([True]),
        np.array([1], np.uint8),
        np.array(["a"]),
        np.array([b"a"]),
        np.array([(1, 2.0)], [("x", "i4"), ("y", "f8")]),
        np.zeros((0, 3)),
        np.array(1.0),
    ],
)
def test_arrays_hold_truth_values_numbers_and_texts(values: Any) -> None:
    for version in ((1, 0), (2, 0)):
        found = read_array_header(io.BytesIO(written(values, version)))
        assert found == (values.shape, False, values.dtype)
    with pytest.raises(ValueError, match=r"of version \(3, 0\) of npy, 1.0 and 2.0"):
        read_array_header(io.BytesIO(written(values, (3, 0))))


@pytest.mark.parametrize(
    "values",
    [np.array([1j]), np.array(["2026-01-01"], "M8[D]"), np.array([1], "m8[s]")],
)
def test_arrays_hold_no_complex_numbers_and_no_dates(values: Any) -> None:
    with pytest.raises(
        ValueError, match=f"it holds values of type {values.dtype}"[:30]
    ):
        read_array_header(io.BytesIO(written(values)))


class _Row(TypedDict):
    name: str
    count: int


def test_content_is_of_a_shape_or_the_first_place_is_named() -> None:
    path = Path("x.json")
    row = {"name": "a", "count": 1, "more": 2}
    check_shape([row], list[_Row], path)
    with refused(path, "rows 1.count: Input should be a valid integer, found True"):
        check_shape([row, {"name": "b", "count": True}], list[_Row], path, "rows ")
    with refused(path, "0.name: Field required"):
        check_shape([{"count": 1}], list[_Row], path)
    with refused(path, "its content: Input should be a valid list, found 3"):
        check_shape(3, list[_Row], path)


def test_whatever_a_reader_raises_is_one_line() -> None:
    """A scenario is not told of memory; an error without a word is called by name."""

    class OfScenario(DataError):
        pass

    path = Path("x")
    in_scenario = one_error(path, OfScenario)
    told = {
        MemoryError("of 3 TB"): "needs more memory than there is: of 3 TB",
        KeyError(): "is damaged: KeyError",
        ValueError("bad"): "is damaged: bad",
        UnicodeDecodeError("utf-8", b"", 0, 1, "odd"): "is not text in UTF-8",
    }
    for error, problem in told.items():
        with refused(path, problem), one_error(path):
            raise error
    with pytest.raises(OfScenario, match=r"^is damaged: of 3 TB"), in_scenario:
        raise MemoryError("of 3 TB")
    with pytest.raises(OfScenario, match="mine"), one_error(path):
        raise OfScenario("mine")
