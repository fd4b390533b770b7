"""Transcripts: commands in a text file, each with all that it printed and wrote.

A line that begins with ``$ `` is a command, and what follows is what it left. A
transcript is carried out by its commands alone, from the first to the last, in a folder
with copies of files/; so ``make snapshots`` writes it anew from itself.

``$ emu WORDS`` calls emu in this process, ``$ show FILE`` prints a file that a command
wrote, ``$ make NAME WORDS`` calls a function of `tests.snapshots.made`.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from unittest.mock import patch

from typer.testing import CliRunner

import emu
from emu.cli import app
from emu.cli.signs_of_life import signs_of_life
from tests.snapshots import made
from tests.snapshots.shown import lay_out, show

ROOM = Path(__file__).parent
TRANSCRIPTS = sorted((ROOM / "transcripts").glob("*.txt"))
#: Commands see a terminal of so many columns, and a disk without data sets.
SURROUNDINGS = {
    "COLUMNS": "100",
    "EMU_DATA": "data",
    "XDG_CACHE_HOME": "cache",
    "EMU_FORCE": "1",
}
#: Digits of numbers that do not depend on the processor, and what is none of them.
DIGITS = 9
NOISE = 1e-12


def carry_out(text: str) -> str:
    """Return a transcript with what its commands leave now."""
    with tempfile.TemporaryDirectory() as name, chdir(name):
        shutil.copytree(ROOM / "files", name, dirs_exist_ok=True)
        # A busy host has commands say how long they are at work.
        generator = inspect.unwrap(signs_of_life)
        quiet = patch.object(generator, "__defaults__", (3600.0,))
        with patch.dict(os.environ, SURROUNDINGS), quiet:
            return "\n".join(_lines(text, Path(name))).rstrip() + "\n"


def _lines(text: str, folder: Path) -> Iterator[str]:
    """Yield the lines of a transcript: what stands before its commands, and theirs."""
    yield from re.split(r"^\$ ", text, maxsplit=1, flags=re.MULTILINE)[0].splitlines()
    for command in re.findall(r"^\$ (.*)$", text, flags=re.MULTILINE):
        yield f"$ {command}"
        yield from plain(_call(shlex.split(command)), folder).splitlines()
        yield ""


def _call(words: list[str]) -> str:
    """Return what a command leaves."""
    kind, *others = words
    if kind == "show":
        return show(*others)
    if kind == "make":
        function = getattr(made, others[0])
        return str(function(*others[1:]) or "")
    result = CliRunner().invoke(app, others)
    if not isinstance(result.exception, SystemExit | None):
        raise result.exception
    answer = result.output
    if result.stdout.startswith(("{", "[")):
        answer = result.stderr + lay_out(json.loads(result.stdout)) + "\n"
    return answer + (f"exit {result.exit_code}\n" if result.exit_code else "")


def plain(text: str, folder: Path) -> str:
    """Return text without what another version, folder or processor changes."""
    text = text.replace(f"{folder}/", "").replace(emu.__version__, "VERSION")
    text = re.sub(r"-?\d+\.\d+(e[-+]?\d+)?", _rounded, text)
    return re.sub(r" +$", "", text, flags=re.MULTILINE)


def _rounded(number: re.Match[str]) -> str:
    """Return a number in 9 digits where it has as many: 0.0 where it is noise.

    Numbers that somebody stated have fewer digits, however small they are (4e-13 s).
    """
    mantissa = number[0].split("e")[0]
    digits = mantissa.replace(".", "").strip("-0")
    if len(digits) < DIGITS:
        return number[0]
    value = float(number[0])
    if abs(value) < NOISE:
        return "0.0"
    short = f"{value:.{DIGITS}g}"
    return short if "." in short or "e" in short else f"{short}.0"
