"""Plant one fault after the other in copies of the tree, and run what could see it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from rich.console import Console
from rich.table import Table

from tools.building.core import MADE, build_core
from tools.runner import Ledger

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("faults.toml")
#: What tests of the product read.
COPIED = ("emu", "nodes", "tests", "tools", "scenarios", "docs", "pyproject.toml")
#: What is built again with a fault in it.
CORE = "emu/prediction/core/"
#: Seconds after which tests are stopped: the fault makes them hang, or others the host.
PATIENCE = 600.0
#: Exit codes of pytest: all passed; nothing was collected. And of what was stopped.
PASSED, NOTHING, STOPPED = 0, 5, -999
#: Of what has no test named: the quick ones of its package.
_QUICK = ("-m", "not (slow or netns or emulation)")


@dataclass(frozen=True)
class Fault:
    """One small change of the product that a test, or a run, should see.

    Parameters
    ----------
    file
        From the root of the repository.
    old, new
        Text that occurs once in the file, and what stands there instead.
    means
        What it would mean to a user.
    tests
        What should see it, as pytest names it.
    """

    file: str
    old: str
    new: str
    means: str = ""
    tests: tuple[str, ...] = ()

    @property
    def case(self) -> str:
        """Name in a table of outcomes."""
        return f"{self.file}: {self.means}\n{self.new}"

    def planted(self, text: str) -> str | None:
        """Return ``text`` with the fault in it, None unless its place is there once."""
        return text.replace(self.old, self.new) if text.count(self.old) == 1 else None


@dataclass(frozen=True)
class Outcome:
    """What became of a fault.

    ``killed``; ``alive``; ``hung``; ``skipped``, where this host cannot run its tests;
    ``gone``, where its text is.
    """

    case: str
    fate: str
    seen_by: str
    seconds: float


FATES = ("killed", "alive", "hung", "skipped", "gone")


def faults(table: Path = TABLE) -> list[Fault]:
    """Return the faults of a table."""
    rows = tomllib.loads(table.read_text())["fault"]
    return [
        Fault(**{**row, "tests": tuple(row.get("tests", _own_tests(row["file"])))})
        for row in rows
    ]


def _own_tests(file: str) -> tuple[str, ...]:
    return ("tests/" + file.split("/")[1],)


def copy_tree(root: Path, to: Path) -> None:
    """Copy what tests need, with times of files: bytecode stays valid."""
    for name in COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, to / name, ignore=MADE)
        elif (root / name).exists():
            shutil.copy2(root / name, to / name)


def _environment_of(copy: Path) -> dict[str, str]:
    """Return one that imports from ``copy``."""
    return {**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}{copy / 'nodes'}"}


def attempt(copy: Path, fault: Fault) -> Outcome:
    """Plant ``fault`` in ``copy``, run its tests, and take it out again."""
    began, path = time.monotonic(), copy / fault.file
    text = path.read_text() if path.exists() else ""
    changed = fault.planted(text)
    if changed is None:
        return Outcome(fault.case, "gone", "", 0.0)
    status = path.stat()
    path.write_text(changed)
    try:
        fate, seen_by = _fate(copy, fault)
    finally:
        path.write_text(text)
        if not fault.file.startswith(CORE):  # which is built again by the next one
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return Outcome(fault.case, fate, seen_by, time.monotonic() - began)


def _fate(copy: Path, fault: Fault) -> tuple[str, str]:
    """Return the fate and the first test that failed."""
    if fault.file.startswith(CORE):
        build_core(copy)
    code, printed = _tested(copy, fault.tests, "-x", patience=PATIENCE)
    if code == STOPPED:
        return "hung", ""
    if code in (PASSED, NOTHING):
        return "alive" if " passed" in printed else "skipped", ""
    return "killed", next(iter(_failed(printed)), "")


def _failed(printed: str) -> list[str]:
    ends = ("FAILED", "ERROR")
    lines = [line for line in printed.splitlines() if line.startswith(ends)]
    return [line.split(" ", 1)[1].split(" - ")[0] for line in lines]


def _tested(
    copy: Path,
    tests: Sequence[str],
    *options: str,
    patience: float | None = None,
) -> tuple[int, str]:
    """Return the exit code of pytest and what it printed."""
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", *options),
        *("-p", "no:cacheprovider"),
        *(() if any("::" in test for test in tests) else _QUICK),
        *tests,
    ]
    try:
        done = subprocess.run(
            command,
            cwd=copy,
            env=_environment_of(copy),
            capture_output=True,
            text=True,
            timeout=patience,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return STOPPED, ""
    return done.returncode, done.stdout + done.stderr


def failing(sound: Path, chosen: Sequence[Fault]) -> list[str]:
    """Return the named tests that fail without any fault: what they kill is no kill."""
    named = {test for one in chosen for test in one.tests}
    if not named:  # pytest would run all tests
        return []
    code, printed = _tested(sound, sorted(named))
    return [] if code in (PASSED, NOTHING) else _failed(printed) or [printed]


def prepare(root: Path, folder: Path, count: int) -> tuple[Path, list[Path]]:
    """Return a sound copy of the product in ``folder``, and ``count`` to plant in."""
    sound, *copies = (folder / name for name in ("sound", *map(str, range(count))))
    for copy in (sound, *copies):
        copy_tree(root, copy)
        build_core(copy)
    return sound, copies


def outcomes(copies: Sequence[Path], chosen: list[Fault]) -> Iterator[Outcome]:
    """Yield the outcome of every fault, with as many at a time as there are copies."""
    free: SimpleQueue[Path] = SimpleQueue()
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


def table(found: Sequence[Outcome]) -> Table:
    """Return the numbers per package."""
    counts = Counter((one.case.split("/")[1], one.fate) for one in found)
    shown = Table("package", "planted", *FATES)
    for name in [*dict.fromkeys(package for package, _ in counts), "all"]:
        row = [
            sum(n for (p, f), n in counts.items() if f == fate and name in {p, "all"})
            for fate in FATES
        ]
        shown.add_row(name, *map(str, (sum(row), *row)))
    return shown


def killed(path: Path, chosen: Sequence[Fault]) -> list[Outcome]:
    """Return the outcomes of those of ``chosen`` that a table says were killed."""
    cases = {fault.case for fault in chosen}
    rows = Ledger(path, Outcome).rows
    return [row for row in rows if row.fate == "killed" and row.case in cases]


def main(options: Namespace) -> int:
    """Plant what is chosen and was not killed yet; return the exit status."""
    chosen = [
        fault
        for fault in faults()
        if not options.only or any(text in fault.file for text in options.only)
    ]
    with tempfile.TemporaryDirectory(prefix="emu-mutants-") as folder:
        ledger = Ledger(options.out or Path(folder, "rows.csv"), Outcome)
        found = killed(options.out, chosen) if options.out else []
        dead = {one.case for one in found}
        left = [fault for fault in chosen if fault.case not in dead]
        console = Console(highlight=False)
        sound, copies = prepare(ROOT, Path(folder), options.copies)
        if unsound := failing(sound, left):
            print("fail without a fault:", *unsound, sep="\n")
            return 2
        for one in outcomes(copies, left):
            found.append(one)
            ledger.add([one])
            place, _, new = one.case.partition("\n")
            end = one.seen_by or new.strip().splitlines()[0]
            text = f"{one.fate:6} {one.seconds:5.1f} s  {place}\n{'':16}{end}"
            console.print(text, markup=False, soft_wrap=True)
    console.print(table(found))
    return int(any(one.fate != "killed" for one in found))
