"""Several recorded runs side by side: what they are called, makespans, a table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from emu.report.statistics import Interval, interval, paired, paired_text
from emu.report.terminal import plain_table
from emu.runs.result import relative_error
from emu.units import format_duration, format_ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from emu.problem import Schedule
    from emu.runs.recorded_run import RecordedRun


def schedules_of(run: RecordedRun) -> dict[str, Schedule]:
    """Return the schedules that a run has, at least one.

    Raises
    ------
    DataError
        When it has none.
    """
    found = {"emulated": run.emulated, "simulated": run.simulated}
    schedules = {name: made for name, made in found.items() if made is not None}
    return schedules or {"": run.best}


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
    groups: dict[str, list[RecordedRun]] = {}
    for run in runs:
        content = json.dumps(_flat(_compared(run)), sort_keys=True)
        groups.setdefault(label(run) + content, []).append(run)
    found = list(groups.values())
    names = [label(group[0]) for group in found]
    told = [_flat(_compared(group[0])) for group in found]
    named = {}
    for name, keys, group in zip(names, told, found, strict=True):
        alike = [other for n, other in zip(names, told, strict=True) if n == name]
        differing = [
            f"{key}={keys[key]}"
            for key in keys
            if any(other.get(key) != keys[key] for other in alike)
        ]
        named[", ".join([name, *differing])] = group
    return named


def _compared(run: RecordedRun) -> dict[str, Any]:
    scenario = run.manifest.get("scenario", {})
    return {key: scenario[key] for key in scenario if key not in ("seed", "expect")}


def _flat(content: Any, prefix: str = "") -> dict[str, Any]:
    """Return ``key.key[2]`` -> value of everything in nested maps and lists."""
    if isinstance(content, dict):
        items = [(f".{key}", value) for key, value in content.items()]
    elif isinstance(content, list):
        items = [(f"[{place}]", value) for place, value in enumerate(content)]
    else:
        return {prefix.removeprefix("."): content}
    flat: dict[str, Any] = {}
    for step, value in items:
        flat |= _flat(value, prefix + step)
    return flat


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
        row = groups.setdefault(name, {})
        for run in group:
            for kind, made in schedules_of(run).items():
                row.setdefault(kind, []).append(made.makespan)
            if "predicted_makespan" in run.result:
                predicted = float(run.result["predicted_makespan"])
                row.setdefault("predicted", []).append(predicted)
    return groups


def runs_json(runs: Sequence[RecordedRun]) -> list[dict[str, Any]]:
    """Return one object per group of like runs: means, 95 % half widths, errors.

    Keys ``name``, ``runs``, and per kind of makespan ``mean`` and ``half`` in seconds;
    ``makespan_error`` and ``replay_error`` are those of the means, None where a run
    lacks one of the two. ``change`` holds ``mean``, ``half`` and ``tie`` of the best
    makespan against the first group, seed by seed; None where no seed is shared.
    """
    groups = repetitions(runs)
    first = _by_seed(next(iter(groups.values()), []))
    rows: list[dict[str, Any]] = []
    for name, group in makespans(runs).items():
        found = {kind: interval(values) for kind, values in group.items()}
        change = paired(_by_seed(groups[name]), first)
        row: dict[str, Any] = {
            "name": name,
            "runs": max(one.count for one in found.values()),
            "makespan_error": _error(found, "predicted"),
            "replay_error": _error(found, "simulated"),
            "change": change and {**vars(change), "tie": change.tie},
        }
        for kind, one in found.items():
            row[kind] = {"mean": one.mean, "half": one.half}
        rows.append(row)
    return rows


def _by_seed(runs: Sequence[RecordedRun]) -> dict[int | None, float]:
    """Return seed -> mean of the best makespans of its runs."""
    found: dict[int | None, list[float]] = {}
    for run in runs:
        seed = run.manifest.get("scenario", {}).get("seed")
        found.setdefault(seed, []).append(run.best.makespan)
    return {seed: interval(values).mean for seed, values in found.items()}


def _error(found: dict[str, Interval], beside: str) -> float | None:
    """Return the error of the mean emulated makespan against another kind."""
    if "emulated" not in found or beside not in found:
        return None
    return relative_error(found["emulated"].mean, found[beside].mean)


def runs_table(runs: Sequence[RecordedRun]) -> Table:
    """Return one row per group of `repetitions`, with 95 % intervals."""
    table = plain_table(
        "Recorded runs",
        "scenario, placement, policy",
        ">runs",
        ">emulated",
        ">±",
        ">change",
        ">predicted",
        ">makespan error",
        ">replay error",
    )
    for row in runs_json(runs):
        emulated, predicted = row.get("emulated"), row.get("predicted")
        errors = row["makespan_error"], row["replay_error"]
        table.add_row(
            row["name"],
            str(row["runs"]),
            format_duration(emulated["mean"], 5) if emulated else "",
            format_duration(emulated["half"]) if emulated and emulated["half"] else "",
            _change_text(row["change"]),
            format_duration(predicted["mean"], 5) if predicted else "",
            *("" if error is None else format_ratio(error) for error in errors),
        )
    return table


def _change_text(change: dict[str, Any] | None) -> str:
    if change is None:
        return ""
    return paired_text(Interval(change["mean"], change["half"], change["count"]))
