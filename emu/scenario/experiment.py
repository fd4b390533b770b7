"""A scenario made ready to run: job, placement, times and volumes, and what it costs.

Its placement is of its job or of each of several.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from typing_extensions import override

from emu.errors import DataError, NodeLost, PlacementError, ScenarioError
from emu.names import html_table
from emu.prediction.analysis.throughput import Cost, schedule_cost
from emu.prediction.placement import PlacementResult, affordable
from emu.prediction.placement import place as place_by
from emu.prediction.placement.candidates import JobsCost
from emu.prediction.placement.place import SEARCHES
from emu.prediction.placement.ring_order import with_placed_ring
from emu.prediction.scheduling import policy_named
from emu.prediction.simulation import best_policy, makespan, simulate
from emu.prediction.simulation.attempts import Attempts, Rules, attempts, later
from emu.problem import (
    Cluster,
    Job,
    Kill,
    Placement,
    Problem,
    Profile,
    Realization,
    Schedule,
)
from emu.problem.placement import slot_teams
from emu.problem.workloads import copies_of, repeat, without_copies
from emu.problem.workloads.copies import copy_names, with_peers
from emu.scenario.document import collect_seldom
from emu.scenario.machine_choice import promising
from emu.scenario.realize import build_job, realize
from emu.systems.cache_section import leave_room, settle_caches
from emu.systems.system import system_of, tasks_with_state_of, updates_missed
from emu.units import format_duration

if TYPE_CHECKING:
    from emu.scenario.run_sections import UntilSection
    from emu.scenario.scenario import Scenario
    from emu.training.looks import Look

#: More jobs are counted by policy, not named.
_MOST_JOBS = 20


#: Called by searches with (candidates so far, in all, best makespan).
Progress: TypeAlias = Callable[[int, int, float], None]
#: Share of the makespan by which fewer machines have to be faster: searches differ by
#: less between two seeds.
WORTHWHILE = 1e-3


def place(
    scenario: Scenario,
    job: Job,
    cluster: Cluster,
    realization: Realization | None = None,
    *,
    progress: Progress | None = None,
) -> PlacementResult:
    """Return a placement of ``job`` by the scenario's policy and seed.

    ``realization``: of the run, with reference times: what searches judge placements
    by; default is that of `realize`, asked for where it matters. Raises PlacementError
    when the stated placement breaks a constraint; `InfeasiblePlacement` when the
    cluster is too small; ScenarioError, DataError as `realize`.
    """
    section, job_of_file, job = scenario.placement, job, without_copies(job)
    whole, cluster = cluster, leave_room(job, cluster)
    copies = copy_names(job_of_file)
    tasks = {task: at for task, at in section.tasks.items() if task not in copies}
    rates = "oes" if scenario.schedule.rule == "portfolio" else scenario.schedule.rule
    options: dict[str, Any] = {"policy": rates}
    if section.policy in SEARCHES:
        cost = scenario.joint_cost
        weights = dict[str, float]()
        for item in scenario.jobs:
            weights |= {} if item.weight is None else {item.name: item.weight}
        # None where several jobs are judged by the makespan.
        by_jobs = cost != "max" or any(item.release for item in scenario.jobs)
        count = min(section.simulated_iterations, job.iterations)
        short = replace(job, iterations=count)
        transfers = section.iterations
        stated = section.model_fields_set
        if section.policy == "etp" or "simulated_iterations" in stated:
            transfers = transfers or affordable(short, rates)
        options |= {"transfers": transfers, "iterations": count}
        options["cost"] = JobsCost(cost != "max", weights) if by_jobs else None
    if section.policy == "etp":
        options |= {"mu": section.tolerance, "beta": section.beta}
        options["beta_unit"] = section.beta_unit
    # Only searches, and who shares slots, ask how long a placement takes.
    profile = None
    if section.policy in SEARCHES or slot_teams(job):
        profile = repeat(job, (realization or realize(scenario, job_of_file)).of(job))
    options |= {"seed": scenario.seed, "tasks": tasks, "progress": progress}
    outcome = place_by(section.policy, job, cluster, profile=profile, **options)
    placement = _with_peers(scenario, job_of_file, whole, outcome.placement)
    return replace(outcome, placement=placement)


class NoPeer(PlacementError):
    """A machine beside which no other can keep checkpoints."""

    key = "checkpoint.to"


def _with_peers(
    scenario: Scenario, job: Job, cluster: Cluster, placement: Placement
) -> Placement:
    """Return a placement with the copies of state on other machines.

    Raises NoPeer when there is no other.
    """
    places = scenario.placement.tasks
    own = {*scenario.stated_cluster.names}
    count = sum(machine.name in own for machine in cluster.machines)
    try:
        return with_peers(job, cluster, placement, places, count)
    except ValueError as error:
        raise NoPeer(f"{error}: add one, or write to: disk") from error


def following_placement(scenario: Scenario, problem: Problem) -> Problem:
    """Return the problem with rings, copies and caches where its placement asks for.

    Rings of jobs with ``ring: placed``; copies of state on peers; caches of rows that
    others than a sampler's machine own, which change what is sent.
    """
    placement = _with_peers(scenario, problem.job, problem.cluster, problem.placement)
    problem = replace(problem, placement=placement)
    alone = {item.name: part.job for item, part in scenario.parts()}
    for name, job in (alone or {"": scenario.job}).items():
        if job.rings_follow_placement:
            problem = with_placed_ring(problem, name)
    settled = settle_caches(problem.job, problem.machine_of_task)
    return problem if settled is problem.job else replace(problem, job=settled)


def place_one_by_one(
    scenario: Scenario, job: Job, cluster: Cluster, progress: Progress | None = None
) -> PlacementResult:
    """Place each of several jobs by its own policy, on what those before it leave.

    Raises PlacementError, ScenarioError, DataError as `place`, of the first job for
    which it does.
    """
    free = cluster
    machine_of = dict[str, int]()
    candidates = []
    budgets = []
    for item, alone in scenario.parts():
        part = build_job(alone)
        names = [machine.name for machine in free.machines]
        there = free.only(item.job.movable_on or names)
        result = place(alone, part, there, progress=progress)
        here = [there.machines[m].name for m in result.placement.machine_of]
        part_placement = Placement(tuple(names.index(name) for name in here))
        candidates.append(result.candidates)
        budgets.append(result.budget)
        # What a placed job takes is not there for the next.
        machines = []
        use = part_placement.usage(part, free)
        for machine, load in zip(free.machines, use, strict=True):
            offers = machine.resources.items()
            rest = {name: amount - load.get(name, 0.0) for name, amount in offers}
            machines.append(replace(machine, resources=rest))
        places = dict(zip((task.name for task in part.tasks), here, strict=True))
        free = leave_room(part, replace(free, machines=tuple(machines)), places)
        for process, members in part.units.items():
            machine_of[f"{item.name}/{process}"] = part_placement.machine_of[members[0]]
    placement = Placement(tuple(machine_of[task.process_name] for task in job.tasks))
    count = sum(candidates)
    most = max(budgets)
    return PlacementResult(placement, "sequential", candidates=count, budget=most)


def cost_of(scenario: Scenario, schedule: Schedule) -> Cost | None:
    """Return the cost of a schedule of a scenario; None where nothing has a price.

    The time of a function begins where its launch ends.
    """
    prices = {name: one.price for name, one in scenario.cluster.by_name.items()}
    hourly = {name: price for name, price in prices.items() if price is not None}
    if not hourly:
        return None
    job = schedule.problem.job
    answers = [np.zeros(0)]
    losses = [np.zeros(0)]
    by_job = (system_of(job.settings_of(name)) for name in job.job_names)
    systems = {one.name: one for one in by_job if one is not None}.values()
    for system in systems:
        ran, failures = system.functions(schedule)
        answers.append(ran)
        losses.append(failures)
    return schedule_cost(
        schedule,
        hourly,
        scenario.prices.build(),
        functions=np.concatenate(answers),
        lost=np.concatenate(losses),
        parameter_kinds={kind for one in systems for kind in one.parameter_kinds},
    )


@dataclass(frozen=True, eq=False)
class Experiment:
    """Everything that a simulation or an emulation of ``scenario`` needs."""

    scenario: Scenario
    """Without ``until``: its job has the length that this needs."""
    problem: Problem
    realization: Realization
    """Times and volumes stated, drawn from the profile, or counted in the graph."""
    placed: PlacementResult | None = None
    """Result of the search for a placement, where there was one."""
    unchosen: Scenario | None = None
    """The scenario that leaves its machines open; None where they are no choice."""
    until: UntilSection | None = None
    """Accuracy that has decided the length of the job."""
    stated: Scenario | None = None
    """The scenario with that ``until``."""
    first: int = 0
    """Iterations of the whole job that are done: problem and times are of the rest."""
    looks: tuple[Look, ...] = ()
    """Looks in virtual time, of which the last one reaches it."""
    began: float = 0.0
    """Seconds since the whole job began when this part of it does."""
    kills: tuple[Kill, ...] = ()
    """Kills that have not come yet."""
    whole: Experiment | None = None
    """Experiment of the whole job; None where this is it."""

    @override
    def __repr__(self) -> str:
        """Return the scenario and its job."""
        return f"<Experiment {self.scenario.name}: {self.problem!r}>"

    def _repr_html_(self) -> str:
        """Return which tasks stand on which machine, for notebooks."""
        tasks = self.tasks
        rows = [
            (name, ", ".join(task for task, there in tasks.items() if there == name))
            for name in dict.fromkeys(tasks.values())
        ]
        return html_table(repr(self), ("machine", "tasks"), rows)

    @property
    def reached(self) -> Look | None:
        """Look at which ``until`` is reached, in virtual time."""
        return self.looks[-1] if self.looks else None

    @property
    def cause_of_length(self) -> dict[str, Any]:
        """``until`` and ``reached`` of result.json, where an accuracy decided it."""
        if self.until is None:
            return {}
        look = {} if self.reached is None else {"reached": self.reached._asdict()}
        return {"until": self.until.model_dump(mode="json", exclude_none=True), **look}

    def beginning_at(self, first: int, began: float = 0.0) -> Experiment:
        """Return what is left when all iterations of the whole job before one are done.

        ``first``: may be before this part's: its checkpoint may be damaged by then.
        ``began``: seconds since the whole job began. Raises ValueError when nothing is
        left.
        """
        whole = self.whole or self
        problem = whole.problem.beginning_at(first, began)
        job = settle_caches(problem.job, problem.machine_of_task, first)
        return replace(
            self,
            problem=problem if job is problem.job else replace(problem, job=job),
            realization=whole.realization.beginning_at(first, whole.problem.job),
            first=first,
            began=began,
            whole=whole,
        )

    def attempts(self, schedule: Schedule | None = None) -> Attempts:
        """Return the attempts that kills make of it, simulated.

        ``schedule``: as `simulate` returns it, where that was done. Raises NodeLost
        when it is killed and not restarted, or too often.
        """

        def part(first: int, began: float) -> Schedule:
            if schedule is not None and (first, began) == (self.first, self.began):
                return schedule
            return self.beginning_at(first, began).simulate()

        kills = later(self.kills, self.first, self.began)
        return attempts(part, kills, self.rules, self.first, self.began)

    @property
    def rules(self) -> Rules:
        """Rules for its deaths."""
        scenario = self.scenario
        job = self.problem.job
        return Rules(
            scenario.restarts,
            scenario.recovery_time,
            scenario.checkpoint.every if scenario.checkpoint else 0,
            tuple(job.index(name) for name in tasks_with_state_of(job)),
            updates_missed(job),
            (*copies_of(job).values(),),
        )

    def remarks(self, schedule: Schedule | None = None) -> list[str]:
        """Return sentences on what is hardly meant.

        Events that change nothing, a kill that ends the job, a latency longer than it.
        """
        long = [*self.scenario.cluster.remarks()]
        late = float(self.problem.latencies.max(initial=0.0))
        if late:
            cluster = self.problem.cluster.with_latencies(0.0)
            without = replace(self.problem, cluster=cluster)
            if late > makespan(without, self.realization, self.choose_policy()):
                problem = f"a latency of {format_duration(late)} between two machines"
                problem += " is longer than the whole job without it"
                long.append(f"{problem}: is its unit the right one?")
        if not (self.scenario.events or self.scenario.failures):
            return long
        try:
            end = self.began + self.attempts(schedule).makespan
        except NodeLost as error:
            return [str(error)]
        there = {kill.name: kill for kill in self.scenario.kills(self.problem)}
        idle = [
            f"events[{position}]: no process stands on {event.kill}: it changes nothing"
            for position, event in enumerate(self.scenario.events)
            if event.kill and event.kill not in there
        ]
        if self.scenario.emulation.processes == "machine":
            whole = {*self.problem.machine_of_task.values()}
            whole |= {*self.scenario.emulation.hosts.values()}
            long += [
                f"{name} shares the process of its machine (emulation.processes): "
                f"{', '.join(kill.processes)} die with it"
                for name, kill in there.items()
                if name not in whole and len(kill.processes) > 1
            ]
        return long + idle + self.scenario.idle_events(end)

    def time_of_cut(self, iteration: int) -> float:
        """Return when a cut is taken, simulated: seconds since the whole job began."""
        if iteration <= self.first:
            return self.began
        job = self.problem.job
        keepers = [job.index(name) for name in tasks_with_state_of(job)]
        moment = self.simulate().task_start[keepers, iteration - self.first].max()
        return self.began + float(moment)

    @property
    def tasks(self) -> dict[str, str]:
        """Task -> machine, by name; as ``placement.tasks`` of a scenario has it."""
        return self.problem.machine_of_task

    @property
    def placing(self) -> dict[str, Any]:
        """The way the tasks were placed, see docs/results.md."""
        problem = self.problem
        outcome = self.placed
        policy = self.scenario.placed_by
        own = self.scenario.stated_cluster.names
        there = {*self.tasks.values()}
        slots = {r for *_, job in self.scenario.each_job() for r in job.made_slots}
        if policy == "sequential":
            each = [f"{j.name} by {j.placement.policy}" for j in self.scenario.jobs]
            if len(each) > _MOST_JOBS:
                policies = Counter(j.placement.policy for j in self.scenario.jobs)
                each = [f"{count} jobs by {name}" for name, count in policies.items()]
            policy = f"sequential: {', '.join(each)}"
        pins = problem.job.fixed
        demanded = {resource for t in problem.job.tasks for resource in t.demands}
        return {
            "policy": policy,
            "seed": self.scenario.seed,
            "candidates": outcome.candidates if outcome and not pins else 0,
            "budget": outcome.budget if outcome and not pins else 0,
            "optimal": bool(pins or (outcome and outcome.optimal)),
            "machines": [name for name in own if name in there],
            "machines_in_all": len(own),
            "unclaimed": sorted({*problem.cluster.resource_names()} - demanded - slots),
        }

    @property
    def policy(self) -> str:
        """Rate policy of the scenario."""
        return self.scenario.schedule.rule

    @property
    def expected(self) -> Profile:
        """The run as policies that look ahead, and the portfolio, expect it."""
        return Profile(self.realization.times, self.realization.volumes)

    def choose_policy(self) -> str:
        """Return the rate policy; for ``portfolio`` the one that it chooses."""
        if self.policy == "portfolio":
            return best_policy(self.problem, self.expected)
        return self.policy

    def simulate(self) -> Schedule:
        """Return the schedule under the scenario's rate policy, without deaths."""
        what = self.problem, self.realization, self.policy
        return simulate(*what, profile=self.expected)


