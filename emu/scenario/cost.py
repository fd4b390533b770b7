"""Compute the cost of a scenario's schedule in money."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.analysis.cost import schedule_cost
from emu.systems.registry import system_of

if TYPE_CHECKING:
    from emu.analysis.cost import Cost
    from emu.problem import Schedule
    from emu.scenario.scenario import Scenario


def cost_of(scenario: Scenario, schedule: Schedule) -> Cost | None:
    """Return the cost of a schedule of a scenario; None where nothing has a price.

    The time of a function begins where its launch ends.
    """
    hourly = {
        name: machine.price
        for name, position in scenario.cluster.named()
        if (machine := scenario.cluster.machines[position]).price is not None
    }
    if not hourly:
        return None
    kinds: set[str] = set()
    answered, lost = [np.zeros(0)], [np.zeros(0)]
    job = schedule.problem.job
    found = [system_of(job.settings_of(name)) for name in job.job_names]
    for system in {one.name: one for one in found if one is not None}.values():
        ran, failed = system.functions(schedule)
        answered.append(ran)
        lost.append(failed)
        kinds |= {*system.parameter_kinds}
    return schedule_cost(
        schedule,
        hourly,
        scenario.prices.build(),
        functions=np.concatenate(answered),
        lost=np.concatenate(lost),
        parameter_kinds=kinds,
    )
