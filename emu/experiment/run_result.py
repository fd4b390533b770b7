"""The numbers of a run beside its two simulations, and what it learnt: result.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from emu.array_types import Array
from emu.emulation.coordinator import EmulatedRun
from emu.emulation.coordinator.settings import RunSettings
from emu.errors import DataError
from emu.experiment.attempts import Ended, recovery_of
from emu.experiment.scale_search import ScaleChoice
from emu.graph_data import open_for
from emu.host.foreign_code import CodeWithheld
from emu.host.input_file import one_error, read_json
from emu.prediction.analysis.bounds import optimality
from emu.prediction.analysis.error_budget import before_first_bytes, drift_of_machines
from emu.prediction.analysis.link_load import fluid_ends
from emu.prediction.analysis.throughput import job_times, pace, pipeline_depth
from emu.prediction.analysis.traffic import kinds_between_machines
from emu.prediction.simulation.attempts import Attempts
from emu.problem import Job, Problem, Schedule
from emu.runs import result
from emu.runs.array_files import NAME as WEIGHTS
from emu.runs.array_files import read_weights
from emu.runs.lab_file import refuse_lab
from emu.runs.repeats import iteration_lengths, spread_of_iterations
from emu.runs.result import Result
from emu.runs.retraining import list_training
from emu.scenario import Experiment, Scenario, build_job
from emu.scenario.experiment import cost_of, count_failures
from emu.scenario.realize import list_model_figures
from emu.scenario.run_sections import EmulationSection
from emu.scenario.scenario_file import has_recorded_job
from emu.scenario.virtual_training import curve_until_divergence
from emu.systems.system import figures_on, system_of
from emu.training import evaluate, parameter_shapes, split_parts
from emu.training.looks import epoch_of
from emu.trust.lateness import flow_completion
from emu.trust.prediction import Prediction
from emu.trust.verdict import Verdict

Figures: TypeAlias = dict[str, float]

Parts = dict[str, Array]


@dataclass(frozen=True, eq=False)
class PreparedRun:
    """A run, or one attempt at it, before its start; what follows reads this alone.

    Under a portfolio choosing the policy costs a simulation of each, and the prediction
    one more: both are made once.
    """

    experiment: Experiment
    """The rest to do."""
    settings: RunSettings
    choice: ScaleChoice | None
    """Choice of its time scale, where trials have made one."""
    policy: str
    """Rate policy; of a portfolio the one that is chosen."""
    predicted: Schedule
    """Simulated with the times and volumes that are expected."""

    @classmethod
    def of(
        cls,
        experiment: Experiment,
        settings: RunSettings,
        choice: ScaleChoice | None,
    ) -> PreparedRun:
        """Choose the policy, and predict the run."""
        policy = experiment.choose_policy()
        schedule = experiment.simulate()
        return cls(
            experiment=experiment,
            settings=settings,
            choice=choice,
            policy=policy,
            predicted=schedule,
        )

    @property
    def problem(self) -> Problem:
        """Job of the run, its machines, and where tasks stand."""
        return self.experiment.problem

    @property
    def emulation(self) -> EmulationSection:
        """Keys of the scenario's ``emulation``."""
        return self.experiment.scenario.emulation

    @property
    def times(self) -> str:
        """Where the times of the prediction are from, whatever real work takes."""
        scenario = self.experiment.scenario
        if any(section.operation_rates for *_, section in scenario.each_job()):
            return "counted"
        if scenario.profile is not None:
            return "profiled"
        return "stated"

    @property
    def by_kernel(self) -> bool:
        """True where machines have NICs of the kernel, and no sender is paced."""
        return self.emulation.network == "kernel"


