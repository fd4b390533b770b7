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
- ``agent.log``       what the processes printed
- ``trace.json``      the run and its simulation for Perfetto, where asked for
- ``report.html``     the picture, from all of the above; made by ``emu report`` again
- ``checkpoints/``    the last two, where the scenario asks for any: whole, or none
- ``setup/``          a run directory of what was sent before time 0, where asked for

``checkpoints/00000020/`` holds a file of arrays per task whose state is kept before
iteration 20, and ``commit.json``: written last, it names the job and the digest of each
file. What has no commit record was cut off and is passed over.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from emu.array_types import Array
from emu.errors import DataError, EmulatorError, ScenarioError
from emu.host.files import whole_file
from emu.host.input_file import one_error, open_input, read_arrays, read_json, read_text
from emu.host.limits import limit
from emu.names import file_part
from emu.problem.job import Cut
from emu.runs.problem_json import Content, read_shape
from emu.runs.record_names import RECORDS
from emu.scenario import Scenario
from emu.scenario.document import Source
from emu.scenario.own_rules import is_program
from emu.scenario.run_sections import AUTO
from emu.scenario.scenario_file import load_again
from emu.trust.violation import differences

Arrays = Mapping[str, Array]
#: File of the text, whatever the format: YAML reads JSON.
NAME = "scenario.txt"
#: Bytes that a text may have to be read again: a directory may be of others.
_MOST_BYTES = 1 << 25
#: Keys that were measured, or read of a program beside the text.
_NOTED = ("measured", "source")
FOLDER = "checkpoints"
RECORD = "commit.json"
SETUP = "setup"
#: Cuts that are kept: the newest, and one to fall back to.
_KEPT = 2


def npz_content(arrays: Mapping[str, Array]) -> bytes:
    """Return the content of the npz file of some arrays."""
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type] # its flag is not an array
    return content.getvalue()


@contextlib.contextmanager
def disk_errors(problem: str, path: Path) -> Iterator[None]:
    """Raise DataError with a problem of a file where the disk refuses a block."""
    try:
        yield
    except OSError as error:
        cause = error.strerror or error
        raise DataError(f"{problem}: {cause}", path=path) from error


def _digest(path: Path) -> str:
    with disk_errors("cannot be read", path), open_input(path) as file:
        digest = hashlib.file_digest(file, "sha256")
    return digest.hexdigest()


class RunDirectory:
    """A run directory that is being written.

    Every file is written beside its place and moved there, so that a file that exists
    is complete. All methods raise DataError when the disk refuses.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, name: str, parent: Path = Path("runs")) -> RunDirectory:
        """Make ``parent/name-<time>`` and return it."""
        stamp = time.strftime("%Y%m%d-%H%M%S")
        # Stamps are of a second, in which several runs may begin.
        for attempt in range(100):
            suffix = f"-{attempt}" if attempt else ""
            stem = file_part(name)
            path = parent / f"{stem}-{stamp}{suffix}"
            try:
                # To make it is the test: two runs that
                # looked first could take one name.
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                problem = (
                    f"cannot make a run directory here: {error.strerror}; choose "
                    "another with --runs"
                )
                raise DataError(problem, path=path) from error
            return cls(path)

        raise DataError("every name for a run directory is taken", path=parent)

    @classmethod
    @contextlib.contextmanager
    def passing(cls, name: str, parent: Path) -> Iterator[RunDirectory]:
        """Make one for a block, and remove it; where that fails its log says why."""
        directory = cls.create(name, parent)
        try:
            yield directory
        except EmulatorError:
            raise
        # An interrupt explains itself: nobody needs the log of what it left.
        except BaseException:
            shutil.rmtree(directory.path, ignore_errors=True)
            raise
        shutil.rmtree(directory.path, ignore_errors=True)
        with contextlib.suppress(OSError):  # others are there
            parent.rmdir()

    def remove_empty(self) -> None:
        """Remove it unless something was written."""
        with contextlib.suppress(OSError):
            self.path.rmdir()

    @contextlib.contextmanager
    def claim(self) -> Iterator[None]:
        """Keep others from writing here at the same time; the kernel ends it with us.

        The directory is made where it is missing.
        """
        with disk_errors("cannot be opened", self.path):
            self.path.mkdir(exist_ok=True)
            handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                problem = "another emu is writing here: wait for its end"
                raise DataError(problem, path=self.path) from error
            except OSError:
                pass  # a file system without locks
            yield
        finally:
            os.close(handle)

    def write_json(self, name: str, data: Mapping[str, Any]) -> None:
        """Write ``data`` as JSON; NaN and infinity are refused with ValueError.

        A key is a line, and a row of a table: an indent would leave the compiled
        encoder, 0.5 s of CPU for 4,000 tasks and flows.
        """
        encode = json.JSONEncoder(allow_nan=False).encode
        lines = []
        for key, value in data.items():
            is_table = isinstance(value, list) and value and isinstance(value[0], dict)
            if is_table:
                rows = ",\n  ".join(map(encode, value))
                line = f"{encode(key)}: [\n  {rows}\n ]"
            else:
                # Without the braces of an object of its own.
                line = encode({key: value})[1:-1]
            lines.append(line)

        content = ",\n ".join(lines)
        text = f"{{\n {content}\n}}\n"
        self._write(name, text.encode())

    def write_lines(self, name: str, lines: Iterable[str]) -> None:
        """Write text lines, each as it comes: a trace of a long run has gigabytes."""
        with (
            whole_file(self.path / name) as partial,
            partial.open("w", encoding="utf-8") as file,
        ):
            file.writelines(f"{line}\n" for line in lines)

    def write_arrays(self, name: str, **arrays: Array) -> None:
        """Write named arrays as one npz file."""
        self._write(name, npz_content(arrays))

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of every record in the directory, by its name."""
        names = [name for name in RECORDS if (self.path / name).exists()]
        return {name: _digest(self.path / name) for name in names}

    def _write(self, name: str, content: bytes) -> None:
        with whole_file(self.path / name) as partial:
            partial.write_bytes(content)


