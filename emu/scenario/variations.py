"""Variations of a scenario: every combination of some values, with several seeds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from emu.errors import ScenarioError, ScenarioErrors
from emu.scenario.overrides import split_override
from emu.scenario.scenario_file import load

if TYPE_CHECKING:
    from emu.scenario.scenario import Scenario


@dataclass(frozen=True)
class Point:
    """One variation of a scenario."""

    values: Mapping[str, str]
    """Text per varied key, as written."""
    seed: int
    scenario: Scenario
    """With those values and that seed; it expects nothing."""
    unchanged: bool = False
    """True where the scenario is the same without those values and that seed."""

    def key(self, mode: str) -> str:
        """Return a key that no other point has, whatever its name.

        Equal exactly if the resolved scenario and ``mode`` are: after an edit of the
        file, only what the edit changed has another key.
        """
        # Sorted, so that the order of keys in the file is no difference.
        content = json.dumps([mode, self.scenario.to_json()], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def variations(
    file: Path,
    stated: Sequence[str],
    vary: Sequence[str],
    seeds: int,
) -> list[Point]:
    """Return every combination of the varied values, with ``seeds`` seeds each.

    ``stated`` are overrides of all points; ``vary`` are ``key.key=value,value,...``,
    where commas within brackets belong to a value. Seeds are the scenario's own and
    those that follow it, or varied. Raises ScenarioError when a ``vary`` cannot be read
    or is the second of its key, seeds are stated twice, or a scenario is wrong.
    """
    keys = _read_values(vary)
    for text in stated:
        key, _ = split_override(text)
        if key in keys:
            problem = "--set states it already: remove one of them"
            raise ScenarioError(problem, file=f"--vary {key}")
    if "seed" in keys and seeds > 1:
        raise ScenarioError("--vary states the seeds: remove it", file="--seeds")

    # What a file expects is of the file as it stands.
    changes = [*stated, "expect=null"]
    try:
        as_stated = load(file, changes)
    except ScenarioError:
        # Varied values may be what it lacks: every point is judged for itself.
        as_stated = None

    points = []
    for choice in product(*keys.values()):
        values = dict(zip(keys, choice, strict=True))
        overrides = [f"{key}={value}" for key, value in values.items()]
        first = _load_point(file, changes, overrides)
        for number in range(seeds):
            scenario = first
            if number > 0:
                seed = first.seed + number
                scenario = _load_point(file, [*changes, f"seed={seed}"], overrides)
            point = Point(
                values=values,
                seed=scenario.seed,
                scenario=scenario,
                unchanged=scenario == as_stated,
            )
            points.append(point)
    return points


def _load_point(
    file: Path, changes: Sequence[str], overrides: Sequence[str]
) -> Scenario:
    """Return a scenario with varied values behind changes of all points."""
    try:
        return load(file, [*changes, *overrides])
    except ScenarioError as error:
        raise _by_vary(error, overrides) from error


def _by_vary(error: ScenarioError, overrides: Sequence[str]) -> ScenarioError:
    """Return an error of varied values with the option that the user wrote."""
    if isinstance(error, ScenarioErrors):
        errors = [_by_vary(part, overrides) for part in error.errors]
        return ScenarioErrors(errors)
    for override in overrides:
        if error.file == f"--set {override}":
            return ScenarioError(
                error.problem,
                file=f"--vary {override}",
                line=error.line,
                key=error.key,
            )
    return error


def _read_values(vary: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of every key; raises as `variations`."""
    keys: dict[str, list[str]] = {}
    for text in vary:
        key, values = split_override(text)
        texts = _split_values(values)
        if not key or not all(texts):
            raise ScenarioError("write key=value,value", file=f"--vary {text}")
        if key in keys:
            raise ScenarioError("write all values in one", file=f"--vary {key}")
        # Points expect nothing: a varied expectation would change none of them.
        if key.partition(".")[0] == "expect":
            raise ScenarioError("state it with --set", file=f"--vary {key}")
        # A value that is written twice is one point.
        keys[key] = list(dict.fromkeys(texts))
    return keys


def _split_values(text: str) -> list[str]:
    """Return the values between commas; a comma in a bracket belongs to a value."""
    values = [""]
    depth = 0
    for letter in text:
        depth += letter in "[{"
        depth -= letter in "]}"
        if letter == "," and depth == 0:
            values.append("")
        else:
            values[-1] += letter
    return [value.strip() for value in values]
