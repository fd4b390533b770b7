"""The run directory: what a run leaves behind, written whole or not at all.

``runs/<scenario>-<time>/`` holds

- ``manifest.json``   the scenario as resolved, versions, hosts, seeds
- ``problem.json``    machines, tasks, edges and where everything stands
- ``simulated.json``  the simulation replayed with the run's own times and volumes
- ``rates.npz``       assigned rates: arrays time, edge, iteration, rate
- ``scenario.txt``    the scenario as it was written, before overrides; an audit starts
                      from it, and finds what was edited in it or in the manifest since
- ``reports.npz``     starts and ends as they were reported
- ``realization.npz`` measured times and volumes, handoffs within a machine included
- ``weights.npz``     what was learnt, flat, with named parts; where nothing was: none
- ``training.csv``    run time, task, iteration and figures (loss) per training step
- ``processes.json``  hosts, what was tuned there, and what every process counted
- ``result.json``     the numbers, and the emulated schedule: makespan, tasks, flows;
                      written last, its keys are in docs/results.md, and stable
- ``checkpoints/``    the last two, where the scenario asks for any
- ``agent.log``       what the processes printed
- ``trace.json``      the run and its simulation for Perfetto
- ``report.html``     the picture, from all of the above; made by ``emu report`` again
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import DataError, ScenarioError
from emu.files import whole_file
from emu.input_file import one_error, open_input, read_text
from emu.names import file_part
from emu.runs.problem_json import (
    problem_to_json,
)
from emu.scenario.document import Source
from emu.scenario.own_rules import is_program
from emu.scenario.run_sections import AUTO
from emu.scenario.scenario_file import load_again
from emu.trust.violation import differences

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from emu.problem import Problem, RateHistory
    from emu.scenario import Scenario

#: Files that result.json follows from, and names the digests of.
RECORDS = (
    "manifest.json", "scenario.txt", "problem.json", "simulated.json",
    "processes.json", "rates.npz", "realization.npz", "reports.npz", "frames.npz",
    "training.csv", "weights.npz",
)  # fmt: skip


def npz_content(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the content of the npz file of some arrays."""
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type] # its flag is not an array
    return content.getvalue()


def _lock(held: int, path: Path) -> None:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        problem = "another emu is writing here: wait for its end"
        raise DataError(problem, path=str(path)) from error


