"""Rows of figures of a job: its pace, setup, cost and models, in words."""

from __future__ import annotations

from collections.abc import Iterable

from emu.runs.result import Row
from emu.units import (
    format_duration,
    format_money,
    format_number,
    format_ratio,
    format_size,
)


def pace_rows(pace: Row) -> list[tuple[str, str, str]]:
    """Return (what, how much, of what); ``pace`` is that of result.json, or empty."""
    rows = []
    seconds = pace.get("iteration_seconds")
    if seconds is not None:
        length = format_duration(seconds)
        rows.append(("iteration time", length, "mean between their ends"))
    samples = pace.get("samples_per_second")
    if samples is not None:
        number = format_number(samples, 4)
        rows.append(("samples", f"{number} per s", "seeds of all workers"))

    busy = pace.get("busy")
    if busy is not None:
        note = "of the makespan, the mean over workers"
        rows.append(("workers busy", f"{busy:.0%}", note))
    path = pace.get("critical_path")
    if path:
        most, *rest = (f"{name} {share:.0%}" for name, share in path.items())
        note = ", ".join(rest)
        rows.append(("critical path", most, note))
    return rows


def pace_line(pace: Row) -> str:
    """Return the same in one line; empty where nothing is known."""
    parts = []
    for label, value, note in pace_rows(pace):
        parts.append(f"{label} {value}")
        if label == "critical path" and note:
            parts.append(note)
    return ", ".join(parts)


def setup_row(setup: Row) -> tuple[str, str]:
    """Return the seconds before time 0, simulated, and what is sent in them."""
    parts = []
    for cause, row in setup["causes"].items():
        # What is computed sends nothing.
        seconds = format_duration(row["seconds"], 4)
        size = seconds
        if row["bytes"]:
            size = format_size(row["bytes"])
        parts.append(f"{size} of {cause}")

    text = ", ".join(parts) or "nothing to send"
    run = setup.get("measured")
    if run:
        run_seconds = format_duration(run["seconds"], 4)
        error = format_ratio(run["error"])
        arrived = format_size(run["bytes"])
        text += f"; emulated {run_seconds} ({error}), {arrived} arrived, {run['trust']}"
    all_seconds = format_duration(setup["seconds"], 4)
    return all_seconds, f"before time 0: {text}"


def cost_row(cost: Row) -> tuple[str, str]:
    """Return the dollars of a run in all, and what they are for with its value."""
    parts = []
    for key in ("servers", "lambdas", "parameter_servers"):
        if cost[key]:
            name = key.replace("_", " ")
            price = format_money(cost[key])
            parts.append(f"{name} {price}")

    if "lost" in cost:
        loss = format_money(cost["lost"])
        parts.append(f"{loss} of lambdas without an answer")
    if cost["value"] is not None:
        parts.append(f"value {cost['value']:.4g} / (s $)")
    total = format_money(cost["total"])
    return total, ", ".join(parts)


def model_rows(models: Iterable[Row]) -> list[tuple[str, str, str]]:
    """Return the measurements of models that are programs: one row each."""
    rows = []
    for model in models:
        billions = model["flops"] / 1e9
        note = f"{model['program']}, {billions:.3g} GFLOP"
        if model.get("seconds_used", True):
            seconds = format_duration(model["seconds"], 3)
            note += f" and {seconds} of CPU"
        parameters = f"{model['parameters']:,} parameters"
        rows.append(("model", parameters, f"{note} per batch of a worker"))
    return rows
