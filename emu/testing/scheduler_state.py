"""Check the state of a scheduler between two instants."""

from __future__ import annotations

from emu.prediction.scheduling import Scheduler


def validate_state(scheduler: Scheduler) -> None:
    """Raise AssertionError where something does not hold of a scheduler's state.

    Every count, list and rate that the core keeps up to date is compared with what it
    follows from: call it after `Scheduler.settle`, once per event. A simulation checks
    the same at its events where the core is built with ``SANITIZE``.
    """
    if sentence := scheduler.broken:
        raise AssertionError(f"this does not hold: {sentence}")
