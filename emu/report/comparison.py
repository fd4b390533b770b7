"""One scenario in several ways, side by side: policies, placements, a sweep."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf
from typing import Any

from rich.table import Table

from emu.errors import EmulatorError
from emu.names import printable
from emu.prediction.placement.moves import Move
from emu.report.html.markup import table as html_of
from emu.report.many_runs import compare, write_pair
from emu.report.terminal import plain_table
from emu.runs.intervals import interval, pair
from emu.runs.result import Result, Row
from emu.scenario import Scenario
from emu.units import format_duration, format_money, format_number, format_ratio


def reason(error: EmulatorError) -> str:
    """Return why a row was refused, in one line."""
    return printable(getattr(error, "problem", str(error)).partition("\n")[0])


@dataclass(frozen=True)
class Candidate:
    """One row of a comparison."""

    placement: str
    policy: str
    makespans: Mapping[int, float] = field(default_factory=dict)
    """Seconds by seed, of one or more seeds; none where it was refused."""
    moved: float = 0.0
    """Share of the bytes that crossed between machines, with the first seed."""
    moves: tuple[Move, ...] = ()
    """Tasks that stand elsewhere than in the scenario as it is, likewise."""
    placing: Row | None = None
    """Method of its placement, see docs/results.md; None of a move or swap."""
    missed: tuple[str, ...] = ()
    """Lines of ``expect`` that a seed did not meet."""
    cost: Row | None = None
    """Its `Cost` with the first seed, None where nothing has a price."""
    coflows: Mapping[str, float] | None = None
    """Times of its named coflows, as `CoflowTimes.to_json`, likewise."""
    rounding: float = 0.0
    """Seconds by which the last digits of times and volumes move it, likewise."""
    scenarios: Mapping[int, Scenario] = field(default_factory=dict)
    """By seed, what ``emu simulate`` finds the same of."""
    kept: bool = False
    """True where the placement is that of the first row's rule, whatever its own."""
    refused: EmulatorError | None = None
    """The reason why there are no makespans."""

    @property
    def name(self) -> str:
        """Placement and policy."""
        return f"{self.placement}, {self.policy}"

    @property
    def makespan(self) -> float:
        """Mean over the seeds, seconds; infinite where it was refused."""
        return inf if self.refused else interval([*self.makespans.values()]).mean

    def beside(self, other: Candidate) -> Candidate:
        """Return the candidate with the makespans of other seeds as well."""
        return replace(
            self,
            makespans={**self.makespans, **other.makespans},
            scenarios={**self.scenarios, **other.scenarios},
            missed=(*self.missed, *other.missed),
            refused=self.refused or other.refused,
        )

    def to_json(self, first: Candidate) -> Result:
        """Return the fields by name, in seconds and shares.

        ``change`` is against the first candidate, the mean of the seeds' changes; with
        half the width of its 95 % interval, and whether that holds 0.
        """
        names = {"placement": self.placement, "policy": self.policy}
        if self.refused:
            return {**names, "refused": reason(self.refused)}
        return {
            **names,
            **compare(self.makespans, first.makespans),
            "placing": self.placing,
            "placement_kept": self.kept,
            "moved": self.moved,
            "rounding": self.rounding,
            **({"cost": dict(self.cost)} if self.cost else {}),
            **({"coflows": dict(self.coflows)} if self.coflows else {}),
            "moves": [asdict(move) for move in self.moves],
            "missed": list(self.missed),
        }


class Comparison(list[Candidate]):
    """Candidates side by side, the first of which the others are compared with."""

    def _repr_html_(self) -> str:
        """Return the tables of `comparison_tables`, for notebooks."""
        return "".join(map(html_of, comparison_tables(self))) if self else repr(self)


def write_makespans(makespans: Mapping[Any, float]) -> tuple[str, str]:
    """Return the mean and half of its interval, nothing for one value alone."""
    if not makespans:
        return "refused", ""
    span = interval([*makespans.values()])
    half = format_duration(span.half) if span.half else ""
    return format_duration(span.mean, 6), half


#: Moves that are listed below the table; beyond, only their number is shown.
_LISTED = 6


def comparison_table(candidates: Sequence[Candidate], job: str = "") -> Table:
    """Return one row per candidate; the change is against the first, seed by seed.

    ``job`` says in a line what it was.
    """
    columns = *COLUMNS, ">bytes moved", ">tasks moved"
    title = f"Simulated, {job}" if job else "Simulated"
    table = plain_table(title, "placement", "policy", *columns)
    best = min((one.makespan for one in candidates), default=0.0)
    for one in candidates:
        cells = [one.placement, one.policy, *write_makespans(one.makespans)]
        cells.append(write_pair(pair(one.makespans, candidates[0].makespans)))
        if not one.refused:
            cells += [f"{one.moved:.0%}", str(len(one.moves))]
        table.add_row(*cells, style="bold" if one.makespan == best else "")
    table.caption = "\n".join(_notes_on(candidates))
    return table


