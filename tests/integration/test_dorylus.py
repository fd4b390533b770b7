"""Dorylus over sockets: weights, reads, bytes, and lambdas that are killed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.emulation.coordinator import emulate
from emu.errors import NodeLost
from emu.experiment.recompute import audit_whole
from emu.experiment.run_experiment import emulation_settings
from emu.prediction.simulation import simulate
from emu.problem import Schedule
from emu.report.facts import run_facts
from emu.runs.audit_inputs import read_to_audit
from emu.runs.recorded_run import load_run
from emu.scenario import Experiment, prepare
from emu.scenario.scenario_file import loads
from emu.systems.dorylus.replay import replay_training
from emu.systems.dorylus.section import DorylusJobSection
from emu.systems.system import systems
from emu.training import evaluate
from tests import draws
from tests.emulation.coordinator.emulated import Acts, named
from tests.integration.scenarios import Carried, carried_out, check_training
from tests.leftovers import Leftovers

pytestmark = pytest.mark.emulation

EPOCHS = 6
TEXT = f"""\
name: dorylus
cluster:
  machines:
    - {{name: g, count: 2, nic: 400 Mbit/s, price: 0.432 $/h}}
    - {{name: ps, nic: 400 Mbit/s, price: 0.34 $/h}}
job:
  system: dorylus
  dataset: {{name: products-like, scale: 0.0005}}
  model: {{hidden: 6}}
  parameter_servers: [ps]
  intervals: 3
  lambdas: 2
  mode: async
  epochs: {EPOCHS}
  optimizer: {{name: adam, lr: 0.05}}
  precision: float64
  times: {{gather: 10 ms, apply: 20 ms, scatter: 4 ms}}
  slow_lambdas: {{share: 30 %, factor: 4}}
