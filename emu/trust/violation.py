"""Violations of constraints, findings of guards, and the report of an audit.

A file that does not say what it should, key by key, is a violation too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from typing_extensions import override

from emu.array_types import Array, Floats, Ints, Mask
from emu.units import format_count

if TYPE_CHECKING:
    from emu.problem import Job

#: Function that writes of the value at a position: of its row, or row and column.
Writer = Callable[..., str]
#: Number of comparisons, and the violations among them.
Findings = tuple[int, list["Violation"]]
#: Units that are nouns.
_COUNTED = ("iterations", "values", "findings")


@dataclass(frozen=True)
class Violation:
    """One broken constraint."""

    constraint: str
    """Number in the paper, ``(10)``."""
    subject: str
    """The task, flow or port that broke it, by name and iteration."""
    amount: float
    """Amount of the violation, in ``unit``."""
    unit: str
    """``s``, ``B`` or ``B/s``; ``iterations`` for something missing, ``values`` for
    what is no number."""
    sentence: str
    """The violation in words."""

    @override
    def __str__(self) -> str:
        """Return constraint, sentence and amount in one line."""
        unit = self.unit
        is_single = self.amount == 1
        if is_single and unit in _COUNTED:
            unit = unit.removesuffix("s")
        amount = f"{self.amount:g} {unit}"
        return f"{self.constraint} {self.sentence}: {amount}"


class FindingKeys(TypedDict):
    """A finding as result.json has it, see `Finding`."""

    guard: str
    at: float | None
    """None for the run as a whole."""
    sentence: str
    remedy: str


@dataclass(frozen=True)
class Finding:
    """Result of a guard that fires."""

    guard: str
    """Its name."""
    at: float
    """The first instant, emulated seconds; NaN where it is the run as a whole."""
    sentence: str
    """The impossibility, with the amounts."""
    remedy: str = ""
    """Remedy, where there is one."""

    @override
    def __str__(self) -> str:
        """Return the guard's name, the instant and the sentence in one line."""
        when = "" if np.isnan(self.at) else f" at {self.at:.6g} s"
        return f"{self.guard}{when}: {self.sentence}"

    def to_json(self) -> FindingKeys:
        """Return the form of result.json."""
        return {
            "guard": self.guard,
            "at": None if np.isnan(self.at) else self.at,
            "sentence": self.sentence,
            "remedy": self.remedy,
        }


@dataclass(frozen=True)
class AuditReport:
    """Violations and findings of an audit."""

    violations: list[Violation]
    """Everything beyond the tolerance, in the order of the constraints."""
    checked: dict[str, int] = field(default_factory=dict)
    """Number of comparisons that each constraint took part in."""
    findings: tuple[Finding, ...] = ()
    """Findings of the guards of an emulated run, each among the violations as well."""

    @override
    def __repr__(self) -> str:
        """Return the number of comparisons, and the first violation."""
        text = "no violation"
        if self.violations:
            text = self.summary
        return f"<AuditReport: {sum(self.checked.values())} comparisons, {text}>"

    @property
    def summary(self) -> str:
        """Number of violations, at least one, and the first."""
        count = format_count(len(self.violations), "violation")
        first = self.violations[0]
        return f"{count}, first: {first}"

    def adding(self, name: str, found: Findings) -> AuditReport:
        """Return the report with another comparison, and what it found."""
        count, violations = found
        return replace(
            self,
            violations=[*self.violations, *violations],
            checked={**self.checked, name: count},
        )

    def guarded(self, count: int, findings: tuple[Finding, ...]) -> AuditReport:
        """Return the report with what so many guards have found."""
        violations = [
            Violation(
                constraint="guards",
                subject=finding.guard,
                amount=1,
                unit="findings",
                sentence=str(finding),
            )
            for finding in findings
        ]
        report = self.adding("guards", (count, violations))
        return replace(report, findings=findings)

    @property
    def passed(self) -> bool:
        """True where nothing was found."""
        return not self.violations


def task_name(job: Job, task: int, iteration: int) -> str:
    """Return the name of (task, iteration)."""
    return f"{job.tasks[task].name}[{iteration}]"


def flow_name(job: Job, edge: int, iteration: int) -> str:
    """Return the name of (edge, iteration)."""
    return f"{job.edge_names[edge]}[{iteration}]"


def name_flows(
    job: Job,
    edges: Ints,
    iterations: Ints,
) -> Writer:
    """Return a function that names the flow of a row of edges and iterations."""

    def name(row: int) -> str:
        edge = int(edges[row])
        iteration = int(iterations[row])
        return flow_name(job, edge, iteration)

    return name