@collect_seldom()
def prepare(scenario: Scenario, *, progress: Progress | None = None) -> Experiment:
    """Build, realize and place the job of a scenario.

    Where the file leaves its machines open, ``best`` chooses them: the scenario of the
    result states them, so that its preparation makes the same again. Where it trains
    ``until`` an accuracy, the whole job is trained first, in one process; what counts
    then is as long as that took.

    Raises ScenarioError, DataError when times, the profile or the data set are missing
    or damaged, or ``until`` is not reached; PlacementError when there is no placement,
    or the stated one breaks a constraint.
    """
    check_rule(scenario)
    if scenario.until is not None:
        from emu.scenario.virtual_training import look_until  # noqa: PLC0415 - 0.1 s

        whole = prepare(scenario.model_copy(update={"until": None}), progress=progress)
        try:
            stated = scenario.model_copy(update={"job": whole.scenario.job})
            looks = look_until(stated, whole.simulate)
        except ScenarioError as error:
            error.args = (scenario.origin.locate(error.key, error.problem),)
            raise
        shorter = {"job": stated.job.of_steps(looks[-1].step), "until": None}
        experiment = prepare(stated.model_copy(update=shorter), progress=progress)
        return replace(experiment, until=scenario.until, stated=stated, looks=(*looks,))
    built = _build(scenario)
    every, *fewer = promising(scenario, *built)
    best = _place_built(every, built if every is scenario else _build(every), progress)
    for one in fewer:
        other = _place_built(one, _build(one), progress)
        if _length(other) < _length(best) * (1 - WORTHWHILE):
            best = other
    return best if best.scenario is scenario else replace(best, unchosen=scenario)


