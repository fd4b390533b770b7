"""Rules for rates of one's own: found, loaded, and asked within a deadline.

A rule is a class with a method ``rates(flows, capacity)``: it gets the active flows
(`emu.problem.ActiveFlow`) and bytes per second by link, and returns a rate per flow.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import entry_points
from pathlib import Path

from emu.errors import DataError, EmulatorError
from emu.host.foreign_code import (
    ask_to_run,
    class_problem,
    import_program,
    line_of,
    look_up,
    module_text,
)
from emu.host.interruption import Overdue, deadline
from emu.names import printable
from emu.prediction.core import lib
from emu.prediction.scheduling.policies import (
    RATE_POLICIES,
    Policy,
    check_rates,
    register,
)
from emu.problem import ActiveFlow
from emu.problem.fields.suggestion import nearest

#: Entry points of this group are classes of rules.
GROUP = "emu.policies"
#: Wall seconds that a rule may take to be loaded, and for every answer: chosen, not
#: measured; SEBF in Python answers in milliseconds.
DEADLINE = 10.0
#: The method that a rule needs.
_RATES = "rates(flows, capacity)"
#: ``FILE.py:CLASS``, beside the scenario, or ``MODULE:CLASS``.
PROGRAM = re.compile(r"(.*\.py|[A-Za-z_][\w.]*):([A-Za-z_]\w*)")


@cache
def list_installed() -> tuple[str, ...]:
    """Return the names of rules that installed packages bring, sorted.

    Raises EmulatorError when one is called as another one.
    """
    names: list[str] = []
    for point in sorted(entry_points(group=GROUP)):
        if point.name in {*RATE_POLICIES, *names}:
            where = f"entry point {point.name} = {point.value} of group {GROUP}"
            raise EmulatorError(f"{where}: there is another policy of that name")
        file, find = point.module.replace(".", "/") + ".py", point.load
        register(point.name, cache(partial(_load, point.name, file, find)))
        names.append(point.name)
    return tuple(names)


def list_policies() -> list[str]:
    """Return the names of all policies that scenarios may state as one word."""
    return [*RATE_POLICIES, *list_installed()]


def is_policy(name: str) -> bool:
    """Return True for a policy that a scenario may state, or a run name."""
    return is_program(name) or name in list_policies()


def is_program(policy: str) -> bool:
    """Return True where a policy is stated as a class."""
    return ":" in policy


def check_policy(found: object) -> str:
    """Return a policy as scenarios may state it; else ValueError says what is right."""
    if isinstance(found, str) and (
        found in list_policies() or PROGRAM.fullmatch(found)
    ):
        return found
    if isinstance(found, str) and (is_program(found) or found.endswith(".py")):
        raise ValueError(f"found {found!r}, write FILE.py:CLASS or MODULE:CLASS")
    raise ValueError(f"found {found!r}, {nearest(str(found), list_policies())}")


def rule_file(policy: str, folder: Path, noted: Collection[str] = ()) -> Path | None:
    """Return the file of a rule: as stated, or a module's beside the scenario.

    ``noted``: rules of files that were there once.
    """
    match = PROGRAM.fullmatch(policy)
    if match is None:
        return None
    if match[1].endswith(".py"):
        return folder / Path(match[1]).expanduser()
    beside = folder / (match[1].replace(".", "/") + ".py")
    there = beside.is_file() or f"{beside}:{match[2]}" in noted
    return beside if there else None


@cache
def register_program(policy: str, source: str | None) -> str:
    """Return the name that a class goes by in this process; nothing is run yet.

    That of a file ends with a digest of its text, which may change from run to run.
    """
    file, _, attribute = policy.rpartition(":")
    name = policy

    def find() -> object:
        return look_up(importlib.import_module(file), attribute, policy)

    check: Callable[[], str] = partial(rule_problem, policy, source)
    if source is not None:
        digest = hashlib.sha256(source.encode()).hexdigest()[:8]
        name = f"{Path(file).name}:{attribute}@{digest}"
        find, check = partial(import_program, policy, source), str
    load = cache(partial(_load, name, file, find))

    def ask() -> Policy:
        ask_to_run(file, f"rule {name}", check)
        return load()

    register(name, ask)
    return name


@cache
def rule_problem(policy: str, source: str | None) -> str:
    """Return why a class that is stated as a policy is no rule; empty where it may be.

    Only its text is looked at: nothing of it is imported. A file may import or compute
    its class, which shows when it runs; a module, which the scenario names and did not
    bring along, has to define a class with the method itself.

    ``source``: text of a file; None for a module.
    """
    file, _, attribute = policy.rpartition(":")
    try:
        text = module_text(file) if source is None else source
    except (DataError, OSError, SyntaxError, UnicodeDecodeError) as error:
        return str(error)
    return class_problem(text, file, attribute, _RATES, sure=source is None)


def _load(name: str, file: str, find: Callable[[], object]) -> Policy:
    """Load a rule.

    Raises DataError when its code fails or takes too long, or has no method ``rates``.
    """
    with _running(name, file, "cannot be loaded"):
        rule_class = find()
        if not (
            isinstance(rule_class, type)
            and callable(getattr(rule_class, "rates", None))
        ):
            what = (
                rule_class.__name__
                if isinstance(rule_class, type)
                else type(rule_class).__name__
            )
            problem = f"has no method {_RATES} of a class: it is {what}"
            raise DataError(problem, path=name)
        rule = rule_class()

    def rates(
        flows: Sequence[ActiveFlow], capacity: Mapping[str, float]
    ) -> list[float]:
        # Copies, so that a rule may count down in what it gets.
        with _running(name, file, "fails"):
            answer = rule.rates([*flows], dict(capacity))
            return check_rates(name, flows, capacity, answer)

    summary = (inspect.getdoc(rule) or "a rule of one's own").splitlines()[0]
    return Policy(
        name=name,
        code=lib.OWN,
        summary=printable(summary, limit=200),
        source=file,
        knows="bytes left",
        rates=rates,
    )


@contextlib.contextmanager
def _running(name: str, file: str, failing: str) -> Iterator[None]:
    """Run code of a rule: it has a deadline, its errors its name and line."""
    try:
        with contextlib.redirect_stdout(sys.stderr), deadline(DEADLINE):
            yield
    except DataError:
        raise
    except Overdue as error:
        problem = f"{failing}: no answer within {DEADLINE:g} s{line_of(error, file)}"
        raise DataError(problem, path=name) from error
    except (Exception, SystemExit) as error:
        said = printable(f"{type(error).__name__}: {error}", limit=300)
        problem = f"{failing}: {said}{line_of(error, file)}"
        raise DataError(problem, path=name) from error
