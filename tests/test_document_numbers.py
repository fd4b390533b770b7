"""Numbers beside commands: each command is run and prints what the document says.

Behind a command in a sentence or a table, `` `emu simulate NAME` ``, stands the note
``<!-- prints makespan 11.388 -->``: what it prints has to hold this text, whose last
digits may be cut off. Blocks of guides are walked by `tests.test_guides`, rows of
papers are held by `tests.test_reproduction_page`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import draws
from tests.test_guides import Command, printed

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/history/*.md")]
#: Where a command stands beside a number, and is no instruction.
RESULTS = [ROOT / "docs" / "measurements.md", *ROOT.glob("docs/history/*.md")]
NOTED = re.compile(r"`(emu [^`]+)`\s*<!-- prints ([^>]+?) -->")
#: Commands that print the same on every host, of one scenario.
EXACT = re.compile(r"`(emu (?:simulate|compare|crossover|explain|place) \w[^`]*)`")

CASES = [
    (page, command, text)
    for page in sorted(PAGES)
    for command, text in NOTED.findall(page.read_text("utf-8"))
]


@pytest.fixture(scope="module", autouse=True)
def short_searches() -> None:
    """Search as long as readers do, in place of the fixture of all tests."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for all commands: a graph is prepared once for those of it."""
    return tmp_path_factory.mktemp("numbers")


@pytest.mark.parametrize(
    ("page", "command", "text"),
    # Those of a study take 3 s each.
    [draws.rarely(*case) if case[0].stem == "study" else case for case in CASES],
    ids=[f"{p.stem}-{t}" for p, _, t in CASES],
)
def test_a_command_prints_the_number_beside_it(
    page: Path, command: str, text: str, folder: Path
) -> None:
    output = printed(Command(command, ""), folder)

    assert text in " ".join(output.split()), f"{page.name}: $ {command}"


@pytest.mark.parametrize("page", RESULTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_exact_command_beside_a_number_is_noted(page: Path) -> None:
    text = page.read_text("utf-8")
    noted = {command for command, _ in NOTED.findall(text)}

    assert [command for command in EXACT.findall(text) if command not in noted] == []


def test_a_wrong_number_is_seen(folder: Path) -> None:
    assert len(CASES) >= 4
    with pytest.raises(AssertionError):
        test_a_command_prints_the_number_beside_it(
            ROOT / "README.md", "emu simulate golden", "makespan 39", folder
        )
    test_a_command_prints_the_number_beside_it(
        ROOT / "README.md", "emu simulate golden", "makespan 38", folder
    )
