"""Simulate a placed job: its Schedule, or its makespan alone."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

import numpy as np

from emu.array_types import Floats
from emu.errors import SchedulingError
from emu.prediction.core import Record, ffi, lib, pointer
from emu.prediction.rate_policies import PORTFOLIO, RATE_POLICIES
from emu.prediction.scheduling import policy_named
from emu.prediction.scheduling.compiled_problem import placed_layout, plain
from emu.prediction.scheduling.policies import rate_policy
from emu.prediction.scheduling.state import (
    State,
    check_rows,
    expectation,
    new_rate_changes,
)
from emu.prediction.simulation.port_seconds import port_seconds
from emu.problem import Problem, RateHistory, Realization, Schedule


def simulate(
    problem: Problem,
    realization: Realization,
    policy: str = "oes",
    *,
    record_rates: bool = False,
    profile: Realization | None = None,
    step: float = 0.0,
) -> Schedule:
    """Return the Schedule of ``problem`` under ``policy``.

    Raises ValueError when there is no such policy, realization or profile do not fit
    the job, or the step is negative or not finite, and SchedulingError when tasks are
    left that nothing would ever start.

    Parameters
    ----------
    policy
        Name of a rate policy, or ``portfolio``.
    profile
        Profile by which a policy looks ahead and the portfolio chooses; without
        one, the realization itself.
    step
        Seconds per time slot, 0 for continuous time. With slots, as in Algorithm 1 of
        the paper, tasks and flows end, and rates change, at the end of a slot only; a
        flow keeps its rate in the slot that it needs a part of. As the slots get
        short the schedule becomes that of continuous time.
    """
    run = _Run(problem, realization, policy, profile=profile, step=step)
    if not record_rates:
        _, state = run.carry_out()
        return run.schedule_of(state)

    # The core allocates nothing: how many rows a history has is known after a run, and
    # a second run, which is the same to the last bit, writes them.
    edges = len(problem.job.edges)
    counter = _recorder(edges)
    _, state = run.carry_out(recorder=counter)
    rows = counter.core.rows
    recorder = _recorder(edges, rows)
    _, state = run.carry_out(recorder=recorder, looks=state.looks)

    rates = RateHistory(
        recorder.time,
        recorder.edge,
        recorder.iteration,
        recorder.rate,
    )
    return run.schedule_of(state, rates)


def simulate_within(
    limit: float,
    problem: Problem,
    realization: Realization,
    policy: str = "oes",
    *,
    profile: Realization | None = None,
) -> Schedule | None:
    """Return the Schedule as `simulate`, or None if it takes over ``limit`` seconds.

    Raises ValueError as `simulate`; SchedulingError where tasks are left before that.
    """
    run = _Run(problem, realization, policy, profile=profile, step=0.0)
    # A rule of one's own is asked: that it fails must show.
    if not run.is_own_rule:
        least = port_seconds(problem, run.layout, run.volumes)
        if least > limit * (1.0 + _ROUNDING):
            return None

    end, state = run.carry_out(limit=limit)
    if end > limit:
        return None
    return run.schedule_of(state)


def makespan(
    problem: Problem,
    realization: Realization,
    policy: str = "oes",
    *,
    profile: Realization | None = None,
    step: float = 0.0,
) -> float:
    """Return the makespan in seconds; faster than `simulate`, same parameters.

    Raises ValueError or SchedulingError as `simulate`.
    """
    run = _Run(problem, realization, policy, profile=profile, step=step)
    end, _ = run.carry_out(logged=False)
    return end


def best_policy(
    problem: Problem,
    profile: Realization,
    candidates: Collection[str] = (),
) -> str:
    """Return the policy with the smallest makespan on the expected run.

    The expected run repeats the profiled iterations in order. ``oes`` is always among
    the candidates, so the choice is never worse than it on that run; ties go to the
    one with the smallest `Policy.code`.

    Raises ValueError or SchedulingError as `simulate`.

    ``candidates``: names; all policies if empty.
    """
    # A profile may be shorter than the job, or longer.
    _, profiled_iterations = profile.times.shape
    columns = np.arange(problem.job.iterations) % profiled_iterations
    expected_run = Realization(
        times=profile.times[:, columns],
        volumes=profile.volumes[:, columns],
    )
    names = {"oes", *candidates}
    if not candidates:
        # To divide ports among jobs is the same where there is one.
        is_alone = len(problem.job.job_names) == 1
        for name, rule in RATE_POLICIES.items():
            if not (is_alone and rule.by_job):
                names.add(name)

    # none is maxmin by another name: one simulation for both.
    rules = {}
    # Backwards, so that of two names of one rule the first in the table stays.
    for name in reversed(RATE_POLICIES):
        if name in names and name != "portfolio":
            rules[policy_named(name).code] = name
    spans = {}
    # Of equal ones `min` keeps the first: by code, that is oes before all others.
    for _, name in sorted(rules.items()):
        spans[name] = makespan(problem, expected_run, name, profile=profile)
    return min(spans, key=spans.__getitem__)


def _recorder(edges: int, room: int = 0) -> Record:
    """Return room for the rows of a rate history; without any they are counted."""
    return Record(
        "RateRecord",
        counts=True,
        room=room,
        board=new_rate_changes(edges),
        time=np.empty(room),
        edge=np.empty(room, np.int64),
        iteration=np.empty(room, np.int64),
        rate=np.empty(room),
    )


_ROUNDING = 1e-9  # relative, of a limit
#: Looks at quotas that the first run keeps: 32 kB for 4 tuners.
_LOOKS = 1024


class _Run:
    """A placed job, its times and volumes and its rule, in the arrays of the core."""

    def __init__(
        self,
        problem: Problem,
        realization: Realization,
        policy: str,
        *,
        profile: Realization | None,
        step: float,
    ) -> None:
        job = problem.job
        realization.check_shapes(job)
        if not 0.0 <= step < math.inf:
            raise ValueError(f"a step of {step} s")
        # Without a profile a rule that looks ahead knows the very run: its best case.
        profile = profile or realization
        check_rows(job, profile)
        if policy_named(policy).code == PORTFOLIO:
            # By the profile, not by the run: a choice must not know what is to come.
            policy = best_policy(problem, profile)

        self.problem = problem
        self.realization = realization
        self.step = step
        rule = rate_policy(policy)
        self.is_own_rule = rule.rates is not None
        self.layout = placed_layout(problem, rule)
        self.after = expectation(
            self.layout, plain(profile.times), plain(profile.volumes)
        )
        self.times = plain(realization.times)
        self.volumes = plain(realization.volumes)

    def carry_out(
        self,
        *,
        recorder: Record | None = None,
        logged: bool = True,
        looks: int = _LOOKS,
        limit: float = math.inf,
    ) -> tuple[float, State]:
        """Return the makespan and the state at the end; infinity beyond a limit.

        Raises SchedulingError when tasks are left that nothing would ever start.
        """
        state = State(self.layout, self.after, logged=logged, looks=looks)
        end = lib.run(
            self.layout.c,
            state.c,
            pointer(self.times),
            pointer(self.volumes),
            limit,
            self.step,
            ffi.NULL if recorder is None else recorder.core,
        )

        self.layout.job.check()
        if math.isnan(end):  # C raises nothing: so it says that tasks are left
            story = _describe_stuck(
                self.problem,
                state,
                own_rule=self.is_own_rule,
            )
            raise SchedulingError(story)
        return float(end), state

    def schedule_of(self, state: State, rates: RateHistory | None = None) -> Schedule:
        """Return the schedule of the state at its end."""
        # Of few looks at quotas the first run has kept all: no second one is needed.
        if state.looks > len(state.log.quotas):
            _, state = self.carry_out(looks=state.looks)

        log = state.log
        # Volumes are drawn for all iterations, also for those that an edge never sends.
        is_never_ready = np.isnan(log.flow_ready)
        flow_bytes = np.where(is_never_ready, np.nan, self.realization.volumes)
        reads = None
        if log.reads.size:
            reads = log.reads
        return Schedule(
            problem=self.problem,
            task_start=log.task_start,
            task_end=log.task_end,
            flow_ready=log.flow_ready,
            flow_start=log.flow_start,
            flow_end=log.flow_end,
            flow_bytes=flow_bytes,
            rates=rates,
            reads=reads,
            quotas=state.quotas,
        )


def _describe_stuck(problem: Problem, state: State, *, own_rule: bool) -> str:
    """Return a text on tasks that never start, flows cut off, holders of slots."""
    tasks_left = np.flatnonzero(state.ended < problem.job.rounds)
    # All tasks behind one that is stuck are left: the first few are enough to see.
    names = [problem.job.tasks[task].name for task in tasks_left[:8]]
    reasons = [
        f"nothing would ever start {', '.join(names)}",
        *_cut_flows(problem, state),
        *_awaited_slots(problem, state),
    ]
    # A rule of emu may have flows queue behind one that is cut off, which is named.
    if own_rule:
        reasons += _idle_flows(problem, state)
    return "; ".join(reasons)


def _cut_flows(problem: Problem, state: State) -> Iterator[str]:
    """Yield a text for each link that is cut for good and that flows wait for."""
    steps = problem.links.steps
    for port in steps.cut_for_good:
        waiting = []
        for edge, hops in enumerate(problem.hops):
            if port in hops and _waits(state, edge):
                name = _name_flow(problem, state, edge)
                waiting.append(name)
        if not waiting:
            continue

        flows = ", ".join(waiting[:3])
        if len(waiting) > 3:
            flows += f" and {len(waiting) - 3} more"
        link = problem.links[port].name
        times, _ = steps.of(port)
        cut_time = times[-1]
        yield (
            f"{flows} wait for {link}, which carries nothing from "
            f"{cut_time:g} s on: write for how long (events, for)"
        )


def _idle_flows(problem: Problem, state: State) -> Iterator[str]:
    """Yield a text on active flows over links that carry something, without a rate.

    A flow that waits for its turn on a channel is not active: no rule is asked of it.
    """
    cut_ports = set(problem.links.steps.cut_for_good)
    names = []
    for edge in sorted(state.sending):
        hops = problem.hops[edge]
        crossed_cuts = cut_ports.intersection(hops)
        if crossed_cuts:
            continue
        name = _name_flow(problem, state, edge)
        names.append(name)

    first_names = names[:3]
    if first_names:
        flows = ", ".join(first_names)
        yield f"the rule for rates gives {flows} no rate"


def _waits(state: State, edge: int) -> bool:
    ready = state.ready[edge]
    return bool(ready > state.delivered[edge])


def _name_flow(problem: Problem, state: State, edge: int) -> str:
    name = problem.job.edge_names[edge]
    iteration = state.delivered[edge]
    return f"{name} (iteration {iteration})"


def _awaited_slots(problem: Problem, state: State) -> Iterator[str]:
    """Yield a text for each pool that tasks wait for, with those that hold its slots.

    No task goes on by then: a slot is held behind the end of one where another task
    gives it back.
    """
    tasks = problem.job.tasks
    for pool in problem.pools:
        takers = [
            tasks[queued].name for queued in state.queued if queued in pool.takers
        ]
        if not takers:
            continue
        holders = []
        for position in pool.takers:
            task = tasks[position]
            started = state.started[position]
            # Who holds a slot is written nowhere: so every taker is named that may.
            gives_back = task.gives_back == pool.name
            if started > 0 and not gives_back:
                holders.append(f"{task.name} (iteration {started - 1})")

        waiting = ", ".join(takers)
        holding = ", ".join(holders)
        machine = problem.cluster.machines[pool.machine].name
        yield (
            f"{waiting} wait for a slot of {pool.name} on {machine}, held by {holding}"
        )


# Measure the rounding in a makespan: the effect of the last digits of its input.

#: Relative change of every time and volume: some thousand last bits.
NUDGE = 1e-12
#: Runs with other last digits: a choice, not measured.
NUDGES = 4


def rounding_effect(
    problem: Problem,
    realization: Realization,
    policy: str = "oes",
    *,
    profile: Realization | None = None,
) -> float:
    """Return by how many seconds the last digits of times and volumes move a makespan.

    Every time and volume is changed by up to 1e-12 of itself, at random with a fixed
    seed, a few times over; the largest change of the makespan counts. In a job that
    chains many ties a last digit decides the order, and may move the makespan by a
    percent: two placements that are closer than this are equally good.

    Raises ValueError or SchedulingError as `simulate`.
    """
    # A fixed seed: the same question must print the same digits.
    rng = np.random.default_rng(0)
    before = makespan(problem, realization, policy, profile=profile)
    most = 0.0
    for _ in range(NUDGES):
        nudged_run = Realization(
            _nudge(realization.times, rng),
            _nudge(realization.volumes, rng),
        )
        after = makespan(problem, nudged_run, policy, profile=profile)
        most = max(most, abs(after - before))
    return most


def _nudge(values: Floats, rng: np.random.Generator) -> Floats:
    return values * (1.0 + NUDGE * rng.uniform(-1.0, 1.0, values.shape))
