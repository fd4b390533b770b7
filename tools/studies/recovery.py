"""Small jobs over sockets that are killed at drawn times, against their simulation.

    tools/study recovery OUT [--runs N] [--first SEED] [--recovery TIME] [--scale S]

Of each job one task or machine is killed once. What its run loses, to recovery as
stated and to work that is done again, is held against what was simulated before; what
this host took to go on stands beside it.
"""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from emu.experiment.run_experiment import carry_out, emulation_settings
from emu.runs.run_directory import RunDirectory
from emu.scenario import Scenario, prepare
from emu.scenario.scenario_file import loads
from tools.runner import Study, Work, distribution, heading
from tools.studies.kernel import first_seed

_JOB = """
name: recovery
cluster: {{machines: [{{name: m, count: 3, nic: 400 Mbit/s}}]}}
job:
  dataset: {{name: products-like, scale: 0.0005, feature_length: 1600}}
  model: {{hidden: 4, layers: 2}}
  fanouts: [2, 2]
  batch_size: 4
  iterations: 40
  partitioner: hash
  {system}
emulation: {{compute: padded, time_scale: {scale}}}
checkpoint: {{every: 8 iterations}}
on_failure: restart
recovery: {recovery}
events: {events}
"""
_DGTP = """workers: 2
  samplers_per_worker: 1
  system: dgtp
"""
_TIMES = "{graph_store: 20 ms, sampler: 20 ms, worker: 40 ms"
_SYSTEMS = {
    "dgtp": f"{_DGTP}  times: {_TIMES}, parameter_server: 10 ms}}",
    "ring": f"{_DGTP}  sync: ring\n  times: {_TIMES}}}",
    "data_parallel": "system: data_parallel\n  times: {sampler: 10 ms, worker: 40 ms}",
}

#: Share by which a job may be off that is trusted and agrees.
_OFF = 0.03


@dataclass(frozen=True)
class Killed:
    """One run.

    Parameters
    ----------
    recovery, again, expected
        Seconds lost to recovery, as stated in both, and to work done again in the run
        and simulated.
    detection, took, trust
        Wall seconds of this host from the first sign of the death until it was given
        up, and until it went on, and the verdict on the whole job.
    outcome
        Whether prediction and run agree, of the whole job.
    same_cut
        True where it went on from the iteration that was simulated.
    """

    case: str
    victim: str
    at: float
    recovery: float
    again: float
    expected: float
    detection: float
    makespan: float
    predicted: float
    took: float
    trust: str
    outcome: str
    same_cut: bool

    @property
    def error(self) -> float:
        """Distance of the seconds lost from those simulated, as a share of these.

        Both have the recovery that is stated: a run measures the work done again alone.
        """
        return abs(self.again - self.expected) / (self.recovery + self.expected)

    @property
    def off(self) -> float:
        """Distance of the makespan from that simulated, recovery apart, a share."""
        return abs((self.makespan - self.predicted) / (self.predicted - self.recovery))

    @property
    def misleads(self) -> bool:
        """True where a job that is over 3 % off is said to be trusted, and to agree."""
        said = self.trust == "trusted" and self.outcome == "agrees"
        return said and self.off > _OFF


def options(parser: ArgumentParser) -> None:
    """Add what is drawn."""
    add = parser.add_argument
    add("--runs", type=int, default=30)
    add("--first", type=int, help="first seed; default is of the commit's date")
    add("--recovery", default="2 s", help="recovery of the scenarios")
    add("--scale", type=float, default=4.0, help="time scale")


def work(options: Namespace) -> Iterator[Work[Killed]]:
    """Yield every run."""
    first = first_seed() if options.first is None else options.first
    for seed in range(first, first + options.runs):
        name = [*_SYSTEMS][seed % len(_SYSTEMS)]
        case = f"{name}-{seed}"
        yield case, partial(one, case, name, seed, options.recovery, options.scale)


def one(case: str, name: str, seed: int, recovery: str, scale: float) -> list[Killed]:
    """Return what a run has lost whose time of death and victim are drawn."""

    def stated(events: str) -> Scenario:
        parts = {"recovery": recovery, "scale": scale, "system": _SYSTEMS[name]}
        return loads(_JOB.format(events=events, **parts))

    rng, calm = np.random.default_rng(seed), prepare(stated("[]"))
    machines = sorted({*calm.problem.machine_of_task.values()})  # others kill nothing
    victim = str(rng.choice([*calm.problem.job.processes, *machines]))
    at = round(float(rng.uniform(0.01, 0.95)) * calm.simulate().makespan, 4)
    scenario = stated(f"[{{at: {at} s, kill: {victim}}}]")
    experiment = prepare(scenario)
    if not (killed := experiment.attempts().killed):
        return []  # it had ended by then
    (expected,) = killed
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory(Path(folder))
        run = carry_out(experiment, emulation_settings(scenario), directory)
    found = run.content["recovery"]
    return [
        Killed(
            case,
            victim,
            at,
            **found["lost"],
            detection=run.ended[0].detection,
            expected=found["predicted_lost"]["again"],
            makespan=found["makespan"],
            predicted=found["predicted_makespan"],
            took=run.ended[0].took,
            trust=run.verdict.to_json()["trust"],
            outcome=run.prediction.to_json()["outcome"],
            same_cut=run.ended[0].next_iteration == expected.next_iteration,
        )
    ]


def table(rows: list[Killed], _: Namespace) -> Iterator[str]:
    """Yield distributions of the distances, and of what was lost."""
    yield heading("|run over simulation - 1|, %", "runs")
    yield distribution("time lost", [row.error for row in rows])
    kept = [row.error for row in rows if row.trust != "untrusted"]
    yield distribution("time lost, not untrusted", kept)
    yield distribution("makespan", [row.off for row in rows])
    sure = [row.off for row in rows if row.trust == "trusted"]
    yield distribution("makespan, trusted", sure)
    for key in ("took", "detection", "again", "expected"):
        values = [getattr(row, key) for row in rows]
        median, high, most = np.percentile(values, [50, 95, 100])
        yield f"{key}: median {median:.4f}, p95 {high:.4f}, most {most:.4f} s"
    apart = [abs(row.again - row.expected) for row in rows if row.same_cut]
    if apart:
        median, high = np.percentile(apart, [50, 95])
        yield f"again, off the simulated: median {median:.4f}, p95 {high:.4f} s"
    yield f"went on from another cut: {sum(not row.same_cut for row in rows)}"


STUDY = Study(
    row=Killed,
    work=work,
    table=table,
    options=options,
    settled=("recovery", "scale"),
    wrong=lambda rows: any(row.misleads for row in rows),
)
