"""Several commands in one new process: it has packages that this one has not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple, Self

#: Commands come as lines; how they ended goes where standard output led at first.
_PROGRAM = """\
import json, os, sys
from typer.testing import CliRunner
from emu.cli import app
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for line in sys.stdin:
    result = CliRunner().invoke(app, json.loads(line), catch_exceptions=False)
    ended = result.exit_code, result.stdout, result.stderr, result.output
    print(json.dumps(ended), file=answers, flush=True)
"""


class Ended(NamedTuple):
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str
    output: str
    """Both, as they came."""


class Elsewhere:
    """A new process that carries commands out one after the other, until it is left."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
            env=environment,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # as a test that has timed out: a command may hang
            self._process.kill()
        self._process.communicate()

    def carry_out(self, words: Sequence[str]) -> Ended:
        """Carry a command out, and return how it ended.

        Raises RuntimeError where that is an exception, which is on standard error.
        """
        orders = _opened(self._process.stdin)
        orders.write(f"{json.dumps(words)}\n")
        orders.flush()
        answer = _opened(self._process.stdout).readline()
        if not answer:
            raise RuntimeError(f"emu {' '.join(words)} ended with an exception")
        return Ended(*json.loads(answer))


def _opened(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def carry_out(
    *commands: list[str], folder: Path, environment: Mapping[str, str]
) -> list[Ended]:
    """Carry commands out in one new process, and return how each ended.

    Raises RuntimeError where one ends with an exception.
    """
    with Elsewhere(folder, environment) as elsewhere:
        return [elsewhere.carry_out(words) for words in commands]
