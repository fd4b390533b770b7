"""Several commands in one new process: it has packages that this one has not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_PROGRAM = """\
import json, sys
from typer.testing import CliRunner
from emu.cli import app
ended = []
for words in json.loads(sys.argv[1]):
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    ended.append((result.exit_code, result.stdout, result.stderr))
print(json.dumps(ended))
"""


class Ended(NamedTuple):
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str


def carry_out(
    *commands: list[str], folder: Path, environment: Mapping[str, str]
) -> list[Ended]:
    """Carry commands out one after the other, and return how each ended.

    Raises subprocess.CalledProcessError where one ends with an exception.
    """
    call = [sys.executable, "-c", _PROGRAM, json.dumps(commands)]
    printed = subprocess.check_output(call, cwd=folder, env=environment)
    return [Ended(*ended) for ended in json.loads(printed)]
