"""Guides in docs/ are walked: each command is run, and prints what the page shows.

A fenced block with a file name behind its language is written into the reader's folder.
In a ``console`` block each line that begins with ``$`` is run there; the lines below it
are its whole output, where ``...`` stands for any text, and alone on a line for any
lines. Words behind ``console`` say what a block needs (`NEEDS`) or how its last command
ends (``exit 1``).
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from typer.testing import CliRunner

from emu.cli import app
from emu.cli.app import COMMANDS
from emu.lab.machines.lab import missing_needs
from tests.leftovers import Leftovers
from tests.several_commands import Elsewhere

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
BLOCK = re.compile(r"^```(\w+)(?: +([^\n]*))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
GUIDES = [page for page in PAGES if "\n```console" in page.read_text(encoding="utf-8")]

#: What a block may need -> why it cannot be run here, if it cannot.
NEEDS: dict[str, Callable[[], str]] = {
    "data": lambda: "" if os.environ.get("EMU_DATA") else "EMU_DATA names no graphs",
    "dgl": lambda: "" if find_spec("dgl") else "dgl is not installed",
    "netns": lambda: "; ".join(missing_needs()),
    "torch": lambda: "" if find_spec("torch") else "torch is not installed",
}


class Command(NamedTuple):
    """A command of a block, and what it has to print."""

    line: str
    shown: str
    code: int = 0


def commands(text: str, *words: str) -> list[Command]:
    """Return the commands of a console block in their order."""
    found = []
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, _, shown = part.replace("\\\n", "").partition("\n")
        found.append(Command(line, shown))
    if words[:1] == ("exit",):
        found[-1] = found[-1]._replace(code=int(words[1]))
    return found


def pattern(shown: str) -> re.Pattern[str]:
    """Return the expression that what is shown stands for.

    A column is as wide as its longest entry, which may be one that is not shown and
    differs in its last digit from one processor to the next: any gap is a gap.
    """
    lines = [
        r"(?:.*\n)*?"
        if line == "..."
        else ".*".join(map(re.escape, line.split("..."))) + r"\n"
        for line in shown.splitlines()
    ]
    lines = [re.sub(r"(?:\\ ){2,}", r" {2,}", line) for line in lines]
    return re.compile("".join(lines))


def printed(command: Command, folder: Path, elsewhere: Elsewhere | None = None) -> str:
    """Run a command as a reader would; return what came to the terminal.

    One of emu runs in this process, where torch is imported once for all, or
    ``elsewhere``, as one of another tree has to.
    """
    program, *words = shlex.split(command.line)
    if program != "emu":
        code, output = _run_in_shell(command.line, folder)
    elif elsewhere is not None:
        code, _, _, output = elsewhere.carry_out(_spell_out(words, folder))
    else:
        with contextlib.chdir(folder):
            result = CliRunner().invoke(
                app, _spell_out(words, folder), env=_caches_of(folder)
            )
        if result.exception is not None and not isinstance(
            result.exception, SystemExit
        ):
            raise result.exception
        code, output = result.exit_code, result.output
    # What only a busy host prints.
    alive = re.compile(r"compiling once|emu [a-z]+: at work for ")
    lines = (line.rstrip() for line in output.splitlines())
    text = "".join(f"{line}\n" for line in lines if not alive.match(line))
    assert code == command.code, f"$ {command.line}\n{text}"
    return text


def _spell_out(words: list[str], folder: Path) -> list[str]:
    """Return words with the files for which some stand, as the shell would."""
    spelled = []
    for word in words:
        paths = folder.glob(word) if "*" in word else ()
        files = sorted(str(path.relative_to(folder)) for path in paths)
        spelled += files or [word]
    return spelled


def _caches_of(folder: Path) -> dict[str, str]:
    """Return the environment by which caches lie in a folder."""
    cache = folder / ".cache"
    return {
        "XDG_CACHE_HOME": str(cache),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "torch"),
    }


def _run_in_shell(line: str, folder: Path) -> tuple[int, str]:
    """Return the exit status of a line of a shell, and what it printed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=folder,
        env={**os.environ, **_caches_of(folder), "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def walk(guide: Path, folder: Path, *, apart: bool = False) -> set[str]:
    """Run the blocks of a guide; return what those that were left out need.

    ``apart``: commands of emu run in a process that is new behind each file.

    Raises pytest.fail.Exception when a command prints something else than the guide
    shows.
    """
    left_out: set[str] = set()
    with contextlib.ExitStack() as stack:
        elsewhere: Elsewhere | None = None
        for language, words, text in BLOCK.findall(guide.read_text(encoding="utf-8")):
            if language != "console":
                if words:
                    (folder / words).write_text(text, encoding="utf-8")
                    stack.close()
                    elsewhere = None
                continue
            missing = {NEEDS[word]() for word in words.split() if word in NEEDS} - {""}
            left_out |= missing
            if missing:
                continue
            if apart and elsewhere is None:
                environment = os.environ | _caches_of(folder)
                elsewhere = stack.enter_context(Elsewhere(folder, environment))
            for command in commands(text, *words.split()):
                compare(command, printed(command, folder, elsewhere), guide.name)
    return left_out


def compare(command: Command, found: str, name: str) -> None:
    """Fail where a command of a guide of some name printed what it does not show."""
    if not pattern(command.shown).fullmatch(found):
        both = f"{found}\n{name} shows\n{command.shown}"
        pytest.fail(f"$ {command.line}\n{both}", pytrace=False)


@pytest.fixture(scope="module", autouse=True)
def short_searches() -> None:
    """Search as long as readers do, in place of the fixture of all tests."""


@pytest.mark.emulation
@pytest.mark.untimed
@pytest.mark.timeout(600)
@pytest.mark.parametrize("guide", GUIDES, ids=lambda page: page.stem)
def test_a_guide_prints_what_it_shows(
    guide: Path, tmp_path: Path, leftovers: Leftovers
) -> None:
    left_out = walk(guide, tmp_path)

    assert leftovers.note() == []
    if left_out:
        pytest.skip(f"without the blocks that need more: {'; '.join(left_out)}")


GUIDE = """
```text note.txt
a b
```
```console
$ cat note.txt
a ...
```
```console exit 3
$ echo x && exit 3
x
```
```console data torch
$ cat {file}
other
```
"""


def test_a_guide_is_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that cannot be run is left out with its reason; a difference fails."""
    (tmp_path / "page.md").write_text(GUIDE.format(file="note.txt"))
    monkeypatch.setitem(NEEDS, "torch", lambda: "no torch")
    monkeypatch.setitem(NEEDS, "data", lambda: "")
    assert walk(tmp_path / "page.md", tmp_path) == {"no torch"}

    monkeypatch.setitem(NEEDS, "torch", lambda: "")
    with pytest.raises(pytest.fail.Exception, match=r"a b\n\npage.md shows\nother"):
        walk(tmp_path / "page.md", tmp_path)
    (tmp_path / "page.md").write_text(GUIDE.format(file="no.txt"))
    with pytest.raises(AssertionError, match=r"cat no\.txt"):
        walk(tmp_path / "page.md", tmp_path)


def test_a_difference_is_seen() -> None:
    assert pattern("a ... c\n...\nz\n").fullmatch("a b c\n1\n2\nz\n")
    assert pattern("a\n...\n").fullmatch("a\n")
    for other in ("a c\nz\n", "a b c\n", "a b c\nz\n1\n", "a b cd\nz\n"):
        assert not pattern("a ... c\n...\nz\n").fullmatch(other)
    assert commands("$ a \\\n  b\n1\n$ c\n", "exit", "2") == [
        Command("a   b", "1\n"),
        Command("c", "", 2),
    ]


def used() -> set[tuple[str, str]]:
    """Return (command, option or nothing) of every call in the pages.."""
    calls = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for line in re.findall(
            r"^(?:\$ | {4})(emu .*)|`(emu [^`]*)`", text, re.MULTILINE
        ):
            for call in re.split(r"[|;&]| -- | # ", "".join(line)):
                words = call.split()
                if (
                    words[:1] == ["emu"]
                    and len(words) > 1
                    and re.match("[a-z]", words[1])
                ):
                    options = [w.split("=")[0] for w in words[2:] if w[:2] == "--" < w]
                    calls |= {(words[1], option) for option in ("", *options)}
    return calls


def test_commands_and_options_of_the_pages_are_there() -> None:
    known: Any = typer.main.get_command(app)
    wrong = []
    for name, option in sorted(used()):
        if name not in COMMANDS:
            wrong.append(name)
        elif option:
            command = known.get_command(typer.Context(known), name)
            names = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
            wrong += [f"{name} {option}"] * (option not in names | {"--help"})

    assert wrong == []
