"""Several recorded runs side by side: what they are called, makespans, a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emu.report.result import fidelity
from emu.report.statistics import interval
from emu.report.terminal import plain_table
from emu.units import format_duration, format_ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from emu.report.recorded_run import RecordedRun
    from emu.schedule import Schedule


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


def labels(runs: Sequence[RecordedRun]) -> list[str]:
    """Return `label` of every run, or its directory where several are alike."""
    found = [label(run) for run in runs]
    return [
        run.name if found.count(name) > 1 else name
        for run, name in zip(runs, found, strict=True)
    ]


def makespans(runs: Sequence[RecordedRun]) -> dict[str, dict[str, list[float]]]:
    """Return the makespans, runs of one scenario, placement and policy together."""
    groups: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        row = groups.setdefault(label(run), {})
        for name, made in schedules_of(run).items():
            row.setdefault(name, []).append(made.makespan)
        if "predicted_makespan" in run.result:
            predicted = float(run.result["predicted_makespan"])
            row.setdefault("predicted", []).append(predicted)
    return groups


def runs_json(runs: Sequence[RecordedRun]) -> list[dict[str, Any]]:
    """Return one object per group of like runs: means, 95 % half widths, fidelity.

    Keys ``name``, ``runs``, and per kind of makespan ``mean`` and ``half`` in seconds;
    ``fidelity`` is that of the means, None where a run lacks one of the two.
    """
    rows: list[dict[str, Any]] = []
    for name, group in makespans(runs).items():
        found = {kind: interval(values) for kind, values in group.items()}
        both = [found.get("emulated"), found.get("simulated")]
        row: dict[str, Any] = {
            "name": name,
            "runs": max(one.count for one in found.values()),
            "fidelity": None,
        }
        if both[0] is not None and both[1] is not None:
            row["fidelity"] = fidelity(both[0].mean, both[1].mean)
        for kind, one in found.items():
            row[kind] = {"mean": one.mean, "half": one.half}
        rows.append(row)
    return rows


def runs_table(runs: Sequence[RecordedRun]) -> Table:
    """Return one row per scenario, placement and policy, with 95 % intervals."""
    table = plain_table(
        "Recorded runs",
        "scenario, placement, policy",
        ">runs",
        ">emulated",
        ">±",
        ">simulated",
        ">fidelity",
    )
    for row in runs_json(runs):
        emulated, simulated = row.get("emulated"), row.get("simulated")
        apart = row["fidelity"]
        table.add_row(
            row["name"],
            str(row["runs"]),
            format_duration(emulated["mean"], 5) if emulated else "",
            format_duration(emulated["half"]) if emulated and emulated["half"] else "",
            format_duration(simulated["mean"], 5) if simulated else "",
            format_ratio(apart) if apart is not None else "",
        )
    return table
