"""Code of others: who is asked before it runs, and what its text defines."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.errors import DataError
from emu.host.foreign_code import (
    CodeWithheld,
    ask_to_run,
    class_problem,
    code_of_others,
    import_program,
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
    with pytest.raises(DataError, match="module sys has no text"):
        module_text("sys")
