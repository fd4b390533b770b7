"""Code that is not emu's: optional libraries, and what users bring along.

Torch is needed to train, dgl to read what is its own. A user's code is the text of a
file. Its classes are looked for in the text (`class_problem`) before any of it runs,
everything that runs it asks (`ask_to_run`), and commands that read withhold it.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import hashlib
import importlib.util
import sys
import tokenize
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

from emu.errors import DataError, EmulatorError

#: Said where pandas or matplotlib is missing.
INSTALL_FIGURES = "pip install 'dgtp-emulator[figures]'"
#: Begins the names of modules that are the text of a user.
OWN = "emu_own_"
#: Said where a text of a user imports what is not there.
_BESIDE = "files beside it are not taken along, install them or name their folder in "
_BESIDE += "PYTHONPATH"
#: Said where torch is missing.
INSTALL_TORCH = "pip install 'dgtp-emulator[train]'"


def is_installed(name: str) -> bool:
    """Return True where a library of compiled code is there, without importing it.

    A module of that name without any is none of it: importing torch takes seconds.
    """
    try:
        spec = importlib.util.find_spec(name)
    except ImportError:
        return False
    if spec is None:
        return False
    folders = spec.submodule_search_locations or ()
    compiled_files = (Path(folder).glob("_C*") for folder in folders)
    return any(any(files) for files in compiled_files)


def import_library(name: str, purpose: str, remedy: str) -> Any:
    """Return the module of a library.

    ``purpose`` is what needs it: a file, a key with its value; ``remedy`` installs it,
    or does without it. Raises DataError when it is not installed, or does not import.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        problem = f"needs {name}, which is not installed here: {remedy}"
        raise DataError(problem, path=purpose) from error
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        problem = f"needs {name}, which is installed but does not import: {cause}"
        raise DataError(problem, path=purpose) from error


def describe_point(point: EntryPoint) -> str:
    """Return an entry point in words: as it is written, and which package brings it.

    Raises EmulatorError when it names no module.
    """
    words = f"entry point {point.name} = {point.value} of group {point.group}"
    if point.dist:
        words = f"{words}, which {point.dist.name} brings"
    if not EntryPoint.pattern.match(point.value):
        raise EmulatorError(f"{words}: is no MODULE:NAME")
    return words


class CodeWithheld(DataError):
    """Code of others that a command which only reads does not run."""


@dataclass(frozen=True)
class _Consent:
    """Decision on code of others: whether it runs, and who is told of it, once each."""

    runs: bool = True
    tell: Callable[[str], object] = lambda _: None
    told: set[str] = field(default_factory=set)


_NO_LIMIT = _Consent()
_consent = ContextVar("consent", default=_NO_LIMIT)


@contextlib.contextmanager
def code_of_others(
    *, runs: bool, tell: Callable[[str], object] | None = None
) -> Iterator[None]:
    """Decide for the time of the block whether code of others runs.

    A block within one that withholds it withholds it, too. ``tell`` gets a line on each
    that runs, or was withheld; default is as around the block.
    """
    outer = _consent.get()
    runs = runs and outer.runs
    consent = replace(outer, runs=runs) if tell is None else _Consent(runs, tell)
    token = _consent.set(consent)
    try:
        yield
    finally:
        _consent.reset(token)


def code_runs() -> bool:
    """Return False where code of others is withheld."""
    return _consent.get().runs


def ask_to_run(
    file: str,
    what: str,
    problem: Callable[[], str] = lambda: "",
) -> None:
    """Say that code of others is about to run; to be called before each time.

    It is ``what``, by purpose and name (``rule mine.py:Equal``), of a file or module;
    ``problem`` looks, without running it, for why it must not run at all. Raises
    DataError when there is one, and CodeWithheld when nothing of others may run: see
    `code_of_others`.
    """
    consent = _consent.get()
    reason = problem() if consent.runs else ""
    if reason:
        _, _, name = what.partition(" ")
        raise DataError(reason, path=name)

    line = f"runs code of {file}: {what}"
    if not consent.runs:
        line = f"left out, --run-code adds it: what {line}"
    if line not in consent.told:
        consent.told.add(line)
        consent.tell(line)
    if not consent.runs:
        raise CodeWithheld(f"is code of others: {what}; --run-code runs it", path=file)


