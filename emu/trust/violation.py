"""Violations of constraints, findings of guards, and the report of an audit."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

if TYPE_CHECKING:
    from emu.problem import Job

#: Number of comparisons, and the violations among them.
Findings = tuple[int, list["Violation"]]


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
        return f"{self.constraint} {self.sentence}: {self.amount:g} {self.unit}"


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

    def to_json(self) -> dict[str, Any]:
        """Return the form of result.json: ``at`` is None for the run as a whole."""
        return asdict(self) | {"at": None if np.isnan(self.at) else self.at}


@dataclass(frozen=True)
class AuditReport:
    """Violations and findings of an audit."""

    violations: list[Violation]
    """Everything beyond the tolerance, in the order of the constraints."""
    checked: dict[str, int] = field(default_factory=dict)
    """Number of comparisons that each constraint took part in."""
    findings: tuple[Finding, ...] = ()
    """Findings of the guards of an emulated run."""

    @override
    def __repr__(self) -> str:
        """Return the number of comparisons, and the first violation."""
        found = "no violation"
        if self.violations:
            found = f"{len(self.violations)} violations, first: {self.violations[0]}"
        return f"<AuditReport: {sum(self.checked.values())} comparisons, {found}>"

    def adding(self, name: str, found: Findings) -> AuditReport:
        """Return the report with another comparison, and what it found."""
        checked, violations = found
        return replace(
            self,
            violations=[*self.violations, *violations],
            checked={**self.checked, name: checked},
        )

    @property
    def passed(self) -> bool:
        """True where nothing was found."""
        return not (self.violations or self.findings)


def task_name(job: Job, task: int, iteration: int) -> str:
    """Return the name of (task, iteration)."""
    return f"{job.tasks[task].name}[{iteration}]"


def flow_name(job: Job, edge: int, iteration: int) -> str:
    """Return the name of (edge, iteration)."""
    return f"{job.edge_names[edge]}[{iteration}]"
