"""A run directory read back: schedules, tables, and what is missing of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from pydantic import ValidationError
from typing_extensions import override

from emu.errors import DataError
from emu.host.foreign_code import (
    INSTALL_FIGURES,
    CodeWithheld,
    code_of_others,
    import_library,
)
from emu.host.input_file import MOST_TEXT, check_shape, one_error, open_input, read_json
from emu.names import html_table
from emu.prediction.analysis.explanation import Explanation, explain
from emu.prediction.analysis.flow_counts import FlowCounts, count_flows
from emu.prediction.analysis.link_load import mean_rates, sum_rates, with_times
from emu.prediction.scheduling import policy_named
from emu.prediction.simulation import simulate
from emu.problem import Problem, Realization, Schedule
from emu.runs.array_files import read_frames, read_rates, read_realization
from emu.runs.lab_file import refuse_lab
from emu.runs.problem_json import (
    Content,
    manifest_shape,
    problem_from_json,
    result_shape,
    schedule_from_json,
)
from emu.runs.result import VERSION, flow_rows, port_rows
from emu.scenario import Scenario, load, prepare
from emu.scenario.edits import ScenarioEdits
from emu.scenario.own_rules import is_policy, is_program, register_program
from emu.scenario.scenario_file import RECORDED_JOB, has_recorded_job
from emu.units import format_duration, format_ratio

if TYPE_CHECKING:
    import pandas as pd

    Part = TypeVar("Part")


#: File of what a virtual run says of itself.
VIRTUAL_RESULT = "virtual.json"
#: Files of which a run directory has one at the least.
_RUN_FILES = ("problem.json", "manifest.json", "result.json", "simulated.json")
#: Figures that are shares of a makespan, and no seconds.
_RATIOS = ("makespan_error", "replay_error")


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """Readable content of a run directory."""

    path: Path
    manifest: Content
    problem: Problem
    result: Content
    """Content of manifest.json and result.json, empty when missing."""
    emulated: Schedule | None
    simulated: Schedule | None
    """Schedules of the run, with its rates where they are known, and of the simulation
    of its own times and volumes; None when missing."""
    measured: Realization | None
    """Times and volumes of realization.npz; None when missing."""
    missing: tuple[str, ...]
    """One sentence per part that could not be read."""

    @property
    def name(self) -> str:
        """Name of the directory."""
        return self.path.name

    @property
    def policy(self) -> str:
        """Rate policy of the run; ``oes`` where no file states one.

        Raises DataError when it is a rule of one's own of which the manifest states
        nothing.
        """
        schedule = self.manifest.get("scenario", {}).get("schedule", {})
        of_manifest = schedule.get("policy")
        of_result = self.result.get("policy")
        if is_program(str(of_result or of_manifest)):
            if not is_program(str(of_manifest)):
                path = str(self.path / "manifest.json")
                raise DataError(f"states nothing of the policy {of_result}", path=path)
            return register_program(str(of_manifest), schedule.get("source"))

        # The result first: it has the rule that a
        # portfolio chose, the manifest the portfolio.
        for name in (of_result, of_manifest):
            if name and is_policy(str(name)):
                return str(name)
        return "oes"

    @property
    def makespan(self) -> float:
        """Makespan of `best`, seconds."""
        return self.best.makespan

    @override
    def __repr__(self) -> str:
        """Return the name, the makespan and the verdict."""
        schedule = self.emulated or self.simulated
        length = "no schedule"
        if schedule is not None:
            length = format_duration(schedule.makespan, 5)
        verdict = self.result.get("verdict", {})
        trust = verdict.get("trust", "not judged")
        return f"<RecordedRun {self.name}: {length}, {trust}>"

    def _repr_html_(self) -> str:
        """Return the figures of result.json that a run is for."""
        rows = []
        for key in ("makespan", "predicted_makespan", "bound", *_RATIOS):
            figure = self.result.get(key)
            if not isinstance(figure, int | float):
                continue
            if key in _RATIOS:
                text = format_ratio(figure)
            else:
                text = format_duration(figure, 6)
            label = key.replace("_", " ")
            rows.append((label, text))
        return html_table(repr(self), (), rows)

    @property
    def best(self) -> Schedule:
        """The emulated schedule, else the simulated one."""
        schedule = self.emulated or self.simulated
        if schedule is None:
            raise DataError("; ".join(self.missing), path=self.path)
        return schedule

    @property
    def steps(self) -> list[float]:
        """Seconds of the steps of a virtual run, all but the first; else nothing."""
        virtual = self.result.get("virtual", {})
        steps = virtual.get("steps", {})
        seconds: list[float] = steps.get("seconds", [])
        return seconds[1:]

    @property
    def realization(self) -> Realization:
        """Measured times and volumes, else those that the schedules hold."""
        return self.measured or realization_of(self.best)

    @property
    def counts(self) -> FlowCounts | None:
        """Counts of the kernels of every flow; None in a run that holds none.

        Raises DataError where frames.npz is damaged.
        """
        path = self.path / "frames.npz"
        if not path.exists():
            return None
        job = self.problem.job
        frames = read_frames(job, path)
        return count_flows(
            len(job.edges),
            iterations=job.iterations,
            connections=frames["connections"],
            waits=frames["waits"],
        )

    @property
    def scenario(self) -> Scenario | None:
        """Scenario of the run, None where the manifest states none that is valid."""
        try:
            return Scenario.model_validate(self.manifest.get("scenario", {}))
        except ValidationError:
            return None

    def explain(self, *, helpful: bool = True, run_code: bool = False) -> Explanation:
        """Return why it took so long and, if wanted, what would help.

        ``run_code``: whether a rule of others, which the manifest names, may run for
        that; else what would help is left out, and a note says so.
        """
        notes = self.missing
        replay_run = None
        verdict = self.result.get("verdict") or {"trust": "trusted"}
        if verdict["trust"] != "trusted":
            first_reasons = verdict.get("reasons", ())[:2]
            reasons = "; ".join(first_reasons)
            notes += (f"the run is {verdict['trust']}: {reasons}",)
        try:
            with code_of_others(runs=run_code):
                policy_named(self.policy)
        except CodeWithheld as error:
            notes += (f"what would help is left out: {error}",)
            helpful = False
            # Nothing can be simulated without the rule: the
            # recorded simulation stands in for it.
            replay_run = self.simulated or self.emulated
        # Only moves of tasks ask for these bytes, and what would help tries such moves.
        if self.measured is None and helpful:
            notes += (
                "bytes of handoffs within a machine are not known: those of like flows",
            )

        scenario = self.scenario if helpful else None
        edits = None
        if scenario is not None:
            edits = ScenarioEdits(scenario, measured=True)
        prediction = self.simulated or self.best
        return explain(
            self.best,
            self.realization,
            self.policy,
            emulated=self.emulated is not None,
            helpful=helpful,
            notes=notes,
            stated=edits,
            replayed=replay_run,
            outages=prediction.outages,
        )

    @property
    def tasks(self) -> pd.DataFrame:
        """One row per (task, iteration) of both schedules.

        Columns run (``emulated`` or ``simulated``), task, kind, machine, iteration,
        start, end (seconds).
        """
        columns = ["run", "task", "kind", "machine", "iteration", "start", "end"]
        return self._stack(attrgetter("tasks"), columns)

    @property
    def flows(self) -> pd.DataFrame:
        """One row per flow between machines, of both schedules.

        Columns run, edge (its name), source, destination, from_kind, to_kind,
        from_machine, to_machine, iteration (of the source), bytes, ready, start, end
        (seconds).
        """
        ends = ["source", "destination", "from_kind", "to_kind"]
        machines = ["from_machine", "to_machine", "iteration", "bytes"]
        columns = ["run", "edge", *ends, *machines, "ready", "start", "end"]
        return self._stack(_flows, columns)

    def _stack(
        self,
        rows: Callable[[Schedule], pd.DataFrame],
        columns: list[str],
    ) -> pd.DataFrame:
        frames = []
        for run in ("emulated", "simulated"):
            schedule = getattr(self, run)
            if schedule is not None:
                frame = rows(schedule)
                frames.append(frame.assign(run=run))
        pandas = _import_pandas()
        if not frames:
            return pandas.DataFrame(columns=columns)
        stacked = pandas.concat(frames, ignore_index=True)
        return stacked[columns]

    @property
    def ports(self) -> pd.DataFrame:
        """One row per change of a port's rate or capacity.

        Columns port, machine, direction (both empty where it is no NIC), capacity, time
        (seconds), rate (bytes per second) and source: ``assigned`` by the scheduler or,
        where that is not recorded, ``mean`` of what was moving.
        """
        pandas = _import_pandas()
        schedule = self.best
        links = schedule.problem.links
        machines = schedule.problem.cluster.machines
        source = "assigned"
        port_rates = sum_rates(schedule)
        if port_rates is None:
            source = "mean"
            port_rates = mean_rates(schedule)

        frames = []
        for port, link in enumerate(links):
            changes, _ = links.steps.of(port)
            is_within = (changes > 0) & (changes < schedule.makespan)
            times, rates = with_times(port_rates[port], changes[is_within])
            machine = machines[link.machine].name if link.direction else ""
            frame = pandas.DataFrame(
                {
                    "port": link.name,
                    "machine": machine,
                    "direction": link.direction,
                    "capacity": links.steps.at(port, times),
                    "time": times,
                    "rate": rates,
                    "source": source,
                }
            )
            frames.append(frame)
        columns = ("port", "machine", "direction", "capacity", "time", "rate", "source")
        empty = [pandas.DataFrame(columns=columns)]  # where no machine has a NIC
        return pandas.concat(frames or empty, ignore_index=True)

    @property
    def training(self) -> pd.DataFrame:
        """Rows of training.csv: time, task, iteration, figure, value; else none."""
        return training_frame(self.path / "training.csv")


def _import_pandas() -> ModuleType:
    """Return pandas, which takes half a second to import."""
    library: ModuleType = import_library("pandas", "a frame of a run", INSTALL_FIGURES)
    return library


def training_frame(path: Path) -> pd.DataFrame:
    """Return training.csv: time, task, iteration, figure, value; no rows if missing."""
    pandas = _import_pandas()
    columns = ["time", "task", "iteration", "figure", "value"]
    if not path.exists():
        return pandas.DataFrame(columns=columns)
    try:
        with open_input(path, MOST_TEXT) as file:
            frame: pd.DataFrame = pandas.read_csv(file, on_bad_lines="skip")
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read: {error}", path=path) from error

    if list(frame.columns) != columns:
        found = ", ".join(frame.columns)
        raise DataError(f"has the columns {found}", path=path)
    return frame.dropna().reset_index(drop=True)


def _flows(schedule: Schedule) -> pd.DataFrame:
    problem = schedule.problem
    job = problem.job
    edges, iterations = schedule.flows().T
    flows = edges, iterations
    machine_of = np.array(problem.placement.machine_of)
    machines = np.array(problem.cluster.names)
    names = np.array([task.name for task in job.tasks])
    kinds = np.array([task.kind for task in job.tasks])
    edge_names = np.array(job.edge_names)
    sources = np.array([edge.source for edge in job.edges], dtype=np.int64)
    readers = np.array([edge.destination for edge in job.edges], dtype=np.int64)
    source = sources[edges]
    reader = readers[edges]

    return _import_pandas().DataFrame(
        {
            "edge": edge_names[edges],
            "source": names[source],
            "destination": names[reader],
            "from_kind": kinds[source],
            "to_kind": kinds[reader],
            "from_machine": machines[machine_of[source]],
            "to_machine": machines[machine_of[reader]],
            "iteration": iterations,
            "bytes": schedule.flow_bytes[flows],
            "ready": schedule.flow_ready[flows],
            "start": schedule.flow_start[flows],
            "end": schedule.flow_end[flows],
        }
    )


def load_run(path: str | Path) -> RecordedRun:
    """Return the readable content of a run directory, and the parts missing of it.

    The schedule of a virtual run is the simulation of the job that it recorded.
    """
    path = Path(path)
    if has_recorded_job(path):
        return _simulate_virtual(path)
    # The one file that nothing can be read without: its error ends it.
    problem = _read_problem(path)
    missing = []

    # A part that is missing or torn hides no other: it is named where it is wanted.
    def try_read(name: str, read: Callable[[Path], Part]) -> Part | None:
        try:
            with one_error(path / name):
                return read(path / name)
        except DataError as error:
            missing.append(f"{name} {error.problem}")
            return None

    def read_schedule(file: Path) -> Schedule:
        return schedule_from_json(problem, _object(file), str(file))

    manifest = try_read("manifest.json", read_manifest)
    # A run that was cut off has none, and its other files are shown all the same.
    result = try_read("result.json", _read_result) or {}
    emulation = try_read("result.json", read_schedule) if result else None
    if not _is_by_tcp(result) or (path / "rates.npz").exists():
        rates = try_read("rates.npz", partial(read_rates, problem.job))
        if emulation is not None and rates is not None:
            emulation = replace(emulation, rates=rates)
    simulation = try_read("simulated.json", read_schedule)
    realization = None
    if (path / "realization.npz").exists():  # the schedules hold nearly all of it
        read_times = partial(read_realization, problem.job)
        realization = try_read("realization.npz", read_times)
    if not (path / "training.csv").exists():
        missing.append("training.csv is missing")
    return RecordedRun(
        path=path,
        manifest=manifest or {},
        problem=problem,
        result=result,
        emulated=emulation,
        simulated=simulation,
        measured=realization,
        missing=tuple(missing),
    )


def _simulate_virtual(run: Path) -> RecordedRun:
    """Return a virtual run: its schedule is the simulation of the recorded job.

    Raises ScenarioError or DataError where the job cannot be read.
    """
    job_scenario = load(run / RECORDED_JOB)
    experiment = prepare(job_scenario)
    schedule = simulate(
        experiment.problem,
        experiment.realization,
        experiment.policy,
        record_rates=True,
    )
    missing: tuple[str, ...] = ()
    figures: Content = {}
    try:
        with one_error(run / VIRTUAL_RESULT):
            figures = _object(run / VIRTUAL_RESULT)
    except DataError as error:
        missing = (f"{VIRTUAL_RESULT} {error.problem}",)

    scenario = experiment.scenario
    manifest = {"scenario": scenario.model_dump(mode="json", by_alias=True)}
    result = {
        "scenario": scenario.name,
        "placement": scenario.placed_by,
        "policy": experiment.policy,
        "virtual": figures,
        "job_makespan": schedule.makespan,
        "edges": flow_rows(schedule),
        "ports": port_rows(schedule),
    }
    return RecordedRun(
        path=run,
        manifest=manifest,
        problem=experiment.problem,
        result=result,
        emulated=None,
        simulated=schedule,
        measured=experiment.realization,
        missing=missing,
    )


def check_run_directory(run: Path) -> None:
    """Raise DataError where a folder has no file of a run, or is of a lab."""
    refuse_lab(run)
    # A folder that has some of them is a run that lost the others.
    if not any((run / name).exists() for name in _RUN_FILES):
        raise DataError("is not a run directory", path=run)


def _read_problem(run: Path) -> Problem:
    check_run_directory(run)
    file = run / "problem.json"
    with one_error(file):
        return problem_from_json(read_json(file), str(file))


def _is_by_tcp(result: Content) -> bool:
    """Return True where TCP has shared kernel NICs, so that no rate was assigned."""
    is_kernel = result.get("network") == "kernel"
    return is_kernel and result.get("sharing") != "assigned"


def with_simulated_rates(run: RecordedRun) -> Schedule:
    """Return the simulation of a run with its rates, which no file holds.

    They come from simulating again; where that gives another makespan (a run without
    its result), or a rule of others may not run, it is returned without rates.
    """
    schedule = run.simulated
    if schedule is None:
        raise DataError("; ".join(run.missing), path=run.path)
    # With the quotas that its tuners had then, or they would tune anew.
    problem = run.problem.following(schedule)
    realization = realization_of(schedule)
    try:
        replay = simulate(problem, realization, run.policy, record_rates=True)
    except CodeWithheld:
        return schedule

    # Times are ends less starts here, so that the last digits may differ.
    alike = np.isclose(replay.makespan, schedule.length, rtol=1e-9, atol=0.0)
    if replay.rates is None or not alike:
        return schedule
    return replace(schedule, rates=replay.rates)


def realization_of(schedule: Schedule) -> Realization:
    """Return the times and volumes of a schedule.

    The bytes of handoffs within a machine are not in its file; they are taken to be the
    mean of the flows of the same iteration between tasks of the same kinds, which
    matters only where a task is moved.
    """
    problem = schedule.problem
    tasks = problem.job.tasks
    # NaN of flows that were never sent.
    volumes = np.maximum(np.nan_to_num(schedule.flow_bytes), 0.0)
    remote = np.array([bool(path) for path in problem.hops], dtype=bool)
    rows_of = defaultdict(list)
    for number, edge in enumerate(problem.job.edges):
        sender = tasks[edge.source]
        reader = tasks[edge.destination]
        # Credits have no bytes, and would lower the mean of what goes the same way.
        kinds = (sender.kind, reader.kind, edge.credit)
        rows_of[kinds].append(number)

    for numbers in rows_of.values():
        rows = np.array(numbers)
        sent = rows[remote[rows]]
        handed_over = rows[~remote[rows]]
        # Where none of these crosses machines, nothing tells their bytes.
        if sent.size and handed_over.size:
            volumes[handed_over] = volumes[sent].mean(axis=0)
    return Realization(schedule.work, volumes)


def _object(path: Path) -> Content:
    content = read_json(path)
    if not isinstance(content, dict):
        raise DataError("holds no JSON object", path=path)
    return content


def read_manifest(path: Path, shape: Any = None) -> Content:
    """Return the content of manifest.json, or of a file of another shape like it."""
    refuse_lab(path.parent)
    content = _object(path)
    # The version before the shape: a file of another emu is not damaged.
    version = content.get("version")
    if version != VERSION:
        problem = f"is of version {version!r}, this emu reads {VERSION}"
        raise DataError(problem, path=path)
    check_shape(content, shape or manifest_shape(), path)
    return content


def _read_result(path: Path) -> Content:
    content = read_manifest(path, result_shape())
    policy = content.get("policy")
    if policy is not None and not is_policy(policy):
        raise DataError(f"names the unknown policy {policy!r}", path=path)
    return content
