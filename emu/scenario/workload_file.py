"""Files beside a scenario: workloads and profiles (JSON)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from emu.array_types import Floats
from emu.errors import DataError, ScenarioError
from emu.host.confinement import confine
from emu.host.files import write_atomic
from emu.host.input_file import read_json
from emu.problem import Job, Profile
from emu.problem.fields.suggestion import nearest
from emu.scenario.document import Data, Document
from emu.systems.custom.section import FlowSection
from emu.units import DURATION, RATE

_KEYS: dict[str, type] = {
    "machines": list,
    "tasks": list,
    "edges": list,
    "volumes": list,
    "exec_times": dict,
    "placement": dict,
    "n_iterations": int,
}
#: Keys that a workload may have beside these; the first alone is acted upon.
_BESIDE = ("expected_makespan_s", "comment", "name", "description")
_KINDS = ("graph_store", "sampler", "worker", "parameter_server")
#: Kind of a task by the letter that its name begins with.
_KIND_OF_LETTER = {kind[0]: kind for kind in _KINDS}
#: Of profiles; a file of another one is refused.
VERSION = 1
#: Keys of a profile.
_PROFILE_KEYS = ("version", "tasks", "edges", "settings", "byte_scale")
#: Keys of its own that a file written by hand may have.
_REMARK = "comment"
Rows: TypeAlias = dict[str, Floats]
#: What tells a workload file from a scenario.
WORKLOAD_KEYS = frozenset({"machines", "edges", "volumes"})
#: Settings of a job that neither its times nor its volumes depend on: all is measured
#: by real computation, and a step takes as long at every learning rate. The batch of a
#: sampler follows from keys that a user writes, and errors name those.
_FREE_SETTINGS = frozenset(
    {
        "seed",
        "compute",
        "dataset.root",
        "optimizer.lr",
        "optimizer.half_life",
        "sampler_batch_size",
    }
)


def workload_document(document: Document) -> Document:
    """Return the scenario that a workload file states.

    ``expect.makespan`` is not among its keys: which one holds depends on the policy,
    see `expect_listed_makespan`. Raises ScenarioError when a key is missing or of the
    wrong kind, or a value is impossible.
    """
    data = document.data
    file = document.file
    # A truth value is a whole number to Python, but no number of iterations.
    for key, kind in _KEYS.items():
        value = data.get(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            type_name = type(value).__name__
            problem = f"found {type_name}, a workload has a {kind.__name__} here"
            raise ScenarioError(problem, file=file, key=key)

    for key in data:
        if key not in _KEYS and key not in _BESIDE:
            keys = [*_KEYS, *_BESIDE]
            problem = f"unknown key {key!r}, {nearest(key, keys)}"
            raise ScenarioError(problem, file=file, key=key)

    try:
        machines = _machines(data["machines"])
        tasks = _tasks(data["tasks"], data["exec_times"], file)
        flows = _flows(data["edges"], data["volumes"], data["n_iterations"], file)
        job = {
            "system": "custom",
            "iterations": data["n_iterations"],
            "tasks": tasks,
            "flows": flows,
            # As in the paper (A1): the listed makespans are without a window.
            "credit_window": "unlimited",
        }
        # Machines without a name are called so.
        places = {}
        for name, number in data["placement"].items():
            places[name] = f"m{number}"
        placement = {"policy": "explicit", "tasks": places}
        scenario = {
            "cluster": {"machines": machines},
            "job": job,
            "placement": placement,
        }
    except (TypeError, ValueError, KeyError, IndexError) as error:
        problem = f"is not a workload: {type(error).__name__} {error}"
        raise ScenarioError(problem, file=file) from error
    return Document(file, scenario)


def expect_listed_makespan(data: Data, workload: Data) -> None:
    """Write the makespan that ``workload`` lists for the policy of ``data`` there.

    Nothing is written where the overrides changed the number of iterations or say
    themselves what to expect, or where the policy is not listed.
    """
    schedule = data.get("schedule")
    policy: Any = "oes"
    if isinstance(schedule, dict):
        policy = schedule.get("policy")
    makespans = workload.get("expected_makespan_s")
    if not isinstance(makespans, dict) or policy not in makespans:
        return
    if "expect" in data:
        return
    # A listed makespan is of all its iterations.
    if data["job"]["iterations"] == workload["n_iterations"]:
        makespan = makespans[policy]
        # By repr, so that no digit is lost: it is met to 1e-9.
        data["expect"] = {"makespan": f"{makespan!r} s"}


def _machines(rates: Sequence[Sequence[Any]]) -> list[Data]:
    """Return machines by the rates of their NICs, in and out, bytes per second."""
    # As text with a unit, which sections take, and of the same float.
    machines: list[Data] = []
    for inward_rate, outward_rate in rates:
        nic = {
            "in": RATE.exact(float(inward_rate)),
            "out": RATE.exact(float(outward_rate)),
        }
        machines.append({"nic": nic})
    return machines


def _tasks(
    names: Sequence[str],
    seconds: Mapping[str, Any],
    file: str,
) -> list[Data]:
    # The time of a misspelt name would be no task's.
    known_names = {*names}
    for name in seconds:
        if name not in known_names:
            problem = f"found {name!r}, which is no task"
            raise ScenarioError(problem, file=file, key="exec_times")

    tasks: list[Data] = []
    for name in names:
        time = float(seconds[name])
        first_letter = name[:1]
        task = {
            "name": name,
            "kind": _KIND_OF_LETTER.get(first_letter, "task"),
            "time": DURATION.exact(time),
        }
        tasks.append(task)
    return tasks


def _flows(
    edges: Sequence[Sequence[Any]],
    volumes: Sequence[Sequence[float]],
    iterations: int,
    file: str,
) -> list[FlowSection]:
    """Build the flows without validating each of 28,000 volumes by itself.

    Workload B loads in 0.03 s so, instead of 0.2 s through text with units.
    """
    flows = []
    for (source, destination, lag), row in zip(edges, volumes, strict=True):
        # What pydantic would have refused is refused here by hand.
        values = tuple(map(float, row))
        is_possible = all(math.isfinite(value) and value >= 0 for value in values)
        if not is_possible:
            problem = f"a volume of {source}->{destination} is impossible"
            raise ScenarioError(problem, file=file, key="volumes")
        if not isinstance(source, str) or not isinstance(destination, str):
            problem = f"an edge ends at {source!r}, {destination!r}"
            raise ScenarioError(problem, file=file, key="edges")
        if len(values) > iterations:
            count = f"{len(values)} volumes for {iterations} iterations"
            problem = f"{source}->{destination} has {count}"
            raise ScenarioError(problem, file=file, key="volumes")
        if not isinstance(lag, int) or isinstance(lag, bool) or lag < 0:
            problem = f"{source}->{destination} has lag {lag!r}"
            raise ScenarioError(problem, file=file, key="edges")

        fields: Data = {
            "from": source,
            "to": destination,
            "lag": lag,
            "volume": values,
        }
        flow = FlowSection.model_construct(**fields)
        flows.append(flow)
    return flows


@dataclass(frozen=True, eq=False)
class ProfileFile:
    """A profile by names, so that it fits any placement and order of tasks."""

    tasks: Mapping[str, Floats]
    """Task -> seconds per profiled iteration."""
    edges: Mapping[str, Floats]
    """`Job.edge_names` -> bytes per profiled iteration."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the job that was measured."""
    byte_scale: float | None = None
    """Real bytes per byte of ``edges``, None where the file does not say."""
    path: str = ""
    """Where it was read from, for errors."""

    @classmethod
    def of(cls, job: Job, profile: Profile, byte_scale: float = 1.0) -> ProfileFile:
        """Return ``profile`` of ``job`` by names; ``byte_scale``: of its volumes."""
        tasks = {}
        for task, times in zip(job.tasks, profile.times, strict=True):
            tasks[task.name] = times
        rows = zip(job.edge_names, profile.volumes, job.control, strict=True)
        edges = {name: volumes for name, volumes, control in rows if not control}
        return cls(
            tasks=tasks,
            edges=edges,
            settings=dict(job.settings),
            byte_scale=float(byte_scale),
        )

    def profile(self, job: Job, byte_scale: float | None) -> Profile:
        """Return the profile in the order of ``job``; edges of control carry 0.

        ``byte_scale``: real bytes per byte of the volumes that are returned; None where
        payloads are made up, whose volumes are the same at every scale. Raises
        DataError when a task or edge of the job was not measured, the file does not
        say its own scale, or times and volumes are those of other settings.
        """
        self._check_settings(job)
        any_row = next(iter(self.tasks.values()))
        nothing = np.zeros_like(any_row)
        rows = []
        try:
            seconds = [self.tasks[task.name] for task in job.tasks]
            times = np.array(seconds)
            for name, control in zip(job.edge_names, job.control, strict=True):
                row = nothing if control else self.edges[name]
                rows.append(row)
        except KeyError as error:
            problem = f"was measured on another job, it has no {error.args[0]}"
            raise DataError(problem, path=self.path) from error

        # A job without edges has volumes of that many columns, too.
        shape = (len(rows), nothing.size)
        volumes = np.array(rows).reshape(shape)
        if byte_scale is not None:
            volumes *= self._own_scale() / byte_scale
        return Profile(times, volumes)

    def foreign_names(self, job: Job) -> list[str]:
        """Return its tasks and edges that a job does not have."""
        known = {task.name for task in job.tasks}
        known.update(job.edge_names)
        return [name for name in (*self.tasks, *self.edges) if name not in known]

    def _check_settings(self, job: Job) -> None:
        # The names of the tasks do not say: ``s0`` is there with every batch size.
        settings = _settings_of_costs(job.settings)
        measured = _settings_of_costs(self.settings)
        for key, setting in settings.items():
            # A profile that was written by hand, or by an older emu, may lack the key.
            found = measured.get(key, setting)
            if found != setting:
                problem = (
                    f"was measured with {key} {found}, not {setting}: profile anew, or "
                    "write job.times"
                )
                raise DataError(problem, path=self.path)

        # A key that this job lacks, as of a cache, made times and volumes other ones.
        foreign = [key for key in measured if key not in settings]
        if foreign:
            key = foreign[0]
            problem = (
                f"was measured with {key} {measured[key]}, which this job does not "
                "have: profile anew, or write job.times"
            )
            raise DataError(problem, path=self.path)

    def _own_scale(self) -> float:
        if self.byte_scale is None:
            # One made at 0.01 and used at 1 had a run end 91 % before its prediction.
            problem = (
                "does not say at which emulation.byte_scale it was measured: profile "
                'anew, or add "byte_scale": 1, say'
            )
            raise DataError(problem, path=self.path)
        return self.byte_scale


