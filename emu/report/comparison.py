"""One scenario in several ways, side by side: policies, placements, systems, points."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf, isinf
from typing import Any

from rich.table import Table

from emu.errors import EmulatorError
from emu.names import printable
from emu.prediction.analysis.throughput import Pace
from emu.prediction.placement.moves import Move
from emu.report.explanation_tables import placing_line
from emu.report.html.markup import table as html_of
from emu.report.many_runs import compare, interval, pair, write_pair
from emu.report.terminal import plain_table
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
    placing: Mapping[str, Any] | None = None
    """Method of its placement, see docs/results.md; None of a move or swap."""
    missed: tuple[str, ...] = ()
    """Lines of ``expect`` that a seed did not meet."""
    cost: Mapping[str, Any] | None = None
    """Its `Cost` with the first seed, None where nothing has a price."""
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

    def to_json(self, first: Candidate) -> dict[str, Any]:
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
            "moves": [asdict(move) for move in self.moves],
            "missed": list(self.missed),
        }


class Comparison(list[Candidate]):
    """Candidates side by side, the first of which the others are compared with."""

    def _repr_html_(self) -> str:
        """Return the table of `comparison_table`, for notebooks."""
        return html_of(comparison_table(self)) if self else repr(self)


def _seconds(makespans: Mapping[Any, float]) -> tuple[str, str]:
    """Return the mean and half of its interval, nothing for one value alone."""
    if not makespans:
        return "refused", ""
    span = interval([*makespans.values()])
    half = format_duration(span.half) if span.half else ""
    return format_duration(span.mean, 6), half


def _change(one: Candidate | SystemResult, first: Candidate | SystemResult) -> str:
    return write_pair(pair(one.makespans, first.makespans))


def _price(candidate: Candidate) -> tuple[str, str]:
    """Return the cost and the value of a candidate, empty where it has none."""
    if not candidate.cost:
        return "", ""
    total, value = candidate.cost["total"], candidate.cost["value"]
    return format_money(total), "" if value is None else f"{value:.4g}"


#: Moves that are listed below the table; beyond, only their number is shown.
_LISTED = 6


def _equal(one: Candidate, first: Candidate) -> bool:
    """Return True where two makespans are closer than rounding moves either."""
    return 0 < abs(one.makespan - first.makespan) < max(one.rounding, first.rounding)


def _no_different(one: Candidate, first: Candidate) -> str:
    shift = format_duration(max(one.rounding, first.rounding))
    return f"{one.name}: as good as the first row, rounding alone moves it by {shift}"


def comparison_table(candidates: Sequence[Candidate], job: str = "") -> Table:
    """Return one row per candidate; the change is against the first, seed by seed.

    Parameters
    ----------
    job
        What job it was, in a line.
    """
    with_cost = any(one.cost for one in candidates)
    table = plain_table(
        f"Simulated, {job}" if job else "Simulated",
        "placement",
        "policy",
        ">makespan",
        ">± (95 %)",
        ">change",
        ">bytes moved",
        ">tasks moved",
        *(_PRICES.values() if with_cost else []),
    )
    best = min((one.makespan for one in candidates), default=0.0)
    for candidate in candidates:
        table.add_row(
            candidate.placement,
            candidate.policy,
            *_seconds(candidate.makespans),
            _change(candidate, candidates[0]),
            *([] if candidate.refused else [f"{candidate.moved:.0%}"]),
            *([] if candidate.refused else [str(len(candidate.moves))]),
            *(_price(candidate) if with_cost else ()),
            style="bold" if candidate.makespan == best else "",
        )
    first = candidates[0] if candidates else None
    table.caption = "\n".join(
        [
            f"{candidate.placement}: {', '.join(map(str, candidate.moves))}"
            for candidate in candidates
            if 0 < len(candidate.moves) <= _LISTED
        ]
        + [
            _no_different(one, first)
            for one in candidates
            if first and _equal(one, first)
        ]
        + [f"{one.name}: {reason(one.refused)}" for one in candidates if one.refused]
        + _rule_of_placements(candidates)
    )
    return table


def _rule_of_placements(candidates: Sequence[Candidate]) -> list[str]:
    """Return a line on the rule that placements were searched under, if any was."""
    by_search = any(one.placing and one.placing["candidates"] for one in candidates)
    if any(one.kept for one in candidates):
        return [f"each placement is that of {candidates[0].policy}, for all policies"]
    several = len({one.policy for one in candidates}) > 1
    return ["each row is placed under its own policy"] if by_search and several else []


@dataclass(frozen=True)
class SystemResult:
    """Simulated results of one system."""

    system: str
    makespans: Mapping[int, float] = field(default_factory=dict)
    """Seconds by seed; none where it was refused."""
    limit: str = ""
    """Cause of most of the critical path, with its share; of the first seed."""
    busiest_link: float = 0.0
    """Seconds that the bytes of the busiest link take at its capacity: the
    makespan by first principles where the network is the limit."""
    seeds: int = 0
    """Per iteration, of all workers."""
    paces: Mapping[int, Pace] = field(default_factory=dict)
    """Its speed, by seed."""
    placing: Mapping[str, Any] = field(default_factory=dict)
    """Method of its tasks' placement, see docs/results.md."""
    edits: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    """Key of the scenario -> what the file has, and what this system has."""
    missed: tuple[str, ...] = ()
    """Expectations of the scenario that the first seed misses."""
    scenarios: Mapping[int, Scenario] = field(default_factory=dict)
    """By seed, what ``emu simulate`` finds the same of."""
    refused: EmulatorError | None = None
    """The reason why there are no makespans."""

    @property
    def name(self) -> str:
        """Name of the row."""
        return self.system

    @property
    def iteration_seconds(self) -> float:
        """Mean over the seeds."""
        seconds = [pace.iteration_seconds for pace in self.paces.values()]
        return interval([one for one in seconds if one is not None]).mean

    @property
    def samples_per_second(self) -> float:
        """Mean over the seeds; infinite where iterations take no time."""
        each = [p.samples_per_second or inf for p in self.paces.values()]
        return sum(each) / len(each)

    @property
    def makespan(self) -> float:
        """Mean over the seeds, seconds."""
        return interval([*self.makespans.values()]).mean

    def to_json(self, first: SystemResult) -> dict[str, Any]:
        """Return the fields by name; ``change`` is against the first, seed by seed."""
        if self.refused:
            return {"system": self.system, "refused": reason(self.refused)}
        pace = self.samples_per_second
        return {
            "system": self.system,
            **compare(self.makespans, first.makespans),
            "seeds_per_iteration": self.seeds,
            "iteration_seconds": self.iteration_seconds,
            "samples_per_second": None if isinf(pace) else pace,
            "limit": self.limit,
            "placing": dict(self.placing),
            "busiest_link": self.busiest_link,
            "edits": {key: [*both] for key, both in self.edits.items()},
        }


