"""Sections describe their keys by the docstrings in their source."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

SOURCE = '''
from emu.problem.fields.section import Section

class Base(Section):
    first: int
    """Words of a base."""

def make():
    class Inner(Base):
        second: int = 0
        """Words of a class within a function."""
        third: int = 0
    return Inner
'''


def test_descriptions_are_there_although_the_module_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a plugin of pytest has put ``sys.modules`` back."""
    (tmp_path / "module_that_goes.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    section = importlib.import_module("module_that_goes").make()
    del sys.modules["module_that_goes"]

    properties = section.model_json_schema()["properties"]

    assert {key: row.get("description") for key, row in properties.items()} == {
        "first": "Words of a base.",
        "second": "Words of a class within a function.",
        "third": None,
    }