def _settings_of_costs(settings: Mapping[str, Any]) -> Data:
    """Return the settings on which costs depend, those of sections as section.key."""
    rows: Data = {}
    for key, value in settings.items():
        if not isinstance(value, Mapping):
            rows[key] = value
            continue
        for part, setting in value.items():
            rows[f"{key}.{part}"] = setting

    of_costs: Data = {}
    for key, value in rows.items():
        if key not in _FREE_SETTINGS:
            # As in a file, which knows no tuples.
            of_costs[key] = list(value) if isinstance(value, tuple) else value
    return of_costs


def write_profile(path: str | Path, profile: ProfileFile) -> None:
    """Write a profile, whole or not at all.

    Raises DataError when it cannot be written.
    """
    content = {
        "version": VERSION,
        "tasks": _as_lists(profile.tasks),
        "edges": _as_lists(profile.edges),
        "settings": dict(profile.settings),
        "byte_scale": profile.byte_scale,
    }
    text = json.dumps(content)
    write_atomic(path, text)


def _as_lists(rows: Mapping[str, Floats]) -> dict[str, list[float]]:
    return {name: row.tolist() for name, row in rows.items()}


def read_profile(path: str | Path) -> ProfileFile:
    """Return the content of a profile.

    Raises DataError when it cannot be read, is of another version, or is damaged: a
    value that is not finite and positive or zero, rows of different lengths, no tasks.
    """
    return _read_profile(Path(path))


