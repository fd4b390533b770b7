"""Code of others: who is asked before it runs, and what its text defines."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from emu.errors import DataError, EmulatorError
from emu.host.foreign_code import (
    CodeWithheld,
    ask_to_run,
    class_problem,
    code_of_others,
    describe_point,
    import_library,
    import_program,
    is_installed,
    line_of,
    module_text,
)

WORDS = "rule mine.py:Equal"


def never() -> str:
    """Stand for a look that would be too early."""
    raise AssertionError


def test_code_runs_unless_a_block_withholds_it() -> None:
    """Call the listener of the innermost block that has one, once per line."""
    lines: list[str] = []
    with code_of_others(runs=True, tell=lines.append):
        ask_to_run("mine.py", WORDS, lambda: "")
        ask_to_run("mine.py", WORDS, lambda: "")
        ask_to_run("mine.py", "model mine.py:M", lambda: "")
        with pytest.raises(DataError, match=r"mine\.py:Equal: has no method rates"):
            ask_to_run("mine.py", WORDS, lambda: "has no method rates")
    assert lines == [
        "runs code of mine.py: rule mine.py:Equal",
        "runs code of mine.py: model mine.py:M",
    ]


def test_a_block_within_one_that_withholds_code_withholds_it_too() -> None:
    outer: list[str] = []
    inner: list[str] = []
    with code_of_others(runs=False, tell=outer.append):
        with code_of_others(runs=True), pytest.raises(CodeWithheld, match=r"mine\.py"):
            ask_to_run("mine.py", WORDS, never)
        with (
            code_of_others(runs=True, tell=inner.append),
            pytest.raises(CodeWithheld, match="--run-code runs it"),
        ):
            ask_to_run("mine.py", WORDS, never)
    line = "left out, --run-code adds it: what runs code of mine.py: rule mine.py:Equal"
    assert outer == inner == [line]
    with code_of_others(runs=True):
        ask_to_run("mine.py", WORDS, lambda: "")


TEXT = """
import other
from there import Known as Renamed
class Base:
    def rates(self): pass
    prices = times = None
class Child(Base): pass
class Far(other.Thing): pass
class Plain(object): pass
def function(): pass
"""
NOTHING = "holds nothing to call by the name"
DEFINED = "it defines Base, Child, Far, Plain"


@pytest.mark.parametrize(
    ("name", "method", "unsure", "sure"),
    [
        ("Base", "rates(flows)", "", ""),
        ("Base", "times", "", ""),
        ("Child", "rates", "", ""),
        ("Child", "costs", "Child has no method costs", "Child has no method costs"),
        ("Plain", "rates", "Plain has no method rates", "Plain has no method rates"),
        ("Far", "rates", "", "Far has no method rates of its own"),
        ("Renamed", "rates", "", f"{NOTHING} 'Renamed'; {DEFINED}"),
        ("function", "", "", f"{NOTHING} 'function'; {DEFINED}"),
        ("Nobody", "", *[f"{NOTHING} 'Nobody'; {DEFINED}"] * 2),
    ],
)
def test_a_class_has_the_methods_of_its_text_and_of_its_bases(
    name: str, method: str, unsure: str, sure: str
) -> None:
    assert class_problem(TEXT, "mine.py", name, method, sure=False) == unsure
    assert class_problem(TEXT, "mine.py", name, method, sure=True) == sure


def test_a_name_may_come_with_everything_of_a_module() -> None:
    star = "from there import *"
    assert class_problem(star, "mine.py", "Equal", "rates", sure=False) == ""
    problem = class_problem("class (", "mine.py", "Equal", "rates", sure=False)
    assert problem.startswith("SyntaxError: ")


@pytest.mark.filterwarnings("ignore::ImportWarning")
def test_what_a_text_lacks_is_named_with_where_it_has_to_be() -> None:
    assert import_program("mine.py:run", "def run(): return 3")() == 3
    with pytest.raises(DataError, match=r"the name 'go'; it defines A, B$"):
        import_program("mine.py:go", "class A: pass\nclass B: pass")
    for text in ("import beside_mine", "from . import beside"):
        with pytest.raises(ImportError, match="files beside it are not taken along"):
            import_program("mine.py:run", text)
    # A package that is there lacks a module: no file beside it would help.
    with pytest.raises(ImportError, match="json") as caught:
        import_program("mine.py:run", "import json.nothing")
    assert "beside" not in str(caught.value)


def test_an_error_is_where_the_code_of_a_user_raised_it() -> None:
    """The innermost of its lines counts, not those of libraries below."""
    text = "import json\ndef run():\n    return more()\ndef more():\n"
    run = import_program("mine.py:run", f"{text}    return json.loads('')")
    with pytest.raises(ValueError, match="Expecting value") as caught:
        run()
    assert line_of(caught.value, "mine.py") == " (line 5 of mine.py)"
    assert line_of(caught.value, "other.py") == ""
    assert line_of(caught.value, "json").endswith(" of json)")


def test_the_text_of_a_module_is_found_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "emu_test_package" / "inner"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise RuntimeError")
    (folder / "__init__.py").write_text("# of inner")
    (folder / "leaf.py").write_text("# of leaf")
    monkeypatch.syspath_prepend(tmp_path)
    assert module_text("emu_test_package") == "raise RuntimeError"
    assert module_text("emu_test_package.inner") == "# of inner"
    assert module_text("emu_test_package.inner.leaf") == "# of leaf"
    with pytest.raises(DataError, match=r"No module named 'emu_test_package\.none'"):
        module_text("emu_test_package.none")
    (tmp_path / "emu_test_folder").mkdir()
    with pytest.raises(DataError, match="module emu_test_folder has no text"):
        module_text("emu_test_folder")
    with pytest.raises(DataError, match="module sys has no text"):
        module_text("sys")


def missing(text: str) -> str:
    """Return what is said where the text of a program cannot be imported."""
    with pytest.raises(ImportError) as caught:
        import_program("mine.py:run", text)
    return str(caught.value)


def test_only_a_module_that_is_nowhere_may_be_beside_the_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error of another kind is of the code that raised it, whatever it names."""
    odd = "raise ImportError('odd', name='emu_test_nowhere')"
    assert missing(odd) == "odd"
    assert missing("raise ModuleNotFoundError('gone')") == "gone"
    monkeypatch.delitem(sys.modules, "this", raising=False)
    assert missing("raise ModuleNotFoundError('odd', name='this')") == "odd"
    # A module that was made, and is found nowhere, is there.
    monkeypatch.setitem(sys.modules, "emu_test_made", ModuleType("emu_test_made"))
    assert "beside" not in missing("import emu_test_made.more")
    assert "beside" in missing("import emu_test_nowhere.more")


