"""One scenario as several systems, and where the better one changes, as tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from emu.report.statistics import compared, interval, paired, paired_text
from emu.report.terminal import plain_table
from emu.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table


@dataclass(frozen=True)
class SystemResult:
    """What one system is simulated to take.

    Parameters
    ----------
    makespans
        Seconds by seed.
    limit
        What holds back most of the critical path, with its share; of the first seed.
    busiest_link
        Seconds that the bytes of the busiest link take at its capacity: what first
        principles say of the makespan where the network is the limit.
    """

    system: str
    makespans: Mapping[int, float]
    limit: str
    busiest_link: float

    @property
    def makespan(self) -> float:
        """Mean over the seeds, seconds."""
        return interval([*self.makespans.values()]).mean

    def to_json(self, first: SystemResult) -> dict[str, Any]:
        """Return the fields by name; ``change`` is against the first, seed by seed."""
        return {
            "system": self.system,
            **compared(self.makespans, first.makespans),
            "limit": self.limit,
            "busiest_link": self.busiest_link,
        }


@dataclass(frozen=True)
class Side:
    """Both systems at one value of the key."""

    value: Any
    results: tuple[SystemResult, SystemResult]

    @property
    def best(self) -> str:
        """The system that takes less time; the first where both take the same."""
        one, other = self.results
        return one.system if one.makespan <= other.makespan else other.system


@dataclass(frozen=True)
class Crossover:
    """Where the better of two systems changes.

    Parameters
    ----------
    below, above
        Next to each other where the best changes between them; the ends of the range
        where it does not.
    estimate
        Value where the busiest link has as much to carry in both systems, which is what
        first principles say; None where that is nowhere in the range.
    simulations
        Carried out.
    """

    key: str
    below: Side
    above: Side
    estimate: Any | None
    simulations: int

    @property
    def found(self) -> bool:
        """Whether the best changes."""
        return self.below.best != self.above.best

    def to_json(self) -> dict[str, Any]:
        """Return the documented form; seconds."""
        return {
            "key": self.key,
            "found": self.found,
            "estimate": self.estimate,
            "simulations": self.simulations,
            "sides": [
                {
                    "value": side.value,
                    "best": side.best,
                    "systems": [
                        result.to_json(side.results[0]) for result in side.results
                    ],
                }
                for side in (self.below, self.above)
            ],
        }


def systems_table(results: Sequence[SystemResult]) -> Table:
    """Return one row per system; the change is against the first, seed by seed."""
    table = plain_table(
        "Simulated", "system", ">makespan", ">± (95 %)", ">change", "limited by",
        ">busiest link",
    )  # fmt: skip
    for result in results:
        spread = interval([*result.makespans.values()])
        table.add_row(
            result.system,
            format_duration(spread.mean, 6),
            format_duration(spread.half) if spread.half else "",
            paired_text(paired(result.makespans, results[0].makespans)),
            result.limit,
            format_duration(result.busiest_link),
        )
    return table


def crossover_table(found: Crossover) -> Table:
    """Return both systems on both sides of a crossover, or at the ends of the range."""
    table = plain_table(
        headline(found), found.key, "system", ">makespan", "limited by", ">busiest link"
    )
    for side in (found.below, found.above):
        for result in side.results:
            table.add_row(
                str(side.value),
                result.system,
                format_duration(result.makespan, 6),
                result.limit,
                format_duration(result.busiest_link),
                style="bold" if result.system == side.best else "",
            )
    said = "nowhere in the range" if found.estimate is None else f"at {found.estimate}"
    table.caption = (
        f"first principles: the busiest link has as much to carry in both {said}; "
        f"{found.simulations} simulations"
    )
    return table


def headline(found: Crossover) -> str:
    """Return where the better system changes, in one sentence."""
    below, above = found.below, found.above
    if not found.found:
        return f"{below.best} is faster from {below.value} to {above.value}"
    return (
        f"{below.best} is faster up to {below.value}, {above.best} from {above.value}"
    )