@confine
def _read_profile(path: Path) -> ProfileFile:
    file = str(path)
    content = read_json(path)
    version = content
    if isinstance(content, dict):
        version = content.get("version")
    if not isinstance(content, dict) or version != VERSION:
        problem = f"is not a profile of version {VERSION}, found {version!r:.40}"
        raise DataError(problem, path=file)
    for key in content:
        if key not in _PROFILE_KEYS and key != _REMARK:
            keys = [*_PROFILE_KEYS, _REMARK]
            problem = f"has an unknown key {key!r:.40}, {nearest(key, keys)}"
            raise DataError(problem, path=file)
    for key in ("tasks", "edges", "settings"):
        section = content.get(key)
        if not isinstance(section, dict) or not content["tasks"]:
            problem = "is not a profile: it needs tasks, edges and settings"
            raise DataError(problem, path=file)

    tasks = _rows(content["tasks"], file)
    edges = _rows(content["edges"], file)
    lengths = {row.size for row in tasks.values()}
    lengths.update(row.size for row in edges.values())
    if len(lengths) > 1:
        problem = "is damaged: its rows differ in length"
        raise DataError(problem, path=file)
    scale = content.get("byte_scale")
    if scale is not None and not _is_scale(scale):
        problem = f"has byte_scale {scale!r:.40}, write a number above 0"
        raise DataError(problem, path=file)
    return ProfileFile(
        tasks=tasks,
        edges=edges,
        settings=content["settings"],
        byte_scale=scale,
        path=file,
    )


def _is_scale(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value < math.inf


def _rows(stated: Data, file: str) -> Rows:
    rows: Rows = {}
    for name, values in stated.items():
        try:
            row = np.array(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            problem = f"is damaged: {name} is not a list of numbers"
            raise DataError(problem, path=file) from error

        is_possible = np.isfinite(row) & (row >= 0)
        is_row = row.ndim == 1 and row.size > 0
        if not is_row or not is_possible.all():
            problem = f"is damaged: {name} has values that cannot be"
            raise DataError(problem, path=file)
        rows[name] = row
    return rows
