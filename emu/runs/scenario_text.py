"""The scenario of a run as it was written: a copy that an audit starts from.

manifest.json holds what was made of it. The two are compared: whatever was edited in
one of them since differs from the other.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from emu.errors import DataError, ScenarioError
from emu.input_file import one_error, read_text
from emu.scenario.document import Source
from emu.scenario.own_rules import is_program
from emu.scenario.run_sections import AUTO
from emu.scenario.scenario_file import load_again
from emu.trust.violation import differences

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from emu.runs.run_directory import RunDirectory
    from emu.scenario import Scenario

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
