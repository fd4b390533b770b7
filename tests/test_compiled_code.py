"""Compiled code is used again where its sources are equal, and nowhere else."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

import numba
import pytest

from emu import compiled_code

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

INNER = "from emu.compiled_code import njit\n\n\n@njit()\ndef inner():\n    return {}\n"
OUTER = """from emu.compiled_code import njit

from toy.scheduling.inner import inner


@njit()
def outer():
    return 2 * inner()
"""


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the folder of compiled code, empty."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "kept"))
    yield tmp_path / "kept"
    _forget()


def _forget() -> None:
    """Let the next import be that of another process."""
    compiled_code._files.cache_clear()
    compiled_code._folder.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "toy"]:
        del sys.modules[name]
    importlib.invalidate_caches()


def checkout(root: Path, inner: str = "1") -> Path:
    """Write a package whose simulation inlines what its scheduling defines."""
    for name, text in (
        ("scheduling/inner", INNER.format(inner)),
        ("simulation/outer", OUTER),
    ):
        path = root / "toy" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def outer(root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, bool]:
    """Return what the function of a checkout returns, and whether it was kept."""
    _forget()
    monkeypatch.setattr(compiled_code, "_PACKAGE", root / "toy")
    monkeypatch.setattr(sys, "path", [str(root), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # its stamps are seconds
    function = importlib.import_module("toy.simulation.outer").outer
    return function(), bool(function.stats.cache_hits)


def test_an_edit_to_what_is_compiled_into_another_module_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = checkout(tmp_path / "a"), checkout(tmp_path / "b")

    assert outer(here, monkeypatch) == (2, False)
    assert outer(here, monkeypatch) == (2, True)
    assert outer(there, monkeypatch) == (2, True)  # another checkout, later times
    assert outer(checkout(here, "5"), monkeypatch) == (10, False)
    assert outer(there, monkeypatch) == (2, True)


def test_code_is_made_of_its_package_and_of_those_below() -> None:
    package = compiled_code._PACKAGE
    names = {
        place: {path.parent.name for path in compiled_code.sources(package / place)}
        for place in ("scheduling/heap.py", "analysis/bounds.py", "graph_data/x.py")
    }

    assert names == {
        "scheduling/heap.py": {"scheduling"},
        "analysis/bounds.py": {"scheduling", "simulation", "placement", "analysis"},
        "graph_data/x.py": {"graph_data"},
    }


def test_old_versions_go(tmp_path: Path, kept: Path) -> None:
    source = tmp_path / "toy" / "graph_data" / "one.py"
    source.parent.mkdir(parents=True)
    for version in range(compiled_code._KEPT + 3):
        source.write_text(f"{version}")
        _forget()
        assert compiled_code.folder_of(source) is not None

    assert len(list(kept.iterdir())) == compiled_code._KEPT


def test_code_in_a_folder_of_others_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: -1)

    assert outer(checkout(tmp_path / "a"), monkeypatch) == (2, False)
    assert outer(checkout(tmp_path / "a"), monkeypatch) == (2, False)
