"""``emu crossover``: from which value of a key another system is faster."""

from __future__ import annotations

from dataclasses import replace

import emu
from emu.cli import options
from emu.cli.app import app, option
from emu.cli.options import JsonTarget, Overrides, emit, split_words
from emu.cli.progress import status_line
from emu.errors import ScenarioError
from emu.experiment.crossover import Values, find_crossover
from emu.experiment.premises import premise_line
from emu.report import system_tables
from emu.report.terminal import terminal
from emu.scenario import Scenario
from emu.scenario.overrides import split_override, value_at


@app.command()
def crossover(
    file: options.ScenarioFile,
    key: str = option("KEY", "Such as job.model.hidden.", ...),
    between: str = option("A,B", "Two rows of compare --systems.", "data_parallel,p3"),
    values: str = option(
        "--range LOW,HIGH",
        "Ends of the search; default: a 16th of the file's value to 16 times.",
        "",
    ),
    overrides: Overrides = None,
    json_target: JsonTarget = None,
) -> None:
    """Find the value of a key from which another system is faster.

    Bisection in simulation; beside it what first principles say: where the busiest link
    has as many bytes to carry in both systems.
    """
    scenario = emu.load(file, overrides or [])
    if key in (split_override(text)[0] for text in overrides or ()):
        problem = "--set states it already: remove it, --range names the values"
        raise ScenarioError(problem, file=f"--key {key}")
    systems = split_words(between)
    if len(systems) != 2:
        raise ScenarioError("write --between A,B", file=f"--between {between}")
    first, second = systems
    ends = _ends_of(scenario, key, values)

    with status_line("looking for a crossover") as watch:
        outcome = find_crossover(
            scenario=scenario,
            key=key,
            between=(first, second),
            values=ends,
            watch=watch,
        )

    content = system_tables.crossover_json(outcome)
    if emit(json_target, content):
        # The table has the values of the key.
        premises = [
            replace(row.premises, settings="")
            for side in outcome.sides
            for row in side.answers
        ]
        terminal().print(premise_line(premises))
        terminal().print(system_tables.crossover_table(outcome))


def _ends_of(scenario: Scenario, key: str, values: str) -> Values:
    """Return the values between which to look: as stated, or around the file's."""
    file_value = value_at(scenario.to_json(), key)
    if file_value is None and not values:
        _check_known(scenario, key)
        problem = "the file does not state it: write --range LOW,HIGH"
        raise ScenarioError(problem, file=f"--key {key}")
    try:
        if values:
            low, _, high = values.partition(",")
            return Values.between(low, high)
        return Values.around(file_value)
    except ValueError as error:
        # Without a range the value that the file has was not understood.
        option = f"--range {values}" if values else f"--key {key}"
        raise ScenarioError(f"{error}: write --range LOW,HIGH", file=option) from error


def _check_known(scenario: Scenario, key: str) -> None:
    """Raise ScenarioError where files have no such key."""
    errors = []
    for guess in (0, "1 us"):
        try:
            emu.load(scenario, {key: guess})
        except ScenarioError as error:
            errors.append(error)
        else:
            return
    number_error, text_error = errors
    # An error of a value shows it, and is another for each. One without a key is of the
    # way there: a machine that is none, a number that has no keys.
    is_of_key = number_error.problem == text_error.problem
    if is_of_key or not number_error.key:
        raise ScenarioError(number_error.problem, file=f"--key {key}")
