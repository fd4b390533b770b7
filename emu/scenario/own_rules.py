"""Rules for rates of one's own: found, loaded, and asked within a deadline.

A rule is a class with a method ``rates(flows, capacity)``: it gets the active flows
(`emu.problem.ActiveFlow`) and bytes per second by link, and returns a rate per flow.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from emu.errors import DataError, EmulatorError
from emu.host import foreign_code
from emu.host.interruption import Overdue, deadline
from emu.names import printable
from emu.prediction.rate_policies import GROUP, RATE_POLICIES, Policy
from emu.prediction.scheduling import policies
from emu.problem import ActiveFlow
from emu.problem.fields.suggestion import nearest

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
    labels = dict.fromkeys(RATE_POLICIES, "a policy of emu")
    # Sorted: the order of installed packages is that of a folder.
    points = sorted(entry_points(group=GROUP))
    for point in points:
        name = point.name
        label = foreign_code.describe_point(point)
        if name in labels:
            raise EmulatorError(f"{label}: has the name of {labels[name]}")

        load = partial(_load, name=name, file=point.module, find=point.load)
        # Loaded when it is asked first, and once: to list names runs no code of others.
        policies.register(name, cache(load))
        labels[name] = label
    return tuple(name for name in labels if name not in RATE_POLICIES)


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
    text = found if isinstance(found, str) else ""
    policy_names = list_policies()
    if text in policy_names or PROGRAM.fullmatch(text):
        return text
    remedy = nearest(str(found), policy_names)
    if is_program(text) or text.endswith(".py"):
        remedy = "write FILE.py:CLASS or MODULE:CLASS"
    raise ValueError(f"found {found!r}, {remedy}")


def rule_file(policy: str, folder: Path, noted: Collection[str] = ()) -> Path | None:
    """Return the file of a rule: as stated, or a module's beside the scenario.

    ``noted``: rules of files that were there once.
    """
    match = PROGRAM.fullmatch(policy)
    if match is None:
        return None

    source, attribute = match.groups()
    if source.endswith(".py"):
        return folder / Path(source).expanduser()
    module_path = source.replace(".", "/")
    file = folder / f"{module_path}.py"
    is_known = file.is_file() or f"{file}:{attribute}" in noted
    return file if is_known else None


@cache
def register_program(policy: str, source: str | None) -> str:
    """Return the name that a class goes by in this process; nothing is run yet.

    That of a file ends with a digest of its text, which may change from run to run.
    """
    file, _, attribute = policy.rpartition(":")
    name = policy

    def find() -> object:
        module = importlib.import_module(file)
        return foreign_code.look_up(module, attribute, policy)

    check: Callable[[], str] = partial(rule_problem, policy, source)
    if source is not None:
        content = source.encode()
        text_digest = hashlib.sha256(content).hexdigest()
        digest = text_digest[:8]
        name = f"{Path(file).name}:{attribute}@{digest}"
        find = partial(foreign_code.import_program, policy, source)
        check = str
    load = partial(_load, name=name, file=file, find=find)
    load_once = cache(load)

    def ask() -> Policy:
        foreign_code.ask_to_run(file, f"rule {name}", check)
        return load_once()

    policies.register(name, ask)
    return name


@cache
def rule_problem(policy: str, source: str | None) -> str:
    """Return why a class that is stated as a policy is no rule; empty where it may be.

    Only its text is looked at: nothing of it is imported. A file may import or compute
    its class, which shows when it runs; a module, which the scenario names and did not
    bring along, has to define a class with the method itself. ``source``: text of a
    file; None for a module.
    """
    file, _, attribute = policy.rpartition(":")
    try:
        text = source
        if text is None:
            text = foreign_code.module_text(file)
    except (DataError, OSError, SyntaxError, UnicodeDecodeError) as error:
        return str(error)
    return foreign_code.class_problem(
        text,
        file,
        attribute,
        _RATES,
        sure=source is None,
    )


def _load(name: str, file: str, find: Callable[[], object]) -> Policy:
    """Load a rule.

    Raises DataError when its code fails or takes too long, or has no method ``rates``.
    """
    with _running(name, file, "cannot be loaded"):
        rule_class = find()
        kind = rule_class if isinstance(rule_class, type) else type(rule_class)
        method = getattr(kind, "rates", None)
        has_rates = callable(method)
        if kind is not rule_class or not has_rates:
            problem = f"has no method {_RATES} of a class: it is {kind.__name__}"
            raise DataError(problem, path=name)
        rule = kind()

    numbers = itertools.count(1)

    def rates(
        flows: Sequence[ActiveFlow], capacity: Mapping[str, float]
    ) -> list[float]:
        # The last flow has ended: a rule that looks for the shortest would find none.
        if not flows:
            return []
        ask = partial(_ask, rule, name, file, flows, capacity)
        answer = ask()
        number = next(numbers)
        # Questions 1, 2, 4, 8, ... are asked again: results of a rule that draws, or
        # reads a clock, would be others each time, and its audits find faults.
        if number & (number - 1) == 0 and ask() != answer:
            problem = (
                "gives other rates when it is asked again: they have to follow from "
                "flows and capacity alone"
            )
            raise DataError(problem, path=name)
        return answer

    description = inspect.getdoc(rule) or "a rule of one's own"
    summary = description.splitlines()[0]
    return Policy(
        name=name,
        summary=printable(summary, limit=200),
        source=file,
        knows="bytes left",
        rates=rates,
    )


def _ask(
    rule: Any,
    name: str,
    file: str,
    flows: Sequence[ActiveFlow],
    capacity: Mapping[str, float],
) -> list[float]:
    # Copies, so that a rule may count down in what it gets.
    with _running(name, file, "fails"):
        flows_of_rule = list(flows)
        capacity_of_rule = dict(capacity)
        answer = rule.rates(flows_of_rule, capacity_of_rule)
        return policies.check_rates(
            name=name,
            flows=flows,
            capacity=capacity,
            given=answer,
        )


@contextlib.contextmanager
def _running(name: str, file: str, failing: str) -> Iterator[None]:
    """Run code of a rule: it has a deadline, its errors its name and line."""
    try:
        # What a rule prints must not get into the output of a command.
        with contextlib.redirect_stdout(sys.stderr), deadline(DEADLINE):
            yield
    except DataError:
        raise
    except Overdue as error:
        line = foreign_code.line_of(error, file)
        problem = f"{failing}: no answer within {DEADLINE:g} s{line}"
        raise DataError(problem, path=name) from error
    # Whatever a rule raises is an error of the rule, not of emu.
    except (Exception, SystemExit) as error:
        message = printable(f"{type(error).__name__}: {error}", limit=300)
        line = foreign_code.line_of(error, file)
        problem = f"{failing}: {message}{line}"
        raise DataError(problem, path=name) from error
