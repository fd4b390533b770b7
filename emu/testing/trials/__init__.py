"""Deterministic trials: a whole run in one process, in virtual time, from one seed.

Coordinator, agents, node processes and all they say to each other are the product's own
code. The clock, the sockets and what is drawn are those of a world in memory: nothing
sleeps, connections cut, hold back, damage and end what they carry, and a process dies
at any of its steps. The same seed is the same run, to the byte.

    from emu.scenario import load, prepare
    from emu.testing.trials import Case, Trials

    trials = Trials(Case.of(prepare(load("mine.yaml"))))  # one without faults, checked
    for seed in range(1000):
        assert trials.run(seed).complaints == []

A run under faults ends with the results of one without, or with one error that names
who is to blame. What a program computes takes no time and runs in the loop.
"""

from emu.testing.trials.trial import (
    PROMPT,
    Case,
    Faults,
    Trial,
    Trials,
    run_trial,
)
from emu.testing.trials.wires import Damage

__all__ = [
    "PROMPT",
    "Case",
    "Damage",
    "Faults",
    "Trial",
    "Trials",
    "run_trial",
]