@dataclass(frozen=True)
class Side:
    """Both systems at one value of the key."""

    value: Any
    results: tuple[SystemResult, SystemResult]

    @property
    def best(self) -> str:
        """The system of more seeds per second; the first where both have as many."""
        one, other = self.results
        ahead = one.samples_per_second >= other.samples_per_second
        return one.system if ahead else other.system


@dataclass(frozen=True)
class Crossover:
    """Change of the better of two systems along one key."""

    key: str
    below: Side
    above: Side
    """Next to each other where the best changes between them; the ends of the range
    where it does not."""
    estimate: Any | None
    """Value where the busiest link has as much to carry in both systems, which is what
    first principles say; None where that is nowhere in the range."""
    simulations: int
    """Carried out."""

    @property
    def found(self) -> bool:
        """True where the best changes."""
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
    """Return one row per system; the change is against the first not refused."""
    table = plain_table(
        "Simulated", "system", ">makespan", ">± (95 %)", ">change", ">iteration",
        ">seeds", ">seeds per s", "limited by",
    )  # fmt: skip
    first = next(result for result in results if not result.refused)
    for result in results:
        if result.refused:
            table.add_row(result.system, *_seconds({}))
            continue
        table.add_row(
            result.system,
            *_seconds(result.makespans),
            _change(result, first),
            format_duration(result.iteration_seconds),
            f"{result.seeds:,}",
            format_number(result.samples_per_second, 4),
            result.limit,
        )
    return table


def ranking(results: Sequence[SystemResult]) -> str:
    """Return which system is how much faster, by seeds per second, in one sentence."""
    results = [result for result in results if not result.refused]
    best, *others = sorted(results, key=lambda r: -r.samples_per_second)
    parts = []
    for other in others:
        even = best.samples_per_second == other.samples_per_second  # also infinite
        ratio = 1.0 if even else best.samples_per_second / other.samples_per_second
        times = f"{ratio:.2f}"
        fast = "as fast as" if times == "1.00" else f"{times} x as fast as"
        parts.append(f"{fast} {other.system}")
    line = f"By seeds per second {best.system} is {', '.join(parts)} here."
    least, most = (choose(r.seeds for r in results) for choose in (min, max))
    how = "as many" if least == most else f"{least:,} to {most:,}"
    return f"{line} All train on {how} seeds per iteration." if others else ""


