"""Checks of a scenario's ``expect`` against the result of a run or a simulation.

Every key is looked at in every place that has its figure; `unchecked` names the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from emu.prediction.analysis.bounds import bounds
from emu.problem import Realization, Schedule
from emu.problem.fields.quantities import Expected
from emu.scenario.run_sections import ExpectSection
from emu.units import SIZE, format_duration, format_ratio

#: Key of ``expect`` -> what came out, None where it was not reported.
Figures = Mapping[str, float | None]

#: Only a run has these.
_OF_RUNS = ("makespan_error", "replay_error", "trust", "prediction", "accuracy", "loss")
#: Keys whose plain value is to be met to within ``tolerance``.
_EXACT = ("makespan", "bytes")


def run_figures(result: Mapping[str, Any]) -> dict[str, float | None]:
    """Return a run's figures for the expectations, from the content of result.json."""
    curve = result["training"]
    loss: float | None = curve[-1]["loss"] if curve else None
    same = ("gap", "makespan_error", "replay_error")
    return {key: result.get(key) for key in same} | {
        "makespan": result["predicted_makespan"],
        "emulated": result["makespan"],
        "bytes": sum(row["bytes"] for row in result["edges"]),
        "accuracy": result.get("accuracy", {}).get("test"),
        "loss": math.inf if "diverged" in result else loss,
    }


def figures_of_simulation(
    schedule: Schedule, realization: Realization
) -> dict[str, float | None]:
    """Return a simulation's figures for expectations, under these times and volumes."""
    least = bounds(schedule.problem, realization).combined
    with_deaths = bool(schedule.outages.seconds)  # the bound is of a job that does not
    return {
        "makespan": schedule.makespan,
        "gap": schedule.length / least - 1 if least and not with_deaths else None,
        "bytes": float(schedule.flow_bytes[*schedule.flows().T].sum()),
    }


def punctual(result: dict[str, Any]) -> dict[str, Any]:
    """Return ``result`` as it had been with nothing late, as the verdict has it.

    What is missed even so, the host is not to blame for.
    """
    makespan = result["verdict"]["on_time_makespan"]
    down = result.get("outages", {}).get("recovery", 0.0)

    def beyond(least: float | None) -> float | None:
        return (makespan - down) / (least - down) - 1 if least else None

    figures = {"makespan": makespan, "replay_error": 0.0, "makespan_error": 0.0}
    if error := beyond(result["predicted_makespan"]):
        figures["makespan_error"] = error
    return {**result, **figures, "gap": beyond(result.get("bound"))}


def find_misses(expect: ExpectSection, result: Mapping[str, Any]) -> list[str]:
    """Return one sentence per line of ``expect`` that a run did not meet."""
    misses = list_misses(expect, run_figures(result))
    for section, key, least in (
        ("verdict", "trust", expect.trust),
        ("prediction", "outcome", expect.prediction),
    ):
        value = result.get(section, {}).get(key)
        if least is not None and value != least:
            misses.append(f"{section} is {value}, expected {least}")
    return misses


def list_unchecked(expect: ExpectSection) -> str:
    """Return which lines of ``expect`` no simulation has a figure for, in a sentence.

    Empty where there is none.
    """
    keys = [f"expect.{key}" for key in _OF_RUNS if getattr(expect, key) is not None]
    words = f"not checked in a simulation, emu run does: {', '.join(keys)}"
    return words if keys else ""


def list_misses(
    expect: ExpectSection, figures: Figures, *, exact: bool = True
) -> list[str]:
    """Return one sentence per line of ``expect`` that ``figures`` do not meet.

    Seconds, bytes between machines, and shares; a key without a figure is not looked
    at. Single values of ``makespan`` and ``bytes`` hold where ``exact``: for the
    scenario as it is stated, not for variants.
    """
    misses: list[str] = []
    for key, (what, kind, write) in _CHECKS.items():
        aim = getattr(expect, "makespan" if key == "emulated" else key)
        if aim is None or key not in figures:
            continue
        figure = figures[key]
        value = math.nan if figure is None else figure
        text = f"{what} is {'not reported' if math.isnan(value) else write(value)}"
        if key in _EXACT and isinstance(aim, float):
            if exact and not math.isclose(value, aim, rel_tol=expect.tolerance):
                misses.append(f"{text}, expected {write(aim)}")
        elif range_ := _limits(kind, aim):
            low, high = range_
            if low <= value <= high:
                continue
            words = zip(("at least", "at most"), range_, strict=True)
            limits = [f"{word} {write(e)}" for word, e in words if math.isfinite(e)]
            if low == -high:
                limits = [f"at most {_percent(high)} either way"]
            misses.append(f"{text}, expected {' and '.join(limits)}")
    return misses


def _limits(kind: str, wanted: Expected) -> tuple[float, float] | None:
    """Return the range that is stated, or that a single value of a kind stands for.

    None where a single value is of the simulation.
    """
    if isinstance(wanted, tuple):
        return wanted
    least = {"most": -math.inf, "least": wanted, "off": -wanted}.get(kind)
    return None if least is None else (least, math.inf if kind == "least" else wanted)


def _seconds(value: float) -> str:
    return format_duration(value, 12)


def _percent(value: float) -> str:
    return f"{100 * value:.4g} %"


_CHECKS: dict[str, tuple[str, str, Callable[[float], str]]] = {
    "makespan": ("simulated makespan", "range", _seconds),
    "emulated": ("the makespan of the run", "range", _seconds),
    "gap": ("the gap", "most", _percent),
    "bytes": ("bytes between machines", "range", SIZE.exact),
    "makespan_error": ("the makespan error", "off", format_ratio),
    "replay_error": ("the replay error", "off", format_ratio),
    "accuracy": ("test accuracy", "least", "{:.4f}".format),
    "loss": ("training loss", "most", "{:.4f}".format),
}
