"""Inputs of an audit of a run or a result file: what was stated and measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field, create_model

from emu.array_types import Floats
from emu.emulation.network import ProcessStatistics
from emu.emulation.shaping import EmulationSettings, pace_at
from emu.errors import DataError, ScenarioError
from emu.host.input_file import check_shape, one_error, read_json
from emu.prediction.analysis.traffic import count_kinds, kinds_between_machines
from emu.prediction.scheduling import rate_policy
from emu.problem import Realization, Schedule
from emu.problem.schedule import ROUNDING
from emu.runs.array_files import REPORTS, read_frames, read_reports
from emu.runs.lab_file import refuse_lab
from emu.runs.problem_json import NUMBER, PAIR, by_name, shape, shape_of
from emu.runs.record_names import RECORDS
from emu.runs.recorded_run import RecordedRun, load_run
from emu.runs.result import Row, read_result
from emu.runs.retraining import training_audit
from emu.scenario import Scenario, build_job, load, realize
from emu.scenario.realize import model_programs
from emu.scenario.scenario_file import has_recorded_job
from emu.systems.cache_section import CachedSection, settle_caches
from emu.systems.system import system_guards
from emu.trust.audit import PUNCTUALITY, audit
from emu.trust.guards import GUARDS, Evidence, examine
from emu.trust.rate_audit import rule_audit
from emu.trust.verdict import host_figures
from emu.trust.violation import AuditReport

#: Files that an audit must be able to read where they are.
_COMPARED = ("manifest.json", "result.json", "rates.npz", "realization.npz")


@dataclass(frozen=True, eq=False)
class ToAudit:
    """A schedule, and what it must agree with; None is not compared."""

    path: Path
    """Run directory or result file."""
    name: str
    schedule: Schedule
    policy: str
    """Rate policy that is stated, or that a portfolio chose."""
    makespan: float | None
    times: Floats | None = None
    least_times: Floats | None = None
    volumes: Floats | None = None
    """As `emu.trust.audit.audit` takes them."""
    evidence: Evidence | None = None
    """Reports of the processes of an emulated run, for its guards."""
    expected: Realization | None = None
    """Times and volumes that rules look ahead by."""
    scenario: Scenario | None = None
    """That states them, and what is trained."""
    unpaced: float = 0.0
    """Seconds by which bytes without rates may be ahead of a port."""
    run: RecordedRun | None = None
    """Run directory, of an emulated run."""
    silent: tuple[str, ...] = ()
    """One sentence per thing that could not be compared."""
    tolerance: ClassVar[float] = ROUNDING
    """Seconds by which its times may usually be off."""

    @property
    def payloads(self) -> dict[str, float]:
        """Kind of payload -> bytes between machines, of an emulated run."""
        evidence = self.evidence
        if evidence is None:
            return {}
        return kinds_between_machines(
            self.schedule.problem,
            statistics=evidence.statistics,
            byte_scale=evidence.byte_scale,
        )

    def audit(
        self,
        tolerance: float,
        relative: float,
        *,
        rule: bool = False,
        training: bool = False,
    ) -> AuditReport:
        """Return the violations of (5)-(15), and the findings of the guards.

        ``rule``: whether to recompute the rates, too, where there are any; a rule of
        one's own is asked again. ``training``: whether to train again in one process,
        and compare the losses.

        Raises DataError when nothing was trained, or the data set is missing;
        ValueError when a tolerance is negative.
        """
        at_once = {}
        if self.evidence is not None:
            at_once["at_once"] = self.evidence.at_once
        report = audit(
            self.schedule,
            tolerance=tolerance,
            relative=relative,
            times=self.times,
            least_times=self.least_times,
            volumes=self.volumes,
            makespan=self.makespan,
            unpaced=self.unpaced,
            **at_once,
        )
        has_rates = self.schedule.rates is not None
        if rule and has_rates and self.expected is not None:
            rates = rate_policy(self.policy).rates
            findings = rule_audit(
                self.schedule,
                policy=self.policy,
                expected=self.expected,
                own=rates,
            )
            report = report.adding("rule", findings)
        if training:
            if self.scenario is None:
                raise DataError("says no scenario", path=self.path)
            job = build_job(self.scenario)
            findings = training_audit(self.path, job)
            report = report.adding("training", findings)
        if self.evidence is None:
            return report

        guards = system_guards()
        count = len(GUARDS) + len(guards)
        findings_of_guards = examine(self.evidence, guards)
        return report.guarded(count, findings_of_guards)


def read_to_audit(path: Path, scenario: Path | None = None) -> ToAudit:
    """Return a run directory or result file with all that it must agree with.

    ``scenario``: file that states times and volumes, instead of the copy in the run.
    Raises DataError when a run cannot be read, or is not whole; ScenarioError when
    ``scenario`` cannot be used.
    """
    substitute = None if scenario is None else load(scenario, [])
    result = path
    if path.is_dir():
        if has_recorded_job(path):
            return _virtual_to_audit(load_run(path), substitute)
        refuse_lab(path)
        result = path / "result.json"
    # `result.json` by its own name stands for its run:
    # the files beside it are compared, too.
    directory = result.parent
    is_run = result.name == "result.json"
    if is_run and any((directory / name).exists() for name in RECORDS):
        return run_to_audit(load_run(directory), substitute)

    of_file, schedule = read_result(path)
    reference = substitute or of_file
    realization, silent = _realize_scenario(reference, schedule, str(path))
    times, volumes = _times_and_volumes(realization)
    return ToAudit(
        path=path,
        name=of_file.name,
        schedule=schedule,
        policy=of_file.schedule.rule,
        makespan=_makespan(read_json(result)),
        times=times,
        volumes=volumes,
        expected=realization,
        scenario=reference,
        silent=tuple(silent),
    )


def _virtual_to_audit(run: RecordedRun, stated: Scenario | None) -> ToAudit:
    """Return the schedule of a virtual run, which is the simulation of its job."""
    scenario = stated or run.scenario
    realization, silent = _realize_scenario(scenario, run.best, str(run.path))
    silent.append("the ranks' own clocks: the schedule is the simulation of job.json")
    times, volumes = _times_and_volumes(realization)
    return ToAudit(
        path=run.path,
        name=run.name,
        schedule=run.best,
        policy=run.policy,
        makespan=None,
        times=times,
        volumes=volumes,
        expected=realization,
        scenario=scenario,
        silent=tuple(silent),
    )


def run_to_audit(run: RecordedRun, stated: Scenario | None = None) -> ToAudit:
    """Return the emulated schedule of a run with all that it must agree with.

    ``stated``: says times and volumes, instead of the copy in the run.
    """
    schedule, unknown = _read_emulated(run)
    emulation = EmulationSettings.from_json(run.manifest.get("emulation", {}))
    scenario = stated or _scenario_of(run)
    first = run.manifest.get("first_iteration", 0)
    path = str(run.path)
    realization, silent = _realize_scenario(scenario, schedule, path, first=first)
    silent += unknown
    # Where nothing states volumes, what the run has measured is all there is.
    measured_times, volumes = _times_and_volumes(run.measured)
    least = None
    if realization is not None and scenario is not None:
        stated_volumes = real_volumes(scenario, realization, emulation.byte_scale)
        if stated_volumes is not None:
            volumes = stated_volumes
        # A task of `real` takes the CPU time of its
        # own work, of which nothing is stated.
        if emulation.compute != "real":
            least = realization.times

    policy = _policy_of(run, scenario)
    evidence = _evidence(run, schedule, emulation, least, volumes, stated=scenario)
    if schedule.rates is None:
        silent.append("there are no rates: flows are judged by their ends alone")
    if evidence is None:
        missing = _missing_for_guards(run.path)
        silent.append(f"{missing} is missing: the guards cannot be asked again")
    return ToAudit(
        path=run.path,
        name=run.name,
        schedule=schedule,
        policy=policy,
        makespan=_makespan(run.result),
        times=measured_times,
        least_times=least,
        volumes=volumes,
        evidence=evidence,
        expected=realization,
        scenario=scenario,
        # From wall seconds of the kernel to emulated ones.
        unpaced=PUNCTUALITY / emulation.time_scale,
        run=run,
        silent=tuple(silent),
    )


def _times_and_volumes(
    realization: Realization | None,
) -> tuple[Floats | None, Floats | None]:
    """Return the times and volumes of a run; None where nothing states them."""
    if realization is None:
        return None, None
    return realization.times, realization.volumes


def _policy_of(run: RecordedRun, scenario: Scenario | None) -> str:
    """Return the rule of a run: what a portfolio has chosen is the run's own word.

    Raises DataError of a rule of its own of which the run states nothing.
    """
    policy = run.policy
    if scenario is not None and scenario.schedule.policy != "portfolio":
        return scenario.schedule.rule
    return policy


def _scenario_of(run: RecordedRun) -> Scenario | None:
    content = run.manifest.get("scenario")
    if content is None:
        return None
    with one_error(run.path / "manifest.json"):
        return Scenario.model_validate(content)


def _read_emulated(run: RecordedRun) -> tuple[Schedule, list[str]]:
    """Return the schedule, with when its scheduler took each end in if a file says so.

    And a sentence where none does.
    """
    schedule = run.emulated
    path = run.path / REPORTS
    is_torn = False
    for sentence in run.missing:
        # What is missing is said and left out; what is torn may hide what was edited.
        if sentence.startswith(_COMPARED) and "is missing" not in sentence:
            is_torn = True
    if schedule is None or is_torn:
        raise DataError("; ".join(run.missing), path=run.path)
    if not path.exists():
        note = f"{REPORTS} is missing: every end is taken to have been known at once"
        return schedule, [note]

    arrays = read_reports(run.problem, path)
    schedule = replace(
        schedule,
        task_settled=arrays["task_settled"],
        flow_settled=arrays["flow_settled"],
    )
    return schedule, []


def _missing_for_guards(run: Path) -> str:
    """Return the name of a file without which no guard can be asked; empty if none."""
    # Settings of the run, such as its scales, are in the manifest alone.
    for name in ("manifest.json", "frames.npz"):
        if not (run / name).exists():
            return name
    return ""


def _evidence(
    run: RecordedRun,
    schedule: Schedule,
    settings: EmulationSettings,
    times: Floats | None,
    volumes: Floats | None,
    stated: Scenario | None,
) -> Evidence | None:
    """Return the reports of a run's processes; None where files are missing."""
    if _missing_for_guards(run.path):
        return None
    frames_path = run.path / "frames.npz"
    path = run.path / "processes.json"
    processes = read_json(path)
    check_shape(processes, _processes_shape(), path)
    statistics = processes["statistics"]
    job = run.problem.job
    edges = len(job.edges)
    if any(edge >= edges for edge, _ in count_kinds(statistics)):
        raise DataError("counts payloads of an edge that is not there", path=path)

    frames: Any = read_frames(job, frames_path)
    del frames["turns"]  # no guard asks for them
    # Without reports every delay counts as told, so
    # that no guard fires for want of a file.
    late: Floats | float = np.inf
    sends = None
    reports_path = run.path / REPORTS
    if reports_path.exists():
        end = schedule.task_end
        arrays = read_reports(run.problem, reports_path)
        # Reported in run seconds, of which a slow or paused machine makes less work.
        late_work = run.problem.work(end - arrays["late"], end)
        late = np.nan_to_num(late_work)
        sends = arrays["sends"]
        if not _are_sends(sends):
            raise DataError("holds no rows of sends", path=reports_path)
    hosts = _hosts_of(processes, run.path)
    noted_settings = run.manifest.get("emulation", {})
    burst = noted_settings.get("burst", (0.0, 0.0))
    return Evidence(
        schedule=schedule,
        **frames,
        one_clock=has_one_clock(hosts),
        statistics=statistics,
        burst=tuple(burst),
        times=times,
        late=late,
        sends=sends,
        volumes=volumes,
        windows=() if stated is None else list_windows(stated),
        **margins(settings, statistics),
    )