def coflow_line(times: Mapping[str, float]) -> str:
    """Return `CoflowTimes.to_json` in a line."""
    mean, most = (format_duration(times[key], 4) for key in ("mean", "p95"))
    line = f"{times['count']:,} coflows: {mean} on average, 95 % within {most}"
    return f"{line}, {times['slowdown']:.4g} times as long as alone"


def comparison_tables(
    candidates: Sequence[Candidate], job: str = ""
) -> Iterator[Table]:
    """Yield `comparison_table`, costs, and how long coflows take that have a name."""
    yield comparison_table(candidates, job)
    if paid := [one for one in candidates if one.cost]:
        yield _cost_table(paid)
    columns = (">coflows", ">mean", ">95 % within", ">slowdown")
    title = "Coflows; slowdown: over the time that one takes alone"
    table = plain_table(title, "placement", "policy", *columns)
    rows = [(one, one.coflows) for one in candidates if one.coflows]
    least = min((times["mean"] for _, times in rows), default=0.0)
    for one, times in rows:
        seconds = (format_duration(times[key], 4) for key in ("mean", "p95"))
        cells = [f"{times['count']:,}", *seconds, f"{times['slowdown']:.3f}"]
        style = "bold" if times["mean"] == least else ""
        table.add_row(one.placement, one.policy, *cells, style=style)
    if rows:
        yield table


def _cost_table(candidates: Sequence[Candidate]) -> Table:
    """Return what each costs; the table of makespans has no room for it."""
    table = plain_table("Cost", "placement", "policy", *_PRICES.values())
    for one in candidates:
        cost = one.cost or {}
        value = "" if cost["value"] is None else f"{cost['value']:.4g}"
        cells = format_money(cost["total"]), value
        table.add_row(one.placement, one.policy, *cells)
    return table


def _notes_on(candidates: Sequence[Candidate]) -> Iterator[str]:
    """Yield moves, ties by rounding, refusals, and the rule placements are by."""
    first = candidates[0]
    for one in candidates:
        if 0 < len(one.moves) <= _LISTED:
            yield f"{one.placement}: {', '.join(map(str, one.moves))}"
    for one in candidates:
        shift = max(one.rounding, first.rounding)
        if 0 < abs(one.makespan - first.makespan) < shift:
            least = f"rounding alone moves it by {format_duration(shift)}"
            yield f"{one.name}: as good as the first row, {least}"
    for one in candidates:
        if one.refused:
            yield f"{one.name}: {reason(one.refused)}"
    by_search = any(one.placing and one.placing["candidates"] for one in candidates)
    if any(one.kept for one in candidates):
        yield f"each placement is that of {first.policy}, for all policies"
    elif by_search and len({one.policy for one in candidates}) > 1:
        yield "each row is placed under its own policy"


#: Columns of simulated makespans.
COLUMNS = (">makespan", ">± (95 %)", ">change")
#: Figures of points on machines with prices, and their columns.
_PRICES = {"cost": ">cost", "value": ">value / (s $)"}
#: Figures of emulated points, and their columns.
_ERRORS = {"makespan_error": ">makespan error", "replay_error": ">replay error"}
_FIGURES = {"samples_per_second": ">samples per s", **_ERRORS, **_PRICES}


def sweep_table(rows: Sequence[Row], keys: Sequence[str]) -> Table:
    """Return mean, 95 % interval and number of seeds of the makespan, best in bold.

    Every combination is compared with the best, seed by seed: a difference within its
    own 95 % interval is a tie. Where not all train on as many samples, how many a
    second are shown: the shortest may be the one that does least.

    ``rows`` are those of a `SweepRecord`, at least one; ``keys`` vary.
    """
    makespans = defaultdict[tuple[str, ...], dict[Any, float]](dict)
    groups = defaultdict[tuple[str, ...], list[Row]](list)
    for row in rows:
        group, seed = tuple(str(row["values"][k]) for k in keys), row["values"]["seed"]
        makespans[group][seed] = float(row["figures"]["makespan"])
        groups[group].append(row["figures"])
    every = [row["figures"] for row in rows]
    uneven = all("samples_per_second" in one for one in every) and (
        len({one["samples"] for one in every}) > 1
    )
    # Figures that have a column, by how their mean is written.
    figures: dict[str, Callable[[float], str]] = {}
    if uneven:
        figures["samples_per_second"] = lambda mean: format_number(mean, 4)
    figures |= {k: format_ratio for k in _ERRORS if all(k in one for one in every)}
    if any("cost" in one for one in every):
        figures |= {"cost": format_money, "value": "{:.4g}".format}
    columns = [*keys, ">makespan", ">± (95 %)", ">seeds", ">against the best"]
    table = plain_table("", *columns, *(_FIGURES[key] for key in figures))
    best = min(makespans, key=lambda group: interval([*makespans[group].values()]).mean)
    for group, by_seed in makespans.items():
        beside = "" if group == best else write_pair(pair(by_seed, makespans[best]))
        cells = [*group, *write_makespans(by_seed), str(len(by_seed)), beside]
        for key, write in figures.items():
            values = [float(one[key]) for one in groups[group] if key in one]
            cells.append(write(interval(values).mean) if values else "")
        table.add_row(*cells, style="bold" if group == best else "")
    return table