def write_scenario(directory: RunDirectory, scenario: Scenario) -> Content:
    """Write the text of a scenario, and return what else is needed to read it again.

    A scenario that no text states, or which was changed since, is written as JSON.
    """
    source = _read_again(scenario)
    if source is None:
        text = json.dumps(scenario.to_json(), indent=1)
        source = Source(text, file="scenario.json", folder=".")
    directory.write_lines(NAME, [source.text])
    overrides: Any = source.overrides
    # Python states keys with values, the command line a list of texts.
    is_mapping = hasattr(overrides, "items")
    changes = dict(overrides) if is_mapping else list(overrides)

    return {
        "file": source.file,
        "folder": source.folder,
        "overrides": changes,
    }


def _read_again(scenario: Scenario) -> Source | None:
    """Return the text that states a scenario as it is; None where none does."""
    document = scenario.origin.document
    if document is None or document.source is None:
        return None
    source = document.source
    try:
        json.dumps(source.overrides, default=dict)
        loaded = load_again(source)
        differs = apart(loaded, scenario.to_json())
    except (TypeError, ValueError, ScenarioError):
        return None  # values that no file holds, or files that have gone

    if differs:
        return None
    return source


def read_scenario(run: Path, manifest: Content) -> Scenario:
    """Return the scenario that the text in a run directory states.

    Raises DataError when the manifest names no text, or it cannot be read;
    ScenarioError when it states no scenario.
    """
    path = run / NAME
    fields = manifest.get("source")
    if not isinstance(fields, dict):
        problem = "names no scenario text: nothing but itself says what was to be run"
        raise DataError(problem, path=run / "manifest.json")

    with one_error(path):
        try:
            text = read_text(path, limit(_MOST_BYTES))
        except FileNotFoundError as error:
            raise DataError("is missing", path=path) from error
        source = Source(
            text,
            file=fields["file"],
            folder=fields["folder"],
            overrides=fields["overrides"],
        )
        noted = manifest.get("scenario")
        return load_again(source, noted)


def apart(stated: Scenario, noted: Any) -> list[str]:
    """Return where the scenario of a text and that of a manifest differ, in sentences.

    Scales that are left to emu may be any number; what was measured of a model's
    program, or read of its file, is not in the text.
    """
    content = stated.to_json()
    emulation = content["emulation"]
    noted_emulation: Any = {}
    if isinstance(noted, dict):
        noted_emulation = noted.get("emulation", {})
    if isinstance(noted_emulation, dict):
        for key in ("time_scale", "byte_scale"):
            if emulation[key] == AUTO:
                emulation[key] = noted_emulation.get(key, AUTO)

    noted_content = _without(noted)
    stated_content = _without(content)
    deviations = differences(noted_content, stated_content, "the scenario text")
    return [*deviations]


