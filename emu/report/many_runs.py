"""Several runs side by side: means with their intervals, names, and a table."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from emu.problem import Schedule
from emu.report.terminal import plain_table
from emu.runs.intervals import Draw, Interval, interval, pair
from emu.runs.recorded_run import RecordedRun
from emu.runs.result import Result, relative_error
from emu.units import format_duration, format_number, format_ratio


def compare(values: Mapping[Draw, float], beside: Mapping[Draw, float]) -> Result:
    """Return mean, interval and change of makespans by the names that JSON has."""
    spread = interval([*values.values()])
    change = pair(values, beside)
    return {
        "makespan": spread.mean,
        "half": spread.half,
        "seeds": spread.count,
        "change": change.mean if change else None,
        "change_half": change.half if change else None,
        "tie": bool(change and change.tie),
    }


def write_pair(apart: Interval | None) -> str:
    """Return a paired difference in words: ``+2.1 ± 0.4 %``, or a tie within it."""
    if apart is None:
        return ""
    if not apart.half:
        return format_ratio(apart.mean)
    half = format_number(100 * apart.half, 2)
    text = f"{format_number(100 * apart.mean, 2, '+')} ± {half} %"
    return f"tie ({text})" if apart.tie else text


def schedules_of(run: RecordedRun) -> dict[str, Schedule]:
    """Return the schedules that a run has, at least one.

    Raises DataError when it has none.
    """
    both = {"emulated": run.emulated, "simulated": run.simulated}
    return {name: one for name, one in both.items() if one} or {"": run.best}


def label(run: RecordedRun) -> str:
    """Return scenario, placement and policy of a run."""
    scenario = run.manifest.get("scenario", {})
    name = run.result.get("scenario") or scenario.get("name") or run.name
    placement = scenario.get("placement", {}).get("policy", "?")
    return f"{name}, {run.result.get('placement') or placement}, {run.policy}"


def repetitions(runs: Sequence[RecordedRun]) -> dict[str, list[RecordedRun]]:
    """Return the runs that repeat each other, by name, in order.

    Runs repeat each other when all of their scenarios but the seed and what they expect
    is alike. Where `label` is the same for two groups, the keys that differ follow it.
    """
    groups: dict[str, tuple[str, Result, list[RecordedRun]]] = {}
    for run in runs:
        scenario = dict(run.manifest.get("scenario", {}))
        name = label(run)
        for key in ("seed", "expect"):
            scenario.pop(key, None)
        keys = dict(flat(scenario))
        content = name + json.dumps(keys, sort_keys=True)
        groups.setdefault(content, (name, keys, []))[2].append(run)
    by_name = {}
    for name, keys, group in groups.values():
        alike = [other for n, other, _ in groups.values() if n == name]
        differing = [
            f"{key}={value}"
            for key, value in keys.items()
            if any(other.get(key) != value for other in alike)
        ]
        by_name[", ".join([name, *differing])] = group
    return by_name


def flat(content: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield ``key.key[2]`` and value of everything in nested maps and lists."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from flat(value, f"{prefix}.{key}")
    elif isinstance(content, list):
        for place, value in enumerate(content):
            yield from flat(value, f"{prefix}[{place}]")
    else:
        yield prefix.removeprefix("."), content


def labels(runs: Sequence[RecordedRun]) -> list[str]:
    """Return the name of every run, its directory where others repeat it."""
    name_of = {
        id(run): run.name if len(group) > 1 else name
        for name, group in repetitions(runs).items()
        for run in group
    }
    return [name_of[id(run)] for run in runs]


def makespans(runs: Sequence[RecordedRun]) -> dict[str, dict[str, list[float]]]:
    """Return name -> emulated, simulated, predicted -> makespans of `repetitions`."""
    groups: dict[str, dict[str, list[float]]] = {}
    for name, group in repetitions(runs).items():
        row: dict[str, list[float]] = defaultdict(list)
        groups[name] = row
        for run in group:
            for kind, schedule in schedules_of(run).items():
                row[kind].append(schedule.makespan)
            if "predicted_makespan" in run.result:
                row["predicted"].append(float(run.result["predicted_makespan"]))
    return groups


def runs_json(runs: Sequence[RecordedRun]) -> list[Result]:
    """Return one object per group of like runs: means, 95 % half widths, errors.

    Keys ``name``, ``runs``, and per kind of makespan ``mean`` and ``half`` in seconds;
    ``makespan_error`` and ``replay_error`` are those of the means, None where a run
    lacks one of the two. ``change`` holds ``mean``, ``half`` and ``tie`` of the best
    makespan against the first group, seed by seed; None where no seed is shared.
    """
    groups = repetitions(runs)
    first = _by_seed(next(iter(groups.values()), []))
    rows: list[Result] = []
    for name, group in makespans(runs).items():
        intervals = {kind: interval(values) for kind, values in group.items()}
        change = pair(_by_seed(groups[name]), first)
        down = interval([run.best.outages.recovery for run in groups[name]]).mean
        row: Result = {
            "name": name,
            "runs": max(one.count for one in intervals.values()),
            "makespan_error": _error(intervals, "predicted", down),
            "replay_error": _error(intervals, "simulated", down),
            "change": change and {**vars(change), "tie": change.tie},
            "missing": [
                f"{r.name}: {part}" for r in groups[name] for part in r.missing
            ],
        }
        spans = {
            k: {"mean": one.mean, "half": one.half} for k, one in intervals.items()
        }
        rows.append(row | spans)
    return rows


def _by_seed(runs: Sequence[RecordedRun]) -> dict[int | None, float]:
    """Return seed -> mean of the best makespans of its runs."""
    values_by_seed = defaultdict[int | None, list[float]](list)
    for run in runs:
        seed = run.manifest.get("scenario", {}).get("seed")
        values_by_seed[seed].append(run.best.makespan)
    return {seed: interval(values).mean for seed, values in values_by_seed.items()}


def _error(found: dict[str, Interval], beside: str, down: float) -> float | None:
    """Return the error of the mean emulated makespan against another kind.

    It is no share of the seconds for which deaths had the job down.
    """
    if "emulated" not in found or beside not in found:
        return None
    return relative_error(found["emulated"].mean - down, found[beside].mean - down)


def runs_table(runs: Sequence[RecordedRun]) -> Table:
    """Return one row per group of `repetitions`, with 95 % intervals."""
    columns = (">runs", ">emulated", ">±", ">change", ">predicted")
    errors = (">makespan error", ">replay error")
    title = "scenario, placement, policy"
    table = plain_table("Recorded runs", title, *columns, *errors)
    for row in runs_json(runs):
        cells = ["missing", "", "", ""]
        if one := row.get("emulated"):
            cells[0] = format_duration(one["mean"], 5)
            cells[1] = format_duration(one["half"]) if one["half"] else ""
        if one := row["change"]:
            cells[2] = write_pair(Interval(one["mean"], one["half"], one["count"]))
        if one := row.get("predicted"):
            cells[3] = format_duration(one["mean"], 5)
        apart = row["makespan_error"], row["replay_error"]
        cells += ["" if error is None else format_ratio(error) for error in apart]
        table.add_row(row["name"], str(row["runs"]), *cells)
    return table
