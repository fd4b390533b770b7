"""Tests that cover a line: from the contexts that coverage keeps of a run of them.

A fault is tried on the tests that reach its line and on no others. The map is kept: a
run of all quick tests under coverage takes some 1.7 times as long as without.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from coverage import CoverageData

_ROOT = Path(__file__).parents[2]
#: Exit codes of pytest where all tests ran.
PASSED = 0
FAILED = 1
#: Quick tests that need no host of their own.
QUICK = ("-n", "0", "-p", "no:randomly", "-m", "not (slow or netns or emulation)")


def list_rooms(root: Path, files: Iterable[str]) -> list[str]:
    """Return the folders of tests that mirror files of the product, without doubles.

    ``root``: the tree. A file without a room of its own has that of its package.
    """
    rooms = set[str]()
    for file in files:
        product, *parts = Path(file).with_suffix("").parts
        room = Path("tests", *parts) if product == "emu" else Path("tests", product)
        while not (root / room).is_dir():
            room = room.parent
        rooms.add(str(room))
    return sorted(rooms)


def find_imports(tree: Path) -> str:
    """Return the PYTHONPATH by which a tree's product is imported, and our tools."""
    return os.pathsep.join([str(tree), str(tree / "nodes"), str(_ROOT)])


def map_lines(
    tree: Path, tests: Sequence[str], data: Path, options: Sequence[str] = QUICK
) -> None:
    """Run tests under coverage in a tree; note which test reaches which line.

    ``data``: file that keeps the notes. What is there already stays. ``options``: of
    pytest, beside the tests. Tests that fail count as well: their lines were reached.

    Raises RuntimeError when tests cannot be run at all: no line would be reached then.
    """
    settings = data.with_suffix(".toml")
    settings.write_text(
        '[tool.coverage.run]\nsource_pkgs = ["emu", "emu_nodes"]\n', encoding="utf-8"
    )
    command = [
        *(sys.executable, "-m", "coverage", "run", "--append"),
        f"--rcfile={settings}",
        f"--data-file={data}",
        *("-m", "pytest", "-q", "-p", "no:cacheprovider"),
        *("-p", "tools.mutation.contexts", *options, *tests),
    ]
    environment = {**os.environ, "PYTHONPATH": find_imports(tree)}
    code = subprocess.run(command, cwd=tree, env=environment, check=False).returncode
    if code not in {PASSED, FAILED}:
        raise RuntimeError(f"pytest of {', '.join(tests)} ended with {code}")


class CoveringTests:
    """Tests by the lines that they reach.

    Parameters
    ----------
    data
        File of `map_lines`.
    tree
        The tree in which the tests ran, which may be gone.
    root
        A tree with the same tests.
    """

    def __init__(self, data: Path, tree: Path, root: Path) -> None:
        self._notes = CoverageData(str(data))
        self._notes.read()
        self._root = root
        self._files = {
            str(Path(path).relative_to(tree)): path
            for path in self._notes.measured_files()
            if Path(path).is_relative_to(tree)
        }
        self._reach = defaultdict[str, int](int)
        for path in self._files.values():
            for contexts in self._notes.contexts_by_lineno(path).values():
                for context in contexts:
                    self._reach[context] += 1

    def of_line(self, file: str, line: int, most: int) -> tuple[str, ...]:
        """Return at most so many tests that reach a line, as pytest names them.

        Those that reach the fewest lines of the product go first: they are about it.
        A line that runs once, as its module is read, has the tests that reach others of
        its file. None where no test does.
        """
        path = self._files.get(file)
        if path is None:
            return ()
        contexts_by_line = self._notes.contexts_by_lineno(path)
        contexts = set(contexts_by_line.get(line, []))
        if contexts == {""}:
            contexts.update(*contexts_by_line.values())
        tests = [
            context
            for context in contexts
            if (self._root / context.partition("::")[0]).is_file()
        ]
        nearest = sorted(tests, key=lambda context: (self._reach[context], context))
        return tuple(nearest[:most])