def _without(content: Any) -> Any:
    """Return ``content`` without the keys that are noted of models."""
    if isinstance(content, list):
        return [_without(item) for item in content]
    if not isinstance(content, dict):
        return content
    policy = str(content.get("policy"))
    is_noted = "program" in content or is_program(policy)
    kept = {}
    for key, value in content.items():
        if not (is_noted and key in _NOTED):
            kept[key] = _without(value)
    return kept


@dataclass
class _Part:
    """A file of a cut, of the state of one task."""

    file: str
    sha256: str
    arrays: list[str]


@dataclass
class _Record:
    """Content of commit.json."""

    job: str
    iteration: int
    parts: dict[str, _Part]


def digest_of(scenario: Mapping[str, Any]) -> str:
    """Return what tells a job from every other: the digest of its resolved scenario."""
    text = json.dumps(scenario, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def write_cut(run: Path, job: str, cut: Cut) -> None:
    """Write a cut, its commit record last, and remove all but the one before it.

    ``job``: as `digest_of` returns it.
    """
    folder = run / FOLDER / f"{cut.iteration:08d}"
    with disk_errors("cannot be written", folder):
        # A torn cut of this iteration may lie there, of an attempt that has died.
        _remove(folder)
        folder.mkdir(parents=True)

    parts = {}
    for name, arrays in cut.states.items():
        file = f"{file_part(name)}.npz"
        content = npz_content(arrays)
        with whole_file(folder / file) as partial:
            partial.write_bytes(content)
        # Of what was in memory: a disk that tears
        # the file is found out when it is read.
        digest = hashlib.sha256(content).hexdigest()
        parts[name] = _Part(
            file=file,
            sha256=digest,
            arrays=[*arrays],
        )
    record = asdict(_Record(job, cut.iteration, parts))
    text = json.dumps(record, indent=1)
    with whole_file(folder / RECORD) as partial:
        partial.write_text(text, encoding="utf-8")

    # Only now that the new one is whole: until then the older ones are all there is.
    older = [entry for entry in _list_cuts(run) if entry.name < folder.name]
    for entry in older[: 1 - _KEPT]:
        with contextlib.suppress(OSError):  # the next one tries again
            _remove(entry)


def _remove(folder: Path) -> None:
    """Remove a cut: what is left when that is cut off has no record."""
    (folder / RECORD).unlink(missing_ok=True)
    if folder.exists():
        shutil.rmtree(folder)


def _list_cuts(run: Path) -> list[Path]:
    """Return the folders with a commit record, the oldest first."""
    records = (run / FOLDER).glob(f"*/{RECORD}")
    return sorted(record.parent for record in records)


def drop_cuts(run: Path) -> None:
    """Remove all cuts of a run: what emulated machines held of them is lost."""
    with disk_errors("cannot be removed", run / FOLDER):
        for folder in _list_cuts(run):
            _remove(folder)


def newest_cut(
    run: Path,
    job: str,
    owners: Collection[str],
    notify: Callable[[str], object],
) -> Cut:
    """Return the last committed cut of a run; that before iteration 0 where none is.

    One that is damaged is passed over if there is an older one. ``owners``: tasks whose
    state must be there. ``notify``: called with a sentence on every one passed over.
    """
    wrong = []
    for folder in reversed(_list_cuts(run)):
        try:
            return _read(folder, job, owners)
        except DataError as error:
            wrong.append(error)
            notify(f"passed over a checkpoint: {error}")
    if wrong:
        # The newest one's: to begin anew without a word would lose what was kept.
        raise wrong[0]
    return Cut(0, {})


def _read(folder: Path, job: str, owners: Collection[str]) -> Cut:
    path = folder / RECORD
    with one_error(path):
        record: _Record = read_shape(read_json(path), _Record, path)
    has_owners = record.parts.keys() == {*owners}
    if record.job != job or not has_owners:
        raise DataError("is of another job than the run", path=path)
    # A folder that was renamed would be taken for a later cut than it is.
    if folder.name != f"{record.iteration:08d}":
        raise DataError(f"is of iteration {record.iteration}", path=path)

    states = {}
    for name, part in record.parts.items():
        # A record of others may name any file: the name alone keeps it in the folder.
        path = folder / file_part(part.file)
        if _digest(path) != part.sha256:
            raise DataError("is not what was committed: its digest differs", path=path)
        states[name] = read_arrays(path, part.arrays)
    return Cut(record.iteration, states)
