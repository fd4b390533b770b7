"""Drawn scenarios over sockets: how far they are from what was predicted.

    tools/study fidelity OUT [--scale auto,1,4] [--flow-ends arrival,fluid]
                             [--scenarios N] [--repeats R] [--pairs P]
    tools/study fidelity OUT --systems pipegcn,adaqp [--scenarios N] [--slower 2]

With ``--systems`` scenarios are of these, N of each, and really train: their weights
are held against the same training in one process.

A run that its own verdict does not trust is retried and counted. With ``--pairs``, two
placements or two policies of one scenario run at one time scale, and it is counted how
often the sockets agree with the simulation on which is better.
"""

from __future__ import annotations

import itertools
import math
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from emu.experiment.auto_scale import stating
from emu.experiment.scale_search import ScaleChoice
from emu.report.many_runs import write_pair
from emu.runs.intervals import interval
from emu.scenario import Experiment, Scenario
from tests.fidelity.corpus import draw_scenario
from tests.fidelity.drawn_systems import SYSTEMS, draw_system
from tools.runner import Study, Work, distribution, heading
from tools.trials.pairs import agreement, drawn_pair
from tools.trials.trial import (
    Trial,
    attempt,
    prepared,
    prepared_at,
    prepared_auto,
    scenario_of,
)

Content = dict[str, Any]
#: Off by more is wrong unless it was flagged; by less is right, and a flag an alarm.
WRONG, RIGHT = 0.03, 0.01
_BANDS = ((2, 4), (5, 8), (9, 12), (13, 16))
#: What every run costs and shows: words, field of `Trial`, factor.
_PER_RUN = (
    ("trials of time scales", "tries", 1),
    ("wall time of these, s", "tries_cost", 1),
    ("error in the trial, %", "predicted_error", 100),
    ("late flows in it, %", "predicted_late", 100),
    ("time scale", "time_scale", 1),
    ("bound of the verdict, %", "bound", 100),
    ("flow lengths p95 off, %", "flow_error", 100),
    ("processes", "processes", 1),
    ("start, s", "startup", 1),
    ("run, s", "wall", 1),
    ("peak rate, Gbit/s", "peak_rate", 8e-9),
    ("cores busy, %", "cpu_busy", 100),
    ("steal, %", "cpu_steal", 100),
    ("longest loop lag, ms", "loop_lag", 1e3),
    ("longest pacer lag, ms", "pacer_lag", 1e3),
    ("flow finish p50, ms", "finish_p50", 1e3),
    ("flow finish p95, ms", "finish_p95", 1e3),
    ("flow finish max, ms", "finish_max", 1e3),
    ("flow finish p95, % of flow", "finish_share_p95", 100),
    ("flow finish p95, of allowed", "finish_excess_p95", 1),
)


def scales(text: str) -> tuple[str, ...]:
    """Return the time scales of a list: ``auto``, ``wall``, or numbers beyond 0."""
    words = tuple(word.strip() for word in text.split(","))
    for word in words:
        if word not in ("auto", "wall") and not 0 < float(word) < math.inf:
            raise ValueError(word)
    return words


def endings(text: str) -> tuple[str, ...]:
    """Return what ends flows, of a list: ``arrival`` or ``fluid``."""
    words = tuple(word.strip() for word in text.split(","))
    if not set(words) <= {"arrival", "fluid"}:
        raise ValueError(text)
    return words


def system_names(text: str) -> tuple[str, ...]:
    """Return the systems of a list, of those that jobs can be drawn of."""
    words = tuple(word.strip() for word in text.split(","))
    unknown = [word for word in words if word not in SYSTEMS]
    if unknown:
        known = ", ".join(SYSTEMS)
        raise ArgumentTypeError(f"found {unknown[0]!r}, drawn are jobs of {known}")
    return words


