"""Names and texts from outside, made fit for the place where they go.

Whoever writes a scenario, sends a message or edits a run directory chooses its texts.
This is the one place that knows what each place cannot take: a line, the name of a
file, a terminal, a script, a label, a table of HTML.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

#: Characters of a text from outside that a line of ours shows.
SHOWN = 300
#: Paths are cut nowhere: whoever copies one is to find the file.
_LONG_WORD = re.compile(rf"\w{{{SHOWN + 1},}}")
#: What JSON writes for characters that would end a script element or begin another.
_SCRIPT_ESCAPES = str.maketrans(
    {
        "<": "\\u003c",
        ">": "\\u003e",
        "&": "\\u0026",
    }
)
#: What a label of Prometheus has for what would end it, or its line.
_LABEL_ESCAPES = str.maketrans(
    {
        "\\": "\\\\",
        '"': '\\"',
        "\n": "\\n",
    }
)


def check_name(text: Any) -> str:
    """Return the name of a machine, a task, a link, a scenario or a data set.

    Raises ValueError when a line could not show it as it is.
    """
    if not isinstance(text, str) or not text.strip() or len(text) > SHOWN:
        raise ValueError(f"a name is a text of 1 to {SHOWN} characters")
    if not text.isprintable():
        raise ValueError(f"{printable(text)!r} holds what cannot be printed")
    return text


def file_part(text: str) -> str:
    """Return the form of a name within the name of a file: no path leads out of it.

    Letters, digits, dot, dash and underscore stay; at most 100 of them.
    """
    letters = [c if c.isalnum() or c in "-._" else "_" for c in text]
    name = "".join(letters).lstrip(".")
    encoding = sys.getfilesystemencoding()  # ASCII, where the locale is no UTF-8
    encoded = name.encode(encoding, "replace")
    shown = encoded.replace(b"?", b"_")[:100]
    # A cut may go through a letter of several bytes: that one is dropped.
    part = shown.decode(encoding, errors="ignore")
    return part or "_"


def for_terminal(text: str) -> str:
    """Return the text with its lines, without control sequences, and long words cut.

    A word is long beyond what a line shows, as a number of 4,000 digits is.
    """
    text = _LONG_WORD.sub(lambda word: f"{word[0][:40]}...", text)
    lines = []
    for line in text.split("\n"):
        # A character is written as ten at most: no line is cut.
        most = len(line) * 10
        lines.append(printable(line, limit=most))
    return "\n".join(lines)


def printable(text: str, limit: int = SHOWN) -> str:
    """Return the text for a terminal or a log: one line, no control sequence.

    What is not printable is written as Python would; ``limit`` is in characters.
    """
    shown = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )
    if len(shown) <= limit:
        return shown
    return f"{shown[: limit - 3]}..."


def for_script(text: str) -> str:
    """Return JSON as a script element may hold it: nothing in it ends the element."""
    return text.translate(_SCRIPT_ESCAPES)


def for_label(text: str) -> str:
    """Return the text as the value of a Prometheus label, between its quotes."""
    return text.translate(_LABEL_ESCAPES)


def html_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
) -> str:
    """Return a title and a table of HTML below it."""
    from html import escape  # noqa: PLC0415 - emu --help does without

    def line(tag: str, cells: Sequence[object]) -> str:
        elements = [f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells]
        return f"<tr>{''.join(elements)}</tr>"

    head = ""
    if columns:
        head = f"<thead>{line('th', columns)}</thead>"
    body = "".join(line("td", row) for row in rows)
    return f"<p>{escape(title)}</p><table>{head}<tbody>{body}</tbody></table>"