def edit_lines(result: SystemResult) -> list[str]:
    """Return lines on a system's placement and each key that the file has otherwise."""

    def show(value: Any) -> str:
        return json.dumps(value) if isinstance(value, list) else str(value)

    if result.refused:
        return [f"{result.system}: {reason(result.refused)}"]
    lines = [f"{result.system}: {placing_line(result.placing)}"]
    for key, (before, after) in sorted(result.edits.items()):
        if before is None:
            change = f"added {key}: {show(after)}"
        elif after is None:
            change = f"dropped {key} (was {show(before)})"
        else:
            change = f"{key}: {show(after)} (was {show(before)})"
        lines.append(f"{result.system}: {change}")
    return lines


def crossover_table(found: Crossover) -> Table:
    """Return both systems on both sides of a crossover, or at the ends of the range."""
    columns = ("system", ">seeds per s", "limited by", ">busiest link")
    below, above = found.below, found.above
    if not found.found:
        text = f"{below.best} is faster from {below.value} to {above.value}"
    else:
        text = (
            f"{below.best} is faster up to {below.value}, "
            f"{above.best} from {above.value}"
        )
    table = plain_table(f"{text}, by seeds per second", found.key, *columns)
    for side in (found.below, found.above):
        for result in side.results:
            table.add_row(
                str(side.value),
                result.system,
                format_number(result.samples_per_second, 4),
                result.limit,
                format_duration(result.busiest_link),
                style="bold" if result.system == side.best else "",
            )
    text = "nowhere in the range" if found.estimate is None else f"at {found.estimate}"
    table.caption = (
        f"first principles: the busiest link has as much to carry in both {text}; "
        f"{found.simulations} simulations"
    )
    return table


#: Figures of points on machines with prices, and their columns.
_PRICES = {"cost": ">cost", "value": ">value / (s $)"}
#: Figures of emulated points, and their columns.
_ERRORS = {"makespan_error": ">makespan error", "replay_error": ">replay error"}


def sweep_table(rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> Table:
    """Return mean, 95 % interval and number of seeds of the makespan, best in bold.

    Every combination is compared with the best, seed by seed: a difference within its
    own 95 % interval is a tie. Where not all train on as many samples, how many a
    second are shown: the shortest may be the one that does least.

    Parameters
    ----------
    rows
        Of a `SweepRecord`, at least one.
    keys
        The varied keys.
    """
    groups: dict[tuple[str, ...], dict[Any, Mapping[str, Any]]] = {}
    for row in rows:
        group = tuple(str(row["values"][key]) for key in keys)
        groups.setdefault(group, {})[row["values"]["seed"]] = row["figures"]
    errors = [k for k in _ERRORS if all(k in row["figures"] for row in rows)]
    columns = [*keys, ">makespan", ">± (95 %)", ">seeds", ">against the best"]
    columns += [">samples per s"] * (uneven := _train_apart(rows))
    prices = _PRICES if any("cost" in row["figures"] for row in rows) else {}
    more = [*(_ERRORS[key] for key in errors), *prices.values()]
    table = plain_table("", *columns, *more)
    makespans = {
        group: {
            seed: float(figures["makespan"]) for seed, figures in value_interval.items()
        }
        for group, value_interval in groups.items()
    }
    means = {
        group: interval([*value_interval.values()])
        for group, value_interval in makespans.items()
    }
    best = min(means, key=lambda group: means[group].mean)
    for group, value_interval in means.items():
        cells = [*group, *_seconds(makespans[group]), str(value_interval.count)]
        beside = pair(makespans[group], makespans[best])
        cells.append("" if group == best else write_pair(beside))
        if uneven:
            speeds = [f["samples_per_second"] for f in groups[group].values()]
            cells.append(format_number(interval(speeds).mean, 4))
        for key in errors:
            mean = interval([float(f[key]) for f in groups[group].values()]).mean
            cells.append(format_ratio(mean))
        for key in prices:
            values_known = [float(f[key]) for f in groups[group].values() if key in f]
            mean = interval(values_known).mean if values_known else inf
            cell = format_money(mean) if key == "cost" else f"{mean:.4g}"
            cells.append(cell if values_known else "")
        table.add_row(*cells, style="bold" if group == best else "")
    return table


def _train_apart(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether points train on numbers of samples that are known and differ."""
    figures = [row["figures"] for row in rows]
    is_complete = all("samples_per_second" in one for one in figures)
    return is_complete and len({one["samples"] for one in figures}) > 1
