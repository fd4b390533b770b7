"""What is not a scenario at all: other bytes, other YAML, no file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emu.errors import ScenarioError
from emu.scenario import load

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "found nothing, write a mapping"),
        (b"- 1\n- 2\n", "found list, write a mapping"),
        (b"just text", "found str, write a mapping"),
        (b"a: \xff\xfe", "is not text in UTF-8"),
        (b"when: 2026-01-01", "found 2026-01-01, which YAML reads as a"),
        (b"a: " + b"[" * 50 + b"]" * 50, "has too many values or levels"),
        (b"a: " + b"[" * 300, "is not YAML: "),
        (
            b"""
                a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
                b: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]
                c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]
                d: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]
                e: [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d]
                f: [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d]
                g: [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d]
            """,
            "has too many values or levels",
        ),
    ],
)
def test_what_is_not_a_scenario_at_all(
    tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "broken.yaml"
    file.write_bytes(content)

    with pytest.raises(ScenarioError) as caught:
        load(file)

    assert caught.value.problem.startswith(message)
    assert caught.value.file == str(file)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot be read: No such file"):
        load(tmp_path / "nothing.yaml")
