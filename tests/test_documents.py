"""Documents say what is there: commands, keys, files, readings."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from emu.cli.listing import COMMANDS
from tools import document_keys

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *ROOT.glob("docs/*.md")]
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
ROW = re.compile(r"^\| .* \| `(emu/[a-z_/]+\.py)` \| `(\w+)`", re.MULTILINE)


def test_the_readme_is_short() -> None:
    assert (ROOT / "README.md").read_text().count("\n") <= 150


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    broken = [
        link
        for link in LINK.findall(path.read_text(encoding="utf-8"))
        if not (path.parent / link).exists()
    ]

    assert broken == []


def test_every_command_is_documented() -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")

    assert [name for name in COMMANDS if f"`emu {name}" not in text] == []


def test_every_key_of_a_scenario_is_documented() -> None:
    """Run `tools/check --write` where this fails."""
    text = document_keys.DOCUMENT.read_text(encoding="utf-8")

    assert text == document_keys.document(text)


def test_every_reading_that_code_cites_is_written_down() -> None:
    cited = {
        reading
        for package in ("emu", "nodes", "tests", "tools")
        for path in (ROOT / package).rglob("*.py")
        if path != Path(__file__)
        for reading in re.findall(r"\bA(?:[1-9]|[12]\d|30)\b", path.read_text())
    }
    written = (ROOT / "docs" / "readings.md").read_text(encoding="utf-8")

    assert "A20" in cited
    assert [one for one in sorted(cited) if f"| {one} |" not in written] == []


def test_the_lines_to_start_from_are_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = ROW.findall(text)

    assert len(named) == 3
    for file, function in named:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        defined = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
        assert function in defined, f"{file} has no {function}"


def test_every_package_is_on_the_tour() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    packages = [path.parent.name for path in (ROOT / "emu").glob("*/__init__.py")]

    assert [name for name in packages if f"`emu/{name}`" not in text] == []


def test_files_that_the_tour_names_are_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    files = {
        path.as_posix()
        for top in ("emu", "nodes")
        for path in (ROOT / top).rglob("*.py")
    }
    named = re.findall(r"`([a-z_/]+\.py)`", text)

    assert [
        name for name in named if not any(f.endswith(f"/{name}") for f in files)
    ] == []
