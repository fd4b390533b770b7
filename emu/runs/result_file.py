"""Result files: a schedule and the scenario that it is a schedule of.

``emu simulate --json`` and the ``result.json`` of a run hold the stable keys of
`Schedule.to_json`, and ``scenario`` (as resolved), ``policy``, ``placement`` (task ->
machine) and ``emulated``, from which the problem is rebuilt.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from emu.errors import DataError
from emu.input_file import read_json
from emu.problem import Placement, Problem, Schedule
from emu.runs.problem_json import schedule_of
from emu.runs.renamed_keys import with_new_keys
from emu.scenario.apply_placement import with_placed_rings
from emu.scenario.realize import noted
from emu.scenario.scenario import Scenario


def result_of(
    scenario: Scenario, schedule: Schedule, *, emulated: bool = False
) -> dict[str, Any]:
    """Return the content of a result file of ``schedule``."""
    return {
        **schedule.to_json(),
        "emulated": emulated,
        "policy": scenario.schedule.rule,
        "placement": schedule.problem.machine_of_task,
        "scenario": noted(scenario).to_json(),
    }


def read_result(path: str | Path) -> tuple[Scenario, Schedule]:
    """Read a result file, or ``result.json`` of a run directory.

    Raises
    ------
    DataError
        When it cannot be read, or is not whole: a task or flow of the job is missing or
        occurs twice.
    """
    file = Path(path)
    if file.is_dir():
        file /= "result.json"
    try:
        content, _ = with_new_keys(read_json(file))
        scenario = Scenario.model_validate(content["scenario"])
        return scenario, _schedule(scenario, content)
    except ValidationError as error:
        problem = f"is not a result: its scenario has {error.error_count()} errors"
    except (
        AttributeError,
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        RecursionError,
    ) as error:
        problem = f"is not a whole result: {type(error).__name__} {error}"
    raise DataError(problem, path=str(file))


def _schedule(scenario: Scenario, content: dict[str, Any]) -> Schedule:
    cluster = scenario.to_cluster()
    # Epochs would need the data set; the result itself has its iterations.
    job = scenario.to_job(train_vertices=1)
    iterations = 1 + max(entry["iteration"] for entry in content["tasks"])
    job = replace(job, iterations=iterations)
    placed = [cluster.index(content["placement"][task.name]) for task in job.tasks]
    problem = Problem(cluster, job, Placement(tuple(placed)))
    return schedule_of(with_placed_rings(scenario, problem), content)
