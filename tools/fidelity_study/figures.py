"""What many trials say together, line by line."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from emu.report.statistics import interval, paired_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tools.fidelity_study.rows import Row
    from tools.fidelity_study.trial import Trial

#: Off by more is wrong unless it was flagged; by less is right, and a flag an alarm.
WRONG, RIGHT = 0.03, 0.01
_ERRORS = {
    "makespan_error": "emulated/predicted - 1",
    "replay_error": "emulated/replayed - 1",
}
_POINTS = (0, 5, 25, 50, 75, 90, 95, 99, 100)
_BANDS = ((2, 4), (5, 8), (9, 12), (13, 16))


def table(rows: Sequence[Row], excess: NDArray[np.float64] | None = None) -> list[str]:
    """Return the figures of all runs.

    Parameters
    ----------
    excess
        Error of every flow of all runs over what it may be, where it was kept.
    """
    trials = [row.trial for row in rows]
    heading = ["min", *(f"p{p}" for p in _POINTS[1:-1]), "max"]
    lines = _counts(rows)
    for error, what in _ERRORS.items():
        lines += ["", _line(f"|{what}|, %", "runs", heading)]
        lines += _split(rows, error, lambda _: "all runs")
        lines += _split(rows, error, lambda row: row.trial.trust)
        lines += _split(rows, error, lambda row: _decided_by(row.trial))
        lines += _split(rows, error, lambda row: row.scale, "time scale ")
    lines += ["", _line("|makespan error|, %", "runs", heading)]
    for key, prefix in (
        (lambda row: f"{row.trial.system} {row.trial.shape}", ""),
        (lambda row: band(row.trial.machines), "machines "),
        (lambda row: row.trial.policy, ""),
    ):
        lines += _split(rows, "makespan_error", key, prefix)
    lines += ["", _line("of a scenario's repeats, %", "seeds", heading)]
    lines += [_distribution("largest less smallest", spreads(rows))]
    lines += ["", _line("per run", "runs", heading)]
    lines += _per_run(trials)
    lines += ["", *_flows(trials, excess, heading), "", *_flags(trials, "")]
    for scale in dict.fromkeys(row.scale for row in rows if row.scale):
        these = [row.trial for row in rows if row.scale == scale]
        lines += _flags(these, f"time scale {scale}: ")
    return [*lines, *_beside(rows)]


def _beside(rows: Sequence[Row]) -> list[str]:
    """Return how the errors of two time scales differ, scenario by scenario."""
    found: dict[str, dict[tuple[str, int], float]] = {}
    for row in rows:
        if row.scale and row.trial.trust != "failed":
            of_scale = found.setdefault(row.scale, {})
            of_scale[row.scenario, row.number] = abs(row.trial.makespan_error)
    lines = []
    for one, other in itertools.combinations(found, 2):
        shared = found[one].keys() & found[other].keys()
        apart = [found[one][at] - found[other][at] for at in shared]
        if apart:
            lines.append(
                f"|makespan error| at time scale {one} less that at {other}: "
                f"{paired_text(interval(apart))}, {len(apart)} pairs"
            )
    return ["", *lines] if lines else []


def _decided_by(trial: Trial) -> str:
    """Return whether a makespan hangs on delays that no host avoids."""
    chance = trial.sensitivity > RIGHT
    return "decided by chance" if chance else "not decided by chance"


def band(machines: int) -> str:
    """Return the band of a number of machines."""
    for first, last in _BANDS:
        if machines <= last:
            return f"{first}-{last}"
    return f"over {_BANDS[-1][1]}"


def spreads(rows: Sequence[Row]) -> NDArray[np.float64]:
    """Return how far a scenario's repeats are apart, of those with two or more."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row.trial.trust != "failed":
            found.setdefault(row.group, []).append(row.trial.makespan_error)
    return np.array([max(v) - min(v) for v in found.values() if len(v) > 1])


def _counts(rows: Sequence[Row]) -> list[str]:
    trials = [row.trial for row in rows]
    trusts = Counter(trial.trust for trial in trials)
    retried = sum(trial.retries > 0 for trial in trials)
    again = sum(trial.retries for trial in trials)
    hours = sum(row.seconds for row in rows) / 3600
    words = ("trusted", "degraded", "untrusted", "failed")
    return [
        f"runs {len(rows)} of {len({row.scenario for row in rows})} scenarios, "
        + ", ".join(f"{word} {trusts[word]}" for word in words),
        f"retried {retried} ({again} runs more), {hours:.2f} h of wall time",
    ]


