"""Several runs side by side: means with their intervals, names, and tables."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.table import Table

from emu.problem import Schedule
from emu.report.terminal import plain_table
from emu.runs.intervals import Draw, Interval, interval, pair
from emu.runs.recorded_run import RecordedRun
from emu.runs.result import Result, relative_error
from emu.units import format_duration, format_number, format_ratio


def compare(
    values: Mapping[Draw, float],
    beside: Mapping[Draw, float],
) -> Result:
    """Return mean, interval and change of makespans by the names that JSON has."""
    spread = interval(list(values.values()))
    change = pair(values, beside)
    content: Result = {
        "makespan": spread.mean,
        "half": spread.half,
        "seeds": spread.count,
        "change": None,
        "change_half": None,
        "tie": False,
    }
    if change is not None:
        content["change"] = change.mean
        content["change_half"] = change.half
        content["tie"] = change.tie

    return content


def write_pair(apart: Interval | None) -> str:
    """Return a paired difference in words: ``+2.1 ± 0.4 %``, or a tie within it."""
    if apart is None:
        return ""
    # One draw alone has no interval, and neither have draws without any spread.
    if not apart.half:
        return format_ratio(apart.mean)
    mean_percent = 100 * apart.mean
    half_percent = 100 * apart.half
    mean = format_number(mean_percent, 2, "+")
    half = format_number(half_percent, 2)

    text = f"{mean} ± {half} %"
    if apart.tie:
        return f"tie ({text})"
    return text


def schedules_of(run: RecordedRun) -> dict[str, Schedule]:
    """Return the schedules that a run has, at least one.

    Raises DataError when it has none.
    """
    schedules = {}
    if run.emulated:
        schedules["emulated"] = run.emulated
    if run.simulated:
        schedules["simulated"] = run.simulated
    # `best` raises, with what the directory lacks.
    return schedules or {"": run.best}


def label(run: RecordedRun) -> str:
    """Return scenario, placement and policy of a run."""
    result = run.result
    scenario = run.manifest.get("scenario", {})
    stated_name = scenario.get("name") or run.name
    name = result.get("scenario") or stated_name
    stated_placement = scenario.get("placement", {})
    policy = stated_placement.get("policy", "?")
    placement = result.get("placement") or policy
    return f"{name}, {placement}, {run.policy}"


def repetitions(runs: Sequence[RecordedRun]) -> dict[str, list[RecordedRun]]:
    """Return the runs that repeat each other, by name, in order.

    Runs repeat each other when all of their scenarios but the seed and what they expect
    is alike. Where `label` is the same for two groups, the keys that differ follow it.
    """
    groups: dict[str, _Repetition] = {}
    for run in runs:
        stated_scenario = run.manifest.get("scenario", {})
        scenario = dict(stated_scenario)
        for key in ("seed", "expect"):
            scenario.pop(key, None)
        keys = dict(flat(scenario))
        name = label(run)
        key_text = json.dumps(keys, sort_keys=True)
        content = name + key_text
        # Groups stand in the order of their first runs, by which tables compare.
        if content not in groups:
            groups[content] = _Repetition(name=name, keys=keys, runs=[])
        group = groups[content]
        group.runs.append(run)

    by_name = {}
    # Names are what tables and pictures show: two groups must not share one.
    for group in groups.values():
        all_groups = groups.values()
        namesakes = [other for other in all_groups if other.name == group.name]
        words = [group.name]
        for key, value in group.keys.items():
            values = [other.keys.get(key) for other in namesakes]
            if any(other_value != value for other_value in values):
                words.append(f"{key}={value}")
        full_name = ", ".join(words)
        by_name[full_name] = group.runs
    return by_name


class _Repetition(NamedTuple):
    """Runs that repeat each other."""

    name: str
    keys: Result
    """Value of every key of their scenario."""
    runs: list[RecordedRun]


def flat(content: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield ``key.key[2]`` and value of everything in nested maps and lists."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from flat(value, f"{prefix}.{key}")
    elif isinstance(content, list):
        for position, value in enumerate(content):
            yield from flat(value, f"{prefix}[{position}]")
    else:
        yield prefix.removeprefix("."), content


def labels(runs: Sequence[RecordedRun]) -> list[str]:
    """Return the name of every run, its directory where others repeat it."""
    name_of: dict[int, str] = {}
    for name, group in repetitions(runs).items():
        is_repeated = len(group) > 1
        for run in group:
            # Runs compare by identity: two of one content are still two.
            run_name = run.name if is_repeated else name
            name_of[id(run)] = run_name
    return [name_of[id(run)] for run in runs]


def makespans(runs: Sequence[RecordedRun]) -> dict[str, dict[str, list[float]]]:
    """Return name -> emulated, simulated, predicted -> makespans of `repetitions`."""
    by_name: dict[str, dict[str, list[float]]] = {}
    for name, group in repetitions(runs).items():
        by_kind = defaultdict[str, list[float]](list)
        by_name[name] = by_kind
        for run in group:
            for kind, schedule in schedules_of(run).items():
                by_kind[kind].append(schedule.makespan)

            result = run.result
            if figures := result.get("virtual"):
                virtual = float(figures["makespan"])
                by_kind["virtual"].append(virtual)
            if "predicted_makespan" in result:
                prediction = float(result["predicted_makespan"])
                by_kind["predicted"].append(prediction)
    return by_name


def runs_json(runs: Sequence[RecordedRun]) -> list[Result]:
    """Return one object per group of like runs: means, 95 % half widths, errors.

    Keys ``name``, ``runs``, and per kind of makespan ``mean`` and ``half`` in seconds;
    ``makespan_error`` and ``replay_error`` are those of the means, None where a run
    lacks one of the two. ``change`` holds ``mean``, ``half`` and ``tie`` of the best
    makespan against the first group, seed by seed; None where no seed is shared.
    """
    groups = repetitions(runs)
    first_group = next(iter(groups.values()), [])
    first = _by_seed(first_group)

    rows = []
    makespans_by_name = makespans(runs)
    for name, values_by_kind in makespans_by_name.items():
        group = groups[name]
        intervals = {kind: interval(values) for kind, values in values_by_kind.items()}
        by_seed = _by_seed(group)
        change = pair(by_seed, first)
        # Both makespans hold the same stated recovery: as a share of it an error would
        # look smaller than it is.
        recoveries = [run.best.outages.recovery for run in group]
        recovery = interval(recoveries).mean

        missing = []
        for run in group:
            names = [f"{run.name}: {part}" for part in run.missing]
            missing += names
        counts = [span.count for span in intervals.values()]
        row: Result = {
            "name": name,
            # A run may lack one of the kinds; the kind that most runs have counts them.
            "runs": max(counts),
            "makespan_error": _error(intervals, "predicted", recovery),
            "replay_error": _error(intervals, "simulated", recovery),
            "change": None,
            "missing": missing,
        }
        if change is not None:
            row["change"] = {**vars(change), "tie": change.tie}

        for kind, span in intervals.items():
            row[kind] = {"mean": span.mean, "half": span.half}
        rows.append(row)
    return rows


def _by_seed(runs: Sequence[RecordedRun]) -> dict[int | None, float]:
    """Return seed -> mean of the best makespans of its runs."""
    values_by_seed = defaultdict[int | None, list[float]](list)
    for run in runs:
        scenario = run.manifest.get("scenario", {})
        seed = scenario.get("seed")
        values_by_seed[seed].append(run.best.makespan)
    # Runs over sockets may repeat a seed: pairs are taken by seed, so it has one value.
    means = {}
    for seed, values in values_by_seed.items():
        means[seed] = interval(values).mean
    return means


def _error(
    found: dict[str, Interval],
    kind: str,
    recovery: float,
) -> float | None:
    """Return the error of the mean emulated makespan against another kind.

    It is no share of the seconds for which deaths had the job down.
    """
    if "emulated" not in found or kind not in found:
        return None
    emulation = found["emulated"].mean - recovery
    compared_time = found[kind].mean - recovery
    return relative_error(emulation, compared_time)


def runs_table(runs: Sequence[RecordedRun]) -> Table:
    """Return one row per group of `repetitions`, with 95 % intervals."""
    rows = runs_json(runs)
    is_virtual = any("virtual" in row for row in rows)
    length_name = "virtual or emulated" if is_virtual else "emulated"
    columns = [
        "scenario, placement, policy",
        ">runs",
        f">{length_name}",
        ">±",
        ">change",
        ">predicted",
        ">makespan error",
        ">replay error",
    ]
    table = plain_table("Recorded runs", *columns)

    for row in rows:
        length = "missing"
        half = change = prediction = ""
        span = row.get("emulated") or row.get("virtual")
        if span:
            length = format_duration(span["mean"], 5)
            half = _write_half(span["half"])
        gap = row["change"]
        if gap:
            spread = Interval(gap["mean"], gap["half"], gap["count"])
            change = write_pair(spread)
        predicted_span = row.get("predicted")
        if predicted_span:
            prediction = format_duration(predicted_span["mean"], 5)

        table.add_row(
            row["name"],
            str(row["runs"]),
            length,
            half,
            change,
            prediction,
            _write_error(row["makespan_error"]),
            _write_error(row["replay_error"]),
        )
    return table


def _write_half(seconds: float) -> str:
    """Return half of an interval, nothing where it is of one value."""
    if not seconds:
        return ""
    return format_duration(seconds)


def _write_error(error: float | None) -> str:
    if error is None:
        return ""
    return format_ratio(error)
