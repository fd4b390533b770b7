"""The campaign of small faults: its table, and that it tells killed from alive."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from emu.testing.faults import (
    Fault,
    Outcome,
    attempt,
    list_failures,
    plant,
    read_faults,
)
from tools.mutation.campaign import faults, killed
from tools.runner import Ledger

ROOT = Path(__file__).parents[2]
FAULT = Fault(
    file="emu/sums.py",
    old="one + other",
    new="one - other",
    means="sums are differences",
    tests=("tests/test_sums.py",),
)


def test_the_table_is_large_and_says_what_could_see_each() -> None:
    table = faults()
    packages = {fault.file.split("/")[1] for fault in table}

    assert len(table) >= 60
    assert len({(fault.file, fault.old) for fault in table}) == len(table)
    assert all(fault.old != fault.new and fault.means for fault in table)
    assert {"emulation", "cli", "report", "prediction"} <= packages
    for fault in table:
        assert fault.plant((ROOT / fault.file).read_text()) is not None, fault
        for test in fault.tests:
            file, _, name = test.partition("::")
            text = (ROOT / file).read_text() if name else ""
            assert (ROOT / file).exists(), test
            assert name.partition("[")[0] in text, test


def test_a_fault_needs_one_place() -> None:
    assert FAULT.plant("return one + other\n") == "return one - other\n"
    assert FAULT.plant("return other\n") is None
    assert FAULT.plant("one + other, one + other") is None


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a product of one function and its test, which need no plugins."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "emu").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "emu/sums.py").write_text(
        "def total(one: int, other: int) -> int:\n    return one + other\n"
    )
    (tmp_path / "tests/test_sums.py").write_text(
        "import pathlib, sys\n"
        "here = pathlib.Path(__file__).parents[1]\n"
        "sys.path.insert(0, str(here / 'emu'))\n"
        "from sums import total\n"
        "def test_total(): assert total(2, 0) == 2\n"
        "def test_more(): assert total(2, 1) >= 2\n"
        "def test_false(): assert total(2, 0) == 3\n"
        "def test_skipped(): __import__('pytest').skip('needs root')\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("new", "named", "fate", "seen_by"),
    [
        ("one - other", "test_more", "killed", "tests/test_sums.py::test_more"),
        ("one + 2 * other", "test_more", "alive", ""),
        ("one - other", "test_skipped", "skipped", ""),
        ("one +", "test_more", "killed", "tests/test_sums.py"),
    ],
)
def test_fates(copy: Path, new: str, named: str, fate: str, seen_by: str) -> None:
    before = (copy / FAULT.file).read_text()
    fault = replace(FAULT, new=new, tests=(f"tests/test_sums.py::{named}",))

    found = attempt(copy, fault)

    assert (found.fate, found.seen_by) == (fate, seen_by)
    assert (copy / FAULT.file).read_text() == before


def test_a_test_that_fails_without_a_fault_is_named(copy: Path) -> None:
    sound, false = (
        replace(FAULT, tests=(f"tests/test_sums.py::{name}",))
        for name in ("test_more", "test_false")
    )

    assert list_failures(copy, [sound]) == []
    assert list_failures(copy, [sound, false]) == ["tests/test_sums.py::test_false"]


def test_a_text_that_is_gone_is_no_kill(copy: Path) -> None:
    assert attempt(copy, replace(FAULT, old="one * other")).fate == "gone"


def test_a_campaign_goes_on_with_what_is_not_killed(tmp_path: Path) -> None:
    other = replace(FAULT, new="one + 2 * other")
    table = tmp_path / "out.csv"
    dead = Outcome(FAULT.case, "killed", "tests/test_sums.py::test_more", 1.5)

    assert killed(table, [FAULT, other]) == []
    Ledger(table, Outcome).add([Outcome(other.case, "alive", "", 2.0)])
    Ledger(table, Outcome).add([dead])

    assert killed(table, [FAULT, other]) == [dead]
    assert killed(table, [other]) == []


TABLE = """
[[fault]]
file = "emu/sums.py"
old = "one + other"
new = "one - other"
means = "sums are differences"
tests = ["tests/test_sums.py::test_total", "tests/test_sums.py::test_more"]
"""


def test_others_plant_faults_in_trees_of_their_own(copy: Path) -> None:
    """The tree stays as it is; tests that fail by themselves are named at once."""
    (copy / "faults.toml").write_text(TABLE)
    (fault,) = read_faults(copy / "faults.toml")

    (outcome,) = plant(copy, [fault])

    assert (outcome.case, outcome.fate) == (fault.case, "killed")
    assert outcome.seen_by == "tests/test_sums.py::test_more"
    assert (copy / FAULT.file).read_text().endswith("one + other\n")
    false = replace(fault, tests=("tests/test_sums.py::test_false",))
    with pytest.raises(ValueError, match=r"without a fault: .*test_false"):
        next(plant(copy, [false]))
