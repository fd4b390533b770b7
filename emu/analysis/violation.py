"""One broken constraint, and the names of what can break one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

if TYPE_CHECKING:
    from emu.problem import Job

#: How much was compared, and what of it was broken.
Findings = tuple[int, list["Violation"]]


@dataclass(frozen=True)
class Violation:
    """One broken constraint.

    Parameters
    ----------
    constraint
        Number in the paper, ``(10)``.
    subject
        What broke it: a task, a flow or a port, by name and iteration.
    amount
        By how much, in ``unit``.
    unit
        ``s``, ``B`` or ``B/s``; ``iterations`` for something missing, ``values`` for
        what is no number.
    sentence
        The violation in words.
    """

    constraint: str
    subject: str
    amount: float
    unit: str
    sentence: str

    @override
    def __str__(self) -> str:
        """Return constraint, sentence and amount in one line."""
        return f"{self.constraint} {self.sentence}: {self.amount:g} {self.unit}"


def task_name(job: Job, task: int, iteration: int) -> str:
    """Return the name of (task, iteration)."""
    return f"{job.tasks[task].name}[{iteration}]"


def flow_name(job: Job, edge: int, iteration: int) -> str:
    """Return the name of (edge, iteration)."""
    return f"{job.edge_names[edge]}[{iteration}]"
