"""A job with deaths is predicted as its file with these deaths written in.

Whole runs in virtual time, of every system: whatever dies at any of its steps, also
after the end that was simulated, the prediction of the run is what `emu simulate` says
of the file that states the same deaths.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from ruamel.yaml import YAML

from emu.emulation.coordinator import EmulatedRun, Observer
from emu.emulation.coordinator.cuts import CutPlan
from emu.experiment import run_experiment
from emu.experiment.run_result import PreparedRun, RunResult
from emu.runs.run_directory import RunDirectory
from emu.scenario import Experiment, prepare
from emu.scenario.scenario_file import loads
from emu.testing.trials import Case, Faults, run_trial, wires
from tests import draws
from tests.fidelity.drawn_systems import SYSTEMS, draw_system
from tests.testing.trial_cases import CASES

Content = dict[str, Any]
_RESTARTS = {"on_failure": "restart", "recovery": "0.7 s", "max_restarts": 9}
#: Systems that keep checkpoints, by what holds them.
_KEEPING = {
    "dgtp": "disk",
    "ring": "disk",
    "data_parallel": "peer",
    "p3": "disk",
    "dgcl": "peer",
    "dorylus": "disk",
    "salient_plus_plus": "disk",
    "partition_parallel": "disk",
}


def content_of(system: str, seed: int) -> Content:
    """Return a scenario of five iterations that restarts."""
    if system in SYSTEMS:
        content = draw_system(system, seed)
        content["job"]["dataset"]["scale"] = 0.0005
        length = "iterations" if "iterations" in content["job"] else "epochs"
        content["job"][length] = 5
    else:
        text = re.sub("(iterations|epochs): [23]", r"\1: 5", CASES[system])
        content = YAML(typ="safe").load(f"name: {system}\n{text}\nseed: 7\n")
    content["placement"] = {"policy": "round_robin"}
    emulation = {"compute": "timed", "time_scale": 10}
    content["emulation"] = {**emulation, **content.get("emulation", {})}
    content["emulation"]["compute"] = "timed"
    if system in _KEEPING:
        kept = {"every": "2 iterations", "to": _KEEPING[system]}
        content["checkpoint"] = kept
    return content | _RESTARTS


@dataclass
class Dying:
    """Runs in virtual time, in place of sockets, of which some die at their steps.

    Parameters
    ----------
    slowness
        Factor of all times of tasks over those that were predicted.
    steps
        Of each attempt that is to die: the process, and the step that it dies at.
    """

    slowness: float
    steps: list[tuple[str, int]]
    victims: list[str] = field(default_factory=list)
    """Process that was to die in each attempt; empty where none was."""

    def __call__(
        self,
        prepared: PreparedRun,
        directory: RunDirectory,  # noqa: ARG002 -- as what it stands for
        observer: Observer,
        cuts: CutPlan | None,
    ) -> EmulatedRun:
        """Carry one attempt out."""
        left = prepared.experiment
        case = Case.of(left)
        slow_times = case.expected.times * self.slowness
        case = replace(
            case,
            expected=replace(case.expected, times=slow_times),
            every=cuts.every if cuts else 0,
            start=cuts.start if cuts else case.start,
            kills=left.kills,
            began=left.began,
        )
        victim, step = self.steps.pop(0) if self.steps else ("", 0)
        self.victims.append(victim)
        deaths = {victim: step} if victim else {}

        # An attempt begins after the one before has ended.
        epoch = wires.EPOCH * (1 + 100 * left.began)
        with mock.patch.object(wires, "EPOCH", epoch):
            trial = run_trial(case, Faults(deaths=deaths), observer)
        assert trial.complaints == []
        if cuts is not None:
            for cut in trial.cuts:
                cuts.keep(cut)
        if trial.error is not None:
            raise trial.error
        assert trial.run is not None
        return trial.run


def carried_out(whole: Experiment, dying: Dying, folder: Path) -> RunResult:
    """Return a run of which these processes die."""
    settings = run_experiment.emulation_settings(whole.scenario)
    directory = RunDirectory.create("dying", folder)
    with mock.patch.object(run_experiment, "_emulate_experiment", dying):
        return run_experiment.carry_out(whole, settings, directory)


def name_of(process: str, whole: Experiment) -> str:
    """Return a task by which a file can name a process, as no machine is called."""
    job = whole.problem.job
    machines = {machine.name for machine in whole.problem.cluster.machines}
    names = [job.tasks[task].name for task in job.processes[process]]
    return next(name for name in names if name not in machines)


def written_in(content: Content, result: RunResult, victims: list[str]) -> Experiment:
    """Return the job whose file states what died in a run as well."""
    events = [*content["events"]]
    # The last attempt has lasted: nothing died in it.
    for attempt, victim in zip(result.ended, victims, strict=False):
        if not attempt.killed:
            # Nothing can be stated of time 0, which is that of a start-up.
            at = max(float(attempt.began + attempt.ran), 1e-12)
            name = name_of(victim, result.experiment)
            events.append({"at": f"{at!r} s", "kill": name})
    return prepare(loads(json.dumps(content | {"events": events})))


@pytest.mark.parametrize(
    "system", draws.rarely_but(3, sorted({*CASES, *SYSTEMS} - {"disturbed"}))
)
def test_deaths_at_any_step_are_foreseen_as_their_file_has_them(
    system: str, tmp_path: Path
) -> None:
    """Some are stated, in time or too late; the run may be slower than foreseen."""
    for seed in draws.some(range(6), few=1, dear=True):
        rng = np.random.default_rng([seed, *system.encode()])
        # Few seeds try one kind of content of a system, and the other of the next.
        kind = (seed + sum(system.encode())) % 2
        content = content_of(system, kind)
        calm = prepare(loads(json.dumps(content)))
        job = calm.problem.job
        machines = {*calm.problem.machine_of_task.values()}
        known = sorted({*job.processes, *machines})
        events = []
        for _ in range(rng.integers(0, 3)):
            at = float(rng.uniform(0.01, 1.5)) * calm.simulate().makespan
            events.append({"at": f"{at!r} s", "kill": str(rng.choice(known))})
        content["events"] = events
        whole = prepare(loads(json.dumps(content)))

        taken = run_trial(Case.of(calm)).steps
        steps = []
        for victim in rng.choice(sorted(job.processes), 2).tolist():
            step = int(rng.uniform(1, 1.3 * taken[victim]))
            steps.append((victim, step))
        dying = Dying(float(rng.choice([0.9, 1.0, 1.4])), steps)
        result = carried_out(whole, dying, tmp_path / str(seed))

        file = written_in(content, result, dying.victims)
        predicted = result.content["predicted_makespan"]
        same = pytest.approx(file.attempts().makespan, rel=1e-9)
        assert predicted == same, (seed, events, steps)
        if result.ended:
            stated = result.content["recovery"]["foreseen_makespan"]
            alone = whole.attempts().makespan
            assert stated == pytest.approx(alone, rel=1e-9), (seed, events, steps)
