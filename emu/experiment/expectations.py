"""Checks of a scenario's ``expect`` against the result of a run or a simulation.

Every key is looked at in every place that has its figure; `unchecked` names the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from emu.prediction.analysis.bounds import bounds
from emu.problem import Realization, Schedule
from emu.problem.fields.quantities import Expected
from emu.runs.result import Result, Row
from emu.scenario.run_sections import ExpectSection
from emu.units import SIZE, format_duration, format_ratio

#: Key of ``expect`` -> what came out, None where it was not reported.
Figures = Mapping[str, float | None]

#: Only a run has these.
_OF_RUNS = ("makespan_error", "replay_error", "trust", "prediction", "accuracy", "loss")
#: Keys whose plain value is to be met to within ``tolerance``.
_EXACT = ("makespan", "bytes")


def run_figures(result: Row) -> dict[str, float | None]:
    """Return a run's figures for the expectations, from the content of result.json."""
    loss: float | None = None
    if result["training"]:
        last_step = result["training"][-1]
        loss = last_step["loss"]
    if "diverged" in result:
        loss = math.inf

    accuracy = result.get("accuracy", {})
    sizes = [row["bytes"] for row in result["edges"]]
    return {
        "gap": result.get("gap"),
        "makespan_error": result.get("makespan_error"),
        "replay_error": result.get("replay_error"),
        "makespan": result["predicted_makespan"],
        "emulated": result["makespan"],
        "bytes": sum(sizes),
        "accuracy": accuracy.get("test"),
        "loss": loss,
    }


def figures_of_simulation(
    schedule: Schedule, realization: Realization
) -> dict[str, float | None]:
    """Return a simulation's figures for expectations, under these times and volumes."""
    least = bounds(schedule.problem, realization).combined
    gap = None
    if least and not schedule.outages.seconds:  # it bounds a job without deaths
        gap = schedule.length / least - 1
    volumes = schedule.flow_bytes[*schedule.flows().T]
    return {
        "makespan": schedule.makespan,
        "gap": gap,
        "bytes": float(volumes.sum()),
    }


def punctual(result: Result) -> Result:
    """Return ``result`` as it had been with nothing late, as the verdict has it.

    The host is not to blame for what is missed even so.
    """
    makespan: float = result["verdict"]["on_time_makespan"]
    recovery: float = result.get("outages", {}).get("recovery", 0.0)

    def beyond(least: float | None) -> float | None:
        if not least:
            return None
        # Recovery is as stated in both: no error is a share of it.
        error = (makespan - recovery) / (least - recovery)
        return error - 1

    return {
        **result,
        "makespan": makespan,
        "replay_error": 0.0,
        "makespan_error": beyond(result["predicted_makespan"]) or 0.0,
        "gap": beyond(result.get("bound")),
    }


def find_misses(expect: ExpectSection, result: Row) -> list[str]:
    """Return one sentence per line of ``expect`` that a run did not meet."""
    misses = list_misses(expect, run_figures(result))
    verdicts = [
        ("verdict", "trust", expect.trust),
        ("prediction", "outcome", expect.prediction),
    ]
    for section, key, verdict in verdicts:
        value = result.get(section, {}).get(key)
        if verdict is not None and value != verdict:
            misses.append(f"{section} is {value}, expected {verdict}")
    return misses


def list_unchecked(expect: ExpectSection) -> str:
    """Return which lines of ``expect`` no simulation has a figure for, in a sentence.

    Empty where there is none.
    """
    stated_keys = [key for key in _OF_RUNS if getattr(expect, key) is not None]
    if not stated_keys:
        return ""
    names = ", ".join(f"expect.{key}" for key in stated_keys)
    return f"not checked in a simulation, emu run does: {names}"


def list_misses(
    expect: ExpectSection, figures: Figures, *, exact: bool = True
) -> list[str]:
    """Return one sentence per line of ``expect`` that ``figures`` do not meet.

    Seconds, bytes between machines, and shares; a key without a figure is not looked
    at. Single values of ``makespan`` and ``bytes`` hold where ``exact``: for the
    scenario as it is stated, not for variants.
    """
    misses = []
    for key, check in _CHECKS.items():
        # ``makespan`` holds for a run as well as for its prediction.
        aim = getattr(expect, "makespan" if key == "emulated" else key)
        if aim is None or key not in figures:
            continue
        figure = figures[key]
        # NaN is within no limits: what was not reported is missed.
        value = math.nan if figure is None else figure
        words = "not reported"
        if not math.isnan(value):
            words = check.write(value)
        text = f"{check.words} is {words}"
        # A plain value is to be met, a range to be kept.
        if key in _EXACT and isinstance(aim, float):
            is_met = math.isclose(value, aim, rel_tol=expect.tolerance)
            if exact and not is_met:
                expected = check.write(aim)
                misses.append(f"{text}, expected {expected}")
            continue

        limits = _limits(check.kind, aim)
        if limits is None:
            continue
        low, high = limits
        if not low <= value <= high:
            expected = _words_of(low, high, check.write)
            misses.append(f"{text}, expected {expected}")
    return misses


def _words_of(low: float, high: float, write: Callable[[float], str]) -> str:
    """Return the words of a range of which an end may be infinite."""
    # Only an error of either sign has such limits.
    if low == -high:
        return f"at most {_percent(high)} either way"
    words = []
    if math.isfinite(low):
        words.append(f"at least {write(low)}")
    if math.isfinite(high):
        words.append(f"at most {write(high)}")
    return " and ".join(words)


def _limits(kind: str, wanted: Expected) -> tuple[float, float] | None:
    """Return the range that is stated, or that a single value of a kind stands for.

    None where a single value is of the simulation.
    """
    if isinstance(wanted, tuple):
        return wanted
    if kind == "least":
        return wanted, math.inf
    if kind == "most":
        return -math.inf, wanted
    return (-wanted, wanted) if kind == "off" else None


def _seconds(value: float) -> str:
    return format_duration(value, 12)


def _percent(value: float) -> str:
    return f"{100 * value:.4g} %"


class _Check(NamedTuple):
    """Words of a figure, what a single value bounds, and how a value is written."""

    words: str
    kind: str
    write: Callable[[float], str]


_CHECKS = {
    "makespan": _Check("simulated makespan", "range", _seconds),
    "emulated": _Check("the makespan of the run", "range", _seconds),
    "gap": _Check("the gap", "most", _percent),
    "bytes": _Check("bytes between machines", "range", SIZE.exact),
    "makespan_error": _Check("the makespan error", "off", format_ratio),
    "replay_error": _Check("the replay error", "off", format_ratio),
    "accuracy": _Check("test accuracy", "least", "{:.4f}".format),
    "loss": _Check("training loss", "most", "{:.4f}".format),
}
