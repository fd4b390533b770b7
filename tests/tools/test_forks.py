"""Faults in forks: their fates are those that copies of the tree would give them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tools.mutation.drawing import DrawnFault, list_faults
from tools.mutation.forks import (
    exchange_code,
    name_module,
    plant_in_forks,
    read_planted,
    write_planted,
)

SUMS = """
MOST = 7

def span(start, end):
    return end - start

def halve(count):
    while count > 1:
        count = count - 2
    return count

def capture(count):
    def captured():
        return 3 if count and count > 0 else 4
    return captured

capturing = capture(5)

class Longest:
    @property
    def key(self):
        return lambda spans: max(spans)
"""

TESTS = """
import os
import pytest
from shop.sums import MOST, Longest, capturing, halve, span
from shop.twin import span as same_span

class Lazy:
    @property
    def __class__(self):
        raise RuntimeError("loads half of a library")

lazy = [Lazy()]

def test_span(): assert span(1, 3) == 2
def test_nothing(): assert MOST == 7 and span(0, 0) == 0
def test_halve(): assert halve(5) == 1
@pytest.mark.parametrize("last", [1, 4])
def test_longest(last): assert Longest().key([1, last]) == last
def test_broken(): assert span(1, 3) == 99
def test_wrong(): assert span(2, 3) == 98
def test_capturing(): assert capturing() == 3
def test_twin(): assert same_span(1, 3) == 2
@pytest.mark.skipif(True, reason="asks for another host")
def test_elsewhere(): assert span(1, 3) == 2
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Give a tree of one module and its tests."""
    for folder in ("shop", "tests"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "shop/sums.py").write_text(SUMS)
    (tmp_path / "shop/twin.py").write_text(SUMS)
    (tmp_path / "tests/test_sums.py").write_text(TESTS)
    return tmp_path


def _find(old: str, new: str, *tests: str) -> DrawnFault:
    """Return the first fault of so little text, with the tests that it is tried on."""
    faults = list_faults("shop/sums.py", SUMS)
    fault = next(fault for fault in faults if (fault.old, fault.new) == (old, new))
    return replace(fault, tests=tuple(f"tests/test_sums.py::{test}" for test in tests))


def test_faults_that_are_seen_in_forks(shop: Path, tmp_path: Path) -> None:
    seen = _find("-", "+", "test_nothing", "test_span")
    by_parameter = _find("max", "min", "test_longest")
    endless = _find(" - 2", "", "test_halve")
    unseen = replace(seen, kind="unseen", tests=seen.tests[:1])
    failing_anyhow = _find(" - start", "", "test_broken", "test_wrong", "test_nothing")
    elsewhere = replace(failing_anyhow, tests=("tests/test_sums.py::test_elsewhere",))
    elsewhere = replace(elsewhere, kind="elsewhere")
    constant = _find("7", "8", "test_nothing")
    captured = _find("count and count > 0", "False", "test_capturing")
    twin = replace(seen, tests=("tests/test_sums.py::test_twin",), kind="twin")
    faults = [
        *(seen, by_parameter, endless, unseen, failing_anyhow, elsewhere, constant),
        *(captured, twin),
    ]
    found = {
        outcome.case: (outcome.fate, outcome.seen_by.rpartition("::")[2])
        for outcome in plant_in_forks(shop, faults, tmp_path, 2, patience=3.0)
    }

    # The others are for copies of the tree: what no test sees here, a constant that was
    # read before, a function that would lose a variable of the one around it.
    assert found == {
        seen.case: ("killed", "test_span"),
        by_parameter.case: ("killed", "test_longest[4]"),
        endless.case: ("hung", ""),
    }
    assert (shop / "shop/sums.py").read_text() == SUMS


def test_tests_that_cannot_be_collected_are_an_error(
    shop: Path, tmp_path: Path
) -> None:
    fault = _find("-", "+", "test_span")
    (shop / "tests/test_sums.py").write_text("import shop.gone\n")
    with pytest.raises(RuntimeError, match=r"(?s)ended with [1-9].*shop\.gone"):
        list(plant_in_forks(shop, [fault], tmp_path, 1, patience=3.0))


def test_planted_faults_are_read_as_they_were_written(tmp_path: Path) -> None:
    faults = [_find("-", "+", "test_span", "test_nothing"), _find("max", "min")]
    write_planted(tmp_path / "planted", faults)
    assert read_planted(tmp_path / "planted") == faults


def test_code_that_a_fault_exchanges() -> None:
    path = Path("sums.py")
    inner = exchange_code(path, SUMS, SUMS.replace("max", "min"))
    assert inner is not None
    # What holds the function changes with it.
    names = [code.co_qualname for code in inner]
    assert names == [
        "Longest",
        "Longest.key",
        "Longest.key.<locals>.<lambda>",
    ]
    assert exchange_code(path, SUMS, SUMS.replace("7", "8")) == {}
    assert exchange_code(path, SUMS, SUMS.replace("lambda spans: max", "max")) is None


def test_files_are_imported_by_their_names() -> None:
    assert name_module("emu/trust/audit.py") == "emu.trust.audit"
    assert name_module("emu/trust/__init__.py") == "emu.trust"
    assert name_module("nodes/emu_nodes/p3/machine.py") == "emu_nodes.p3.machine"
