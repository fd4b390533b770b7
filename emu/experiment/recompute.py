"""A run computed again: scenario text, problem, simulations, result.json, verdict.

An audit trusts no file that follows from another one. It starts from the text of the
scenario, and from what processes reported; everything else is made again, and compared.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from emu.emulation.coordinator.outcome import EmulatedRun
from emu.emulation.coordinator.settings import RunSettings
from emu.errors import DataError, EmulatorError, ScenarioError
from emu.experiment import run_experiment
from emu.experiment.attempts import Ended, foreseen, with_until
from emu.experiment.run_result import PreparedRun, learnt
from emu.experiment.scale_search import ScaleChoice
from emu.experiment.witness import recompute_witness
from emu.host.foreign_code import code_runs
from emu.host.input_file import one_error, parse_json, read_json, read_text
from emu.prediction.simulation.attempts import Attempts
from emu.problem import Realization, Schedule
from emu.runs import array_files
from emu.runs.audit_inputs import ToAudit, has_other_windows
from emu.runs.problem_json import problem_to_json
from emu.runs.recorded_run import RecordedRun, load_run
from emu.runs.run_directory import SETUP, RunDirectory, apart, read_scenario
from emu.scenario import Experiment, Scenario, prepare
from emu.scenario.realize import model_programs
from emu.scenario.setup import setup_to_run
from emu.trust.guards.schedule import headline_faults
from emu.trust.lateness import late_times
from emu.trust.violation import AuditReport, Findings, agreement, disagreement

#: Keys of manifest.json that nothing else states.
_OWN = (
    "started", "emu", "python", "system", "versions", "source", "scenario",
    "auto_scale", "first_iteration", "began", "killed", "attempts", "witness",
    "until", "reached",
)  # fmt: skip
_BY_DIGEST = (
    "held against its digest alone: when the run started and on which "
    "versions, and what processes counted that no guard can compare"
)


def audit_whole(
    subject: ToAudit,
    tolerance: float,
    relative: float,
    *,
    rule: bool = False,
    training: bool = False,
    stated: Scenario | None = None,
) -> tuple[AuditReport, tuple[str, ...]]:
    """Return the report of an audit, and what could not be compared, in sentences.

    As `ToAudit.audit`; ``stated`` stands for the scenario's text in the run directory.
    Raises DataError, ValueError as `ToAudit.audit`, or when records are damaged.
    """
    report = subject.audit(tolerance, relative, rule=rule, training=training)
    if subject.run is None:
        return report, subject.silent
    checks, silent = recompute(subject.run, stated)
    for name, check in checks.items():
        report = report.adding(name, check)
    return report, (*subject.silent, *silent)


def recompute(
    run: RecordedRun, stated: Scenario | None = None
) -> tuple[dict[str, Findings], list[str]]:
    """Compute everything of a run again that follows from something else.

    Returns numbers compared, and violations, by file; and a sentence per thing that
    could not be compared. ``stated`` stands for the scenario's text in the run
    directory. Raises DataError when records are damaged.
    """
    checks: dict[str, Findings] = {"records": (0, [])}  # of an earlier emu
    if "source" in run.manifest or "records" in run.result:
        there = RunDirectory(run.path).digests()
        content = run.result.get("records")
        checks["records"] = agreement("records", there, content, "result.json")
    silent = [_BY_DIGEST]
    scenario, check = _scenario(run, stated, silent)
    checks["scenario"] = (1, [disagreement("scenario", words) for words in check])
    if scenario is None:
        return checks, silent
    if has_other_windows(scenario):
        silent.append("no credit window is checked where iterations are cycles")
    try:
        experiment = prepare(scenario)
    except EmulatorError as error:
        silent.append(f"problem and results are not computed again: {error}")
        return checks, silent
    with one_error(run.path / "manifest.json"):
        ends = [Ended(**one) for one in run.manifest.get("attempts", ())]
        first, began = (run.manifest.get(k, 0) for k in ("first_iteration", "began"))
        experiment = with_until(experiment, run.manifest).beginning_at(first, began)
        before = foreseen(experiment, ends)
    problem = _plain(problem_to_json(experiment.problem))
    there = read_json(run.path / "problem.json")
    checks["problem"] = agreement("problem", there, problem, "the scenario")
    if checks["problem"][1]:
        silent.append("results are not computed again: they are of another problem")
        return checks, silent
    settings = run_experiment.emulation_settings(scenario, host_of={})
    checks["manifest"] = _manifest(run, scenario, settings)
    if not (run.path / array_files.REPORTS).exists():
        sentence = "reports.npz is missing: nothing of result.json is computed again"
        checks["result"] = (1, [disagreement("result", sentence)])
        return checks, silent
    with one_error(run.path):
        content = run.manifest.get("auto_scale")
        choice = None if content is None else ScaleChoice.from_json(content)
        prepared = PreparedRun.of(experiment, settings, choice)
        checks |= _results(run, prepared, silent, ends, before)
    return checks, silent


def _scenario(
    run: RecordedRun, stated: Scenario | None, silent: list[str]
) -> tuple[Scenario | None, list[str]]:
    """Return the scenario to start from, and where the manifest differs from it."""
    record = run.manifest.get("scenario")
    try:
        text = read_scenario(run.path, run.manifest) if stated is None else stated
    except (DataError, ScenarioError) as error:
        silent.append(f"nothing is computed again: {error}")
        # Of what was read beside the text no run notes a topology: its file has gone.
        is_gone = getattr(error, "key", "") == "cluster.topology"
        return None, [str(error)] if "source" in run.manifest and not is_gone else []
    differences = apart(text, record)
    if differences:
        return text, differences
    with one_error(run.path / "manifest.json"):
        return Scenario.model_validate(record), []


def _manifest(run: RecordedRun, scenario: Scenario, settings: RunSettings) -> Findings:
    """Return where manifest.json differs from what the scenario makes of it."""
    content = run_experiment.manifest(scenario, settings)
    fields = {k: v for k, v in content.items() if k not in _OWN}
    there = {k: v for k, v in run.manifest.items() if k not in _OWN}
    path = run.path / "processes.json"
    if scenario.emulation.network != "kernel":  # there every machine is a host
        with one_error(path):
            fields["emulation"]["hosts"] = len(read_json(path)["hosts"])
    return agreement("manifest", there, _plain(fields), "the scenario")


def _results(
    run: RecordedRun,
    prepared: PreparedRun,
    silent: list[str],
    ended: Sequence[Ended],
    before: Attempts | None,
) -> dict[str, Findings]:
    """Return where result.json and simulated.json differ from the records."""
    experiment = prepared.experiment
    outcome = read_outcome(run, experiment)
    with_weights = (run.path / array_files.NAME).exists()
    weights = array_files.read_weights(run.path) if with_weights else {}
    training, _ = learnt(experiment, outcome, prepared.policy, weights)
    training |= run_experiment.setup_figures(experiment, run.path)
    made = run_experiment.result_of(prepared, outcome, training, ended, before)
    if network := run.manifest.get("witness"):
        witnesses, unseen = recompute_witness(made, network, run.result.get("witness"))
        made = replace(made, witness=witnesses)
        silent += [unseen] if unseen else []
    again = _plain(made.replayed.to_json())
    content = _plain(made.content)
    there = read_json(run.path / "simulated.json")
    result = {k: v for k, v in run.result.items() if k != "records"}
    if with_weights and model_programs(experiment.scenario) and not code_runs():
        silent.append("accuracy is not computed again: its model is code of others")
        for one in (result, content, *result.get("jobs", ()), *content.get("jobs", ())):
            one.pop("accuracy", None)
    schedule = made.run.schedule
    realization = made.run.realization
    times = realization.times.tolist()
    took = schedule.work.tolist()
    schedules = schedule, made.predicted, made.replayed
    checks: dict[str, Findings] = {}
    if setup := setup_to_run(experiment):  # its scenario follows from the run's
        of_setup, _ = recompute(load_run(run.path / SETUP), setup.scenario)
        counts, several = zip(*of_setup.values(), strict=True)
        broken = [replace(one, constraint="setup") for some in several for one in some]
        checks["setup"] = sum(counts), broken
    return checks | {
        "result": agreement("result", result, content, "its records"),
        "simulated": agreement("simulated", there, again, "its records"),
        "headline": headline_faults(run.result, *schedules, realization),
        "times": agreement("times", times, took, "reports.npz (ends less starts)"),
        "counts": _counts(made.run),
    }


def _counts(run: EmulatedRun) -> Findings:
    """Return where processes counted other bytes than the frames of their edges had."""
    names = run.schedule.problem.job.edge_names
    in_counts = {}
    rows = {}
    out_counts = dict[int, int]()
    in_bytes = dict[int, int]()
    for process, own in run.statistics.items():
        out_counts |= {one["edge"]: one["payload_bytes"] for one in own["sent"]}
        in_counts[process] = own["received"]["payload_bytes"]
        rows[process] = sum(row["bytes"] for row in own["received"]["payloads"])
        for row in own["received"]["payloads"]:
            in_bytes[row["edge"]] = in_bytes.get(row["edge"], 0) + row["bytes"]
    counts = []
    expectations = []
    for frames, of_edges in ((run.sent, out_counts), (run.received, in_bytes)):
        edges = frames["edge"].astype(np.int64)
        sums = np.bincount(edges, frames["bytes"], minlength=len(names))
        counts.append({names[e]: count for e, count in of_edges.items()})
        expectations.append({names[e]: int(sums[e]) for e in of_edges})
    check, off = agreement("counts", counts, expectations, "frames.npz")
    also, others = agreement("counts", in_counts, rows, "what it received")
    return check + also, [*off, *others]


def read_outcome(run: RecordedRun, experiment: Experiment) -> EmulatedRun:
    """Return the outcome of a run as its directory holds it, without its arrays.

    Raises DataError when a record is missing or damaged.
    """
    problem = experiment.problem
    realization = run.measured
    if realization is None:
        raise DataError("is missing", path=str(run.path / "realization.npz"))
    arrays = array_files.read_reports(problem, run.path / array_files.REPORTS)
    frames = array_files.read_frames(problem.job, run.path / "frames.npz")
    processes = read_json(run.path / "processes.json")
    names = [*processes["statistics"]]
    logs = dict.fromkeys(names, b"") | {names[0]: arrays["sends"].tobytes()}
    columns: Any = {name: arrays.get(name) for name in array_files.SCHEDULED}
    unsent = np.isnan(arrays["flow_ready"])
    schedule = Schedule(
        problem,
        **columns,
        flow_bytes=np.where(unsent, np.nan, realization.volumes),
        rates=None if run.emulated is None else run.emulated.rates,
        reads=arrays["reads"] if arrays["reads"].size else None,
    )
    with_lateness = realization
    if experiment.scenario.emulation.network != "kernel":
        with_lateness = Realization(late_times(schedule), realization.volumes)
    return EmulatedRun(
        schedule=schedule,
        realization=realization,
        perturbed=with_lateness,
        arrivals=frames["notified"],
        sent=frames["sent"],
        received=frames["received"],
        began=frames["began"],
        reports=[*_read_training(run, experiment)],
        results={},
        statistics={
            name: {**figures, "flows": logs[name]}
            for name, figures in processes["statistics"].items()
        },
        late=arrays["late"],
        cpu=arrays["cpu"],
        **{key: processes[key] for key in ("hosts", "tuning", "startup")},
        wall=processes["wall_seconds"],
    )


def _read_training(
    run: RecordedRun, experiment: Experiment
) -> Iterator[tuple[float, str, int, dict[str, float]]]:
    """Yield the rows of training.csv, by iteration of their task."""
    path = run.path / "training.csv"
    behind = {task.name: task.behind for task in experiment.problem.job.tasks}
    with one_error(path):
        for row in csv.DictReader(io.StringIO(read_text(path))):
            iteration = int(row["iteration"]) + behind[row["task"]]
            figures = {row["figure"]: float(row["value"])}
            yield float(row["time"]), row["task"], iteration, figures


def _plain(content: Any) -> Any:
    """Return content as a file has it."""
    return parse_json(json.dumps(content))