def options(parser: ArgumentParser) -> None:
    """Add what is drawn, and how it is run."""
    add = parser.add_argument
    add("--scenarios", type=int, default=200, help="how many, of each of --systems")
    what = "systems, whose jobs train, in place of scenarios of all shapes"
    add("--systems", type=system_names, default=(), metavar="A,B", help=what)
    add("--first", type=int, default=0, help="seed of the first one")
    add("--repeats", type=int, default=3)
    what = "time scales, each: a number, auto (by trials), or wall (see --wall)"
    add("--scale", type=scales, default=("wall",), metavar="A,B", help=what)
    what = "arrival, fluid or both, side by side; default is the scenarios' own"
    add("--flow-ends", type=endings, default=("",), metavar="A,B", help=what)
    add("--wall", type=float, default=5.0, help="seconds per run at --scale wall")
    add("--per-event", type=float, default=0.0, help="wall ms per event, at least")
    add("--peak", type=float, default=4.0, help="Gbit/s of made-up payloads, at most")
    add("--processes", type=int, default=48, help="per job, at most; 48: 16 machines")
    add("--retries", type=int, default=1, help="of a run that is not trusted")
    what = "factor of the time scale from one retry to the next"
    add("--slower", type=float, default=1.0, help=what)
    add("--pairs", type=int, default=0, help="scenarios in two variants")
    add("--keep", action="store_true", help="keep run directories")


def work(options: Namespace) -> Iterator[Work[Trial]]:
    """Yield every scenario once at every scale, then again; then the pairs.

    Repeats that are far apart meet another hour's neighbours, and a budget that runs
    out leaves a part of every kind.
    """
    variants = [
        f"{scale} {ends}".strip()
        for scale in options.scale
        for ends in options.flow_ends
    ]
    seeds = range(options.first, options.first + options.scenarios)
    for number, seed, system, variant in itertools.product(
        range(options.repeats), seeds, options.systems or ("",), variants
    ):
        content = draw(options, seed, system)
        case = f"{content['name']}@{variant}/{number}"
        yield case, partial(one, options, case, content, variant)
    yield from pairs(options, variants[0])


def draw(options: Namespace, seed: int, system: str) -> Content:
    """Return the scenario of a seed: of a system, or of any shape without one."""
    if system:
        return draw_system(system, seed)
    return draw_scenario(seed, most_processes=options.processes)


def pairs(options: Namespace, variant: str) -> Iterator[Work[Trial]]:
    """Yield both of pairs of variants of one scenario, at the same scales.

    The first takes as long as alone, unless the other would then take less.
    """
    found = 0
    for seed in range(options.first, options.first + 3 * options.pairs):
        content = draw_scenario(seed, most_processes=options.processes)
        pair = drawn_pair(content, seed, makespan)
        if pair is None or found == options.pairs:
            continue
        found += 1
        group = f"{'policy' if seed % 2 else 'placement'}-{seed}"
        first, _ = at_scale(options, scenario_of(pair[0] | {"name": group}), variant)
        emulation = first.scenario.emulation
        ratio = first.simulate().makespan / min(map(makespan, pair))
        scale = f"{emulation.stated_time_scale * max(ratio, 1):.3g}"
        sent = {"byte_scale": emulation.stated_byte_scale}
        for number, content in enumerate(pair):
            case = f"{group}@/{number}"
            named = content | {"name": f"{group}-{number}", "emulation": sent}
            yield case, partial(one, options, case, named, scale)


def one(options: Namespace, case: str, content: Content, variant: str) -> list[Trial]:
    """Return the row of one run."""
    experiment, choice = at_scale(options, scenario_of(content), variant)
    runs = options.out / "runs"
    trial = attempt(
        case,
        experiment,
        runs,
        retries=options.retries,
        slower=options.slower,
        keep=options.keep,
        choice=choice,
    )
    return [trial]


def at_scale(
    options: Namespace, scenario: Scenario, variant: str
) -> tuple[Experiment, ScaleChoice | None]:
    """Return the experiment at a time scale, and how that was chosen.

    ``variant``: ``auto``, chosen by trials; ``wall``, the one that makes a run as long
    as the options state; or a number. A second word is what ends flows: ``wall fluid``.
    """
    scale, _, ends = variant.partition(" ")
    if ends:
        scenario = stating(scenario, flow_ends=ends)
    if scale == "auto":
        return prepared_auto(scenario)
    if scale != "wall":
        return prepared_at(scenario, float(scale)), None
    wall, event, rate = options.wall, options.per_event / 1e3, options.peak * 1e9 / 8
    return prepared(scenario, wall, per_event=event, most_rate=rate), None


