"""Whole outputs of commands, as they were reviewed."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import pytest

from tests.snapshots.transcripts import TRANSCRIPTS, carry_out, plain

#: Lines of a difference that are shown.
SHOWN = 40


@pytest.mark.timeout(300)  # a disk may be slow at the first import
@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_commands_leave_what_they_left(path: Path) -> None:
    """Compare a transcript, or write it anew where EMU_SNAPSHOTS is ``write``."""
    kept = path.read_text(encoding="utf-8")
    now = carry_out(kept)
    if os.environ.get("EMU_SNAPSHOTS") == "write":
        path.write_text(now, encoding="utf-8")
        return
    lines = [
        *difflib.unified_diff(kept.splitlines(), now.splitlines(), n=0, lineterm="")
    ]
    if lines:
        shown = "\n".join(line[:200] for line in lines[:SHOWN])
        pytest.fail(
            f"{path.name}: where this is meant, `make snapshots` and review the diff\n"
            f"{shown}",
            pytrace=False,
        )


@pytest.mark.parametrize(
    ("printed", "kept"),
    [
        ("417595971.1737529 B", "417595971.0 B"),
        ("29.999999999999996, 30.0", "30.0, 30.0"),
        ('{"gap": -3.3306690738754696e-16}', '{"gap": 0.0}'),
        ('"2.77555756e-17 s"', '"0.0 s"'),
        ("multiply 4e-13 s, 1.5e-13 s", "multiply 4e-13 s, 1.5e-13 s"),
        ("0.0515798435, 64000000000.0", "0.0515798435, 64000000000.0"),
    ],
)
def test_numbers_lose_what_another_processor_changes(printed: str, kept: str) -> None:
    """Round to 9 digits, and keep small numbers that somebody stated."""
    assert plain(printed, Path("folder")) == kept
