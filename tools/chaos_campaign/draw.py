"""What is done to whom, and when: a function of the seed and the trial's number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

#: Tasks of the scenario, each a process.
TASKS = ("g0", "g1", "s0", "s1", "w0", "ps0")
_VICTIMS = {"command": 3, "agent": 3, "fork server": 2, **dict.fromkeys(TASKS, 1)}
_ACTIONS = ("kill", "terminate", "interrupt", "stop", "pause", "long pause")


@dataclass(frozen=True)
class Draw:
    """One trial.

    Parameters
    ----------
    victim
        ``command``, ``agent``, ``fork server`` or a task.
    action
        ``stop`` is for ever, ``pause`` shorter than deadlines, ``long pause`` longer.
    moment
        Share of the wall time that the command takes when nothing happens to it.
    """

    number: int
    victim: str
    action: str
    moment: float

    @classmethod
    def of(cls, seed: int, number: int) -> Draw:
        """Return the trial of this number."""
        chance = np.random.default_rng([seed, number])
        weights = np.array([*_VICTIMS.values()], float)
        victim = chance.choice([*_VICTIMS], p=weights / weights.sum())
        action = chance.choice(_ACTIONS)
        return cls(number, str(victim), str(action), float(chance.uniform(0.0, 1.02)))
