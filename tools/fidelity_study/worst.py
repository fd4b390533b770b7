"""The search for scenarios whose makespan moves the most when ends are a little late.

All of it is simulated: a scenario is drawn or mutated, its ends are made as late as
those of a run on a computer that keeps up, and it is kept where the makespan moves
more. What is found is then made as small as it can be.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import EmulatorError
from emu.scenario import Scenario
from emu.simulation import makespan
from emu.trust.perturbed_replay import delayed
from tools.fidelity_study.trial import prepared

if TYPE_CHECKING:
    from numpy.random import Generator

    from emu.scenario import Experiment

Content = dict[str, Any]

#: Mean lateness of a flow's end, wall seconds, exponential. 14 flows of a golden run
#: were 0.08 ms late on average on two cores, and 0.28 ms at the worst.
LATE = 0.3e-3
#: Draws of lateness of which the worst counts.
_DRAWS = 4
#: Share of its effect that a smaller scenario must keep.
_KEPT = 0.9


def experiment_of(content: Content, wall: float) -> Experiment:
    """Return a scenario at the time scale that makes it take ``wall`` seconds.

    Raises
    ------
    EmulatorError
        When it cannot be prepared.
    """
    return prepared(Scenario.model_validate(content), wall, most_rate=5e8)


def parted(content: Content, wall: float) -> float:
    """Return the largest share by which late ends move the makespan of a scenario.

    0 for what cannot be prepared.
    """
    try:
        experiment = experiment_of(content, wall)
    except (EmulatorError, ValueError):
        return 0.0
    schedule, worst = experiment.simulate(), 0.0
    late = LATE / experiment.scenario.emulation.stated_time_scale
    rng = np.random.default_rng(0)
    sent = np.nan_to_num(schedule.flow_bytes) > 0
    for _ in range(_DRAWS):
        perturbed = delayed(
            experiment.realization,
            schedule,
            tasks=np.zeros_like(schedule.task_end),
            flows=rng.exponential(late, schedule.flow_end.shape) * sent,
        )
        moved = makespan(
            experiment.problem,
            perturbed,
            experiment.chosen_policy(),
            profile=experiment.expected,
        )
        worst = max(worst, abs(moved / schedule.makespan - 1))
    return worst


def mutated(content: Content, rng: Generator) -> Content:
    """Return the scenario with one thing changed: a NIC, a place, a length."""
    changed = copy.deepcopy(content)
    machines, places = changed["cluster"]["machines"], changed["placement"]["tasks"]
    kind = int(rng.integers(4))
    if kind == 0:
        machine = machines[int(rng.integers(len(machines)))]
        rate = float(machine["nic"].split()[0]) * float(rng.choice([0.25, 0.5, 2, 4]))
        machine["nic"] = f"{rate!r} B/s"
    elif kind == 1:
        task = str(rng.choice(sorted(places)))
        places[task] = machines[int(rng.integers(len(machines)))]["name"]
    elif kind == 2:
        changed["job"]["iterations"] = int(rng.integers(1, 8))
    else:
        changed["job"]["credit_window"] = [1, 2, 4, "unlimited"][int(rng.integers(4))]
    return changed


def climbed(content: Content, steps: int, rng: Generator, wall: float) -> Content:
    """Return the worst of a chain of mutations, each kept where it parts more."""
    worst, most = content, parted(content, wall)
    for _ in range(steps):
        other = mutated(worst, rng)
        found = parted(other, wall)
        if found > most:
            worst, most = other, found
    return worst


def minimised(content: Content, wall: float) -> Content:
    """Return a smaller scenario that keeps most of the effect.

    Fewer iterations, then no credit window, then fewer flows of a custom job.
    """
    aim = _KEPT * parted(content, wall)
    small = content
    for iterations in range(1, content["job"]["iterations"]):
        fewer = copy.deepcopy(small)
        fewer["job"]["iterations"] = iterations
        if parted(fewer, wall) >= aim:
            small = fewer
            break
    free = copy.deepcopy(small)
    free["job"]["credit_window"] = "unlimited"
    small = free if parted(free, wall) >= aim else small
    for place in reversed(range(len(small["job"].get("flows", [])))):
        fewer = copy.deepcopy(small)
        del fewer["job"]["flows"][place]
        small = fewer if parted(fewer, wall) >= aim else small
    return small
