"""PyTorch's own tests of process groups, of its wheel, on a virtual cluster of four.

    pip install expecttest
    tools/study torch_tests [OUT] [--only monitored]

They are `DistributedTest` of `torch.testing`, those that a CPU with gloo is asked to
run, each in a run of its own. One that needs GPUs or other ranks leaves itself out.
Their demand for spans of gloo in torch's profiler is left out: here there are none.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from emu.errors import DataError
from tools.runner import Study, Work

PROGRAM = Path(__file__).with_name("_torch_test.py")
RANKS = 4
CLUSTER = f"cluster: {{machines: [{{name: m, count: {RANKS}, nic: 1 Gbit/s}}]}}\n"
#: Seconds of wall time until a test is given up.
PATIENCE = 600


@dataclass(frozen=True)
class Tried:
    """A test: ``passed``, ``skipped`` or ``failed``, and with what words."""

    case: str
    outcome: str
    words: str


def work(_: Namespace) -> Iterator[Work[Tried]]:
    """Yield every test; raises DataError where torch's tests cannot be imported."""
    with tempfile.TemporaryDirectory() as folder:
        listed = subprocess.run(
            [sys.executable, str(PROGRAM), folder],
            capture_output=True,
            text=True,
            check=False,
        )
    if listed.returncode:
        problem = listed.stderr.splitlines()[-1]
        raise DataError(problem, path="torch.testing")
    for test in listed.stdout.split():
        yield test, partial(run, test)


def run(test: str) -> list[Tried]:
    """Return what came of a test."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        cluster = folder / "cluster.yaml"
        cluster.write_text(CLUSTER)
        options = ["--charge", "1 us", "--runs", str(folder / "runs")]
        command = [sys.executable, "-P", "-m", "emu", "virtual", str(cluster)]
        result = subprocess.run(
            [*command, *options, "--", str(PROGRAM), str(folder), test],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        log = "".join(path.read_text() for path in folder.glob("runs/*/rank0.log"))

    outcome = re.search(rf"^outcome {test} (\w+)", log, re.MULTILINE)
    if result.returncode or outcome is None:
        lines = result.stderr.splitlines() or ["it ended without a word"]
        return [Tried(test, "failed", lines[-1])]
    return [Tried(test, outcome[1], "")]


def table(rows: list[Tried], _: Namespace) -> Iterator[str]:
    """Yield how many passed, and those that did not."""
    counts = Counter(row.outcome for row in rows)
    asked = counts["passed"] + counts["failed"]
    yield f"{counts['passed']} of {asked} passed"
    yield f"{counts['skipped']} left themselves out"
    for row in rows:
        if row.outcome == "failed":
            yield f"{row.case}: {row.words}"


STUDY = Study(row=Tried, work=work, table=table)
