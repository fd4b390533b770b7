"""The command line computes in one thread, and leaves the environment as it was."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os
from typer.main import get_command
from emu.cli.app import app
get_command(app).get_command(None, "simulate")
import numpy
assert numpy.ones((600, 600)) @ numpy.ones((600, 600)) is not None
print(len(os.listdir("/proc/self/task")), os.environ.get("OPENBLAS_NUM_THREADS"))
"""


@pytest.mark.parametrize("stated", ["", "2"])
def test_numpy_computes_in_one_thread_unless_told(stated: str) -> None:
    name = "OPENBLAS_NUM_THREADS"
    around = {key: value for key, value in os.environ.items() if key != name}
    around |= {name: stated} if stated else {}
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=around, check=True, capture_output=True
    )
    threads, kept = found.stdout.decode().split()
    assert kept == (stated or "None")
    if not stated:
        assert threads == "1"
