"""Suggest the word that the writer of an unknown one may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(found: str, known: Iterable[str]) -> str:
    """Return a hint: the known word most like ``found``, or all of them."""
    known = list(known)
    if not known:
        return "there are none"
    close = difflib.get_close_matches(found, known, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(known)}"
