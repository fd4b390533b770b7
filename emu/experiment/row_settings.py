"""Settings that a file states for a row of a table of systems: all combinations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from pydantic.fields import FieldInfo

from emu.errors import ScenarioError
from emu.experiment.systems import as_variant, flatten, variant_named
from emu.problem.fields.suggestion import nearest
from emu.scenario import Scenario, load
from emu.systems import Edit
from emu.systems.system import section_type

#: Settings of one row that are tried at most: each is trained with every seed.
MOST_SETTINGS = 32


def list_settings(scenario: Scenario, name: str) -> list[Edit]:
    """Return every combination of what ``systems`` of a file states for a row.

    They are overrides as for `as_variant`; a row has those of its system too. A list is
    one of alternatives, unless the key itself takes one: then a list of lists is.
    Raises ScenarioError when a key is unknown or changes nothing of the row, what makes
    the row is changed, or there are more than `MOST_SETTINGS`.
    """
    variant = variant_named(name)
    choices = {}
    for row in dict.fromkeys((variant.system, name)):
        section = flatten(scenario.systems.get(row, {}), "job.")
        for key, value in section.items():
            problem = _problem_of(scenario, name, key)
            is_of_system = row == variant.system
            if problem and is_of_system and key in variant.edit:
                continue  # of its other rows
            if not problem:
                values = _alternatives(
                    scenario,
                    system=variant.system,
                    key=key,
                    value=value,
                )
                choices[key] = values
                if _changes_nothing(scenario, name, key, values):
                    problem = f"changes nothing of {name}: leave it out"
            if problem:
                _, word, *_ = key.split(".")
                trail = ("systems", row, word)
                raise scenario.origin.error(trail, problem)

    counts = [len(values) for values in choices.values()]
    count = prod(counts)
    if count > MOST_SETTINGS:
        problem = f"{count} settings, write {MOST_SETTINGS} or fewer"
        raise scenario.origin.error(("systems", name), problem)
    combinations = product(*choices.values())
    return [dict(zip(choices, values, strict=True)) for values in combinations]


def _problem_of(scenario: Scenario, name: str, key: str) -> str:
    """Return what is wrong with a key of a row, empty where nothing is."""
    variant = variant_named(name)
    if _field_of(scenario, variant.system, key) is None:
        _, word, *_ = key.split(".")
        section = section_type(variant.system).model_fields
        hint = nearest(word, section)
        return f"{variant.system} has no such key, {hint}"
    if key in variant.edit:
        return f"is what makes the row {name}: leave it out"
    return ""


def _field_of(scenario: Scenario, system: str, key: str) -> FieldInfo | None:
    """Return the field of a key of ``job``, of a system or else of the file's."""
    _, word, *_ = key.split(".")
    of_system = section_type(system).model_fields
    of_file = type(scenario.job).model_fields
    return of_system.get(word) or of_file.get(word)


def _alternatives(
    scenario: Scenario,
    system: str,
    key: str,
    value: object,
) -> Sequence[object]:
    """Return the values to try of a key, of which there is one if it is no list."""
    if not (isinstance(value, list) and value):
        return [value]
    field = _field_of(scenario, system, key)
    # Sections hold lists as tuples.
    takes_list = field is not None and "tuple" in str(field.annotation)
    are_lists = all(isinstance(item, list) for item in value)
    if takes_list and not are_lists:
        return [value]
    return value


def _changes_nothing(
    scenario: Scenario,
    name: str,
    key: str,
    values: Sequence[object],
) -> bool:
    """Return True where no value of a key of the file reaches a row, as a walk dgcl."""
    variant_system = variant_named(name).system
    section = section_type(variant_system)
    _, word, *_ = key.split(".")
    if word in section.model_fields:
        return False
    try:
        plain = as_variant(scenario, name)
    except ScenarioError:
        return False  # of a file that no such row can be of, until a key makes it one

    for value in values:
        edit = {key: value}
        variant = load(scenario, {**edit, "expect": None})
        is_other = variant.job != scenario.job
        if is_other and as_variant(scenario, name, edit) != plain:
            return False
    return True
