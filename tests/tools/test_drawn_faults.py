"""Faults that are drawn: what they change, and which tests they are tried on."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools.mutation.campaign import ROOT, copy_tree
from tools.mutation.covering import CoveringTests, list_rooms, map_lines
from tools.mutation.drawing import changed_lines, list_faults
from tools.mutation.drawn import draw

SUMS = """
def longest(starts, ends, gap=1):
    if not starts:
        return 0
    spans = [(end - start) * gap for start, end in zip(starts, ends)]
    return max(spans) if spans[0] > 0 and gap else spans[-1]
"""


@pytest.mark.parametrize(
    ("kind", "mutant"),
    [
        ("a branch is never taken", "if False:"),
        ("a bound is another", "spans[0] >= 0"),
        ("a sign is another", "(end + start) * gap"),
        ("a sign is another", "(end - start) / gap"),
        ("a term is dropped", "(end) * gap"),
        ("a condition is dropped", "spans[0] > 0 and True"),
        ("a word of two", "min(spans)"),
        ("the first for the last", "else spans[0]"),
        ("off by one", "gap=2"),
    ],
)
def test_every_kind_changes_one_place(kind: str, mutant: str) -> None:
    texts = {f.plant(SUMS): f.kind for f in list_faults("emu/sums.py", SUMS)}
    found = [text for text in texts if text is not None and mutant in text]

    assert kind in {texts[text] for text in found}


@pytest.mark.parametrize("file", ["emu/problem/faults.py", "emu/units.py"])
def test_drawn_faults_are_python_and_no_two_are_the_same(file: str) -> None:
    text = (ROOT / file).read_text()
    mutants = [fault.plant(text) for fault in list_faults(file, text)]

    assert len(mutants) > 20
    assert len({*mutants}) == len(mutants)
    for mutant in mutants:
        assert mutant is not None
        assert mutant != text
        ast.parse(mutant)


def test_texts_for_people_and_types_are_left_alone() -> None:
    text = (
        "if TYPE_CHECKING:\n    import a\n"
        "def f(x: int | None) -> None:\n"
        '    """Return 1."""\n'
        '    raise ValueError(f"{x + 1} is " + "long")\n'
    )
    assert not list_faults("emu/a.py", text)


def test_a_place_that_has_changed_is_gone() -> None:
    fault = list_faults("emu/sums.py", SUMS)[0]
    assert fault.plant("\n" + SUMS) is None


def test_new_lines_of_a_patch() -> None:
    patch = (
        "--- a/emu/a.py\n+++ b/emu/a.py\n@@ -3,0 +4,2 @@\n+x\n+y\n@@ -9 +11 @@\n+z\n"
        "--- a/emu/b.py\n+++ b/emu/b.py\n@@ -5,2 +4,0 @@\n-x\n"
        "--- a/emu/c.py\n+++ b/emu/c.py\n@@ -1 +1 @@\n+x\n"
    )
    expected = {"emu/a.py": frozenset({4, 5, 11}), "emu/c.py": frozenset({1})}
    assert dict(changed_lines(patch)) == expected


def test_a_seed_draws_the_same_faults_again() -> None:
    files = dict.fromkeys(("emu/units.py", "emu/problem/faults.py"), None)
    assert draw(files, 9, 3) == draw(files, 9, 3)
    assert draw(files, 9, 3) != draw(files, 9, 4)
    assert {fault.line for fault in draw({"emu/units.py": frozenset({1})}, 9, 3)} <= {1}


def test_a_file_is_tried_on_the_tests_of_its_room() -> None:
    files = ["emu/prediction/analysis/what_if.py", "nodes/emu_nodes/p3/machine.py"]
    assert list_rooms(ROOT, files) == ["tests/nodes", "tests/prediction/analysis"]
    # A room may be that of one file; what has none is tried on all tests.
    assert list_rooms(ROOT, ["emu/units.py"]) == ["tests/units"]
    assert list_rooms(ROOT, ["emu/names.py"]) == ["tests"]


def test_a_copy_has_the_documents_that_tests_read(tmp_path: Path) -> None:
    for name in ("emu/core.so", "emu/units.py", "README.md", "runs/old.json"):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).touch()
    copy_tree(tmp_path / "tree", tmp_path / "copy")

    copied = {path for path in (tmp_path / "copy").rglob("*") if path.is_file()}
    names = {str(path.relative_to(tmp_path / "copy")) for path in copied}
    assert names == {"emu/units.py", "README.md"}


def test_a_line_has_the_tests_that_reach_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for folder in ("emu", "tests"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "emu/sums.py").write_text(SUMS)
    (tmp_path / "tests/test_sums.py").write_text(
        "from hypothesis import given, strategies as st\n"
        "from emu.sums import longest\n"
        "def test_none(): assert longest([], []) == 0\n"
        "def test_one(): assert longest([1], [3]) == 2\n"
        "@given(st.just([-1]))\n"
        "def test_any(starts): assert longest(starts, [3], 0) == 0\n"
    )
    data = tmp_path / "contexts"
    map_lines(tmp_path, ["tests"], data, options=())
    covering = CoveringTests(data, tmp_path, tmp_path)

    assert covering.of_line("emu/sums.py", 4, 9) == ("tests/test_sums.py::test_none",)
    # A test with drawn data is called by Hypothesis.
    of_sums = ("tests/test_sums.py::test_any", "tests/test_sums.py::test_one")
    assert covering.of_line("emu/sums.py", 6, 9) == of_sums
    assert len(covering.of_line("emu/sums.py", 3, 9)) == 3
    assert len(covering.of_line("emu/sums.py", 3, 1)) == 1
    # Its default is read with the module: all tests of the file may see another.
    assert len(covering.of_line("emu/sums.py", 2, 9)) == 3
    assert covering.of_line("emu/others.py", 1, 9) == ()


def test_tests_that_cannot_run_reach_nothing_and_say_so(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"tests/gone\.py ended with 4"):
        map_lines(tmp_path, ["tests/gone.py"], tmp_path / "contexts", options=())