def _are_sends(numbers: Floats) -> bool:
    """Return True where numbers are rows of edge, iteration and four times."""
    if numbers.size % 6:
        return False
    rows = numbers.reshape(-1, 6)
    edges_and_iterations = rows[:, :2]
    return bool((edges_and_iterations >= 0).all())


@cache
def _processes_shape() -> Any:
    """Return the type of processes.json: counts, and when processes answered."""
    counts = shape_of(ProcessStatistics, NUMBER)
    process_shape = create_model("Statistics", __base__=counts, answered=(PAIR, None))
    statistics: Any = Annotated[by_name(process_shape), Field(min_length=1)]
    return shape("Processes", statistics=statistics)


def list_windows(scenario: Scenario) -> tuple[tuple[str, int], ...]:
    """Return the beginning of task names and the credit window of jobs that have one.

    Without those whose iterations are no mini-batches, for which there is no profile
    either: a cycle of a pipeline works on several.
    """
    windows = []
    for _, prefix, job in scenario.each_job():
        are_batches = isinstance(job, CachedSection) or not job.unprofiled
        window = job.credit_window
        if are_batches and isinstance(window, int):
            windows.append((prefix, window))
    return tuple(windows)


def has_other_windows(scenario: Scenario) -> bool:
    """Return True where a job has a credit window that `list_windows` leaves out."""
    windows = [job.credit_window for *_, job in scenario.each_job()]
    sizes = [window for window in windows if isinstance(window, int)]
    checked_windows = list_windows(scenario)
    return len(sizes) > len(checked_windows)


