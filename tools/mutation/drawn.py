"""Draw faults over the product or a change, and run the tests that cover them."""

from __future__ import annotations

import subprocess
import tempfile
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console

from emu.testing.faults import Outcome
from tools.mutation.campaign import ROOT, outcomes, prepare, table
from tools.mutation.covering import CoveringTests, list_rooms, map_lines
from tools.mutation.drawing import DrawnFault, changed_lines, faults_of
from tools.mutation.forks import plant_in_forks
from tools.runner import Ledger

#: Parts of the product in which no drawn fault may live: what decides about numbers.
BLOCKING = ("emu/trust/", "emu/prediction/", "nodes/")
#: Tests that a fault is tried on, the nearest ones of those that reach its line.
MOST_TESTS = 40


def changed(base: str) -> dict[str, frozenset[int]]:
    """Return the files of the product that differ from a commit, with the new lines."""
    command = ["git", "diff", "--unified=0", base, "--", "emu", "nodes"]
    patch = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {
        file: lines
        for file, lines in changed_lines(patch.stdout)
        if file.endswith(".py")
    }


def whole_product() -> list[str]:
    """Return all Python files of the product."""
    files = [*(ROOT / "emu").rglob("*.py"), *(ROOT / "nodes").rglob("*.py")]
    return sorted(str(file.relative_to(ROOT)) for file in files)


def draw(
    lines: Mapping[str, frozenset[int] | None], count: int, seed: int
) -> list[DrawnFault]:
    """Return so many faults of files, drawn from a seed, in the order of their places.

    ``lines``: lines that count of each file, None for all.
    """
    found = [
        fault
        for file, chosen in lines.items()
        for fault in faults_of(ROOT, file, chosen)
    ]
    chance = np.random.default_rng(seed)
    positions = chance.choice(len(found), min(count, len(found)), replace=False)
    return [found[position] for position in sorted(positions)]


def with_tests(
    faults: Iterable[DrawnFault], covering: CoveringTests
) -> list[DrawnFault]:
    """Return the faults with the tests that reach their lines."""
    return [
        replace(fault, tests=covering.of_line(fault.file, fault.line, MOST_TESTS))
        for fault in faults
    ]


def survivors(found: Sequence[Outcome]) -> list[Outcome]:
    """Return what no test saw: alive, or on a line that no test reaches."""
    return [outcome for outcome in found if outcome.fate not in {"killed", "hung"}]


def choose_lines(options: Namespace) -> dict[str, frozenset[int] | None]:
    """Return the files to draw from, with the lines that count, None for all."""
    lines: dict[str, frozenset[int] | None] = {}
    if options.changed:
        lines.update(changed(options.changed))
    else:
        lines.update(dict.fromkeys(whole_product(), None))
    if not options.only:
        return lines
    return {
        file: chosen
        for file, chosen in lines.items()
        if any(part in file for part in options.only)
    }


def map_tests(
    options: Namespace, faults: Sequence[DrawnFault], sound: Path, folder: Path
) -> CoveringTests:
    """Return which tests reach which line, from the file that keeps it if there is one.

    Without one tests run: all of them where the whole product is drawn from, else those
    of the rooms of the faults.
    """
    data = options.map or folder / "contexts"
    noted = data.with_suffix(
        ".tree"
    )  # contexts name files of the tree that they ran in
    if not (options.map and options.map.exists()):
        is_whole = not (options.changed or options.only)
        files = {fault.file for fault in faults}
        map_lines(sound, ["tests"] if is_whole else list_rooms(ROOT, files), data)
        noted.write_text(str(sound), encoding="utf-8")
    return CoveringTests(data, Path(noted.read_text(encoding="utf-8")), ROOT)


def _attempt(
    faults: Sequence[DrawnFault],
    sound: Path,
    copies: Sequence[Path],
    folder: Path,
    patience: float,
) -> Iterator[Outcome]:
    """Yield the outcome of faults: those seen in forks, then the rest, in copies."""
    attempted = set[str]()
    for outcome in plant_in_forks(sound, faults, folder, len(copies), patience):
        attempted.add(outcome.case)
        yield outcome
    others = [fault for fault in faults if fault.case not in attempted]
    yield from outcomes(copies, others, patience=patience)


def main(options: Namespace) -> int:
    """Draw, plant, print; return 1 where a fault lives that must not."""
    faults = draw(choose_lines(options), options.count, options.seed)
    if not faults:
        print("nothing to draw: no line of the product has changed")
        return 0

    console = Console(highlight=False)
    found: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="emu-drawn-") as name:
        folder = Path(name)
        sound, copies = prepare(ROOT, folder, options.copies)
        faults = with_tests(faults, map_tests(options, faults, sound, folder))
        ledger = Ledger(options.out or folder / "rows.csv", Outcome)

        reached = [fault for fault in faults if fault.tests]
        unreached = [fault for fault in faults if not fault.tests]
        found += [Outcome(fault.case, "unreached", "", 0.0) for fault in unreached]
        ledger.add(found)
        for outcome in _attempt(reached, sound, copies, folder, options.patience):
            found.append(outcome)
            ledger.add([outcome])
            text = f"{outcome.fate:9} {outcome.seconds:5.1f} s  {outcome.case}"
            console.print(text, markup=False, soft_wrap=True)

    console.print(table(found))
    alive = survivors(found)
    for outcome in alive:
        console.print(f"{outcome.fate}: {outcome.case}", markup=False, soft_wrap=True)
    dead = len(found) - len(alive)
    console.print(f"{dead} of {len(found)} are seen ({dead / len(found):.1%})")
    return int(any(outcome.case.startswith(BLOCKING) for outcome in alive))
