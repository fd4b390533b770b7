"""One scenario in several ways, side by side: policies, placements, systems, points."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf, isinf
from typing import Any

from rich.table import Table

from emu.errors import EmulatorError
from emu.names import printable
from emu.prediction.analysis.throughput import Pace
from emu.prediction.placement.moves import Move
from emu.report.explanation_tables import placing_line, setup_row
from emu.report.html.markup import table as html_of
from emu.report.many_runs import compare, interval, pair, write_pair
from emu.report.terminal import plain_table
from emu.runs.result import Result, Row
from emu.scenario import Scenario
from emu.training.looks import Look
from emu.units import (
    format_duration,
    format_money,
    format_number,
    format_ratio,
    format_size,
)


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


#: Moves that are listed below the table; beyond, only their number is shown.
_LISTED = 6


def comparison_table(candidates: Sequence[Candidate], job: str = "") -> Table:
    """Return one row per candidate; the change is against the first, seed by seed.

    ``job`` says in a line what it was.
    """
    with_cost = any(one.cost for one in candidates)
    columns = [*_COLUMNS, ">bytes moved", ">tasks moved"]
    columns += _PRICES.values() if with_cost else ()
    title = f"Simulated, {job}" if job else "Simulated"
    table = plain_table(title, "placement", "policy", *columns)
    best = min((one.makespan for one in candidates), default=0.0)
    for one in candidates:
        cells = [one.placement, one.policy, *_seconds(one.makespans)]
        cells.append(_change(one, candidates[0]))
        if not one.refused:
            cells += [f"{one.moved:.0%}", str(len(one.moves))]
        if one.cost:
            value = one.cost["value"]
            cells.append(format_money(one.cost["total"]))
            cells.append("" if value is None else f"{value:.4g}")
        table.add_row(*cells, style="bold" if one.makespan == best else "")
    table.caption = "\n".join(_notes_on(candidates))
    return table


def _notes_on(candidates: Sequence[Candidate]) -> Iterator[str]:
    """Yield moves, ties by rounding, refusals, and the rule placements are by."""
    for one in candidates:
        if 0 < len(one.moves) <= _LISTED:
            yield f"{one.placement}: {', '.join(map(str, one.moves))}"
    for one in candidates:
        first = candidates[0]
        shift = max(one.rounding, first.rounding)
        if 0 < abs(one.makespan - first.makespan) < shift:
            least = f"rounding alone moves it by {format_duration(shift)}"
            yield f"{one.name}: as good as the first row, {least}"
    for one in candidates:
        if one.refused:
            yield f"{one.name}: {reason(one.refused)}"
    by_search = any(one.placing and one.placing["candidates"] for one in candidates)
    if any(one.kept for one in candidates):
        yield f"each placement is that of {candidates[0].policy}, for all policies"
    elif by_search and len({one.policy for one in candidates}) > 1:
        yield "each row is placed under its own policy"


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
    """Per iteration, of all workers; on the whole graph all training vertices."""
    train: int = 0
    """Training vertices."""
    paces: Mapping[int, Pace] = field(default_factory=dict)
    """Its speed, by seed."""
    placing: Row = field(default_factory=dict)
    """Method of its tasks' placement, see docs/results.md."""
    edits: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    """Key of the scenario -> what the file has, and what this system has."""
    missed: tuple[str, ...] = ()
    """Expectations of the scenario that the first seed misses."""
    scenarios: Mapping[int, Scenario] = field(default_factory=dict)
    """By seed, what ``emu simulate`` finds the same of."""
    moved: float = 0.0
    """Bytes between machines, with the first seed."""
    cost: Row | None = None
    """Its `Cost` with the first seed, None where nothing has a price."""
    looks: Mapping[int, Look] = field(default_factory=dict)
    """By seed, when the target was reached that it trained to."""
    everywhere: float | None = None
    """Seconds on all machines, with the first seed, where it chose others."""
    setup: Row = field(default_factory=dict)
    """Bytes and seconds before time 0 of the first seed, see docs/results.md."""
    refused: EmulatorError | None = None
    """The reason why there are no makespans."""

    @property
    def name(self) -> str:
        """Name of the row."""
        return self.system

    @property
    def epoch_seconds(self) -> float:
        """Mean over the seeds of a training set's time at this speed."""
        return self.train / self.samples_per_second

    @property
    def steps(self) -> float:
        """Mean over the seeds, to the target."""
        return sum(look.step for look in self.looks.values()) / len(self.looks)

    @property
    def iteration_seconds(self) -> float:
        """Mean over the seeds."""
        seconds = [pace.iteration_seconds for pace in self.paces.values()]
        return interval([one for one in seconds if one is not None]).mean

    @property
    def samples_per_second(self) -> float:
        """Mean over the seeds; infinite where iterations take no time."""
        each = [
            self.seeds / p.iteration_seconds if p.iteration_seconds else inf
            for p in self.paces.values()
        ]
        return sum(each) / len(each)

    @property
    def makespan(self) -> float:
        """Mean over the seeds, seconds."""
        return interval([*self.makespans.values()]).mean

    def to_json(self, first: SystemResult) -> Result:
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
            "bytes": self.moved,
            "cost": self.cost,
            "setup": dict(self.setup),
            "edits": {key: [*both] for key, both in self.edits.items()},
            **self._target_json(),
        }

    def _target_json(self) -> Result:
        if not self.looks:
            return {}
        return {
            "reached": {seed: look._asdict() for seed, look in self.looks.items()},
            "epoch_seconds": self.epoch_seconds,
            "all_machines": self.everywhere,
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

    def to_json(self) -> Result:
        """Return the documented form; seconds."""
        sides = [
            {
                "value": side.value,
                "best": side.best,
                "systems": [one.to_json(side.results[0]) for one in side.results],
            }
            for side in (self.below, self.above)
        ]
        names = ("key", "found", "estimate", "simulations")
        return {**{name: getattr(self, name) for name in names}, "sides": sides}


def systems_table(results: Sequence[SystemResult]) -> Table:
    """Return one row per system; the change is against the first not refused."""
    columns = [*_COLUMNS, ">setup", ">iteration", ">seeds", ">seeds per s"]
    columns.append("limited by")
    table = plain_table("Simulated", "system", *columns)
    first = next(result for result in results if not result.refused)
    for result in results:
        if result.refused:
            table.add_row(result.system, *_seconds({}))
            continue
        table.add_row(
            result.system,
            *_seconds(result.makespans),
            _change(result, first),
            format_duration(result.setup["seconds"]),
            format_duration(result.iteration_seconds),
            f"{result.seeds:,}",
            format_number(result.samples_per_second, 4),
            result.limit,
        )
    return table


def target_table(results: Sequence[SystemResult], target: str) -> Table:
    """Return one row per system that was trained to a target, the fastest first.

    ``target`` is in words.
    """
    reached = [result for result in results if not result.refused]
    priced = [">cost"] if any(result.cost for result in reached) else []
    several = [">±"] if any(len(one.makespans) > 1 for one in reached) else []
    table = plain_table(
        f"Simulated, to {target}",
        *("system", ">on", ">time", *several, ">on all", ">steps", ">per epoch"),
        *(">bytes", ">setup", *priced, "limited by"),
    )
    for one in sorted(reached, key=lambda one: one.makespan):
        every = "" if one.everywhere is None else format_duration(one.everywhere, 3)
        paid = [format_money(one.cost["total"]) if one.cost else ""] if priced else []
        own = interval([*one.makespans.values()])
        spread = [format_duration(own.half, 3) if own.count > 1 else ""]
        table.add_row(
            one.system,
            f"{len(one.placing['machines'])} of {one.placing['machines_in_all']}",
            format_duration(own.mean),
            *(spread if several else ()),
            every,
            f"{one.steps:,.0f}",
            format_duration(one.epoch_seconds, 3),
            format_size(one.moved),
            format_duration(one.setup["seconds"], 3),
            *paid,
            one.limit.removeprefix("computing on ").replace(",", ""),
        )
    return table


def target_lines(results: Sequence[SystemResult]) -> Iterator[str]:
    """Yield which system reaches a target first, and how sure that is; ties are named.

    Differences are taken seed by seed: one within its own 95 % interval is a tie.
    """
    reached = [result for result in results if not result.refused]
    if len(reached) < 2:
        return
    best, *others = sorted(reached, key=lambda one: one.makespan)
    changes = {one.system: pair(one.makespans, best.makespans) for one in others}
    ties = [name for name, change in changes.items() if change and change.tie]
    where = ", ".join(best.placing["machines"])
    ratio = others[0].makespan / best.makespan if best.makespan else inf
    line = f"{best.system} on {where} is first, {ratio:.2f} x as fast as the next"
    yield f"{line}, {others[0].system}."
    if ties:
        yield f"A tie with {best.system} within 95 %: {', '.join(ties)}."


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
    if not others:
        return ""
    line = f"{line} All train on {how} seeds per iteration."
    if any(key.startswith("job.times") for one in results for key in one.edits):
        # 512 seeds of amazon_computers have 1.5 times the inputs of 128, not 4 times.
        line += (
            " Times are scaled by seeds, which overstates those of larger batches: "
            "with job.rates each system counts its own operations."
        )
    return line


def edit_lines(result: SystemResult) -> list[str]:
    """Return lines on a system's placement and each key that the file has otherwise."""

    def show(value: Any) -> str:
        return json.dumps(value) if isinstance(value, list) else str(value)

    if result.refused:
        return [f"{result.system}: {reason(result.refused)}"]
    lines = [placing_line(result.placing)]
    lines.append(f"setup {' '.join(setup_row(result.setup))}")
    for key, (before, after) in sorted(result.edits.items()):
        if before is None:
            lines.append(f"added {key}: {show(after)}")
        elif after is None:
            lines.append(f"dropped {key} (was {show(before)})")
        else:
            lines.append(f"{key}: {show(after)} (was {show(before)})")
    return [f"{result.system}: {line}" for line in lines]


def crossover_table(found: Crossover) -> Table:
    """Return both systems on both sides of a crossover, or at the ends of the range."""
    columns = ("system", ">seeds per s", "limited by", ">busiest link")
    below, above = found.below, found.above
    text = f"{below.best} is faster from {below.value} to {above.value}"
    if found.found:
        text = f"{below.best} is faster up to {below.value}, "
        text += f"{above.best} from {above.value}"
    table = plain_table(f"{text}, by seeds per second", found.key, *columns)
    for side in (below, above):
        for result in side.results:
            speed = format_number(result.samples_per_second, 4)
            cells = result.limit, format_duration(result.busiest_link)
            style = "bold" if result.system == side.best else ""
            table.add_row(str(side.value), result.system, speed, *cells, style=style)
    text = "nowhere in the range" if found.estimate is None else f"at {found.estimate}"
    table.caption = (
        f"first principles: the busiest link has as much to carry in both {text}; "
        f"{found.simulations} simulations"
    )
    return table


#: Columns of simulated makespans.
_COLUMNS = (">makespan", ">± (95 %)", ">change")
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
    makespans: dict[tuple[str, ...], dict[Any, float]] = {}
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        group, seed = tuple(str(row["values"][k]) for k in keys), row["values"]["seed"]
        makespans.setdefault(group, {})[seed] = float(row["figures"]["makespan"])
        groups.setdefault(group, []).append(row["figures"])
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
        cells = [*group, *_seconds(by_seed), str(len(by_seed)), beside]
        for key, write in figures.items():
            values = [float(one[key]) for one in groups[group] if key in one]
            cells.append(write(interval(values).mean) if values else "")
        table.add_row(*cells, style="bold" if group == best else "")
    return table