emulation: {{compute: padded, deadline: 60 s, time_scale: 2}}
seed: 7
"""


def _carried(folder: Path, *changes: str) -> Carried:
    file = folder / "dorylus.yaml"
    file.write_text(TEXT)
    return carried_out(file, folder, *changes)


def _alone(experiment: Experiment, schedule: Schedule) -> Any:
    """Return what one process trains that follows the reads of a schedule."""
    section = experiment.scenario.job
    assert isinstance(section, DorylusJobSection)
    context = experiment.scenario.build_context()
    return replay_training(section, context, schedule)[0]


def _trained(run: Carried) -> Any:
    left = run.outcome.run
    return systems()["dorylus"].trained(left.schedule.problem.job, left.results)


@pytest.mark.untimed
def test_pipe_over_sockets_equals_one_process(tmp_path: Path) -> None:
    run = _carried(tmp_path, "job.mode=pipe")
    check_training(run, EPOCHS)
    assert run.result["cost"]["lambdas"] > 0


@pytest.mark.untimed
@pytest.mark.parametrize(
    "changes",
    [
        ("job.staleness=1", "job.launch={cold: 20 ms, warm: 4 ms}", "job.stream=2"),
        draws.rarely(
            (
                *("job.model.kind=gat", "job.times.edge_apply=15 ms"),
                *("job.staleness=2", "job.parameter_servers=[ps, g0]"),
            )
        ),
    ],
    ids=["S 1, launches", "GAT, S 2, two parameter servers"],
)
def test_async_over_sockets_equals_one_process_with_the_recorded_reads(
    tmp_path: Path, changes: tuple[str, ...]
) -> None:
    run = _carried(tmp_path, *changes)
    recorded = load_run(run.path).emulated
    assert recorded is not None
    found, experiment = _trained(run), run.outcome.experiment
    assert np.abs(found - _alone(experiment, recorded)).max() <= 1e-12
    replay = simulate(
        recorded.problem, run.outcome.run.realization, "oes"
    )  # other reads, where a run was late
    assert replay.reads is not None
    assert recorded.reads is not None
    if np.array_equal(replay.reads, recorded.reads):
        assert np.abs(found - _alone(experiment, replay)).max() <= 1e-12


@pytest.mark.untimed
def test_a_run_counts_reads_that_are_others_than_simulated(tmp_path: Path) -> None:
    until = "until={accuracy: 4 %, split: train, every: 4}"
    run = _carried(tmp_path, until, "job.epochs=40")
    ran, predicted = run.outcome.run.schedule, run.outcome.predicted
    job, apart = ran.problem.job, run.result["reads_apart"]
    assert ran.reads is not None
    assert predicted.reads is not None
    pairs = [
        (ran.reads[e, n], predicted.reads[e, n])
        for e, edge in enumerate(job.edges)
        for n in range(job.rounds[edge.destination] if edge.latest else 0)
    ]
    assert apart["count"] == len(pairs)
    assert apart["other"] == sum(one != other for one, other in pairs)
    reached = run.outcome.experiment.reached
    assert reached is not None
    found = evaluate(job.settings, _trained(run))["train"]
    assert apart["accuracy"] == pytest.approx(found - reached.accuracy, abs=1e-12)
    facts = {fact.label: fact.value for fact in run_facts(run.result)}
    assert facts["other reads"] == f"{apart['other']:,} of {len(pairs):,}"


@pytest.mark.untimed
def test_tuned_quotas_over_sockets_are_those_of_the_replay(tmp_path: Path) -> None:
    tuned = ("job.lambdas=auto", "job.tuner.period=40 ms", "job.epochs=12")
    run = _carried(tmp_path, *tuned)
    ran, replayed = run.outcome.run.schedule, run.outcome.replayed
    assert ran.quotas is not None
    assert replayed.quotas is not None
    both = min(len(ran.quotas), len(replayed.quotas))
    np.testing.assert_array_equal(ran.quotas[:both], replayed.quotas[:both])
    assert {*np.unique(ran.quotas).tolist()} <= {1, 2, 3}
    recorded = load_run(run.path).emulated
    assert recorded is not None
    np.testing.assert_array_equal(recorded.quotas, ran.quotas)
    subject = read_to_audit(run.path)
    report, _ = audit_whole(subject, subject.tolerance, 1e-6)
    assert not report.violations


def _killed(folder: Path, leftovers: Leftovers, moment: str, number: int) -> str:
    """Return the error of a run whose lambda is killed at a moment."""
    changes = ["emulation.compute=timed", "emulation.time_scale=0.5"]
    experiment = prepare(loads(TEXT, changes))
    problem, settings = experiment.problem, emulation_settings(experiment.scenario)

    def kill() -> None:
        named(leftovers.note(), f"lambda{number}").kill()

    with pytest.raises(NodeLost) as caught:
        emulate(
            problem, "oes", settings, experiment.realization,
            log=folder / "agent.log", observer=Acts(moment, kill, problem),
        )  # fmt: skip
    return str(caught.value)


def _names_what_it_did(error: str, number: int) -> bool:
    """Return True where an error has the lambda's interval, a task and its epoch."""
    tasks = rf"tasks av0_{number}, av1_{number}, dav_{number}"
    begin = rf"process lambda{number} was killed by SIGKILL \({tasks}: "
    task = rf"(task \w+_{number} |(send|receiv)ing [\w>-]*(av[01]|dav)_{number}\b)"
    return bool(re.match(rf"{begin}{task}.*iteration \d", error))


@pytest.mark.untimed
@pytest.mark.parametrize("moment", ["start av0_4 2", "task dav_1 3"])
def test_a_killed_lambda_is_named_with_task_and_epoch(
    moment: str, tmp_path: Path, leftovers: Leftovers
) -> None:
    number = int(moment.split()[1].rpartition("_")[2])
    error = _killed(tmp_path, leftovers, moment, number)
    assert _names_what_it_did(error, number), error


@pytest.mark.slow
@pytest.mark.untimed
@pytest.mark.parametrize("seed", range(10))
def test_lambdas_killed_at_any_moment(
    seed: int, tmp_path: Path, leftovers: Leftovers
) -> None:
    rng = np.random.default_rng([31, seed])
    job = prepare(loads(TEXT)).problem.job
    names = [t.name for t in job.tasks if not t.gate and not t.name.endswith("_5")]
    moment = f"task {rng.choice(names)} {rng.integers(EPOCHS - 1)}"
    error = _killed(tmp_path, leftovers, moment, 5)
    assert _names_what_it_did(error, 5), error
