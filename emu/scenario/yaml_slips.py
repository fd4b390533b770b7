"""Mend one line of text that is not YAML, as its writer must have meant it.

No parser does: an error shows where the text stopped making sense. Lines near it are
changed as people slip (a tab, a brace, a colon, a quote, an indentation), the likeliest
first, and the first change that makes YAML of the text is proposed.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

#: Lines after the slip that must be YAML as well, and the longest text that is tried:
#: some 20 changes, and 10 ms per kB and change.
_AFTER = 40
_LONGEST = 8_000
#: Lines before and after a slip from which its indentation may be taken.
_ABOVE = 20
_BELOW = 3
_HEAD = r"(\s*(?:- +)?)"
_KEY = r"([A-Za-z_][\w.-]*)"
_HEAD_AND_KEY = _HEAD + _KEY
#: The beginning of a line that is no comment, and begins no document.
_CONTENT = re.compile(r"\s*(?!#|---)\S")
#: An item of a list with two keys in one line, a key without a comma before it, and
#: what stands before a value.
_SEVERAL_KEYS = rf"\s*- +{_KEY}:.*, *{_KEY}:"
_NO_COMMA = rf"([^\s,:{{\[]) +({_KEY}: )"
_UP_TO_VALUE = rf"^(\s*(?:- +)?{_KEY}: +)"
#: Yields texts of the line at a position, as they may be meant.
_Change: TypeAlias = Callable[[Sequence[str], int], Iterator[str]]


def what_to_write(error: MarkedYAMLError, text: str) -> tuple[int, str]:
    """Return the line of an error (0: not known), and what to write there."""
    possible_marks = (error.problem_mark, error.context_mark)
    marks = [mark for mark in possible_marks if mark]
    line = 0
    if marks:
        line = marks[0].line + 1
    if isinstance(error, DuplicateKeyError):
        lines_before = text.splitlines()[: line - 1]
        return line, _words_of_duplicate(error, lines_before)

    named = [mark.line for mark in marks]
    slip = _find_slip(text, named)
    if slip is not None:
        return slip
    problem = error.problem or error.context or "cannot be parsed"
    first_line = problem.splitlines()[0]
    return line, first_line


def _words_of_duplicate(error: DuplicateKeyError, lines_before: Sequence[str]) -> str:
    """Return which key is there twice, and where it stands first."""
    problem = str(error.problem)
    words = problem.removeprefix("found duplicate key ")
    key, *_ = words.partition(" with")
    name = re.escape(key.strip('"'))
    # At the beginning of a line, or behind a space, brace or comma.
    pattern = re.compile(rf"(^|[\s{{,]){name}[\"']?\s*:")

    first = ""
    for number, line in enumerate(lines_before, 1):
        if pattern.search(line):
            first = f", in line {number} as well"  # the last one is the nearest
    return f"{key} is there twice{first}: keep one of them"


def _find_slip(text: str, named: Sequence[int]) -> tuple[int, str] | None:
    """Return the line, from 1, that makes YAML of ``text`` if changed, and into what.

    ``named``: lines that an error names, from 0.
    """
    lines = text.splitlines()
    suspects = _list_suspects(lines, named)
    if not suspects:
        return None

    first = min(suspects)
    start = 0  # of the item or section that the first of them belongs to
    for number in range(first):
        first_letter = lines[number][:1]
        if first_letter.strip(" -#"):
            start = number
    # What follows must be YAML as well, else a change would mend one line of many.
    end = max(suspects) + _AFTER
    tried_lines = lines[start:end]
    characters = sum(map(len, tried_lines))
    if characters > _LONGEST:
        return None

    # The likeliest slip first, on whichever of the lines.
    for meaning, change in _CHANGES.items():
        for number in suspects:
            present = lines[number]
            head = lines[start:number]
            tail = lines[number + 1 : end]
            for line in change(lines, number):
                trial = "\n".join([*head, line, *tail])
                if line != present and _is_yaml(trial):
                    proposal = line.rstrip()
                    return number + 1, f"{meaning}: write {proposal!r}"
    return None


def _list_suspects(lines: Sequence[str], named: Sequence[int]) -> list[int]:
    """Return the lines that an error names, and before each the last with content."""
    numbers = []
    for number, line in enumerate(lines):
        if _CONTENT.match(line):
            numbers.append(number)
    # The line before the one that is named is where a quote or brace is left open.
    suspects: dict[int, None] = {}  # a set has no order
    for limit in named:
        up_to_limit = [number for number in numbers if number <= limit]
        last_two = up_to_limit[-2:]
        for number in reversed(last_two):
            suspects[number] = None
    return list(suspects)


def _is_yaml(text: str) -> bool:
    parser = YAML(pure=True)
    with contextlib.suppress(YAMLError, TypeError, ValueError, RecursionError):
        return parser.load(text) is not None
    return False


def _substitute(pattern: str, replacement: str) -> _Change:
    def change(lines: Sequence[str], number: int) -> Iterator[str]:
        line, count = re.subn(pattern, replacement, lines[number])
        if count:
            yield line

    return change


def _indentation(line: str) -> int:
    content = line.lstrip(" ")
    return len(line) - len(content)


def _indentations(lines: Sequence[str], number: int) -> list[int]:
    """Return the indentations of lines around one, the most like its own first."""
    line = lines[number]
    content = line.lstrip()
    present = len(line) - len(content)
    first = max(0, number - _ABOVE)
    end = number + _BELOW
    widths = set()
    for neighbour in lines[first:end]:
        content = neighbour.lstrip()
        if content:
            widths.add(_indentation(neighbour))
        if content.startswith("- "):  # its further keys stand below its first
            dash = neighbour.index("- ")
            widths.add(dash + 2)

    def distance(width: int) -> tuple[int, int]:
        return abs(width - present), width

    return sorted(widths, key=distance)


def _indent(lines: Sequence[str], number: int) -> Iterator[str]:
    content = lines[number].lstrip()
    for width in _indentations(lines, number):
        yield " " * width + content


def _without_tabs(lines: Sequence[str], number: int) -> Iterator[str]:
    line = lines[number]
    if "\t" not in line:
        return
    content = line.lstrip()
    repair = re.sub(r"\t+", " ", content)
    if content == line.lstrip(" "):  # only spaces indent it
        indentation = line.removesuffix(content)
        yield indentation + repair

    above = ""
    for candidate in lines[:number]:
        if candidate.strip():
            above = candidate
    usual = _indentation(above)
    if above.rstrip().endswith(":"):
        usual += 2
    widths = [usual, *_indentations(lines, number)]
    for width in widths:
        yield " " * width + repair


def _braces(lines: Sequence[str], number: int) -> Iterator[str]:
    line, comment = _split_comment(lines[number])
    for opening, closing in ("{}", "[]"):
        excess = line.count(opening) - line.count(closing)
        if excess > 0:
            missing = closing * excess
            yield line + missing + comment
            for brace in re.finditer(r"[\]})]", line):
                if brace[0] != closing:
                    head = line[: brace.start()]
                    tail = line[brace.end() :]
                    yield head + closing + tail + comment
        if excess < 0:
            up_to_last, _, behind = line.rpartition(closing)
            fewer = up_to_last + behind + comment
            if opening in line:
                yield fewer
            # Opened before the first key, or before its value.
            before_key = re.sub(_HEAD, rf"\1{opening}", line, count=1)
            before_value = re.sub(_UP_TO_VALUE, rf"\1{opening}", line)
            yield before_key + comment
            yield before_value + comment
            yield fewer

    if re.match(_SEVERAL_KEYS, line):
        in_braces = re.sub(r"^(\s*- +)(.*)$", r"\1{\2}", line)
        yield in_braces + comment
    if re.search(r"[{[]", line):
        with_comma = re.sub(_NO_COMMA, r"\1, \2", line)
        yield with_comma + comment


def _quotes(lines: Sequence[str], number: int) -> Iterator[str]:
    line, comment = _split_comment(lines[number])
    for quote in "\"'":
        if line.count(quote) % 2:
            yield line + quote + comment
            open_quote = rf"({quote}[^{quote},}}\]]*)([,}}\]])"
            yield re.sub(open_quote, rf"\1{quote}\2", line)
    yield line.replace('"', "'") + comment


def _quote_value(lines: Sequence[str], number: int) -> Iterator[str]:
    line, comment = _split_comment(lines[number])
    match = re.match(_HEAD_AND_KEY + r": +([^\s\"'{\[].*)$", line)
    if match:
        head, key, value = match.groups()
        text = json.dumps(value, ensure_ascii=False)
        yield f"{head}{key}: {text}{comment}"


def _split_comment(line: str) -> tuple[str, str]:
    """Return a line without its comment, and that with the space before it."""
    match = re.match(r"(.*?)(\s+#.*|\s*)$", line)
    if match is None:
        return line, ""
    return match[1], match[2]


_CHANGES: dict[str, _Change] = {
    "a tab, YAML is indented by spaces": _without_tabs,
    "no space after the colon": _substitute(
        "^" + _HEAD_AND_KEY + r":(?=[^\s:/])",
        replacement=r"\1\2: ",
    ),
    "no space after the dash": _substitute(
        r"^(\s*)-(?=[^\s-])",
        replacement=r"\1- ",
    ),
    "no colon after the key": _substitute(
        "^" + _HEAD_AND_KEY + r",?(\s*(?:#.*)?)$",
        replacement=r"\1\2:\3",
    ),
    "a comma where nothing follows": _substitute(
        "^(" + _HEAD_AND_KEY + r":.*?),+\s*$",
        replacement=r"\1",
    ),
    "a brace, bracket or comma that is missing or too many": _braces,
    "a quote that is not closed, or a backslash between double ones": _quotes,
    "no colon between key and value": _substitute(
        "^" + _HEAD_AND_KEY + r"\s*[= ]\s*(?=[^\s:=])",
        replacement=r"\1\2: ",
    ),
    "text that YAML would read, it needs quotes": _quote_value,
    "indented unlike the lines around it": _indent,
}
