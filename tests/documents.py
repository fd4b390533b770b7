"""What documents mention."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def words_of(name: str) -> set[str]:
    """Return the words that a document sets in backticks.

    ``name``: of the document, from the top of the repository.
    """
    text = (ROOT / name).read_text(encoding="utf-8")
    return set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", text))))
