"""``emu crossover``, and ``emu compare --systems``."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Annotated, Any

import typer

import emu
from emu.cli.app import app
from emu.cli.options import JsonTarget, Overrides, ScenarioFile, emit, listed
from emu.errors import ScenarioError
from emu.experiment.crossover import Values, find_crossover
from emu.experiment.systems import compare_systems
from emu.report import terminal
from emu.report.comparison import crossover_table, systems_table

if TYPE_CHECKING:
    from pathlib import Path

    from emu.scenario import Scenario


@app.command()
def crossover(
    file: ScenarioFile,
    key: Annotated[str, typer.Option(metavar="KEY", help="Such as job.model.hidden.")],
    between: Annotated[
        str, typer.Option(metavar="A,B", help="Two systems: data_parallel, p3.")
    ] = "data_parallel,p3",
    values: Annotated[
        str,
        typer.Option(
            "--range",
            metavar="LOW,HIGH",
            help="Ends of the search; default: a 16th of the file's value to 16 times.",
        ),
    ] = "",
    overrides: Overrides = None,
    json_target: JsonTarget = None,
) -> None:
    """Find the value of a key from which another system is faster.

    Bisection in simulation; beside it what first principles say: where the busiest link
    has as many bytes to carry in both systems.
    """
    scenario = emu.load(file, overrides or [])
    systems = listed(between)
    if len(systems) != 2:
        raise ScenarioError("write --between A,B", file=f"--between {between}")
    found = find_crossover(
        scenario, key, (systems[0], systems[1]), _range(scenario, key, values)
    )
    if emit(json_target, found.to_json()):
        terminal().print(crossover_table(found))


def compare_as_systems(
    file: Path, stated: list[str], systems: str, seeds: int, json_target: str | None
) -> None:
    """Print what a scenario is simulated to take as each of several systems.

    Raises
    ------
    ScenarioError, PlacementError, DataError
        As loading, placing and realizing say.
    """
    results = compare_systems(emu.load(file, stated), listed(systems), seeds)
    if emit(json_target, [result.to_json(results[0]) for result in results]):
        terminal().print(systems_table(results))


def _range(scenario: Scenario, key: str, stated: str) -> Values:
    try:
        if stated:
            low, _, high = stated.partition(",")
            return Values.between(low, high)
        return Values.around(_value(scenario, key))
    except ValueError as error:
        option = f"--range {stated}" if stated else f"--key {key}"
        raise ScenarioError(f"{error}: write --range LOW,HIGH", file=option) from error


def _value(scenario: Scenario, key: str) -> Any:
    """Return what the scenario has at a dotted key, None for nothing."""

    def step(found: Any, name: str) -> Any:
        return found.get(name) if isinstance(found, dict) else None

    return reduce(step, key.split("."), scenario.to_json())
