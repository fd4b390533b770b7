"""A run computed again: scenario text, problem, simulations, result.json, verdict.

An audit trusts no file that follows from another one. It starts from the text of the
scenario, and from what processes reported; everything else is made again, and compared.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from emu.array_types import Array
from emu.emulation.coordinator.outcome import EmulatedRun
from emu.emulation.coordinator.settings import RunSettings
from emu.errors import DataError, EmulatorError, ScenarioError
from emu.experiment import run_experiment, run_files
from emu.experiment.attempt_checks import check_attempts
from emu.experiment.attempts import Ended, foreseen, with_until
from emu.experiment.run_result import PreparedRun, RunResult, learnt
from emu.experiment.scale_search import ScaleChoice
from emu.experiment.setup_counts import check_setup
from emu.experiment.traffic_checks import check_traffic
from emu.experiment.witness import recompute_witness
from emu.host.foreign_code import code_runs
from emu.host.input_file import one_error, parse_json, read_json, read_text
from emu.host.this_host import version_of_emu
from emu.prediction.simulation.attempts import Attempts
from emu.problem import Problem, Realization, Schedule
from emu.runs import array_files
from emu.runs.audit_inputs import ToAudit, has_other_windows
from emu.runs.problem_json import problem_to_json
from emu.runs.recorded_run import RecordedRun, load_run
from emu.runs.result import Result, Row
from emu.runs.run_directory import SETUP, RunDirectory, apart, read_scenario
from emu.scenario import Experiment, Scenario, prepare
from emu.scenario.realize import model_programs
from emu.scenario.setup import setup_to_run
from emu.trust.guards.schedule import headline_faults
from emu.trust.lateness import late_times
from emu.trust.violation import (
    AuditReport,
    Findings,
    Violation,
    agreement,
    disagreement,
)

#: Keys of manifest.json that nothing else states.
_OWN = (
    "started", "emu", "python", "system", "versions", "source", "scenario",
    "auto_scale", "first_iteration", "began", "killed", "attempts", "witness",
    "until", "reached",
)  # fmt: skip
#: Keys of result.json that say whether to believe it, and whether it was foreseen.
VERDICT = ("verdict", "prediction")
#: Checks that are made where an option asks for them.
_RULE = "rule"
_TRAINING = "training"
_FIGURES = "the other figures of tasks, such as rows and edges"
#: What no second record tells, by file: an edit that fits all others goes unnoticed.
UNSEEN = {
    "manifest.json": "when the run started, and on which system and versions; readings "
    "of the clock as an attempt that died by itself began and ended, moved alike",
    "processes.json": "CPU, memory and start-up of processes, each counted by itself; "
    "settings of their host, and what its kernel counted beyond the payloads of a run",
    "reports.npz": "by how much a task says that it was late, and its CPU time",
    "frames.npz": "an arrival moved by less than 0.1 ms of wall time per hop, or 1 ms "
    "between hosts; all notes of a flow moved alike by what its links and tasks leave "
    "free; counts and waits of connections, as far as they can be; long turns of the "
    "coordinator; and the board of another host than the coordinator's, where a lower "
    "rate shows as lateness alone",
    "rates.npz": "whether the policy gives these rates: that is asked by --policy",
    "realization.npz": "times of tasks and volumes that no scenario states",
    "training.csv": f"losses, which are computed again by --training, and {_FIGURES}",
    "weights.npz": "weights; they are computed again by --training",
    "setup/result.json": "sizes of ghost features that a set-up moves, of caches that "
    "change, and of weights that no edge carries later: sender and receiver derive "
    "them by one definition",
}


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
    silent = list(subject.silent)

    if rule and _RULE not in report.checked:
        problem = "no rates are recorded, emu run records them (not on kernel NICs)"
        if subject.schedule.rates is not None:
            problem = "no scenario says which times and volumes it expects"
        silent.append(f"the rule is not asked again: {problem}")

    if subject.run is None:
        return report, tuple(silent)
    checks, unseen = recompute(subject.run, stated, report.checked)
    for name, check in checks.items():
        report = report.adding(name, check)
    return report, (*silent, *unseen)


def recompute(
    run: RecordedRun,
    stated: Scenario | None = None,
    checked: Container[str] = (),
) -> tuple[dict[str, Findings], list[str]]:
    """Compute everything of a run again that follows from something else.

    Returns numbers compared, and violations, by file; and a sentence per thing that
    could not be compared. ``stated`` stands for the scenario's text in the run
    directory, and ``checked`` has the names of checks made before. Raises DataError
    when records are damaged.
    """
    checks = {"records": _check_records(run)}
    silent = list_unseen(run, checked)
    scenario, differences = _scenario(run, stated, silent)
    faults = [disagreement("scenario", sentence) for sentence in differences]
    checks["scenario"] = (1, faults)
    if scenario is None:
        return checks, silent
    if has_other_windows(scenario):
        silent.append("no credit window is checked where iterations are cycles")
    try:
        experiment = prepare(scenario)
    except EmulatorError as error:
        silent.append(f"problem and results are not computed again: {error}")
        return checks, silent

    full_job = experiment
    experiment, ends, before = _attempts_of(run, full_job)
    checks |= check_attempts(ends, full_job, experiment)
    checks["problem"] = _check_problem(run, experiment.problem)
    # Schedules of another problem have other tasks,
    # and comparing them says nothing more.
    _, problem_faults = checks["problem"]
    if problem_faults:
        silent.append("results are not computed again: they are of another problem")
        return checks, silent

    # No host has to be reached: nothing is started.
    settings = run_experiment.emulation_settings(scenario, host_of={})
    checks["manifest"] = _manifest(run, scenario, settings)
    faults = list(_missing(run, scenario))
    if faults:
        checks["result"] = (1, faults)
        return checks, silent
    with one_error(run.path):
        prepared_run = _prepare_again(run, experiment, settings)
        checks |= _results(run, prepared_run, silent, ended=ends, before=before)
    return checks, silent


def _missing(run: RecordedRun, scenario: Scenario) -> Iterator[Violation]:
    """Yield a violation per missing file that result.json is computed again from."""
    names = [array_files.REPORTS, "frames.npz"]
    # On kernel NICs nothing is assigned.
    if scenario.emulation.network != "kernel":
        names.append("rates.npz")

    for name in names:
        path = run.path / name
        if path.exists():
            continue
        sentence = f"{name} is missing: nothing of result.json is computed again"
        yield disagreement("result", sentence)


def _prepare_again(
    run: RecordedRun, experiment: Experiment, settings: RunSettings
) -> PreparedRun:
    """Return a run before its start, with the time scale that trials chose for it."""
    choice = None
    content = run.manifest.get("auto_scale")
    if content is not None:
        choice = ScaleChoice.from_json(content)
    return PreparedRun.of(experiment, settings, choice)


def _check_records(run: RecordedRun) -> Findings:
    """Return where the files of a run are others than result.json has noted."""
    if "source" not in run.manifest and "records" not in run.result:
        return 0, []  # of an earlier emu
    # Of the files as they lie there: an edit
    # shows even where nothing else tells it.
    digests = RunDirectory(run.path).digests()
    records = run.result.get("records")
    return agreement("records", found=digests, wanted=records, by="result.json")


def _check_problem(run: RecordedRun, problem: Problem) -> Findings:
    """Return where problem.json is another than what the scenario makes."""
    content = problem_to_json(problem)
    stated_problem = _plain(content)
    noted_problem = read_json(run.path / "problem.json")
    return agreement(
        "problem",
        found=noted_problem,
        wanted=stated_problem,
        by="the scenario",
    )


def list_unseen(run: RecordedRun, checked: Container[str] = ()) -> list[str]:
    """Return a sentence per file of a run on what no audit sees in it.

    ``checked``: names of the checks that were made because an option asked for them.
    """
    of_files = dict(UNSEEN)
    if _RULE in checked:
        del of_files["rates.npz"]
    if _TRAINING in checked:
        del of_files["weights.npz"]
        of_files["training.csv"] = _FIGURES
    return [
        f"{name} is trusted for {unseen}"
        for name, unseen in of_files.items()
        if (run.path / name).exists()
    ]


def _attempts_of(
    run: RecordedRun, experiment: Experiment
) -> tuple[Experiment, list[Ended], Attempts | None]:
    """Return what the run had to do, the attempts before its last, and all foreseen."""
    with one_error(run.path / "manifest.json"):
        noted_attempts = run.manifest.get("attempts", ())
        ends = [Ended(**attempt) for attempt in noted_attempts]
        first = run.manifest.get("first_iteration", 0)
        began = run.manifest.get("began", 0)
        full_job = with_until(experiment, run.manifest)
        rest = full_job.beginning_at(first, began)
        return rest, ends, foreseen(rest, ends)


def _scenario(
    run: RecordedRun, stated: Scenario | None, silent: list[str]
) -> tuple[Scenario | None, list[str]]:
    """Return the scenario to start from, and where the manifest differs from it."""
    record = run.manifest.get("scenario")
    scenario = stated
    if scenario is None:
        try:
            scenario = read_scenario(run.path, run.manifest)
        except (DataError, ScenarioError) as error:
            silent.append(f"nothing is computed again: {error}")
            # No run notes a topology that was read beside the text: its file has gone.
            is_gone = getattr(error, "key", "") == "cluster.topology"
            is_fault = "source" in run.manifest and not is_gone
            if is_fault:
                return None, [str(error)]
            return None, []

    differences = apart(scenario, record)
    if differences:
        return scenario, differences
    with one_error(run.path / "manifest.json"):
        # That of the manifest, which agrees: it has what was measured of models, too.
        return Scenario.model_validate(record), []


def _manifest(run: RecordedRun, scenario: Scenario, settings: RunSettings) -> Findings:
    """Return where manifest.json differs from what the scenario makes of it."""
    content = run_files.manifest(scenario, settings)
    fields = _without(content, *_OWN)
    path = run.path / "processes.json"
    if scenario.emulation.network != "kernel":  # there every machine is a host
        with one_error(path):
            # Only their own reports say how many there were: settings name none here.
            hosts = read_json(path)["hosts"]
            fields["emulation"]["hosts"] = len(hosts)

    manifest = _without(run.manifest, *_OWN)
    return agreement(
        "manifest",
        found=manifest,
        wanted=_plain(fields),
        by="the scenario",
    )


def _without(content: Row, *keys: str) -> Result:
    return {key: value for key, value in content.items() if key not in keys}


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
    training = _learn_again(run, prepared, outcome)
    made = run_experiment.result_of(
        prepared,
        run=outcome,
        training=training,
        ended=ended,
        before=before,
    )
    network = run.manifest.get("witness")
    if network:
        noted_witnesses = run.result.get("witness")
        witnesses, unseen = recompute_witness(made, network, noted_witnesses)
        made = replace(made, witness=witnesses)
        if unseen:
            silent.append(unseen)

    # Digests are compared by themselves, and so is the verdict.
    result = _without(run.result, "records", *VERDICT)
    content = _plain(made.content)
    _drop_shift(run, content)
    verdict = _check_verdict(run.result, content)
    weights_path = run.path / array_files.NAME
    has_weights = weights_path.exists()
    runs_foreign_model = bool(model_programs(experiment.scenario))
    if has_weights and runs_foreign_model and not code_runs():
        silent.append("accuracy is not computed again: its model is code of others")
        _drop_accuracies(result)
        _drop_accuracies(content)
    moved_first = check_setup(experiment, outcome.statistics, outcome.received)
    of_result = agreement("result", found=result, wanted=content, by="its records")
    return {
        "moved first": moved_first,
        **_setup_faults(run, experiment),
        "result": of_result,
        "verdict": verdict,
        **_compare_schedules(run, made),
    }


def _learn_again(
    run: RecordedRun, prepared: PreparedRun, outcome: EmulatedRun
) -> Result:
    """Return what the weights and reports of a run say that it has learnt."""
    # Not None: `learnt` would take them from results of processes, which no file holds.
    weights = {}
    weights_path = run.path / array_files.NAME
    if weights_path.exists():
        weights = array_files.read_weights(run.path)
    training, _ = learnt(prepared, outcome, weights)
    return training | run_experiment.setup_figures(prepared.experiment, run.path)


def _compare_schedules(run: RecordedRun, made: RunResult) -> dict[str, Findings]:
    """Return where schedules, their headline and the bytes sent differ from records."""
    simulation = read_json(run.path / "simulated.json")
    replay = _plain(made.replayed.to_json())
    schedule = made.run.schedule
    realization = made.run.realization
    times = realization.times.tolist()
    work = schedule.work.tolist()

    return {
        "simulated": agreement(
            "simulated",
            found=simulation,
            wanted=replay,
            by="its records",
        ),
        "headline": headline_faults(
            run.result,
            emulated=schedule,
            predicted=made.predicted,
            replayed=made.replayed,
            measured=realization,
        ),
        "times": agreement(
            "times",
            found=times,
            wanted=work,
            by="reports.npz (ends less starts)",
        ),
        "counts": _counts(made.run),
        **check_traffic(made.run),
    }


def _drop_shift(run: RecordedRun, content: Result) -> None:
    """Take the shift of the end out of content where an earlier emu recorded none."""
    recorded_verdict = run.result.get("verdict") or {}
    is_earlier = run.manifest.get("emu") != version_of_emu()
    if "shift" in recorded_verdict or not is_earlier:
        return
    verdict = content["verdict"]
    del verdict["shift"]
    actual = content.get("auto_scale", {}).get("actual", {})
    if "error" in actual:
        actual["error"] = verdict["error"]


def _check_verdict(result: Row, content: Result) -> Findings:
    """Return where the recorded verdict is another; take it out of ``content``."""
    recorded = {}
    verdict = {}
    for key in VERDICT:
        recorded[key] = result.get(key)
        verdict[key] = content.pop(key, None)
    return agreement("verdict", found=recorded, wanted=verdict, by="its records")


def _drop_accuracies(result: Result) -> None:
    for content in (result, *result.get("jobs", ())):
        content.pop("accuracy", None)


def _setup_faults(run: RecordedRun, experiment: Experiment) -> dict[str, Findings]:
    """Return the findings of the set-up as one, where it ran too."""
    setup = setup_to_run(experiment)
    if not setup:
        return {}
    # Its scenario follows from the run's.
    setup_run = load_run(run.path / SETUP)
    findings, _ = recompute(setup_run, setup.scenario)
    total = 0
    faults = []
    for count, of_file in findings.values():
        total += count
        faults += [replace(fault, constraint="setup") for fault in of_file]
    return {"setup": (total, faults)}


def _counts(run: EmulatedRun) -> Findings:
    """Return where processes counted other bytes than the frames of their edges had."""
    edge_names = run.schedule.problem.job.edge_names
    sent_bytes = Counter[int]()
    received_bytes = Counter[int]()
    totals = {}
    sums = {}
    for process, statistics in run.statistics.items():
        for row in statistics["sent"]:
            sent_bytes[row["edge"]] = row["payload_bytes"]
        received = statistics["received"]
        for row in received["payloads"]:
            received_bytes[row["edge"]] += row["bytes"]
        totals[process] = received["payload_bytes"]
        sums[process] = sum(row["bytes"] for row in received["payloads"])

    counts = []
    expectations = []
    of_directions = ((run.sent, sent_bytes), (run.received, received_bytes))
    for frames, volumes in of_directions:
        frame_bytes = _sum_frames(frames, len(edge_names))
        sizes_by_name = {}
        frames_by_name = {}
        for edge, size in volumes.items():
            name = edge_names[edge]
            sizes_by_name[name] = size
            frames_by_name[name] = int(frame_bytes[edge])
        counts.append(sizes_by_name)
        expectations.append(frames_by_name)

    of_edges, faults = agreement(
        "counts",
        found=counts,
        wanted=expectations,
        by="frames.npz",
    )
    of_totals, more_faults = agreement(
        "counts",
        found=totals,
        wanted=sums,
        by="what it received",
    )
    return of_edges + of_totals, [*faults, *more_faults]


def _sum_frames(frames: Array, edge_count: int) -> Array:
    """Return the bytes of frames by edge: floats, exact up to 2^53 bytes."""
    edges = frames["edge"].astype(np.int64)
    return np.bincount(edges, frames["bytes"], minlength=edge_count)


def read_outcome(run: RecordedRun, experiment: Experiment) -> EmulatedRun:
    """Return the outcome of a run as its directory holds it, without its arrays.

    Raises DataError when a record is missing or damaged.
    """
    problem = experiment.problem
    realization = run.measured
    if realization is None:
        raise DataError("is missing", path=run.path / "realization.npz")
    arrays = array_files.read_reports(problem, run.path / array_files.REPORTS)
    frames = array_files.read_frames(problem.job, run.path / "frames.npz")
    processes = read_json(run.path / "processes.json")
    statistics = {}
    for name, figures in processes["statistics"].items():
        statistics[name] = {**figures, "flows": b""}
    # All sends stand in one array, which the first process has.
    first, *_ = statistics
    sends = arrays["sends"]
    statistics[first]["flows"] = sends.tobytes()

    schedule = _schedule_of(run, problem, arrays)
    with_lateness = realization
    # On kernel NICs no sender keeps to rates, so that none is late.
    if experiment.scenario.emulation.network != "kernel":
        with_lateness = Realization(late_times(schedule), realization.volumes)
    return EmulatedRun(
        schedule=schedule,
        realization=realization,
        perturbed=with_lateness,
        arrivals=frames.pop("notified"),
        **frames,
        reports=[*_read_training(run)],
        results={},
        statistics=statistics,
        late=arrays["late"],
        cpu=arrays["cpu"],
        hosts=processes["hosts"],
        tuning=processes["tuning"],
        startup=processes["startup"],
        wall=processes["wall_seconds"],
    )


def _schedule_of(
    run: RecordedRun, problem: Problem, arrays: array_files.Arrays
) -> Schedule:
    """Return the schedule that the processes of a run reported."""
    columns: Any = {name: arrays.get(name) for name in array_files.SCHEDULED}
    # Volumes are measured of handoffs, too, of which no flow was sent.
    unsent = np.isnan(arrays["flow_ready"])
    flow_bytes = np.where(unsent, np.nan, run.realization.volumes)
    reads = arrays["reads"]
    rates = None
    if run.emulated is not None:
        rates = run.emulated.rates

    return Schedule(
        problem,
        **columns,
        flow_bytes=flow_bytes,
        rates=rates,
        reads=reads if reads.size else None,
    )


def _read_training(
    run: RecordedRun,
) -> Iterator[tuple[float, str, int, dict[str, float]]]:
    """Yield the rows of training.csv."""
    path = run.path / "training.csv"
    with one_error(path):
        lines = io.StringIO(read_text(path))
        for row in csv.DictReader(lines):
            time = float(row["time"])
            iteration = int(row["iteration"])
            value = float(row["value"])
            yield time, row["task"], iteration, {row["figure"]: value}


def _plain(content: Any) -> Any:
    """Return content as a file has it."""
    return parse_json(json.dumps(content))