def real_volumes(
    scenario: Scenario,
    realization: Realization,
    byte_scale: float,
) -> Floats | None:
    """Return the bytes that every (edge, iteration) must carry, whole real ones.

    None with a profile: its volumes are of other batches.
    """
    if scenario.profile is not None:
        return None
    real_bytes = realization.volumes * byte_scale
    # Sockets carry whole bytes, so that a run is off by a fraction of one.
    return np.rint(real_bytes) / byte_scale


def _makespan(content: Mapping[str, Any]) -> float:
    try:
        return float(content["makespan"])
    except (KeyError, TypeError, ValueError):
        return float("nan")


def _realize_scenario(
    scenario: Scenario | None,
    schedule: Schedule,
    path: str,
    first: int = 0,
) -> tuple[Realization | None, list[str]]:
    """Return the times and volumes that a scenario states, or why not.

    ``first``: iteration of the whole job at which the schedule begins.
    """
    if scenario is None:
        return None, ["manifest.json holds no scenario: nothing says what to expect"]
    if any(model.measured is None for model in model_programs(scenario)):
        # To measure it is to run it, which an audit does with --training alone.
        return None, ["times and volumes are not compared: no figures of its model"]
    placed = schedule.problem
    try:
        # What a cache saves depends on where its sampler stood in the run.
        job = settle_caches(build_job(scenario), placed.machine_of_task)
        realization = realize(scenario, job)
    except (DataError, ScenarioError) as error:
        return None, [f"times and volumes are not compared: {error}"]

    try:
        realization = realization.beginning_at(first, job)
        job = job.beginning_at(first)
        realization.check_shapes(placed.job)
    except ValueError as error:
        raise DataError(f"is not of its scenario: {error}", path=path) from error
    # The scenario states what the machines take, not the run.
    problem = replace(placed, job=job)
    return problem.stretch(realization), []


