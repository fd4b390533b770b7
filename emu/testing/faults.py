"""Small faults, planted in copies of a package, and which of them its tests see.

    from pathlib import Path
    from emu.testing.faults import plant, read_faults

    for outcome in plant(Path(), read_faults(Path("faults.toml"))):
        print(outcome.fate, outcome.case)

Each ``[[fault]]`` of ``faults.toml`` has the fields of `Fault`: ``file``, ``old``,
``new``, ``means`` and ``tests``. A fault that lives asks for a test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Seconds after which tests are stopped: the fault makes them hang, or others the host.
PATIENCE = 600.0
#: Exit codes of pytest: all passed; nothing was collected. And of what was stopped.
PASSED = 0
NOTHING = 5
STOPPED = -999
#: Of a file of tests, and not of one test that is named, the quick ones.
_QUICK = ("-m", "not (slow or netns or emulation)")
_LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "runs", "site", "*.egg-info")


@dataclass(frozen=True)
class Fault:
    """One small change of a package that a test should see."""

    file: str
    """From the root of the package's tree."""
    old: str
    new: str
    """Text that occurs once in the file, and what stands there instead."""
    means: str = ""
    """Its meaning to a user."""
    tests: tuple[str, ...] = ()
    """Tests that should see it, as pytest names them."""

    @property
    def case(self) -> str:
        """Name in a table of outcomes."""
        return f"{self.file}: {self.means}\n{self.new}"

    def plant(self, text: str) -> str | None:
        """Return ``text`` with the fault in it, None unless its place is there once."""
        if text.count(self.old) != 1:
            return None
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Outcome:
    """Fate of a fault."""

    case: str
    """As `Fault.case`."""
    fate: str
    """``killed``; ``alive``; ``hung``; ``skipped``, where this host cannot run its
    tests; ``gone``, where its text is."""
    seen_by: str
    """The first test that failed."""
    seconds: float
    """Wall time of its tests."""


def read_faults(table: Path) -> list[Fault]:
    """Return the faults of a table; ``tests`` is ``tests`` where a fault names none."""
    content = tomllib.loads(table.read_text(encoding="utf-8"))
    faults = []
    for row in content["fault"]:
        tests = row.get("tests", ["tests"])
        fields = {**row, "tests": tuple(tests)}
        faults.append(Fault(**fields))
    return faults


def plant(root: Path, faults: Sequence[Fault]) -> Iterator[Outcome]:
    """Plant one fault after the other in a copy of a tree; yield what became of each.

    ``root`` itself stays as it is. Its ``src`` counts as a place to import from. Raises
    ValueError when a test fails without a fault: what it kills would be no kill.
    """
    with tempfile.TemporaryDirectory(prefix="emu-faults-") as folder:
        copy = Path(folder, "tree")
        shutil.copytree(root, copy, ignore=_LEFT_OUT)
        unsound = list_failures(copy, faults)
        if unsound:
            raise ValueError(f"fail without a fault: {', '.join(unsound)}")
        for fault in faults:
            yield attempt(copy, fault)


def attempt(
    copy: Path,
    fault: Fault,
    build: Callable[[Path], bool] | None = None,
    *,
    patience: float = PATIENCE,
) -> Outcome:
    """Plant ``fault`` in ``copy``, run its tests, and take it out again.

    ``build``: called with the changed file; returns True where it has built something
    of it, which has to look changed afterwards as well. ``patience``: wall seconds
    after which its tests are stopped.
    """
    began = time.monotonic()
    path = copy / fault.file
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    mutant = fault.plant(text)
    if mutant is None:
        return Outcome(
            case=fault.case,
            fate="gone",
            seen_by="",
            seconds=0.0,
        )
    status = path.stat()
    read_at = status.st_atime_ns
    written_at = status.st_mtime_ns
    is_built = False
    path.write_text(mutant, encoding="utf-8")
    if path.suffix == ".py":  # bytecode goes by seconds: of before is not valid now
        os.utime(path, ns=(read_at, written_at + 2_000_000_000))
    try:
        is_built = build is not None and build(path)
        code, output = _run_tests(copy, fault.tests, "-x", patience=patience)
    finally:
        path.write_text(text, encoding="utf-8")
        if not is_built:  # bytecode of before stays valid
            os.utime(path, ns=(read_at, written_at))

    seen_by = ""
    if code == STOPPED:
        fate = "hung"
    elif code in (PASSED, NOTHING):
        fate = "alive" if " passed" in output else "skipped"
    else:
        fate = "killed"
        seen_by = next(iter(_failures(output)), "")
    return Outcome(
        case=fault.case,
        fate=fate,
        seen_by=seen_by,
        seconds=time.monotonic() - began,
    )


def list_failures(sound: Path, faults: Sequence[Fault]) -> list[str]:
    """Return the tests of faults that fail in a tree without any fault."""
    tests = {test for fault in faults for test in fault.tests}
    if not tests:  # pytest would run all tests
        return []
    code, output = _run_tests(sound, sorted(tests))
    if code in (PASSED, NOTHING):
        return []
    return _failures(output) or [output]


def _failures(output: str) -> list[str]:
    failures = []
    for line in output.splitlines():
        if line.startswith(("FAILED", "ERROR")):
            rest = line.split(" ", 1)[1]
            test, *_ = rest.split(" - ")
            failures.append(test)
    return failures


def _run_tests(
    copy: Path,
    tests: Sequence[str],
    *options: str,
    patience: float | None = None,
) -> tuple[int, str]:
    """Return the exit code of pytest and its output."""
    # In one order, so that two runs name the same test as the first that fails.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", *options]
    command += ["-p", "no:cacheprovider"]
    if not any("::" in test for test in tests):
        command += _QUICK
    folders = [str(copy / name) for name in ("", "src", "nodes")]
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}

    try:
        run = subprocess.run(  # noqa: S603 -- the tests that its caller names
            [*command, *tests],
            cwd=copy,
            env=surroundings,
            capture_output=True,
            text=True,
            timeout=patience,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return STOPPED, ""
    return run.returncode, run.stdout + run.stderr
