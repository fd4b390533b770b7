"""Faults drawn from a seed, and what may come of them."""

from __future__ import annotations

import random  # noqa: TID251 -- a draw takes 0.1 us, one of numpy 3
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from emu.prediction.simulation import simulate
from emu.testing.trials.trial import COORDINATOR, Case, Faults, Trial, run_trial
from emu.testing.trials.wires import Damage, Kinds

#: Seconds by which a run without faults may miss the simulated makespan, of one.
EXACT = 1e-6
#: Wall seconds in which a run ends, and everybody leaves, after processes have died.
PROMPT = 3.0
_LONGEST = 8.0  # wall seconds that a piece is late
_KINDS: tuple[Literal["kill"] | Kinds, ...] = (
    "kill",
    "kill",
    "reset",
    "truncate",
    "corrupt",
    "delay",
    "again",
)


@dataclass
class Trials:
    """Trials of one case: every seed is a run with one fault, or two.

    A run without faults comes first: it says what there is to be damaged, and which
    results every other run must have.

    Raises
    ------
    AssertionError
        When that run ends with an error, or misses what was simulated.
    """

    case: Case

    def __post_init__(self) -> None:
        self.undisturbed = run_trial(self.case)
        wrong = [*self.undisturbed.complaints]
        if self.undisturbed.run is None:
            wrong.append(f"it ended with {self.undisturbed.error!r}")
        else:
            case, run = self.case, self.undisturbed.run
            makespan = simulate(case.problem, case.expected, case.policy).makespan
            apart = run.schedule.makespan - makespan
            if abs(apart) > EXACT * max(1.0, makespan):
                wrong.append(f"its makespan is {apart:g} s off the simulated one")
        if wrong:
            raise AssertionError(f"without any fault: {'; '.join(wrong)}")

    def faults(self, seed: int) -> Faults:
        """Return the faults of a seed."""
        draw, trial = random.Random(seed), self.undisturbed  # noqa: S311 -- to be repeated
        damages: dict[int, Damage] = {}
        deaths: dict[str, int] = {}
        for _ in range(draw.choice((0, 1, 1, 1, 1, 2))):
            kind = draw.choice(_KINDS)
            if kind == "kill":
                name = draw.choice(sorted(trial.steps))
                deaths[name] = draw.randint(1, trial.steps[name])
                continue
            wire = draw.choice([w for w, n in enumerate(trial.carried) if n])
            length = trial.carried[wire]
            # What frames and handshakes are made of is at the beginning.
            most = draw.choice((length, length, min(length, 400)))
            late = draw.random() ** 3 * _LONGEST
            damages[wire] = Damage(wire, draw.randrange(most), kind, late)
        calm = draw.random() < 0.3
        return Faults(seed, calm, tuple(damages.values()), deaths)

    def run(self, seed: int) -> Trial:
        """Carry out the trial of a seed; its complaints are all that is wrong."""
        return self.judge(self.faults(seed))

    def judge(self, faults: Faults) -> Trial:
        """Carry out a trial of one's own."""
        trial = run_trial(self.case, faults)
        trial.complaints += list(self.wrong(trial))
        return trial

    def wrong(self, trial: Trial) -> Iterator[str]:
        """Yield what is wrong with an outcome."""
        if trial.run is not None:
            yield from self._differences(trial)
        elif trial.error is not None:
            names = self.culprits(trial)
            if not any(
                re.search(rf"\b{re.escape(n)}\b", str(trial.error)) for n in names
            ):
                yield f"none of {names} is named in: {trial.error}"
            deaths = all(isinstance(fault, str) for fault in trial.happened)
            if deaths and trial.noticed > PROMPT:
                yield f"it took {trial.noticed:.1f} s: {trial.error}"
        elif COORDINATOR not in trial.happened:
            yield "neither a result nor an error"

    def culprits(self, trial: Trial) -> list[str]:
        """Return the names of which an error must name one."""
        names = set()
        for fault in trial.happened:
            if isinstance(fault, str):
                names.add(fault)
            elif fault.wire // 2 < len(trial.ends):
                names.update(trial.ends[fault.wire // 2])
        tasks = self.case.problem.job.processes
        of_jobs = self.case.problem.job.tasks
        for name in [n for n in names if n in tasks]:
            names.update(of_jobs[task].name for task in tasks[name])
        return sorted(names - {COORDINATOR})

    def _differences(self, trial: Trial) -> Iterator[str]:
        """Yield how a result differs from that without faults."""
        mine, theirs = trial.run, self.undisturbed.run
        if mine is None or theirs is None:
            return
        if mine.results.keys() != theirs.results.keys():
            yield f"results of {sorted(mine.results)}, not {sorted(theirs.results)}"
            return
        for name, arrays in theirs.results.items():
            for key, array in arrays.items():
                if not np.array_equal(mine.results[name][key], array):
                    yield f"{key} of {name} differs"
        if not np.array_equal(mine.realization.volumes, theirs.realization.volumes):
            yield "volumes differ"
