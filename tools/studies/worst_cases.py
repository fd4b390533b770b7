"""The search for scenarios that late ends move the most, and runs of the worst.

    tools/study worst_cases OUT [--draws N] [--climb K] [--runs R] [--wall S]

N scenarios are drawn, and simulated with ends as late as those of a run on a computer
that keeps up. From the worst of every rate policy K mutations climb, each kept where
the makespan moves more; what they find is made as small as it can be and run, R in all.
OUT/found.json has the search, which is not repeated.
"""

from __future__ import annotations

import copy
import json
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.atomic_file import write_atomic
from emu.errors import EmulatorError
from emu.simulation import makespan
from emu.trust.perturbed_replay import delayed
from tests.fidelity.corpus import RULES, draw_scenario
from tools.runner import Study
from tools.trials.trial import Trial, attempt, prepared, scenario_of

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from numpy.random import Generator

    from emu.scenario import Experiment
    from tools.runner import Work

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
    return prepared(scenario_of(content), wall, most_rate=5e8)


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


def options(parser: ArgumentParser) -> None:
    """Add how much is searched and run."""
    add = parser.add_argument
    add("--draws", type=int, default=2000)
    add("--climb", type=int, default=20)
    add("--runs", type=int, default=50)
    add("--wall", type=float, default=3.0, help="seconds of one run")
    add("--processes", type=int, default=24, help="per job, at most")


def work(options: Namespace) -> Iterator[Work[Trial]]:
    """Yield what was found."""
    path = options.out / "found.json"
    if not path.exists():
        write_atomic(path, json.dumps(searched(options), indent=1))
    for content in json.loads(path.read_text())[: options.runs]:
        yield content["name"], partial(one, options, content)


def one(options: Namespace, content: Content) -> list[Trial]:
    """Return the row of one run."""
    experiment, runs = experiment_of(content, options.wall), options.out / "runs"
    return [attempt(content["name"], experiment, runs)]


def searched(options: Namespace) -> list[Content]:
    """Return what was found, the worst of every policy before the second of any."""
    drawn: dict[str, list[tuple[float, int]]] = {policy: [] for policy in RULES}
    for seed in range(options.draws):
        content = draw_scenario(seed, most_processes=options.processes)
        share = parted(content, options.wall)
        drawn[content["schedule"]["policy"]].append((share, seed))
    found, rng = [], np.random.default_rng(0)
    for rank in range(-(-options.runs // len(RULES))):
        for policy, shares in drawn.items():
            if rank >= len(shares):
                continue
            seed = sorted(shares, reverse=True)[rank][1]
            content = draw_scenario(seed, most_processes=options.processes)
            content = climbed(content, options.climb, rng, options.wall)
            content = minimised(content, options.wall)
            content["name"] = f"worst-{policy}-{rank}"
            share = 100 * parted(content, options.wall)
            print(f"{content['name']:28} {share:7.3f} % of seed {seed}", flush=True)
            found.append(content)
    return found


def table(rows: list[Trial], _: Namespace) -> Iterator[str]:
    """Yield the worst trusted run of every policy."""
    for policy in RULES:
        mine = [r for r in rows if r.policy == policy and r.trust == "trusted"]
        if mine:
            worst = max(mine, key=lambda row: abs(row.makespan_error))
            error = 100 * worst.makespan_error
            yield f"{policy:16} {error:+7.3f} % {worst.case}, {len(mine)} trusted"


STUDY = Study(
    row=Trial,
    work=work,
    table=table,
    options=options,
    settled=("draws", "climb", "wall", "processes"),
)