def makespan(content: Content) -> float:
    """Return the simulated makespan of a scenario, seconds."""
    return float(prepared_at(scenario_of(content), 1.0).simulate().makespan)


def table(rows: list[Trial], _: Namespace) -> list[str]:
    """Return the figures of all runs, and what the pairs decide."""
    paired = [row for row in rows if not row.variant]
    lines = single([row for row in rows if row.variant]) if rows != paired else []
    return [*lines, "", *agreement(paired)] if paired else lines


def single(rows: Sequence[Trial]) -> list[str]:
    """Return the figures of runs that were not compared in pairs."""
    lines = [*_counts(rows), *by_system(rows)]
    for error, what in (("makespan", "predicted"), ("replay", "replayed")):
        lines += ["", heading(f"|emulated/{what} - 1|, %", "runs")]
        lines += _split(rows, f"{error}_error", lambda _: "all runs")
        lines += _split(rows, f"{error}_error", lambda row: row.trust)
        lines += _split(rows, f"{error}_error", _decided_by)
        lines += _split(rows, f"{error}_error", lambda row: row.variant, "time scale ")
    lines += ["", heading("|makespan error|, %", "runs")]
    lines += _split(rows, "makespan_error", lambda row: f"{row.system} {row.shape}")
    lines += _split(rows, "makespan_error", lambda r: band(r.machines), "machines ")
    lines += _split(rows, "makespan_error", lambda row: row.policy)
    lines += ["", heading("of a scenario's repeats, %", "seeds")]
    lines += [distribution("largest less smallest", spreads(rows))]
    done = [row for row in rows if row.trust != "failed"]
    lines += ["", heading("per run", "runs")]
    lines += [
        distribution(words, [getattr(row, field) for row in done], factor)
        for words, field, factor in _PER_RUN
    ]
    lines += ["", f"flows within max(1 % of length, 2 ms wall): {_kept(rows)}"]
    for shape in sorted({row.shape for row in rows}):
        lines.append(f"  {shape}: {_kept([r for r in rows if r.shape == shape])}")
    trusted = [row for row in rows if row.trust == "trusted"]
    lines += [f"  of trusted runs: {_kept(trusted)}", "", *flags(done, "")]
    variants = list(dict.fromkeys(row.variant for row in rows))
    for variant in variants:
        these = [row for row in done if row.variant == variant]
        lines += flags(these, f"time scale {variant}: ")
    return [*lines, "", *_beside(done, variants)]


def _counts(rows: Sequence[Trial]) -> list[str]:
    trusts = Counter(row.trust for row in rows)
    retried = sum(row.retries > 0 for row in rows)
    hours = sum(row.seconds for row in rows) / 3600
    words = ("trusted", "degraded", "untrusted", "failed")
    counts = ", ".join(f"{word} {trusts[word]}" for word in words)
    again = sum(row.retries for row in rows)
    scenarios = len({row.scenario for row in rows})
    return [
        f"runs {len(rows)} of {scenarios} scenarios, {counts}",
        f"retried {retried} ({again} runs more), {hours:.2f} h of wall time",
    ]


