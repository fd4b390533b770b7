"""Plant one fault after the other in copies of the tree, and run what could see it."""

from __future__ import annotations

import shutil
import tempfile
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

from rich.console import Console
from rich.table import Table

from emu.testing.faults import (
    PATIENCE,
    Fault,
    Outcome,
    attempt,
    list_failures,
    read_faults,
)
from tools.building.core import MADE, build_core
from tools.runner import Ledger

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("faults.toml")
#: Folders that tests of the product read, beside the files next to them.
COPIED = ("emu", "nodes", "tests", "tools", "scenarios", "docs")
#: What is built again with a fault in it.
CORE = "emu/prediction/core/"
FATES = ("killed", "alive", "hung", "skipped", "gone", "unreached")


def faults() -> list[Fault]:
    """Return the faults of the table; the quick tests of its package see one."""
    return [
        replace(one, tests=(f"tests/{one.file.split('/')[1]}",))
        if one.tests == ("tests",)
        else one
        for one in read_faults(TABLE)
    ]


def copy_tree(root: Path, to: Path) -> None:
    """Copy what tests need, with times of files: bytecode stays valid."""
    for name in COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, to / name, ignore=MADE)
    for path in root.iterdir():
        if path.is_file():
            shutil.copy2(path, to / path.name)


def _build(path: Path) -> bool:
    """Build the core of a copy where one of its files has changed."""
    tree, inside, _ = str(path).rpartition(CORE)
    if inside:
        build_core(Path(tree))
    return bool(inside)


def prepare(root: Path, folder: Path, count: int) -> tuple[Path, list[Path]]:
    """Return a sound copy of the product in ``folder``, and ``count`` to plant in."""
    sound, *copies = (folder / name for name in ("sound", *map(str, range(count))))
    for copy in (sound, *copies):
        copy_tree(root, copy)
        build_core(copy)
    return sound, copies


def outcomes(
    copies: Sequence[Path], chosen: Sequence[Fault], *, patience: float = PATIENCE
) -> Iterator[Outcome]:
    """Yield the outcome of every fault, with as many at a time as there are copies.

    ``patience``: wall seconds after which the tests of one are stopped.
    """
    free: SimpleQueue[Path] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def one(fault: Fault) -> Outcome:
        copy = free.get()
        try:
            return attempt(copy, fault, _build, patience=patience)
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
        if unsound := list_failures(sound, left):
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
