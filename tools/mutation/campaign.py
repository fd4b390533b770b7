"""Plant one fault after the other in copies of the tree, and run what could see it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TABLE = Path(__file__).with_name("faults.toml")
#: What tests of the product read.
COPIED = ("emu", "nodes", "tests", "tools", "scenarios", "docs", "pyproject.toml")
#: Seconds after which tests are stopped: the fault makes them hang, or others the host.
PATIENCE = 600.0
#: Exit codes of pytest: all passed; nothing was collected. And of what was stopped.
PASSED, NOTHING, STOPPED = 0, 5, -1


@dataclass(frozen=True)
class Fault:
    """One small change of the product that a test should see.

    Parameters
    ----------
    file
        From the root of the repository.
    old, new
        Text that occurs once in the file, and what stands there instead.
    means
        What it would mean to a user.
    tests
        What could see it.
    compiled
        Whether it is compiled into other functions: then nothing is compiled.
    """

    file: str
    old: str
    new: str
    means: str
    tests: tuple[str, ...]
    compiled: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of a fault: ``killed``, ``alive``, ``hung`` or ``gone`` (no text)."""

    fault: Fault
    fate: str
    seen_by: str
    seconds: float


def faults(table: Path = TABLE) -> list[Fault]:
    """Return the faults of a table."""
    rows = tomllib.loads(table.read_text())["fault"]
    return [
        Fault(**{**row, "tests": tuple(row.get("tests", _own_tests(row["file"])))})
        for row in rows
    ]


def _own_tests(file: str) -> tuple[str, ...]:
    return ("tests/" + file.split("/")[1],)


def planted(text: str, fault: Fault) -> str | None:
    """Return ``text`` with the fault in it, None unless its place is there once."""
    return text.replace(fault.old, fault.new) if text.count(fault.old) == 1 else None


def copy_tree(root: Path, to: Path) -> None:
    """Copy what tests need, with times of files: compiled code stays valid."""
    for name in COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, to / name, dirs_exist_ok=True)
        elif (root / name).exists():
            shutil.copy2(root / name, to / name)
    _settle_compiled(to)


def _settle_compiled(copy: Path) -> None:
    """Let the cache of compiled code outlive edits of other files than a function's.

    It is made anew for every edit in four packages, which takes a minute; faults that
    are compiled into others are run uncompiled instead.
    """
    path = copy / "emu/compiled_code.py"
    text = path.read_text()
    every = "    return tuple(itertools."
    changed = text.replace(every, "    return (path,) or tuple(itertools.")
    if changed == text:
        raise ValueError(f"{path} no longer says what it did")
    path.write_text(changed)


def _environment_of(copy: Path) -> dict[str, str]:
    """Return one that imports from ``copy``; all copies share their compiled code."""
    return {
        **os.environ,
        "NUMBA_CACHE_DIR": str(copy.parent / "compiled"),
        "PYTHONPATH": f"{copy}{os.pathsep}{copy / 'nodes'}",
    }


def attempt(copy: Path, fault: Fault) -> Outcome:
    """Plant ``fault`` in ``copy``, run its tests, and take it out again."""
    began, path = time.monotonic(), copy / fault.file
    text = path.read_text() if path.exists() else ""
    changed = planted(text, fault)
    if changed is None:
        return Outcome(fault, "gone", "", 0.0)
    status = path.stat()
    path.write_text(changed)
    try:
        code, seen_by = _tested(copy, fault)
    finally:
        path.write_text(text)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    fates = {PASSED: "alive", NOTHING: "alive", STOPPED: "hung"}
    fate = fates.get(code, "killed")
    return Outcome(fault, fate, seen_by, time.monotonic() - began)


def _tested(copy: Path, fault: Fault) -> tuple[int, str]:
    """Return the exit code of pytest and the first test that failed."""
    command = [
        *(sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:randomly"),
        *("-p", "no:cacheprovider", "-m", "not (slow or netns or emulation)"),
        # What `_settle_compiled` does to a copy is what this one guards against.
        "--ignore=tests/test_compiled_code.py",
        *fault.tests,
    ]
    environment = _environment_of(copy)
    if fault.compiled:
        environment["NUMBA_DISABLE_JIT"] = "1"
    try:
        done = subprocess.run(
            command,
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return STOPPED, ""
    lines = done.stdout.splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return done.returncode, failed[0].split()[1] if failed else ""


def campaign(
    root: Path, copies: Sequence[Path], chosen: list[Fault]
) -> Iterator[Outcome]:
    """Yield the outcome of every fault, with as many at a time as there are copies."""
    free: SimpleQueue[Path] = SimpleQueue()
    first, *others = copies
    copy_tree(root, first)
    if not all(fault.compiled for fault in chosen):
        warm = [sys.executable, "-m", "emu", "warm"]
        subprocess.run(warm, cwd=first, env=_environment_of(first), check=True)
    for copy in others:
        shutil.copytree(first, copy, dirs_exist_ok=True)
    for copy in copies:
        free.put(copy)

    def one(fault: Fault) -> Outcome:
        copy = free.get()
        try:
            return attempt(copy, fault)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        yield from pool.map(one, chosen)
