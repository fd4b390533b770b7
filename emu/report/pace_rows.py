"""How fast a job goes, in the same words after a simulation and after a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emu.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping


def pace_rows(pace: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return (what, how much, of what); ``pace`` is that of result.json, or empty."""
    if not pace:
        return []
    seconds, samples = pace["iteration_seconds"], pace["samples_per_second"]
    rows = [("iteration time", format_duration(seconds), "mean between their ends")]
    if samples is not None:
        rows.append(("samples", f"{samples:,.4g} per s", "seeds of all samplers"))
    if pace["busy"] is not None:
        note = "of the makespan, the mean over workers"
        rows.append(("workers busy", f"{pace['busy']:.0%}", note))
    shares = [f"{name} {share:.0%}" for name, share in pace["critical_path"].items()]
    if shares:
        rows.append(("critical path", shares[0], ", ".join(shares[1:])))
    return rows


def pace_line(pace: Mapping[str, Any]) -> str:
    """Return the same in one line; empty where nothing is known."""
    said = [
        f"{what} {value}{f', {note}' if what == 'critical path' and note else ''}"
        for what, value, note in pace_rows(pace)
    ]
    return ", ".join(said)
