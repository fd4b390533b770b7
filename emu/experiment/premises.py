"""Premises of an answer: machines, walk, seeds per step, length, settings, seeds.

Every output that ranks begins with one line of it, so that two numbers which differ
show in what.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Different walks that a line names.
_WALKS = 3


@dataclass(frozen=True)
class Premises:
    """Words on all that decides an answer beside the file, row and placement."""

    machines: str
    """Where it stands: ``on m0 alone``."""
    walk: str
    """``job.epoch``, and whether the file has it; empty without mini-batches."""
    seeds_per_step: int | None
    """None of jobs that train nothing."""
    length: str
    """Iterations, epochs or target."""
    seeds: tuple[int, ...]
    choice: str = ""
    """``held`` where machines were given, ``chosen`` where the fastest of several sets
    were; empty where they are as the file has them."""
    per_machine: bool = False
    """True where every machine has a worker, however many the file states."""
    settings: str = ""
    """Keys that are another than in the file."""
    grid: str = ""
    """Keys that were tried, and their values."""

    def line(self) -> str:
        """Return the premises in one line."""
        return premise_line([self])

    def to_figures(self) -> dict[str, str | int]:
        """Return what a record of a sweep has of them."""
        return {
            "machines": self.machines,
            "choice": self.choice,
            "walk": self.walk,
            "seeds_per_step": self.seeds_per_step or 0,
            "length": self.length,
        }

    @classmethod
    def from_figures(cls, figures: Mapping[str, Any], seed: int) -> Premises:
        """Return the premises of a row of such a record, with a seed."""
        return cls(
            machines=figures["machines"],
            choice=figures["choice"],
            walk=figures["walk"],
            seeds_per_step=figures["seeds_per_step"] or None,
            length=figures["length"],
            seeds=(seed,),
        )


def premise_line(premises: Sequence[Premises]) -> str:
    """Return the premises of several answers in one line.

    What all share is named; what differs is said to, and the rows show in what.
    """
    parts = [_line_of_machines(premises)]
    if any(one.per_machine for one in premises):
        parts.append("a worker per machine")
    walks = _distinct(one.walk for one in premises if one.walk)
    if walks:
        is_named = len(walks) <= _WALKS
        parts.append(f"walk: {' | '.join(walks) if is_named else 'each its own'}")
    counts = [one.seeds_per_step for one in premises if one.seeds_per_step]
    if counts:
        least = min(counts)
        most = max(counts)
        count = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        parts.append(f"{count} seeds per step")

    lengths = _distinct(one.length for one in premises)
    parts.append(" | ".join(lengths) if len(lengths) <= _WALKS else "lengths differ")
    settings = _distinct(one.settings for one in premises)
    parts.append(settings[0] if len(settings) == 1 else "settings of each row")
    parts += [grid for grid in _distinct(one.grid for one in premises) if grid]
    seeds = sorted({seed for one in premises for seed in one.seeds})
    is_one = len(seeds) == 1
    parts.append(f"seed {seeds[0]}" if is_one else f"seeds {seeds[0]} to {seeds[-1]}")
    return "; ".join(filter(None, parts))


def _line_of_machines(premises: Sequence[Premises]) -> str:
    where = _distinct(one.machines for one in premises)
    choices = _distinct(one.choice for one in premises)
    if len(where) > 1:
        return "each on its own machines" + (", some held" if "held" in choices else "")
    is_choice = choices in (["held"], ["chosen"])
    return f"{choices[0]}: {where[0]}" if is_choice else where[0]


def _distinct(texts: Any) -> list[str]:
    return [*dict.fromkeys(texts)]