def by_system(rows: Sequence[Trial]) -> Iterator[str]:
    """Yield a line for every system that trains: errors, bytes, weights."""
    of_system: dict[str, list[Trial]] = {}
    for row in rows:
        if row.system in SYSTEMS:
            of_system.setdefault(row.system, []).append(row)
    if not of_system:
        return
    columns = ("runs", "trusted", "median, %", "worst, %", "MB", "weights")
    yield ""
    yield f"{'|makespan error| of trusted':28}" + _cells(columns)
    for system, runs in of_system.items():
        trusted = [row for row in runs if row.trust == "trusted"]
        errors = [100 * abs(row.makespan_error) for row in trusted] or [math.nan]
        received = [row.received for row in runs if row.received > 0]
        weights = [row.weights for row in runs if not math.isnan(row.weights)]
        megabytes = np.median(received or [math.nan]) / 1e6
        cells = (
            f"{len(runs)}",
            f"{len(trusted)}",
            f"{np.median(errors):.3f}",
            f"{max(errors):.3f}",
            f"{megabytes:.2f}",
            f"{max(weights, default=math.nan):.1e}",
        )
        yield f"{system:28}" + _cells(cells)


def _cells(cells: Iterable[str]) -> str:
    return "".join(f"{cell:>11}" for cell in cells)


def _decided_by(row: Trial) -> str:
    """Return whether a makespan hangs on delays that no host avoids."""
    return ("" if row.sensitivity > RIGHT else "not ") + "decided by chance"


def band(machines: int) -> str:
    """Return the band of a number of machines."""
    for first, last in _BANDS:
        if machines <= last:
            return f"{first}-{last}"
    return f"over {_BANDS[-1][1]}"


def spreads(rows: Sequence[Trial]) -> list[float]:
    """Return how far a scenario's repeats are apart, of those with two or more."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row.trust != "failed":
            found.setdefault((row.scenario, row.variant), []).append(row.makespan_error)
    return [max(v) - min(v) for v in found.values() if len(v) > 1]


def _split(
    rows: Sequence[Trial], error: str, key: Callable[[Trial], str], prefix: str = ""
) -> list[str]:
    """Return the distribution of an error for each value of ``key``."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row.trust != "failed":
            found.setdefault(key(row), []).append(abs(getattr(row, error)))
    names = sorted(found, key=lambda name: (prefix and len(name.split("-")[0]), name))
    return [distribution(f"{prefix}{name}", found[name]) for name in names]


def _kept(rows: Sequence[Trial]) -> str:
    count, kept = sum(row.finishes for row in rows), sum(row.kept for row in rows)
    return f"{100 * kept / count:.2f} % of {count}" if count else "none of 0"


def flags(rows: Sequence[Trial], of: str) -> list[str]:
    """Return how often the verdict was right about a run that was far off or close.

    Off either simulation: what moved a run may have moved that of the same times and
    volumes alike, if it is in the times.
    """
    off = [row.trust for row in rows if row.worst_error > WRONG]
    near = [row for row in rows if row.worst_error <= RIGHT]
    missed = off.count("trusted")
    alarms = sum(row.trust != "trusted" for row in near)
    guarded = sum(row.guards != "" for row in near)
    wrong = f"{len(off)}, flagged {len(off) - missed}, trusted {missed}"
    right = f"{len(near)}, flagged all the same {alarms} ({guarded} by a guard)"
    return [
        f"{of}off either simulation by > {100 * WRONG:g} %: {wrong}",
        f"{of}within {100 * RIGHT:g} % of both: {right}",
    ]


def _beside(rows: Sequence[Trial], variants: Sequence[str]) -> Iterator[str]:
    """Yield how the errors of two variants differ, scenario by scenario."""
    found: dict[str, dict[tuple[str, str], float]] = {name: {} for name in variants}
    for row in rows:
        place = row.scenario, row.case.rpartition("/")[2]
        found[row.variant][place] = abs(row.makespan_error)
    for one, other in itertools.combinations(found, 2):
        shared = found[one].keys() & found[other].keys()
        apart = [found[one][at] - found[other][at] for at in shared]
        if apart:
            yield (
                f"|makespan error| at time scale {one} less that at {other}: "
                f"{write_pair(interval(apart))}, {len(apart)} pairs"
            )


STUDY = Study(
    row=Trial,
    work=work,
    table=table,
    options=options,
    settled=("wall", "per_event", "peak", "processes"),
    wrong=lambda rows: any(
        abs(row.replay_error) > WRONG and row.trust == "trusted" for row in rows
    ),
)
