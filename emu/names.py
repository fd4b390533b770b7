"""Names and texts from outside, made fit for the place where they go.

Whoever writes a scenario, sends a message or edits a run directory chooses its texts.
This is the one place that knows what each place cannot take.
"""

from __future__ import annotations

#: Characters of a text from outside that a line of ours shows.
SHOWN = 300


def printable(text: str, limit: int = SHOWN) -> str:
    """Return the text for a terminal or a log: one line, no control sequence.

    What is not printable is written as Python would; ``limit`` is in characters.
    """
    shown = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )
    return shown if len(shown) <= limit else f"{shown[: limit - 3]}..."


def for_script(text: str) -> str:
    """Return JSON as a script element may hold it: nothing in it ends the element."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def for_label(text: str) -> str:
    """Return the text as the value of a Prometheus label, between its quotes."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
