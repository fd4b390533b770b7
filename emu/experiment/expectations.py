"""Checks of a scenario's ``expect`` against the result of a run or a simulation.

Every key is looked at in every place that has its figure; `unchecked` names the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

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
    return {
        "makespan": result["predicted_makespan"],
        "emulated": result["makespan"],
        "gap": result.get("gap"),
        "bytes": sum(row["bytes"] for row in result["edges"]),
        "makespan_error": result["makespan_error"],
        "replay_error": result["replay_error"],
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
        "bytes": float(np.nansum(schedule.flow_bytes)),
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
    keys = [key for key in _OF_RUNS if getattr(expect, key) is not None]
    if not keys:
        return ""
    return f"not checked in a simulation, emu run does: expect.{', expect.'.join(keys)}"


def list_misses(
    expect: ExpectSection, figures: Figures, *, exact: bool = True
) -> list[str]:
    """Return one sentence per line of ``expect`` that ``figures`` do not meet.

    Seconds, bytes between machines, and shares; a key without a figure is not looked
    at. Single values of ``makespan`` and ``bytes`` hold where ``exact``: for the
    scenario as it is stated, not for variants.
    """
    misses: list[str] = []
    for key, (what, limits, write) in _CHECKS.items():
        aim = getattr(expect, "makespan" if key == "emulated" else key)
        if aim is None or key not in figures:
            continue
        if key in _EXACT and isinstance(aim, float):
            figure, near = figures[key], expect.tolerance
            good = figure is not None and math.isclose(figure, aim, rel_tol=near)
            if exact and not good:
                text = f"{what} is {_write_figure(figure, write)}"
                misses.append(f"{text}, expected {write(aim)}")
        elif range_ := limits(aim):
            misses += _outside(what, figures[key], range_, write)
    return misses


def _outside(
    what: str,
    found: float | None,
    wanted: tuple[float, float],
    write: Callable[[float], str],
) -> Iterator[str]:
    if found is not None and wanted[0] <= found <= wanted[1]:
        return
    if wanted[0] == -wanted[1]:
        limits = [f"at most {_percent(wanted[1])} either way"]
    else:
        words = zip(("at least", "at most"), wanted, strict=True)
        limits = [f"{word} {write(end)}" for word, end in words if math.isfinite(end)]
    yield f"{what} is {_write_figure(found, write)}, expected {' and '.join(limits)}"


def _write_figure(found: float | None, write: Callable[[float], str]) -> str:
    return "not reported" if found is None or math.isnan(found) else write(found)


def _range(wanted: Expected) -> tuple[float, float] | None:
    """Return the range; None for a single value, which is of the simulation."""
    return wanted if isinstance(wanted, tuple) else None


def _at_most(wanted: Expected) -> tuple[float, float]:
    return wanted if isinstance(wanted, tuple) else (-math.inf, wanted)


def _at_least(wanted: Expected) -> tuple[float, float]:
    return wanted if isinstance(wanted, tuple) else (wanted, math.inf)


def _either_way(wanted: float) -> tuple[float, float]:
    return -wanted, wanted


def _seconds(value: float) -> str:
    return format_duration(value, 12)


def _percent(value: float) -> str:
    return f"{100 * value:.4g} %"


def _four_digits(value: float) -> str:
    return f"{value:.4f}"


_CHECKS: dict[str, tuple[str, Callable[[Any], Any], Callable[[float], str]]] = {
    "makespan": ("simulated makespan", _range, _seconds),
    "emulated": ("the makespan of the run", _range, _seconds),
    "gap": ("the gap", _at_most, _percent),
    "bytes": ("bytes between machines", _range, SIZE.exact),
    "makespan_error": ("the makespan error", _either_way, format_ratio),
    "replay_error": ("the replay error", _either_way, format_ratio),
    "accuracy": ("test accuracy", _at_least, _four_digits),
    "loss": ("training loss", _at_most, _four_digits),
}
