"""Steps to an accuracy by a curve that was recorded, in place of a training.

Time is steps by the time of a step, which a simulation of some of them shows. So the
question has an answer for graphs that no training can have in memory.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from emu.errors import DataError
from emu.graph_data import open_for
from emu.interchange.accuracy_curve import AccuracyCurve, read_curve
from emu.scenario import Scenario
from emu.scenario.virtual_training import Curve
from emu.training.layers import JobSettings
from emu.training.looks import HELD, Look, count_seeds, epoch_of, hold, reach


def recorded_looks(
    scenario: Scenario,
    row: str,
    accuracy: float,
    settings: JobSettings,
) -> list[Look]:
    """Return the looks of the curve of a row, up to that which reaches an accuracy.

    As in a training, three in a row have to hold it. ``scenario``: the file that states
    the curve; ``settings``: ``Job.settings`` of the row. Raises ScenarioError where the
    curve is damaged or never holds it, or events make steps differ.
    """
    file = scenario.curve_files[row]
    trail = scenario.trail_of_curve(row)
    refuse_unequal_steps(scenario, "accuracy")
    try:
        curve = read_curve(Path(file))
    except DataError as error:
        raise scenario.origin.error(trail, str(error)) from error

    shares = np.array(curve.accuracy)
    if len(shares) < HELD:
        problem = f"{file}: {HELD} looks in a row have to hold it, found {len(shares)}"
        raise scenario.origin.error(trail, problem)
    place = reach(shares, accuracy)
    if place is None:
        levels = hold(shares)
        best = int(levels.argmax())
        level = levels[best]
        moment = curve.moments[best]
        problem = (
            f"{file} never reaches {accuracy:.2%}: at best {HELD} looks in a row hold "
            f"{level:.2%}, from {curve.unit} {moment:g} on; write "
            "a lower accuracy, or a longer curve"
        )
        raise scenario.origin.error(trail, problem)
    return _looks_until(curve, place, settings)


def refuse_unequal_steps(scenario: Scenario, source: str) -> None:
    """Raise ScenarioError where events make steps differ; ``source``: key of them."""
    for key in ("events", "failures"):
        if getattr(scenario, key):
            problem = f"steps of {source} take equal times: remove this, or {source}"
            raise scenario.origin.error((key,), problem)


def _looks_until(curve: AccuracyCurve, last: int, settings: JobSettings) -> list[Look]:
    """Return the looks of a curve up to a place, in steps of a job's settings."""
    steps_per_moment = 1
    epoch = epoch_of(settings)
    # Of whole graphs a step is an epoch.
    if curve.unit == "epoch" and epoch is not None:
        steps_per_moment = epoch.steps
    moments = curve.moments[: last + 1]
    steps = [math.ceil(moment * steps_per_moment) for moment in moments]
    train_count = open_for(settings).train_count
    seeds = count_seeds(settings, train_count, steps[-1])
    looks = []
    for step, share in zip(steps, curve.accuracy, strict=False):
        seen = int(seeds[step - 1])
        looks.append(Look(step, seen, share))

    return looks


def time_steps(looks: list[Look], step_seconds: float) -> Curve:
    """Return when looks were there, if all steps take so many seconds."""
    return tuple((look.step * step_seconds, look.accuracy) for look in looks)
