"""What must hold of several jobs: of each alone, and between them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from emu.scenario.consistency import consistency_errors
from emu.scenario.run_sections import PlacementSection

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from emu.scenario.document import Trail
    from emu.scenario.scenario import Scenario


def scenario_errors(
    scenario: Scenario, wrong: Collection[str] = (), *, timed: bool = True
) -> list[tuple[Trail, str]]:
    """Return (where, what is wrong), the parameters as of `consistency_errors`."""
    if not scenario.jobs:
        return consistency_errors(scenario, wrong, timed=timed)
    found: list[tuple[Trail, str]] = []
    beside: list[list[tuple[Trail, str]]] = []  # what each job finds outside of itself
    names = Counter(item.name for item in scenario.jobs)
    for position, (item, alone) in enumerate(scenario.parts()):
        if names[item.name] > 1:
            problem = f"{item.name!r} occurs {names[item.name]} times"
            found.append((("jobs", position, "name"), problem))
        errors = consistency_errors(alone, wrong, timed=timed)
        of_job = [(t, p) for t, p in errors if t[0] in {"job", "placement"}]
        found += [(("jobs", position, *trail), problem) for trail, problem in of_job]
        beside.append([error for error in errors if error not in of_job])
    # A resource that no task of one job demands, another job may.
    found += [e for e in beside[0] if all(e in others for others in beside)]
    if scenario.place_jobs == "sequential" and scenario.placement != PlacementSection():
        problem = "write it into each of the jobs, or place_jobs: joint"
        found.append((("placement",), problem))
    found += _cost_errors(scenario)
    if scenario.profile is not None:
        problem = "a profile is of one job, write times into each of the jobs"
        found.append((("profile",), problem))
    for key in ("loss", "accuracy"):
        if getattr(scenario.expect, key) is not None:
            found.append((("expect", key), "this is of one job, remove this key"))
    return found


def _cost_errors(scenario: Scenario) -> Iterator[tuple[Trail, str]]:
    cost = scenario.joint_cost
    if cost != "max" and scenario.place_jobs != "joint":
        problem = f"{cost} is of jobs that are placed together: write place_jobs: joint"
        yield ("joint_cost",), problem
        return
    weighed = [i for i, item in enumerate(scenario.jobs) if item.weight is not None]
    if cost == "weighted" and not weighed:
        problem = "no job has a weight, write for example weight: 2 into one, or sum"
        yield ("joint_cost",), problem
    if cost != "weighted":
        problem = f"joint_cost is {cost}: write joint_cost: weighted, or no weight"
        for position in weighed:
            yield ("jobs", position, "weight"), problem
