"""Faults that are planted in forks of a process that has collected the tests.

To start Python, import the product and collect tests takes ten seconds of CPU for each
fault, the tests that see it often milliseconds. Here the seconds are paid once: a fork
exchanges the code of the functions that a fault changes, and runs its tests. What a
module does as it is read (constants, tables, and functions that make them) is over
before the fork, and what tests start anew reads the tree: a fault that is not seen in a
fork needs a copy of the tree (`tools.mutation.campaign`).

This module is also the plugin of the pytest that forks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import TypeAlias

import pytest

from emu.testing.faults import Outcome
from tools.mutation.covering import PASSED, QUICK, find_imports
from tools.mutation.drawing import DrawnFault

#: Seconds between two looks at a fork.
_PULSE = 0.01
#: Most bytes of the name of a test.
_LONGEST_NAME = 4000
#: What a fork ends with.
_FATES = ("alive", "killed", "skipped")
#: Fates that a copy of the tree would give as well.
_SEEN = {"killed", "hung"}


def plant_in_forks(
    tree: Path,
    faults: Sequence[DrawnFault],
    folder: Path,
    processes: int,
    patience: float,
) -> Iterator[Outcome]:
    """Plant faults in forks of processes that have collected the tests of a tree.

    Parameters
    ----------
    tree
        A sound copy of the product, which stays as it is.
    faults
        Each with its tests.
    folder
        Where lists of faults are kept meanwhile, and what pytest prints.
    processes
        How many fork side by side.
    patience
        Wall seconds after which the tests of one fault are stopped.

    Yields
    ------
    Outcome
        Of each fault that tests see in a fork, as it is known: killed, or hung. The
        others have none.

    Raises
    ------
    RuntimeError
        When a process ends with an error of its own.
    """
    receiving, sending = os.pipe()
    running = []
    for number in range(processes):
        chosen = faults[number::processes]
        planted = folder / f"planted_{number}.jsonl"
        write_planted(planted, chosen)
        printed = folder / f"forks_{number}.log"
        files = {test.partition("::")[0] for fault in chosen for test in fault.tests}
        command = [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *QUICK),
            # Rewritten, a function with an assert is not what its file compiles to.
            "--assert=plain",
            *("-p", "tools.mutation.forks", f"--planted={planted}"),
            *(f"--fates={sending}", f"--patience={patience}", *sorted(files)),
        ]
        if chosen:
            running.append(_start(command, tree, printed, sending))
    os.close(sending)

    with os.fdopen(receiving, encoding="utf-8") as lines:
        for line in lines:
            yield Outcome(**json.loads(line))
    for process in running:
        if process.wait() != PASSED:
            logs = sorted(folder.glob("forks_*.log"))
            ends = "\n".join(log.read_text()[-2000:] for log in logs)
            raise RuntimeError(f"pytest ended with {process.returncode}:\n{ends}")


def _start(
    command: Sequence[str], tree: Path, printed: Path, sending: int
) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": find_imports(tree)}
    with printed.open("wb") as log:
        return subprocess.Popen(
            command,
            cwd=tree,
            env=environment,
            pass_fds=[sending],
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def write_planted(path: Path, faults: Sequence[DrawnFault]) -> None:
    """Write faults to a file, one per line."""
    lines = [json.dumps(dataclasses.asdict(fault)) for fault in faults]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_planted(path: Path) -> list[DrawnFault]:
    """Return the faults of a file that `write_planted` has written."""
    faults = []
    for line in path.read_text(encoding="utf-8").splitlines():
        fields = json.loads(line)
        fields["tests"] = tuple(fields["tests"])
        faults.append(DrawnFault(**fields))
    return faults


def exchange_code(
    path: Path, text: str, mutant: str
) -> dict[CodeType, CodeType] | None:
    """Return what to exchange in functions of a module, the old code by its new one.

    Empty where none changes, None where the mutant has other functions. ``path``: file
    of the module; ``text``: its content; ``mutant``: its content with a fault.
    """
    sound = _list_code(path, text)
    changed = _list_code(path, mutant)
    names = [code.co_qualname for code in sound]
    if names != [code.co_qualname for code in changed]:
        return None
    pairs = zip(sound, changed, strict=True)
    return {old: new for old, new in pairs if old != new}


def _list_code(path: Path, text: str) -> list[CodeType]:
    # As an import compiles it: without what this file takes from __future__.
    return list(_walk_code(compile(text, str(path), "exec", dont_inherit=True)))


def _walk_code(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of all functions and classes in a code, outer ones first."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _walk_code(constant)


def name_module(file: str) -> str:
    """Return the name by which a file of the product is imported."""
    parts = list(Path(file).with_suffix("").parts)
    if parts[0] == "nodes":
        parts = parts[1:]
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options by which faults come in and outcomes go out."""
    parser.addoption("--planted", type=Path, help="file of faults, one per line")
    parser.addoption("--fates", type=int, help="descriptor to write outcomes to")
    parser.addoption("--patience", type=float, help="wall seconds for each fault")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Plant one fault after the other, where pytest would run its tests."""
    options = session.config.option
    items_by_test = defaultdict[str, list[pytest.Item]](list)
    for item in session.items:
        test, _, _ = item.nodeid.partition("[")
        items_by_test[test].append(item)

    faults = read_planted(options.planted)
    forks = _Forks(session, Path.cwd(), {fault.file for fault in faults}, options)
    for fault in faults:
        items = [item for test in fault.tests for item in items_by_test[test]]
        outcome = forks.attempt(fault, items)
        if outcome is not None:
            line = json.dumps(dataclasses.asdict(outcome))
            os.write(options.fates, f"{line}\n".encode())
    return True


_Place: TypeAlias = tuple[Path, CodeType]
"""A file, and the code of a function in it."""


class _Results:
    """A plugin that notes the first test that fails, and how many pass."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid
        if report.when == "call" and report.passed:
            self.passed += 1


