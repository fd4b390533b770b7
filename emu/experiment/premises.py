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
            # Records hold numbers and text alone, and no None.
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
    if any(premise.per_machine for premise in premises):
        parts.append("a worker per machine")
    # Systems of whole graphs have no walk: they add none to a line of both kinds.
    walks = [walk for walk in _distinct(premises, "walk") if walk]
    if len(walks) > _WALKS:
        walks = ["each its own"]
    if walks:
        all_walks = " | ".join(walks)
        parts.append(f"walk: {all_walks}")
    counts = [count for count in _distinct(premises, "seeds_per_step") if count]
    if counts:
        fewest = min(counts)
        most = max(counts)
        count = f"{fewest:,}"
        if len(counts) > 1:
            count += f" to {most:,}"
        parts.append(f"{count} seeds per step")

    lengths = _distinct(premises, "length")
    # Of many targets or lengths the rows themselves
    # are read: a line has no room for all.
    if len(lengths) > _WALKS:
        lengths = ["lengths differ"]
    parts.append(" | ".join(lengths))
    settings = _distinct(premises, "settings")
    # Two lists of keys in a row would read as one.
    if len(settings) > 1:
        settings = ["settings of each row"]
    parts += settings
    parts += _distinct(premises, "grid")

    seeds: set[int] = set()
    for premise in premises:
        seeds.update(premise.seeds)
    first = min(seeds)
    last = max(seeds)
    line = f"seeds {first} to {last}"
    if len(seeds) == 1:
        line = f"seed {min(seeds)}"
    parts.append(line)
    return "; ".join(filter(None, parts))


def _line_of_machines(premises: Sequence[Premises]) -> str:
    machines = _distinct(premises, "machines")
    choices = _distinct(premises, "choice")
    if len(machines) > 1:
        note = ", some held" if "held" in choices else ""
        return f"each on its own machines{note}"
    words: str = machines[0]
    # Where some were held and others chosen, neither word is true of all.
    if choices in (["held"], ["chosen"]):
        return f"{choices[0]}: {words}"
    return words


def _distinct(premises: Sequence[Premises], name: str) -> list[Any]:
    """Return the values of a field, each once, in the order of the premises."""
    return [*dict.fromkeys(getattr(premise, name) for premise in premises)]


def grid_words(key: str, values: Sequence[object]) -> str:
    """Return the values that were tried of a key: the least and the most of numbers."""
    name = key.removeprefix("job.").removeprefix("optimizer.")
    try:
        # Values that are alternatives of a file may be words or lists.
        numbers = sorted(float(str(value)) for value in values)
    except ValueError:
        return f"{name} tried {' | '.join(map(str, values))}"
    return f"{name} tried {numbers[0]:g} to {numbers[-1]:g}"