def list_beyond(
    constraint: str,
    off: Array,
    limit: Floats | float,
    name: Writer,
    words: Writer | str,
    unit: str = "s",
    values: Sequence[Array] = (),
) -> Findings:
    """Return how many values were compared, and a violation of each beyond its limit.

    ``off``: by how much each is off, in ``unit``; NaN is not: what is missing is named
    once. ``name`` and ``words``: what a value is of, and what is wrong there, by its
    position in ``off``; a text is filled in with ``values`` of that position.
    """
    violations = []
    # Words are found for the broken ones only: there may be millions.
    for position in map(tuple, np.argwhere(off > limit).tolist()):
        subject = name(*position)
        text = words if isinstance(words, str) else words(*position)
        if values:  # names of users may have braces of their own
            text = text.format(*(array[position] for array in values))

        violations.append(
            Violation(
                constraint=constraint,
                subject=subject,
                amount=off[position].item(),
                unit=unit,
                sentence=f"{subject} {text}",
            )
        )
    return off.size, violations


def list_where(
    constraint: str,
    is_wrong: Mask,
    name: Writer,
    words: str,
    unit: str,
    values: Sequence[Array] = (),
) -> Findings:
    """Return how many values were looked at, and a violation of each that is wrong.

    ``name``, ``words``, ``unit`` and ``values``: as for `list_beyond`. Amounts are 1.
    """
    off = is_wrong.astype(np.int64)
    return list_beyond(
        constraint,
        off,
        limit=0,
        name=name,
        words=words,
        unit=unit,
        values=values,
    )


#: Share by which a number may be off that was computed again: sums in another order.
EXACT = 1e-9
#: Differences that are named of one file: whoever has more mends these first.
_MOST = 50
#: Characters of a value that are shown.
_TOLD = 60


def differences(
    found: Any,
    wanted: Any,
    by: str,
    at: str = "",
) -> Iterator[str]:
    """Yield a sentence per value that differs, is missing, or should not be there.

    Parameters
    ----------
    found, wanted
        JSON values; lists and tuples are alike.
    by
        Name of what ``wanted`` follows from.
    at
        Where both are, for the sentences.
    """
    subject = at or "the whole"
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in {**wanted, **found}:  # in the order of what is wanted
            path = f"{at}.{key}".removeprefix(".")
            if key not in found:
                yield f"{path} is missing, {_tell(wanted[key])} by {by}"
            elif key not in wanted:
                yield f"{path} is {_tell(found[key])}, and no key by {by}"
            else:
                yield from differences(found[key], wanted[key], by, path)
    elif isinstance(wanted, list | tuple) and isinstance(found, list | tuple):
        if len(wanted) != len(found):
            # One item too few would make all behind it differ.
            count = format_count(len(found), "item")
            yield f"{subject} has {count}, {len(wanted)} by {by}"
            return

        pairs = zip(found, wanted, strict=True)
        for place, (found_item, wanted_item) in enumerate(pairs):
            yield from differences(found_item, wanted_item, by, f"{at}[{place}]")
    elif not _alike(found, wanted):
        yield f"{subject} is {_tell(found)}, {_tell(wanted)} by {by}"


def _alike(found: Any, wanted: Any) -> bool:
    if _is_number(found) and _is_number(wanted):
        try:
            return math.isclose(found, wanted, rel_tol=EXACT)
        except OverflowError:  # a whole number of JSON beyond a float
            return bool(found == wanted)
    # True equals 1 in Python, and is another value of JSON.
    return type(found) is type(wanted) and bool(found == wanted)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _tell(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _TOLD else f"{text[:_TOLD]}..."


def agreement(name: str, found: Any, wanted: Any, by: str) -> Findings:
    """Return how many values were compared, and those that differ, as violations.

    ``name``: file, which is the constraint that a difference breaks.
    """
    lines = [*islice(differences(found, wanted, by), _MOST)]
    return _count(wanted), [disagreement(name, sentence) for sentence in lines]


def disagreement(name: str, sentence: str) -> Violation:
    """Return the violation of a file that does not say what it should."""
    return Violation(
        constraint=name,
        subject=name,
        amount=1,
        unit="values",
        sentence=sentence,
    )


def _count(value: Any) -> int:
    if isinstance(value, dict | list | tuple):
        items = value.values() if isinstance(value, dict) else value
        return sum(map(_count, items))
    return 1