@dataclass(frozen=True, eq=False)
class RunResult(PreparedRun):
    """An emulated run, the two simulations beside it, and what was made of them."""

    run: EmulatedRun
    replayed: Schedule
    """Simulation of the run's own times and volumes."""
    verdict: Verdict
    prediction: Prediction
    error_budget: Figures
    """Seconds by which run and replay parted, by cause."""
    training: Result
    """``models``, ``training``, ``accuracy``, or the same per job; ``setup``."""
    ended: tuple[Ended, ...] = ()
    """Attempts that a death has ended before this run."""
    witness: Mapping[str, Any] | None = None
    """Third witness, by `emu.experiment.witness`."""
    foreseen: Attempts | None = None
    """All attempts simulated beforehand, where the scenario kills."""

    @cached_property
    def content(self) -> Result:
        """Content of result.json; docs/results.md documents its keys."""
        schedule = self.run.schedule
        realization = self.run.realization
        prediction = self.predicted
        epoch = epoch_of(schedule.problem.job.settings)
        cost = cost_of(self.experiment.scenario, schedule)
        recovery = recovery_of(
            self.ended,
            makespan=schedule.makespan,
            predicted=prediction.makespan,
            foreseen=self.foreseen,
        )
        spread = spread_of_iterations(
            iteration_lengths(schedule), iteration_lengths(self.replayed)
        )

        return {
            "version": result.VERSION,
            **self._settings_of_file(),
            "replayed_makespan": self.replayed.makespan,
            "replay_error": schedule.error_over(self.replayed),
            "predicted_makespan": prediction.makespan,
            "makespan_error": schedule.error_over(prediction),
            "wall_seconds": self.run.wall,
            **recovery,
            **self._tables(),
            **optimality(schedule, realization, self.policy),
            "verdict": self.verdict.to_json(),
            "prediction": self.prediction.to_json(),
            "spread": spread,
            "error_budget": self.error_budget,
            "policy": self.policy,
            "pace": pace(schedule, epoch).to_json(),
            **self._scales(),
            **host_rows(run=self.run, replayed=self.replayed),
            **({"witness": self.witness} if self.witness else {}),
            **({"cost": cost.to_json()} if cost else {}),
            **figures_on(schedule),
            **self._reads(),
            # The long tables come behind the figures that a reader opens the file for.
            **schedule.to_json(),
            **self.training,
        }

    def _settings_of_file(self) -> Result:
        experiment = self.experiment
        scenario = self.experiment.scenario
        job = experiment.problem.job
        first = experiment.first
        depth = pipeline_depth(job)
        # Failures are drawn in the time of the whole job, not of this part.
        end = experiment.began + self.run.schedule.length
        failures = count_failures(experiment, end)

        return {
            "scenario": scenario.name,
            "placement": scenario.placed_by,
            "placing": experiment.placing,
            "iterations": job.iterations,
            **({"mini_batches": job.iterations - depth} if depth else {}),
            "credit_window": scenario.job.credit_window,
            "processes": len(job.processes),
            "network": scenario.emulation.network,
            "sharing": scenario.emulation.sharing,
            "times": self.times,
            "flow_ends": scenario.emulation.flow_ends,
            **experiment.cause_of_length,
            **({"first_iteration": first} if first else {}),
            **({"failures": failures} if failures else {}),
        }

    def _reads(self) -> Result:
        """Return how many reads are others than simulated, and how far accuracy is.

        This is known where an accuracy has decided the length of the job.
        """
        reads = self.run.schedule.reads
        predictions = self.predicted.reads
        if reads is None or predictions is None:
            return {}

        job = self.problem.job
        # Only these read what is there: all other edges wait for their own iteration.
        newest = [number for number, edge in enumerate(job.edges) if edge.latest]
        count = 0
        for number in newest:
            reader = job.edges[number].destination
            count += job.rounds[reader]
        differs = reads[newest] != predictions[newest]
        content: Result = {"count": count, "other": int(differs.sum())}

        until = self.experiment.until
        look = self.experiment.reached
        accuracy = self.training.get("accuracy", {})
        # Reads decide what an asynchronous training learns:
        # so far is it from the simulated one.
        if until is not None and look is not None and until.split in accuracy:
            content["accuracy"] = accuracy[until.split] - look.accuracy
        return {"reads_apart": content}

    def _tables(self) -> Result:
        run = self.run
        schedule = self.run.schedule
        problem = self.problem
        byte_scale = self.settings.byte_scale
        tables = {
            "startup": run.startup,
            "flow_end_apart": result.flow_error(schedule, self.replayed),
            "kinds": result.task_rows(schedule, run.late),
            "edges": result.flow_rows(schedule, self.replayed),
            "ports": result.port_rows(schedule),
            "payloads": kinds_between_machines(problem, run.statistics, byte_scale),
            "memory": memory_figures(run),
            "transport": self._transport,
        }

        # Other hosts report the name of theirs.
        shares = {host["name"]: host["nic"] for host in run.hosts if "tcp" in host}
        if shares:
            seconds = run.startup.get("nics")
            tables["nics"] = {"seconds": seconds, "shares": shares}
        return tables

    @cached_property
    def _transport(self) -> Figures:
        sockets = transport_figures(self.run)
        return sockets | arrival_figures(self.run, self.settings.time_scale)

    def _scales(self) -> Result:
        if self.choice is None:
            return {}
        # Without deaths, as trials had none.
        wall_seconds = self.predicted.length * self.settings.time_scale
        actual = {
            "wall_seconds": self.run.wall,
            "cpu_busy": self.verdict.figures.cpu_busy,
        }
        # By trials: the run is held against what they promised.
        if self.choice.kernel is None:
            transport = self._transport
            late = transport["late_flows"]
            flows = max(transport["flows"], 1)
            actual["late_flows"] = late / flows
            actual["error"] = self.verdict.effect.shift
        else:
            length = self.replayed.length
            actual["delay"] = before_first_bytes(self.error_budget, length)

        figures = self.choice.beside(wall_seconds, actual)
        return {"auto_scale": self.choice.to_json() | figures}


