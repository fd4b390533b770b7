"""One table of file formats: what a file is, and which command takes it.

A row states how the file begins and what is done with it. Readers ask
`refuse_other_formats` first, so that none of them blames a file of another format for
not being its own; ``emu what FILE`` prints the row.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from emu.errors import DataError
from emu.host.input_file import GZIP, open_input

#: Commands that take files of others, as a user writes them.
IMPORT = "emu import FILE -o NAME"
WORKLOAD = "emu import-workload FILE -o NAME.json"
TOPOLOGY = "cluster: {topology: FILE} of a scenario"
PROFILE = "emu profile SCENARIO OUT --from FILE"
COMPARE = "emu compare RUN FILE"
SCENARIO = "emu simulate FILE"
#: And those that take what emu left.
RUN = "emu explain FOLDER"
FIT = "emu fit FOLDER"
AUDIT = "emu audit FILE"
#: Bytes of a file that are looked at.
_HEAD = 1 << 18
#: A key of JSON at some depth, a bracket, or a text: what depths are counted by.
_JSON_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?|[\[\]{}]')
#: Colours and underlines of a terminal.
_ANSI = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
#: No blank of a key is its last: of a million blanks each would be tried as that.
_YAML_KEY = re.compile(
    r"^([A-Za-z_](?:[\w.-]| +(?=[\w.-]))*)[ \t]*:(?:\s|$)", re.MULTILINE
)
#: Within a line: over several, thousands of empty ones would take minutes.
_YAML_WORD = re.compile(r"^[ \t-]*([A-Za-z_]\w*)[ \t]*:", re.MULTILINE)
#: A line of prose or code, which no mapping of YAML has at its outermost depth: one
#: that neither is indented, a mark or a comment nor has a colon behind a key.
_NO_YAML = re.compile(r"^(?![\s#%}\]-]|\.\.\.|[^\n]*:(?:\s|$)).*\n", re.MULTILINE)


@dataclass(frozen=True)
class Format:
    """A format of files: all that is stated of its beginning has to hold."""

    name: str
    """As in "is a SimGrid platform": with its article."""
    commands: tuple[str, ...] = ()
    """Those that take it."""
    conversion: str = ""
    """Command, option, or line of Python that makes of it what a command takes; beside
    commands the options that they need."""
    left_out: str = ""
    """Parts of it that no command uses, for the documents."""
    magic: bytes = b""
    """First bytes."""
    pattern: str = ""
    """Regular expression that is found in the text of the beginning."""
    keys: Collection[str] = ()
    """Keys of the outermost mapping of JSON or YAML, all of which are there."""
    inner: Collection[str] = ()
    """Keys at any depth of JSON or YAML, all of which are there."""
    suffixes: tuple[str, ...] = ()
    """Ends of the file's name, one of which is there, ``.gz`` apart."""
    holds: str = ""
    """Pattern of a file that a folder of this format holds; files have none."""
    reader: str = ""
    """Reader of a topology or workload, by its name here; empty of what has none."""

    @property
    def way(self) -> str:
        """Commands for such a file, or what converts it."""
        commands = " or ".join(self.commands)
        parts = [commands, self.conversion]
        stated_parts = [part for part in parts if part]
        return ", ".join(stated_parts)

    def way_of(self, path: Path) -> str:
        """Return the way of a file, with its name and that of its folder."""
        return fill_in(self.way, path)

    def fits(self, sample: Sample) -> bool:
        """Return True where a file begins, or a folder is filled, like this format."""
        # A folder is known by what it holds alone, and a file never by that.
        if self.holds or sample.path.is_dir():
            if not self.holds:
                return False
            return any(sample.path.glob(self.holds))

        file_name = sample.path.name.lower()
        name = file_name.removesuffix(".gz")
        return (
            sample.head.startswith(self.magic)
            and (not self.suffixes or name.endswith(self.suffixes))
            and sample.keys.issuperset(self.keys)
            and sample.inner_keys.issuperset(self.inner)
            and (not self.pattern or self._found(sample.text))
        )

    def _found(self, text: str) -> bool:
        return re.search(self.pattern, text, re.MULTILINE) is not None