def import_program(program: str, source: str) -> Callable[..., Any]:
    """Run the text of ``FILE.py:NAME`` and return what it is to be called by.

    Raises DataError when it defines nothing to call by that name. What its code raises
    goes on; a module that it does not find says where those have to be.
    """
    file, _, name = program.rpartition(":")
    digest = hashlib.sha256(source.encode()).hexdigest()
    module = ModuleType(f"{OWN}{digest[:16]}")
    module.__file__ = file
    sys.modules[module.__name__] = module  # where dataclasses and pickle look
    code = compile(source, file, "exec", dont_inherit=True)
    try:
        exec(code, vars(module))  # noqa: S102 - the author's own code, see THREAT_MODEL
    except ImportError as error:
        # The text alone is recorded and sent to agents: it has no folder to look in.
        if _looks_beside(error):
            error.msg = f"{error.msg}: {_BESIDE}"
        raise
    return look_up(module, name, program)


def _looks_beside(error: ImportError) -> bool:
    """Return True where an import may have meant a file beside that of the code.

    It does not where a package is there and lacks a module, or raised the error itself.
    """
    if str(error.msg).startswith("attempted relative import"):
        return True
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return False
    package, _, _ = error.name.partition(".")
    return package not in sys.modules and importlib.util.find_spec(package) is None


def look_up(module: ModuleType, name: str, program: str) -> Callable[..., Any]:
    """Return what ``module`` has to call by ``name``.

    Raises DataError when there is nothing; ``program`` is named in it.
    """
    target = getattr(module, name, None)
    if callable(target):
        factory: Callable[..., Any] = target
        return factory

    classes = []
    for attribute, value in vars(module).items():
        if isinstance(value, type) and value.__module__ == module.__name__:
            classes.append(attribute)
    raise DataError(_absence(name, classes), path=program)


def _absence(name: str, classes: Iterable[str]) -> str:
    names = ", ".join(classes) or "no class"
    return f"holds nothing to call by the name {name!r}; it defines {names}"


def module_text(module: str) -> str:
    """Return the text of an installed module; neither it nor its parents are imported.

    Raises DataError when there is no such module, or no text of it.
    """
    name, *parts = module.split(".")
    spec = None
    with contextlib.suppress(ImportError, ValueError):  # the second of __main__
        spec = importlib.util.find_spec(name)
    for part in parts:
        folders = spec and spec.submodule_search_locations
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, folders) if folders else None

    if spec is None:
        raise DataError(f"No module named {module!r}")
    origin = spec.origin or ""
    if not origin.endswith(".py"):
        raise DataError(f"module {module} has no text of which to see what it defines")
    with tokenize.open(origin) as file:
        return file.read()


def class_problem(
    text: str,
    file: str,
    name: str,
    method: str,
    *,
    sure: bool,
) -> str:
    """Return why a text defines no class with a method; empty where it may.

    Only the text is looked at. What it imports or computes shows when it runs; ``sure``
    refuses that. Arguments may follow the method, which is empty where a function will
    do.
    """
    try:
        tree = ast.parse(text, file)
        nodes = list(ast.walk(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"
    classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
    mentions = set()
    for node in nodes:
        for key in ("id", "name", "asname"):
            mention = getattr(node, key, "")
            mentions.add(mention)
    if name not in classes and (sure or mentions.isdisjoint({name, "*"})):
        return _absence(name, classes)

    method_name, _, _ = method.partition("(")
    bases = [name]
    is_unknown = not method
    for base in bases:  # which grow
        if base not in classes:
            is_unknown |= base not in vars(builtins)
            continue
        if method_name in _names_in(classes[base]):
            return ""
        parents = set(map(ast.unparse, classes[base].bases))
        bases += parents.difference(bases)

    if is_unknown and not sure:
        return ""
    of_bases = " of its own" if is_unknown else ""
    return f"{name} has no method {method}{of_bases}"


def _names_in(node: ast.ClassDef) -> set[str]:
    """Return what the body of a class defines or assigns to."""
    names = {getattr(statement, "name", "") for statement in node.body}
    for statement in node.body:
        for target in getattr(statement, "targets", ()):
            names.add(getattr(target, "id", ""))
    return names


def line_of(error: BaseException, file: str) -> str:
    """Return where in a file of a user an error was raised, in brackets.

    ``file`` may be the name of an installed module. A path is none, though the standard
    library may have a module of that name.
    """
    if isinstance(error, SyntaxError) and error.filename == file:
        return ""  # its text has it
    lines = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        is_of_module = frame.f_globals.get("__name__") == file
        if is_of_module or frame.f_code.co_filename == file:
            lines.append(line)
    return f" (line {lines[-1]} of {file})" if lines else ""