def memory_figures(run: EmulatedRun) -> Figures:
    """Return received bytes (real) that waited: most in one process, and the limit."""
    pools = [figures["memory"] for figures in run.statistics.values()]
    marks = [pool["high_water"] for pool in pools]
    limits = [pool["limit"] for pool in pools]
    return {
        "high_water": float(max(marks)),
        "total_high_water": float(sum(marks)),
        # The least one: the first process that reaches its own ends the run.
        "limit": float(min(limits)),
    }


def host_rows(run: EmulatedRun, replayed: Schedule) -> Result:
    """Return ``hosts``: what each carried, and what it added; none of a single one."""
    # With kernel NICs every machine reports as a host: those count their own TCP.
    hosts = [host for host in run.hosts if "host" in host and "tcp" not in host]
    # A single host carries everything, and there is nothing to tell apart.
    if len(hosts) < 2:
        return {}

    drifts = drift_of_machines(run.schedule, replayed)
    rows = []
    for host in hosts:
        machine_drifts = [drifts.get(name, 0.0) for name in host["machines"]]
        row = {key: host.get(key) for key in ("host", "machines", "cpus", "emu")}
        row["seconds"] = sum(machine_drifts)
        rows.append(row)
    return {"hosts": rows}


def transport_figures(run: EmulatedRun) -> Figures:
    """Return the sockets' traffic (real bytes) and its lateness at the sender (wall).

    On kernel NICs with the counts of the machines' TCP, control messages included.
    """
    processes = run.statistics.values()
    edges = [edge for figures in processes for edge in figures["sent"]]
    cpu = [figures["cpu_seconds"] for figures in processes]

    def total(key: str) -> Any:
        return sum(edge[key] for edge in edges)

    delays = [edge["max_behind"] for edge in edges]
    counts = {
        "payload_bytes": float(total("payload_bytes")),
        "header_bytes": float(total("header_bytes")),
        "late_sends": int(total("late_sends")),
        "max_behind_wall_seconds": max(delays, default=0.0),
        "cpu_seconds": float(sum(cpu)),
    }
    if all("tcp" in host for host in run.hosts):
        for key in ("segments", "retransmitted", "timeouts"):
            counts[key] = sum(host["tcp"][key] for host in run.hosts)
    return counts


def arrival_figures(run: EmulatedRun, time_scale: float) -> Figures:
    """Return the lead of last bytes over the ends of their flows' fluid (wall).

    The median, how many came after it, so that the flow ended late, and how many flows
    ended later than they may.
    """
    schedule = run.schedule
    # On kernel NICs nobody assigned when a flow is to end, so that none is late.
    if schedule.rates is None:
        arrivals = ~np.isnan(run.arrivals)
        return {"flows": int(arrivals.sum())}

    # In wall seconds, as it is this host that was early or late.
    early = (fluid_ends(schedule) - run.arrivals) * time_scale
    early = early[~np.isnan(early)]
    median_lead = float(np.median(early)) if early.size else 0.0
    is_past = early < 0
    # 1 is what a flow may be late by: the more of 2 ms and 1 % of its length.
    excess = flow_completion(schedule, time_scale).excess
    is_late = excess > 1
    return {
        "flows": int(early.size),
        "flows_past_fluid": int(is_past.sum()),
        "late_flows": int(is_late.sum()),
        "early_wall_seconds": median_lead,
    }