class _Forks:
    """Forks of this process, which runs no test itself: what tests keep is not kept."""

    def __init__(
        self,
        session: pytest.Session,
        tree: Path,
        files: set[str],
        options: Namespace,
    ) -> None:
        self._session = session
        self._tree = tree
        self._fates = options.fates
        self._patience = options.patience
        self._is_sound = dict[str, bool]()
        for file in files:
            importlib.import_module(name_module(file))
        # Codes are equal by what they do: of twins in two files one is meant.
        self._functions = defaultdict[_Place, list[FunctionType]](list)
        for function in gc.get_objects():
            if type(function) is FunctionType:  # lazy modules warn when asked
                code = function.__code__
                self._functions[Path(code.co_filename), code].append(function)
        gc.freeze()  # forks share what they need not look at

    def attempt(
        self, fault: DrawnFault, items: Sequence[pytest.Item]
    ) -> Outcome | None:
        """Return the fate of a fault; None where it is not seen here."""
        path = self._tree / fault.file
        text = path.read_text(encoding="utf-8")
        mutant = fault.plant(text)
        exchanged = mutant and exchange_code(path, text, mutant)
        if not exchanged or not self._can_exchange(exchanged):
            return None

        began = time.monotonic()
        fate, seen_by = self._run(items, exchanged)
        while seen_by and not self._passes(seen_by, items):
            items = [item for item in items if self._is_sound.get(item.nodeid, True)]
            fate, seen_by = self._run(items, exchanged)
        if fate not in _SEEN:
            return None
        return Outcome(
            case=fault.case,
            fate=fate,
            seen_by=seen_by,
            seconds=time.monotonic() - began,
        )

    def _can_exchange(self, exchanged: Mapping[CodeType, CodeType]) -> bool:
        """Return True where functions have the old code, and can have the new one."""
        found = False
        for old, new in exchanged.items():
            if (Path(old.co_filename), old) in self._functions:
                found = True
                # A function keeps the variables that it shares with the one around it.
                if old.co_freevars != new.co_freevars:
                    return False
        return found

    def _passes(self, test: str, items: Sequence[pytest.Item]) -> bool:
        """Return True where a test passes without a fault, tried once."""
        if test not in self._is_sound:
            chosen = [item for item in items if item.nodeid == test]
            fate, _ = self._run(chosen, {})
            self._is_sound[test] = fate == "alive"
        return self._is_sound[test]

    def _run(
        self, items: Sequence[pytest.Item], exchanged: Mapping[CodeType, CodeType]
    ) -> tuple[str, str]:
        """Return the fate of an exchange, and the first test that fails."""
        receiving, sending = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(receiving)
            self._end_fork(items, exchanged, sending)
        os.close(sending)

        status = _wait(process, self._patience)
        with os.fdopen(receiving, "rb", buffering=0) as names:
            os.set_blocking(receiving, False)
            name = names.read(_LONGEST_NAME) or b""
        if status is None:
            return "hung", ""
        code = os.waitstatus_to_exitcode(status)
        fate = _FATES[code] if 0 <= code < len(_FATES) else "killed"
        return fate, name.decode()

    def _end_fork(
        self,
        items: Sequence[pytest.Item],
        exchanged: Mapping[CodeType, CodeType],
        sending: int,
    ) -> None:
        """Run tests with other code in this process, which ends here."""
        os.setsid()  # what tests start is stopped with it
        os.close(self._fates)
        silence = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(silence, descriptor)

        fate = "killed"
        try:
            for old, new in exchanged.items():
                place = (Path(old.co_filename), old)
                for function in self._functions.get(place, []):
                    function.__code__ = new
            results = self._run_tests(items)
            os.write(sending, results.failed.encode()[:_LONGEST_NAME])
            if not results.failed:
                fate = "alive" if results.passed else "skipped"
        finally:
            os._exit(_FATES.index(fate))

    def _run_tests(self, items: Sequence[pytest.Item]) -> _Results:
        """Run tests up to the first that fails."""
        results = _Results()
        manager = self._session.config.pluginmanager
        manager.register(results)
        following = [*items[1:], None]
        for item, next_item in zip(items, following, strict=False):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=next_item)
            if results.failed:
                break
        return results


def _wait(process: int, patience: float) -> int | None:
    """Return the status of a process that has ended; None where it had to be stopped.

    What it has started, and left behind, is stopped with it.
    """
    end = time.monotonic() + patience
    ended, status = 0, 0
    while not ended and time.monotonic() < end:
        time.sleep(_PULSE)
        ended, status = os.waitpid(process, os.WNOHANG)
    with contextlib.suppress(ProcessLookupError):  # nothing of it is left
        os.killpg(process, signal.SIGKILL)
    if ended:
        return status
    os.waitpid(process, 0)
    return None
