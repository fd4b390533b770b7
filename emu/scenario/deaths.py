"""Deaths that a scenario states or draws, as part of what it is simulated to take."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from emu.prediction.simulation import simulate
from emu.prediction.simulation.attempts import attempts
from emu.problem import Problem, Realization, Schedule

if TYPE_CHECKING:
    from emu.scenario import Experiment


def with_deaths(experiment: Experiment, schedule: Schedule) -> Schedule:
    """Return the schedule of an experiment with what deaths add to it.

    Raises NodeLost, ScenarioError as `Experiment.attempts`.
    """
    outages = experiment.attempts(schedule).outages(schedule.length)
    return replace(schedule, outages=outages)


def makespan_of(
    experiment: Experiment, problem: Problem, realization: Realization, policy: str
) -> float:
    """Return the makespan of a changed job with the scenario's deaths, seconds.

    Raises NodeLost, ScenarioError as `Experiment.attempts`.
    """

    def part(first: int, began: float) -> Schedule:
        rest = problem.beginning_at(first, began)
        run = realization.beginning_at(first, problem.job)
        return simulate(rest, run, policy)

    kills = experiment.scenario.kills(problem)
    return attempts(part, kills, experiment.rules).makespan


def refuse_deaths(experiment: Experiment, what: str) -> None:
    """Raise the ScenarioError that names what is killed, where anything is."""
    if not experiment.kills:
        return
    events = enumerate(experiment.scenario.events)
    trails = [("events", n, "kill") for n, event in events if event.kill]
    trail = trails[0] if trails else ("failures", "machine", "what")
    problem = f"{what} know no deaths: remove it, or simulate rates"
    raise experiment.scenario.origin.error(trail, problem)


def count_failures(experiment: Experiment, end: float) -> dict[str, int]:
    """Return how many failures are drawn before an end, by machine or link."""
    failures, seed = experiment.scenario.failures, experiment.scenario.seed
    if failures is None:
        return {}
    cluster = experiment.problem.cluster
    failures_drawn = failures.deaths(cluster, seed)
    for fault in failures.faults(cluster, seed):
        if fault.of_machine or not fault.subject.endswith(" in"):  # a cut is of both
            failures_drawn.append((fault.since, fault.subject.removesuffix(" out")))
    return dict(Counter(name for time, name in failures_drawn if time < end))
