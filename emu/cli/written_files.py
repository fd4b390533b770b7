"""Files that a command writes, none of them over one that it reads or writes too."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from emu.errors import ScenarioError
from emu.runs.record_names import READ

#: Parameter of ``--json``, the one whose text is a path.
_JSON = "json_target"
#: Option for the folder of new runs, which is read by none.
_RUNS = "--runs"
#: Parameters that are written, as commands name them.
WRITTEN = {_JSON, "out", "write", "target"}


def check_written_files(context: Any) -> None:
    """Raise ScenarioError where a file to write is read, or written by two options.

    It would replace what was there: a scenario by its results, a key by what it signs.
    """
    names_of_files: dict[Path, str] = {}
    folders = []
    written = []
    for parameter in context.command.params:
        name = parameter.metavar
        if parameter.opts[0].startswith("-"):
            name = parameter.opts[0]
        for path in _paths_of(parameter.name, context.params.get(parameter.name)):
            if parameter.name in WRITTEN:
                written.append((path, name))
            elif path.is_file():
                names_of_files[path.resolve()] = name
            elif path.is_dir() and name != _RUNS:
                folders.append(path)

    for path, name in written:
        _check_records(path, name, folders)
        file = path.resolve()
        other_name = names_of_files.get(file)
        # What is no regular file, as /dev/null, is not replaced.
        is_special = file.exists() and not file.is_file()
        if other_name is not None and not is_special:
            problem = f"is that of {other_name} too, which it would replace"
            raise ScenarioError(f"{problem}: name another", file=f"{name} {path}")
        names_of_files[file] = name


def _check_records(path: Path, name: str, folders: Iterable[Path]) -> None:
    """Raise ScenarioError where a file to write is a record of a run that is read."""
    file = path.resolve()
    if file.name not in READ or not file.is_file():
        return
    for folder in folders:
        if folder.resolve() in file.parents:
            problem = f"is a record of {folder}, which it would replace: name another"
            raise ScenarioError(problem, file=f"{name} {path}")


def _paths_of(name: str, value: Any) -> list[Path]:
    """Return the paths in the value of a parameter."""
    # Other texts, as keys and names, are no paths.
    if name == _JSON and value not in (None, "", "-"):
        return [Path(value)]
    values = value if isinstance(value, list | tuple) else [value]
    return [item for item in values if isinstance(item, Path)]