def test_classes_of_others_are_not_what_a_text_defines() -> None:
    with pytest.raises(DataError, match=r"'go'; it defines A$"):
        import_program("mine.py:go", "from json import JSONDecoder\nclass A: pass")
    with pytest.raises(DataError, match=r"'go'; it defines no class$"):
        import_program("mine.py:go", "go = 3")


def test_a_module_below_none_has_no_text() -> None:
    with pytest.raises(DataError, match=r"No module named 'emu_test_nowhere\.inner'"):
        module_text("emu_test_nowhere.inner")
    with pytest.raises(DataError, match=r"No module named '__main__\.inner'"):
        module_text("__main__.inner")


def test_a_text_that_does_not_parse_says_where_by_itself() -> None:
    run = import_program(
        "mine.py:run", "def run(text, file):\n    compile(text, file, 'exec')"
    )
    for file, line in (("mine.py", ""), ("other.py", " (line 2 of mine.py)")):
        with pytest.raises(SyntaxError) as caught:
            run("class (", file)
        assert line_of(caught.value, "mine.py") == line


def test_a_library_is_there_where_it_has_compiled_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any of its folders; a module without one, and none at all, are none."""
    for name, files in (("bare", []), ("full", ["a.py", "_C.so", "_C2.so"])):
        folder = tmp_path / f"emu_test_{name}"
        folder.mkdir()
        for file in ("__init__.py", *files):
            (folder / file).write_text("raise RuntimeError")
    (tmp_path / "emu_test_leaf.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    found = [
        is_installed(f"emu_test_{name}") for name in ("bare", "full", "leaf", "no")
    ]
    assert found == [False, True, False, False]
    assert not is_installed("emu_test_no.inner")


def test_a_library_that_does_not_import_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "emu_test_broken.py").write_text("raise ValueError('no GPU')")
    monkeypatch.syspath_prepend(tmp_path)
    assert import_library("json", "a key", "pip").dumps(1) == "1"
    words = "a key: needs emu_test_no, which is not installed here: pip"
    with pytest.raises(DataError, match=f"^{words}$"):
        import_library("emu_test_no", "a key", "pip")
    words = "is installed but does not import: ValueError: no GPU"
    with pytest.raises(DataError, match=words):
        import_library("emu_test_broken", "a key", "pip")


def test_an_entry_point_is_described_with_the_package_that_brings_it() -> None:
    plain = EntryPoint("mine", "there:Thing", "emu.systems")
    assert (
        describe_point(plain) == "entry point mine = there:Thing of group emu.systems"
    )
    brought: Any = SimpleNamespace(**vars_of(plain), dist=SimpleNamespace(name="pack"))
    assert describe_point(brought).endswith("of group emu.systems, which pack brings")
    odd = EntryPoint("mine", "?", "emu.systems")
    with pytest.raises(EmulatorError, match=r"emu\.systems: is no MODULE:NAME"):
        describe_point(odd)


def vars_of(point: EntryPoint) -> dict[str, str]:
    """Return the three words of an entry point."""
    return {"name": point.name, "value": point.value, "group": point.group}
