"""Runs what is still missing of a folder of trials, as long as there is time."""

from __future__ import annotations

import itertools
import json
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.experiment.auto_scale import stating
from emu.experiment.run_experiment import carry_out
from emu.scenario import load
from emu.trust.lateness import flow_completion
from tools.fidelity_study.corpus import draw_scenario
from tools.fidelity_study.pairs import drawn_pair, drawn_placements
from tools.fidelity_study.rows import Ledger, Row, insist
from tools.fidelity_study.trial import attempt, prepared, prepared_at, prepared_auto

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from emu.coordinator.settings import EmulationSettings
    from emu.experiment.run_experiment import ExperimentOutcome
    from emu.experiment.scale_search import ScaleChoice
    from emu.runs.run_directory import RunDirectory
    from emu.scenario import Experiment, Scenario
    from tools.fidelity_study.trial import Trial

Content = dict[str, Any]
#: What trials of one folder have in common.
_SETTLED = ("wall", "per_event", "most_rate", "processes")


class OutOfTime(Exception):
    """The budget is spent; what was run stands on disk."""


@dataclass(frozen=True)
class Manner:
    """How trials are run.

    Parameters
    ----------
    out
        Folder of all that is written.
    scales
        Time scales of every scenario, as words: ``auto``, chosen by trials; ``wall``,
        the one that makes a run as long as ``wall`` says; or a number. A second word
        says what ends flows: ``wall fluid``. Pairs and ranks have the first.
    wall, per_event, most_rate
        With ``wall``: wall seconds of one run, of each of its events at least, and real
        bytes per wall second at most; see `prepared`.
    processes
        Per job, at most.
    retries
        Of a run that is not trusted.
    keep
        Whether run directories stay; those of runs that failed stay in any case.
    until
        Of the monotonic clock; no run is started later.
    """

    out: Path
    scales: tuple[str, ...]
    wall: float
    per_event: float
    most_rate: float
    processes: int
    retries: int
    keep: bool
    until: float


class Keeping:
    """Carries experiments out, remembers flows' finishes, tidies up behind."""

    def __init__(self, *, keep: bool) -> None:
        self._keep = keep
        self.excess: NDArray[np.float64] = np.empty(0)

    def __call__(
        self,
        experiment: Experiment,
        settings: EmulationSettings,
        directory: RunDirectory,
    ) -> ExperimentOutcome:
        """Return the outcome; see `carry_out`."""
        outcome = carry_out(experiment, settings, directory)
        self.excess = flow_completion(outcome.run.schedule, settings.time_scale).excess
        if not self._keep:
            shutil.rmtree(directory.path)
        return outcome


