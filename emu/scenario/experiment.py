"""A scenario made ready to run: job, placement, times and volumes, and what it costs.

Its placement is of its job or of each of several.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from emu.errors import DataError, NodeLost, PlacementError, ScenarioError
from emu.names import html_table
from emu.prediction.analysis.throughput import Cost, schedule_cost
from emu.prediction.placement import PlacementResult
from emu.prediction.scheduling import policy_named
from emu.prediction.simulation import best_policy, makespan, simulate, simulate_within
from emu.prediction.simulation.attempts import Attempts, Rules, attempts, later
from emu.problem import (
    Cluster,
    Job,
    Kill,
    Problem,
    Profile,
    Realization,
    Schedule,
)
from emu.problem.fields.section import Trail
from emu.problem.workloads import copies_of
from emu.problem.workloads.copies import copy_names
from emu.scenario.document import collect_seldom
from emu.scenario.idle_keys import events_elsewhere, idle_keys
from emu.scenario.machine_choice import promising
from emu.scenario.placements import (
    NoPeer,
    Progress,
    following_placement,
    place,
    place_one_by_one,
)
from emu.scenario.realize import build_job, realize
from emu.systems.cache_section import settle_caches
from emu.systems.system import system_of, tasks_with_state_of, updates_missed
from emu.units import format_duration

if TYPE_CHECKING:
    from emu.scenario.run_sections import UntilSection
    from emu.scenario.scenario import Scenario
    from emu.training.looks import Look

#: More jobs are counted by policy, not named.
_MOST_JOBS = 20
#: Share of the makespan by which fewer machines have to be faster: searches differ by
#: less between two seeds.
WORTHWHILE = 1e-3


def cost_of(scenario: Scenario, schedule: Schedule) -> Cost | None:
    """Return the cost of a schedule of a scenario; None where nothing has a price.

    The time of a function begins where its launch ends.
    """
    hourly = {}
    for name, machine in scenario.cluster.by_name.items():
        if machine.price is not None:
            hourly[name] = machine.price
    # A file without prices asks for no cost, though functions have default ones.
    if not hourly:
        return None

    job = schedule.problem.job
    systems = {}  # each once, however many jobs are of it
    for name in job.job_names:
        system = system_of(job.settings_of(name))
        if system:
            systems[system.name] = system

    # There is nothing to concatenate where no system has functions.
    answers = [np.zeros(0)]
    losses = [np.zeros(0)]
    parameter_kinds: set[str] = set()
    for system in systems.values():
        seconds, loss = system.functions(schedule)
        answers.append(seconds)
        losses.append(loss)
        parameter_kinds.update(system.parameter_kinds)
    return schedule_cost(
        schedule,
        hourly,
        scenario.prices.build(),
        functions=np.concatenate(answers),
        lost=np.concatenate(losses),
        parameter_kinds=parameter_kinds,
    )


@dataclass(frozen=True, eq=False)
class Experiment:
    """Everything that a simulation or an emulation of ``scenario`` needs."""

    scenario: Scenario
    """Without ``until``: its job has the length that this needs."""
    problem: Problem
    realization: Realization
    """Times and volumes stated, drawn from the profile, or counted in the graph."""
    found: PlacementResult | None = None
    """Result of the search for a placement, which may not have been simulated yet."""
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
        tasks_on: dict[str, list[str]] = {}
        for task, machine in self.tasks.items():
            neighbours = tasks_on.setdefault(machine, [])
            neighbours.append(task)
        rows = []
        for machine, tasks in tasks_on.items():
            names = ", ".join(tasks)
            rows.append((machine, names))
        return html_table(repr(self), ("machine", "tasks"), rows)

    @property
    def reached(self) -> Look | None:
        """Look at which ``until`` is reached, in virtual time."""
        if not self.looks:
            return None
        return self.looks[-1]

    @property
    def cause_of_length(self) -> dict[str, Any]:
        """``until`` and ``reached`` of result.json, where an accuracy decided it."""
        if self.until is None:
            return {}
        section = self.until.model_dump(mode="json", exclude_none=True)
        content: dict[str, Any] = {"until": section}
        if self.reached is not None:
            content["reached"] = self.reached._asdict()
        return content

    def beginning_at(self, first: int, began: float = 0.0) -> Experiment:
        """Return what is left when all iterations of the whole job before one are done.

        ``first``: may be before this part's: its checkpoint may be damaged by then.
        ``began``: seconds since the whole job began. Raises ValueError when nothing is
        left.
        """
        complete = self.whole or self
        problem = complete.problem.beginning_at(first, began)
        realization = complete.realization.beginning_at(first, complete.problem.job)
        # Rows in a cache follow from all iterations before, those of the whole job.
        job = settle_caches(problem.job, problem.machine_of_task, first)
        if job is not problem.job:
            problem = replace(problem, job=job)

        return replace(
            self,
            problem=problem,
            realization=realization,
            first=first,
            began=began,
            whole=complete,
        )

    def attempts(self, schedule: Schedule | None = None) -> Attempts:
        """Return the attempts that kills make of it, simulated.

        ``schedule``: as `simulate` returns it, where that was done. Raises NodeLost
        when it is killed and not restarted, or too often.
        """

        def part(first: int, began: float) -> Schedule:
            # The first attempt is the schedule itself: it need not be simulated again.
            if schedule is not None and began == self.began:
                return schedule
            rest = self.beginning_at(first, began)
            return rest.simulate()

        return attempts(
            part=part,
            kills=later(self.kills, self.first, self.began),
            rules=self.rules,
            first=self.first,
            began=self.began,
        )

    @property
    def rules(self) -> Rules:
        """Rules for its deaths."""
        scenario = self.scenario
        job = self.problem.job
        checkpoint = scenario.checkpoint
        return Rules(
            restarts=scenario.restarts,
            recovery=scenario.recovery_time,
            every=checkpoint.every if checkpoint else 0,
            keepers=tuple(self._keepers()),
            missed=updates_missed(job),
            copies=tuple(copies_of(job).values()),
        )

    def _keepers(self) -> list[int]:
        """Return the positions of the tasks that have state."""
        job = self.problem.job
        return [job.index(name) for name in tasks_with_state_of(job)]

    def remarks(self, schedule: Schedule | None = None) -> list[str]:
        """Return sentences on what is hardly meant.

        Events that change nothing, a kill that ends the job, a latency longer than it.
        """
        scenario = self.scenario
        remarks = list(scenario.cluster.remarks())
        remarks += idle_keys(scenario, self.problem.job)
        remarks += self._latency_remarks()
        if not scenario.events and not scenario.failures:
            return remarks

        try:
            attempts = self.attempts(schedule)
        # The job does not end then: remarks that count from its end say nothing.
        except NodeLost as error:
            return [str(error)]
        end = self.began + attempts.makespan
        kills = {kill.name: kill for kill in scenario.kills(self.problem)}
        if scenario.emulation.processes == "machine":
            remarks += self._list_shared_deaths(kills.values())
        for position, event in enumerate(scenario.events):
            if event.kill and event.kill not in kills:
                remarks.append(
                    f"events[{position}]: no process stands on {event.kill}: it "
                    "changes nothing"
                )
        remarks += events_elsewhere(scenario, self.problem)
        remarks += scenario.idle_events(end)
        return remarks

    def _latency_remarks(self) -> Iterator[str]:
        # A latency in s instead of ms is longer than many a job.
        latency = float(self.problem.latencies.max(initial=0.0))
        if not latency:
            return
        cluster = self.problem.cluster.with_latencies(0.0)
        without = replace(self.problem, cluster=cluster)
        policy = self.choose_policy()
        if latency > makespan(without, self.realization, policy):
            yield (
                f"a latency of {format_duration(latency)} between two machines is "
                "longer than the whole job without it: is its unit the right one?"
            )

    def _list_shared_deaths(self, kills: Iterable[Kill]) -> Iterator[str]:
        """Yield the tasks with which all others of their machine die."""
        # Who names the machine or its host means all that die with it.
        machines = set(self.problem.machine_of_task.values())
        hosts = set(self.scenario.emulation.hosts.values())
        homes = machines | hosts
        for kill in kills:
            is_alone = len(kill.processes) <= 1
            if kill.name in homes or is_alone:
                continue
            processes = ", ".join(kill.processes)
            yield (
                f"{kill.name} shares the process of its machine "
                f"(emulation.processes): {processes} die with it"
            )

    def time_of_cut(self, iteration: int) -> float:
        """Return when a cut is taken, simulated: seconds since the whole job began."""
        if iteration <= self.first:
            return self.began
        schedule = self.simulate()
        # A cut is taken when the last task with state has begun the iteration.
        column = iteration - self.first
        starts = schedule.task_start[self._keepers(), column]
        return self.began + float(starts.max())

    @cached_property
    def placed(self) -> PlacementResult | None:
        """Result of the search for a placement, where there was one."""
        return None if self.found is None else self.found.with_makespan()

    @property
    def tasks(self) -> dict[str, str]:
        """Task -> machine, by name; as ``placement.tasks`` of a scenario has it."""
        return self.problem.machine_of_task

    @property
    def placing(self) -> dict[str, Any]:
        """The way the tasks were placed, see docs/results.md."""
        scenario = self.scenario
        problem = self.problem
        is_fixed = problem.job.fixed
        # Where all is pinned nothing was searched, whatever the policy.
        search = None if is_fixed else self.found
        is_optimal = is_fixed or (search is not None and search.optimal)
        # Of machines that can be chosen: those that jobs bring along are always there.
        names = scenario.stated_cluster.names
        used_machines = set(self.tasks.values())

        # Resources that machines state and no task wants are hardly meant.
        resources: set[str] = set()
        for task in problem.job.tasks:
            resources.update(task.demands)
        for *_, section in scenario.each_job():
            resources.update(section.made_slots)
        unclaimed = set(problem.cluster.resource_names()) - resources
        return {
            "policy": _words_of_policy(scenario),
            "seed": scenario.seed,
            "candidates": search.candidates if search else 0,
            "budget": search.budget if search else 0,
            "optimal": bool(is_optimal),
            "machines": [name for name in names if name in used_machines],
            "machines_in_all": len(names),
            "unclaimed": sorted(unclaimed),
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
        return simulate(
            self.problem,
            self.realization,
            self.policy,
            profile=self.expected,
        )

    def simulate_within(self, limit: float) -> Schedule | None:
        """Return the schedule as `simulate`, or None if it takes over ``limit`` s."""
        return simulate_within(
            limit, self.problem, self.realization, self.policy, profile=self.expected
        )


def _words_of_policy(scenario: Scenario) -> str:
    """Return the policy that places a job; of several jobs those of each."""
    if scenario.placed_by != "sequential":
        return scenario.placed_by
    jobs = scenario.jobs
    words = [f"{item.name} by {item.placement.policy}" for item in jobs]
    if len(jobs) > _MOST_JOBS:
        counts = Counter(item.placement.policy for item in jobs)
        words = [f"{count} jobs by {name}" for name, count in counts.items()]
    return f"sequential: {', '.join(words)}"


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
    # First: a rule that cannot be loaded should not cost a search.
    check_rule(scenario)
    if scenario.until is not None:
        return _prepare_until(scenario, progress)

    built = _build(scenario)
    first, *variants = promising(scenario, *built)
    if first is not scenario:
        built = _build(first)
    best = _place_built(first, built, progress)
    for variant in variants:
        built = _build(variant)
        candidate = _place_built(variant, built, progress)
        # The scenario as it is comes first: others have to be worth the change.
        limit = _length(best) * (1 - WORTHWHILE)
        if _length(candidate) < limit:
            best = candidate

    if best.scenario is scenario:
        return best
    return replace(best, unchosen=scenario)


def _prepare_until(scenario: Scenario, progress: Progress | None) -> Experiment:
    """Return the experiment that is as long as an accuracy takes; as `prepare`."""
    from emu.scenario.virtual_training import look_until  # noqa: PLC0415 - 0.1 s

    without_until = scenario.model_copy(update={"until": None})
    longest = prepare(without_until, progress=progress)
    # On the machines that it has chosen: they decide what is trained.
    placed_job = longest.scenario.job
    placed_scenario = scenario.model_copy(update={"job": placed_job})
    try:
        looks = look_until(placed_scenario, longest.simulate)
    except ScenarioError as error:
        # Who trains knows no file: the error gets its line here.
        _locate_error(error, scenario, error.key)
        raise

    # Placed anew: of a shorter job another placement may be the best.
    steps = looks[-1].step
    shorter_job = placed_scenario.job.of_steps(steps)
    shorter = placed_scenario.model_copy(update={"job": shorter_job, "until": None})
    experiment = prepare(shorter, progress=progress)
    return replace(
        experiment,
        until=scenario.until,
        stated=placed_scenario,
        looks=tuple(looks),
    )


def _locate_error(
    error: DataError | ScenarioError, scenario: Scenario, key: str
) -> None:
    """Put file and line of a key into an error."""
    located = scenario.origin.locate(key, error.problem)
    error.args = (located,)


def _length(experiment: Experiment) -> float:
    """Return the makespan, without deaths."""
    policy = experiment.choose_policy()
    return makespan(experiment.problem, experiment.realization, policy)


def _build(scenario: Scenario) -> tuple[Job, Cluster, Realization]:
    """Return job, machines, and reference times and volumes; raises as `prepare`."""
    cluster = scenario.to_cluster()
    try:
        job = build_job(scenario)
        realization = realize(scenario, job)
    except ScenarioError as error:
        _locate_error(error, scenario, error.key)
        raise
    except DataError as error:
        if not error.path:  # a data set that is not there
            _locate_error(error, scenario, _key_of_dataset(scenario))
        raise
    return job, cluster, realization


def _key_of_dataset(scenario: Scenario) -> str:
    """Return the key of the data set that is not there, of several jobs the first."""
    # The error names the data set and no job: each is tried again until one fails.
    for position, (_, part) in enumerate(scenario.parts()):
        try:
            realize(part, build_job(part))
        except DataError:
            return f"jobs.{position}.job.dataset"
    return "job.dataset"


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
            outcome = place(
                scenario=scenario,
                job=job,
                cluster=cluster,
                realization=realization,
                progress=progress,
            )
    except PlacementError as error:
        advice = scenario.advice(str(error))
        located = scenario.origin.locate(error.key, advice)
        error.args = (located,)
        raise

    problem = Problem(cluster, job, outcome.placement)
    homes = scenario.placement.tasks
    # A stated machine that is the task's own is passed over by `with_peers`: here that
    # is an error.
    for name in copy_names(job) & homes.keys():
        machine = problem.machine_of_task[name]
        if machine != homes[name]:
            raise NoPeer(
                f"{name} stands where what it copies does: write {machine}, say"
            )
    outcome.placement.check(job, cluster)
    # What follows from a placement may change what is sent, so times and bytes.
    problem = following_placement(scenario, problem)
    if problem.job.settings != job.settings:
        realization = realize(scenario, problem.job)
    return Experiment(
        scenario=scenario,
        problem=problem,
        realization=problem.stretch(realization),
        found=outcome,
        # Only now: who dies with a machine follows from the placement.
        kills=scenario.kills(problem),
    )


def check_rule(scenario: Scenario) -> None:
    """Load the rule for rates, where it is one's own.

    Raises ScenarioError when it cannot be loaded, or may not: see
    `emu.host.foreign_code.code_of_others`.
    """
    try:
        policy_named(scenario.schedule.rule)
    except DataError as error:
        trail: Trail = ("schedule", "policy")
        raise scenario.origin.error(trail, str(error)) from error


def makespan_of(
    experiment: Experiment,
    problem: Problem,
    realization: Realization,
    policy: str,
) -> float:
    """Return the makespan of a changed job with the scenario's deaths, seconds.

    Raises NodeLost, ScenarioError as `Experiment.attempts`.
    """

    def part(first: int, began: float) -> Schedule:
        rest = problem.beginning_at(first, began)
        run = realization.beginning_at(first, problem.job)
        return simulate(rest, run, policy)

    # Of the changed job: processes stand elsewhere, and other tasks keep its state.
    changed = replace(experiment, problem=problem)
    kills = changed.scenario.kills(problem)
    return attempts(part, kills, changed.rules).makespan


def refuse_deaths(experiment: Experiment) -> None:
    """Raise the ScenarioError that names what is killed, of a run over packets."""
    if not experiment.kills:
        return
    scenario = experiment.scenario
    trail: Trail = ("failures", "machine", "what")
    for position, event in enumerate(scenario.events):
        if event.kill:
            trail = ("events", position, "kill")
            break
    problem = "packets know no deaths: remove it, or simulate rates"
    raise scenario.origin.error(trail, problem)


def count_failures(experiment: Experiment, end: float) -> dict[str, int]:
    """Return how many failures are drawn before an end, by machine or link."""
    failures = experiment.scenario.failures
    if failures is None:
        return {}
    draws = failures.draws(experiment.problem.cluster, experiment.scenario.seed)
    names = [name for time, name in draws if time < end]
    return dict(Counter(names))