def _line(name: str, count: object, cells: Sequence[str]) -> str:
    return f"{name:28}{count!s:>8}" + "".join(f"{cell:>9}" for cell in cells)


def _distribution(name: str, values: NDArray[np.float64], factor: float = 100.0) -> str:
    """Return a line of percentiles; ``factor`` makes per cent of shares."""
    known = values[~np.isnan(values)]
    if not len(known):
        return _line(name, 0, ["-"] * len(_POINTS))
    points = np.percentile(known, _POINTS, method="linear") * factor
    return _line(name, len(known), [f"{value:.3f}" for value in points])


def _split(
    rows: Sequence[Row], error: str, key: Callable[[Row], str], prefix: str = ""
) -> list[str]:
    """Return the distribution of an error for each value of ``key`` but the empty."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row.trial.trust != "failed" and key(row):
            found.setdefault(key(row), []).append(abs(getattr(row.trial, error)))
    in_order = sorted(found, key=lambda name: (len(name.split("-")[0]), name))
    names = in_order if prefix else sorted(found)
    return [_distribution(f"{prefix}{name}", np.array(found[name])) for name in names]


def _per_run(trials: Sequence[Trial]) -> list[str]:
    """Return distributions of what runs cost, and of what was said of them."""
    figures = (
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
    finished = [trial for trial in trials if trial.trust != "failed"]
    return [
        _distribution(
            name,
            _finite(np.array([getattr(t, field) for t in finished], dtype=float)),
            factor,
        )
        for name, field, factor in figures
    ]


def _finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the values with what is infinite as NaN: there is no such percentile."""
    return np.where(np.isfinite(values), values, np.nan)


def _flows(
    trials: Sequence[Trial],
    excess: NDArray[np.float64] | None,
    heading: Sequence[str],
) -> list[str]:
    lines = [f"flows within max(1 % of length, 2 ms wall): {_kept(trials)}"]
    for shape in sorted({trial.shape for trial in trials}):
        chosen = [trial for trial in trials if trial.shape == shape]
        lines.append(f"  {shape}: {_kept(chosen)}")
    trusted = [trial for trial in trials if trial.trust == "trusted"]
    lines.append(f"  of trusted runs: {_kept(trusted)}")
    if excess is not None and len(excess):
        lines += [_line("error over what is allowed", "flows", heading)]
        lines += [_distribution("every flow of every run", excess, 1.0)]
    return lines


def _kept(trials: Sequence[Trial]) -> str:
    count = sum(trial.finishes for trial in trials)
    kept = sum(trial.kept for trial in trials)
    return f"{100 * kept / count:.2f} % of {count}" if count else "none of 0"


def _flags(trials: Sequence[Trial], of: str) -> list[str]:
    """Return how often the verdict was right about a run that was far off or close.

    Off either simulation: what moved a run may have moved that of the same times and
    volumes alike, if it is in the times.
    """
    finished = [trial for trial in trials if trial.trust != "failed"]
    flagged = Counter(
        (
            trial.trust == "trusted",
            _place(_errors(trial)),
        )
        for trial in finished
    )
    missed, caught = flagged[True, "wrong"], flagged[False, "wrong"]
    alarms, calm = flagged[False, "right"], flagged[True, "right"]
    guarded = sum(trial.guards != "" and _errors(trial) <= RIGHT for trial in finished)
    wrong = f"{missed + caught}, flagged {caught}, trusted {missed}"
    right = f"{alarms + calm}, flagged all the same {alarms} ({guarded} by a guard)"
    return [
        f"{of}off either simulation by > {100 * WRONG:g} %: {wrong}",
        f"{of}within {100 * RIGHT:g} % of both: {right}",
    ]


def _errors(trial: Trial) -> float:
    return max(abs(trial.replay_error), abs(trial.makespan_error))


def _place(apart: float) -> str:
    if apart > WRONG:
        return "wrong"
    return "right" if apart <= RIGHT else "between"