class Campaign:
    """Trials of one folder.

    Parameters
    ----------
    tell
        Told of every trial, and whether it was run now.

    Raises
    ------
    DataError
        When the folder holds trials that were run in another manner.
    """

    def __init__(self, manner: Manner, tell: Callable[[Row, bool], None]) -> None:
        self._manner, self._tell = manner, tell
        manner.out.mkdir(parents=True, exist_ok=True)
        insist(
            manner.out / "settings.json",
            {name: getattr(manner, name) for name in _SETTLED},
        )
        self.trials = Ledger(manner.out / "trials.csv")
        self.pairs = Ledger(manner.out / "pairs.csv")

    def repeat(self, seeds: range, repeats: int) -> None:
        """Run every scenario once at every scale, then again, so many times.

        Repeats that are far apart meet another hour's neighbours, and a budget that
        runs out leaves a part of every kind.

        Raises
        ------
        OutOfTime
            When no run may be started any more.
        EmulatorError
            When a scenario cannot be prepared.
        """
        for number in range(repeats):
            for seed, scale in itertools.product(seeds, self._manner.scales):
                group = f"drawn-{seed}@{scale}"
                if not self._stands(self.trials, group, number):
                    scenario = self._scenario(self._drawn(seed))
                    self._run(self.trials, group, number, scenario, scale)

    def decide(self, first: int, count: int) -> None:
        """Run pairs of variants of one scenario until so many are decided.

        Raises
        ------
        OutOfTime, EmulatorError
            As `repeat`.
        """
        decided = 0
        for seed in range(first, first + 3 * count):
            pair = drawn_pair(self._drawn(seed), seed, self._makespan)
            if pair is not None and decided < count:
                kind = "policy" if seed % 2 else "placement"
                rows = self._compare(f"{kind}-{seed}", pair)
                decided += all(row.trial.trust != "failed" for row in rows)

    def rank(self, first: int, scenarios: int, placements: int) -> None:
        """Run so many placements of so many scenarios.

        Raises
        ------
        OutOfTime, EmulatorError
            As `repeat`.
        """
        for seed in range(first, first + scenarios):
            contents = drawn_placements(
                self._drawn(seed), seed, placements, self._makespan
            )
            self._compare(f"tau-{seed}", contents)

    def _compare(self, group: str, contents: list[Content]) -> list[Row]:
        """Run variants of one scenario at the same scales.

        The first takes as long as alone, unless another would then take less.
        """
        named = self._scenario(contents[0] | {"name": group})
        first, _ = self._prepared(named, self._manner.scales[0])
        emulation = first.scenario.emulation
        ratio = first.simulate().makespan / min(map(self._makespan, contents))
        scale = f"{emulation.stated_time_scale * max(ratio, 1):.3g}"
        sent = {"byte_scale": emulation.stated_byte_scale}
        for number, content in enumerate(contents):
            if not self._stands(self.pairs, group, number):
                variant = content | {"name": f"{group}-{number}", "emulation": sent}
                self._run(self.pairs, group, number, self._scenario(variant), scale)
        return self.pairs.of(group)

    def _prepared(
        self, scenario: Scenario, scale: str
    ) -> tuple[Experiment, ScaleChoice | None]:
        manner = self._manner
        scale, _, ends = scale.partition(" ")
        if ends:
            scenario = stating(scenario, flow_ends=ends)
        if scale == "auto":
            return prepared_auto(scenario)
        if scale != "wall":
            return prepared_at(scenario, float(scale)), None
        experiment = prepared(
            scenario,
            manner.wall,
            per_event=manner.per_event,
            most_rate=manner.most_rate,
        )
        return experiment, None

    def _stands(self, ledger: Ledger, group: str, number: int) -> bool:
        row = ledger.get(group, number)
        if row is not None:
            self._tell(row, False)
        return row is not None

    def _run(
        self, ledger: Ledger, group: str, number: int, scenario: Scenario, scale: str
    ) -> None:
        manner, began = self._manner, time.monotonic()
        if began > manner.until:
            raise OutOfTime
        experiment, choice = self._prepared(scenario, scale)
        carry = Keeping(keep=manner.keep)
        trial: Trial = attempt(
            experiment,
            manner.out / "runs",
            retries=manner.retries,
            carry=carry,
            choice=choice,
        )
        if ledger is self.trials:
            self._keep_flows(f"{group}-{number}", carry.excess)
        expected = experiment.simulate().makespan
        row = Row(group, number, expected, time.monotonic() - began, trial)
        ledger.add(row)
        self._tell(row, True)

    def _keep_flows(self, name: str, excess: NDArray[np.float64]) -> None:
        path = self._manner.out / "flows" / f"{name}.npy"
        path.parent.mkdir(exist_ok=True)
        np.save(path, excess.astype(np.float32))

    def excess(self) -> NDArray[np.float64]:
        """Return every flow's error over what it may be, of all trials on disk."""
        names = [f"{row.group}-{row.number}.npy" for row in self.trials.rows]
        paths = [self._manner.out / "flows" / name for name in names]
        found = [np.load(path) for path in paths if path.exists()]
        return np.concatenate([np.empty(0), *found])

    def _drawn(self, seed: int) -> Content:
        return draw_scenario(seed, most_processes=self._manner.processes)

    def _scenario(self, content: Content) -> Scenario:
        """Return a scenario as the loader sees it, and keep its file."""
        path = self._manner.out / "scenarios" / f"{content['name']}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1))
        return load(path)

    def _makespan(self, content: Content) -> float:
        scenario = self._scenario(content | {"name": "candidate"})
        return float(prepared_at(scenario, 1.0).simulate().makespan)