def learnt(
    prepared: PreparedRun,
    run: EmulatedRun,
    weights: Parts | None = None,
) -> tuple[Result, Parts]:
    """Return ``models``, ``training``, ``accuracy`` of result.json, or its ``jobs``.

    Beside them the named parts of all weights, of which there are none where nothing
    was trained; those of several jobs begin with ``JOB/``. ``weights`` are such parts,
    by default of the run's results. Raises KeyError when they lack one.
    """
    job = prepared.problem.job
    models = {"models": list_model_figures(prepared.experiment.scenario)}
    times = job_times(
        run.schedule,
        realization=run.realization,
        policy=prepared.policy,
        epoch_of=epoch_of,
    )
    if not times:
        figures, parts = _figures(job, run=run, name="", weights=weights)
        return models | figures, parts

    jobs = []
    arrays = {}
    for time in times:
        figures, parts = _figures(job, run=run, name=time.job, weights=weights)
        jobs.append(time.to_json() | figures)
        for name, part in parts.items():
            # Jobs may have parts of the same name.
            arrays[f"{time.job}/{name}"] = part
    return models | {"training": [], "jobs": jobs}, arrays


def evaluate_run(path: Path) -> dict[str, Figures]:
    """Return the accuracy of a run's weights by job and split; one job has no name.

    Raises DataError when the directory, its weights or the data set cannot be used.
    """
    if has_recorded_job(path):
        problem = "is of a virtual run, whose program keeps and evaluates its weights"
        raise DataError(problem, path=path)
    refuse_lab(path)
    if not path.is_dir():
        raise DataError("is not a run directory", path=path)
    manifest = path / "manifest.json"
    with one_error(manifest):  # problem.json holds no settings
        content = read_json(manifest)
        scenario = Scenario.model_validate(content["scenario"])
        job = build_job(scenario)
        jobs = [*list_training(job)]
    if not jobs:
        problem = "has no weights: only compute: real and compute: padded train a model"
        raise DataError(problem, path=path)

    parts = read_weights(path)
    figures = {}
    for prefix, settings in jobs:
        dataset = open_for(settings)
        shapes = parameter_shapes(settings, dataset)
        names = [prefix + name for name in shapes]
        tensors = [parts[name] for name in names if name in parts]
        # The manifest states the model, and weights.npz may be of another run.
        if [part.shape for part in tensors] != [*shapes.values()]:
            problem = "holds the parts of another model than the run's"
            raise DataError(problem, path=path / WEIGHTS)
        flat = np.concatenate([part.ravel() for part in tensors])
        if not np.isfinite(flat).all():
            problem = "holds what is no number: its training diverged"
            raise DataError(problem, path=path / WEIGHTS)
        job_name = prefix.removesuffix("/")
        figures[job_name] = evaluate(settings, flat)
    return figures


def _job_alone(job: Job, name: str, prefix: str) -> tuple[Job, dict[str, str]]:
    """Return a job as if it had run alone, and its tasks' own names by the common ones.

    Without edges: what was learnt is in reports and results, not in what was sent.
    """
    plain_names = {}
    tasks = []
    for task in job.tasks:
        if task.job_name == name:
            plain = task.name.removeprefix(prefix)
            plain_names[task.name] = plain
            alone_task = replace(task, name=plain, process="")
            tasks.append(alone_task)

    lone_job = Job(
        tasks=tuple(tasks),
        edges=(),
        iterations=job.iterations,
        settings=job.settings_of(name),
    )
    return lone_job, plain_names


def _figures(
    job: Job,
    run: EmulatedRun,
    name: str,
    weights: Parts | None,
) -> tuple[Result, Parts]:
    """Return the figures of a job, which has no name where it is alone, and parts."""
    prefix = f"{name}/" if name else ""
    alone, plain_names = _job_alone(job, name, prefix)
    reports = [report for report in run.reports if report[1] in plain_names]
    curve = result.training_curve(reports)
    figures = curve_until_divergence(curve)
    settings = alone.settings
    system = system_of(settings)
    if system is None or not [*list_training(alone)]:
        return figures, {}

    results = {}
    for task_name, arrays in run.results.items():
        if task_name in plain_names:
            results[plain_names[task_name]] = arrays
    try:
        shapes = parameter_shapes(settings, open_for(settings))
        if weights is None:
            flat = system.trained(alone, results)
        else:
            flat_parts = [weights[prefix + part].ravel() for part in shapes]
            flat = np.concatenate(flat_parts)
        ends_well = bool(np.isfinite(flat).all())
        figures = curve_until_divergence(curve, ends_well=ends_well)
        if "diverged" not in figures:
            figures["accuracy"] = evaluate(settings, flat)
    # The model is code of others, which an audit does not run: its losses are all.
    except CodeWithheld:
        return figures, {}
    return figures, split_parts(flat, shapes)