class RunDirectory:
    """A run directory that is being written.

    Every file is written beside its place and moved there, so that a file that exists
    is complete. All methods raise DataError when the disk refuses.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, name: str, parent: Path = Path("runs")) -> RunDirectory:
        """Make ``parent/name-<time>`` and return it.

        Raises
        ------
        DataError
            When it cannot be made or written to.
        """
        stamp = time.strftime("%Y%m%d-%H%M%S")
        for attempt in range(100):
            path = (
                parent / f"{file_part(name)}-{stamp}{f'-{attempt}' if attempt else ''}"
            )
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise DataError(
                    f"cannot make a run directory here: {error.strerror}; choose "
                    "another with --runs",
                    path=str(path),
                ) from error
            return cls(path)
        raise DataError("every name for a run directory is taken", path=str(parent))

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Keep others from writing here at the same time; the kernel ends it with us.

        Raises
        ------
        DataError
            When another emu writes here.
        """
        try:
            held = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            problem = f"cannot be opened: {error.strerror}"
            raise DataError(problem, path=str(self.path)) from error
        try:
            with contextlib.suppress(OSError):  # a file system without locks
                _lock(held, self.path)
            yield
        finally:
            os.close(held)

    def write_json(self, name: str, data: Any) -> None:
        """Write ``data`` as JSON; NaN and infinity are refused with ValueError."""
        text = json.dumps(data, indent=1, allow_nan=False)
        self._write(name, (text + "\n").encode())

    def write_lines(self, name: str, lines: Iterable[str]) -> None:
        """Write text lines, each as it comes: a trace of a long run has gigabytes."""
        with (
            whole_file(self.path / name) as partial,
            partial.open("w", encoding="utf-8") as file,
        ):
            file.writelines(f"{line}\n" for line in lines)

    def write_problem(self, problem: Problem) -> None:
        """Write problem.json."""
        self.write_json("problem.json", problem_to_json(problem))

    def write_rates(self, rates: RateHistory) -> None:
        """Write rates.npz."""
        self.write_arrays(
            "rates.npz",
            time=rates.time,
            edge=rates.edge,
            iteration=rates.iteration,
            rate=rates.rate,
        )

    def write_arrays(self, name: str, **arrays: NDArray[Any]) -> None:
        """Write named arrays as one npz file."""
        self._write(name, npz_content(arrays))

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of every record in the directory, by its name.

        Raises
        ------
        DataError
            When one cannot be read.
        """
        names = [name for name in RECORDS if (self.path / name).exists()]
        return {name: self._digest(self.path / name) for name in names}

    @staticmethod
    def _digest(path: Path) -> str:
        try:
            with open_input(path) as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            problem = f"cannot be read: {error.strerror}"
            raise DataError(problem, path=str(path)) from error

    def _write(self, name: str, content: bytes) -> None:
        with whole_file(self.path / name) as partial:
            partial.write_bytes(content)


#: File of the text, whatever the format: YAML reads JSON.
NAME = "scenario.txt"
_MOST_BYTES = 1 << 25
#: Keys that were measured, or read of a program beside the text.
_NOTED = ("measured", "source")


def write_scenario(directory: RunDirectory, scenario: Scenario) -> dict[str, Any]:
    """Write the text of a scenario, and return what else is needed to read it again.

    A scenario that no text states, or which was changed since, is written as JSON.

    Raises
    ------
    DataError
        When the disk refuses.
    """
    source = _source_of(scenario)
    directory.write_lines(NAME, [source.text])
    overrides: Any = source.overrides
    stated = dict(overrides) if hasattr(overrides, "items") else [*overrides]
    return {"file": source.file, "folder": source.folder, "overrides": stated}


def _source_of(scenario: Scenario) -> Source:
    document = scenario.origin.document
    if document is not None and (source := document.source) is not None:
        try:
            json.dumps(source.overrides, default=dict)
            if not apart(load_again(source), scenario.to_json()):
                return source
        except (TypeError, ValueError, ScenarioError):
            pass  # values that no file holds, or files that have gone
    return Source(json.dumps(scenario.to_json(), indent=1), "scenario.json", ".")


def read_scenario(run: Path, manifest: dict[str, Any]) -> Scenario:
    """Return the scenario that the text in a run directory states.

    Raises
    ------
    DataError
        When the manifest names no text, or it cannot be read.
    ScenarioError
        When it states no scenario.
    """
    path = run / NAME
    stated = manifest.get("source")
    if not isinstance(stated, dict):
        problem = "names no scenario text: nothing but itself says what was to be run"
        raise DataError(problem, path=str(run / "manifest.json"))
    with one_error(path):
        try:
            text = read_text(path, _MOST_BYTES)
        except FileNotFoundError as error:
            raise DataError("is missing", path=str(path)) from error
        keys = ("file", "folder", "overrides")
        source = Source(text, *(stated[key] for key in keys))
        return load_again(source)


def apart(stated: Scenario, noted: Any) -> list[str]:
    """Return where the scenario of a text and that of a manifest differ, in sentences.

    Scales that are left to emu may be any number; what was measured of a model's
    program, or read of its file, is not in the text.

    Parameters
    ----------
    noted
        ``scenario`` of manifest.json.
    """
    wanted = stated.to_json()
    for key in ("time_scale", "byte_scale"):
        there = noted.get("emulation", {}) if isinstance(noted, dict) else {}
        if wanted["emulation"][key] == AUTO and isinstance(there, dict):
            wanted["emulation"][key] = there.get(key)
    return [*differences(_without(noted), _without(wanted), "the scenario text")]


def _without(content: Any) -> Any:
    """Return ``content`` without the keys that are noted of models."""
    if isinstance(content, dict):
        return dict(_kept(content))
    return (
        [_without(item) for item in content] if isinstance(content, list) else content
    )


def _kept(content: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    program = "program" in content or is_program(str(content.get("policy")))
    for key, value in content.items():
        if not (program and key in _NOTED):
            yield key, _without(value)
