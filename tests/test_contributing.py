"""The walks of docs/contributing: each diff is applied to a copy, and then tried."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.leftovers import Leftovers
from tests.test_guides import BLOCK, walk
from tools.building.core import build_core
from tools.mutation.campaign import copy_tree

ROOT = Path(__file__).resolve().parent.parent
WALKS = ROOT / "docs" / "contributing"
FILE = re.compile(r"^\+\+\+ b/(.*)$", re.MULTILINE)

pytestmark = pytest.mark.timeout(600)


def read_diffs(page: Path) -> list[str]:
    """Return the diffs of a page in their order."""
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [text for language, _, text in blocks if language == "diff"]


def apply_diffs(page: Path, tree: Path) -> set[str]:
    """Apply the diffs of a page as a reader would; return the files they change."""
    diffs = read_diffs(page)
    for diff in diffs:
        done = subprocess.run(
            ["patch", "-p1", "--no-backup-if-mismatch"],
            cwd=tree,
            input=diff,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{diff}"
    return {file for diff in diffs for file in FILE.findall(diff)}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of this project from which commands are imported."""
    if shutil.which("patch") is None:
        pytest.skip("no patch: apt-get install patch")
    copy_tree(ROOT, tmp_path / "tree")
    copy = tmp_path / "tree"
    monkeypatch.setenv("PYTHONPATH", f"{copy}{os.pathsep}{copy / 'nodes'}")
    return copy


@pytest.mark.parametrize("name", ["rate_rule", "event_kind"])
def test_diffs_apply(name: str, tree: Path) -> None:
    assert apply_diffs(WALKS / f"{name}.md", tree)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_rate_rule_takes_four_files(tree: Path) -> None:
    files = apply_diffs(WALKS / "rate_rule.md", tree)

    assert len(files) == 4
    build_core(tree, plain=True)
    assert walk(WALKS / "rate_rule.md", tree, apart=True) == set()


@pytest.mark.nightly
@pytest.mark.slow
def test_a_kind_of_event_takes_one_file(tree: Path) -> None:
    files = apply_diffs(WALKS / "event_kind.md", tree)

    assert files == {"emu/scenario/events_section.py"}
    for built in (ROOT / "emu/prediction/core").glob("*.so"):
        shutil.copy(built, tree / "emu/prediction/core")
    assert walk(WALKS / "event_kind.md", tree, apart=True) == set()


@pytest.mark.emulation
@pytest.mark.untimed
def test_a_system_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leftovers: Leftovers
) -> None:
    """Its entry point is written by hand: pip would change this environment."""
    page = WALKS / "own_system.md"
    files = {w: t for _, w, t in BLOCK.findall(page.read_text("utf-8")) if "." in w}
    project = tomllib.loads(files["pyproject.toml"])["project"]
    info = tmp_path / "site" / f"emu_relay-{project['version']}.dist-info"
    (tmp_path / "emu_relay").mkdir()
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1\n"
    )
    points = project["entry-points"]["emu.systems"].items()
    lines = "".join(f"{name} = {value}\n" for name, value in points)
    (info / "entry_points.txt").write_text(f"[emu.systems]\n{lines}")
    monkeypatch.setenv("PYTHONPATH", f"{info.parent}{os.pathsep}{tmp_path}")

    assert walk(page, tmp_path, apart=True) == set()
    assert leftovers.note() == []