def _length(experiment: Experiment) -> float:
    """Return the makespan, without deaths."""
    policy = experiment.choose_policy()
    return makespan(experiment.problem, experiment.realization, policy)


def _build(scenario: Scenario) -> tuple[Job, Cluster, Realization]:
    """Return job, machines, and reference times and volumes; raises as `prepare`."""
    cluster = scenario.to_cluster()
    try:
        job = build_job(scenario)
        return job, cluster, realize(scenario, job)
    except ScenarioError as error:
        error.args = (scenario.origin.locate(error.key, error.problem),)
        raise
    except DataError as error:
        if not error.path:  # a data set that is not there
            key = "job.dataset"
            for position, (_, alone) in enumerate(scenario.parts()):  # the first's
                try:
                    realize(alone, build_job(alone))
                except DataError:
                    key = f"jobs.{position}.job.dataset"
                    break
            error.args = (scenario.origin.locate(key, error.problem),)
        raise


def _place_built(
    scenario: Scenario,
    built: tuple[Job, Cluster, Realization],
    progress: Progress | None,
) -> Experiment:
    """Return the experiment of a scenario that is built, placed by its policy."""
    job, cluster, realization = built
    try:
        if scenario.jobs and scenario.place_jobs == "sequential":
            outcome = place_one_by_one(scenario, job, cluster, progress)
        else:
            outcome = place(scenario, job, cluster, realization, progress=progress)
    except PlacementError as error:
        advice = scenario.advice(str(error))
        error.args = (scenario.origin.locate(error.key, advice),)
        raise
    problem = Problem(cluster, job, outcome.placement)
    for name in copy_names(job) & scenario.placement.tasks.keys():
        if (at := problem.machine_of_task[name]) != scenario.placement.tasks[name]:
            raise NoPeer(f"{name} stands where what it copies does: write {at}, say")
    outcome.placement.check(job, cluster)
    problem = following_placement(scenario, problem)
    if problem.job.settings != job.settings:
        realization = realize(scenario, problem.job)
    kills = scenario.kills(problem)
    run = problem.stretch(realization)
    return Experiment(scenario, problem, run, outcome, kills=kills)


def check_rule(scenario: Scenario) -> None:
    """Load the rule for rates, where it is one's own.

    Raises ScenarioError when it cannot be loaded, or may not: see
    `emu.host.foreign_code.code_of_others`.
    """
    try:
        policy_named(scenario.schedule.rule)
    except DataError as error:
        raise scenario.origin.error(("schedule", "policy"), str(error)) from error


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
    failures = experiment.scenario.failures
    seed = experiment.scenario.seed
    if failures is None:
        return {}
    cluster = experiment.problem.cluster
    failures_drawn = failures.deaths(cluster, seed)
    for fault in failures.faults(cluster, seed):
        if fault.of_machine or not fault.subject.endswith(" in"):  # a cut is of both
            failures_drawn.append((fault.since, fault.subject.removesuffix(" out")))
    return dict(Counter(name for time, name in failures_drawn if time < end))
