"""Systems side by side: their speed, or time to an accuracy, and what limits it."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from io import StringIO
from math import inf, isinf
from typing import Any

import numpy as np
from rich.table import Table

from emu.errors import EmulatorError
from emu.prediction.analysis.throughput import Pace
from emu.report.comparison import COLUMNS, reason, write_makespans
from emu.report.explanation_tables import placing_line, setup_row
from emu.report.html import markup as html
from emu.report.many_runs import compare, flat, write_pair
from emu.report.terminal import plain_table
from emu.runs.intervals import interval, pair
from emu.runs.result import Result, Row
from emu.scenario import Scenario
from emu.scenario.virtual_training import Curve, NotReached
from emu.training.looks import Look
from emu.units import (
    format_duration,
    format_money,
    format_number,
    format_ratio,
    format_size,
)


@dataclass(frozen=True)
class Confirmation:
    """A row over sockets: its run directory, and what its result.json says."""

    path: str
    makespan: float
    makespan_error: float
    trust: str
    outcome: str
    """Verdict on this host, and whether prediction and run agree."""


@dataclass(frozen=True)
class SystemResult:
    """Simulated results of one system."""

    system: str
    makespans: Mapping[int, float] = field(default_factory=dict)
    """Seconds by seed; none where it was refused."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Share of the critical path by what it is spent on, of the first seed, most first:
    a link, the latency, a slot, a rate of operations, the path of stated times."""
    busiest_link: float = 0.0
    """Seconds that the bytes of the busiest link take at its capacity: the
    makespan by first principles where the network is the limit."""
    busiest: tuple[str, float] = ("", 0.0)
    """That link or the busiest by then, and the share of the makespan it was used."""
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
    """Seconds on all machines, mean over the seeds, where it chose others."""
    curves: Mapping[int, Curve] = field(default_factory=dict)
    """Accuracy over time until the target, by seed; of all there was where refused."""
    memory: Mapping[str, float] = field(default_factory=dict)
    """Bytes at most, by machine that takes part (`memory_by_machine`)."""
    busy: float | None = None
    """Share of the makespan that what trains computes; None where nothing does."""
    weights: str = ""
    """Equal of rows whose weights are equal, with the first seed."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Keys that ``systems`` of the file gave it: the best of ``tried``."""
    tried: tuple[tuple[Mapping[str, object], float | None], ...] = ()
    """Each combination of those keys with its seconds, None where it was refused."""
    run: Confirmation | None = None
    """Result of the same over sockets, where that was asked for."""
    setup: Row = field(default_factory=dict)
    """Bytes and seconds before time 0 of the first seed, see docs/results.md."""
    refused: EmulatorError | None = None
    """The reason why there are no makespans."""

    @property
    def name(self) -> str:
        """Name of the row."""
        return self.system

    @property
    def limit(self) -> str:
        """Cause of most of the critical path, with its share."""
        lines = (f"{cause} {share:.0%}" for cause, share in self.limits.items())
        return next(lines, "nothing")

    @property
    def seconds_per_seed(self) -> float:
        """Mean over the seeds of the time that a training vertex takes."""
        return 1 / self.samples_per_second

    @property
    def epoch_seconds(self) -> float:
        """Mean over the seeds of a training set's time at this speed."""
        return self.train / self.samples_per_second

    @property
    def steps(self) -> float:
        """Mean over the seeds, to the target."""
        return sum(look.step for look in self.looks.values()) / len(self.looks)

    @property
    def epochs(self) -> float:
        """Mean over the seeds, to the target: training vertices seen over all."""
        seen = sum(look.seeds for look in self.looks.values()) / len(self.looks)
        return seen / self.train

    @property
    def iteration_seconds(self) -> float:
        """Mean over the seeds."""
        seconds = [pace.iteration_seconds for pace in self.paces.values()]
        return interval([one for one in seconds if one is not None]).mean

    @property
    def samples_per_second(self) -> float:
        """Mean over the seeds; infinite where iterations take no time."""
        each = [
            p.samples_per_second
            or (self.seeds / p.iteration_seconds if p.iteration_seconds else inf)
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
        content: Result = {
            "system": self.system,
            **compare(self.makespans, first.makespans),
            "seeds_per_iteration": self.seeds,
            "iteration_seconds": self.iteration_seconds,
            "samples_per_second": None if isinf(pace) else pace,
            "limit": self.limit,
            "limits": dict(self.limits),
            "placing": dict(self.placing),
            "busiest_link": self.busiest_link,
            "busiest": dict(zip(("port", "used"), self.busiest, strict=True)),
            "memory": dict(self.memory),
            "busy": self.busy,
            "bytes": self.moved,
            "cost": self.cost,
            "setup": dict(self.setup),
            "edits": {key: [*both] for key, both in self.edits.items()},
            "settings": dict(self.settings),
            "tried": [{"settings": dict(s), "seconds": t} for s, t in self.tried],
            **({"run": asdict(self.run)} if self.run else {}),
        }
        if self.looks:
            content |= {
                "reached": {seed: look._asdict() for seed, look in self.looks.items()},
                "epochs": self.epochs,
                "epoch_seconds": self.epoch_seconds,
                "all_machines": self.everywhere,
                "curves": {seed: [*curve] for seed, curve in self.curves.items()},
            }
        return content


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
    columns = (">iteration", ">seeds", ">seeds per s")
    table = plain_table("Simulated", "system", *COLUMNS, *columns)
    first = next(result for result in results if not result.refused)
    for one in results:
        cells = [one.system, *write_makespans(one.makespans)]
        if not one.refused:
            cells.append(write_pair(pair(one.makespans, first.makespans)))
            cells += [format_duration(one.iteration_seconds), f"{one.seeds:,}"]
            cells.append(format_number(one.samples_per_second, 4))
        table.add_row(*cells)
    return table


def rank(results: Sequence[SystemResult]) -> list[SystemResult]:
    """Return the rows that are not refused, the fastest first."""
    rows = [result for result in results if not result.refused]
    return sorted(rows, key=lambda one: one.makespan)


def target_table(results: Sequence[SystemResult], target: str) -> Table:
    """Return one row per system that was trained to a target, the fastest first.

    Differences are taken seed by seed. ``target`` is in words.
    """
    rows = rank(results)
    cost = [">cost"] if any(one.cost for one in rows) else []
    columns = (">on", ">time", ">to the first", ">on all", ">epochs", ">steps")
    title = f"Simulated, to {target}"
    table = plain_table(title, "system", *columns, ">per epoch", *cost)
    for one in rows:
        machines = len(one.placing["machines"]), one.placing["machines_in_all"]
        change = write_pair(pair(one.makespans, rows[0].makespans))
        cells = ["{} of {}".format(*machines), format_duration(one.makespan)]
        cells.append("" if one is rows[0] else change)
        on_all = one.everywhere
        cells.append("" if on_all is None else format_duration(on_all, 3))
        cells += [f"{one.epochs:.3g}", f"{one.steps:,.0f}"]
        cells.append(format_duration(one.epoch_seconds, 3))
        cells += [format_money(one.cost["total"])] if one.cost else []
        table.add_row(one.system, *cells)
    for one in results:
        if isinstance(error := one.refused, NotReached):
            best = f"{error.nearest:.1%} at best"
            table.add_row(one.system, "", format_duration(error.seconds), best)
    return table


def limits_table(results: Sequence[SystemResult]) -> Table:
    """Return what crosses, what limits each system, and what its machines need."""
    columns = (">bytes", ">setup", "busiest link", "limited by", ">memory", ">busy")
    table = plain_table("What limits them", "system", *columns)
    for one in rank(results):
        link, share = one.busiest
        setup = format_duration(one.setup["seconds"], 3) if one.setup else ""
        cells = [format_size(one.moved), setup]
        cells += [f"{link} {share:.0%}" if one.moved else "", one.limit]
        cells.append(format_size(max(one.memory.values())) if one.memory else "")
        cells += [] if one.busy is None else [f"{one.busy:.0%}"]
        table.add_row(one.system, *cells)
    table.caption = "memory: of the fullest machine; busy: what trains, the mean"
    return table


def runs_of_rows(results: Sequence[SystemResult]) -> list[Table]:
    """Return a table of the rows that were run over sockets, none where none was."""
    columns = (">simulated", ">over sockets", ">makespan error", "verdict")
    table = plain_table("Over sockets", "system", *columns, "prediction")
    for one in rank(results):
        if run := one.run:
            lengths = [next(iter(one.makespans.values())), run.makespan]
            cells = [format_duration(seconds, 5) for seconds in lengths]
            cells += [format_ratio(run.makespan_error), run.trust, run.outcome]
            table.add_row(one.system, *cells)
    return [table] if table.row_count else []


def target_lines(results: Sequence[SystemResult]) -> Iterator[str]:
    """Yield which system reaches a target first, how sure that is, and its settings.

    Differences are taken seed by seed: one within its own 95 % interval is a tie.
    """
    rows, classes = rank(results), defaultdict[str, list[str]](list)
    if len(rows) > 1:
        best, *others = rows
        changes = {one.system: pair(one.makespans, best.makespans) for one in others}
        ties = [name for name, change in changes.items() if change and change.tie]
        where = ", ".join(best.placing["machines"])
        ratio = others[0].makespan / best.makespan if best.makespan else inf
        line = f"{best.system} on {where} is first, {ratio:.2f} x as fast as the next"
        yield f"{line}, {others[0].system}."
        if ties:
            yield f"A tie with {best.system} within 95 %: {', '.join(ties)}."
    for one in rows:
        classes[one.weights].append(one.system)
    for names in classes.values():
        if len(names) > 1:
            yield f"Equal weights, trained once: {', '.join(names)}."
    for one in results:
        grid = defaultdict[str, dict[str, None]](dict)  # each value once, in order
        for settings, _ in one.tried:
            for key, value in settings.items():
                grid[key.removeprefix("job.")][str(value)] = None
        options = ", ".join(f"{key} {' | '.join(v)}" for key, v in grid.items())
        if len(one.tried) > 1:
            own = [f"{k.removeprefix('job.')} {v}" for k, v in one.settings.items()]
            count = len(one.tried)
            yield f"{one.system}: the best of {count}, {options}: {', '.join(own)}"


def systems_csv(results: Sequence[SystemResult]) -> str:
    """Return one line per system, whose columns are keys of JSON with one value."""
    first = next(result for result in results if not result.refused)
    # Lists, as of machines and looks, have as many values as they please.
    every = [flat(one.to_json(first)) for one in results]
    rows = [{k: v for k, v in row if "[" not in k} for row in every]
    names = dict.fromkeys(name for row in rows for name in row)
    file = StringIO()
    writer = csv.DictWriter(file, [*names], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def ranking(results: Sequence[SystemResult]) -> str:
    """Return which system is how much faster, by seeds per second, in one sentence."""
    results = [result for result in results if not result.refused]
    best, *others = sorted(results, key=lambda r: -r.samples_per_second)
    if not others:
        return ""
    parts = []
    for other in others:
        even = best.samples_per_second == other.samples_per_second  # also infinite
        ratio = 1.0 if even else best.samples_per_second / other.samples_per_second
        times = "" if f"{ratio:.2f}" == "1.00" else f"{ratio:.2f} x "
        parts.append(f"{times}as fast as {other.system}")
    line = f"By seeds per second {best.system} is {', '.join(parts)} here."
    least, most = (choose(r.seeds for r in results) for choose in (min, max))
    how = "as many" if least == most else f"{least:,} to {most:,}"
    line = f"{line} All train on {how} seeds per iteration."
    if (count := len(best.makespans)) > 1:
        line += f" Times: means over {count} seeds; cost, bytes, memory: of the first."
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
    setup = " ".join(setup_row(result.setup))
    lines = [placing_line(result.placing), f"setup {setup}"]
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
            cells = speed, result.limit, format_duration(result.busiest_link)
            style = "bold" if result.system == side.best else ""
            table.add_row(str(side.value), result.system, *cells, style=style)
    text = "nowhere in the range" if found.estimate is None else f"at {found.estimate}"
    table.caption = (
        f"first principles: the busiest link has as much to carry in both {text}; "
        f"{found.simulations} simulations"
    )
    return table


#: Curves in a plot of the page of systems: as many as it has colours.
_COLOURS = 6
_CURVES = (
    "Of the first seed, from the first look on, in emulated time, until the target; "
    "a curve ends at the first of the looks that hold it. Drag to zoom, double-click "
    "for everything; SVG and CSV save what is shown."
)


def systems_page(
    name: str,
    results: Sequence[SystemResult],
    tables: Sequence[Table],
    lines: Sequence[str],
) -> str:
    """Return the page of a scenario's systems, with the tables of the terminal.

    ``lines`` say which is first.
    """
    # Pages and what they draw with take half a second to import.
    from emu.report.html.page import whole_page  # noqa: PLC0415
    from emu.report.trace import pack_columns  # noqa: PLC0415

    text = "".join(f"<p>{escape(line)}</p>" for line in lines)
    changes = "".join(
        f"<details><summary>{escape(one.system)}</summary>"
        f"{html.bullets(edit_lines(one))}</details>"
        for one in results
    )
    first, *others = tables
    parts = [
        html.page_title(name, str(first.title)),
        html.section("first", "Which system is first", text, html.table(first)),
        html.chart("counts", "Accuracy over time", _CURVES),
    ]
    for n, grid in enumerate(others):
        parts.append(html.section(f"table{n}", str(grid.title), html.table(grid)))
    title = "What each takes otherwise than the file"
    parts.append(html.section("changes", title, changes))
    curves = curves_of([*rank(results), *(one for one in results if one.refused)])
    rows = [
        {"name": name, **pack_columns(time=time, rate=100 * share)}
        for name, curve in curves.items()
        for time, share in [np.transpose(curve)]
    ]
    plots = [
        {"title": "accuracy", "unit": "%", "curves": rows[n : n + _COLOURS]}
        for n in range(0, len(rows), _COLOURS)
    ]
    ends = [curve[-1][0] for curve in curves.values()]
    data = {"clock": "emulated time (s)", "start": 0.0, "end": max(ends, default=0.0)}
    charts = data | {"runs": [], "training": [], "counts": plots}
    return whole_page(name, "".join(parts), charts)


def curves_of(
    results: Sequence[SystemResult],
) -> dict[str, Sequence[tuple[float, float]]]:
    """Return the accuracy over time of every system, with its first seed."""
    return {
        one.system: next(iter(one.curves.values())) for one in results if one.curves
    }
