"""Files of measured times and volumes, ``emu profile`` writes them.

JSON: ``{"version": 1, "tasks": {name: [seconds, ...]}, "edges": {"g0->s0": [bytes,
...]}, "settings": {...}}``, one value per profiled iteration, without edges of control.
``settings`` are those of the job that was measured.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.atomic_file import write_atomic
from emu.errors import DataError
from emu.input_file import one_error, read_json
from emu.problem import Profile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from emu.problem import Job

VERSION = 1


@dataclass(frozen=True, eq=False)
class ProfileFile:
    """A profile by names, so that it fits any placement and order of tasks."""

    tasks: Mapping[str, NDArray[np.float64]]
    """Task -> seconds per profiled iteration."""
    edges: Mapping[str, NDArray[np.float64]]
    """`Job.edge_names` -> bytes per profiled iteration."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the job that was measured."""
    path: str = ""
    """Where it was read from, for errors."""

    @classmethod
    def of(cls, job: Job, profile: Profile) -> ProfileFile:
        """Return ``profile`` of ``job`` by names."""
        tasks = {t.name: row for t, row in zip(job.tasks, profile.times, strict=True)}
        edges = {
            name: row
            for name, control, row in zip(
                job.edge_names, job.control, profile.volumes, strict=True
            )
            if not control
        }
        return cls(tasks, edges, dict(job.settings))

    def profile(self, job: Job) -> Profile:
        """Return the profile in the order of ``job``; edges of control carry 0.

        Raises
        ------
        DataError
            When a task or edge of the job was not measured.
        """
        names = job.edge_names
        carrying = [
            name
            for name, control in zip(names, job.control, strict=True)
            if not control
        ]
        wanted = [task.name for task in job.tasks]
        for known, asked in ((self.tasks, wanted), (self.edges, carrying)):
            missing = [name for name in asked if name not in known]
            if missing:
                problem = f"was measured on another job, it has no {missing[0]}"
                raise DataError(problem, path=self.path)
        nothing = np.zeros_like(next(iter(self.tasks.values())))
        times = np.array([self.tasks[name] for name in wanted])
        rows = [
            nothing if control else self.edges[name]
            for name, control in zip(names, job.control, strict=True)
        ]
        volumes = np.array(rows).reshape(len(rows), nothing.size)
        return Profile(times, volumes)


def write_profile(path: str | Path, profile: ProfileFile) -> None:
    """Write a profile, whole or not at all.

    Raises
    ------
    DataError
        When it cannot be written.
    """
    content = {
        "version": VERSION,
        "tasks": {name: row.tolist() for name, row in profile.tasks.items()},
        "edges": {name: row.tolist() for name, row in profile.edges.items()},
        "settings": dict(profile.settings),
    }
    write_atomic(path, json.dumps(content))


def read_profile(path: str | Path) -> ProfileFile:
    """Read a profile.

    Raises
    ------
    DataError
        When it cannot be read, is of another version, or is damaged: a value that is
        not finite and positive or zero, rows of different lengths, no tasks.
    """
    with one_error(path):
        return _read(path)


def _read(path: str | Path) -> ProfileFile:
    file = str(path)
    content = read_json(Path(path))
    if not isinstance(content, dict) or content.get("version") != VERSION:
        found = content.get("version") if isinstance(content, dict) else content
        problem = f"is not a profile of version {VERSION}, found {found!r:.40}"
        raise DataError(problem, path=file)
    parts = [content.get(key) for key in ("tasks", "edges", "settings")]
    if not all(isinstance(part, dict) for part in parts) or not parts[0]:
        problem = "is not a profile: it needs tasks, edges and settings"
        raise DataError(problem, path=file)
    tasks, edges = _rows(content["tasks"], file), _rows(content["edges"], file)
    if len({row.size for row in [*tasks.values(), *edges.values()]}) > 1:
        problem = "is damaged: its rows differ in length"
        raise DataError(problem, path=file)
    return ProfileFile(tasks, edges, content["settings"], file)


def _rows(stated: dict[str, Any], file: str) -> dict[str, NDArray[np.float64]]:
    rows = {}
    for name, values in stated.items():
        try:
            row = np.array(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            problem = f"is damaged: {name} is not a list of numbers"
            raise DataError(problem, path=file) from error
        if row.ndim != 1 or not row.size or not (np.isfinite(row) & (row >= 0)).all():
            problem = f"is damaged: {name} has values that cannot be"
            raise DataError(problem, path=file)
        rows[name] = row
    return rows