@dataclass(frozen=True)
class Sample:
    """The beginning of a file."""

    path: Path
    head: bytes
    """First bytes, unpacked where the file is packed by gzip."""
    is_whole: bool = False
    """True where these are all bytes of the file."""

    @cached_property
    def text(self) -> str:
        """The beginning as text, without colours; what is no letter is replaced.

        UTF-8, or UTF-16 where the first bytes say so. A line that does not end is one
        that was cut off: the last of a file ends.
        """
        marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        is_wide = self.head.startswith(marks)
        encoding = "utf-16" if is_wide else "utf-8"
        text = self.head.decode(encoding, "replace")
        text = text.removeprefix("\ufeff")
        if self.is_whole and not text.endswith("\n"):
            text += "\n"
        return _ANSI.sub("", text)

    @cached_property
    def keys(self) -> frozenset[str]:
        """Keys of the outermost mapping of JSON, or of YAML.

        A page that shows a mapping between its paragraphs has none.
        """
        # Cut short, it is no whole JSON: keys are found by their brackets.
        if self.text.lstrip().startswith("{"):
            keys = _json_keys(self.text)
            return frozenset(key for key, depth in keys if depth == 1)
        if _NO_YAML.search(self.text):
            return frozenset()
        keys_of_yaml = _YAML_KEY.findall(self.text)
        return frozenset(keys_of_yaml)

    @cached_property
    def inner_keys(self) -> frozenset[str]:
        """Keys at any depth."""
        first_letter = self.text.lstrip()[:1]
        if first_letter in ("{", "["):
            keys = _json_keys(self.text)
            return frozenset(key for key, _ in keys)
        return frozenset(_YAML_WORD.findall(self.text))


def read_sample(path: Path) -> Sample:
    """Return the beginning of a file; of a folder nothing.

    Raises DataError when it cannot be read.
    """
    if path.is_dir():
        return Sample(path, b"")
    try:
        with open_input(path) as file:
            head = file.read(_HEAD)
    except OSError as error:
        problem = error.strerror or "cannot be read"
        raise DataError(problem, path=path) from error
    is_whole = len(head) < _HEAD
    if head.startswith(GZIP):
        head, is_end = _unpack(head)
        is_whole = is_whole and is_end
    return Sample(path, head, is_whole)


def recognise(path: Path, formats: Iterable[Format]) -> Format | None:
    """Return the first of some formats that a file has, None where it has none.

    Raises DataError when it cannot be read.
    """
    sample = read_sample(path)
    for row in formats:
        if row.fits(sample):
            return row
    return None


def refuse_other_formats(
    path: Path,
    command: str,
    formats: Iterable[Format],
) -> None:
    """Say what a file is, and the way, where a command is none that takes it.

    A file of no known format is let be. Raises DataError.
    """
    row = recognise(path, formats)
    if row is not None and command not in row.commands:
        raise DataError(f"is {row.name}: {row.way_of(path)}", path=path)


def fill_in(words: str, path: Path) -> str:
    """Return a command with the names of a file and of the folder that it lies in."""
    folder = path if path.is_dir() else path.parent
    return words.replace("FILE", str(path)).replace("FOLDER", str(folder))


def _unpack(head: bytes) -> tuple[bytes, bool]:
    """Return what the beginning of a gzip file holds, and whether that is all of it.

    Of a damaged one that is nothing.
    """
    gzip_bits = zlib.MAX_WBITS | 16
    unpacker = zlib.decompressobj(wbits=gzip_bits)
    try:
        # Ten bytes may unpack to gigabytes: no more than a beginning is made.
        unpacked = unpacker.decompress(head, _HEAD)
    except zlib.error:
        return b"", False
    # Packed piece by piece, a file goes on behind the end of the first.
    return unpacked, unpacker.eof and not unpacker.unused_data


def _json_keys(text: str) -> Iterator[tuple[str, int]]:
    """Yield the keys of JSON, which may be cut short, and their depths from 1."""
    depth = 0
    for token in _JSON_TOKEN.finditer(text):
        if token[0] in ("{", "["):
            depth += 1
        elif token[0] in ("}", "]"):
            depth -= 1
        elif token[2]:
            yield token[1], depth
