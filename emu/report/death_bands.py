"""Times that deaths took from a run, before its last attempt."""

from __future__ import annotations

import math
from dataclasses import dataclass

from emu.runs.result import Row


@dataclass(frozen=True)
class DeathBand:
    """Time before the last attempt of a run; 0 is where that began."""

    run: str
    """``emulated`` or ``simulated``."""
    what: str
    """``done``; ``done again``, lost with the attempt; or ``down``."""
    since: float
    until: float
    """Seconds, below 0."""
    note: str = ""
    """Death that a time ``down`` follows, where it went on, and how soon noticed."""


def death_bands(result: Row) -> list[DeathBand]:
    """Return what attempts did before deaths ended them, and when the run was down."""
    recovery = result.get("recovery") or {}
    bands = []
    for run, key in (("emulated", "attempts"), ("simulated", "predicted_attempts")):
        attempts = recovery.get(key, [])
        begin = -math.fsum(attempt["ran"] + attempt["recovery"] for attempt in attempts)
        # Attempts follow each other, and the last one begins at 0.
        for attempt in attempts:
            death = begin + attempt["ran"]
            # What came after the last cut is lost: the next attempt does it again.
            cut = death - attempt["again"]
            end = death + attempt["recovery"]
            note = (
                f"{attempt['error']}: goes on at iteration {attempt['next_iteration']}"
            )
            if "detection" in attempt:
                note += f"; noticed in {attempt['detection']:.2g} s of wall time"
            bands += [
                DeathBand(
                    run=run,
                    what="done",
                    since=begin,
                    until=cut,
                ),
                DeathBand(
                    run=run,
                    what="done again",
                    since=cut,
                    until=death,
                ),
                DeathBand(
                    run=run,
                    what="down",
                    since=death,
                    until=end,
                    note=note,
                ),
            ]
            begin = end

    return bands
