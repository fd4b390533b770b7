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
from itertools import product

from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

#: Lines after the slip that must be YAML as well, and the longest text that is tried:
#: some 20 changes, and 10 ms per kB and change.
_AFTER = 40
_LONGEST = 8_000
_HEAD = r"(\s*(?:- +)?)"
_KEY = r"([A-Za-z_][\w.-]*)"


def what_to_write(error: MarkedYAMLError, text: str) -> tuple[int, str]:
    """Return the line of an error (0: not known), and what to write there."""
    marks = [mark for mark in (error.problem_mark, error.context_mark) if mark]
    line = marks[0].line + 1 if marks else 0
    if isinstance(error, DuplicateKeyError):
        key = str(error.problem).removeprefix("found duplicate key ").partition(" with")
        name = re.escape(key[0].strip('"'))
        pattern = re.compile(rf"(^|[\s{{,]){name}[\"']?\s*:")
        lines = text.splitlines()[: line - 1]
        before = [number for number, one in enumerate(lines, 1) if pattern.search(one)]
        also = f", in line {before[-1]} as well" if before else ""
        return line, f"{key[0]} is there twice{also}: keep one of them"
    problem = (error.problem or error.context or "cannot be parsed").splitlines()[0]
    return _find_slip(text, [mark.line for mark in marks]) or (line, problem)


def _find_slip(text: str, near: Sequence[int]) -> tuple[int, str] | None:
    """Return the line, from 1, that makes YAML of ``text`` if changed, and into what.

    ``near``: lines that an error names, from 0.
    """
    lines = text.splitlines()
    # Those named, and the last one before each.
    rows = [i for i, line in enumerate(lines) if re.match(r"\s*(?!#|---)\S", line)]
    around = [i for line in near for i in [i for i in rows if i <= line][-2:][::-1]]
    places = [*dict.fromkeys(around)]
    if not places:
        return None
    first = min(places)
    start = max((i for i in range(first) if lines[i][:1].strip(" -#")), default=0)
    end = max(places) + _AFTER
    if sum(map(len, lines[start:end])) > _LONGEST:
        return None
    for (what, change), place in product(_CHANGES.items(), places):
        for line in change(lines, place):
            if line == lines[place]:
                continue
            lines_tried = [*lines[start:place], line, *lines[place + 1 : end]]
            with contextlib.suppress(YAMLError, TypeError, ValueError, RecursionError):
                if YAML(pure=True).load("\n".join(lines_tried)) is not None:
                    return place + 1, f"{what}: write {line.rstrip()!r}"
    return None


def _substitute(pattern: str, by: str) -> Callable[[Sequence[str], int], Iterator[str]]:
    def change(lines: Sequence[str], at: int) -> Iterator[str]:
        line, count = re.subn(pattern, by, lines[at])
        if count:
            yield line

    return change


def _indentations(lines: Sequence[str], at: int) -> list[int]:
    """Return the indentations of lines around one, the most like its own first."""
    own = len(lines[at]) - len(lines[at].lstrip())
    around = [line for line in lines[max(0, at - 20) : at + 3] if line.strip()]
    widths = {len(line) - len(line.lstrip(" ")) for line in around}
    items = (line for line in around if line.lstrip().startswith("- "))
    widths |= {line.index("- ") + 2 for line in items}
    return sorted(widths, key=lambda depth: (abs(depth - own), depth))


def _without_tabs(lines: Sequence[str], at: int) -> Iterator[str]:
    line = lines[at]
    if "\t" in line:
        inner = re.sub(r"\t+", " ", line.lstrip())
        if line.lstrip() == line.lstrip(" "):
            yield line[: len(line) - len(line.lstrip())] + inner
        before = [i for i in range(at) if lines[i].strip()]
        above = lines[before[-1]] if before else ""
        depth = len(above) - len(above.lstrip(" "))
        usual = [depth + 2] if above.rstrip().endswith(":") else [depth]
        for indent in [*usual, *_indentations(lines, at)]:
            yield " " * indent + inner


def _braces(lines: Sequence[str], at: int) -> Iterator[str]:
    line, comment = _parts(lines[at])
    for opening, closing in ("{}", "[]"):
        over = line.count(opening) - line.count(closing)
        if over > 0:
            yield line + closing * over + comment
            for brace in re.finditer(r"[\]})]", line):
                first = line[: brace.start()]
                rest = line[brace.end() :] + comment
                if brace[0] != closing:
                    yield first + closing + rest
        if over < 0:
            last = line.rindex(closing)
            fewer = line[:last] + line[last + 1 :] + comment
            if opening in line:
                yield fewer
            yield re.sub(_HEAD, rf"\1{opening}", line, count=1) + comment
            yield re.sub(rf"^(\s*(?:- +)?{_KEY}: +)", rf"\1{opening}", line) + comment
            yield fewer
    if re.match(rf"\s*- +{_KEY}:.*, *{_KEY}:", line):
        yield re.sub(r"^(\s*- +)(.*)$", r"\1{\2}", line) + comment
    if re.search(r"[{[]", line):
        yield re.sub(rf"([^\s,:{{\[]) +({_KEY}: )", r"\1, \2", line) + comment


def _quotes(lines: Sequence[str], at: int) -> Iterator[str]:
    line, comment = _parts(lines[at])
    for quote in "\"'":
        if line.count(quote) % 2:
            yield line + quote + comment
            yield re.sub(rf"({quote}[^{quote},}}\]]*)([,}}\]])", rf"\1{quote}\2", line)
    yield line.replace('"', "'") + comment


def _fix_quotes(lines: Sequence[str], at: int) -> Iterator[str]:
    line, comment = _parts(lines[at])
    if match := re.match(rf"{_HEAD}{_KEY}: +([^\s\"'{{\[].*)$", line):
        text = json.dumps(match[3], ensure_ascii=False)
        yield f"{match[1]}{match[2]}: {text}{comment}"


def _parts(line: str) -> tuple[str, str]:
    """Return a line without its comment, and that with the space before it."""
    match = re.match(r"(.*?)(\s+#.*|\s*)$", line)
    return (match[1], match[2]) if match else (line, "")


_CHANGES: dict[str, Callable[[Sequence[str], int], Iterator[str]]] = {
    "a tab, YAML is indented by spaces": _without_tabs,
    "no space after the colon": _substitute(rf"^{_HEAD}{_KEY}:(?=[^\s:/])", r"\1\2: "),
    "no space after the dash": _substitute(r"^(\s*)-(?=[^\s-])", r"\1- "),
    "no colon after the key": _substitute(
        rf"^{_HEAD}{_KEY},?(\s*(?:#.*)?)$", r"\1\2:\3"
    ),
    "a comma where nothing follows": _substitute(rf"^({_HEAD}{_KEY}:.*?),+\s*$", r"\1"),
    "a brace, bracket or comma that is missing or too many": _braces,
    "a quote that is not closed, or a backslash between double ones": _quotes,
    "no colon between key and value": _substitute(
        rf"^{_HEAD}{_KEY}\s*[= ]\s*(?=[^\s:=])", r"\1\2: "
    ),
    "text that YAML would read, it needs quotes": _fix_quotes,
    "indented unlike the lines around it": lambda lines, at: (
        " " * indent + lines[at].lstrip() for indent in _indentations(lines, at)
    ),
}
