"""Documents say what is there: commands, keys, files, readings."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from emu.cli.app import COMMANDS
from tools import document_keys, house

ROOT = Path(__file__).resolve().parent.parent
READ = [*(ROOT / f"{n}.md" for n in ("README", "ARCHITECTURE", "CONTRIBUTING"))]
READ += [ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/*.md"))]
READ += sorted(ROOT.glob("docs/contributing/*.md"))
HISTORY = sorted(ROOT.glob("docs/history/*.md"))
DOCUMENTS = [*READ, *HISTORY]
#: Below the title of a page of docs/: its kind, its owner, and what holds it.
MARK = re.compile(r"\A# .*\n\n<!-- (\w+); (\S+); (\S+) -->\n")
LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")
ROW = re.compile(r"^\| .* \| `(emu/[a-z_/]+\.(?:py|c))` \| `(\w+)`", re.MULTILINE)


def test_the_readme_is_short() -> None:
    assert (ROOT / "README.md").read_text().count("\n") <= 160


def test_measurements_fit_a_few_screens() -> None:
    lines = (ROOT / "docs" / "measurements.md").read_text("utf-8").count("\n")
    assert lines <= 300


@pytest.mark.parametrize(
    "page",
    [one for one in DOCUMENTS if one.parent != ROOT],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_page_has_a_kind_an_owner_and_what_holds_it(page: Path) -> None:
    """A guide is walked; of others a test or a program says what they have to hold."""
    mark = MARK.match(page.read_text(encoding="utf-8"))
    assert mark is not None, "write <!-- kind; owner; what holds it --> below its title"
    kind, owner, holder = mark.groups()
    walks = {"tests/test_guides.py", "tests/test_contributing.py"}

    assert kind in {"guide", "reference", "explanation"}
    assert (ROOT / owner).exists()
    assert (ROOT / holder).exists()
    assert (kind == "guide") == (holder in walks)


def test_pictures_are_small() -> None:
    sizes = [path.stat().st_size for path in ROOT.glob("docs/pictures/*")]
    assert len(sizes) > 1
    assert sum(sizes) < 200_000


def test_the_picture_of_the_districts_is_that_of_the_imports() -> None:
    """Run `tools/house.py --write` where this fails."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")

    assert house.picture() in text


def headings(path: Path) -> set[str]:
    """Return the names by which links call the headings of a page."""
    titles = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles}


@pytest.mark.parametrize(
    "path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)
def test_links_lead_somewhere(path: Path) -> None:
    broken = []
    for link, heading in LINK.findall(path.read_text(encoding="utf-8")):
        target = path.parent / link if link else path
        if not target.exists() or (heading and heading not in headings(target)):
            broken.append(f"{link}#{heading}")

    assert broken == []


def test_every_command_is_documented() -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")

    assert [name for name in COMMANDS if f"`emu {name}" not in text] == []


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    """Return the pages that are written from the code, by name.

    In a process of its own, as there: among other tests, two of five sessions found
    no docstrings of P3's fields, which pydantic reads from the source at first import.
    """
    pages = "{name: d.document(name) for name in d.WRITTEN}"
    code = (
        f"import json; from tools import document_keys as d; print(json.dumps({pages}))"
    )
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", code],
        cwd=ROOT,
        check=True,
        capture_output=True,
        encoding="utf-8",
    )
    pages_found: dict[str, str] = json.loads(done.stdout)
    return pages_found


@pytest.mark.parametrize("name", document_keys.WRITTEN)
def test_keys_and_commands_are_those_of_the_code(
    name: str, written: dict[str, str]
) -> None:
    """Run `tools/check --write` where this fails."""
    text = (document_keys.DOCS / name).read_text(encoding="utf-8")

    assert written[name] == text


def test_every_reading_that_code_cites_is_written_down() -> None:
    cited = {
        reading
        for package in ("emu", "nodes", "tests", "tools")
        for path in (ROOT / package).rglob("*.py")
        if path != Path(__file__)
        for reading in re.findall(r"\bA(?:[1-9]|[12]\d|30)\b", path.read_text())
    }
    written = (ROOT / "docs" / "history" / "papers.md").read_text(encoding="utf-8")

    assert "A20" in cited
    assert [one for one in sorted(cited) if f"- **{one}** " not in written] == []


def test_the_lines_to_start_from_are_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = ROW.findall(text)

    assert len(named) == 4
    for file, function in named:
        source = (ROOT / file).read_text(encoding="utf-8")
        if file.endswith(".c"):
            defined = {*re.findall(r"^[a-z].*?(\w+)\(", source, re.MULTILINE)}
        else:
            walked = ast.walk(ast.parse(source))
            defined = {n.name for n in walked if isinstance(n, ast.FunctionDef)}
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