def _hosts_of(processes: Mapping[str, Any], run: Path) -> list[Row]:
    """Return the hosts of a run; raises DataError where they are no list of them."""
    hosts = processes.get("hosts", [])
    if isinstance(hosts, list) and all(isinstance(host, dict) for host in hosts):
        return hosts
    raise DataError("hosts are not a list of hosts", path=run / "processes.json")


def has_one_clock(hosts: Sequence[Mapping[str, Any]]) -> bool:
    """Return True where all hosts of a run read the coordinator's clock.

    Nothing is known of runs of an earlier emu.
    """
    clocks = [host.get("clock") for host in hosts]
    if not clocks:
        return False
    return all(
        isinstance(clock, dict) and clock.get("readings") == 0 for clock in clocks
    )


def margins(
    settings: EmulationSettings,
    statistics: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the scales, and what senders and their hosts may be ahead or late by.

    They are fields of `Evidence`.
    """
    pace = pace_at(settings.time_scale, settings)
    figures = host_figures(statistics)
    fields = settings.to_json()
    for mode in ("compute", "flow_ends"):
        fields.pop(mode, None)
    fields["lead"] = pace.lead_time
    fields["stale"] = figures.max_stale
    # A sender looks at its rate no more often, on the best of hosts.
    fields["stall"] = figures.stall + pace.longest
    return fields
