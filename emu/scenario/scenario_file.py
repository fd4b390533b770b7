"""From a file to a checked scenario, or to every error in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from emu.scenario.consistency import (
    contradictions,
    misspelt_keys,
    structure_errors,
)
from emu.scenario.document import read_document
from emu.scenario.overrides import apply_overrides
from emu.scenario.scenario import Scenario
from emu.scenario.wording import MISSING, describe, trail_of
from emu.scenario.workload_file import (
    expect_listed_makespan,
    is_workload,
    workload_document,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from emu.errors import ScenarioError
    from emu.scenario.document import Document, Trail


def load(path: str | Path, overrides: Sequence[str] = ()) -> Scenario:
    """Return the scenario of a YAML or JSON file.

    Parameters
    ----------
    overrides
        ``key.key=value``, applied in order, values read as YAML.

    Raises
    ------
    ScenarioError
        The first error of the file: file, line, key, what was found, what would be
        right. `find_errors` returns all.
    """
    scenario, errors = _checked(path, overrides)
    if scenario is None or errors:
        raise errors[0]
    return scenario


def find_errors(path: str | Path, overrides: Sequence[str] = ()) -> list[ScenarioError]:
    """Return every error of a file, in the order of its lines; none if it is good.

    Raises
    ------
    ScenarioError
        When it cannot be read or parsed at all.
    """
    return _checked(path, overrides)[1]


def _checked(
    path: str | Path, overrides: Sequence[str]
) -> tuple[Scenario | None, list[ScenarioError]]:
    document = _read(Path(path), overrides)
    data = document.data
    misspelt = list(misspelt_keys(data))
    try:
        scenario = Scenario.model_validate(data)
    except ValidationError as caught:
        return None, _located(document, misspelt + _told(caught, data, misspelt))
    found = misspelt + [
        item for item in contradictions(scenario) if item[0] not in dict(misspelt)
    ]
    return scenario, _located(document, found or structure_errors(scenario))


def _read(path: Path, overrides: Sequence[str]) -> Document:
    document = read_document(path)
    workload = document.data if is_workload(document.data) else None
    if workload is not None:
        document = workload_document(document)
    apply_overrides(document, overrides)
    _drop_nulls(document.data)
    data = document.data
    if workload is not None:
        expect_listed_makespan(data, workload)
    if data.get("name") is None:
        data["name"] = path.stem
    if isinstance(data.get("profile"), str):
        data["profile"] = str(path.parent / data["profile"])
    return document


def _drop_nulls(data: object) -> None:
    """Remove keys without a value, so that ``--set key=null`` means the default."""
    if isinstance(data, dict):
        for key in [key for key, value in data.items() if value is None]:
            del data[key]
    for value in data.values() if isinstance(data, dict) else ():
        _drop_nulls(value)
    for value in data if isinstance(data, list) else ():
        _drop_nulls(value)


def _told(
    caught: ValidationError, data: object, misspelt: list[tuple[Trail, str]]
) -> list[tuple[Trail, str]]:
    """Return the validation errors in our words, without those that only follow."""
    known = {trail for trail, _ in misspelt}
    told = []
    for error in caught.errors():
        trail = trail_of(error, data)
        # A list whose items are wrong is said to be too short as well.
        follows = error["type"] == "too_short" and bool(error["input"])
        if trail not in known and not follows:
            told.append((trail, describe(error)))
    return list(dict.fromkeys(told))


def _located(
    document: Document, found: Iterable[tuple[Trail, str]]
) -> list[ScenarioError]:
    errors = [document.error(trail, problem) for trail, problem in found]
    # A key that is missing is often there, misspelt: the unknown one says more.
    return sorted(errors, key=lambda error: (error.problem == MISSING, error.line))
